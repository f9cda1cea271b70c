"""Judging texts: a score, a p-value, and reasons in words."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from frostline.monitoring.calibration import Conformal
from frostline.monitoring.detector import PARTS, Detector, Features, Parts
from frostline.monitoring.profile import Profile, names, resultants
from frostline.printable import one_line

EXPLAINED = 0.05
"""Reasons are given for texts with p-values up to this."""
STRANGE = 2.0
"""A part is named as a reason from this many standard deviations on."""
WORDS = 5
"""Tokens named as reasons, at most."""
QUARTERS = ("first", "second", "third", "last")
Spell = Callable[[int, int], str]
"""The token of a text (by its number in the batch) at a place."""


@dataclass(frozen=True)
class Reason:
    """Why a text is strange: the part of the score, how many standard deviations, in words, and places of tokens."""

    part: str
    sigma: float
    says: str
    tokens: tuple[int, ...] = ()

    def __repr__(self) -> str:
        return one_line(self, str(self))

    def __str__(self) -> str:
        return f"{self.part} ({self.sigma:.1f} σ): {self.says}"


@dataclass(frozen=True, eq=False)
class Scores:
    """One entry per text. ``scores``: larger is stranger; ``p_values``: conformal; ``parts``: standard normal scores.

    observed, expected  resultant length of the tokens at every cloud looked at, and what it is for the reference's
                        tokens, as many as there are: √(1/n + (1 − 1/n)·c), c their mean cosine
    reasons             for texts with p-values up to 5 %
    """

    scores: Float[np.ndarray, " n"]
    p_values: Float[np.ndarray, " n"]
    parts: Mapping[str, Float[np.ndarray, " n"]]
    observed: Float[np.ndarray, "n clouds"]
    expected: Float[np.ndarray, "n clouds"]
    reasons: tuple[tuple[Reason, ...], ...]

    def __repr__(self) -> str:
        strange = int((self.p_values <= EXPLAINED).sum())
        least = f", least p = {self.p_values.min():.2g}" if len(self.p_values) else ""
        return one_line(self, f"{len(self.scores)} texts, {strange} with p ≤ {EXPLAINED:g}{least}")

    def part(self, rows: slice) -> "Scores":
        """Some of the texts, one after another."""
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
    def joined(cls, found: Sequence["Scores"], order: Sequence[int]) -> "Scores":
        """One after another, then put where ``order`` says."""
        back = np.argsort(order)
        reasons = [reason for one in found for reason in one.reasons]
        joined = {
            field.name: np.concatenate([getattr(one, field.name) for one in found])[back]
            for field in fields(cls)
            if field.name not in ("parts", "reasons")
        }
        parts = {name: np.concatenate([one.parts[name] for one in found])[back] for name in found[0].parts}
        return cls(**joined, parts=parts, reasons=tuple(reasons[number] for number in back))


@dataclass(frozen=True, eq=False)
class Judge:
    """A detector with its calibration, for profiles of these clouds."""

    clouds: tuple[int, ...]
    detector: Detector
    conformal: Conformal

    def __call__(self, found: Profile) -> "Judged":
        texts = Features.of(found)
        parts = self.detector(texts)
        return Judged(self, found, parts, self.conformal.p_values(parts.score, texts.lengths))

    def to(self, device: torch.device) -> "Judge":
        return Judge(self.clouds, self.detector.to(device), self.conformal.to(device))

    @cached_property
    def spread(self) -> Float[Tensor, " k"]:
        """Standard deviation of every layer-wise number in the reference."""
        return torch.linalg.pinv(self.detector.whitening).square().sum(0).sqrt()


@dataclass(frozen=True, eq=False)
class Judged:
    """What a judge found in a batch, on the device it was found on."""

    judge: Judge
    profile: Profile
    parts: Parts
    p: Float[Tensor, " n"]

    def scores(self, rows: range, spell: Spell | None = None) -> Scores:
        """The same for people, of some of the texts: numpy, and reasons in words."""
        own = slice(rows.start, rows.stop)
        numbers = self.profile.numbers[own]
        p = self.p[own].cpu().numpy()
        return Scores(
            self.parts.score[own].double().cpu().numpy(),
            p,
            dict(zip(PARTS, self.parts.parts[own].double().cpu().numpy().T, strict=True)),
            resultants(numbers).cpu().numpy(),
            self.judge.detector.expected(numbers[:, 0]).cpu().numpy(),
            tuple(self._reasons(row, spell) if one <= EXPLAINED else () for row, one in zip(rows, p, strict=True)),
        )

    def _reasons(self, row: int, spell: Spell | None) -> tuple[Reason, ...]:
        strengths = dict(zip(PARTS, self.parts.parts[row].tolist(), strict=True))
        said = sorted(((sigma, part) for part, sigma in strengths.items() if sigma >= STRANGE), reverse=True)
        explain = {
            "broken": self._broken,
            "words": self._words,
            "foreign": self._foreign,
            "passage": self._passage,
            "concentration": self._concentration,
        }
        return tuple(Reason(part, sigma, *explain[part](row, spell)) for sigma, part in said)

    def _broken(self, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
        directions = self.judge.detector.directions.kinds
        own = self.parts.kinds[row, : len(directions)]
        most = int(own.argmax())
        return f"most like {directions[most]} text ({own[most]:.1f} σ)", ()

    def _words(self, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
        probes = self.judge.detector.probes.kinds
        if not probes:
            return "words that do not belong", ()
        most = int(self.parts.kinds[row, -len(probes) :].argmax())
        odds = self.profile.tokens[row, most]
        top = odds.topk(min(WORDS, len(odds))).indices.tolist()
        # The strangest token is named in any case, others when they are more likely changed than not.
        places = tuple(place for place in top if place == top[0] or odds[place] > 0)
        named = [str(place) if spell is None else repr(spell(row, place)) for place in places]
        return f"tokens as in {probes[most]} text: {', '.join(named)}", places

    def _foreign(self, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
        return "its passages are far from those of the reference", ()

    def _passage(self, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
        where = QUARTERS[int(self.judge.detector.apart(self.profile.passages[row : row + 1]).argmax())]
        return f"the {where} quarter of the text is the most foreign", ()

    def _concentration(self, row: int, spell: Spell | None) -> tuple[str, tuple[int, ...]]:
        """The layer-wise number that is farthest from what is expected."""
        numbers, centre = self.profile.numbers[row], self.judge.detector.centre
        apart = (numbers - centre) / self.judge.spread.clamp_min(1e-12)
        most = int(apart.abs().argmax())
        name, of, cloud = names(self.judge.clouds)[most]
        said = f"{of}: {name} after layer {cloud} is {numbers[most]:.3g}, usually {centre[most]:.3g}"
        return f"{said} ({apart[most]:+.1f} σ)", ()
