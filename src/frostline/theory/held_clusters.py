"""Held clusters: the density on the circle that a cold mean field keeps where V would carry tight clusters away.

A token rests where P_xVm(x) = 0, that is where its mean map points along V⁻¹x. For a density e^{βf} the mean map is, to
leading order in 1/β, the point y that maximises xᵀBy + f(y); asking it of every x gives f (docs/theory.md, section 9).
"""

from collections.abc import Callable

import numpy as np
from jaxtyping import Float

from frostline.arrays import as_float64
from frostline.attention import Heads, as_one_layer, is_plain
from frostline.errors import BadParameter, NoLimit
from frostline.theory.limits import limit

COMMON = 1e-9
"""Off-diagonal entries in the basis of the limit below this, in units of the norm, count as zero."""


def held_log_density(heads: Heads) -> Callable[[Float[np.ndarray, "n 2"]], Float[np.ndarray, "n"]]:
    """βf of the density e^{βf} at which every token of a cold mean field on the circle rests, up to O(1).

    With s = ⟨x, n⟩, n ⟂ e the direction in which clusters escape, r = v_n/v_e and gap λ_e − λ_n of A,

        f = (λ_e − λ_n)/v_e · s²/(1 + √(1 + (r² − 1)s²)).

    Parameters
    ----------
    heads : Attention or list
        One head without key bias in d = 2; B and V have the eigenvectors e and n of A in common, v_e > 0.

    Returns
    -------
    callable
        Takes tokens (n, 2), returns βf, zero at ±e.

    Raises
    ------
    BadParameter
        The head is not of that kind.
    NoLimit
        A has no dominant direction.

    Examples
    --------
    >>> from frostline import Attention
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5]), np.diag([1.0, 1.5]), beta=100.0)
    >>> held_log_density(head)(np.array([[1.0, 0.0], [0.0, 1.0]])).round(6)
    array([ 0., 10.])
    """
    layer = as_one_layer(heads, "held_log_density")
    if not is_plain(layer) or layer[0].dimension != 2:
        raise BadParameter("held_log_density takes one head without key bias in dimension 2.")
    head = layer[0]
    end = limit(head)
    if end.kind != "points":
        raise NoLimit(f"the limit is of kind {end.kind}: there are no two clusters to hold.")
    e = as_float64(end.basis)[0]
    frame = np.array([e, [-e[1], e[0]]])
    B, V = (frame @ matrix @ frame.T for matrix in head.matrices[:2])
    for name, matrix in (("B", B), ("V", V)):
        if not (max(abs(matrix[0, 1]), abs(matrix[1, 0])) <= COMMON * np.linalg.norm(matrix)):
            raise BadParameter(f"{name} does not have the eigenvectors of VBᵀ; no closed form is known then.")
    if not (V[0, 0] > 0 and B[0, 0] > 0):
        raise BadParameter(f"⟨e, Ve⟩ = {V[0, 0]:.3g}, ⟨e, Be⟩ = {B[0, 0]:.3g}; clusters that are held need both > 0.")
    gap = B[0, 0] * V[0, 0] - B[1, 1] * V[1, 1]
    ratio = V[1, 1] / V[0, 0]

    def log_density(x: Float[np.ndarray, "n 2"]) -> Float[np.ndarray, "n"]:
        s2 = (np.asarray(x) @ frame[1]) ** 2
        return head.beta * gap / V[0, 0] * s2 / (1 + np.sqrt(1 + (ratio**2 - 1) * s2))

    return log_density
