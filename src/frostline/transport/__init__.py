"""How far apart two clouds of tokens are."""
