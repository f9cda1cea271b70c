"""Watching encoders at work: what normal text looks like to a model, and how to notice when text stops doing so."""
