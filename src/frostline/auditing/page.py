"""An audit as a page for people, and as a few lines for a model card."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from matplotlib.figure import Figure

from frostline import plot
from frostline.auditing import figures
from frostline.auditing.audit import Audit
from frostline.auditing.findings import Finding
from frostline.auditing.weights import Range
from frostline.encoders.model_folders import short_name
from frostline.report.html import cell, figure_section, render, table_section

READINGS = {
    "concentration": (
        "Token clouds through depth",
        "Left: the length of the mean token, 0 when tokens point everywhere and 1 when all are one; the band holds "
        "the middle 80 % of the texts. Right: W₂ from each cloud to the last one, as a share of that from the input; "
        "the frost line is where it stays below the dotted line, and at the last cloud nothing froze before the end. "
        "Dotted and dashed: the same architecture with random weights, and the same tokens in another order, each on "
        "64 of the texts.",
    ),
    "law": (
        "What it takes to say what attention does",
        "Share explained: 1 − Σ|update − predicted update|² / Σ|update − usual update|², over all tokens; the usual "
        "update is that of v̄, the mean value over the inner tokens of the reference, through the output matrix. Left: "
        "a line per layer (light: first, dark: last), from zero temperature (the best token alone) through the mean of "
        "the text and a cloud of known mean and covariance, tilted by the query, to the law: the first token, the "
        "last, the token itself, the best other one, and a Gaussian cloud cut there; at the right end, the same with a "
        "cloud that has the mean and deviation of the tokens without the best one. Shares below −0.5 are drawn at "
        "−0.5: such a description is worse than the usual update. With random weights the mean of the text explains "
        "nearly everything: there is nothing for a law to do. Right: the law, and the same without the tilt or without "
        "the cloud.",
    ),
    "expected": (
        "Concentration, expected against observed",
        "Left: the resultant length after each attention half (the feed-forward half comes later), as it is and as the "
        "law has it; thin lines: if every head attended to its best token only, or to the best point of a sphere full "
        "of tokens. Right: how far the covariance of the tokens after the attention half is from the law's, over its "
        "norm, beside how far attention has moved it.",
    ),
    "changes": (
        "How far a small change travels",
        "Left: a small change of the input embeddings, random or the worst that power iteration finds, on the sphere "
        "at each cloud, relative to its size in the first. Below 1 it shrinks. The vertical line is the frost line. "
        "Right: growth of a random change by each whole layer, and by its attention half alone: as it is, by the law, "
        "and at zero temperature.",
    ),
    "maps": (
        "Heads",
        "A row per layer, a column per head. What it pays most to: the kind of token with the largest share of the "
        "attention, and that share in percent (Heads in words, below, says it in words). σ/σ_N: below 1 the cloud of a "
        "query's other tokens is tilted, above 1 a few of them rule it (frozen). The map VΣBᵀ of a warm head: above 0 "
        "it spreads the cloud of a text's tokens, below 0 it gathers it (per layer, as a share of its width). Points "
        "or a subspace: tokens gather; a rotation: VBᵀ leads with a complex pair and gathers nothing; kernel: nothing "
        "it writes leads. β is the largest inverse temperature a head can have, κ what it has on these texts. A rank "
        "share well below 1 says that attention writes few directions there.",
    ),
    "spectra": (
        "Spectra",
        "Each dot is an eigenvalue of a head, light for the first layer, dark for the last. Left: A = VBᵀ, which "
        "decides where tokens gather, over random heads of the same shape (grey). Right: V, which rules the terminal "
        "phase: what is far to the right grows.",
    ),
}
"""Title of each figure, and how to read it."""
SHOWN = 40
"""Findings on the page, at most."""
ON_CARD = 10
"""Findings on a model card, at most."""
MEANINGS = (
    "beta: ‖B‖₂, the largest inverse temperature; beta_random: that of random factors of the same norms. kind: what "
    "leads in A = VBᵀ; leading_real, leading_imag: that eigenvalue of A/‖A‖. logit_rank, value_rank: effective ranks "
    "of B and V; stable ranks: ‖·‖² in Frobenius over spectral norm. gap: lead over the next eigenvalue; resolution: "
    "how many times larger than rounding of the weights a change has to be that makes the kind another (trusted from "
    "10). symmetric_share: of ‖A‖², in its symmetric part; asymmetry: ‖A − Aᵀ‖/2‖A‖, 0 symmetric, 0.71 random, 1 "
    "antisymmetric; non_normality: 0 when eigenvectors are orthogonal, 1 at most. rate: of concentration per layer at "
    "zero temperature (pre-norm models: for tokens of norm √d, with text for those measured); layers_for_tenfold: "
    "depth for a factor ten. value_norm, value_kind, value_leading: the same of V, which rules the terminal phase. "
    "kappa: inverse temperature on the text. role: the kind of token that gets most attention, where there is such a "
    "token. paid_: attention paid to the first token, the last, itself, the neighbours, the same token elsewhere, the "
    "best of the others, the rest (the cloud); they add up to one. explained_: share of the head's deviation from its "
    "usual output explained by the best token, the mean, a tilted cloud, three atoms (first, last, itself) and a "
    "cloud, five (and the neighbours), the law (bridge: four and a cut cloud; matched: a cloud with the moments of the "
    "tokens without the best), and its ablations: flat, the cloud's plain mean; bare, no cloud. sigma: of a query's "
    "logits over the cloud; freezing: over σ_N. weight_participation: Σ of squared weights. warm_: of VΣBᵀ, the map "
    "that a warm head applies, Σ the covariance within texts of the reference: what leads, its eigenvalue, the share "
    "of the variance along it (variance), the cosine with what leads in VBᵀ (alignment), and growth, above 0 where it "
    "spreads the cloud. attended: tokens that a query attends to, its mean over queries and texts; perplexity: the "
    "same over the number that can be seen. fidelity: cosine of the real update with zero temperature."
)
"""Columns of the table of heads."""
ROLE_MEANINGS = (
    "Looks at: the kind of token that gets most of its attention, with its share among the queries that have such a "
    "token, and a second kind where that is less than half. Explained: by the law. Its cloud: what the map VΣBᵀ of a "
    "warm head does to the width of the cloud of a text's tokens (√tr Σ) in one layer, to first order; with random "
    "weights it is {random:.2g} % at most."
)
"""Columns of the table of heads in words."""
METRIC_MEANINGS = (
    "Medians are over heads (beta, asymmetry, kappa, perplexity) or layers (symmetry score, fidelity, step). "
    "rotating_share: heads that lead with a complex pair. value_rank_smallest_share: the smallest effective rank of a "
    "head's V over that of random weights. explained_: share explained, smallest or median over the layers. "
    "resultant_error_largest: of the concentration by the law, the worst layer. fidelity_argmax_random: the same for "
    "random weights. cosine_first, cosine_last: between tokens of a text, at the input and the output. frost_line: the "
    "first cloud that is frozen. random_growth, worst_growth: of a small change of the input."
)
"""Names of the single numbers."""
LAYER_MEANINGS = (
    "rotating_heads: heads whose VBᵀ leads with a complex pair. symmetry_score: of W_QᵀW_K, 1 symmetric, 0 random, −1 "
    "antisymmetric. value_path_rank: effective rank of Σ V_h. size: of what goes past attention, in √d; step: size of "
    "the attention update over it. before, observed, expected: resultant length around the attention half, as it is "
    "and at zero temperature. explained_: as for heads, of the whole layer; low, high: 95 %, texts resampled. "
    "resultant_after: observed; resultant_expected: by the law; error: its mean absolute error per text; deviation: "
    "between texts. covariance_: distance from that after the attention half, over its norm. weight_participation: "
    "mean over the heads. attention_growth, expected_growth: of a random change through the attention half, as it is "
    "and by the law. layer_fidelity: cosine of the whole real update with zero temperature. travelled: mean angle of a "
    "token through the layer. to_previous: W₂ between the clouds before and after. to_limit: W₂ to where the attention "
    "half alone would take the tokens; settled: share of tokens that have such an end. cold_growth: what one "
    "zero-temperature attention half makes of a small change."
)
"""Columns of the table of layers."""
CLOUD_MEANINGS = (
    "Cloud 0 is the input, the last the output. resultant: length of the mean token. cosine: mean over pairs of "
    "tokens. participation: effective number of dimensions. clusters: groups linked by angles below 0.3. to_last: W₂ "
    "to the last cloud; share: of that of the input, with low and high (95 %, texts resampled). radius: largest "
    "distance of a token from the sphere. random_change, worst_change: size of a small change of the input, relative "
    "to cloud 0. _low and _high otherwise: 10 % and 90 % of the texts."
)
"""Columns of the table of clouds."""


def write_audit(path: Path, audit: Audit, drawn: Mapping[str, str] | None = None) -> Path:
    """The page: one HTML file without any request. ``drawn``: its figures as SVG, where somebody has drawn them."""
    if drawn is None:
        drawn = {name: plot.as_svg(figure) for name, figure in drawings(audit).items()}
    return render(
        path,
        "audit.html",
        title=f"{short_name(audit.provenance['model'])}: {audit.provenance['family']}, "
        f"{audit.provenance['layers']} layers, d = {audit.provenance['dimension']}",
        sentence=audit.sentence,
        with_text=bool(len(audit.clouds)),
        findings=audit.findings,
        groups=_grouped(audit.findings[:SHOWN]),
        more=max(0, len(audit.findings) - SHOWN),
        assumptions=audit.assumptions,
        proof=audit.proof.describe(),
        skipped=audit.skipped,
        figures=[
            figure_section(name, READINGS[name][0], f"{READINGS[name][1]} {_notes(audit, name)}".strip(), drawing)
            for name, drawing in drawn.items()
        ],
        tables=[
            _facts("Where this comes from", audit.provenance),
            _facts("Single numbers, as --thresholds reads them", audit.metrics, METRIC_MEANINGS),
            _references(audit),
            *([_roles(audit)] if len(audit.clouds) else []),
            rows_of("Heads, a row per pass" if audit.weights.shared else "Heads", audit.heads, MEANINGS),
            rows_of("Layers", audit.layers, LAYER_MEANINGS),
            *([rows_of("Clouds", audit.clouds, CLOUD_MEANINGS)] if len(audit.clouds) else []),
            *([_unused(audit)] if audit.proof.unused else []),
        ],
    )


def _grouped(findings: Sequence[Finding]) -> list[tuple[str, list[Finding]]]:
    """By kind, the kind with the largest effect first."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.kind, []).append(finding)
    return list(groups.items())


