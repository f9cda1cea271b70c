"""The paper, one claim per file."""
