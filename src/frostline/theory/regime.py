"""regime: is this run inside the theory? Each assumption of the theorem, with its numbers and a verdict."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass

import numpy as np
from scipy import optimize
from scipy.spatial import cKDTree

from frostline.arrays import Array, as_float64, as_positive
from frostline.attention import Attention, Heads, Layer, as_layers, is_plain
from frostline.errors import BadArray, BadParameter
from frostline.printable import one_line
from frostline.sample import as_weights, uniform
from frostline.sphere import as_tokens, row_norms, unit_rows
from frostline.theory.densities import log_scaled_normaliser
from frostline.theory.flow import ZeroTemperaturePath, zero_temperature
from frostline.theory.limits import Limit, limit
from frostline.theory.terminal import terminal

PROBES = 512
"""Directions, spread evenly over the sphere, at which the support is probed."""
MOST_PATHS = 2000
"""Tokens whose paths are followed; of more, every k-th."""
COLD = 0.1
"""Low temperature: the first correction (d−1)/2κ of THEORY eq. 10 is at most this for nine tokens in ten."""
NEAR = 0.3
"""Full support: nine directions in ten have a token within this angle."""
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

    def __repr__(self) -> str:
        return one_line(self, f"{self.name}: {self.verdict}; {self.sentence}")


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
        return one_line(self, f"{self.verdict}; {', '.join(f'{one.name}: {one.verdict}' for one in self.checks)}")


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
    if tokens is not None and tokens.ndim != 2:
        raise BadParameter(
            f"x0 has shape {tokens.shape}, a batch; the regime is judged run by run: call it member by member."
        )
    shares = None if weights is None or tokens is None else as_weights(weights, len(tokens))
    return Regime(tuple(_checks(layers, None if tokens is None else unit_rows(tokens), shares, until)))


def freezing(n: float, d: int) -> float:
    """κ*: above it a token sees about one other of n uniform ones, Z(2κ)/Z(κ)² = n (THEORY section 8).

    >>> round(freezing(1000, 10))
    26
    """

    def excess(log_kappa: float) -> float:
        kappa = np.exp(log_kappa)
        # Z(2κ)/Z(κ)²: the exponentials cancel, so leave them out from the start.
        once, twice = log_scaled_normaliser(np.array([kappa, 2 * kappa]), d)
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
        # Tokens without mass are not there: neither for the support nor for the quantiles.
        there = x if weights is None else x[weights > 1e-3 / len(x)]
        yield _low_temperature(heads, there)
        yield _full_support(there)
        yield _not_frozen(heads, there, len(x) if weights is None else 1 / float((weights**2).sum()))
    plain = len(layers) == 1 and is_plain(layers[0])
    if not plain:
        for name in ("limit", "resolved gap", "away from the kernel", "before the terminal phase"):
            words = f"{name.capitalize()}: not judged for several layers, several heads or a key bias."
            yield Check(name, "unknown", None, None, words)
        return
    found = limit([list(layers[0])])
    yield _limit(found, x)
    path = None
    if x is not None and until is not None:
        some = x[:: max(1, -(-len(x) // MOST_PATHS))]
        # A path that gives up after too many steps leaves what depends on it unknown.
        with suppress(BadParameter):
            path = zero_temperature(layers[0][0], some, times=np.linspace(0, until, 9), tolerance=1e-6)
    yield _resolved(found, path)
    yield _kernel(layers[0][0], path)
    yield _terminal(layers[0][0], found, x, weights, until)


def _one_head(layers: tuple[Layer, ...]) -> Check:
    plain = len(layers) == 1 and is_plain(layers[0])
    count = sum(len(layer) for layer in layers)
    biases = sum(head.key_bias is not None for layer in layers for head in layer)
    words = f"{len(layers)} layer{'s' * (len(layers) > 1)} with {count} head{'s' * (count > 1)}"
    words += f", {biases} of them with a key bias" if biases else ""
    ending = "the theorem is about one head without bias." if not plain else "as the theorem assumes."
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
    return np.stack([head.beta * row_norms(_direction(head, queries)) for head in heads])


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


def _full_support(x: np.ndarray) -> Check:
    """Is there a token near every direction? Probed at directions that have nothing to do with the tokens."""
    probes = uniform(PROBES, x.shape[1], seed=0)
    # From the chord: near zero the arc cosine of a dot product has no digits left.
    nearest = cKDTree(x).query(probes)[0]
    far = float(2 * np.arcsin(min(1.0, float(np.quantile(nearest, 0.9)) / 2)))
    verdict = "yes" if far <= NEAR else "no" if far > 1.0 else "unknown"
    words = {
        "yes": "The tokens cover the sphere",
        "no": "The tokens leave most of the sphere empty",
        "unknown": "The tokens cover the sphere thinly",
    }[verdict]
    return Check(
        "full support",
        verdict,
        far,
        NEAR,
        f"{words}: nine directions in ten have one within {far:.2g} rad ({NEAR} is near).",
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


def _limit(found: Limit, x: np.ndarray | None) -> Check:
    if found.kind not in ("points", "subspace"):
        return Check("limit", "no", None, None, f"The limit is of kind {found.kind}, which the theorem excludes.")
    if found.resolution is not None and not found.resolution > 10:
        return Check("limit", "no", found.resolution, 10.0, "The limit is not resolved: rounding could have made it.")
    if x is None:
        return Check("limit", "unknown", None, None, "Whether every token has a limit depends on the tokens.")
    lost = len(found.undefined(x))
    words = f"{lost} of {len(x)} tokens have no limit" if lost else "Every token has a limit"
    return Check("limit", "no" if lost else "yes", float(lost), 0.0, f"{words} (kind: {found.kind}).")


def _resolved(found: Limit, path: ZeroTemperaturePath | None) -> Check:
    name = "resolved gap"
    if found.gap is None or found.kind not in ("points", "subspace"):
        return Check(name, "unknown", None, None, f"There is no gap to resolve: the kind is {found.kind}.")
    if not np.isfinite(found.gap):
        return Check(
            name, "yes", found.gap, None, "Nothing lies below the leading eigenvalue: there is no gap to wait for."
        )
    if path is None:
        return Check(name, "unknown", found.gap, None, "A resolved gap depends on the final time and the tokens.")
    clocks = as_float64(path.clocks)
    turns = found.gap * float(np.nanmax(clocks)) if np.isfinite(clocks).any() else 0.0
    good = turns >= 1
    words = f"The run is {'long enough' if good else 'too short'} for the gap {found.gap:.3g} to show"
    return Check(
        name, "yes" if good else "no", turns, 1.0, f"{words}: gap × longest clock = {turns:.3g} (1 is needed)."
    )


def _kernel(head: Attention, path: ZeroTemperaturePath | None) -> Check:
    name, sigma = "away from the kernel", head.singular_values
    deficient = not sigma[-1] > 1e-12 * sigma[0]
    if path is None:
        return Check(name, "unknown", None, None, "How near paths come to ker Bᵀ depends on the tokens and the time.")
    tokens, ended = as_float64(path.tokens), int(np.isfinite(as_float64(path.ended)).sum())
    count = tokens.shape[1]
    if ended:
        words = f"{ended} of the {count} paths looked at end in ker Bᵀ, where the flow is not defined."
        return Check(name, "no", 0.0, SMALL_KEY, words)
    least = float((np.linalg.norm(tokens @ head.matrices.B, axis=-1)).min() / (sigma[0] or 1.0))
    words = f"|Bᵀx| stays above {least:.2g} σ_max on the {count} paths looked at ({SMALL_KEY:g} is safe)"
    if deficient:
        words += ", but B is rank-deficient, and the theorem's constants need a lower bound over the whole sphere"
    good = least >= SMALL_KEY and not deficient
    return Check(name, "yes" if good else "unknown", least, SMALL_KEY, f"{words}.")


def _terminal(
    head: Attention, found: Limit, x: np.ndarray | None, weights: np.ndarray | None, until: float | None
) -> Check:
    """The theorem is silent once the clusters have left for V's own eigenvectors (THEORY section 9)."""
    name = "before the terminal phase"
    if found.kind == "subspace" and _rests(head, found):
        return Check(name, "yes", None, None, "The dominant eigenspace rests under V: no terminal phase is expected.")
    if found.kind != "points":
        return Check(name, "unknown", None, None, "The terminal phase is predicted for a limit of two points only.")
    try:
        fate = terminal(head, x, weights=weights)
    except BadParameter as error:
        return Check(name, "unknown", None, None, f"The terminal phase is not predicted: {error}")
    if not fate.tightens:
        return Check(name, "no", None, None, f"{fate.case}")
    if fate.direction is None and fate.goes_to is not None:
        return Check(name, "yes", None, None, "The clusters rest under V: no terminal phase is expected.")
    if fate.hand_over is None or until is None:
        return Check(name, "unknown", None, None, f"When the terminal phase begins is not known. {fate.case}")
    # Eq. 13 is leading order, and was found to be late by a third.
    verdict = "yes" if until <= fate.hand_over / 2 else "no" if until > fate.hand_over else "unknown"
    words = {"yes": "well before", "no": "past", "unknown": "near"}[verdict]
    return Check(
        name,
        verdict,
        until,
        fate.hand_over,
        f"The run ends {words} the hand-over to the terminal phase, at about t = {fate.hand_over:.3g} (eq. 13), after "
        "which the theorem is silent.",
    )


def _rests(head: Attention, found: Limit) -> bool:
    """Whether V is λ times the identity on E, grows nothing faster beside it, and E attends to itself."""
    B, V, _, _ = head.matrices
    E = as_float64(found.basis)
    level, size = float(np.trace(E @ V @ E.T)) / len(E), float(np.linalg.norm(V, 2))
    logits = E @ B @ E.T
    return bool(
        np.linalg.norm(V @ E.T - level * E.T, 2) <= 1e-6 * size
        and np.linalg.eigvals(V).real.max() - level <= 1e-6 * size
        and level > 0
        and np.linalg.eigvalsh((logits + logits.T) / 2)[0] > 0
    )
