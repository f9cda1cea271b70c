"""The theory applied to a real encoder, and how far to believe it."""
