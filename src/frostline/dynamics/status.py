"""Statuses of a run: how it ended, each with the sentence that the user reads."""

from enum import StrEnum


class Status(StrEnum):
    """How a run ended; ``sentence`` says it in words, with advice.

    Members are strings: ``run.status == "finished"`` holds where ``run.status is Status.FINISHED``.

    Examples
    --------
    >>> Status("stalled").complete, Status.DIVERGED.sentence
    (True, 'a token became NaN or infinite; try a smaller step or float64')
    """

    FINISHED = "finished"
    STALLED = "stalled"
    DIVERGED = "diverged"
    STEP_LIMIT = "step limit"
    STEP_TOO_SMALL = "step too small"
    INTERRUPTED = "interrupted"

    @property
    def sentence(self) -> str:
        """The status in words, with advice."""
        return _SENTENCES[self]

    @property
    def complete(self) -> bool:
        """Whether the run has reached its final time."""
        return self in (Status.FINISHED, Status.STALLED)


_SENTENCES = {
    Status.FINISHED: "reached the final time",
    Status.STALLED: "the tokens came to rest exactly: one more step would not change a bit, so later times repeat the "
    "last",
    Status.DIVERGED: "a token became NaN or infinite; try a smaller step or float64",
    Status.STEP_LIMIT: "the step limit was reached before the final time; raise max_steps, the step or the tolerance",
    Status.STEP_TOO_SMALL: "the error control asked for steps below rounding; raise the tolerance",
    Status.INTERRUPTED: "stopped by the caller before the final time",
}