def drawings(audit: Audit) -> dict[str, Figure]:
    """The figures this audit has data for."""
    drawn = {}
    if len(audit.clouds):
        drawn["law"] = figures.law(audit)
        drawn["expected"] = figures.expected(audit)
        drawn["concentration"] = figures.concentration(audit)
        if "random_change" in audit.clouds.column_names:
            drawn["changes"] = figures.changes(audit)
    return drawn | {"maps": figures.maps(audit), "spectra": figures.spectra(audit)}


def model_card(audit: Audit) -> str:
    """Markdown: the sentence, the numbers, the findings and how far to believe them."""
    lines = [
        "## Attention dynamics (frostline audit)",
        "",
        audit.sentence,
        "",
        "| number | value |",
        "|---|---|",
        *(f"| {name} | {cell(value)} |" for name, value in audit.metrics.items()),
        "",
        "Findings:" if audit.findings else "Findings: none.",
        *(
            f"- {finding.kind}, {finding.where}: {finding.evidence} (control: {finding.control})"
            for finding in audit.findings[:ON_CARD]
        ),
        *([f"- and {len(audit.findings) - ON_CARD} more"] if len(audit.findings) > ON_CARD else []),
        "",
        "Assumptions of the theory that do not hold here: "
        + (", ".join(each.what for each in audit.assumptions if not each.holds) or "none")
        + ".",
        "",
        f"Extraction proof: {audit.proof.describe()}. Weights sha256 {audit.provenance['sha256'][:16]}…, frostline "
        f"{audit.provenance['frostline']}.",
    ]
    return "\n".join(lines) + "\n"


