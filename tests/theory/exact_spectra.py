"""Heads of many sorts, and what their limits are in exact arithmetic (60 digits): the reference for ``resolution``."""

from dataclasses import dataclass

import mpmath
import numpy as np

import frostline as fl
from tests.problems import jordan, similar, symmetric, turning

DIGITS = 60
TIED = 1000 * np.finfo(float).eps
"""Eigenvalues count as tied when a change of A this small (relative to ‖A‖, or to ‖V‖‖B‖/10 where that is more) makes
them equal: ten times what frostline takes for rounding."""
INTEGRAL = 1e-10
"""Relative error of the reference's integral for a period, and of frostline's."""


@dataclass(frozen=True)
class Case:
    """A head; ``planted`` is its kind and dimension where they were planted, but for rounding of the matrices."""

    sort: str
    head: fl.Attention
    planted: tuple[str, int] | None = None


def _given(A, rng, *, condition=4.0):
    """A head with this A = VBᵀ and a random B of this condition number; A is formed from V and B again."""
    d = len(A)
    left, right = (np.linalg.qr(rng.standard_normal((d, d)))[0] for _ in range(2))
    B = left @ np.diag(np.geomspace(1, 1 / condition, d)) @ right
    return fl.Attention.from_matrices(B, A @ np.linalg.inv(B).T, 1.0)


def _below(rng, count, top=0.5):
    return [[[value]] for value in rng.uniform(-1, top, count)]


def _random(rng, d):
    return fl.Attention.from_matrices(*rng.standard_normal((2, d, d)), 1.0), None


def _symmetric(rng, d):
    return _given(symmetric(rng.standard_normal(d), rng), rng), None


def _scaled(rng, d):
    rows, columns = 10 ** rng.uniform(-5, 5, (2, d))
    V = rows[:, None] * rng.standard_normal((d, d)) * columns
    return fl.Attention.from_matrices(np.eye(d), V, 1.0), None


def _coupled(rng, d):
    """Triangular, and coupled so strongly that the eigenvalues are anywhere (the issue's example is one of these)."""
    V = np.triu(rng.standard_normal((d, d)), 1) * 10 ** rng.uniform(0, 5)
    if rng.random() < 0.5:
        V = np.diag(np.diag(V, 1), 1)
    V += np.diag(-np.arange(d) * 10 ** rng.uniform(-3, 0)) if rng.random() < 0.5 else np.diag(rng.standard_normal(d))
    return fl.Attention.from_matrices(np.eye(d), V, 1.0), None


def _low_rank(rng, d):
    k = int(rng.integers(1, d))
    query, key, value = rng.standard_normal((3, k, d))
    left = rng.standard_normal((d, k))
    return fl.Attention(query, key, left @ value if rng.random() < 0.5 else fl.Factored(left, value), 1.0), None


def _nearly_defective(rng, d):
    """[[1, 1], [±δ, 1]] leads: two real eigenvalues or a turning pair, √δ from a Jordan block."""
    pair = np.array([[1.0, 1.0], [rng.choice([-1, 1]) * 10 ** rng.uniform(-17, -1), 1.0]])
    return _given(similar([pair, *_below(rng, d - 2)], rng, condition=10 ** rng.uniform(0, 3)), rng), None


def _slow(rng, d):
    """A pair of tiny frequency leads, with an orbit that is anything from round to very long."""
    omega, long = 10 ** rng.uniform(-15, 0), 10 ** rng.uniform(0, 4)
    pair = np.array([[1.0, -omega * long], [omega / long, 1.0]])
    A = similar([pair, *_below(rng, d - 2)], rng, condition=10 ** rng.uniform(0, 2))
    return _given(A, rng, condition=10 ** rng.uniform(0, 3)), None


