"""Progress of long work: every verb that may take long calls ``progress`` with a Progress."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from frostline.errors import BadParameter


@dataclass(frozen=True)
class Progress:
    """How far a long piece of work is.

    Attributes
    ----------
    part : str
        The part of the work; empty where it has one part only.
    step : str
        The present step, in words.
    done, total : float
        The work done and the work in all, in any unit; ``share`` is their ratio.
    notice : str
        A sentence for the user while the work waits for something; empty otherwise.

    Examples
    --------
    >>> Progress("reading", "text 3 of 12", 3, 12).share
    0.25
    """

    part: str
    step: str
    done: float
    total: float
    notice: str = ""

    @property
    def share(self) -> float:
        """The work done over the work in all, from 0 to 1; 0 where there is no work or no number of it."""
        share = self.done / self.total if self.total > 0 else 0.0
        return min(max(share, 0.0), 1.0) if share == share else 0.0


ProgressFunction: TypeAlias = Callable[[Progress], object]
"""A function that is told about progress; what it returns is ignored."""
Tell: TypeAlias = Callable[[str, str, float, float], None]
"""Called inside long work with the part, its present step, the work done and the work in all."""


def telling(progress: ProgressFunction | None) -> Tell:
    """A function of part, step, done and total that calls ``progress``; without one it does nothing.

    Raises BadParameter for a ``progress`` that cannot be called.
    """
    if progress is not None and not callable(progress):
        raise BadParameter(f"progress is {progress!r}; a function that takes a Progress is needed.")

    def tell(part: str, step: str, done: float, total: float) -> None:
        if progress is not None:
            progress(Progress(part, step, done, total))

    return tell