def _notes(audit: Audit, name: str) -> str:
    """Conclusions from a figure, in words."""
    return audit.plateau.describe() if name == "concentration" and audit.plateau is not None else ""


def _facts(title: str, facts: Mapping[str, Any], reading: str = "") -> dict[str, Any]:
    return table_section(title, ("", ""), facts.items(), reading)


def _roles(audit: Audit) -> dict[str, Any]:
    """The roles of heads in words, with the few of their numbers that a reader looks for first."""
    rows = [
        (
            f"{head['layer']}, {head['head']}",
            head["role"],
            head["role, random weights"],
            f"{100 * head['explained_bridge']:.0f} %" if np.isfinite(head["explained_bridge"]) else None,
            f"{head['freezing']:.2f}",
            f"{'spreads' if head['warm_growth'] > 0 else 'gathers'} {100 * abs(head['warm_growth']):.2g} %",
            head["warm_kind"],
        )
        for head in audit.heads.to_pylist()
    ]
    columns = ("layer, head", "looks at", "with random weights", "explained", "σ/σN", "its cloud", "VΣBᵀ leads to")
    random = 100 * float(np.abs(audit.heads["warm_growth, random weights"].to_numpy()).max())
    return table_section("Heads in words", columns, rows, ROLE_MEANINGS.format(random=random))


def _references(audit: Audit) -> dict[str, Any]:
    columns = ("", "5 %", "median", "95 %", "random 5 %", "random median", "random 95 %")
    ranges = {name: (Range.of(audit.heads[name].to_numpy()), random) for name, random in audit.references.items()}
    rows = [
        (name, *(number for each in pair for number in (each.low, each.median, each.high)))
        for name, pair in ranges.items()
    ]
    return table_section(
        "Reference ranges: heads of this model against random weights of the same shape",
        columns,
        rows,
        "For each number the 5 %, 50 % and 95 % quantile over the heads, here and for random weights.",
    )


def _unused(audit: Audit) -> dict[str, Any]:
    return table_section(
        "Tensors that the encoder does not use",
        ("tensor",),
        ((name,) for name in audit.proof.unused),
        "They have no place in the family's class: heads of tasks, and buffers that are computed anew. "
        "Those of attention, of layers or of adapters would have been refused.",
    )


def rows_of(title: str, table: pa.Table, reading: str) -> dict[str, Any]:
    """A pyarrow table as a table of a page."""
    return table_section(title, table.column_names, (tuple(row.values()) for row in table.to_pylist()), reading)
