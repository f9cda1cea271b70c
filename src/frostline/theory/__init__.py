"""Predictions from the matrices of a head: limit, flow, rates, bound, terminal phase; no tokens interact here."""
