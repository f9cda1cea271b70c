"""bound: the theorem's bound for one head (THEORY eq. 11), its constants labelled by their origin."""

from dataclasses import dataclass

import numpy as np

from frostline.arrays import as_number, as_positive
from frostline.attention import Heads, as_one_layer
from frostline.errors import BadParameter
from frostline.results import Result
from frostline.theory.expansion import Derivative
from frostline.theory.limits import limit
from frostline.theory.rates import rates
from frostline.theory.regime import Regime, regime
from frostline.theory.starts import uniform_distance

ORIGINS = {
    "order of magnitude": "c and C are worked out from the matrices and M is set to 1: the paper's own constants are "
    "not known, so read this as an order of magnitude, never as a guarantee",
    "fitted": "all three constants are fitted to measured curves",
}
"""Origins of the constants of a bound, each with its meaning for the reader."""
DIAMETER = 2.0
"""The diameter of the sphere: no distance is larger."""


@dataclass(frozen=True, repr=False)
class Bound(Result):
    """The right-hand side of THEORY eq. 11, M(√(log(β+1)/β)·e^{Ct} + e^{−ct}); call it with times t.

    Methods take β; by default it is the β of the head that ``bound`` was given.

    Attributes
    ----------
    M, C, c : float
        The constants, ≥ 0; C is infinite when B is rank-deficient.
    origin : str
        "order of magnitude" or "fitted"; all three constants have the same.
    beta : float or None
        The inverse temperature that methods take by default.
    regime : Regime or None
        Whether the assumptions of the theorem hold for the head.
    initial : float
        W_p from the uniform density to its limit, the distance at t = 0; 2, the diameter, where no head is known.

    Raises
    ------
    BadParameter
        A constant is negative or NaN, or ``origin`` is unknown.

    Examples
    --------
    >>> b = Bound(M=1.0, C=2.0, c=1.0, origin="fitted")
    >>> round(b.best_time(beta=1e4), 3), round(b.best(beta=1e4), 3)
    (0.934, 0.589)
    """

    M: float
    C: float
    c: float
    origin: str
    beta: float | None = None
    regime: Regime | None = None
    initial: float = DIAMETER

    def __post_init__(self) -> None:
        if not (0 <= self.initial <= DIAMETER):
            raise BadParameter(f"initial is {self.initial:g}; a distance on the sphere lies between 0 and 2.")
        if self.origin not in ORIGINS or not (self.M >= 0 and self.C >= 0 and self.c >= 0):
            raise BadParameter(
                f"a bound needs M, C, c ≥ 0 of one origin ({', '.join(ORIGINS)}); got {self.M}, {self.C}, {self.c}, "
                f"{self.origin!r}."
            )

    def amplitude(self, beta: float | None = None) -> float:
        """a = √(log(β+1)/β), the worst case of the Laplace principle.

        Parameters
        ----------
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        float
            The amplitude a.
        """
        b = self._beta(beta)
        return float(np.sqrt(np.log1p(b) / b))

    def __call__(self, t: float | np.ndarray, beta: float | None = None) -> float | np.ndarray:
        """The right-hand side of (11) at times t, a number or an array.

        Parameters
        ----------
        t : float or ndarray
            Times, ≥ 0.
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        float or ndarray
            The values, of the shape of ``t``.

        Raises
        ------
        BadParameter
            A time is negative or no number.
        """
        try:
            time = np.asarray(t, dtype=np.float64)
        except (TypeError, ValueError):
            raise BadParameter(f"t is {t!r}; it is a time, or an array of times.") from None
        if not (time >= 0).all():
            raise BadParameter(f"times of a bound are ≥ 0; got {time[~(time >= 0)].flat[0]:g}.")
        with np.errstate(over="ignore", invalid="ignore"):
            # Either constant may be infinite, C zero: at t = 0 nothing has grown or fallen, and 0·∞ is 0.
            grown = np.exp(np.where((time > 0) & (self.C > 0), self.C * time, 0.0))
            fallen = np.exp(-np.where((time > 0) & (self.c > 0), self.c * time, 0.0))
        values = self.M * (self.amplitude(beta) * grown + fallen)
        return float(values) if np.ndim(t) == 0 else values

    def best_time(self, beta: float | None = None) -> float:
        """t*(β) = max(0, log(c/(aC))/(C+c)), where the right-hand side is smallest.

        Parameters
        ----------
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        float
            The time; infinite when nothing expands.
        """
        if not np.isfinite(self.C) or not np.isfinite(self.c):
            return 0.0
        if self.C == 0:
            return np.inf
        return max(0.0, float(np.log(self.c / (self.amplitude(beta) * self.C)) / (self.C + self.c)))

    def best(self, beta: float | None = None) -> float:
        """The right-hand side at t*(β).

        Parameters
        ----------
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        float
            The smallest value.
        """
        return float(self(self.best_time(beta), beta))

    def window(self, delta: float, beta: float | None = None) -> tuple[float, float] | None:
        """The times log(1/δ)/c ≤ t ≤ log(δ/a)/C, where (11) is at most 2Mδ; None when there are none.

        This is the statement of (11) about metastability (THEORY section 7).

        Parameters
        ----------
        delta : float
            δ, between 0 and 1.
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        tuple or None
            The first and the last time.
        """
        if not (0 < as_number(delta, "delta") < 1):
            raise BadParameter(f"delta is {delta}; it lies between 0 and 1.")
        if not np.isfinite(self.C):
            return None
        begin = np.log(1 / delta) / self.c if self.c > 0 else np.inf
        left = np.log(delta / self.amplitude(beta))
        end = left / self.C if self.C > 0 else np.inf * np.sign(left)
        return (float(begin), float(end)) if begin <= end else None

    def empty(self, beta: float | None = None) -> bool:
        """Whether even the smallest value is at least ``initial``, the distance at t = 0: then (11) says nothing.

        Parameters
        ----------
        beta : float, optional
            The inverse temperature; that of the head by default.

        Returns
        -------
        bool
            True where it says nothing.
        """
        return not (np.isfinite(self.C) and self.best(beta) < self.initial)

    def describe(self, beta: float | None = None) -> str:
        """The constants, their origin, and what follows at β; without a β the constants and their origin alone.

        Parameters
        ----------
        beta : float, optional
            The inverse temperature; that of the head by default.
        """
        words = [f"M = {self.M:.3g}, C = {self.C:.3g}, c = {self.c:.3g}: {ORIGINS[self.origin]}."]
        if beta is None and self.beta is None:
            return words[0]
        b = self._beta(beta)
        if not np.isfinite(self.C):
            words.append("B is rank-deficient, so the flow has no finite expansion rate and (11) says nothing.")
        elif self.C == 0:
            words.append(f"Nothing expands: at β = {b:g} it falls to {self.M * self.amplitude(b):.3g} and stays there.")
        elif self.empty(b):
            below = "2" if self.initial == DIAMETER else f"{self.initial:.3g}, W at t = 0 from a uniform start"
            words.append(f"At β = {b:g} the right-hand side never falls below {below}: numerically empty.")
        elif not self.best_time(b) > 0:
            words.append(f"At β = {b:g} it only grows, from {self.best(b):.3g} at t = 0: it says nothing useful here.")
        else:
            words.append(
                f"At β = {b:g} it is smallest at t* = {self.best_time(b):.3g}, with the value {self.best(b):.3g}."
            )
        return " ".join(words)

    def headline(self) -> str:
        """The constants and their origin."""
        return f"M={self.M:.4g}, C={self.C:.4g}, c={self.c:.4g}, {self.origin}"

    def _beta(self, beta: float | None) -> float:
        chosen = self.beta if beta is None else beta
        if chosen is None:
            raise BadParameter("this bound belongs to no single temperature; say which beta.")
        return as_positive(chosen, "beta")