def _near_tie(rng, d):
    gap = 10 ** rng.uniform(-17, -1)
    blocks = [[[1.0]], [[1.0 - gap]], *_below(rng, d - 2)]
    A = (
        symmetric(np.ravel(blocks), rng)
        if rng.random() < 0.3
        else similar(blocks, rng, condition=10 ** rng.uniform(0, 3))
    )
    return _given(A, rng), None


def _rounded(rng, d):
    """V and B that nearly cancel: A is known much less well than its own precision."""
    return _given(rng.standard_normal((d, d)), rng, condition=10 ** rng.uniform(3, 12)), None


def _jordan(rng, d):
    size = int(rng.integers(2, min(d, 4) + 1))
    A = similar([jordan(1.0, size), *_below(rng, d - size)], rng, condition=10 ** rng.uniform(0, 1))
    return _given(A, rng), ("defective", 1)


def _tied(rng, d):
    m = int(rng.integers(2, d + 1))
    kind = rng.choice(["subspace", "mixed", "mixed pairs"])
    blocks = {
        "subspace": [[[1.0]]] * m,
        "mixed": [turning(1.0, 10 ** rng.uniform(-2, 1)), [[1.0]]],
        "mixed pairs": [turning(1.0, 2.0), turning(1.0, 0.5)],
    }[str(kind)]
    size = sum(map(len, blocks))
    if size > d:
        blocks, kind, size = [[[1.0]]] * m, "subspace", m
    A = similar([*blocks, *_below(rng, d - size)], rng, condition=10 ** rng.uniform(0, 1))
    return _given(A, rng), (str(kind).split()[0], size)


SORTS = {
    "random": _random,
    "symmetric": _symmetric,
    "badly scaled": _scaled,
    "strongly coupled": _coupled,
    "low rank": _low_rank,
    "nearly defective": _nearly_defective,
    "tiny frequency": _slow,
    "near tie": _near_tie,
    "cancelling": _rounded,
    "Jordan block": _jordan,
    "tied": _tied,
}


def draw(number, *, seed=13):
    """The case of this number: every sort in turn, d from 2 to 6."""
    rng = np.random.default_rng([seed, number])
    sort = list(SORTS)[number % len(SORTS)]
    return Case(sort, *SORTS[sort](rng, int(rng.integers(2, 7))))


def _exact(array):
    return mpmath.matrix(np.asarray(array, dtype=float).tolist())


def _norm(matrix):
    return float(np.linalg.norm(np.array(matrix.tolist(), dtype=complex), 2))


