"""The dominant eigenspace: which eigenvalues of A have the largest real part μ (THEORY section 4), by one rule.

The question is numerical: a relative error η in A moves an eigenvalue with condition number s by about η·s·‖A‖, so
eigenvalues closer than that cannot be told apart. That one rule groups the split eigenvalues of a Jordan block (large
s) and still resolves a gap of 1e-12 in a symmetric matrix (s = 1). A may be given as a product of two thin factors
(a head of an encoder): then everything comes from small matrices, and 0 is an eigenvalue too.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Complex, Float
from scipy import linalg

from frostline.theory.resolution import crossing, kind_of, nilpotent_powers, sensitivity, tie, turning

BACKWARD_ERROR = 100.0
"""The relative error assumed in A, in units of machine epsilon: A may have been formed by a product or a similarity."""
LARGEST_BLOCK = 4
"""The largest Jordan block looked for: a larger one spreads its eigenvalue so far (η^{1/5} = 2e-3) that every badly
conditioned group would look like one."""
TINY = float(np.finfo(float).tiny)
"""A divisor that is not zero, smaller than any number that matters."""
TIED = ("subspace", "defective", "mixed")
"""Kinds that call eigenvalues equal: they are equal as far as rounding can tell."""


@dataclass(frozen=True, eq=False)
class Dominant:
    """The part of A at the largest real part μ."""

    kind: str
    """points, subspace, rotation, defective, mixed (``frostline.limit`` says what they mean); kernel: nothing is ahead
    of the eigenvalue 0 that a product of thin factors has, and no basis is given."""
    mu: float
    eigenvalues: Complex[np.ndarray, "m"]
    basis: Float[np.ndarray, "d m"]
    """Orthonormal columns spanning the range of the projector."""
    ends: Float[np.ndarray, "d r"]
    """Orthonormal columns spanning the limits: ``basis``, but for a Jordan block the image of its highest power."""
    block: Float[np.ndarray, "m m"]
    """A restricted to the range, in this basis."""
    powers: Float[np.ndarray, "p m m"]
    """I, N, N², … of the nilpotent part N of ``block``, as far as they are above rounding."""
    dual: Float[np.ndarray, "m d"]
    """The projector is ``basis @ dual``."""
    next_real: float
    """The largest real part below the group; −inf when the group is everything."""
    tolerance: float
    """Eigenvalues at least this close (absolute) were taken to be at μ."""
    rounding: float
    """Entries of ``block`` this small may be rounding."""
    resolution: float
    """The smallest change of A that would make ``kind`` wrong, in units of rounding."""
    tilt: float
    """Radians by which rounding may turn the range; NaN where it is not needed (all kinds but rotation)."""
    explained: bool
    """Rounding explains why the eigenvalues of the group are not exactly equal in real part."""

    @property
    def projector(self) -> Float[np.ndarray, "d d"]:
        """The spectral projector of the group."""
        return self.basis @ self.dual

    @property
    def gap(self) -> float:
        """The distance from μ to the next real part."""
        return self.mu - self.next_real


def dominant(A: Float[np.ndarray, "d d"], *, epsilon: float, tolerance: float | None = None) -> Dominant:
    """The dominant group of A. ``tolerance`` (relative to ‖A‖) replaces the automatic rule."""
    scale = scale_of(A)
    group = _dominant(A / scale, epsilon, tolerance)
    if tolerance is None and group.kind in TIED:
        # The size of rounding is taken from the norm of A. In units in which A is balanced it may be far smaller, and
        # then a tie that it explains here is none there.
        balanced = linalg.matrix_balance(A / scale, permute=False)[0]
        other = _dominant(balanced, epsilon, None)
        if (other.kind, len(other.eigenvalues)) != (group.kind, len(group.eigenvalues)):
            group = replace(group, resolution=min(group.resolution, 1.0))
    return _rescaled(group, scale)


def dominant_of_product(
    left: Float[np.ndarray, "d k"], right: Float[np.ndarray, "k d"], *, epsilon: float, resolve: bool = True
) -> Dominant:
    """The dominant group of left @ right, from k×k matrices; d×d ones only where k ≥ d.

    Without ``resolve`` the resolution, which takes half of the time, may come out too large.
    """
    if left.shape[1] >= len(left):
        return dominant(left @ right, epsilon=epsilon)
    scales = scale_of(left), scale_of(right)
    return _rescaled(_of_product(left / scales[0], right / scales[1], epsilon, resolve), scales[0] * scales[1])


def leading(A: Float[np.ndarray, "d d"], count: int, *, epsilon: float) -> Float[np.ndarray, "d count"]:
    """Orthonormal columns: A's dominant space, then that of what remains, and so on until there are ``count``.

    Whole spaces are invariant under A; where the last one is too large it is cut.
    """
    columns, rest, frame = np.zeros((len(A), 0)), A, np.eye(len(A))
    while columns.shape[1] < count and len(rest):
        values, conditions = _conditions(rest)
        size = float(np.linalg.norm(rest, 2)) or 1.0
        inside, _ = _at_mu(values, conditions, size, epsilon, None, LARGEST_BLOCK)
        schur, basis, m = _sorted(rest, values, inside)
        basis = frame @ basis
        columns = np.concatenate([columns, basis[:, :m]], 1)
        rest, frame = schur[m:, m:], basis[:, m:]
    return columns[:, :count]


def scale_of(matrix: Float[np.ndarray, "n m"]) -> float:
    """The power of two below the largest entry: dividing by it is exact, and safe from over- and underflow."""
    largest = float(np.abs(matrix).max())
    return float(2.0 ** np.floor(np.log2(largest))) if largest > 0 else 1.0


def _rescaled(group: Dominant, scale: float) -> Dominant:
    return replace(
        group,
        mu=group.mu * scale,
        eigenvalues=group.eigenvalues * scale,
        block=group.block * scale,
        next_real=group.next_real * scale,
        tolerance=group.tolerance * scale,
        rounding=group.rounding * scale,
    )


def _dominant(A: Float[np.ndarray, "d d"], epsilon: float, tolerance: float | None) -> Dominant:
    size = float(np.linalg.norm(A, 2)) or 1.0
    values, conditions = _conditions(A)

    def judged(largest: int) -> Dominant:
        inside, used = _at_mu(values, conditions, size, epsilon, tolerance, largest)
        schur, basis, m = _sorted(A, values, inside)
        return _judged(schur, basis, m, values, conditions, inside, used, BACKWARD_ERROR * epsilon * size, tolerance)

    return _best(judged)


def _of_product(
    left: Float[np.ndarray, "d k"], right: Float[np.ndarray, "k d"], epsilon: float, resolve: bool
) -> Dominant:
    """In orthonormal frames of the range of left, and of what right sees beyond it, A is [[M, W], [0, 0]]."""
    d, k = left.shape
    frame, R = np.linalg.qr(left)
    seen = right @ frame
    beyond, rest = np.linalg.qr((right - seen @ frame.T).T)
    M, W = R @ seen, R @ rest.T
    size = float(np.linalg.norm(np.concatenate([M, W], 1), 2)) or 1.0
    values, conditions = _conditions(M, W)
    # Zero is as well-conditioned as the lead that it may be confused with, once for all its copies.
    values, conditions = np.append(values, 0.0), np.append(conditions, conditions[values.real.argmax()])

    def judged(largest: int) -> Dominant:
        inside, used = _at_mu(values, conditions, size, epsilon, None, largest)
        if inside[-1]:
            return _nothing_ahead(d, used)
        turned, basis, m = _sorted(M, values, inside)
        schur = np.zeros((2 * k, 2 * k))
        schur[:k, :k], schur[:k, k:] = turned, basis.T @ W
        whole = np.concatenate([frame @ basis, beyond], 1)
        eta = BACKWARD_ERROR * epsilon * size
        return _judged(schur, whole, m, values, conditions, inside, used, eta, None, resolve)

    return _best(judged)


def _best(judged: Callable[[int], Dominant]) -> Dominant:
    """The answer with the largest Jordan blocks looked for, for which rounding explains the ties."""
    for largest in range(LARGEST_BLOCK, 1, -1):
        group = judged(largest)
        if group.explained:
            return group
    return judged(1)


def _conditions(
    M: Float[np.ndarray, "n n"], W: Float[np.ndarray, "n l"] | None = None
) -> tuple[Complex[np.ndarray, "n"], Float[np.ndarray, "n"]]:
    """Eigenvalues of M, and their condition numbers as ones of M, or of [[M, W], [0, 0]]."""
    values, left, right = linalg.eig(M, left=True, right=True)
    length = np.ones(len(values))
    if W is not None:
        length = np.hypot(1.0, np.linalg.norm(left.conj().T @ W, axis=1) / np.maximum(np.abs(values), TINY))
    return values, length / np.maximum(np.abs((left.conj() * right).sum(0)), TINY)


def _sorted(
    A: Float[np.ndarray, "n n"], values: Complex[np.ndarray, "v"], inside: Bool[np.ndarray, "v"]
) -> tuple[Float[np.ndarray, "n n"], Float[np.ndarray, "n n"], int]:
    """The real Schur form that begins with the group: cut halfway into the gap under it."""
    cut = (values.real[inside].min() + _largest(values.real[~inside])) / 2
    schur, basis, count = linalg.schur(A, output="real", sort=lambda re, im: re > cut)
    return schur, basis, int(count)


def _judged(
    schur: Float[np.ndarray, "n n"],
    basis: Float[np.ndarray, "d n"],
    m: int,
    values: Complex[np.ndarray, "v"],
    conditions: Float[np.ndarray, "v"],
    inside: Bool[np.ndarray, "v"],
    used: float,
    eta: float,
    tolerance: float | None,
    resolve: bool = True,
) -> Dominant:
    """The answer for a sorted Schur form; ``eta`` is how far (absolute) rounding may have moved A."""
    block = schur[:m, :m]
    # Range [I; 0] along [X; I], with T₁₁X − XT₂₂ = −T₁₂ (the invariant complement in Schur coordinates).
    X = np.zeros((m, 0))
    if m < len(schur):
        X, shrunk, _ = linalg.lapack.dtrsyl(block, schur[m:, m:], -schur[:m, m:], isgn=-1)
        X = X / shrunk
    rounding = eta * float(np.hypot(1.0, np.linalg.norm(X, 2) if X.size else 0.0))
    # The mean of a group is far better determined than its members (a Jordan block spreads them by η^{1/k}).
    mu = float(np.trace(block)) / m
    group = linalg.eigvals(block)
    next_real = _largest(values.real[~inside])
    powers, floor = nilpotent_powers(block, group, rounding)
    kind = kind_of(group, len(powers), used)
    ends = basis[:, :m]
    if kind == "defective":
        left, sizes, _ = np.linalg.svd(powers[-1])
        ends = ends @ left[:, sizes > floor]
    resolution = np.inf
    if resolve and m < len(schur) and eta > 0:
        resolution = crossing(schur, (mu + next_real) / 2, values, conditions) / eta
    if kind == "rotation":
        resolution = min(resolution, turning(block) / rounding)
    # A tolerance given by the caller declares these eigenvalues equal.
    share = tie(block, group, rounding, used, semisimple=kind == "subspace") if tolerance is None else np.inf
    resolution = min(resolution, share)
    return Dominant(
        kind=kind,
        mu=mu,
        eigenvalues=group,
        basis=basis[:, :m],
        ends=ends,
        block=block,
        powers=np.stack(powers),
        dual=basis[:, :m].T - X @ basis[:, m:].T,
        next_real=next_real,
        tolerance=used,
        rounding=rounding,
        resolution=float(resolution),
        tilt=eta * sensitivity(schur, m) if kind == "rotation" else np.nan,
        explained=not share < 1,
    )


def _nothing_ahead(d: int, used: float) -> Dominant:
    return Dominant(
        kind="kernel",
        mu=0.0,
        eigenvalues=np.zeros(0, dtype=complex),
        basis=np.zeros((d, 0)),
        ends=np.zeros((d, 0)),
        block=np.zeros((0, 0)),
        powers=np.zeros((0, 0, 0)),
        dual=np.zeros((0, d)),
        next_real=np.nan,
        tolerance=used,
        rounding=np.nan,
        resolution=np.nan,
        tilt=np.nan,
        explained=True,
    )


def _largest(values: Float[np.ndarray, "n"]) -> float:
    return float(values.max()) if values.size else -np.inf


def _at_mu(
    values: Complex[np.ndarray, "n"],
    conditions: Float[np.ndarray, "n"],
    size: float,
    epsilon: float,
    tolerance: float | None,
    largest: int,
) -> tuple[Bool[np.ndarray, "n"], float]:
    """A mask of the eigenvalues at the largest real part, and the largest (absolute) distance allowed for them."""
    distance = values.real.max() - values.real
    if tolerance is None:
        radius = _radii(distance / size, conditions, epsilon, largest) * size
        inside = _closed(values, distance <= radius, radius)
    else:
        radius = np.full(len(values), tolerance * size)
        inside = distance <= radius
    return inside, float(max(radius[inside].max(), distance[inside].max()))


def _closed(
    values: Complex[np.ndarray, "d"], inside: Bool[np.ndarray, "d"], radius: Float[np.ndarray, "d"]
) -> Bool[np.ndarray, "d"]:
    """The group, with every eigenvalue that lies among the split ones of a Jordan block.

    A simple eigenvalue beside a Jordan block of the same value is well-conditioned, so it alone would stay outside,
    although the block's eigenvalues have been scattered all around it.
    """
    lead = values[np.argmax(values.real)]
    cluster = inside & (np.abs(values - lead) <= 2 * radius.max())
    centre = values[cluster].mean()
    spread = np.abs(values[cluster] - centre).max()
    inside = inside | (np.abs(values - centre) <= 2 * spread)
    # Nothing above a member may stay outside.
    return inside | (values.real >= values.real[inside].min())


def _radii(
    distance: Float[np.ndarray, "d"], conditions: Float[np.ndarray, "d"], epsilon: float, largest: int
) -> Float[np.ndarray, "d"]:
    """The largest distance, relative to ‖A‖, by which rounding may have moved each eigenvalue."""
    eta = BACKWARD_ERROR * epsilon
    # A Jordan block of size k spreads its eigenvalue by η^{1/k} and no further; take the largest k that explains
    # at least k eigenvalues.
    for k in range(min(largest, len(distance)), 0, -1):
        radius = 2 * np.minimum(eta * conditions, eta ** (1 / k))
        if (distance <= radius).sum() >= k:
            return radius
    return 2 * np.minimum(eta * conditions, eta)
