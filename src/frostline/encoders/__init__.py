"""Real encoders as Attention objects: which weights are where, read safely, folded onto the sphere, seen at work."""
