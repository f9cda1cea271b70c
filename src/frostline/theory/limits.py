"""The zero-temperature limit of every token, from the spectrum of A = VBᵀ (THEORY section 4)."""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy import integrate

from frostline.arrays import Array, Kind, as_float64, as_number
from frostline.attention import Attention, Heads, Layer, as_one_layer, is_plain
from frostline.errors import BadArray, BadParameter, NoLimit
from frostline.printable import one_line
from frostline.sphere import as_tokens, unit_rows
from frostline.theory.multi_head_flow import Field
from frostline.theory.multi_head_flow import integrate as integrated
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

# Numerical limits: a token is at rest when it moves slower than this (times ‖V‖) …
AT_REST = 1e-8
# … and is given up after this much time (in units of 1/‖V‖).
LONGEST = 512.0
# Rounding of A = VBᵀ in units of ε‖V‖‖B‖/BACKWARD_ERROR: it counts where the product is much smaller than its factors.
CANCELLED = 0.1
# Relative error of the quadrature of a period.
QUADRATURE = 1e-12


@dataclass(frozen=True, eq=False)
class Limit:
    """What zero temperature makes of the tokens. Call it: ``limit(x0)`` gives each token's limit.

    kind        points | subspace | rotation | defective | mixed | numerical
    dimension   m of the dominant eigenspace E (of the limit set for "defective"; None when numerical)
    basis       (m, d) orthonormal rows spanning E
    leading     the leading eigenvalue of A (complex for a rotation)
    gap         distance from there to the next real part (infinite when there is none)
    rate        gap/σ_max(B): a lower bound of the asymptotic contraction rate of a token per unit time
    tolerance   eigenvalues this close (absolute) to μ were counted as being at μ
    resolution  how many times larger than rounding (100ε‖A‖) the smallest change of A is that would make another kind
                of it, by closing the gap or ending a rotation; below 10: do not trust the answer. The period is right
                to a relative 1/resolution (and 1e-10). Eigenvalues that a kind calls equal are as equal as rounding
                lets one see. Not vouched for: directions (``basis``), which a small gap leaves uncertain
    in_kernel   E lies in ker Bᵀ: the limit is reached as τ → ∞, at a finite time t (a Jordan block: never, t ~ log τ)
    plane       (2, d) basis of the plane of a rotation; ``period`` the time of one turn
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
        """The limit of each token (…, n, d); rows of NaN for tokens without one (``undefined`` lists them)."""
        tokens, kind = self._tokens(x0)
        found, defined = self._limits(as_float64(tokens).reshape(-1, tokens.shape[-1]), kind)
        found[~defined] = np.nan
        return kind.restore(torch.from_numpy(found.reshape(tuple(tokens.shape))))

    def undefined(self, x0: Array) -> np.ndarray:
        """Indices of the tokens without a limit: (j,) for tokens (n, d), one row per token for a batch."""
        tokens, kind = self._tokens(x0)
        _, defined = self._limits(as_float64(tokens).reshape(-1, tokens.shape[-1]), kind)
        missing = ~defined.reshape(tuple(tokens.shape[:-1]))
        return np.flatnonzero(missing) if missing.ndim == 1 else np.argwhere(missing)

    def describe(self) -> str:
        """The answer in words."""
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

    def facts(self) -> dict[str, object]:
        """Plain numbers and words, for JSON."""
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
            "basis": None if self.basis is None else as_float64(self.basis),
        }

    def __repr__(self) -> str:
        numbers = "" if self.gap is None else f", leading={_short(self.leading)}, gap={self.gap:.6g}"
        return one_line(self, f"kind={self.kind!r}, dimension={self.dimension}{numbers}")

    def _repr_html_(self) -> str:
        return f"<p><b>Limit: {self.kind}</b>. {self.describe()}</p>"

    def _tokens(self, x0: Array) -> tuple[torch.Tensor, Kind]:
        if self.kind in ("rotation", "mixed"):
            raise NoLimit(f"tokens have no limit here ({self.kind}): {self.describe()}")
        tokens, kind = as_tokens(x0, "x0")
        if tokens.shape[-1] != self._layer[0].dimension:
            raise BadArray(
                f"x0 has dimension {tokens.shape[-1]}, the head {self._layer[0].dimension}; they must agree."
            )
        return tokens, kind

    def _limits(
        self, x: Float[np.ndarray, "n d"], kind: Kind
    ) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n"]]:
        if self._map is None:
            return _settle(self._layer, x)
        epsilon = BACKWARD_ERROR * torch.finfo(kind.dtype).eps
        found, defined = np.full_like(x, np.nan), np.zeros(len(x), dtype=bool)
        # N^j𝒫x with the largest j wins as τ → ∞; a token without that part falls back to the next one.
        for matrix in self._map[::-1]:
            image = x @ matrix.T
            size = np.linalg.norm(image, axis=1)
            new = ~defined & (size > epsilon * np.linalg.norm(matrix, 2))
            found[new] = _directions(image[new], matrix)
            defined |= new
        return found, defined


def _directions(image: Float[np.ndarray, "n d"], matrix: Float[np.ndarray, "d d"]) -> Float[np.ndarray, "n d"]:
    """The rows of unit length; where the matrix has one direction only, equal to the last bit: two atoms are two."""
    left, sizes, _ = np.linalg.svd(matrix)
    if len(sizes) == 1 or sizes[1] <= 1e-12 * sizes[0]:
        return np.where(image @ left[:, :1] > 0, left[:, 0], -left[:, 0])
    return unit_rows(image)


def limit(heads: Heads, *, tolerance: float | None = None) -> Limit:
    """The zero-temperature limit of one layer.

    ``tolerance`` (relative to ‖A‖) says which eigenvalues count as having the largest real part. By default this
    is decided for each eigenvalue from how far rounding could have moved it: about 1e-14 for a symmetric A, about 1e-7
    for one with a Jordan block.

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
    found = dominant(head.matrices.A, epsilon=_precision(head), tolerance=tolerance)
    return _classified(head, found)


