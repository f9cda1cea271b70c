"""What the theory says about a real encoder, and how far to believe it."""
