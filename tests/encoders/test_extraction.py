"""Every adapter rebuilds logits and head outputs of its family; a wrong fold is noticed."""

import dataclasses

import numpy as np
import pytest

import frostline as fl
from frostline.auditing.freezing import Glass

SCALED = {
    "logits": lambda found: dataclasses.replace(found, logits=1.5 * found.logits),
    "weights": lambda found: dataclasses.replace(found, weights=1.5 * found.weights),
    "values": lambda found: dataclasses.replace(found, offered=1.5 * found.offered),
}


@pytest.mark.parametrize("part", [*SCALED, "update", "outputs"])
def test_what_is_proved_is_what_measures(opened, monkeypatch, part):
    """The pass that measures, scaled by 1.5 at its one place: the audit's own map shows it, and the proof is red."""
    encoder, model, batches = opened
    layers = [folding.folded(encoder, number) for number in range(encoder.layers)]
    u = np.random.default_rng(0).standard_normal((5, 32))
    before = Glass(layers[1]).look(u).seen["real"]
    if part in SCALED:
        right = heads.attend
        monkeypatch.setattr(heads, "attend", lambda *given: SCALED[part](right(*given)))
    else:
        right = getattr(heads, part)
        monkeypatch.setattr(heads, part, lambda *given: 1.5 * right(*given))
    if part in ("weights", "values"):
        assert np.allclose(Glass(layers[1]).look(u).seen["real"], 1.5 * before)
    with pytest.raises(fl.errors.BadModel, match="does not reproduce the model"):
        proof.prove(encoder, layers, model, batches[:1])


def test_kappa_is_the_slope_of_the_logits_that_are_proved(opened):
    """κ = |∂ logit/∂ key token|, and y* is where the logit of a unit vector is largest (eq. 14)."""
    encoder, _, _ = opened
    glass = Glass(folding.folded(encoder, 1))
    rng = np.random.default_rng(1)
    u = rng.standard_normal((40, 32))
    logits = heads.attend(glass.layer, u).logits
    slopes = np.linalg.lstsq(u - u.mean(0), row_free(logits).transpose(2, 0, 1).reshape(40, -1), rcond=None)[0]
    slopes = slopes.reshape(32, encoder.heads, 40).transpose(1, 2, 0)
    look = glass.look(u)
    size = np.linalg.norm(slopes, axis=-1, keepdims=True)
    assert np.allclose(look.kappa, size[..., 0])
    assert np.allclose(look.seen["full support"], slopes / size @ glass.layer.value.transpose(0, 2, 1))
