"""Measurements of a run against the theory."""
