"""Both measures on one great circle, geodesic cost: exact circular transport in O(n log n), for every p ≥ 1.

On a circle an optimal plan keeps the cyclic order, so only one number is free: by how much mass the two orders are
shifted. The cost is convex and piecewise linear in that shift, with its corners where a boundary between two points of
one cloud meets one of the other; value and slopes are found in one pass over both clouds. Tangents close in on the
least value, and a corner with a falling slope before it and a rising one behind it is the least.
"""

from collections.abc import Callable
from typing import NamedTuple, no_type_check

import numpy as np
from jaxtyping import Float

from frostline.compiled import njit

ROUNDS = 200
"""Steps of the search for the least cost, at most."""
OFF_PLANE = 1e-6
"""Largest distance of a point from the plane of the circle; float32 rounds unit vectors by 1e-7."""
LEAST = 1e-14
"""Masses below this are lost in sums of masses up to 1; they are left out, and the bounds say so."""
SMALLEST = 1e-290
"""Powers of distances below this underflow."""


class Angles(NamedTuple):
    """The angles of both clouds on their circle, and the sum of their largest distances from it."""

    x: Float[np.ndarray, "n"]
    y: Float[np.ndarray, "m"]
    off: float


def angles_on_circle(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "m d"]) -> Angles | None:
    """The angles of both clouds on their common great circle, or None when there is none (to 1e-6)."""
    if x.shape[1] == 1:
        x, y = (np.pad(cloud, ((0, 0), (0, 1))) for cloud in (x, y))
    both = np.concatenate([x, y])
    first = both[0]
    # The point farthest from the line through the first one fixes the plane best.
    across = both - np.outer(both @ first, first)
    sizes = np.linalg.norm(across, axis=1)
    second = across[sizes.argmax()] / sizes.max() if sizes.max() > 1e-9 else np.linalg.svd(first[None])[2][1]
    off = np.linalg.norm(across - np.outer(across @ second, second), axis=1) if x.shape[1] > 2 else np.zeros(len(both))
    if not off.max() <= OFF_PLANE:
        return None
    angle = np.arctan2(both @ second, both @ first) % (2 * np.pi)
    return Angles(angle[: len(x)], angle[len(x) :], float(off[: len(x)].max() + off[len(x) :].max()))


def circular(
    s: Float[np.ndarray, "n"], a: Float[np.ndarray, "n"], t: Float[np.ndarray, "m"], b: Float[np.ndarray, "m"], p: float
) -> tuple[float, float]:
    """W_p along the circle of measures at the angles s and t with masses a and b, and a bound of its error."""
    lost = float(a[a < LEAST].sum() + b[b < LEAST].sum())
    (s, a), (t, b) = (_sorted(angle, mass) for angle, mass in ((s, a), (t, b)))
    ends = _sums(a), _sums(b)
    least = _least(
        lambda shift: _pass(s, ends[0], t, ends[1], shift, p), lambda shift: float(_corner(ends[0], ends[1], shift))
    )
    # Moving the lost mass anywhere costs at most this; powers below SMALLEST underflow.
    off = np.pi * max(lost, SMALLEST if 0 < least < SMALLEST or (least == 0 and p > 2) else 0.0) ** (1 / p)
    return float(np.pi * least ** (1 / p)), float(off)


def _least(tangent: Callable[[float], tuple[float, float, float]], corner: Callable[[float], float]) -> float:
    """The least value of a convex function of [−1, 1] given by value and slopes to the left and to the right.

    Where the tangents at both ends meet is a lower bound; the corner nearest to that place is the next guess, with a
    bisection now and then.
    """
    low, high = -1.0, 1.0
    (below, _, falling), (above, rising, _) = tangent(low), tangent(high)
    for count in range(ROUNDS):
        best = min(below, above)
        if not falling < 0 < rising:
            return best
        meet = (below - above + rising * high - falling * low) / (rising - falling)
        # For large p the slopes span many orders of magnitude, and rounding may put the place where they meet outside.
        met = low < meet < high
        # From the lower end, where there is less to cancel.
        drop = -falling * (meet - low) if below < above else rising * (high - meet)
        if met and drop <= 1e-14 * best:
            return best
        middle = meet if met and count % 4 < 3 else (low + high) / 2
        guess = corner(middle)
        if not low < guess < high:
            guess = middle
        if not low < guess < high:
            return best
        value, left, right = tangent(guess)
        if left <= 0 <= right:
            return value
        if left > 0:
            high, above, rising = guess, value, left
        else:
            low, below, falling = guess, value, right
    return min(below, above)


def _sorted(angle: np.ndarray, mass: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    order = np.argsort(angle, kind="stable")
    order = order[mass[order] >= LEAST]
    return np.ascontiguousarray(angle[order]), np.ascontiguousarray(mass[order])


@njit()
@no_type_check
def _sums(mass):
    """Running sums to the last bit (Kahan), so that equal masses in another order end at the same places."""
    sums = np.empty(len(mass))
    total, lost = 0.0, 0.0
    for k in range(len(mass)):
        term = mass[k] - lost
        raised = total + term
        lost = (raised - total) - term
        total = raised
        sums[k] = total
    sums /= total
    sums[-1] = 1.0
    return sums


@njit(inline="always")
@no_type_check
def _raised(x, p):
    # A general power takes ten times as long as these.
    return x * x if p == 2 else x if p == 1 else x * x * x if p == 3 else (x * x) * (x * x) if p == 4 else x**p


@njit()
@no_type_check
def _corner(s_end, t_end, shift):
    """The corner nearest to this shift: boundaries of t at u + shift that lie closest to boundaries of s at u."""
    whole = np.floor(shift)
    part = shift - whole
    j, turns = np.searchsorted(t_end, part), 0
    if j == len(t_end):
        j, turns = 0, 1
    best, nearest = np.inf, shift
    i = 0
    # s_end runs from its first entry to 1; the boundary at 1 is also the one at 0.
    previous = 0.0
    while i < len(s_end):
        place = t_end[j] + turns - part
        while i < len(s_end) and s_end[i] < place:
            previous = s_end[i]
            i += 1
        for here in (previous, s_end[min(i, len(s_end) - 1)]):
            if abs(place - here) < best:
                best, nearest = abs(place - here), whole + t_end[j] + turns - here
        j += 1
        if j == len(t_end):
            j, turns = 0, turns + 1
        if turns > 2:
            break
    return nearest


@njit()
@no_type_check
def _pass(s, s_end, t, t_end, shift, p):
    """Cost of coupling the quantile u of s with the quantile u + shift of t, and its slopes below and above the shift.

    A larger shift moves each boundary of t to the left, a smaller one to the right: there it meets the next s where two
    boundaries coincide.
    """
    turn, unit = 2 * np.pi, np.pi
    whole = np.floor(shift)
    part = shift - whole
    # Sums of masses that agree but for rounding are equal: a sliver of it would be carried across the circle.
    rounding = 2e-15
    j = np.searchsorted(t_end, part + rounding, side="right")
    lifts = whole
    if j == len(t):
        j, lifts, part = 0, lifts + 1, part - 1
    value, left, right, u, i = 0.0, 0.0, 0.0, 0.0, 0
    base = part
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
            change = _raised(abs(s[i] - t[k] - turn * raised) / unit, p) - gap
            right += change
            if tied:
                i += 1
                after = s[i] if i < len(s) else s[0] + turn
                left += _raised(abs(after - t[k] - turn * raised) / unit, p)
                left -= _raised(abs(after - t[j] - turn * lifts) / unit, p)
            else:
                left += change
            j, lifts = k, raised
        else:
            i += 1
    return value, left, right
