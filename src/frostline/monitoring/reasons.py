"""Scores of texts, as people read them: a score and a p-value per text, and the reasons in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float

from frostline.monitoring.detector import PARTS
from frostline.monitoring.judge import Assessment
from frostline.monitoring.profile import names, resultants
from frostline.results import Result

EXPLAINED = 0.05
"""Largest p-value of a text that gets reasons."""
STRANGE = 2.0
"""A part is named as a reason from this many standard deviations on."""
WORDS = 5
"""Largest number of tokens that a reason names."""
QUARTERS = ("first", "second", "third", "last")
"""Names of the four passages of a text."""
Spell = Callable[[int, int], str]
"""Function that returns the token of a text (its row in the batch) at a place."""


@dataclass(frozen=True, repr=False)
class Reason(Result):
    """Why a text is strange: one part of its score that is unusually large.

    Parameters
    ----------
    part
        The part of the score: broken, words, foreign, passage or concentration.
    sigma
        How many standard deviations the part lies above its usual value.
    says
        The reason in words.
    tokens
        Places of the tokens that the reason is about.

    Examples
    --------
    >>> from frostline.monitoring.reasons import Reason
    >>> Reason("foreign", 3.2, "its passages are far from those of the reference")
    Reason(foreign (3.2 σ): its passages are far from those of the reference)
    """

    part: str
    sigma: float
    says: str
    tokens: tuple[int, ...] = ()

    def describe(self) -> str:
        """The part, its standard deviations, and the reason in words."""
        return f"{self.part} ({self.sigma:.1f} σ): {self.says}"

    def __str__(self) -> str:
        return self.describe()


@dataclass(frozen=True, eq=False, repr=False)
class Scores(Result):
    """Last station of a text: its numbers in numpy and its reasons in words. Every array has one row per text.

    Parameters
    ----------
    scores
        How strange each text is; larger is stranger.
    p_values
        Conformal p-values: rank of the score among calibration texts of about the same length.
    parts
        Standard normal scores of each part of the score, by the name of the part.
    observed
        Resultant length of the text's tokens at every cloud that is read.
    expected
        The same length for as many tokens of the reference: √(1/n + (1 − 1/n)·c), with c their mean cosine.
    reasons
        Reasons for texts with p-values up to 5 %, strongest first; empty for the others.
    alarm
        Whether the alarm of a watched stream rang in these texts; None where no stream is watched.

    Examples
    --------
    >>> import numpy as np
    >>> from frostline.monitoring.reasons import Scores
    >>> Scores(np.array([1.0, 4.2]), np.array([0.4, 0.01]), {}, np.ones((2, 1)), np.ones((2, 1)), ((), ()))
    Scores(2 texts, 1 with p ≤ 0.05, least p = 0.01)
    """

    scores: Float[np.ndarray, " n"]
    p_values: Float[np.ndarray, " n"]
    parts: Mapping[str, Float[np.ndarray, " n"]]
    observed: Float[np.ndarray, "n clouds"]
    expected: Float[np.ndarray, "n clouds"]
    reasons: tuple[tuple[Reason, ...], ...]
    alarm: bool | None = None

    def headline(self) -> str:
        """How many texts there are, how many are strange, and the least p-value."""
        strange = int((self.p_values <= EXPLAINED).sum())
        least = f", least p = {self.p_values.min():.2g}" if len(self.p_values) else ""
        return f"{len(self.scores)} texts, {strange} with p ≤ {EXPLAINED:g}{least}"

    def describe(self) -> str:
        """The headline, and the reasons of every text that has some."""
        lines = [
            f"text {number}, p = {self.p_values[number]:.2g}: {reason.describe()}"
            for number, reasons in enumerate(self.reasons)
            for reason in reasons
        ]
        return "\n".join([self.headline(), *lines])

    def part(self, rows: slice) -> "Scores":
        """Scores of some of the texts, one after another."""
        parts = {name: values[rows] for name, values in self.parts.items()}
        return Scores(
            self.scores[rows],
            self.p_values[rows],
            parts,
            self.observed[rows],
            self.expected[rows],
            self.reasons[rows],
        )

    @classmethod
    def joined(cls, pieces: Sequence["Scores"], order: Sequence[int]) -> "Scores":
        """Scores of several pieces as one; ``order`` has the number of every text, in the order of the pieces."""
        back = np.argsort(order)
        reasons = [reason for piece in pieces for reason in piece.reasons]
        joined: dict[str, Any] = {
            field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])[back]
            for field in fields(cls)
            if field.name not in ("parts", "reasons", "alarm")
        }
        parts = {name: np.concatenate([piece.parts[name] for piece in pieces])[back] for name in pieces[0].parts}
        return cls(**joined, parts=parts, reasons=tuple(reasons[number] for number in back))

    @classmethod
    def of(cls, texts: Assessment, rows: range, spell: Spell | None = None, *, alarm: bool | None = None) -> "Scores":
        """Scores of some rows of an assessment; ``spell`` names the tokens of reasons, else their places do."""
        chosen = slice(rows.start, rows.stop)
        numbers = texts.profile.numbers[chosen]
        p_values = texts.p_values[chosen].cpu().numpy()
        return cls(
            texts.score[chosen].double().cpu().numpy(),
            p_values,
            dict(zip(PARTS, texts.parts[chosen].double().cpu().numpy().T, strict=True)),
            resultants(numbers).cpu().numpy(),
            texts.judge.detector.expected(numbers[:, 0]).cpu().numpy(),
            tuple(
                reasons_of(texts, row, spell) if p <= EXPLAINED else () for row, p in zip(rows, p_values, strict=True)
            ),
            alarm,
        )


def reasons_of(texts: Assessment, row: int, spell: Spell | None) -> tuple[Reason, ...]:
    """Reasons for one text: every part that is unusually large, the largest first."""
    strengths = dict(zip(PARTS, texts.parts[row].tolist(), strict=True))
    strong = sorted(((sigma, part) for part, sigma in strengths.items() if sigma >= STRANGE), reverse=True)
    return tuple(Reason(part, sigma, *_WORDS_OF_PART[part](texts, row, spell)) for sigma, part in strong)


def _broken(texts: Assessment, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
    directions = texts.judge.detector.directions.kinds
    sigmas = texts.kinds[row, : len(directions)]
    most = int(sigmas.argmax())
    return f"most like {directions[most]} text ({sigmas[most]:.1f} σ)", ()


def _words(texts: Assessment, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
    probes = texts.judge.detector.probes.kinds
    if not probes or texts.profile.tokens is None:
        return "words that do not belong", ()
    most = int(texts.kinds[row, -len(probes) :].argmax())
    odds = texts.profile.tokens[row, most]
    top = odds.topk(min(WORDS, len(odds))).indices.tolist()
    # The strangest token is named in any case, others when they are more likely changed than not.
    places = tuple(place for place in top if place == top[0] or odds[place] > 0)
    named = [str(place) if spell is None else repr(spell(row, place)) for place in places]
    return f"tokens as in {probes[most]} text: {', '.join(named)}", places


def _foreign(texts: Assessment, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
    return "its passages are far from those of the reference", ()


def _passage(texts: Assessment, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
    distances = texts.judge.detector.distances(texts.profile.passages[row : row + 1])
    return f"the {QUARTERS[int(distances.argmax())]} quarter of the text is the most foreign", ()


def _concentration(texts: Assessment, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
    """The layer-wise number that is farthest from its usual value."""
    numbers, centre = texts.profile.numbers[row], texts.judge.detector.centre
    sigmas = (numbers - centre) / texts.judge.spread.clamp_min(1e-12)
    most = int(sigmas.abs().argmax())
    name, measured, cloud = names(texts.judge.clouds)[most]
    value = f"{measured}: {name} after layer {cloud} is {numbers[most]:.3g}, usually {centre[most]:.3g}"
    return f"{value} ({sigmas[most]:+.1f} σ)", ()


_WORDS_OF_PART: Mapping[str, Callable[..., tuple[str, tuple[int, ...]]]] = {
    "broken": _broken,
    "words": _words,
    "foreign": _foreign,
    "passage": _passage,
    "concentration": _concentration,
}
"""Function that writes the reason of a part, and the places of its tokens."""
