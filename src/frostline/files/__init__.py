"""Files for any room: atomic writes, locks, digests, plain JSON, TOML, suggestions for misspelt names."""
