"""frostline explore: a local page to play with."""
