"""Scores of texts, as people read them: a score and a p-value per text, and the reasons in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
from jaxtyping import Float

from frostline.monitoring.detector import PARTS
from frostline.monitoring.judge import Assessment
from frostline.monitoring.profile import OF_CLOUD, names, resultants
from frostline.monitoring.surface import SurfaceReference, read_surface
from frostline.results import Result

EXPLAINED = 0.05
"""Largest p-value of a text that gets reasons."""
STRANGE = 2.0
"""A part is named as a reason from this many standard deviations on."""
WORDS = 5
"""Largest number of tokens that a reason names."""
QUARTERS = ("first", "second", "third", "last")
"""Names of the four passages of a text."""
COARSE = 0.02
"""From this spread on two decimals are enough; three are shown below it."""
SAME = 1.0
"""A layer counts as changed in the same way as the most changed one from this many standard deviations on."""
BARS = "▁▂▃▄▅▆▇█"
"""Bars of a picture: the fourth is usual, each other one a standard deviation lower or higher."""
USUAL_BAR = 3
"""Place of the bar that is usual."""
CHANGES = {
    "resultant": ("tokens gather less than usual", "tokens gather more than usual"),
    "scatter": (
        "tokens differ less than usual in how far out they lie",
        "tokens differ more than usual in how far out they lie",
    ),
    "farthest": ("a token lies further apart than usual", "no token lies as far apart as usual"),
    "neighbours": ("neighbouring tokens are less alike than usual", "neighbouring tokens are more alike than usual"),
    "second neighbours": ("tokens two apart are less alike than usual", "tokens two apart are more alike than usual"),
    "first": ("the first token lies further apart than usual", "the first token lies closer to the others than usual"),
    "last": ("the last token lies further apart than usual", "the last token lies closer to the others than usual"),
    "before last": (
        "the token before the last lies further apart than usual",
        "the token before the last lies closer to the others than usual",
    ),
}
"""A number of the layers that is below and above its usual value, in words."""
Spell = Callable[[int, int], str]
"""Function that returns the token of a text (its row in the batch) at a place."""


@dataclass(frozen=True, repr=False)
class Reason(Result):
    """Why a text is strange: a plain fact about the text, or a part of its score that is unusually large.

    Parameters
    ----------
    part
        The plain fact: script, markup, repetition or length; the part of the score: broken, words, foreign, passage or
        concentration; or "gathering" where the tokens of a deep profile gather more or less than expected.
    sigma
        How many standard deviations the part of the score lies above its usual value; for a plain fact, the largest
        of all parts.
    says
        The reason in words.
    tokens
        Places of the tokens that the reason is about.
    layers
        For every layer looked at its number (0: before the first), the value there, and the usual one, where the
        reason is about layers.
    picture
        These values as bars, one per layer: ▄ is usual, each bar lower or higher is one standard deviation.

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
    layers: tuple[tuple[int, float, float], ...] = ()
    picture: str = ""

    def describe(self) -> str:
        """The part, its standard deviations, and the reason in words, with its picture."""
        return f"{self.part} ({self.sigma:.1f} σ): {self.says}" + (f" {self.picture}" if self.picture else "")

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
        Resultant length of the text's tokens at every cloud that is read; of a deep profile, of its centred tokens
        after the attention half of two layers.
    expected
        The same length for as many tokens of the reference: √(1/n + (1 − 1/n)·c), with c their mean cosine; of a deep
        profile, the length that the text's tokens get when all they attend to, but for the first, the last, their
        neighbours and themselves, is a cloud like the reference's.
    reasons
        Reasons for texts with p-values up to 5 %: plain facts about the text first, then parts of the score, strongest
        first; empty for the others.
    alarm
        Whether the alarm of a watched stream rang in these texts; None where no stream is watched.
    spread
        Standard deviation of observed minus expected over calibration texts, for a deep profile; None for others.

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
    spread: Float[np.ndarray, "n layers"] | None = None

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
        """Scores of some of the texts.

        Parameters
        ----------
        rows
            The texts.

        Returns
        -------
        Scores
            Their scores.
        """
        parts = {name: values[rows] for name, values in self.parts.items()}
        return Scores(
            self.scores[rows],
            self.p_values[rows],
            parts,
            self.observed[rows],
            self.expected[rows],
            self.reasons[rows],
            spread=None if self.spread is None else self.spread[rows],
        )

    @classmethod
    def joined(cls, pieces: Sequence["Scores"], order: Sequence[int]) -> "Scores":
        """Join scores of several pieces into one.

        Parameters
        ----------
        pieces
            Scores of parts of the texts.
        order
            The number of every text, in the order of the pieces.

        Returns
        -------
        Scores
            The scores of all, in the order of these numbers.
        """
        back = np.argsort(order)
        reasons = [reason for piece in pieces for reason in piece.reasons]
        joined: dict[str, Any] = {
            field.name: np.concatenate([getattr(piece, field.name) for piece in pieces])[back]
            for field in fields(cls)
            if field.name not in ("parts", "reasons", "alarm") and getattr(pieces[0], field.name) is not None
        }
        parts = {name: np.concatenate([piece.parts[name] for piece in pieces])[back] for name in pieces[0].parts}
        return cls(**joined, parts=parts, reasons=tuple(reasons[number] for number in back))

    @classmethod
    def of(
        cls,
        texts: Assessment,
        rows: range,
        spell: Spell | None = None,
        *,
        alarm: bool | None = None,
        usual: SurfaceReference | None = None,
        tokenizer: Any = None,
    ) -> "Scores":
        """Scores of some rows of an assessment, as people read them.

        Parameters
        ----------
        texts
            The assessment.
        rows
            Those of its texts that are wanted.
        spell
            A function that names the tokens of reasons; without it their places do.
        alarm
            Whether the alarm rang at these texts; None where there is no alarm.
        usual
            The surface of the reference: with it plain facts come first.
        tokenizer
            The tokenizer, which most of these facts need.

        Returns
        -------
        Scores
            Scores, p-values and reasons of these texts.
        """
        texts = texts.gathered()
        chosen = slice(rows.start, rows.stop)
        numbers = texts.profile.numbers[chosen]
        observed, expected, spread = resultants(numbers), texts.judge.detector.expected(numbers[:, 0]), None
        if texts.gathering is not None and texts.judge.reference_cloud is not None:
            observed, expected = texts.gathering.observed[chosen], texts.gathering.expected[chosen]
            spread = texts.judge.reference_cloud.spread.expand_as(expected).cpu().numpy()
        p_values = texts.p_values[chosen].cpu().numpy()
        return cls(
            texts.score[chosen].double().cpu().numpy(),
            p_values,
            dict(zip(PARTS, texts.parts[chosen].double().cpu().numpy().T, strict=True)),
            observed.cpu().numpy(),
            expected.cpu().numpy(),
            tuple(
                reasons_of(texts, row, spell, usual, tokenizer) if p <= EXPLAINED else ()
                for row, p in zip(rows, p_values, strict=True)
            ),
            alarm,
            spread,
        )


