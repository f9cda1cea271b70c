"""closure: the mean map of a cloud known by its moments, at any temperature (THEORY eq. 16–18)."""

from dataclasses import dataclass, replace

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import logsumexp

from frostline.arrays import Array, as_float64
from frostline.attention import Heads, as_one_layer
from frostline.errors import BadArray, BadParameter
from frostline.results import Result
from frostline.sphere import as_tokens
from frostline.theory.tilting import Tilt, cut, freezing, frozen, matched
from frostline.theory.token_cloud import Cloud, Logits, directions

BELIEVED = 0.5
"""A mean is believed when its estimated error is at most this share of its distance to the plain mean of the tokens."""
UNCUT = 40.0
"""Standard deviations from the mean at which a cut takes nothing away; for clouds without spread."""


@dataclass(frozen=True, eq=False, repr=False)
class Closure(Result):
    """The mean map of a cloud with atoms, by moments; the first axes of all arrays are those of the queries.

    Attributes
    ----------
    mean : Array
        m by THEORY eq. 18, (n, d).
    log_mass : Array
        The logarithm of the sum of e^{logit} over atoms and cloud, (n,).
    atom_shares : Array
        The weights of the atoms, (n, a).
    best_share : Array
        The weight of the cloud's best token, (n,); 0 where the tokens are not known.
    cloud_share : Array
        The weight of the cloud without it, (n,).
    best : ndarray or None
        The index of the best token, (n,); None where the tokens are not known.
    sigma : Array
        The standard deviation σ of the cloud's logits, (n,).
    freezing : float
        σ_N = √(2 ln N), beyond which the few largest logits rule.
    frozen : ndarray
        Whether σ > σ_N, (n,).
    participation : Array
        The sum of the squared weights of all tokens, as expected, (n,).
    error : Array
        An estimate of |m − the mean map|, (n,): of a standard deviation where the tokens are a sample, and of the
        next term of the expansion where the third cumulant is known.
    believed : ndarray
        Whether the error is at most half of the distance between m and the plain mean, (n,); where it is not, the
        plain mean may be as near.
    gaussian : bool
        Whether the third cumulant is not known, so that the Gaussian of the logits is taken on trust.

    Examples
    --------
    >>> from frostline import Attention
    >>> head = Attention.from_matrices(np.eye(2), np.eye(2), beta=2.0)
    >>> cloud = Cloud(100, mean=[0.0, 0.6], covariance=[[0.3, 0.0], [0.0, 0.1]])
    >>> closure(head, [[1.0, 0.0]], cloud).mean  # μ + Σp
    array([[0.6, 0.6]])
    """

    mean: Array
    log_mass: Array
    atom_shares: Array
    best_share: Array
    cloud_share: Array
    best: np.ndarray | None
    sigma: Array
    freezing: float
    frozen: Bool[np.ndarray, "..."]
    participation: Array
    error: Array
    believed: Bool[np.ndarray, "..."]
    gaussian: bool

    def describe(self) -> str:
        """How warm the cloud is, who has the weight, how large the error may be, and when not to believe it."""
        sigma, queries = as_float64(self.sigma), self.frozen.size
        cold = int(self.frozen.sum())
        words = [
            f"The cloud's logits have the standard deviation {np.median(sigma):.3g} (median over {queries} queries; "
            f"it freezes at {self.freezing:.3g}, which {cold} {'is' if cold == 1 else 'are'} beyond).",
            f"Medians of the weight: cloud {np.median(as_float64(self.cloud_share)):.0%}, its best token "
            f"{np.median(as_float64(self.best_share)):.0%}, atoms "
            f"{np.median(as_float64(self.atom_shares).sum(-1)):.0%}. The estimated error of the mean is "
            f"{np.median(as_float64(self.error)):.3g}.",
        ]
        doubted = int((~self.believed).sum())
        if doubted:
            words.append(
                f"Do not believe {doubted} of {queries}: there the error is more than half of what the logits move "
                "the mean by, because few tokens have the weight or the logits are not Gaussian; give the cloud its "
                "tokens, or the tokens that matter as atoms."
            )
        if self.gaussian:
            words.append("The third cumulant is not known: that the logits are Gaussian is taken on trust.")
        return " ".join(words)

    def headline(self) -> str:
        """Queries, σ against σ_N, the error and how many are believed."""
        sigma, error = np.median(as_float64(self.sigma)), np.median(as_float64(self.error))
        return (
            f"{self.frozen.size} queries, sigma={sigma:.3g} of {self.freezing:.3g}, error={error:.3g}, "
            f"{int(self.believed.sum())} believed"
        )


