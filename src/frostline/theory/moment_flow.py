"""moment_flow: mean and covariance of a warm cloud in time, without its tokens (THEORY eq. 23).

Tokens of a warm cloud move by ẋ = P_x(a + Mx), which is linear in z for x = z/|z| but for the term |z|a. A Gaussian z
stays one where that term is replaced by its best affine approximation, so the state is the mean ν and the covariance S
of z. The flow is integrated twice: with the Gaussian tilt (16), and with the next terms, the third cumulant and every
token's own weight. The second is the answer, their distance the estimate of its error.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.integrate import solve_ivp
from scipy.special import expit

from frostline.arrays import Array, as_times
from frostline.attention import Attention, Heads, as_one_layer
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.theory.projected_gaussian import ProjectedGaussian, projected_gaussian
from frostline.theory.tilting import freezing
from frostline.theory.token_cloud import Cloud, KeyFactors
from frostline.theory.warm_flow import warm_push

HOLDS = 0.1
"""The flow holds while the estimated error of mean and covariance is at most this; tokens have length 1."""
ON_SPHERE = 1e-6
"""|μ|² + tr Σ is 1 for unit vectors; it may be off by this."""
TOLERANCE = 1e-6
"""Relative tolerance of the integration in time."""
FEWEST_POINTS = 256
"""Points at which the next terms are averaged; in high dimension four for each axis."""


@dataclass(frozen=True, eq=False, repr=False)
class MomentFlow(Result):
    """Mean and covariance of a cloud at the times asked for.

    Attributes
    ----------
    times : ndarray
        The times (k,).
    mean : ndarray
        μ, (k, d).
    covariance : ndarray
        Σ, (k, d, d).
    error : ndarray
        The estimated error of both, √(|δμ|² + ‖δΣ‖²), (k,): what the third cumulant and the tokens' own weights change.
    sigma : ndarray
        The standard deviation of the logits (k,), in the root mean square over tokens.
    self_weight : ndarray
        The weight that a token gives to itself, in the mean over tokens, (k,).
    freezing : float
        σ_N of the cloud.
    holds_until : float
        The last of the times up to which the error is at most 0.1 and σ at most σ_N; −inf if it never is.

    Examples
    --------
    >>> head = Attention.from_matrices(np.eye(3), np.eye(3), beta=1.0)
    >>> flow = moment_flow(head, Cloud(10_000, mean=[0.5, 0.0, 0.0], covariance=0.25 * np.eye(3)), times=[0, 1, 4])
    >>> np.linalg.norm(flow.mean, axis=1).round(2)
    array([0.5 , 0.75, 0.97])
    """

    times: Float[np.ndarray, " k"]
    mean: Float[np.ndarray, "k d"]
    covariance: Float[np.ndarray, "k d d"]
    error: Float[np.ndarray, " k"]
    sigma: Float[np.ndarray, " k"]
    self_weight: Float[np.ndarray, " k"]
    freezing: float
    holds_until: float

    def describe(self) -> str:
        """How the cloud gathers, and how long the flow holds."""
        lengths = np.linalg.norm(self.mean, axis=1)
        words = (
            f"From t = {self.times[0]:g} to {self.times[-1]:g} the length of the mean goes from {lengths[0]:.3g} to "
            f"{lengths[-1]:.3g}; the logits' standard deviation is at most {self.sigma.max():.3g} (σ_N = "
            f"{self.freezing:.3g}), the estimated error at most {self.error.max():.2g}."
        )
        if self.holds_until >= self.times[-1]:
            return words + " It holds all the while."
        held = f"holds until t = {self.holds_until:g}" if self.holds_until > -np.inf else "does not hold at all"
        return f"{words} It {held}: after that its error is above {HOLDS:g}, or the cloud freezes."

    def headline(self) -> str:
        """Times, the length of the mean, the error and how long it holds."""
        return (
            f"{len(self.times)} times to {self.times[-1]:g}, |mean|={np.linalg.norm(self.mean[-1]):.4g}, "
            f"error={self.error[-1]:.2g}, holds_until={self.holds_until:g}"
        )


def moment_flow(head: Heads, cloud: Cloud, times: Array) -> MomentFlow:
    """Mean and covariance of a warm cloud in time, from its moments alone (THEORY eq. 23).

    Parameters
    ----------
    head : Attention or list
        One head.
    cloud : Cloud
        Tokens on the sphere at time 0: their number, mean and dense covariance; without atoms.
    times : Array
        Ascending times ≥ 0, in the time of (2).

    Returns
    -------
    MomentFlow
        ``.mean``, ``.covariance``, ``.error`` and ``.holds_until``.

    Raises
    ------
    BadParameter
        There are several heads or atoms; or the moments are not those of a Gaussian put on the sphere.
    BadArray
        Head and cloud differ in dimension.

    Examples
    --------
    >>> head = Attention.from_matrices(np.eye(3), np.eye(3), beta=1.0)
    >>> moment_flow(head, Cloud(10_000, mean=[0.5, 0.0, 0.0], covariance=0.25 * np.eye(3)), times=[0, 4]).holds_until
    4.0
    """
    moments = as_times(times, "times")
    warm_push(head, cloud, "moment_flow")
    one = as_one_layer(head, "moment_flow")[0]
    if isinstance(cloud.covariance, KeyFactors):
        raise BadArray("this cloud is seen by a head; its covariance itself is needed, (d, d).")
    size = float(cloud.mean @ cloud.mean + cloud.total_variance)
    if not abs(size - 1) <= ON_SPHERE:
        raise BadParameter(f"|μ|² + tr Σ is {size:.6g}; it is 1 for tokens on the sphere.")
    if not cloud.total_variance > 0:
        raise BadParameter("this cloud is a single point; move it with simulate.")
    start = projected_gaussian(cloud.mean, cloud.covariance / (cloud.total_variance / (1 - cloud.mean @ cloud.mean)))
    system = _System.of(one, float(cloud.count))
    plain, full = (_integrate(system, start, moments, further=further) for further in (False, True))
    seen = [system.measured(law) for law in full]
    off = [
        np.hypot(np.linalg.norm(a.mean - b.mean), np.linalg.norm(a.covariance - b.covariance))
        for a, b in zip(plain, full, strict=True)
    ]
    error, sigma, edge = (
        np.array(off),
        np.array([deviation for deviation, _ in seen]),
        float(freezing(float(cloud.count))),
    )
    held = np.cumprod((error <= HOLDS) & (sigma <= edge)).astype(bool)
    return MomentFlow(
        times=moments,
        mean=np.array([law.mean for law in full]),
        covariance=np.array([law.covariance for law in full]),
        error=error,
        sigma=sigma,
        self_weight=np.array([weight for _, weight in seen]),
        freezing=edge,
        holds_until=float(moments[held][-1]) if held.any() else -np.inf,
    )


@dataclass(frozen=True, eq=False)
class _System:
    """The velocity of (ν, S) for one head and a number of tokens."""

    B: Float[np.ndarray, "d d"]
    V: Float[np.ndarray, "d d"]
    key_bias: Float[np.ndarray, " d"]
    beta: float
    count: float
    normal: Float[np.ndarray, "n d"]

    @classmethod
    def of(cls, head: Attention, count: float) -> "_System":
        B, V, _, bias = head.matrices
        return cls(B, V, np.zeros(len(B)) if bias is None else bias, head.beta, count, _normal_points(len(B)))

    def velocity(
        self, law: ProjectedGaussian, *, further: bool
    ) -> tuple[Float[np.ndarray, " d"], Float[np.ndarray, "d d"]]:
        """ν̇ = E ż and Ṡ = E[ż(z−ν)ᵀ] + its transpose, for ż = |z|V m(x); scaled so that E|z|² stays."""
        shift = self.V @ (law.mean + self.beta * law.covariance @ self.key_bias)
        stretch = self.beta * self.V @ law.covariance @ self.B.T
        # Of |z|a + Mz: E|z|·a + Mν, and by Stein's lemma (M + aμᵀ)S, as the gradient of |z| is x.
        centre = law.length * shift + stretch @ law.centre
        turned = (stretch + np.outer(shift, law.mean)) @ law.spread
        if further:
            z = law.points(self.normal)
            x, p, _, self_weight = self._queries(law, z)
            # What (16) leaves out of the mean map: ½κ₃(p,p,·), and the token itself.
            cloud = law.third(p) / 2
            terms = cloud + self_weight[:, None] * (x - law.mean - p @ law.covariance - cloud)
            rest = np.linalg.norm(z, axis=1, keepdims=True) * (terms @ self.V.T)
            centre = centre + rest.mean(0)
            turned = turned + rest.T @ (z - law.centre) / len(z)
        spread = turned + turned.T
        growth = (law.centre @ centre + np.trace(spread) / 2) / (law.centre @ law.centre + np.trace(law.spread))
        return centre - growth * law.centre, spread - 2 * growth * law.spread

    def measured(self, law: ProjectedGaussian) -> tuple[float, float]:
        """σ of the logits, and a token's weight on itself."""
        _, _, variance, self_weight = self._queries(law, law.points(self.normal))
        return float(np.sqrt(variance.mean())), float(self_weight.mean())

    def _queries(
        self, law: ProjectedGaussian, z: Float[np.ndarray, "n d"]
    ) -> tuple[Float[np.ndarray, "n d"], Float[np.ndarray, "n d"], Float[np.ndarray, " n"], Float[np.ndarray, " n"]]:
        """Tokens x, their p, the variance of their logits, and their weight on themselves: an atom beside the cloud."""
        x = z / np.linalg.norm(z, axis=1, keepdims=True)
        p = self.beta * (x @ self.B + self.key_bias)
        variance = (p @ law.covariance * p).sum(1)
        return x, p, variance, expit((p * (x - law.mean)).sum(1) - np.log(self.count) - variance / 2)