def bound(heads: Heads, *, p: float = 2.0) -> Bound:
    """THEORY eq. 11 with a-priori constants: c = g·min(1, m/p)/σ_max, C = ℓ (section 7) and M = 1.

    M is not known, so the result is an order of magnitude, never a guarantee.

    Parameters
    ----------
    heads : Attention or list
        One head without key bias, whose limit is points or a subspace.
    p : float
        Order of the Wasserstein distance, finite and ≥ 1.

    Returns
    -------
    Bound
        Call it with times; ``.best_time()``, ``.window(delta)`` and ``.describe()`` say what follows.

    Raises
    ------
    NoLimit
        The limit is of another kind, or lies in ker Bᵀ.
    BadParameter
        There are several layers, several heads or a key bias, or ``p`` is outside its range.

    Examples
    --------
    >>> from frostline import Attention
    >>> b = bound(Attention.from_matrices(np.diag([1.0, 0.8]), np.eye(2), beta=1e4))
    >>> b.origin, round(b.c, 6)
    ('order of magnitude', 0.1)
    """
    layer = as_one_layer(heads, "bound")
    guaranteed = rates(heads, p=p).guaranteed
    B, _, A, _ = layer[0].matrices
    derivative, unit = Derivative.scaled(A, B)
    return Bound(
        M=1.0,
        C=unit * derivative.largest,
        c=guaranteed,
        origin="order of magnitude",
        beta=layer[0].beta,
        regime=regime(heads),
        initial=uniform_distance(layer[0].dimension, limit(heads).dimension or 1, p),
    )
