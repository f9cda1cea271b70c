"""Sums over the tokens of a text that shares explained are made from, and what the law says of each layer."""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int

from frostline.auditing.explanations import DESCRIPTIONS, Described, paid
from frostline.auditing.fidelity import Glass
from frostline.encoders.heads import Attended


@dataclass(frozen=True, eq=False)
class AttentionSums:
    """Measured per text (c) of those that are measured closely, for L layers of h heads.

    update_square, left    Σ over the tokens that ask of the squared update Σ_h V_h m_h in residual units, and of what
                           each description leaves of it
    head_square, head_left the same of single heads
    seen_sum               Σ of the mean that each head gives, in value coordinates
    asked                  number of tokens that ask: all, or some of a long text
    resultant_expected     resultant length after the attention half by the law (four tokens and a cut cloud)
    covariance_before …    distance of the tokens' covariance from that after the attention half, over its norm: of
                           that before it, and of what the law makes one expect
    sigma, freezing        median standard deviation of a query's logits over the inner tokens; the same over σ_N
    weight_participation … mean of Σ of squared weights, as it is and by the law
    paid, met              as in ``explanations.paid``
    """

    asked: Float[np.ndarray, "c layers"]
    update_square: Float[np.ndarray, "c layers"]
    left: Float[np.ndarray, "c layers descriptions"]
    head_square: Float[np.ndarray, "c layers heads"]
    head_left: Float[np.ndarray, "c layers heads descriptions"]
    seen_sum: Float[np.ndarray, "c layers heads k"]
    resultant_expected: Float[np.ndarray, "c layers"]
    covariance_before: Float[np.ndarray, "c layers"]
    covariance_expected: Float[np.ndarray, "c layers"]
    sigma: Float[np.ndarray, "c layers heads"]
    freezing: Float[np.ndarray, "c layers heads"]
    weight_participation: Float[np.ndarray, "c layers heads"]
    weight_participation_expected: Float[np.ndarray, "c layers heads"]
    paid: Float[np.ndarray, "c layers heads places"]
    met: Float[np.ndarray, "c layers places"]


def sums_of(
    glass: Glass,
    attended: Attended,
    explanation: Described,
    rows: Int[np.ndarray, " q"],
    ids: Int[np.ndarray, " n"],
) -> dict[str, object]:
    """The sums of one layer and one text, by the names of ``AttentionSums``."""
    real = attended.mean
    # What is left by each description, and what there is.
    left = np.stack([*(real - explanation.means[name] for name in DESCRIPTIONS), real])
    whole, alone = glass.squares(left), np.einsum("shqk,shqk->sh", left @ glass.gram, left)
    shares, met = paid(attended.weights, rows, ids)
    edge = np.maximum(explanation.edge, np.finfo(float).tiny)
    return {
        "asked": len(rows),
        "update_square": whole[-1],
        "left": whole[:-1],
        "head_square": alone[-1],
        "head_left": alone[:-1].T,
        "seen_sum": real.sum(1),
        "sigma": np.median(explanation.sigma, axis=1),
        "freezing": np.median(explanation.sigma / edge, axis=1),
        "weight_participation": (attended.weights**2).sum(-1).mean(1),
        "weight_participation_expected": explanation.participation.mean(1),
        "paid": shares,
        "met": met,
    }


def covariance_distance(x: Float[np.ndarray, "n d"], y: Float[np.ndarray, "n d"]) -> float:
    """‖cov x − cov y‖/‖cov y‖ in Frobenius norm, from n×n products: tr(cov x cov y) = ‖x yᵀ‖²/n² for centred tokens."""
    x, y = x - x.mean(0), y - y.mean(0)
    xx, xy, yy = (float(np.linalg.norm(left @ right.T)) ** 2 for left, right in ((x, x), (x, y), (y, y)))
    return float(np.sqrt(max(xx - 2 * xy + yy, 0.0) / yy)) if yy > 0 else 0.0
