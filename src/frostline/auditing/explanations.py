"""Explanations of attention: descriptions of what a query sees, each with the mean it predicts (THEORY section 12).

From the coldest to the richest: the best token alone, the plain mean, a tilted cloud, the first token, the last and the
query's own beside a cloud, the same with neighbours, and the law: with the best other token, at which the cloud is cut.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int

from frostline.encoders.heads import Attended
from frostline.encoders.positions import UNSEEN, Positions
from frostline.theory.tilting import Tilt, cut, freezing, frozen, matched

DESCRIPTIONS = {
    "token": "the best single token",
    "mean": "the mean of the text",
    "cloud": "a tilted cloud",
    "atoms": "three tokens and a cloud",
    "neighbours": "five tokens and a cloud",
    "bridge": "four tokens and a cut cloud",
    "matched": "four tokens and a cloud matched to the rest",
    "flat": "four tokens and the cloud's plain mean",
    "bare": "four tokens alone",
}
"""Descriptions of what a query sees, in words; the last two are ablations of ``bridge``.

Three tokens: the first, the last, the query's own. Five: its two neighbours too. Four: the best other token too.
``bridge`` and ``matched`` differ in the cloud: with the best token in its moments (17′), or without it (17″).
"""
PLACES = ("first", "last", "self", "previous", "next", "same", "best", "cloud")
"""Tokens that attention is paid to; a token that is several of these counts as the one that ``paid`` meets first."""


LAW = ("first", "last", "self", "best", "cloud")
"""The law's four tokens and its cloud (eq. 18), the best token chosen among the inner ones."""


@dataclass(frozen=True, eq=False)
class Described:
    """What every head gives every asking token by each description, in value coordinates, and how it looks.

    sigma                   standard deviation of a query's logits over the inner tokens but its own
    edge                    σ_N, at which such a cloud freezes
    places                  of the law's four tokens, as in ``LAW``; −1: none, or it is an earlier one
    shares                  attention to each of ``LAW`` by the law; they sum to one
    participation           Σ of squared weights by the law
    tilt                    f, the part of the covariance with the logits that the cloud's mean moves by
    means                   by the names of ``DESCRIPTIONS``
    """

    sigma: Float[np.ndarray, "h q"]
    edge: Float[np.ndarray, " q"]
    places: Int[np.ndarray, "h q 4"]
    shares: Float[np.ndarray, "h q 5"]
    participation: Float[np.ndarray, "h q"]
    tilt: Float[np.ndarray, "h q"]
    means: dict[str, Float[np.ndarray, "h q k"]]


@dataclass(frozen=True, eq=False)
class Moments:
    """Moments of the tokens that count for each query: their number, logits and values, and the covariance of both."""

    count: Float[np.ndarray, " q"]
    logit: Float[np.ndarray, "h q"]
    sigma: Float[np.ndarray, "h q"]
    mean: Float[np.ndarray, "h q k"]
    covariance: Float[np.ndarray, "h q k"]

    @classmethod
    def of(
        cls, logits: Float[np.ndarray, "h q n"], values: Float[np.ndarray, "h n k"], counted: Bool[np.ndarray, "q n"]
    ) -> "Moments":
        """The moments; zeros where no token counts."""
        weights = counted.astype(np.float64)
        count = weights.sum(-1)
        share = weights / np.maximum(count, 1.0)[:, None]
        # Logits outside a window are huge, and count for nothing: they are not to be multiplied by zero.
        logits = logits if counted.all() else np.where(counted, logits, 0.0)
        logit = np.einsum("hqn,qn->hq", logits, share)
        deviations = (logits - logit[..., None]) * share
        variance = np.einsum("hqn,hqn,q->hq", deviations, deviations, count)
        mean = share @ values
        # Deviations add up to rounding only; but where they are no more than rounding themselves (copies of one word),
        # that must not be multiplied by the values: the tilt divides it by σ.
        covariance = deviations @ values - deviations.sum(-1)[..., None] * mean
        return cls(count, logit, np.sqrt(variance), mean, covariance)

    def without(
        self, best: Int[np.ndarray, "h q"], logits: Float[np.ndarray, "h q n"], values: Float[np.ndarray, "h n k"]
    ) -> "Moments":
        """The moments without one of the tokens that counted; what is left of one token are zeros."""
        left = np.maximum(self.count - 1, 0)
        # By the mean's own formula: with one token fewer it moves by 1/(N − 1) of what that token was away from it.
        share = 1 / np.maximum(left, 1)
        away = np.take_along_axis(logits, best[..., None], -1)[..., 0] - self.logit
        moved = values[np.arange(len(values))[:, None], best] - self.mean
        scale = self.count * share
        variance = scale * self.sigma**2 - scale * share * away**2
        covariance = scale[:, None] * self.covariance - (scale * share * away)[..., None] * moved
        some = (left > 0).astype(float)
        return Moments(
            left,
            self.logit - share * away * some,
            np.sqrt(np.maximum(variance, 0)) * some,
            self.mean - (share * some)[:, None] * moved,
            covariance * some[:, None],
        )