def closure(head: Heads, x: Array, cloud: Cloud) -> Closure:
    """The mean map of a cloud with atoms, from its moments (THEORY eq. 18).

    The cloud counts as one token at μ + f·c with the log-mass log N + s̄ + φ: by (17) from its moments alone. Where it
    knows its tokens the best of them is an atom, and the others follow (17″); (17′) where their moments are those of a
    population. The result tends to the mean as β → 0, and with a best token to that token as β → ∞.

    Parameters
    ----------
    head : Attention or list
        One head.
    x : Array
        Queries (…, n, d), unit vectors.
    cloud : Cloud
        The tokens that they attend to.

    Returns
    -------
    Closure
        ``.mean``, ``.log_mass``, the shares, ``.error``, ``.believed`` and more.

    Raises
    ------
    BadArray
        Queries, head and cloud differ in dimension.
    BadParameter
        There are several heads, or ``cloud`` is not a Cloud.

    Examples
    --------
    >>> from frostline import Attention, mean_map, sample
    >>> head = Attention.from_matrices(np.eye(8), np.eye(8), beta=4.0)
    >>> tokens = sample.uniform(1000, 8, seed=0)
    >>> law = closure(head, tokens[:5], Cloud.of(tokens))
    >>> bool(abs(law.mean - mean_map(head, tokens[:5], sources=tokens)).max() < 0.1)
    True
    """
    layer = as_one_layer(head, "closure")
    if len(layer) > 1:
        raise BadParameter(f"closure takes one head, this layer has {len(layer)}; call it head by head.")
    if not isinstance(cloud, Cloud):
        raise BadParameter(f"cloud is {type(cloud).__name__}; make one with Cloud.of(tokens) or Cloud(count, …).")
    rows, kind = as_tokens(x, "x")
    if rows.shape[-1] != cloud.dimension:
        raise BadArray(f"x has dimension {rows.shape[-1]}, the cloud {cloud.dimension}; they must agree.")
    lead = tuple(rows.shape[:-1])
    queries = as_float64(rows).reshape(-1, cloud.dimension)
    seen = cloud.logits(layer[0], queries)
    p = directions(layer[0], queries)
    sigma = np.sqrt(seen.variance)
    logs = [p @ cloud.atoms.T + np.log(cloud.weights)]
    places = [np.broadcast_to(cloud.atoms, (len(p), *cloud.atoms.shape))]
    best = None
    if cloud.tokens is not None:
        best, best_logit = cloud.best(layer[0], queries)
        logs.append(best_logit[:, None])
        places.append(cloud.tokens[best][:, None])
        seen = seen.without(cloud.tokens[best], best_logit) if cloud.in_sample else replace(seen, count=seen.count - 1)
    law, doubled = _laws(seen, None if best is None else best_logit, in_sample=cloud.in_sample)
    logs.append((np.log(seen.count) + seen.mean + law.mass)[:, None])
    places.append((seen.tokens + law.share[:, None] * seen.covariance)[:, None])
    logits = np.concatenate(logs, axis=1)
    log_mass = logsumexp(logits, axis=1)
    shares = np.exp(logits - log_mass[:, None])
    mean = np.einsum("na,nad->nd", shares, np.concatenate(places, axis=1))
    cloud_share, atoms = shares[:, -1], len(cloud.atoms)
    error = cloud_share * _cloud_error(seen, law, doubled, mean, p, in_sample=cloud.in_sample)
    restored = {
        "mean": mean,
        "log_mass": log_mass,
        "atom_shares": shares[:, :atoms],
        "best_share": np.zeros_like(cloud_share) if best is None else shares[:, atoms],
        "cloud_share": cloud_share,
        "sigma": sigma,
        "participation": (shares[:, :-1] ** 2).sum(1) + cloud_share**2 * law.participation,
        "error": error,
    }
    edge = float(freezing(float(cloud.count)))
    return Closure(
        **{name: kind.restore(value.reshape(lead + value.shape[1:])) for name, value in restored.items()},
        best=None if best is None else best.reshape(lead),
        freezing=edge,
        frozen=(sigma > edge).reshape(lead),
        believed=(error <= BELIEVED * np.linalg.norm(mean - _plain_mean(cloud), axis=1)).reshape(lead),
        gaussian=seen.third is None,
    )


