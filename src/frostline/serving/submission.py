"""A text as a client submits it: with its name for the text, its own name, and whether it counts."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Submission:
    """One text of a call.

    id       the client's name for the text, repeated in answers, events and the status
    source   who the text comes from; empty where nobody says
    dry_run  True for a text that is scored and counts for nothing
    """

    text: str
    id: str = ""
    source: str = ""
    dry_run: bool = False
