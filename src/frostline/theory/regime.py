"""regime: the assumptions of the theorem, each judged for a run, with its numbers."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import optimize
from scipy.spatial import cKDTree

from frostline.arrays import Array, as_float64, as_positive
from frostline.attention import Attention, Heads, Layer, as_layers, as_tokens_of, is_plain
from frostline.errors import BadParameter
from frostline.results import Result
from frostline.sample import as_weights, uniform
from frostline.sphere import row_norms, unit_rows
from frostline.theory.flow import ZeroTemperaturePath, zero_temperature
from frostline.theory.limits import TRUSTED, Limit, limit
from frostline.theory.terminal import HELD, terminal
from frostline.theory.von_mises_fisher import log_scaled_normaliser

PROBES = 512
"""Directions, spread evenly over the sphere, at which the support is probed."""
MOST_PATHS = 2000
"""The largest number of tokens whose paths are followed; of more, every k-th."""
PATH_TIMES = 9
"""Times, the first and the last among them, at which these paths are looked at."""
PATH_TOLERANCE = 1e-6
"""Relative tolerance of these paths: their numbers are held against thresholds far coarser than this."""
EXCEPTIONS = 0.1
"""The share of tokens, or of directions, that may be exceptions to an assumption about all of them."""
COLD = 0.1
"""Low temperature: the first correction (d−1)/2κ of THEORY eq. 10 is at most this for nine tokens in ten."""
NEAR = 0.3
"""Full support: nine directions in ten have a token within this angle, in radians."""
FAR = 1.0
"""No full support: one direction in ten has no token within this angle, in radians."""
SYMMETRIC = 1e-6
"""A is symmetric when ‖A − Aᵀ‖/2‖A‖ is at most this."""
SMALL_KEY = 1e-3
"""|Bᵀx| below this fraction of σ_max counts as too close to ker Bᵀ."""
DEFICIENT = 1e-12
"""B is rank-deficient when σ_min is at most this fraction of σ_max."""
RESTS = 1e-6
"""V is a multiple of the identity on a space when it differs from that by at most this, in units of ‖V‖."""
MASSLESS = 1e-3
"""Tokens with less than this share of the mean weight are left out."""


@dataclass(frozen=True, repr=False)
class Check(Result):
    """One assumption of the theorem, judged.

    Attributes
    ----------
    name : str
        The assumption, for example "low temperature".
    verdict : str
        yes | no | unknown.
    value : float or None
        The number measured.
    threshold : float or None
        The number it is compared with.
    sentence : str
        The verdict in words, with these numbers.
    """

    name: str
    verdict: str
    value: float | None
    threshold: float | None
    sentence: str

    def describe(self) -> str:
        """Name, verdict and sentence."""
        return f"{self.name}: {self.verdict}; {self.sentence}"


@dataclass(frozen=True, repr=False)
class Regime(Result):
    """The assumptions of the theorem, judged; ``regime["symmetry"]`` is one of them.

    Attributes
    ----------
    checks : tuple of Check
        One for every assumption.
    """

    checks: tuple[Check, ...]

    @property
    def verdict(self) -> str:
        """One of "no" (an assumption fails), "unknown" (one is not known) and "yes"."""
        verdicts = {check.verdict for check in self.checks}
        return "no" if "no" in verdicts else "unknown" if "unknown" in verdicts else "yes"

    def __getitem__(self, name: str) -> Check:
        return next(check for check in self.checks if check.name == name)

    def describe(self) -> str:
        """The verdict, and the assumptions that fail or are not known, in words."""
        against = [check.sentence for check in self.checks if check.verdict == self.verdict]
        if self.verdict == "yes":
            return "Inside the theory: every assumption holds."
        begin = "Outside the theory" if self.verdict == "no" else "Not known to be inside the theory"
        return f"{begin}: {' '.join(against)}"

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON: the verdict, and the checks by name."""
        checks = [check.facts() for check in self.checks]
        return {"verdict": self.verdict, "checks": {facts.pop("name"): facts for facts in checks}}

    def headline(self) -> str:
        """The verdict, and that of every assumption."""
        return f"{self.verdict}; {', '.join(f'{check.name}: {check.verdict}' for check in self.checks)}"


