"""A claim: a statement of the theory, its measurement, the checks that decide it, and the figure that shows it."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.resources import files
from typing import Any, Literal, TypeAlias

import numpy as np
from matplotlib.figure import Figure
from scipy import stats

from frostline.results import Result

Verdict: TypeAlias = Literal["holds", "fails", "undecided"]
Tick: TypeAlias = Callable[[str], None]
"""Called with a few words whenever a part of a measurement begins."""
Table: TypeAlias = dict[str, Any]
"""Columns of equal length."""


class Rows(dict[str, list[Any]]):
    """A table that grows.

    >>> rows = Rows("beta", "t")
    >>> rows.add(10.0, [0.0, 1.0])
    >>> rows
    {'beta': [10.0, 10.0], 't': [0.0, 1.0]}
    """

    def __init__(self, *names: str):
        super().__init__({name: [] for name in names})

    def add(self, *values: Any) -> None:
        """One row, or as many as the longest value has; shorter ones are repeated."""
        columns = np.broadcast_arrays(*(np.atleast_1d(value) for value in values))
        for column, more in zip(self.values(), columns, strict=True):
            column += more.tolist()


def arrays(table: Table) -> dict[str, np.ndarray]:
    """The columns as arrays."""
    return {name: np.asarray(column) for name, column in table.items()}


@dataclass(frozen=True, repr=False)
class Criterion(Result):
    """One criterion of a claim: ``what`` is compared, the ``wanted`` and the ``found`` value, in words.

    ``holds`` is None when the size cannot decide it. A check of the ``software`` is true of any system if frostline
    computes what it says: it is no evidence for a claim.
    """

    what: str
    wanted: str
    found: str
    holds: bool | None
    software: bool = False

    def describe(self) -> str:
        """The criterion, and what was measured."""
        return f"{self.what}: asked {self.wanted}; found {self.found}."


@dataclass(frozen=True)
class Frames:
    """Tokens through depth for the page's scrubber: (k, n, 2 or 3), coloured by group, with one number per time."""

    title: str
    times: np.ndarray
    tokens: np.ndarray
    groups: np.ndarray
    marks: np.ndarray
    level: np.ndarray
    level_name: str


@dataclass(frozen=True)
class Evidence:
    """A measurement: tables (they become Parquet), numbers (they become JSON), maybe frames for the scrubber."""

    tables: Mapping[str, Table]
    numbers: Mapping[str, Any] = field(default_factory=dict)
    frames: tuple[Frames, ...] = ()


@dataclass(frozen=True, repr=False)
class Judgement(Result):
    """The checks of a claim, and a sentence that sums the measurement up if all of them hold."""

    summary: str
    checks: Sequence[Criterion]

    @property
    def why(self) -> str:
        """The summary where the claim holds; otherwise the check that stands in its way."""
        if self.verdict == "holds":
            return self.summary
        fails = self.verdict == "fails"
        against = [check for check in self.evidence if check.holds is (False if fails else None)]
        if self.broken and not fails:
            first = self.broken[0]
            return f"Frostline contradicts itself, so nothing here counts: {first.what}; found {first.found}."
        if not against:
            return "Nothing could be checked."
        verb = "fail" if fails else "cannot be decided"
        many = f"{len(against)} of {len(self.evidence)} checks {verb}; " if len(against) > 1 else ""
        return f"{many}{against[0].describe()}"

    @property
    def evidence(self) -> list[Criterion]:
        """The checks that can fail though the software is right."""
        return [check for check in self.checks if not check.software]

    @property
    def broken(self) -> list[Criterion]:
        """The checks of the software that fail."""
        return [check for check in self.checks if check.software and check.holds is False]

    @property
    def verdict(self) -> Verdict:
        """One check that fails is enough; all must be decided before the claim holds.

        Checks of the software do not count as evidence; where one fails, the claim is undecided at best.
        """
        holds = [check.holds for check in self.evidence]
        if False in holds:
            return "fails"
        return "undecided" if self.broken or None in holds or not holds else "holds"

    def describe(self) -> str:
        """The verdict, and why."""
        return f"{self.verdict}: {self.why}"

    def facts(self) -> dict[str, Any]:
        """The verdict, the sentence behind it, and the checks."""
        return {"verdict": self.verdict, "why": self.why, "checks": [check.facts() for check in self.checks]}


@dataclass(frozen=True)
class Prose:
    """The words of a claim: its title, its statement, how to read the figure, the assumptions of the measurement."""

    title: str
    statement: str
    reading: str
    assumed: str


def read_prose(module: str) -> Prose:
    """The words in the Markdown file beside a claim's module."""
    folder, _, name = module.rpartition(".")
    text = (files(folder) / f"{name}.md").read_text(encoding="utf-8")
    first, reading, assumed = re.split(r"^## .*\n", text, flags=re.MULTILINE)
    title, _, statement = first.removeprefix("# ").partition("\n")
    return Prose(title, *(" ".join(part.split()) for part in (statement, reading, assumed)))


@dataclass(frozen=True)
class Claim:
    """One statement.

    prose                         its words, from the Markdown file beside its module
    sizes                         settings of the measurement: "test" (seconds), "quick", "full"
    seconds                       about how long each size takes on two cores, for the time left
    measure, judge, draw          from settings and seed to evidence; from evidence to a judgement, and to a figure
    beyond                        whether it goes past the paper
    seeded                        whether anything in it is random
    """

    name: str
    prose: Prose
    sizes: Mapping[str, Any]
    seconds: Mapping[str, float]
    measure: Callable[[Any, int, Tick], Evidence]
    judge: Callable[[Evidence], Judgement]
    draw: Callable[[Evidence], Figure]
    beyond: bool = False
    seeded: bool = True

    @property
    def title(self) -> str:
        """The title of the claim."""
        return self.prose.title

    def spec(self, size: str, seed: int) -> dict[str, Any]:
        """Everything but the code that the measurement depends on."""
        # Where nothing is random, another seed asks for the same measurement.
        return {
            "claim": self.name,
            "size": size,
            "seed": seed if self.seeded else 0,
            "settings": asdict(self.sizes[size]),
        }


@dataclass(frozen=True)
class Line:
    """y = intercept + slope·x by least squares, with the slope's 95 % interval and R²."""

    slope: float
    low: float
    high: float
    intercept: float
    r_squared: float

    @classmethod
    def through(cls, x: Sequence[float] | np.ndarray, y: Sequence[float] | np.ndarray) -> "Line":
        """The regression line of y on x."""
        fit = stats.linregress(x, y)
        reach = float(stats.t.ppf(0.975, max(1, len(x) - 2)) * fit.stderr)
        slope = float(fit.slope)
        return cls(slope, slope - reach, slope + reach, float(fit.intercept), float(fit.rvalue) ** 2)

    def __call__(self, x: np.ndarray) -> np.ndarray:
        return self.intercept + self.slope * x

    def __str__(self) -> str:
        return f"{self.slope:.3g} [{self.low:.3g}, {self.high:.3g}], R² = {self.r_squared:.3f}"
