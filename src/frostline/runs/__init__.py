"""A spec, a run directory, and what lies between: many results come from one recorded run."""
