"""Distances between two clouds of tokens."""