def explain(attended: Attended, rows: Int[np.ndarray, " q"], visible: Bool[np.ndarray, "q n"]) -> Described:
    """Explain what the heads give the tokens ``rows``, which ask, from the tokens that they can see."""
    logits, values = attended.logits, attended.values
    n = values.shape[1]
    inner = inner_tokens(visible, rows)
    cloud, everything = Moments.of(logits, values, inner), Moments.of(logits, values, visible)
    ends = _places(rows, n, (np.zeros_like(rows), np.full_like(rows, n - 1), rows), visible)
    near = _places(rows, n, (np.zeros_like(rows), np.full_like(rows, n - 1), rows, rows - 1, rows + 1), visible)
    apart = inner.copy()
    for step in (-1, 1):
        beside = (rows + step >= 0) & (rows + step < n)
        apart[np.flatnonzero(beside), rows[beside] + step] = False
    others = Moments.of(logits, values, apart)
    ranked = np.where(inner, logits, -np.inf)
    best = ranked.argmax(-1)
    top = np.take_along_axis(ranked, best[..., None], -1)[..., 0]
    below = cloud.without(best, logits, values)
    # By (17′) the best token stays in the moments, but is no token of the cloud; by (17″) it is in neither.
    law = cut(cloud.sigma, _heights(top, cloud), below.count)
    matching = matched(below.sigma, _heights(top, below), below.count)
    flat = Tilt(np.zeros_like(law.share), law.mass, law.participations)
    three, five = _Atoms.of(logits, values, ends), _Atoms.of(logits, values, near)
    places = np.concatenate(
        [np.broadcast_to(ends, (len(logits), *ends.shape)), np.where(np.isfinite(top), best, -1)[..., None]], -1
    )
    four = _Atoms.of(logits, values, places)
    bridge, shares = four.joined(cloud, law, below.count)
    means = {
        "token": attended.best,
        "mean": everything.mean,
        "cloud": _moved(everything, frozen(everything.sigma, everything.count)),
        "atoms": three.joined(cloud, frozen(cloud.sigma, cloud.count), cloud.count)[0],
        "neighbours": five.joined(others, frozen(others.sigma, others.count), others.count)[0],
        "bridge": bridge,
        "matched": four.joined(below, matching, below.count)[0],
        "flat": four.joined(cloud, flat, below.count)[0],
        "bare": four.joined(cloud, law, np.zeros_like(below.count))[0],
    }
    return Described(
        sigma=cloud.sigma,
        edge=freezing(cloud.count),
        places=places,
        shares=shares,
        participation=(shares[..., :-1] ** 2).sum(-1) + shares[..., -1] ** 2 * law.participation,
        tilt=law.share,
        means=means,
    )


def _moved(cloud: Moments, law: Tilt) -> Float[np.ndarray, "h q k"]:
    """The mean of a tilted cloud."""
    return cloud.mean + law.share[..., None] * cloud.covariance


def _heights(top: Float[np.ndarray, "h q"], cloud: Moments) -> Float[np.ndarray, "h q"]:
    """How far the largest logit is above the mean of a cloud's, in its standard deviations."""
    return np.divide(top - cloud.logit, cloud.sigma, out=np.zeros_like(top), where=cloud.sigma > 0)


def visible_tokens(at: Positions, rows: Int[np.ndarray, " q"], n: int) -> Bool[np.ndarray, "q n"]:
    """The tokens that those which ask can see: all, or those in their windows."""
    if at.bias is None:
        return np.ones((len(rows), n), dtype=bool)
    return np.asarray((at.bias[:, rows] > UNSEEN / 2).all(0))


