"""rates: how fast tokens reach their zero-temperature limit, in the clock τ and in time t (THEORY section 5)."""

from dataclasses import dataclass

import numpy as np

from frostline.arrays import as_order
from frostline.attention import Attention, Heads, as_one_layer, is_plain
from frostline.errors import BadParameter, NoLimit
from frostline.results import Result
from frostline.sphere import row_norms
from frostline.theory.limits import Limit, limit


@dataclass(frozen=True, repr=False)
class Rates(Result):
    """Exponents of the convergence to the limit: distances fall like e^{−rate·τ} or e^{−rate·t}.

    They hold at zero temperature: in a run at finite β the distance stops falling at a level set by the temperature.

    Attributes
    ----------
    p : float
        Order of the Wasserstein distance W_p.
    token_in_clock : float
        A single token's angle, in τ: the gap g.
    in_clock : float
        W_p in τ: g·min(1, m/p) (THEORY eq. 9), times a factor τ^{1/p} when ``logarithm``.
    logarithm : bool
        Whether m = p, so that this factor is there.
    token : float
        A single token's angle, in t: at least g/σ_max.
    guaranteed : float
        W_p in t: at least g·min(1, m/p)/σ_max.
    at_most : float
        W_p in t: at most g·min(1, m/p)/σ_min; infinite when B is rank-deficient.
    exact : float or None
        W_p in t where a closed form is known (d = 2, m = 1, symmetric A).
    factor_in_time : bool
        Whether W_p in t may have a factor t^{1/p}, as it has in τ when ``logarithm``.
    status : str
        "proven" for normal A; "asymptotic" otherwise: transients may come first (THEORY eq. 8′).
    """

    p: float
    token_in_clock: float
    in_clock: float
    logarithm: bool
    token: float
    guaranteed: float
    at_most: float
    exact: float | None
    factor_in_time: bool
    status: str

    def describe(self) -> str:
        """The decay of W_p and of a single token's angle, in words."""
        if not np.isfinite(self.token_in_clock):
            return "Nothing lies below the leading eigenvalue: tokens are at their limits from the start, and W is 0."
        rate, how = (self.guaranteed, "at least like") if self.exact is None else (self.exact, "like")
        power = f" (times t^(1/{self.p:g}))" if self.factor_in_time else ""
        words = f"At zero temperature W{self.p:g} falls {how} e^(−{rate:.4g} t){power} in the end"
        if 0 < self.token < np.inf:
            words += f", a single token's angle at least like e^(−{self.token:.4g} t), a factor 10 in t = "
            words += f"{np.log(10) / self.token:.4g}"
        kind = "proven: A is normal" if self.status == "proven" else "asymptotic: transients may come first"
        return f"{words} ({kind}). At finite β it stops falling where the temperature leaves it."

    def headline(self) -> str:
        """The rates as numbers."""
        exact = "" if self.exact is None else f", exact={self.exact:.4g}"
        return (
            f"p={self.p:g}, token_in_clock={self.token_in_clock:.4g}, in_clock={self.in_clock:.4g}, "
            f"token={self.token:.4g}, guaranteed={self.guaranteed:.4g}, at_most={self.at_most:.4g}{exact}, "
            f"{self.status}"
        )


def rates(heads: Heads, *, p: float = 2.0) -> Rates:
    """Exponents of the convergence of one plain head to its limit (THEORY eq. 8, 9).

    Parameters
    ----------
    heads : Attention or list
        One head without key bias, whose limit is points or a subspace.
    p : float
        Order of the Wasserstein distance, finite and ≥ 1.

    Returns
    -------
    Rates
        Rates of single tokens and of W_p, in the clock and in time.

    Raises
    ------
    NoLimit
        The limit is of another kind, or lies in ker Bᵀ.
    BadParameter
        There are several layers, several heads or a key bias, or ``p`` is outside its range.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> r = rates(head, p=2)
    >>> r.in_clock, r.guaranteed, r.exact
    (0.25, 0.25, 0.5)
    """
    p = as_order(p)
    layer = as_one_layer(heads, "rates")
    if not is_plain(layer):
        raise BadParameter("several heads or a key bias have no spectrum that gives rates; measure them from a run.")
    end = limit(heads)
    if end.kind not in ("points", "subspace") or end.gap is None or end.dimension is None:
        raise NoLimit(f"exponential rates need a limit of kind points or subspace; this one is {end.kind}.")
    if end.in_kernel:
        raise NoLimit(
            "the dominant eigenspace lies in ker Bᵀ: paths end at finite times t, so there are no rates in t."
        )
    head = layer[0]
    sigma = [float(value) for value in head.singular_values]
    factor = min(1.0, end.dimension / p)
    in_clock = end.gap * factor
    arrival_departure = _arrival_and_departure(head, end, p)
    return Rates(
        p=p,
        token_in_clock=end.gap,
        in_clock=in_clock,
        logarithm=end.dimension == p,
        token=end.gap / sigma[0] if sigma[0] > 0 else np.inf,
        guaranteed=in_clock / sigma[0] if sigma[0] > 0 else np.inf,
        at_most=in_clock / sigma[-1] if sigma[-1] > 0 else np.inf,
        exact=None if arrival_departure is None else min(arrival_departure),
        # Late arrivals and late departures tie in d = 2; in general a factor cannot be excluded where τ has one.
        factor_in_time=end.dimension == p if arrival_departure is None else bool(np.isclose(*arrival_departure)),
        status="proven" if is_normal(head.matrices.A) else "asymptotic",
    )


def is_normal(A: np.ndarray) -> bool:
    """Whether AAᵀ = AᵀA up to rounding."""
    # Scaled first: squares of large entries would overflow.
    A = A / (np.abs(A).max() or 1.0)
    return bool(np.linalg.norm(A @ A.T - A.T @ A, 2) <= 1e-12 * np.linalg.norm(A, 2) ** 2)


def _arrival_and_departure(head: Attention, end: Limit, p: float) -> tuple[float, float] | None:
    """For d = 2, m = 1 and symmetric A, the rates of arrival at e₁ and departure from e₂: g/|Bᵀe₁| and g/(p|Bᵀe₂|)."""
    A, B = head.matrices.A, head.matrices.B
    symmetric = np.abs(A - A.T).max() <= 1e-12 * np.abs(A).max()
    if head.dimension != 2 or end.dimension != 1 or end.gap is None or not symmetric:
        return None
    e1 = np.asarray(end.basis, dtype=np.float64)[0]
    e2 = np.array([-e1[1], e1[0]])
    arriving, leaving = (float(row_norms(e @ B)) for e in (e1, e2))
    return (
        end.gap / arriving if arriving > 0 else np.inf,
        end.gap / (p * leaving) if leaving > 0 else np.inf,
    )