def _classified(head: Attention, found: Dominant) -> Limit:
    powers_on_space = None
    if found.kind in ("points", "subspace", "defective"):
        powers_on_space = np.stack([found.basis @ power @ found.dual for power in found.powers])
    B = head.matrices.B
    sigma = float(head.singular_values[0])
    turns = found.kind in ("rotation", "mixed")
    rows = _like(head, found.ends.T)
    period, certain = _period(found, B) if found.kind == "rotation" else (None, np.inf)
    return Limit(
        kind=found.kind,
        dimension=found.ends.shape[1],
        basis=rows,
        leading=complex(found.mu, np.abs(found.eigenvalues.imag).max()) if turns else found.mu,
        gap=found.gap,
        rate=found.gap / sigma if sigma > 0 and found.kind in ("points", "subspace") else None,
        tolerance=found.tolerance,
        in_kernel=bool(np.linalg.norm(B.T @ found.ends, 2) <= BACKWARD_ERROR * np.finfo(float).eps * sigma),
        plane=rows if found.kind == "rotation" else None,
        period=period,
        resolution=min(found.resolution, certain),
        _map=powers_on_space,
        _layer=(head,),
    )


def _precision(head: Attention) -> float:
    """The relative error of one operation in A: that of the numbers, and more where V and B cancel."""
    epsilon = float(torch.finfo(head.dtype).eps)
    A, V = (float(np.linalg.norm(part, 2)) for part in (head.matrices.A, head.matrices.V))
    return epsilon * max(1.0, CANCELLED * (V / A) * float(head.singular_values[0])) if A > 0 else epsilon


def _period(found: Dominant, B: Float[np.ndarray, "d d"]) -> tuple[float, float]:
    """T = ∮|Bᵀx|dτ over one turn, and the inverse of the relative error that rounding may have left in it."""
    turn = found.block - np.trace(found.block) / 2 * np.eye(2)
    omega = float(np.abs(found.eigenvalues.imag).max())
    # e^{τ·turn} = cos(ωτ) I + sin(ωτ)/ω · turn, because turn² = −ω² I: an ellipse, run through once while ωτ = 0 … 2π.
    ellipse = np.column_stack([[1.0, 0.0], turn[:, 0] / omega])
    key = B.T @ found.basis

    def speed(angle: float) -> float:
        z = ellipse @ [np.cos(angle), np.sin(angle)]
        return float(np.linalg.norm(key @ z) / np.linalg.norm(z))

    # A long thin ellipse is left in a short time, and |Bᵀx| may change much in it: the integral is taken from there.
    sharp = [np.arctan2(*np.linalg.svd(form)[2][-1][::-1]) % np.pi for form in (ellipse, key @ ellipse)]
    first, second = min(sharp), max(sharp)
    half = sum(
        integrate.quad(speed, *ends, epsabs=0.0, epsrel=QUADRATURE, limit=500, full_output=1)[0]
        for ends in ((first, second), (second, first + np.pi))
    )
    mean = half / np.pi
    along = mean / (float(np.linalg.norm(key, 2)) or 1.0)
    across = mean / (float(np.linalg.norm(B, 2)) or 1.0)
    certain = min(along * turning(found.block) / found.rounding, across / found.tilt if found.tilt > 0 else np.inf)
    return 2 * half / omega, certain


def _settle(layer: Layer, x: Float[np.ndarray, "n d"]) -> tuple[Float[np.ndarray, "n d"], Bool[np.ndarray, "n"]]:
    """Integrate until each token rests; tokens that end in a singular point or never rest have no limit."""
    # The end of a path does not need the path: the tolerance only has to keep tokens in their basins.
    field = Field.of(layer)
    scale = field.speed_scale
    place, resting = unit_rows(x), np.zeros(len(x), dtype=bool)
    going, time = np.arange(len(x)), 4.0
    while len(going) and time <= LONGEST:
        frames, ended = integrated(field, place[going], np.array([time / scale]), tolerance=1e-10 * scale)
        alive = np.isinf(ended)
        place[going] = frames[0]
        slow = alive.copy()
        slow[alive] = np.linalg.norm(field(frames[0, alive]), axis=1) <= AT_REST * scale
        resting[going[slow]] = True
        going, time = going[alive & ~slow], 2 * time
    return place, resting


def _like(head: Attention, values: np.ndarray) -> Array:
    return head._kind.restore(torch.from_numpy(np.ascontiguousarray(values)))


def _resolved(ratio: float) -> str:
    if not ratio > 10:
        return "It is not resolved: rounding could have made another kind of it, so do not trust it."
    if np.isinf(ratio):
        return "It is resolved: it is what it is, to rounding."
    return f"It is resolved: only a change of A {ratio:.1g} times larger than rounding would make another kind of it."


def _short(value: complex | float | None) -> str:
    return f"{value:.6g}" if value is not None else "none"
