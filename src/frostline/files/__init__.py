"""Everything that any room needs of a disk: atomic writes, digests, plain JSON, suggestions for misspelt names."""