class Truth:
    """The spectrum of A = VBᵀ of the head's own numbers, without any rounding."""

    def __init__(self, case):
        self.case = case
        parts = {name: _exact(part) for name, part in case.head.tensors.items() if name != "beta"}
        value = parts["value0"] * parts["value1"] if "value1" in parts else parts["value0"]
        self.B = parts["query"].T * parts["key"]
        self.A = value * self.B.T
        self.size = _norm(self.A)
        self.rounding = TIED * max(self.size, 0.1 * _norm(value) * _norm(self.B))
        values, self.right = mpmath.eig(self.A)
        self.order = sorted(range(len(values)), key=lambda i: -values[i].real)
        self.values = [values[i] for i in self.order]

    def _same(self, one, other):
        # Half the digits: 60-digit eigenvalues of a Jordan block of size two are right to 30.
        return abs(one - other) <= 1e-25 * self.size

    def simple(self):
        """Points or rotation, when one real eigenvalue or one complex pair is ahead of all others; else None."""
        lead = self.values[0]
        turns = not self._same(lead.imag, 0)
        count = 2 if turns else 1
        if turns and not self._same(self.values[1], lead.conjugate()):
            return None
        if len(self.values) > count and self._same(self.values[count].real, lead.real):
            return None
        return "rotation" if turns else "points"

    def _plane(self):
        """A on the space of the two leading eigenvalues: an orthonormal basis, the 2×2 block, the projector's norm."""
        pair = [self.right[:, i] for i in self.order[:2]]
        if not self._same(self.values[0].imag, 0):
            pair = [pair[0].apply(mpmath.re), pair[0].apply(mpmath.im)]
        Q, _ = mpmath.qr(mpmath.matrix([[vector[i] for vector in pair] for i in range(len(pair[0]))]).apply(mpmath.re))
        basis = Q[:, :2]
        left = mpmath.inverse(self.right)
        projector = sum(
            (self.right[:, i] * left[j, :] for i, j in zip(self.order[:2], self.order[:2], strict=True)),
            mpmath.zeros(len(self.values)),
        )
        return basis, basis.T * self.A * basis, _norm(projector)

    def nearly(self, kind):
        """A subspace or a Jordan block of dimension two is within what counts as a tie."""
        if any(not self._same(value.imag, 0) for value in self.values[:1]) and not self._same(
            self.values[1], self.values[0].conjugate()
        ):
            return False
        _, T, reach = self._plane()
        turn, stretch = _parts(T)
        away = abs(turn) + stretch if kind == "subspace" else abs(abs(turn) - stretch)
        return float(away) <= self.rounding * reach

    def period(self):
        """∮|Bᵀx|dτ, from the exact ellipse of the orbit: x ∝ (√b cos ωτ, √c sin ωτ) in a frame that turns b, −c up."""
        basis, T, _ = self._plane()
        # The frame in which both diagonal entries are the mean.
        angle = mpmath.atan2(T[0, 0] - T[1, 1], -(T[0, 1] + T[1, 0])) / 2
        c, s = mpmath.cos(angle), mpmath.sin(angle)
        frame = mpmath.matrix([[c, -s], [s, c]])
        T = frame.T * T * frame
        b, below = -T[0, 1], T[1, 0]
        omega = mpmath.sqrt(b * below)
        key = np.array((self.B.T * basis * frame).tolist(), dtype=float)
        ratio = float(mpmath.sqrt(abs(b / below)))
        speed = _mean_speed(key, ratio)
        return float(2 * mpmath.pi / omega) * speed


def _parts(T):
    """Half the antisymmetric part of a 2×2 block, and the radius of its symmetric part without the mean."""
    return (T[0, 1] - T[1, 0]) / 2, mpmath.hypot((T[0, 0] - T[1, 1]) / 2, (T[0, 1] + T[1, 0]) / 2)


def _mean_speed(key, ratio):
    """Mean over ψ of |key·x|, x ∝ (ratio·cos ψ, sin ψ); with tan ψ = √ratio·tan φ both ends of the orbit are wide."""
    nodes = 1 << 18
    phi = 2 * np.pi * np.arange(nodes) / nodes
    root = np.sqrt(ratio)
    x = np.stack([root * np.cos(phi), np.sin(phi)])
    x /= np.linalg.norm(x, axis=0)
    weight = root / (np.cos(phi) ** 2 + ratio * np.sin(phi) ** 2)
    return float((np.linalg.norm(key @ x, axis=0) * weight).mean())


def mistake(case, found):
    """What is wrong with this answer, in words; None when it is right."""
    with mpmath.workdps(DIGITS):
        return _mistake(case, found, Truth(case))


def _mistake(case, found, truth):
    if case.planted is not None:
        return None if (found.kind, found.dimension) == case.planted else f"{found.kind} for {case.planted}"
    simple = truth.simple()
    if found.kind in ("points", "rotation"):
        if found.kind != simple:
            return f"{found.kind} for {simple}"
        if found.kind == "rotation":
            exact = truth.period()
            error = abs(found.period / exact - 1)
            if not error <= 1 / found.resolution + INTEGRAL:
                return f"period off by {error:.1g} at resolution {found.resolution:.1g}"
        return None
    if simple is None:
        return None
    m = 2 if found.kind in ("subspace", "defective") else 0
    if m and found.dimension == (2 if found.kind == "subspace" else 1) and truth.nearly(found.kind):
        return None
    return f"{found.kind} of dimension {found.dimension} for {simple}"