def reasons_of(
    texts: Assessment,
    row: int,
    spell: Spell | None,
    usual: SurfaceReference | None = None,
    tokenizer: Any = None,
) -> tuple[Reason, ...]:
    """Reasons for one text: plain facts about it, then every part that is unusually large, the largest first.

    For a deep profile, how much its tokens gather comes last, where that is not what its cloud should do.

    A text that plain facts explain is not likened to kinds of broken text: the detector has learned these from copies
    of the reference, and Chinese beside an English one is closest to whichever has the rarest characters.
    """
    strengths = dict(zip(PARTS, texts.parts[row].tolist(), strict=True))
    facts = plain_facts(texts, row, usual, tokenizer)
    reasons = [Reason(part, max(strengths.values()), says) for part, says in facts]
    for sigma, part in sorted(((sigma, part) for part, sigma in strengths.items() if sigma >= STRANGE), reverse=True):
        if part == "words":
            reasons.append(Reason(part, sigma, *_words(texts, row, spell, likened=not facts)))
        elif part != "broken" or not facts:
            reasons.append(Reason(part, sigma, *_WORDS_OF_PART[part](texts, row)))
    return (*reasons, *_gathering(texts, row))


def plain_facts(
    texts: Assessment, row: int, usual: SurfaceReference | None, tokenizer: Any = None
) -> tuple[tuple[str, str], ...]:
    """Everything about a text's surface that lies outside the reference; nothing where ids or reference are unknown."""
    ids = None if usual is None else texts.ids_of(row)
    return () if usual is None or ids is None else usual.explain(read_surface(ids, tokenizer))


def _broken(texts: Assessment, row: int) -> tuple[str]:
    directions = texts.judge.detector.directions.kinds
    sigmas = texts.kinds[row, : len(directions)]
    most = int(sigmas.argmax())
    return (f"most like {directions[most]} text ({sigmas[most]:.1f} σ)",)


def _gathering(texts: Assessment, row: int) -> tuple[Reason, ...]:
    """The reason of a layer of a deep profile that gathers more or less than the law expects, where one does."""
    judge, gathering = texts.judge, texts.gathering
    if judge.reference_cloud is None or gathering is None:
        return ()
    observed, expected = gathering.observed[row].tolist(), gathering.expected[row].tolist()
    spread = judge.reference_cloud.spread.tolist()
    changes = [(value - usual) / one for value, usual, one in zip(observed, expected, spread, strict=True)]
    most = max(range(len(changes)), key=lambda layer: abs(changes[layer]))
    if not abs(changes[most]) >= STRANGE:
        return ()
    digits = 2 if spread[most] >= COARSE else 3
    says = (
        f"layer {judge.layers[most]} gathers {'more' if changes[most] > 0 else 'less'} than its cloud should: "
        f"{observed[most]:.{digits}f}, expected {expected[most]:.{digits}f} ± {spread[most]:.{digits}f}"
    )
    layers = _layers(judge.layers, observed, expected)
    return (Reason("gathering", abs(changes[most]), says, (), layers, _bars(changes)),)