def _integrate(
    system: _System, start: ProjectedGaussian, times: Float[np.ndarray, " k"], *, further: bool
) -> list[ProjectedGaussian]:
    """The laws at these times."""
    d = len(start.centre)

    def unpacked(state: Float[np.ndarray, " s"]) -> ProjectedGaussian:
        return ProjectedGaussian(state[:d], state[d:].reshape(d, d))

    def velocity(_: float, state: Float[np.ndarray, " s"]) -> Float[np.ndarray, " s"]:
        centre, spread = system.velocity(unpacked(state), further=further)
        return np.concatenate([centre, spread.ravel()])

    state = np.concatenate([start.centre, start.spread.ravel()])
    if times[-1] == 0:
        return [start]
    done = solve_ivp(velocity, (0.0, times[-1]), state, t_eval=times, rtol=TOLERANCE, atol=TOLERANCE / 100)
    if done.status != 0:
        raise BadParameter(f"the moment flow cannot be integrated beyond t = {done.t[-1]:.4g}: {done.message}")
    return [unpacked(column) for column in done.y.T]


def _normal_points(d: int) -> Float[np.ndarray, "n d"]:
    """Fixed draws of a standard normal with antipodes, turned and stretched to have the covariance 1 exactly."""
    half = np.random.default_rng(0).standard_normal((max(FEWEST_POINTS, 4 * d) // 2, d))
    both = np.concatenate([half, -half])
    return both @ np.linalg.inv(np.linalg.cholesky(both.T @ both / len(both))).T
