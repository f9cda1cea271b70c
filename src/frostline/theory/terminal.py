"""terminal: the fate of tight clusters, decided by the spectrum of V (THEORY section 9)."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from frostline.arrays import Array, as_float64, as_number
from frostline.attention import Attention, Heads, as_one_layer, is_plain
from frostline.errors import BadArray, BadParameter, NoLimit
from frostline.results import Result
from frostline.sample import as_direction, as_weights
from frostline.sphere import as_tokens, tangent_projectors, unit_rows
from frostline.theory.limits import Limit, limit

AT_REST = 1e-6
"""A centre with |P_zVz| below this, in units of ‖V‖, is an eigenvector of V: it has to be pushed before it leaves."""
FAR = 1.0
"""The displacement, a chord, at which a cluster counts as having left."""
NO_LOGIT = 1e-12
"""|zᵀBz| below this, in units of ‖B‖, counts as zero."""
TANGENT = 1e-8
"""An eigenvector of unit length whose part tangent to the sphere is shorter than this is the centre itself."""

HELD = "in the mean field, clusters colder than a β of their own are held: docs/theory.md, How long they stay"
"""Said beside every time of eq. 13."""


@dataclass(frozen=True, eq=False, repr=False)
class Terminal(Result):
    """The fate of a cold cluster at ``centre``, with another one opposite.

    Attributes
    ----------
    centre : ndarray
        The unit vector z, (d,).
    attends : str
        "itself" (zᵀBz > 0) or "antipode" (zᵀBz < 0).
    tightens : bool
        Whether deviations inside it shrink; if not, the spread stalls at βs² = O(1) and THEORY eq. 12 never applies.
    end : Limit or None
        The limit of ż = ±P_zVz; None when the cluster does not tighten.
    goes_to : ndarray or None
        Where this cluster ends; None when it rotates, has no limit, or does not tighten.
    direction : ndarray or None
        Unit tangent vector e along which it leaves; None when nothing grows.
    contraction : float or None
        g_A, the zero-temperature rate at which e shrinks during concentration.
    growth : float or None
        g_V, the rate at which e grows afterwards.
    drift : float
        |P_zVz|; 0 when the centre rests under V, so that only an asymmetry of the start can push it.
    hand_over : float or None
        The time t_h of THEORY eq. 13; None without an asymmetry, or where nothing grows or contracts. In the mean
        field, clusters colder than a β of their own are held instead: docs/theory.md, "How long they stay".
    case : str
        The case in one sentence.
    """

    centre: Float[np.ndarray, "d"]
    attends: str
    tightens: bool
    end: Limit | None
    goes_to: Float[np.ndarray, "d"] | None
    direction: Float[np.ndarray, "d"] | None
    contraction: float | None
    growth: float | None
    drift: float
    hand_over: float | None
    case: str

    def describe(self) -> str:
        """The case in one sentence."""
        return self.case


def terminal(
    heads: Heads, x0: Array | None = None, *, weights: Array | None = None, centre: Array | None = None
) -> Terminal:
    """The fate of the clusters of one plain head: ż = ±P_zVz from the point ±e of its limit, or a given centre.

    Parameters
    ----------
    heads : Attention or list
        One head without key bias.
    x0 : Array, optional
        The initial tokens (n, d): their asymmetry a = |⟨e, mean of the cluster's tokens⟩| decides the hand-over time
        (THEORY eq. 13).
    weights : Array, optional
        Their weights (n,) with sum 1; equal by default.
    centre : Array, optional
        The centre z (d,) of the cluster; by default the point e of the limit.

    Returns
    -------
    Terminal
        ``.goes_to``, ``.direction``, ``.hand_over``, ``.case`` and more.

    Raises
    ------
    NoLimit
        The limit is not two points, and no centre is given.
    BadArray
        ``x0`` or ``centre`` has the wrong shape.
    BadParameter
        There are several layers, several heads or a key bias, or zᵀBz = 0.

    Examples
    --------
    >>> head = Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.diag([1.0, 0.2, 2.0]), beta=100.0)
    >>> terminal(head).goes_to is None, terminal(head).direction.round(6) + 0.0
    (True, array([0., 0., 1.]))
    """
    layer = as_one_layer(heads, "terminal")
    if x0 is not None and as_tokens(x0, "x0")[0].ndim != 2:
        raise BadArray("x0 is a batch; terminal takes the tokens (n, d) of one run.")
    if not is_plain(layer):
        raise BadParameter(
            "terminal takes one head without key bias; clusters of several heads have no such reduction."
        )
    head = layer[0]
    z = _centre(head, centre)
    B, V, A, _ = head.matrices
    self_logit, pull = float(z @ B @ z), float(z @ V @ z)
    key = float(np.linalg.norm(B.T @ z))
    if abs(self_logit) <= NO_LOGIT * (np.linalg.norm(B, 2) or 1.0):
        raise BadParameter("zᵀBz = 0 at the centre: such a cluster attends neither to itself nor to its antipode.")
    sign = 1.0 if self_logit > 0 else -1.0
    attends = "itself" if sign > 0 else "antipode"
    tightens = sign * pull > 0
    drift_vector = sign * (V @ z - pull * z)
    drift = float(np.linalg.norm(drift_vector))
    drift = 0.0 if drift <= AT_REST * np.linalg.norm(V, 2) else drift
    who = f"A cold cluster there attends to {'itself' if sign > 0 else 'its antipode'}"
    if not tightens:
        case = f"{who} and zᵀVz = {pull:.3g}: it does not tighten; its spread stalls at βs² of order one."
        return Terminal(z, attends, False, None, None, None, None, None, drift, None, case)
    # ż = ±P_zVz is the zero-temperature flow of a head with B = I, whose clock is time itself.
    end = limit(Attention.from_matrices(np.eye(len(z)), sign * V, 1.0))
    direction, growth = _escape(z, sign * V, drift_vector if drift else None)
    goes_to = _goal(end, z, direction, drift)
    contraction = None
    if direction is not None and key > 0:
        contraction = float((z @ A @ z - direction @ A @ direction) / key)
    asymmetry = None if x0 is None or direction is None else _asymmetry(x0, weights, z, direction)
    hand_over = _hand_over(head.beta, contraction, growth, drift, asymmetry)
    # Nothing grows to first order, but with a Jordan block at its eigenvalue a push on one side leads away.
    creeping = direction is None and not drift and end.kind == "defective"
    goes_to = None if creeping else goes_to
    case = f"{who}; {_story(sign, end, direction, drift, creeping)}"
    return Terminal(z, attends, True, end, goes_to, direction, contraction, growth, drift, hand_over, case)


def hand_over_time(beta: float, contraction: float, growth: float, asymmetry: float, *, drift: float = 0.0) -> float:
    """t_h = ½ log β (1/g_A + 1/g_V) + log(1/a)/g_V (THEORY eq. 13): leading order, not a bound.

    For tight clusters that see only themselves: in the mean field, clusters colder than a β of their own are held, and
    of n tokens stragglers decide (docs/theory.md, "How long they stay").

    A ``drift`` b > 0 (the centre does not rest under V) pushes as well: the displacement u obeys u̇ = g_V·u + b from
    u = aβ^{−1/2} on, and t_h is when it reaches 1; b = 0 gives (13).

    >>> round(hand_over_time(100.0, 0.6, 1.0, 1.0), 3)
    6.14
    """
    for name, value in (("beta", beta), ("contraction", contraction), ("growth", growth), ("asymmetry", asymmetry)):
        if not (0 < as_number(value, name) < np.inf):
            raise BadParameter(f"{name} is {value}; the hand-over time needs it finite and > 0.")
    if not (0 <= as_number(drift, "drift") < np.inf):
        raise BadParameter(f"drift is {drift}; it is a speed, finite and ≥ 0.")
    start, push = asymmetry / np.sqrt(beta), drift / growth
    grown = np.log((FAR + push) / (start + push)) / growth
    return float(max(0.5 * np.log(beta) / contraction, 0.0) + max(grown, 0.0))


def validity(head: Attention, centre: Array, spread: float) -> float:
    """β|P_zBᵀz|s + β‖B‖s²: the cluster flow (12) is a good reduction when this is well below 1 (0.1, say)."""
    if not (as_number(spread, "spread") >= 0):
        raise BadParameter(f"spread is {spread}; it is an angle ≥ 0.")
    z = as_direction(centre, "centre")
    B = head.matrices.B
    key = B.T @ z
    across = float(np.linalg.norm(key - (z @ key) * z))
    return float(head.beta * (across * spread + np.linalg.norm(B, 2) * spread**2))


def _centre(head: Attention, centre: Array | None) -> np.ndarray:
    if centre is not None:
        z = as_direction(centre, "centre")
        if z.shape != (head.dimension,):
            raise BadArray(f"centre has shape {z.shape}; one vector ({head.dimension},) is needed.")
        return z
    end = limit(head)
    if end.kind not in ("points", "defective") or end.dimension != 1:
        raise NoLimit(
            f"the limit is of kind {end.kind} and dimension {end.dimension}: there are no two points where "
            "clusters would sit; terminal(head, centre=…) speaks about one you name."
        )
    # A float32 head gives its basis in float32: a unit vector to 1e-7 only.
    return unit_rows(as_float64(end.basis)[0])


def _linearised(z: np.ndarray, V: np.ndarray) -> np.ndarray:
    """The derivative of P_zVz at z, on tangent vectors."""
    P = tangent_projectors(z)
    return P @ (V - (z @ V @ z) * np.eye(len(z))) @ P


def _escape(z: np.ndarray, V: np.ndarray, drift: np.ndarray | None) -> tuple[np.ndarray | None, float | None]:
    """The direction in which the centre leaves under ż = P_zVz, and its growth rate; None where nothing grows."""
    P = tangent_projectors(z)
    values, vectors = np.linalg.eig(_linearised(z, V))
    # z itself is an eigenvector of this matrix, with eigenvalue 0; it is no direction to leave in.
    tangent = np.linalg.norm(P @ vectors, axis=0) > TANGENT
    best = int(np.argmax(np.where(tangent, values.real, -np.inf)))
    growth = float(values[best].real)
    if drift is not None:
        return drift / np.linalg.norm(drift), max(growth, 0.0) or None
    if not growth > AT_REST * np.linalg.norm(V, 2):
        return None, None
    vector = vectors[:, best].real
    vector = P @ vector
    vector = vector / np.linalg.norm(vector)
    # Signs are arbitrary; fix them.
    return vector * (1.0 if vector[np.argmax(np.abs(vector))] > 0 else -1.0), growth


def _goal(end: Limit, z: np.ndarray, direction: np.ndarray | None, drift: float) -> np.ndarray | None:
    """The end of the centre's path; None when it rotates, or rests until an asymmetry decides between two sides."""
    if end.kind in ("rotation", "mixed"):
        return None
    if not drift:
        return z if direction is None else None
    goal = np.asarray(end(z[None]))[0]
    return goal if np.isfinite(goal).all() else None


