"""Findings: what stands out in an audit, with its effect, its evidence, its control and advice.

The rules ask for effects that random weights of the same shape hardly ever show: fewer than one audit in twenty of such
models has a finding (tested).
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from frostline.auditing.clouds import Clouds
from frostline.auditing.explained import Explained, in_percent
from frostline.auditing.explanations import PLACES
from frostline.auditing.frost_line import FEWEST, FrostLine
from frostline.auditing.head_roles import OFTEN, WORDS
from frostline.auditing.perturbations import Perturbations
from frostline.auditing.weights import Weights
from frostline.results import Result

LOST_RANK = 0.6
"""A value path with less than this share of the effective rank of random weights is a bottleneck."""
DEVIATIONS = 6.0
"""A bottleneck is this many standard deviations of the control below it."""
COLDER = 4.0
"""A head this many times colder than the median head stands out."""
SYMMETRIC = 0.75
"""A head with more than this share of ‖VBᵀ‖² in its symmetric part is a symmetric head."""
RESOLVED = 10.0
"""A gap is believed when it is this many times larger than rounding of the weights could make."""
FAITHFUL = 0.9
"""Cosine with the update of its best token above which a head is at zero temperature."""
FEW = 2.0
"""Tokens that a head at zero temperature attends to, at most."""
BEYOND_MEAN = 0.25
"""A model whose law explains more than this share beyond the text's mean, in the median layer, is a mean field."""
OUTSIDE = 0.5
"""A head of which the law explains less than this share is outside the law."""
PLACED = 0.9
"""A head that pays at least this share to one kind of place is a head of that place."""
OF_PLACES = ("previous", "next", "same")
"""Kinds of places that make a finding; first and last tokens are looked at in every encoder."""
GROWTH = 4.0
"""Growth of a small change of the input from which its direction is a sensitive one."""


@dataclass(frozen=True, repr=False)
class Finding(Result):
    """One thing that stands out.

    Attributes
    ----------
    kind
        The rule that it was found by: "mean field", "value bottleneck", "cold head", "symmetric head", "frost line",
        "zero-temperature head", "head outside the law", "head of a place" or "sensitive direction".
    where
        The layer and the head, in words.
    layer, head
        Their numbers; ``head`` is None for a whole layer.
    effect
        Distance from the control, on a scale of the kind's own from 0 to 1.
    evidence, control
        The numbers, and those of random weights.
    advice
        What it means in use.

    Examples
    --------
    >>> Finding("cold head", "layer 2, head 5", 2, 5, 0.8, "β = 90", "random factors: 20", "It picks single tokens.")
    Finding(cold head, layer 2, head 5: β = 90 (random factors: 20))
    """

    kind: str
    where: str
    layer: int
    head: int | None
    effect: float
    evidence: str
    control: str
    advice: str

    def describe(self) -> str:
        """Kind, place, evidence and control."""
        return f"{self.kind}, {self.where}: {self.evidence} ({self.control})"


def from_weights(weights: Weights, clouds: Clouds | None = None) -> list[Finding]:
    """Rules about weights; with ``clouds`` a symmetric head also says whether its updates lead to its limit."""
    return [*_bottlenecks(weights), *_cold_heads(weights), *_symmetric_heads(weights, clouds)]


def _symmetric_heads(weights: Weights, clouds: Clouds | None) -> list[Finding]:
    share, resolution = weights.each("symmetric_share"), weights.each("resolution")
    reference = weights.reference("symmetric_share")
    enough = clouds is not None and len(clouds.tokens) >= FEWEST
    fidelity = clouds.fidelity_full.mean(0) if clouds is not None and enough else np.full(share.shape, np.nan)
    findings = []
    for layer, head in np.argwhere(share > SYMMETRIC).tolist():
        findings.append(
            Finding(
                "symmetric head",
                _where(layer, head),
                layer,
                head,
                float(2 * share[layer, head] - 1),
                f"{100 * share[layer, head]:.0f} % of ‖VBᵀ‖² is symmetric; "
                + limit_in_words(weights.layers[layer].kind[head], resolution[layer, head], fidelity[layer, head]),
                f"random heads: {100 * reference.low:.1f} to {100 * reference.high:.1f} %",
                "The theorem's assumption of symmetry nearly holds. Its limit is to be believed only where points lead "
                "by a gap that rounding cannot make, and where the updates on text are those that lead there.",
            )
        )
    return findings


