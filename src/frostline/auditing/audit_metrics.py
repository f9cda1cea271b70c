"""The single numbers of an audit, which thresholds and sweeps name."""

from collections.abc import Mapping, Sequence

import numpy as np

from frostline.auditing.controls import Measured
from frostline.auditing.findings import Finding
from frostline.auditing.weights import Weights
from frostline.encoders.load import Encoder

MEDIANS = ("bridge", "neighbours", "token")
"""Descriptions of attention whose median share explained, over the layers, is a number of its own."""


def metrics_of(
    encoder: Encoder,
    spectra: Weights,
    measured: Measured | None,
    controls: Mapping[str, Measured],
    findings: Sequence[Finding],
) -> dict[str, float]:
    """The numbers by name, in the order of the three lists."""
    beta = spectra.each("beta")
    kinds = spectra.kinds
    metrics = {
        "layers": float(encoder.layers),
        "beta_median": float(np.median(beta)),
        "beta_max": float(beta.max()),
        "rotating_share": sum(kind in ("rotation", "mixed") for kind in kinds) / len(kinds),
        "asymmetry_median": float(np.median(spectra.each("asymmetry"))),
        "symmetry_score_median": float(np.median(spectra.score)),
        "value_rank_smallest_share": float(spectra.each("value_rank").min() / np.median(spectra.control.value_rank)),
        "findings": float(len(findings)),
        "bottlenecks": float(sum(finding.kind == "value bottleneck" for finding in findings)),
    }
    if measured is not None:
        clouds = measured.clouds
        shares = measured.explained.layers
        metrics |= {
            "explained_bridge_smallest": float(np.min(shares["bridge"])),
            **{f"explained_{name}_median": float(np.median(shares[name])) for name in MEDIANS},
            "resultant_error_largest": float(np.abs(clouds.sums.resultant_expected - clouds.observed).mean(0).max()),
            "kappa_median": float(np.median(clouds.kappa)),
            "perplexity_median": float(np.median(clouds.perplexity)),
            "fidelity_full_median": float(np.median(clouds.layer_fidelity_full.mean(0))),
            "fidelity_argmax_median": float(np.median(clouds.layer_fidelity_argmax.mean(0))),
            "fidelity_argmax_random": float(np.median(controls["random weights"].clouds.layer_fidelity_argmax.mean(0))),
            "step_median": float(np.median(clouds.step)),
            "cosine_first": float(clouds.cosine[:, 0].mean()),
            "cosine_last": float(clouds.cosine[:, -1].mean()),
        }
        if measured.line is not None:
            metrics["frost_line"] = float(measured.line.depth)
        if measured.perturbations is not None:
            metrics["random_growth"] = float(np.median(measured.perturbations.random[:, -1]))
            metrics["worst_growth"] = float(np.median(measured.perturbations.worst[:, -1]))
    return metrics
