"""What every page and service of ours stands on: an address, a guard, a server that ends cleanly."""