def limit_in_words(kind: str, resolution: float, fidelity: float) -> str:
    """The limit of a symmetric head, and whether gap and text support it, in words."""
    if kind != "points":
        return f"its kind is {kind}, not points"
    if not resolution >= RESOLVED:
        return f"points lead by a gap that is only {resolution:.2g} times what rounding could make"
    if np.isnan(fidelity):
        return f"points lead; whether its updates lead there, only text tells ({FEWEST} texts or more)"
    if fidelity < FAITHFUL:
        return f"points lead, but its updates have a cosine of only {fidelity:.2f} with those that lead there"
    return f"points lead, and its updates are those that lead there (cosine {fidelity:.2f}): a believable limit"


def _bottlenecks(weights: Weights) -> list[Finding]:
    findings = []
    advice = (
        "Here attention carries no more directions than this from token to token. What a token itself holds in the "
        "others stays in its residual stream, and other heads and layers may still carry it on."
    )
    ranks, control = weights.each("value_rank"), weights.control.value_rank
    middle, spread = float(np.median(control)), float(control.std())
    for layer, head in np.argwhere(ranks < min(LOST_RANK * middle, middle - DEVIATIONS * spread)).tolist():
        rank = float(ranks[layer, head])
        findings.append(
            Finding(
                "value bottleneck",
                _where(layer, head),
                layer,
                head,
                1 - rank / middle,
                f"effective rank of V {rank:.1f} in a head of size {weights.layers[0].eigenvalues.shape[1]}",
                f"random weights of the same shape: {middle:.1f} ± {spread:.1f}",
                advice,
            )
        )
    middle, spread = float(np.median(weights.path_control)), float(weights.path_control.std())
    for layer in np.flatnonzero(weights.path_rank < min(LOST_RANK * middle, middle - DEVIATIONS * spread)).tolist():
        rank = float(weights.path_rank[layer])
        findings.append(
            Finding(
                "value bottleneck",
                f"layer {layer}",
                layer,
                None,
                1 - rank / middle,
                f"effective rank of the whole value path {rank:.0f}",
                f"random weights of the same shape: {middle:.0f} ± {spread:.1f}",
                advice,
            )
        )
    return findings


def _cold_heads(weights: Weights) -> list[Finding]:
    beta = weights.each("beta")
    usual = float(np.median(beta))
    findings = []
    for layer, head in np.argwhere((beta > COLDER * usual) & (beta > 1.5 * weights.beta_control)).tolist():
        value, expected = float(beta[layer, head]), float(weights.beta_control[layer, head])
        findings.append(
            Finding(
                "cold head",
                _where(layer, head),
                layer,
                head,
                1 - usual / value,
                f"β = {value:.0f}, {value / usual:.1f} times the median head ({usual:.0f})",
                f"random factors of the same norms: {expected:.0f}",
                "It looks along few directions; where its κ on text is high too, it picks single tokens.",
            )
        )
    return findings


def from_text(clouds: Clouds, control: Clouds, line: FrostLine | None, control_line: FrostLine | None) -> list[Finding]:
    """Rules about token clouds; none where the texts are too few to resample."""
    findings: list[Finding] = []
    if len(clouds.tokens) < FEWEST:
        return findings
    if line is not None and line.frozen:
        other = "nothing froze" if control_line is None or not control_line.frozen else f"layer {control_line.depth}"
        if control_line is None or line.interval[1] < control_line.interval[0]:
            layers = len(line.share) - 1
            findings.append(
                Finding(
                    "frost line",
                    f"layer {line.depth}",
                    line.depth,
                    None,
                    1 - line.depth / layers,
                    line.describe(),
                    f"random weights: {other}",
                    "Later layers hardly change the cloud; they are the first candidates for pruning or early exit.",
                )
            )
    fidelity, random = clouds.fidelity_argmax.mean(0), control.fidelity_argmax.mean(0)
    # A flat head can match the best token too, when all its values point the same way: it must also look at few.
    attended = clouds.attended.mean(0)
    faithful = (fidelity > FAITHFUL) & (fidelity > random.max() + 0.1) & (attended <= FEW)
    for layer, head in np.argwhere(faithful).tolist():
        findings.append(
            Finding(
                "zero-temperature head",
                _where(layer, head),
                layer,
                head,
                float(fidelity[layer, head]),
                f"its update is that of the best single token: cosine {fidelity[layer, head]:.2f}; it attends to "
                f"{attended[layer, head]:.1f} tokens",
                f"random weights: at most {random.max():.2f}",
                "Frozen in the theory's sense: one token decides, and small changes of the others do nothing.",
            )
        )
    return findings


