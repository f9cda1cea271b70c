"""Tokens at finite temperature: the mean map, steppers and simulation."""