def inner_tokens(visible: Bool[np.ndarray, "q n"], rows: Int[np.ndarray, " q"]) -> Bool[np.ndarray, "q n"]:
    """The tokens that can be seen, without the first, the last and the one that asks."""
    inner = visible.copy()
    inner[:, [0, -1]] = False
    inner[np.arange(len(rows)), rows] = False
    return inner


@dataclass(frozen=True, eq=False)
class _Atoms:
    """Single tokens beside a cloud: their logits (−∞ where there is no such token) and values."""

    logits: Float[np.ndarray, "h q a"]
    values: Float[np.ndarray, "h q a k"]

    @classmethod
    def of(
        cls,
        logits: Float[np.ndarray, "h q n"],
        values: Float[np.ndarray, "h n k"],
        places: Int[np.ndarray, "*h q a"],
    ) -> "_Atoms":
        """The tokens at these places, of every head or of all heads; −1: none there."""
        each = np.broadcast_to(places, (len(logits), *places.shape[-2:]))
        picked = np.where(each < 0, -np.inf, np.take_along_axis(logits, np.maximum(each, 0), -1))
        heads = np.arange(len(logits))[:, None, None]
        return cls(picked, values[heads, np.maximum(each, 0)])

    def joined(
        self, cloud: Moments, law: Tilt, count: Float[np.ndarray, " q"]
    ) -> tuple[Float[np.ndarray, "h q k"], Float[np.ndarray, "h q shares"]]:
        """The mean over the atoms and a cloud of so many tokens, and the share of each (eq. 18)."""
        with np.errstate(divide="ignore"):
            mass = np.log(count) + cloud.logit + law.mass
        masses = np.concatenate([self.logits, mass[..., None]], -1)
        weights = np.exp(masses - masses.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        single, rest = weights[..., :-1], weights[..., -1:]
        return np.einsum("hqa,hqak->hqk", single, self.values) + rest * _moved(cloud, law), weights


def _places(
    rows: Int[np.ndarray, " q"], n: int, wanted: tuple[np.ndarray, ...], visible: Bool[np.ndarray, "q n"]
) -> Int[np.ndarray, "q a"]:
    """Places of single tokens, each once; −1 where there is none or it cannot be seen."""
    places = np.stack(wanted, -1)
    places = np.where((places >= 0) & (places < n), places, -1)
    places = np.where(np.take_along_axis(visible, np.maximum(places, 0), -1), places, -1)
    for later in range(1, places.shape[1]):
        places[(places[:, :later] == places[:, later, None]).any(-1), later] = -1
    return places


def paid(
    weights: Float[np.ndarray, "h q n"], rows: Int[np.ndarray, " q"], ids: Int[np.ndarray, " n"]
) -> tuple[Float[np.ndarray, "h places"], Float[np.ndarray, " places"]]:
    """Attention paid to each of ``PLACES``, mean over the tokens that ask, and the share of these that have one.

    The neighbours come before the ends: a head that looks one token back is known by all it does.
    """
    n, queries = len(ids), np.arange(len(rows))
    kind = np.full((len(rows), n), PLACES.index("cloud"))
    same = ids == ids[rows][:, None]
    same[:, [0, -1]] = False
    kind[same] = PLACES.index("same")
    kind[:, -1], kind[:, 0] = PLACES.index("last"), PLACES.index("first")
    for step, name in ((-1, "previous"), (1, "next"), (0, "self")):
        place = rows + step
        there = (place >= 0) & (place < n)
        kind[queries[there], place[there]] = PLACES.index(name)
    shares = np.stack([np.einsum("hqn,qn->h", weights, kind == number) for number in range(len(PLACES))], -1)
    rest = np.where(kind == PLACES.index("cloud"), weights, 0.0)
    best = rest.max(-1).sum(-1)
    shares[:, PLACES.index("best")] += best
    shares[:, PLACES.index("cloud")] -= best
    met = np.stack([(kind == number).any(-1).mean() for number in range(len(PLACES))])
    met[PLACES.index("best")] = met[PLACES.index("cloud")]
    return shares / len(rows), met