def _laws(seen: Logits, best: Float[np.ndarray, " n"] | None, *, in_sample: bool) -> tuple[Tilt, Tilt]:
    """The law of a cloud, and the same cloud tilted twice as far."""
    sigma = np.sqrt(seen.variance)
    if best is None:
        return frozen(sigma, seen.count), frozen(2 * sigma, seen.count)
    height = np.divide(best - seen.mean, sigma, out=np.full_like(sigma, UNCUT), where=sigma > 0)
    law = matched if in_sample else cut
    return law(sigma, np.minimum(height, UNCUT), seen.count), law(2 * sigma, np.minimum(height, UNCUT), seen.count)


def _plain_mean(cloud: Cloud) -> Float[np.ndarray, " d"]:
    """The mean of atoms and cloud at β = 0."""
    return np.asarray((cloud.weights @ cloud.atoms + cloud.count * cloud.mean) / (cloud.weights.sum() + cloud.count))


def _cloud_error(
    seen: Logits,
    law: Tilt,
    doubled: Tilt,
    mean: Float[np.ndarray, "n d"],
    p: Float[np.ndarray, "n d"],
    *,
    in_sample: bool,
) -> Float[np.ndarray, " n"]:
    """The error that the cloud brings in, for a share of one: its sampling noise, and the next term of the expansion.

    To first order a sample errs by Σ_j w_j(y_j − m), whose variance is Y·E|y − m|² under the doubled tilt. Moments of
    the very tokens take out of it what they explain: its parts in 1, s, s² and r, r·s, r the rest of the token.
    """
    sigma = np.sqrt(seen.variance)[:, None]
    # Of tokens against the logit, in standard deviations.
    slope = np.divide(seen.covariance, sigma, out=np.zeros_like(seen.covariance), where=sigma > 0)
    along = (slope**2).sum(1)
    rest = np.maximum(seen.total - along, 0.0)
    tilt = law.share[:, None] * sigma
    away = seen.tokens - mean
    twice = away + 2 * doubled.share[:, None] * sigma * slope
    second = law.participation * (rest + along + (twice**2).sum(1))
    known = ((away + tilt * slope) ** 2).sum(1)
    if in_sample:
        known += rest * (1 + tilt[:, 0] ** 2)
        known += ((away * tilt + slope * (tilt**2 + 1)) ** 2).sum(1)
        known += ((away * tilt**2 + slope * (tilt**3 + 2 * tilt)) ** 2).sum(1) / 2
    if in_sample and seen.third is not None:
        # The sample's own third cumulant is below, in the next term: not twice.
        known += rest * tilt[:, 0] ** 4 / 2
        known += ((away * tilt**3 + slope * (tilt**4 + 3 * tilt**2)) ** 2).sum(1) / 6
    noise = np.maximum(second - known / seen.count, 0.0)
    if seen.third is None:
        return np.sqrt(noise)
    # What the law does not have itself; and a frozen cloud is tilted as far as σ_N, not as far as σ.
    third = (seen.third - np.reshape(law.skew, (-1, 1)) * sigma**2 * slope) * law.share[:, None] ** 2
    skew = law.share * (third * p).sum(1)
    next_term = third / 2 + (away + tilt * slope) * skew[:, None] / 6
    return np.asarray(np.sqrt(noise + (next_term**2).sum(1)))
