"""The zero-temperature flow of several heads or of a key bias: F(x) = Σ_h P_x V_h y*_h(x), y*_h = (B_hᵀx + g_h)/|·|.

No closed form (THEORY section 3), so it is integrated: Dormand–Prince 8(5,3) with a step of its own for every token
(tokens do not interact at zero temperature), error control per unit time.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.integrate import DOP853

from frostline import cancellation
from frostline.attention import Layer
from frostline.sphere import unit_rows

STEP_LIMIT = 200_000
"""Steps of a token between two saved times; a token that needs more counts as ended."""
SMALLEST_STEP = 1e-13
"""The shortest step, in units of 1/‖V‖: a direction that flips within it jumps, and the path ends."""
FIRST_STEP = 0.01
"""The first trial step, in units of 1/‖V‖; the error control corrects it."""


@dataclass(frozen=True, eq=False)
class Field:
    """The velocity F of one layer in float64; call it with tokens (n, d)."""

    heads: tuple[tuple[Float[np.ndarray, "d d"], Float[np.ndarray, "d d"], Float[np.ndarray, " d"]], ...]

    @classmethod
    def of(cls, layer: Layer) -> "Field":
        """The field of these heads."""
        matrices = [head.matrices for head in layer]
        return cls(tuple((B, V, np.zeros(len(B)) if bias is None else bias) for B, V, _, bias in matrices))

    @property
    def speed_scale(self) -> float:
        """Σ‖V_h‖: no token moves faster."""
        return sum(float(np.linalg.norm(V, 2)) for _, V, _ in self.heads) or 1.0

    def directions(self, x: Float[np.ndarray, "n d"]) -> list[Float[np.ndarray, "n d"]]:
        """y*_h for each head; NaN where a head has none (Bᵀx + g = 0 to rounding)."""
        directions = []
        for B, _, bias in self.heads:
            key = x @ B + bias
            size = np.linalg.norm(key, axis=1, keepdims=True)
            floor = 8 * np.finfo(float).eps * (np.linalg.norm(B, 2) + np.linalg.norm(bias))
            directions.append(np.where(size > floor, key, np.nan) / np.where(size > floor, size, 1.0))
        return directions

    def __call__(self, x: Float[np.ndarray, "n d"]) -> Float[np.ndarray, "n d"]:
        x = unit_rows(x)
        push = sum(y @ V.T for y, (_, V, _) in zip(self.directions(x), self.heads, strict=True))
        return push - (x * push).sum(1, keepdims=True) * x


def integrate(
    field: Field, x0: Float[np.ndarray, "n d"], times: Float[np.ndarray, "k"], *, tolerance: float
) -> tuple[Float[np.ndarray, "k n d"], Float[np.ndarray, "n"]]:
    """Tokens at ascending times ≥ 0, NaN after a token's path has ended; and the time at which each path ends."""
    x, t = x0.copy(), np.zeros(len(x0))
    ended = np.where(np.isfinite(field(x)).all(1), np.inf, 0.0)
    step = np.full(len(x0), FIRST_STEP / field.speed_scale)
    frames = np.full((len(times), *x0.shape), np.nan)
    for index, end in enumerate(times):
        _reach(field, x, t, step, ended, float(end), tolerance)
        # A token that has just arrived in a singular point still has its position there.
        alive = ended >= end
        frames[index, alive] = x[alive]
    return frames, ended


def _reach(
    field: Field,
    x: Float[np.ndarray, "n d"],
    t: Float[np.ndarray, "n"],
    step: Float[np.ndarray, "n"],
    ended: Float[np.ndarray, "n"],
    end: float,
    tolerance: float,
) -> None:
    """Bring all tokens to time ``end``, in place."""
    smallest = SMALLEST_STEP / field.speed_scale
    for _ in range(STEP_LIMIT):
        cancellation.poll()
        going = np.flatnonzero((t < end) & np.isinf(ended))
        if not len(going):
            return
        h = np.minimum(step[going], end - t[going])
        moved, error, turned = _dop853(field, x[going], h)
        ratio = error / (tolerance * h)
        accepted = (ratio <= 1) & ~turned
        # NaN (a stage met a singular point) is not accepted and halves the step.
        growth = np.where(np.isfinite(ratio), 0.9 * np.maximum(ratio, 1e-10) ** (-1 / 7), 0.5)
        growth = np.clip(np.where(turned, 0.5, growth), 0.2, 5.0)
        last = h == end - t[going]
        x[going[accepted]] = moved[accepted]
        t[going[accepted]] = np.where(last, end, t[going] + h)[accepted]
        # A step cut short to land on ``end`` says nothing about the step the token could take.
        step[going] = np.where(accepted & last, np.maximum(step[going], h * growth), h * growth)
        stuck = going[~accepted & (h <= smallest)]
        ended[stuck] = t[stuck]
    ended[going] = t[going]


def _dop853(
    field: Field, x: Float[np.ndarray, "n d"], h: Float[np.ndarray, "n"]
) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n"], Bool[np.ndarray, "n"]]:
    """One trial step: the tokens after it, its local error, and whether a head's direction turned by 90° or more."""
    column = h[:, None]
    slopes = np.empty((DOP853.n_stages + 1, *x.shape))
    slopes[0] = field(x)
    for stage in range(1, DOP853.n_stages):
        slopes[stage] = field(x + column * np.tensordot(DOP853.A[stage, :stage], slopes[:stage], axes=1))
    moved = unit_rows(x + column * np.tensordot(DOP853.B, slopes[:-1], axes=1))
    slopes[-1] = field(moved)
    fifth = np.linalg.norm(np.tensordot(DOP853.E5, slopes, axes=1), axis=1)
    third = np.linalg.norm(np.tensordot(DOP853.E3, slopes, axes=1), axis=1)
    size = np.hypot(fifth, 0.1 * third)
    error = h * fifth**2 / np.where(size > 0, size, 1.0)
    turned = np.zeros(len(x), dtype=bool)
    for before, after in zip(field.directions(x), field.directions(moved), strict=True):
        turned |= ~((before * after).sum(1) > 0)
    return moved, error, turned
