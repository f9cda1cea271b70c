"""The largest expansion rate ℓ = sup λ_max(sym ∇F) of the flow (5) over the sphere, certified by branch and bound.

F(−x) = −F(x), so half of the sphere is enough: d faces of a cube, cut into smaller ones again and again. A cell is in
the ball about its middle that its corners are in. In that ball the rate is bounded twice: by ``Around.expansion``, and
by its value R at the middle and its slope. Along a geodesic, carrying the unit tangent v along,

    R(y,v) = (vᵀSv − yᵀSy)/s − (vᵀAy)(vᵀCy)/s³ ,   C = BBᵀ ,  S = sym A
    |dR/dφ| ≤ 4|P_ySy|/s + (λ_max − λ_min)(S)·|q|/s³ + (|∇G||q| + |G||∇q|)/s³ + 3|G||q|²/s⁵

with G = P_yAy, q = P_yCy: every term vanishes at common eigenvectors of A and B, where the rate is often largest.
"""

from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import Float

from frostline.sphere import unit_rows

if TYPE_CHECKING:
    from frostline.theory.expansion import Around, Derivative

LARGEST_DIMENSION = 4
"""The largest dimension in which the sphere is covered; above it the closed bound of section 7 stands alone."""
TOLERANCE = 0.005
"""The relative width at which the search ends."""
BALLS = 60_000
"""Balls that are looked at before the search gives up: some tenths of a second at most."""
FIRST = {2: 8, 3: 4, 4: 2}
"""Cells along each coordinate of a face to begin with."""
PAD = 1 + 1e-9
"""Room for the rounding of eigenvalues, and of corners."""


@dataclass(frozen=True)
class Supremum:
    """ℓ is at most ``value`` and at least ``least``; ``method`` says how the upper bound was found."""

    value: float
    least: float
    method: str
    """"branch and bound" or "closed bound"."""


def expansion_supremum(derivative: "Derivative", closed: float) -> Supremum:
    """Certified bounds of ℓ; never above ``closed``, which stands where the search is not made or does not end."""
    d = len(derivative.A)
    if not 2 <= d <= LARGEST_DIMENSION or not np.isfinite(closed) or not closed > 0:
        return Supremum(closed, -np.inf, "closed bound")
    faces, middles, half = _first_cells(d)
    corners = np.array(list(product((-1.0, 1.0), repeat=d - 1)))
    least, discarded, seen = -np.inf, -np.inf, 0
    while True:
        x = _points(faces, middles)
        around = derivative.around(x)
        rates = derivative.rate(x)
        least = max(least, float(rates.max()))
        cosines = [np.einsum("ni,ni->n", x, _points(faces, middles + half * corner)) for corner in corners]
        radius = PAD * np.arccos(np.clip(np.min(cosines, axis=0), -1.0, 1.0)) + 1e-7
        room = 1e-12 * float(np.abs(derivative.spectrum).max()) / derivative.sigma[1]
        sloped = rates + (PAD - 1) * np.abs(rates) + room + PAD * radius * rate_slope(around, x, radius)
        upper = np.minimum(around.expansion(radius), sloped)
        seen += len(x)
        open_cells = ~(upper <= least + TOLERANCE * max(least, 0.0))
        discarded = max(discarded, float(upper[~open_cells].max(initial=-np.inf)))
        if not open_cells.any():
            return Supremum(min(max(discarded, least), closed), least, "branch and bound")
        children = int(open_cells.sum()) * len(corners)
        if seen + children > BALLS:
            value = max(discarded, float(upper[open_cells].max()))
            if value < closed:
                return Supremum(value, least, "branch and bound")
            return Supremum(closed, least, "closed bound")
        half /= 2
        faces = np.repeat(faces[open_cells], len(corners))
        middles = (middles[open_cells][:, None] + half * corners).reshape(-1, d - 1)


def _first_cells(d: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Faces, middles (in the coordinates of their face) and half width of the first cells."""
    count = FIRST[d]
    line = (np.arange(count) + 0.5) * 2 / count - 1
    cells = np.array(list(product(line, repeat=d - 1)))
    return np.repeat(np.arange(d), len(cells)), np.tile(cells, (d, 1)), 1 / count


def _points(faces: np.ndarray, z: Float[np.ndarray, "n e"]) -> Float[np.ndarray, "n d"]:
    """The points of the sphere above those of the cube's faces."""
    x = np.empty((len(z), z.shape[1] + 1))
    for face in range(x.shape[1]):
        here = faces == face
        x[here] = np.insert(z[here], face, 1.0, axis=1)
    return unit_rows(x)


def rate_slope(around: "Around", x: Float[np.ndarray, "n d"], radius: Float[np.ndarray, "n"]) -> Float[np.ndarray, "n"]:
    """A bound of |dR/dφ| over the ball of this radius around each point."""
    derivative, (least, _), (G, q) = around.of, around.scales(radius), around.largest_vectors(radius)
    high, low = derivative.sigma
    Sx = x @ derivative.symmetric
    even = np.linalg.norm(Sx - np.einsum("ni,ni->n", x, Sx)[:, None] * x, axis=1)
    even = np.minimum(even + derivative.spread * radius, derivative.spread / 2)
    turned = (derivative.push + derivative.spread / 2) * q + G * (high**2 - low**2)
    return 4 * even / least + (derivative.spread * q + turned) / least**3 + 3 * G * q**2 / least**5