def _layers(
    numbers: Sequence[int], values: Sequence[float], usual: Sequence[float]
) -> tuple[tuple[int, float, float], ...]:
    return tuple((number, round(x, 4), round(y, 4)) for number, x, y in zip(numbers, values, usual, strict=True))


def _bars(changes: Sequence[float]) -> str:
    return "".join(BARS[min(max(USUAL_BAR + round(change), 0), len(BARS) - 1)] for change in changes)


def _words(texts: Assessment, row: int, spell: Spell | None, *, likened: bool) -> tuple[str, tuple[int, ...]]:
    probes = texts.judge.detector.probes.kinds
    if not probes or texts.profile.tokens is None:
        return "words that do not belong", ()
    most = int(texts.kinds[row, -len(probes) :].argmax())
    odds = texts.profile.tokens[row, most]
    top = odds.topk(min(WORDS, len(odds))).indices.tolist()
    # The strangest token is named in any case, others when they are more likely changed than not.
    places = tuple(place for place in top if place == top[0] or odds[place] > 0)
    named = [str(place) if spell is None else repr(spell(row, place)) for place in places]
    kind = f"tokens as in {probes[most]} text" if likened else "tokens that fit least"
    return f"{kind}: {', '.join(named)}", places


def _foreign(texts: Assessment, row: int) -> tuple[str]:
    return ("its passages are far from those of the reference",)


def _passage(texts: Assessment, row: int) -> tuple[str]:
    distances = texts.judge.detector.distances(texts.profile.passages[row : row + 1])
    return (f"the {QUARTERS[int(distances.argmax())]} quarter of the text is the most foreign",)


def _concentration(
    texts: Assessment, row: int
) -> tuple[str, tuple[int, ...], tuple[tuple[int, float, float], ...], str]:
    """The kind of number that has changed most, at how many layers it has, and its picture over the layers.

    How much tokens gather goes before other numbers: it is the one that people can see.
    """
    judge = texts.judge
    numbers, centre = texts.profile.numbers[row], judge.detector.centre.clone()
    resultants(centre[None])[0] = judge.detector.expected(numbers[None, 0])[0]
    sigmas = ((numbers - centre) / judge.spread.clamp_min(1e-12)).nan_to_num()
    gathering = float(resultants(sigmas[None]).abs().max())
    kind = "resultant" if gathering >= STRANGE else names(judge.clouds)[int(sigmas.abs().argmax())][0]
    if kind not in OF_CLOUD:
        return _of_whole_text(kind, numbers, centre), (), (), ""
    column = slice(2 + list(OF_CLOUD).index(kind), None, len(OF_CLOUD))
    values, usual, changes = numbers[column].tolist(), centre[column].tolist(), sigmas[column].tolist()
    most = max(range(len(changes)), key=lambda layer: abs(changes[layer]))
    up = changes[most] > 0
    alike = sum((change if up else -change) >= SAME for change in changes)
    layer = judge.clouds[most]
    where = f"after layer {layer}" if layer else "before the first layer"
    where += " only" if alike == 1 < len(changes) else ""
    pair = f"{_short(values[most], usual[most])}, usually {_short(usual[most], values[most])}"
    at = f" at {alike} of {len(changes)} layers looked at; most" if alike > 1 else ""
    rare = "" if abs(changes[most]) >= STRANGE else "a rare combination of small changes, the largest: "
    layers = _layers(judge.clouds, values, usual)
    return f"{rare}{CHANGES[kind][up]}{at} {where}: {pair}", (), layers, _bars(changes)


def _of_whole_text(kind: str, numbers: Any, centre: Any) -> str:
    """The length or the repetition of a text, beside the usual one."""
    if kind == "length":
        return f"its length: {numbers[0].exp():.0f} tokens, usually {centre[0].exp():.0f}"
    more = "more" if numbers[1] > centre[1] else "less"
    return f"it repeats itself {more} than usual: {_short(float(numbers[1]), float(centre[1]))}, usually " + _short(
        float(centre[1]), float(numbers[1])
    )


def _short(value: float, other: float) -> str:
    """A value with two decimals, with three where two would not tell it from the other."""
    return f"{value:.2f}" if f"{value:.2f}" != f"{other:.2f}" else f"{value:.3f}"


_WORDS_OF_PART: Mapping[str, Callable[[Assessment, int], tuple[Any, ...]]] = {
    "broken": _broken,
    "foreign": _foreign,
    "passage": _passage,
    "concentration": _concentration,
}
"""Function that writes the reason of a part: its words, and where it has them its tokens, layers and picture."""
