"""A target of few atoms: two by sorting, more through the dual, both exact (THEORY section 10)."""

import numpy as np
from jaxtyping import Float
from scipy import optimize

from frostline.transport.exact import SURE, Solution, proved, total_cost, transported
from frostline.transport.index_coupling import power_mean
from frostline.transport.interval import KNOWN, Coupling
from frostline.transport.plan_masses import SLIVER, balanced
from frostline.transport.problem import TransportProblem

MOST_ATOMS = 64
"""Up to this number of atoms ``few_atoms`` solves the dual, which has one number per atom."""


def two_atoms(
    x: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, "n"],
    atoms: Float[np.ndarray, "2 d"],
    share: float,
    *,
    p: float = 2.0,
) -> float:
    """W_p from Σ w_i δ_{x_i} to share·δ_{atoms[0]} + (1 − share)·δ_{atoms[1]}, chord distance, exact.

    The first atom is filled by the tokens for which it is cheapest compared with the second; the token at the cut is
    split.
    """
    return two_atoms_bounds(x, weights, atoms, share, p)[1]


def two_atoms_bounds(
    x: Float[np.ndarray, "n d"],
    weights: Float[np.ndarray, "n"],
    atoms: Float[np.ndarray, "2 d"],
    share: float,
    p: float,
) -> tuple[float, float]:
    """Lower and upper bound of ``two_atoms``: masses are known up to rounding, which may belong to either atom."""
    chords = np.linalg.norm(x[:, None, :] - atoms, axis=2)
    # Costs are in units of the largest chord, whose power under- or overflows for large p.
    unit = float(chords.max()) or 1.0
    costs = (chords / unit) ** p
    order = np.argsort(costs[:, 0] - costs[:, 1], kind="stable")
    # Sums in extended precision, where there is one: the share was summed in another order, and moving the sliver of
    # mass between two roundings across the sphere would cost its root.
    sums = np.concatenate([[0.0], np.cumsum(weights[order], dtype=np.longdouble)])
    sliver = (SLIVER + 4 * len(x) * np.finfo(np.longdouble).eps) * share
    nearest = sums[np.abs(sums - share).argmin()]
    matched = abs(nearest - share) <= sliver
    cut = nearest if matched else share
    filled = np.clip(cut - sums[:-1], 0.0, weights[order]).astype(np.float64)
    parts = np.concatenate([filled, weights[order] - filled])
    used = parts > 0
    value = float(power_mean(np.concatenate([chords[order, 0], chords[order, 1]])[used], parts[used], p))
    if matched:
        return value, value
    # The token at the cut is split; its sliver would go to the other atom.
    split = costs[order[min(int(np.searchsorted(sums, cut)) - 1, len(x) - 1)]]
    change, power = float(sliver * abs(split[0] - split[1])), (value / unit) ** p
    return unit * max(0.0, power - change) ** (1 / p), unit * (power + change) ** (1 / p)


def few_atoms(problem: TransportProblem) -> Solution:
    """W_p when y has few atoms, exact, with an optimal coupling.

    The dual has one number per atom. Close to its maximum nearly every point knows its atom; the few that do not are
    left to the network simplex, whose potentials then prove, or refute, that the others were right.
    """
    moves = problem.costs()
    unit = float(moves.max()) or 1.0
    costs = (moves / unit) ** problem.p
    n, k = costs.shape
    prices = _optimise_prices(costs, problem.a, problem.b)
    best = (costs - prices).argmin(1)
    reduced = np.sort(costs - prices, axis=1)
    margin = reduced[:, 1] - reduced[:, 0] if k > 1 else np.full(n, np.inf)
    count = min(n, 8 * k)
    while True:
        open_ones = np.argpartition(margin, count - 1)[:count] if count < n else np.arange(n)
        completed = _complete(problem, costs, best, open_ones)
        if completed is not None:
            coupling, excess, prices = completed
            upper = total_cost(moves[coupling.rows, coupling.columns], coupling.mass, excess, unit, problem.p)
            lower = min(upper, unit * proved(costs, problem.a, problem.b, prices, problem.p))
            if upper - lower <= KNOWN * upper:
                return Solution(lower, upper, coupling, (costs - prices).min(1), unit)
            if (upper / unit) ** problem.p < SURE:
                count = n
        if count >= n:
            # The moves are so short beside the longest one, or the masses so small, that the dual is imprecise.
            return transported(moves, problem.a, problem.b, problem.p)
        count = min(n, 4 * count)


def _optimise_prices(costs: Float[np.ndarray, "n k"], a: np.ndarray, b: np.ndarray) -> Float[np.ndarray, "k"]:
    """Nearly optimal dual prices of the atoms: they maximise Σ a·min_j(c − v_j) + Σ b v, by a quasi-Newton method."""

    def negative(v: np.ndarray) -> tuple[float, np.ndarray]:
        reduced = costs - v
        best = reduced.argmin(1)
        filled = np.bincount(best, weights=a, minlength=len(b))
        return -float(a @ reduced[np.arange(len(a)), best] + b @ v), filled - b

    return np.asarray(optimize.minimize(negative, np.zeros(len(b)), jac=True, method="L-BFGS-B").x)


def _complete(
    problem: TransportProblem, costs: np.ndarray, best: np.ndarray, open_ones: np.ndarray
) -> tuple[Coupling, float, np.ndarray] | None:
    """Assign the open points exactly to the room the others leave; None when those others overfill an atom."""
    import ot

    settled = np.setdiff1d(np.arange(len(best)), open_ones, assume_unique=True)
    filled = np.zeros(len(problem.b), dtype=np.longdouble)
    np.add.at(filled, best[settled], problem.a[settled])
    left = problem.b - filled
    if not (left >= -1e-15).all():
        return None
    room, mass = np.maximum(left, 0.0).astype(float), problem.a[open_ones]
    if not room.sum() > 0:
        return None
    plan, log = ot.emd(mass / mass.sum(), room / room.sum(), costs[open_ones], log=True, numItermax=10_000_000)
    rows, columns = np.nonzero(np.asarray(plan))
    rest = Coupling(rows, columns, np.asarray(plan)[rows, columns] * mass.sum())
    known = SLIVER * mass, SLIVER * (problem.b + filled).astype(float)
    rest, excess = balanced(rest, mass, left, known)
    coupling = Coupling(
        np.concatenate([settled, open_ones[rest.rows]]),
        np.concatenate([best[settled], rest.columns]),
        np.concatenate([problem.a[settled], rest.mass]),
    )
    return coupling, excess, np.asarray(log["v"])