def _asymmetry(x0: Array, weights: Array | None, z: np.ndarray, direction: np.ndarray) -> float:
    """|⟨e, mean of the tokens on this side⟩|."""
    tokens = unit_rows(as_float64(as_tokens(x0, "x0")[0]))
    if tokens.ndim != 2 or tokens.shape[1] != len(z):
        raise BadArray(f"x0 has shape {tokens.shape}; one cloud (n, {len(z)}) is needed.")
    shares = np.ones(len(tokens)) if weights is None else as_weights(weights, len(tokens))
    on_this_side = shares * (tokens @ z > 0)
    return float(abs(on_this_side @ (tokens @ direction)) / on_this_side.sum()) if on_this_side.any() else 0.0


def _hand_over(
    beta: float, contraction: float | None, growth: float | None, drift: float, asymmetry: float | None
) -> float | None:
    if asymmetry is None or contraction is None or growth is None or not contraction > 0 or not asymmetry > 0:
        return None
    return hand_over_time(beta, contraction, growth, asymmetry, drift=drift)


def _story(sign: float, end: Limit, direction: np.ndarray | None, drift: float, creeping: bool) -> str:
    which = "largest" if sign > 0 else "smallest"
    if creeping:
        return "V has a Jordan block there: it rests, but a push leads slowly away. No end is claimed."
    if end.kind == "rotation":
        return f"the eigenvalues of V with the {which} real part are a complex pair: it rotates for ever."
    if end.kind == "mixed":
        return f"several kinds of eigenvalues of V share the {which} real part: no end is claimed."
    if direction is None and not drift:
        return "it rests where it is under V: no drift, and it persists."
    how = "it drifts" if drift else "once an asymmetry has pushed it off, it leaves"
    place = "an eigenvector" if end.dimension == 1 else f"the eigenspace (dimension {end.dimension})"
    return f"{how} towards {place} of V with the {which} real part."
