"""The tables of an audit: a row per head, per layer, per cloud."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from frostline.auditing.controls import Measured
from frostline.auditing.explanations import PLACES
from frostline.auditing.head_roles import roles
from frostline.auditing.warm_maps import alignment, growth_of
from frostline.auditing.weights import Weights
from frostline.encoders.fold import FoldedLayer

SCALE_FREE = (
    "logit_rank",
    "logit_stable_rank",
    "value_rank",
    "value_stable_rank",
    "gap",
    "symmetric_share",
    "asymmetry",
    "non_normality",
)
"""Numbers of a head that do not depend on the norm of its weights."""


def heads_table(
    folds: Sequence[FoldedLayer], spectra: Weights, measured: Measured | None, controls: Mapping[str, Measured]
) -> pa.Table:
    """A row per head."""
    layers, heads = spectra.each("beta").shape
    lead = np.array([[spectra.eigenvalues(i, j)[0] for j in range(heads)] for i in range(layers)])
    lead_V = np.stack([layer.value_eigenvalues[:, 0] for layer in spectra.layers])
    rate = spectra.each("rate")
    if measured is not None:
        # In a pre-norm model the tokens that go past attention have the size that the layers before have given them.
        size = measured.clouds.size.mean(0)
        free = np.array([fold.norm.epsilon is not None for fold in folds])
        # Tokens of size zero have no rate: they are turned at once.
        rate = rate / np.where(free, np.where(size > 0, size, np.nan), 1.0)[:, None]
    columns: dict[str, Any] = {
        "layer": np.repeat(np.arange(layers), heads),
        "head": np.tile(np.arange(heads), layers),
        "beta": spectra.each("beta"),
        "beta_random": spectra.beta_control,
        "kind": [kind for layer in spectra.layers for kind in layer.kind],
        "leading_real": lead.real,
        "leading_imag": np.abs(lead.imag),
        **{name: spectra.each(name) for name in (*SCALE_FREE, "resolution")},
        "rate": rate,
        "layers_for_tenfold": np.log(10) / rate,
        "value_norm": spectra.each("value_norm"),
        "value_kind": [kind for layer in spectra.layers for kind in layer.value_kind],
        "value_leading_real": lead_V.real,
        "value_leading_imag": np.abs(lead_V.imag),
    }
    if measured is not None:
        for name in ("kappa", "perplexity", "attended", "fidelity_full", "fidelity_argmax"):
            columns[name] = getattr(measured.clouds, name).mean(0)
        columns["attended, random weights"] = controls["random weights"].clouds.attended.mean(0)
        columns |= _explained_columns(measured, controls)
        columns |= _warm_columns(spectra, measured, controls)
    return _table(columns)


def _explained_columns(measured: Measured, controls: Mapping[str, Measured]) -> dict[str, Any]:
    """The columns of a head: where it looks, and how much of it each description explains."""
    shares, sums = measured.explained, measured.clouds.sums
    columns: dict[str, Any] = {"role": np.array(roles(shares, sums.freezing.mean(0)))}
    columns |= {f"paid_{place}": shares.paid[..., number] for number, place in enumerate(PLACES)}
    columns |= {f"explained_{name}": share for name, share in shares.heads.items()}
    for name in ("sigma", "freezing", "weight_participation", "weight_participation_expected"):
        columns[name] = getattr(sums, name).mean(0)
    for control, other in controls.items():
        columns[f"role, {control}"] = np.array(roles(other.explained, other.clouds.sums.freezing.mean(0)))
        columns |= {f"explained_{name}, {control}": share for name, share in other.explained.heads.items()}
    return columns


def _warm_columns(spectra: Weights, measured: Measured, controls: Mapping[str, Measured]) -> dict[str, Any]:
    """The map that a head applies where it is warm, and whether what leads in it leads at zero temperature too."""
    warm, random = measured.warm, controls["random weights"]
    pairs = zip(warm.directions, spectra.layers, strict=True)
    aligned = [list(map(alignment, of_layer, layer.leading)) for of_layer, layer in pairs]
    return {
        "warm_kind": [kind for layer in warm.kind for kind in layer],
        "warm_leading_real": warm.leading.real,
        "warm_leading_imag": np.abs(warm.leading.imag),
        "warm_variance": warm.variance,
        "warm_alignment": np.array(aligned),
        "warm_growth": warm.growth,
        "warm_growth, random weights": growth_of(random.layers, random.population),
    }


def layers_table(spectra: Weights, measured: Measured | None, controls: Mapping[str, Measured]) -> pa.Table:
    """A row per layer."""
    beta = spectra.each("beta")
    columns: dict[str, Any] = {
        "layer": np.arange(len(beta)),
        "beta_median": np.median(beta, axis=1),
        "beta_max": beta.max(1),
        "rotating_heads": [sum(kind in ("rotation", "mixed") for kind in layer.kind) for layer in spectra.layers],
        "symmetry_score": spectra.score,
        "value_path_rank": spectra.path_rank,
        "value_path_rank_random": np.full(len(beta), np.median(spectra.path_control)),
    }
    if measured is not None:
        names = ("size", "step", "before", "observed", "expected_full", "expected_argmax", "layer_fidelity_full")
        for name in (*names, "layer_fidelity_argmax", "travelled", "to_previous", "to_limit", "settled"):
            columns[name] = getattr(measured.clouds, name).mean(0)
        columns |= _law_columns(measured)
        for control, other in controls.items():
            for name in ("observed", "layer_fidelity_argmax", "travelled", "to_previous"):
                columns[f"{name}, {control}"] = getattr(other.clouds, name).mean(0)
            columns |= {f"explained_{name}, {control}": share for name, share in other.explained.layers.items()}
        if measured.perturbations is not None:
            columns["attention_growth"] = measured.perturbations.attention.mean(0)
            columns["expected_growth"] = measured.perturbations.law.mean(0)
            columns["cold_growth"] = measured.perturbations.cold.mean(0)
    return _table(columns)


def _law_columns(measured: Measured) -> dict[str, Any]:
    """What each description explains of a layer, and the concentration and the covariance that the law expects."""
    shares, sums, observed = measured.explained, measured.clouds.sums, measured.clouds.observed
    columns: dict[str, Any] = {f"explained_{name}": share for name, share in shares.layers.items()}
    columns |= {"explained_bridge_low": shares.low, "explained_bridge_high": shares.high}
    columns |= {"resultant_after": observed.mean(0), "resultant_expected": sums.resultant_expected.mean(0)}
    columns["resultant_error"] = np.abs(sums.resultant_expected - observed).mean(0)
    columns["resultant_deviation"] = observed.std(0)
    for name in ("covariance_before", "covariance_expected"):
        columns[name] = getattr(sums, name).mean(0)
    for name in ("weight_participation", "weight_participation_expected"):
        columns[name] = getattr(sums, name).mean((0, 2))
    return columns


def clouds_table(measured: Measured | None, controls: Mapping[str, Measured]) -> pa.Table:
    """A row per cloud; none without text."""
    if measured is None:
        return pa.table({"cloud": pa.array([], pa.int64())})
    columns: dict[str, Any] = {"cloud": np.arange(measured.clouds.resultant.shape[1])}
    for name in ("resultant", "cosine", "participation", "clusters", "to_last", "radius"):
        values = getattr(measured.clouds, name)
        columns[name] = values.mean(0)
        if name in ("resultant", "cosine", "participation"):
            columns[f"{name}_low"], columns[f"{name}_high"] = np.quantile(values, [0.1, 0.9], axis=0)
        for control, other in controls.items():
            columns[f"{name}, {control}"] = getattr(other.clouds, name).mean(0)
    for end, each in (("", measured), *((f", {name}", other) for name, other in controls.items())):
        if each.line is not None:
            columns[f"share{end}"] = each.line.share
            columns[f"share_low{end}"], columns[f"share_high{end}"] = each.line.low, each.line.high
        if each.perturbations is not None:
            columns[f"random_change{end}"] = np.median(each.perturbations.random, axis=0)
            columns[f"worst_change{end}"] = np.median(each.perturbations.worst, axis=0)
    return _table(columns)


def _table(columns: Mapping[str, Any]) -> pa.Table:
    return pa.table({name: np.asarray(column).reshape(-1) for name, column in columns.items()})
