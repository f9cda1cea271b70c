"""limit: the zero-temperature limit of every token, from the spectrum of A = VBᵀ (THEORY section 4)."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.integrate import quad

from frostline.arrays import Array, Kind, as_float64, as_number
from frostline.attention import Attention, Heads, Layer, as_one_layer, as_tokens_of, is_plain
from frostline.errors import BadParameter, NoLimit
from frostline.results import Result
from frostline.sphere import unit_rows
from frostline.theory.multi_head_flow import Field, integrate
from frostline.theory.resolution import turning
from frostline.theory.spectrum import BACKWARD_ERROR, Dominant, dominant

KINDS = {
    "points": "every token goes to one of two antipodal points ±e",
    "subspace": "every token goes to its own point on the unit sphere of the dominant eigenspace",
    "rotation": "no limit: tokens approach a closed orbit and keep different phases",
    "defective": "every token goes to a limit, but only like 1/τ: the dominant eigenvalue has a Jordan block",
    "mixed": "no limit is claimed: several kinds of eigenvalues share the largest real part",
    "numerical": "several heads or a key bias: no closed form, limits are found by integration, until a token moves "
    "slower than 1e-8‖V‖ (tokens that do not within a time of 1000/‖V‖ count as having none)",
}
"""Every kind of limit and its meaning."""
AT_REST = 1e-8
"""Numerical limits: a token is at rest when it moves slower than this, in units of ‖V‖."""
FIRST_TIME = 4.0
"""Numerical limits: the time integrated first, in units of 1/‖V‖; it doubles until tokens rest."""
LONGEST = 512.0
"""Numerical limits: the longest time integrated at once, in units of 1/‖V‖; tokens that still move have no limit."""
NUMERICAL_TOLERANCE = 1e-10
"""Numerical limits: tolerance of the integration; the end of a path only needs the token to stay in its basin."""
CANCELLED = 0.1
"""Rounding of A = VBᵀ, in units of ε‖V‖‖B‖/BACKWARD_ERROR: it counts where the product is far below its factors."""
QUADRATURE = 1e-12
"""Relative error of the quadrature of a period."""
ONE_DIRECTION = 1e-12
"""A matrix has one direction when its second singular value is at most this times the first."""
TRUSTED = 10.0
"""The resolution from which the kind of a limit can be trusted."""


@dataclass(frozen=True, eq=False, repr=False)
class Limit(Result):
    """The zero-temperature limit of one layer; call it with tokens (…, n, d) for the limit of each.

    Attributes
    ----------
    kind : str
        points | subspace | rotation | defective | mixed | numerical; ``describe()`` says its meaning.
    dimension : int or None
        m of the dominant eigenspace E; of the limit set for "defective"; None when numerical.
    basis : Array or None
        Orthonormal rows (m, d) spanning E. ``resolution`` does not vouch for them: a small gap leaves them uncertain.
    leading : float, complex or None
        The leading eigenvalue of A; complex for a rotation.
    gap : float or None
        Distance from its real part μ to the next real part; infinite when there is none.
    rate : float or None
        gap/σ_max(B), a lower bound of the asymptotic contraction rate of a token per unit time.
    tolerance : float or None
        Eigenvalues with a real part at least this close to μ were counted as being at μ: the ``tolerance`` of
        ``limit``, given or decided, times ‖A‖.
    in_kernel : bool
        Whether E lies in ker Bᵀ: then τ → ∞ is reached at a finite time t (with a Jordan block never, t ~ log τ).
    plane : Array or None
        Basis (2, d) of the plane of a rotation.
    period : float or None
        The time t of one turn of a rotation.
    resolution : float or None
        The smallest change of A that would make another kind, by closing the gap or ending a rotation, in units of
        rounding (100ε‖A‖). Below 10, do not trust the kind. Eigenvalues that a kind calls equal are equal as far as
        rounding can tell. The period is right to a relative 1/resolution (and 1e-10).

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), beta=100.0)
    >>> limit(head)([[0.6, 0.8], [0.0, 1.0]]) + 0.0  # the second token is drawn to neither point
    array([[ 1.,  0.],
           [nan, nan]])
    >>> limit(head).undefined([[0.6, 0.8], [0.0, 1.0]])
    array([1])
    """

    kind: str
    dimension: int | None
    basis: Array | None
    leading: complex | float | None
    gap: float | None
    rate: float | None
    tolerance: float | None
    in_kernel: bool
    plane: Array | None
    period: float | None
    resolution: float | None
    _map: Float[np.ndarray, "powers d d"] | None
    _layer: Layer

    def __call__(self, x0: Array) -> Array:
        """The limit of each token.

        Parameters
        ----------
        x0
            The tokens (…, n, d) at time 0.

        Returns
        -------
        Array
            The limits, in the shape and kind of the tokens; NaN for tokens without one (``undefined`` lists them).
        """
        tokens, kind = self._tokens(x0)
        limits, defined = self._limits(as_float64(tokens).reshape(-1, tokens.shape[-1]), kind)
        limits[~defined] = np.nan
        return kind.restore(limits.reshape(tuple(tokens.shape)))

    def undefined(self, x0: Array) -> np.ndarray:
        """The tokens without a limit.

        Parameters
        ----------
        x0
            The tokens (…, n, d) at time 0.

        Returns
        -------
        ndarray
            Their indices: (j,) for tokens (n, d), a row for each for a batch.
        """
        tokens, kind = self._tokens(x0)
        _, defined = self._limits(as_float64(tokens).reshape(-1, tokens.shape[-1]), kind)
        missing = ~defined.reshape(tuple(tokens.shape[:-1]))
        return np.flatnonzero(missing) if missing.ndim == 1 else np.argwhere(missing)

    def describe(self) -> str:
        """The kind and its meaning, the gap, and how far rounding can be ruled out, in words."""
        text = KINDS[self.kind] + "."
        if self.kind == "rotation" and self.period is not None:
            text += f" One turn takes t = {self.period:.6g}."
        if self.gap is not None and np.isfinite(self.gap):
            text += f" The gap below the leading eigenvalue is {self.gap:.4g}."
        elif self.gap is not None and self.kind == "subspace":
            text += " Nothing lies below the leading eigenvalue: tokens stay where they are."
        if self.resolution is not None:
            text += f" {_resolved(self.resolution)}"
        if self.in_kernel and self.kind == "defective":
            text += " The limit lies in ker Bᵀ; in time t it is approached for ever, t growing like log τ."
        elif self.in_kernel:
            text += " The dominant eigenspace lies in ker Bᵀ: in time t the paths end early, at finite times."
        return text[0].upper() + text[1:]

    def facts(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "kind": self.kind,
            "meaning": self.describe(),
            "dimension": self.dimension,
            "leading": None if self.leading is None else [self.leading.real, self.leading.imag],
            "gap": self.gap,
            "rate": self.rate,
            "tolerance": self.tolerance,
            "resolution": self.resolution,
            "in_kernel": self.in_kernel,
            "period": self.period,
            "basis": None if self.basis is None else as_float64(self.basis).tolist(),
        }

    def headline(self) -> str:
        """Kind, dimension, leading eigenvalue and gap."""
        numbers = "" if self.gap is None else f", leading={_short(self.leading)}, gap={self.gap:.6g}"
        return f"kind={self.kind!r}, dimension={self.dimension}{numbers}"

    def _repr_html_(self) -> str:
        return f"<p><b>Limit: {self.kind}</b>. {self.describe()}</p>"

    def _tokens(self, x0: Array) -> tuple[torch.Tensor, Kind]:
        if self.kind in ("rotation", "mixed"):
            raise NoLimit(f"tokens have no limit here ({self.kind}): {self.describe()}")
        return as_tokens_of(self._layer, x0)

    def _limits(
        self, x: Float[np.ndarray, "n d"], kind: Kind
    ) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n"]]:
        if self._map is None:
            return _settle(self._layer, x)
        epsilon = BACKWARD_ERROR * torch.finfo(kind.dtype).eps
        limits, defined = np.full_like(x, np.nan), np.zeros(len(x), dtype=bool)
        # N^j𝒫x with the largest j wins as τ → ∞; a token without that part falls back to the next one.
        for matrix in self._map[::-1]:
            image = x @ matrix.T
            size = np.linalg.norm(image, axis=1)
            new = ~defined & (size > epsilon * np.linalg.norm(matrix, 2))
            limits[new] = _directions(image[new], matrix)
            defined |= new
        return limits, defined


def _directions(image: Float[np.ndarray, "n d"], matrix: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "n d"]:
    """The rows as unit vectors; rows of a matrix of rank one are ±e to the last bit, so that they are two atoms."""
    left, sizes, _ = np.linalg.svd(matrix)
    if len(sizes) == 1 or sizes[1] <= ONE_DIRECTION * sizes[0]:
        return np.where(image @ left[:, :1] > 0, left[:, 0], -left[:, 0])
    return unit_rows(image)


def limit(heads: Heads, *, tolerance: float | None = None) -> Limit:
    """The zero-temperature limit of the tokens of one layer, from the dominant eigenvalues of A = VBᵀ (THEORY eq. 7).

    Parameters
    ----------
    heads : Attention or list
        One layer: an Attention, or ``[[head1, head2]]``. Several heads, or a key bias, have no closed form: their
        limits are found by integration.
    tolerance : float, optional
        Eigenvalues with real parts this close, relative to ‖A‖, count as equal; in [0, 1). By default decided for each
        eigenvalue from how far rounding could have moved it: about 1e-14 for a symmetric A, 1e-7 with a Jordan block.

    Returns
    -------
    Limit
        ``.kind``, ``.basis``, ``.gap``, …; call it with tokens for the limit of each.

    Raises
    ------
    BadParameter
        There are several layers, or ``tolerance`` is outside its range.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=100.0)
    >>> limit(head)
    Limit(kind='points', dimension=1, leading=1, gap=0.5)
    """
    layer = as_one_layer(heads, "limit")
    if tolerance is not None and not (0 <= as_number(tolerance, "tolerance") < 1):
        raise BadParameter(f"tolerance is {tolerance}; it is relative to ‖A‖ and lies in [0, 1).")
    if not is_plain(layer):
        return Limit("numerical", None, None, None, None, None, None, False, None, None, None, None, layer)
    head = layer[0]
    return _limit_of_group(head, dominant(head.matrices.A, epsilon=_precision(head), tolerance=tolerance))


def _limit_of_group(head: Attention, group: Dominant) -> Limit:
    powers_on_space = None
    if group.kind in ("points", "subspace", "defective"):
        powers_on_space = np.stack([group.basis @ power @ group.dual for power in group.powers])
    B = head.matrices.B
    sigma = float(head.singular_values[0])
    turns = group.kind in ("rotation", "mixed")
    rows = head.restore(group.ends.T)
    period, certain = _period(group, B) if group.kind == "rotation" else (None, np.inf)
    return Limit(
        kind=group.kind,
        dimension=group.ends.shape[1],
        basis=rows,
        leading=complex(group.mu, np.abs(group.eigenvalues.imag).max()) if turns else group.mu,
        gap=group.gap,
        rate=group.gap / sigma if sigma > 0 and group.kind in ("points", "subspace") else None,
        tolerance=group.tolerance,
        in_kernel=bool(np.linalg.norm(B.T @ group.ends, 2) <= BACKWARD_ERROR * np.finfo(float).eps * sigma),
        plane=rows if group.kind == "rotation" else None,
        period=period,
        resolution=min(group.resolution, certain),
        _map=powers_on_space,
        _layer=(head,),
    )


def _precision(head: Attention) -> float:
    """The relative error of one operation in A: that of its dtype, and more where V and B cancel."""
    epsilon = float(torch.finfo(head.dtype).eps)
    A, V = (float(np.linalg.norm(part, 2)) for part in (head.matrices.A, head.matrices.V))
    return epsilon * max(1.0, CANCELLED * (V / A) * float(head.singular_values[0])) if A > 0 else epsilon


def _period(group: Dominant, B: Float[np.ndarray, "d d"]) -> tuple[float, float]:
    """T = ∮|Bᵀx|dτ over one turn, and the inverse of the relative error that rounding may have left in it."""
    turn = group.block - np.trace(group.block) / 2 * np.eye(2)
    omega = float(np.abs(group.eigenvalues.imag).max())
    # e^{τ·turn} = cos(ωτ) I + sin(ωτ)/ω · turn, because turn² = −ω² I: an ellipse, run through once while ωτ = 0 … 2π.
    ellipse = np.column_stack([[1.0, 0.0], turn[:, 0] / omega])
    key = B.T @ group.basis

    def speed(angle: float) -> float:
        z = ellipse @ [np.cos(angle), np.sin(angle)]
        return float(np.linalg.norm(key @ z) / np.linalg.norm(z))

    # A long thin ellipse is left in a short time, and |Bᵀx| may change much in it: the integral is taken from there.
    sharp = [np.arctan2(*np.linalg.svd(form)[2][-1][::-1]) % np.pi for form in (ellipse, key @ ellipse)]
    first, second = min(sharp), max(sharp)
    half = sum(
        quad(speed, *ends, epsabs=0.0, epsrel=QUADRATURE, limit=500, full_output=1)[0]
        for ends in ((first, second), (second, first + np.pi))
    )
    mean = half / np.pi
    along = mean / (float(np.linalg.norm(key, 2)) or 1.0)
    across = mean / (float(np.linalg.norm(B, 2)) or 1.0)
    certain = min(along * turning(group.block) / group.rounding, across / group.tilt if group.tilt > 0 else np.inf)
    return 2 * half / omega, certain


def _settle(layer: Layer, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n"]]:
    """Integrate until each token rests; tokens that end in a singular point or never rest have no limit."""
    field = Field.of(layer)
    scale = field.speed_scale
    place, resting = unit_rows(x), np.zeros(len(x), dtype=bool)
    going, time = np.arange(len(x)), FIRST_TIME
    while len(going) and time <= LONGEST:
        span = np.array([time / scale])
        frames, ended = integrate(field, place[going], span, tolerance=NUMERICAL_TOLERANCE * scale)
        alive = np.isinf(ended)
        place[going] = frames[0]
        slow = alive.copy()
        slow[alive] = np.linalg.norm(field(frames[0, alive]), axis=1) <= AT_REST * scale
        resting[going[slow]] = True
        going, time = going[alive & ~slow], 2 * time
    return place, resting


def _resolved(ratio: float) -> str:
    if not ratio > TRUSTED:
        return "It is not resolved: rounding could have made another kind of it, so do not trust it."
    if np.isinf(ratio):
        return "It is resolved: no change of the size of rounding would make another kind of it."
    return f"It is resolved: only a change of A {ratio:.1g} times larger than rounding would make another kind of it."


def _short(value: complex | float | None) -> str:
    return f"{value:.6g}" if value is not None else "none"