def from_explanations(shares: Explained, random: Explained, texts: int) -> list[Finding]:
    """Rules about what heads look at; none where the texts are too few."""
    if texts < FEWEST:
        return []
    return [*_mean_field(shares, random), *_outside_the_law(shares, random), *_of_a_place(shares, random)]


def in_order(findings: Iterable[Finding]) -> list[Finding]:
    """The law of the whole model first, then the largest effect first."""
    return sorted(findings, key=lambda finding: (finding.kind != "mean field", -finding.effect))


def _mean_field(shares: Explained, random: Explained) -> list[Finding]:
    """The law, where it explains what the mean of the text does not."""

    def beyond(of: Explained) -> float:
        return float(np.median(of.layers["bridge"] - np.maximum(of.layers["mean"], 0.0)))

    law, mean = shares.layers["bridge"], shares.layers["mean"]
    # NaN, where there is nothing to explain, is no finding.
    if shares.too_short or not (beyond(shares) > BEYOND_MEAN and beyond(shares) > beyond(random) + BEYOND_MEAN):
        return []
    return [
        Finding(
            "mean field",
            f"layers 0 to {len(law) - 1}" if len(law) > 1 else "layer 0",
            0,
            None,
            min(beyond(shares), 1.0),
            f"{in_percent(law)} of what attention does is explained by four tokens (first, last, itself, the best "
            f"other one) and the mean and covariance of the rest; by the mean of the text alone {in_percent(mean)}",
            f"random weights: the mean of the text alone explains {in_percent(random.layers['mean'])}, the law "
            f"{in_percent(random.layers['bridge'])}",
            "What attention does to a text follows from these few numbers, without the matrix of attention: also how "
            "much a layer gathers its tokens, and how it passes on small changes.",
        )
    ]


def _outside_the_law(shares: Explained, random: Explained) -> list[Finding]:
    """Heads that look at something that is neither one of four tokens nor a tilted cloud."""
    left, usual = shares.heads["bridge"], float(np.nanmin(random.heads["bridge"]))
    findings = []
    for layer, head in np.argwhere(left < min(OUTSIDE, usual - 0.1)).tolist():
        share = float(left[layer, head])
        findings.append(
            Finding(
                "head outside the law",
                _where(layer, head),
                layer,
                head,
                min(1 - share, 1.0),
                f"{100 * share:.0f} % of what it does is explained by four tokens and a cloud",
                f"random weights: at least {100 * usual:.0f} %",
                "It looks for something that mean and covariance do not tell, such as several rare tokens at once. "
                "What the law expects of its layer (concentration, growth) leaves this head out.",
            )
        )
    return findings


def _of_a_place(shares: Explained, random: Explained) -> list[Finding]:
    """Heads that look at one place relative to the token that asks."""
    findings = []
    for place in OF_PLACES:
        number = PLACES.index(place)
        paid, most = shares.met[..., number], float(random.met[..., number].max())
        often = shares.paid[..., number] >= PLACED * OFTEN
        for layer, head in np.argwhere((paid >= PLACED) & often & (paid > most + 0.1)).tolist():
            findings.append(
                Finding(
                    "head of a place",
                    _where(layer, head),
                    layer,
                    head,
                    float(paid[layer, head]),
                    f"{WORDS[place]} {paid[layer, head]:.3f}: this share of its attention, where there is such a token",
                    f"random weights: at most {most:.3f}",
                    "It moves what one place holds to another, whatever the tokens are: order is read here, and what "
                    "changes in one word reaches its neighbour.",
                )
            )
    return findings


def from_perturbations(measured: Perturbations, control: Perturbations) -> list[Finding]:
    """The rule about small changes of the input."""
    growth, usual = float(np.median(measured.worst[:, -1])), float(np.median(control.worst[:, -1]))
    if growth < GROWTH or growth < 2 * usual:
        return []
    last = measured.worst.shape[1] - 1
    return [
        Finding(
            "sensitive direction",
            f"layers 0 to {last - 1}",
            0,
            None,
            1 - 1 / growth,
            f"a small change of the embeddings, found by power iteration on {len(measured.worst)} texts, grows "
            f"{growth:.1f} times on its way to the last layer; the worst one at least as much",
            f"random weights: {usual:.1f} times; random changes of this model: {np.median(measured.random[:, -1]):.2f}",
            "An attacker who can choose the change finds this direction; average robustness does not show it.",
        )
    ]


def _where(layer: int, head: int) -> str:
    return f"layer {layer}, head {head}"
