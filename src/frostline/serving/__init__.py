"""The detector as a service: HTTP scoring, metrics, a live page, events on disk."""
