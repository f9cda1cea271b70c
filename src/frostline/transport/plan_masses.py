"""Masses of a transport plan recomputed from the pairs it joins: a solver rounds them in units of the whole.

An optimal plan joins points without a cycle: peeled from its ends, every piece has the mass that its end still needs.
The remainder at the heaviest point of each connected part is compared with the rounding of the masses themselves.
"""

import numpy as np
from jaxtyping import Float
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from frostline.transport.interval import Coupling

SLIVER = 8 * np.finfo(float).eps
"""Relative precision to which masses are known."""


def balanced(
    plan: Coupling,
    a: np.ndarray,
    b: np.ndarray,
    known: tuple[np.ndarray, np.ndarray] | None = None,
) -> tuple[Coupling, float]:
    """The plan with the masses a (n,) and b (m,), and the mass it cannot place.

    ``known`` gives the precision of each mass. Extended precision is kept.
    """
    n = len(a)
    slack = np.concatenate([SLIVER * a, SLIVER * b] if known is None else known).astype(float)
    # A piece that is within the rounding of both its ends is dropped.
    real = plan.mass > np.minimum(slack[plan.rows], slack[n + plan.columns])
    rows, columns = plan.rows[real], plan.columns[real] + n
    size = n + len(b)
    graph = coo_array((np.ones(len(rows)), (rows, columns)), shape=(size, size))
    parts, part = connected_components(graph, directed=False)
    # In extended precision where there is one: small masses are differences of large ones.
    need = np.concatenate([a, b]).astype(np.longdouble)
    last = np.zeros(size, dtype=bool)
    heaviest = np.lexsort((need, part))
    last[heaviest[np.append(np.flatnonzero(np.diff(part[heaviest])), size - 1)]] = True
    mass = _peel(rows, columns, plan.mass[real], need, last)
    # The heaviest point of a part takes the rounding of all its points.
    slack[last] = np.bincount(part, weights=slack, minlength=parts)[part[last]]
    excess = np.maximum(0.0, np.abs(need).astype(float) - slack).sum()
    used = mass > 0
    return Coupling(rows[used], columns[used] - n, mass[used]), float(excess)


def _peel(
    rows: np.ndarray, columns: np.ndarray, solved_mass: np.ndarray, need: np.ndarray, last: np.ndarray
) -> Float[np.ndarray, "k"]:
    """The mass of every piece, ends first; ``need`` is changed to the remainder at each point."""
    pieces: list[set[int]] = [set() for _ in need]
    for number, (row, column) in enumerate(zip(rows.tolist(), columns.tolist(), strict=True)):
        pieces[row].add(number)
        pieces[column].add(number)
    mass = solved_mass.copy()
    ends = [point for point, touching in enumerate(pieces) if len(touching) == 1 and not last[point]]
    while ends:
        point = ends.pop()
        if not pieces[point]:
            continue
        number = pieces[point].pop()
        other = int(rows[number] + columns[number] - point)
        pieces[other].remove(number)
        moved = max(need[point], np.longdouble(0))
        mass[number] = moved
        need[point] -= moved
        need[other] -= moved
        if len(pieces[other]) == 1 and not last[other]:
            ends.append(other)
    # On a cycle, which a solver's rounding may leave, pieces keep their mass.
    for number in set().union(*pieces):
        need[rows[number]] -= mass[number]
        need[columns[number]] -= mass[number]
    return mass