def regime(
    heads: Heads, x0: Array | None = None, *, weights: Array | None = None, until: float | None = None
) -> Regime:
    """Whether the assumptions of the theorem hold for these heads, tokens and final time (THEORY section 7).

    Parameters
    ----------
    heads : Attention or list
        One head, a list of layers, or nested lists of heads.
    x0 : Array, optional
        The initial tokens (n, d). Without them, assumptions about tokens are "unknown".
    weights : Array, optional
        Their weights (n,) with sum 1; equal by default.
    until : float, optional
        The final time. Without it, assumptions about the run's length are "unknown".

    Returns
    -------
    Regime
        ``.verdict``, ``.checks``, ``.describe()``; ``regime[name]`` is one check.

    Raises
    ------
    BadArray, OffSphere
        ``x0`` does not fit the heads, or is not on the sphere.
    BadParameter
        ``x0`` is a batch of runs, or ``until`` is not positive.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> regime(head)["symmetry"].verdict, regime(head).verdict
    ('yes', 'unknown')
    """
    layers = as_layers(heads)
    tokens = None if x0 is None else as_float64(as_tokens_of(layers[0], x0)[0])
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
        there = x if weights is None else x[weights > MASSLESS / len(x)]
        yield _low_temperature(heads, there)
        yield _full_support(there)
        yield _not_frozen(heads, there, len(x) if weights is None else 1 / float((weights**2).sum()))
    plain = len(layers) == 1 and is_plain(layers[0])
    if not plain:
        for name in ("limit", "resolved gap", "away from the kernel", "before the terminal phase"):
            words = f"{name.capitalize()}: not judged for several layers, several heads or a key bias."
            yield Check(name, "unknown", None, None, words)
        return
    end = limit([list(layers[0])])
    yield _limit(end, x)
    path = None
    if x is not None and until is not None:
        some, times = x[:: max(1, -(-len(x) // MOST_PATHS))], np.linspace(0, until, PATH_TIMES)
        # Assumptions about a path that gives up after too many steps are unknown.
        with suppress(BadParameter):
            path = zero_temperature(layers[0][0], some, times=times, tolerance=PATH_TOLERANCE)
    yield _resolved(end, path)
    yield _kernel(layers[0][0], path)
    yield _terminal(layers[0][0], end, x, weights, until)


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
    biased = [(head.beta, head.matrices.B, head.matrices.key_bias) for head in heads]
    return np.stack([beta * row_norms(queries @ B + (0.0 if g is None else g)) for beta, B, g in biased])


def _low_temperature(heads: list[Attention], queries: np.ndarray) -> Check:
    d = queries.shape[1]
    low = float(np.quantile(kappas(heads, queries), EXCEPTIONS))
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
    """Whether there is a token near every direction, probed at directions that do not depend on the tokens."""
    probes = uniform(PROBES, x.shape[1], seed=0)
    # From the chord: near zero the arc cosine of a dot product has no digits left.
    nearest = cKDTree(x).query(probes)[0]
    far = float(2 * np.arcsin(min(1.0, float(np.quantile(nearest, 1 - EXCEPTIONS)) / 2)))
    verdict = "yes" if far <= NEAR else "no" if far > FAR else "unknown"
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


def _limit(end: Limit, x: np.ndarray | None) -> Check:
    if end.kind not in ("points", "subspace"):
        return Check("limit", "no", None, None, f"The limit is of kind {end.kind}, which the theorem excludes.")
    if end.resolution is not None and not end.resolution > TRUSTED:
        return Check("limit", "no", end.resolution, TRUSTED, "The limit is not resolved: rounding could have made it.")
    if x is None:
        return Check("limit", "unknown", None, None, "Whether every token has a limit depends on the tokens.")
    lost = len(end.undefined(x))
    words = f"{lost} of {len(x)} tokens have no limit" if lost else "Every token has a limit"
    return Check("limit", "no" if lost else "yes", float(lost), 0.0, f"{words} (kind: {end.kind}).")


def _resolved(end: Limit, path: ZeroTemperaturePath | None) -> Check:
    name = "resolved gap"
    if end.gap is None or end.kind not in ("points", "subspace"):
        return Check(name, "unknown", None, None, f"There is no gap to resolve: the kind is {end.kind}.")
    if not np.isfinite(end.gap):
        words = "Nothing lies below the leading eigenvalue: there is no gap to wait for."
        return Check(name, "yes", end.gap, None, words)
    if path is None:
        return Check(name, "unknown", end.gap, None, "A resolved gap depends on the final time and the tokens.")
    clocks = as_float64(path.clocks)
    turns = end.gap * float(np.nanmax(clocks)) if np.isfinite(clocks).any() else 0.0
    good = turns >= 1
    words = f"The run is {'long enough' if good else 'too short'} for the gap {end.gap:.3g} to show"
    return Check(
        name, "yes" if good else "no", turns, 1.0, f"{words}: gap × longest clock = {turns:.3g} (1 is needed)."
    )


def _kernel(head: Attention, path: ZeroTemperaturePath | None) -> Check:
    name, sigma = "away from the kernel", head.singular_values
    deficient = not sigma[-1] > DEFICIENT * sigma[0]
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
    head: Attention, end: Limit, x: np.ndarray | None, weights: np.ndarray | None, until: float | None
) -> Check:
    """The theorem is silent once the clusters have left for V's own eigenvectors (THEORY section 9)."""
    name = "before the terminal phase"
    if end.kind == "subspace" and _rests(head, end):
        return Check(name, "yes", None, None, "The dominant eigenspace rests under V: no terminal phase is expected.")
    if end.kind != "points":
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
        f"which the theorem is silent ({HELD}).",
    )


def _rests(head: Attention, end: Limit) -> bool:
    """Whether V is λ times the identity on E with no larger eigenvalue elsewhere, and E attends to itself."""
    B, V, _, _ = head.matrices
    E = as_float64(end.basis)
    level, size = float(np.trace(E @ V @ E.T)) / len(E), float(np.linalg.norm(V, 2))
    logits = E @ B @ E.T
    return bool(
        np.linalg.norm(V @ E.T - level * E.T, 2) <= RESTS * size
        and np.linalg.eigvals(V).real.max() - level <= RESTS * size
        and level > 0
        and np.linalg.eigvalsh((logits + logits.T) / 2)[0] > 0
    )
