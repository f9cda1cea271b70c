"""Both measures on one great circle, geodesic cost: exact circular transport in O(n log n), for every p ≥ 1.

On a circle an optimal plan keeps the cyclic order, so only one number is free: by how much mass the two orders are
shifted. The cost is convex and piecewise linear in that shift, and its value and slope are found in one pass over both
clouds; tangents then close in on the least value, and prove it.
"""

from collections.abc import Callable
from typing import no_type_check

import numpy as np
from jaxtyping import Float
from numba import njit

ROUNDS = 200


def angles_on_circle(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> tuple[np.ndarray, np.ndarray] | None:
    """The angles of both clouds on their common great circle, or None when there is none (to 1e-9)."""
    both = np.concatenate([x, y])
    first = both[0]
    # The point farthest from the line through the first one fixes the plane best.
    across = both - np.outer(both @ first, first)
    sizes = np.linalg.norm(across, axis=1)
    second = across[sizes.argmax()] / sizes.max() if sizes.max() > 1e-9 else np.linalg.svd(first[None])[2][1]
    plane = np.stack([first, second])
    if not np.abs(np.linalg.norm(both @ plane.T, axis=1) - 1).max() <= 1e-9:
        return None
    angle = np.arctan2(both @ second, both @ first) % (2 * np.pi)
    return angle[: len(x)], angle[len(x) :]


def circular(
    s: Float[np.ndarray, "n"], a: Float[np.ndarray, "n"], t: Float[np.ndarray, "m"], b: Float[np.ndarray, "m"], p: float
) -> float:
    """W_p of measures at the angles s and t with masses a and b, along the circle."""
    (s, a), (t, b) = (_sorted(angle, mass) for angle, mass in ((s, a), (t, b)))
    ends = _sums(a), _sums(b)
    return float(np.pi * _least(lambda shift: _pass(s, ends[0], t, ends[1], shift, p)) ** (1 / p))


def _least(tangent: Callable[[float], tuple[float, float]]) -> float:
    """The least value of a convex function of [−1, 1] given by value and slope, to the last digits.

    Where the tangents at both ends meet is a lower bound; its place is the next guess, with a bisection now and then.
    """
    low, high = -1.0, 1.0
    (below, falling), (above, rising) = tangent(low), tangent(high)
    for count in range(ROUNDS):
        best = min(below, above)
        if not falling < 0 < rising:
            return best
        meet = (below - above + rising * high - falling * low) / (rising - falling)
        if best - (below + falling * (meet - low)) <= 1e-14 * best or not low < meet < high:
            return best
        guess = meet if count % 4 < 3 else (low + high) / 2
        value, slope = tangent(guess)
        if slope >= 0:
            high, above, rising = guess, value, slope
        else:
            low, below, falling = guess, value, slope
    return min(below, above)


def _sorted(angle: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(angle, kind="stable")
    return np.ascontiguousarray(angle[order]), np.ascontiguousarray(mass[order])


@njit(cache=True)
@no_type_check
def _sums(mass):
    """Running sums to the last bit (Kahan), so that equal masses in another order end at the same places."""
    found = np.empty(len(mass))
    total, lost = 0.0, 0.0
    for k in range(len(mass)):
        term = mass[k] - lost
        raised = total + term
        lost = (raised - total) - term
        total = raised
        found[k] = total
    found /= total
    found[-1] = 1.0
    return found


@njit(cache=True, inline="always")
@no_type_check
def _raised(x, p):
    # A general power takes ten times as long as these.
    return x * x if p == 2 else x if p == 1 else x * x * x if p == 3 else (x * x) * (x * x) if p == 4 else x**p


@njit(cache=True)
@no_type_check
def _pass(s, s_end, t, t_end, shift, p):
    """Cost of coupling the quantile u of s with the quantile u + shift of t, and its slope in the shift."""
    turn, unit = 2 * np.pi, np.pi
    whole = np.floor(shift)
    part = shift - whole
    j = np.searchsorted(t_end, part, side="right")
    lifts = whole
    if j == len(t):
        j, lifts, part = 0, lifts + 1, part - 1
    value, slope, u, i = 0.0, 0.0, 0.0, 0
    base = part
    # Sums of masses that agree but for rounding are equal: a sliver of it would be carried across the circle.
    rounding = 1e-15
    while i < len(s):
        step_s, step_t = s_end[i], t_end[j] - base
        following = min(step_s, step_t)
        gap = _raised(abs(s[i] - t[j] - turn * lifts) / unit, p)
        if following > u:
            value += (following - u) * gap
            u = following
        tied = abs(step_t - step_s) <= rounding
        if tied:
            u = max(step_s, step_t)
        if tied or step_t < step_s:
            k, raised = j + 1, lifts
            if k == len(t):
                k, raised = 0, lifts + 1
                base -= 1
            slope += _raised(abs(s[i] - t[k] - turn * raised) / unit, p) - gap
            j, lifts = k, raised
            if tied:
                i += 1
        else:
            i += 1
    return value, slope
