"""W_p of small problems to 50 digits: integer masses, costs from mpmath, a transport simplex that pivots to the end."""

from fractions import Fraction

import mpmath
import numpy as np

DIGITS = 60
WHOLE = 10**400
"""Costs and masses are integers in units of the largest over this: at p = 8 a move of 1e-25 of the longest counts."""


def wasserstein(x, y, p, a=None, b=None, geodesic=False):
    """W_p of the points and weights as they are given: weights are divided by their sum, and points by their length
    where angles are asked for."""
    with mpmath.workdps(DIGITS):
        moves = [[_move(u, v, geodesic) for v in y] for u in x]
        unit = max(max(row) for row in moves)
        if not unit > 0:
            return mpmath.mpf(0)
        costs = [[int((move / unit) ** p * WHOLE) for move in row] for row in moves]
        total, whole = _least(costs, *_integers(_shares(a, len(x)), _shares(b, len(y))))
        return unit * (mpmath.mpf(total) / whole / WHOLE) ** (mpmath.mpf(1) / p)


def _move(u, v, geodesic):
    u, v = [mpmath.mpf(float(c)) for c in u], [mpmath.mpf(float(c)) for c in v]
    if geodesic:
        u, v = (_unit(point) for point in (u, v))
    apart = mpmath.sqrt(sum((s - t) ** 2 for s, t in zip(u, v, strict=True)))
    if not geodesic:
        return apart
    return 2 * mpmath.atan2(apart, mpmath.sqrt(sum((s + t) ** 2 for s, t in zip(u, v, strict=True))))


def _unit(point):
    size = mpmath.sqrt(sum(c * c for c in point))
    return [c / size for c in point]


def _shares(weights, n):
    parts = [Fraction(1)] * n if weights is None else [Fraction(float(w)) for w in weights]
    return [part / sum(parts) for part in parts]


def _integers(a, b):
    """Masses as integers, a little apart from those given (1e-400 of the whole): then no pivot is degenerate."""
    left, right = ([int(share * WHOLE) * len(a) * len(b) + 1 for share in side] for side in (a, b))
    left[0] += max(0, sum(right) - sum(left))
    right[int(np.argmax(right))] += sum(left) - sum(right)
    return left, right


def _least(costs, a, b):
    """The least Σ cost·mass of a transport plan, and the whole mass, in integers."""
    n, m = len(a), len(b)
    plan = _start(costs, list(a), list(b))
    while True:
        u, v = _prices(costs, plan, n, m)
        reduced, i, j = min((costs[i][j] - u[i] - v[j], i, j) for i in range(n) for j in range(m))
        if reduced >= 0:
            return sum(costs[i][j] * mass for (i, j), mass in plan.items()), sum(a)
        path = _path(plan, n, i, j)
        moved, leaving = min((plan[cell], cell) for cell in path[::2])
        for number, cell in enumerate(path):
            plan[cell] += -moved if number % 2 == 0 else moved
        del plan[leaving]
        plan[i, j] = moved


def _start(costs, a, b):
    """The cheapest cells first: a plan whose cells make a tree."""
    plan, rows, columns = {}, set(range(len(a))), set(range(len(b)))
    for _, i, j in sorted((costs[i][j], i, j) for i in range(len(a)) for j in range(len(b))):
        if i in rows and j in columns:
            moved = min(a[i], b[j])
            plan[i, j] = moved
            a[i] -= moved
            b[j] -= moved
            if a[i] == 0 and len(rows) > 1:
                rows.remove(i)
            else:
                columns.remove(j)
    return plan


def _neighbours(plan, n):
    near = {}
    for i, j in plan:
        near.setdefault(i, []).append(n + j)
        near.setdefault(n + j, []).append(i)
    return near


def _prices(costs, plan, n, m):
    near, price, stack = _neighbours(plan, n), {0: 0}, [0]
    while stack:
        node = stack.pop()
        for other in near[node]:
            if other not in price:
                i, j = min(node, other), max(node, other) - n
                price[other] = costs[i][j] - price[node]
                stack.append(other)
    return [price[i] for i in range(n)], [price[n + j] for j in range(m)]


def _path(plan, n, i, j):
    """The cells of the tree from row i to column j."""
    near, before, stack = _neighbours(plan, n), {i: i}, [i]
    while n + j not in before:
        node = stack.pop()
        for other in near[node]:
            if other not in before:
                before[other] = node
                stack.append(other)
    path, node = [], n + j
    while node != i:
        path.append((min(node, before[node]), max(node, before[node]) - n))
        node = before[node]
    return path[::-1]
