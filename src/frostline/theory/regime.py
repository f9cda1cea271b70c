"""regime: is this run inside the theory? Each assumption of the theorem, with its numbers and a verdict."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from scipy import optimize

from frostline.arrays import Array, as_float64, as_positive
from frostline.attention import Attention, Heads, Layer, as_layers, is_plain
from frostline.errors import BadArray
from frostline.sample import as_weights
from frostline.sphere import as_tokens, unit_rows
from frostline.theory.densities import log_normaliser
from frostline.theory.flow import zero_temperature
from frostline.theory.limits import limit

LOOKED_AT = 256
"""Queries that stand for all when there are more: every k-th token."""
COLD = 0.1
"""Low temperature: the first correction (d−1)/2κ of THEORY eq. 10 is at most this for nine tokens in ten."""
NEAR = 0.3
"""Full support: nine tokens in ten have another within this angle of y*."""
SYMMETRIC = 1e-6
SMALL_KEY = 1e-3
"""|Bᵀx| below this fraction of σ_max counts as too close to ker Bᵀ."""


@dataclass(frozen=True)
class Check:
    """One assumption: its ``name``, the ``verdict`` yes | no | unknown, the number and what it is held against."""

    name: str
    verdict: str
    value: float | None
    threshold: float | None
    sentence: str


@dataclass(frozen=True)
class Regime:
    """Every assumption; ``verdict`` is "no" when one fails, "unknown" when one is not known, else "yes"."""

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> str:
        found = {check.verdict for check in self.checks}
        return "no" if "no" in found else "unknown" if "unknown" in found else "yes"

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def describe(self) -> str:
        """The verdict and what speaks against it, in words."""
        against = [check.sentence for check in self.checks if check.verdict == self.verdict]
        if self.verdict == "yes":
            return "Inside the theory: every assumption holds."
        begin = "Outside the theory" if self.verdict == "no" else "Not known to be inside the theory"
        return f"{begin}: {' '.join(against)}"

    def facts(self) -> dict[str, object]:
        """For JSON."""
        rows = {
            check.name: {
                "verdict": check.verdict,
                "value": check.value,
                "threshold": check.threshold,
                "sentence": check.sentence,
            }
            for check in self.checks
        }
        return {"verdict": self.verdict, "checks": rows}

    def __repr__(self) -> str:
        return f"Regime({self.verdict}; {', '.join(f'{check.name}: {check.verdict}' for check in self.checks)})"


def regime(
    heads: Heads, x0: Array | None = None, *, weights: Array | None = None, until: float | None = None
) -> Regime:
    """The assumptions of the theorem, judged for these heads, tokens and this final time.

    Without tokens or a final time, what depends on them is "unknown".

    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> regime(head)["symmetry"].verdict, regime(head).verdict
    ('yes', 'unknown')
    """
    layers = as_layers(heads)
    tokens = None if x0 is None else as_float64(as_tokens(x0, "x0")[0])
    if tokens is not None and tokens.shape[-1] != layers[0][0].dimension:
        raise BadArray(f"x0 has dimension {tokens.shape[-1]}, the heads {layers[0][0].dimension}; they must agree.")
    if until is not None:
        as_positive(until, "until")
    if tokens is not None:
        shares = None if weights is None else as_weights(weights, tokens.shape[-2])
        tokens = unit_rows(tokens.reshape(-1, *tokens.shape[-2:])[0])
    else:
        shares = None
    return Regime(tuple(_checks(layers, tokens, shares, until)))


def freezing(n: float, d: int) -> float:
    """κ*: above it a token sees about one other of n uniform ones, Z(2κ)/Z(κ)² = n (THEORY section 8).

    >>> round(freezing(1000, 10))
    26
    """

    def excess(log_kappa: float) -> float:
        kappa = np.exp(log_kappa)
        once, twice = log_normaliser(np.array([kappa, 2 * kappa]), d)
        return float(twice - 2 * once - np.log(n))

    if not n > 1:
        return 0.0
    high = 1.0
    while excess(high) < 0:
        high += 1.0
    return float(np.exp(optimize.brentq(excess, -20.0, high, xtol=1e-12)))


def _checks(
    layers: tuple[Layer, ...], x: np.ndarray | None, weights: np.ndarray | None, until: float | None
) -> Iterator[Check]:
    heads = [head for layer in layers for head in layer]
    yield _one_head(layers)
    yield _symmetry(heads)
    if x is None:
        for name in ("low temperature", "full support", "freezing"):
            yield Check(name, "unknown", None, None, f"{name.capitalize()} depends on the tokens, and none are given.")
    else:
        queries = x[:: max(1, -(-len(x) // LOOKED_AT))]
        yield _low_temperature(heads, queries)
        yield _full_support(heads, queries, x)
        yield _not_frozen(heads, queries, len(x) if weights is None else 1 / float((weights**2).sum()))
    yield from _path(layers, x, until)


def _one_head(layers: tuple[Layer, ...]) -> Check:
    plain = len(layers) == 1 and is_plain(layers[0])
    count = sum(len(layer) for layer in layers)
    biases = sum(head.key_bias is not None for layer in layers for head in layer)
    words = f"{len(layers)} layer{'s' * (len(layers) > 1)} with {count} head{'s' * (count > 1)}, {biases} key biases"
    ending = "the theorem is about one head." if not plain else "as the theorem assumes."
    return Check("one head", "yes" if plain else "no", float(count), 1.0, f"{words}: {ending}")


def _symmetry(heads: list[Attention]) -> Check:
    worst = max(asymmetry(head) for head in heads)
    good = worst <= SYMMETRIC
    words = "A = VBᵀ is symmetric" if good else "A = VBᵀ is not symmetric, where eq. 7 holds but the theorem does not"
    return Check(
        "symmetry", "yes" if good else "no", worst, SYMMETRIC, f"{words} (‖A−Aᵀ‖/2‖A‖ = {worst:.2g}; random: 0.71)."
    )


def asymmetry(head: Attention) -> float:
    """‖A − Aᵀ‖/2‖A‖ (Frobenius): 0 for a symmetric A, 0.71 for a random one."""
    A = head.matrices.A
    return float(np.linalg.norm(A - A.T) / (2 * np.linalg.norm(A) or 1.0))


def kappas(heads: list[Attention], queries: np.ndarray) -> np.ndarray:
    """κ = β|Bᵀx + g| of every query, (heads, q)."""
    return np.stack([head.beta * np.linalg.norm(_direction(head, queries), axis=1) for head in heads])


def _direction(head: Attention, queries: np.ndarray) -> np.ndarray:
    B, _, _, bias = head.matrices
    return queries @ B + (0.0 if bias is None else bias)


def _low_temperature(heads: list[Attention], queries: np.ndarray) -> Check:
    d = queries.shape[1]
    low = float(np.quantile(kappas(heads, queries), 0.1))
    needed = (d - 1) / (2 * COLD)
    verdict = "yes" if low >= needed else "no" if low < (d - 1) / 2 else "unknown"
    words = {"yes": "cold", "no": "too warm", "unknown": "neither clearly cold nor warm"}[verdict]
    return Check(
        "low temperature",
        verdict,
        low,
        (d - 1) / 2,
        f"The tokens are {words}: nine in ten have κ = β|Bᵀx| ≥ {low:.3g}, to be held against (d−1)/2 = "
        f"{(d - 1) / 2:g} (cold from {needed:g}).",
    )


def _full_support(heads: list[Attention], queries: np.ndarray, x: np.ndarray) -> Check:
    angles = []
    for head in heads:
        key = _direction(head, queries)
        key = unit_rows(key[np.linalg.norm(key, axis=1) > 0])
        # From the chord: near zero the arc cosine of a dot product has no digits left.
        nearest = np.array([np.linalg.norm(x - y, axis=1).min() for y in key])
        angles.append(2 * np.arcsin(np.minimum(1.0, nearest / 2)))
    far = float(np.quantile(np.concatenate(angles), 0.9)) if sum(map(len, angles)) else np.inf
    verdict = "yes" if far <= NEAR else "no" if far > 1.0 else "unknown"
    words = {"yes": "There are tokens wherever y* points", "no": "There are no tokens where y* points"}
    return Check(
        "full support",
        verdict,
        far,
        NEAR,
        f"{words.get(verdict, 'There are few tokens where y* points')}: for nine in ten the nearest is within "
        f"{far:.2g} rad ({NEAR} is near).",
    )


def _not_frozen(heads: list[Attention], queries: np.ndarray, n: float) -> Check:
    d = queries.shape[1]
    star = freezing(n, d)
    kappa = float(np.median(kappas(heads, queries)))
    verdict = "yes" if kappa <= star / 2 else "no" if kappa > star else "unknown"
    words = {
        "yes": "Each token sees many others",
        "no": "Frozen: each token sees about one other",
        "unknown": "Each token sees few others",
    }[verdict]
    return Check(
        "freezing",
        verdict,
        kappa,
        star,
        f"{words}: the median κ is {kappa:.3g}, and κ* = {star:.3g} for {n:.4g} uniform tokens in d = {d}.",
    )


def _path(layers: tuple[Layer, ...], x: np.ndarray | None, until: float | None) -> Iterator[Check]:
    """The gap against the longest clock, and how near the paths come to ker Bᵀ, along the zero-temperature flow."""
    names = ("resolved gap", "away from the kernel")
    if len(layers) > 1 or not is_plain(layers[0]):
        why = "has no meaning for several layers, several heads or a key bias"
        yield from (Check(name, "unknown", None, None, f"{name.capitalize()} {why}.") for name in names)
        return
    head, found = layers[0][0], limit([list(layers[0])])
    if found.kind not in ("points", "subspace"):
        yield Check(names[0], "no", found.gap, None, f"The limit is of kind {found.kind}, which the theorem excludes.")
    elif found.resolution is not None and not found.resolution > 10:
        yield Check(names[0], "no", found.gap, None, "The gap is no larger than what rounding could have made.")
    elif x is None or until is None:
        yield Check(names[0], "unknown", found.gap, None, "Resolved gap depends on the final time and the tokens.")
    if x is None or until is None:
        yield Check(names[1], "unknown", None, None, f"{names[1].capitalize()} depends on the tokens and the time.")
        return
    some = x[:: max(1, -(-len(x) // LOOKED_AT))]
    path = zero_temperature(head, some, times=np.linspace(0, until, 9), tolerance=1e-6)
    ended = int(np.isfinite(path.ended).sum())
    assert path.clocks is not None and found.gap is not None
    if found.kind in ("points", "subspace") and (found.resolution is None or found.resolution > 10):
        turns = found.gap * float(np.nanmax(path.clocks))
        good = turns >= 1
        words = "long enough" if good else "too short"
        yield Check(
            names[0],
            "yes" if good else "no",
            turns,
            1.0,
            f"The run is {words} for the gap {found.gap:.3g} to show: gap × longest clock = {turns:.3g} (1 is needed).",
        )
    key = np.linalg.norm(path.tokens @ head.matrices.B, axis=-1) / (head.singular_values[0] or 1.0)
    least = float(np.nanmin(key)) if not ended else 0.0
    away = least >= SMALL_KEY
    words = (
        f"{ended} of {len(some)} paths end in ker Bᵀ" if ended else f"|Bᵀx| stays above {least:.2g} σ_max on the path"
    )
    yield Check(
        names[1], "yes" if away else "no" if ended else "unknown", least, SMALL_KEY, f"{words} ({SMALL_KEY:g} is safe)."
    )
