"""Reasons as people read them: plain facts first, kinds of breakage only where no fact explains a text."""

import dataclasses

import numpy as np
import pytest
import torch

from frostline.monitoring.baseline import Baseline
from frostline.monitoring.reasons import BARS, CHANGES, EXPLAINED, USUAL_BAR, Reason
from frostline.monitoring.surface import PARTS
from frostline.monitoring.watch import watch
from tests.encoders import tiny
from tests.monitoring.sentences import fresh

REPEATED = "ice " * 40


@pytest.fixture(scope="module")
def strange(base, folder):
    """Scores of texts of random words and of one that repeats itself."""
    rng = np.random.default_rng(2)
    return base.score(folder, [REPEATED, *(" ".join(rng.choice(tiny.WORDS, 12)) for _ in range(60))])


def test_plain_facts_come_first_and_leave_no_kind_of_breakage(strange):
    assert strange.p_values[0] <= EXPLAINED
    parts = [reason.part for reason in strange.reasons[0]]
    assert parts[:2] == ["repetition", "length"] and "broken" not in parts
    said = " ".join(reason.says for reason in strange.reasons[0])
    assert "most like" not in said and "text:" not in said
    for reasons in strange.reasons:
        kinds = [reason.part in PARTS for reason in reasons]
        assert kinds == sorted(kinds, reverse=True)
        assert not (any(kinds) and any(reason.part == "broken" for reason in reasons))
    assert any(reason.part == "broken" for reasons in strange.reasons for reason in reasons)


def test_a_baseline_without_surfaces_says_what_it_said(base, folder):
    about = {key: value for key, value in base.about.items() if key != "surface"}
    old = Baseline(base.judges, about).score(folder, [REPEATED])
    parts = [reason.part for reason in old.reasons[0]]
    assert "broken" in parts and not set(parts) & set(PARTS)
    assert any("most like" in reason.says for reason in old.reasons[0])


def test_layers_are_said_and_drawn(strange, base):
    """The numbers of a reason about gathering are those of ``observed`` and ``expected``; the picture follows them."""
    clouds, spread = base.judges["full"].clouds, base.judges["full"].spread[2::8].numpy()
    drawn = 0
    for row, reasons in enumerate(strange.reasons):
        for reason in reasons:
            if not reason.picture:
                assert reason.layers == ()
                continue
            assert reason.part == "concentration" and len(reason.picture) == len(clouds)
            assert [layer for layer, _, _ in reason.layers] == list(clouds)
            if "gather" in reason.says:
                drawn += 1
                _, values, usual = map(np.array, zip(*reason.layers, strict=True))
                assert np.allclose(values, strange.observed[row], atol=1e-4)
                assert np.allclose(usual, strange.expected[row], atol=1e-4)
                changes = (values - usual) / spread
                bars = [BARS.index(bar) - USUAL_BAR for bar in reason.picture]
                assert np.allclose(bars, changes.clip(-USUAL_BAR, len(BARS) - 1 - USUAL_BAR), atol=0.51)
                most = changes[np.abs(changes).argmax()]
                assert ("more" if most > 0 else "less") in reason.says
            assert any(words in reason.says for pair in CHANGES.values() for words in pair)
            assert str(reason).endswith(reason.picture) and reason.facts()["picture"] == reason.picture
    assert drawn >= 5


def test_a_watch_says_what_scoring_says(base, live, folder):
    """With a tokenizer the same facts, on whichever side the padding is; without one those about ids."""
    model, tokenizer = live
    texts = [REPEATED, *fresh(3)]
    wanted = [reason.says for reason in base.score(folder, texts).reasons[0] if reason.part in PARTS]
    assert len(wanted) == 2
    for side in ("right", "left"):
        batch = tokenizer(texts, padding=True, return_tensors="pt", padding_side=side)
        for given in (tokenizer, None):
            with watch(model, base, tokenizer=given) as seen, torch.inference_mode():
                model(**batch)
            facts = [reason.says for reason in seen.last.reasons[0] if reason.part in PARTS]
            assert facts == wanted


def test_reasons_of_older_code_still_work():
    reason = Reason("foreign", 3.2, "far")
    assert str(reason) == "foreign (3.2 σ): far"
    assert dataclasses.asdict(reason) == {
        "part": "foreign", "sigma": 3.2, "says": "far", "tokens": (), "layers": (), "picture": "",
    }  # fmt: skip
