"""Cross-fitting: no detector of a fold knows its texts, and no score knows the texts that calibrate it."""

import dataclasses

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.encoders import forward
from frostline.encoders.load import load
from frostline.monitoring import reference_states, token_probes
from frostline.monitoring.baseline import count_calibration_texts
from frostline.monitoring.baseline_content import judge_tensors
from frostline.monitoring.cross_fitting import (
    FOLDS,
    BrokenCopies,
    cross_fit,
    in_fold,
    mean_probes,
    probes_of_folds,
    probes_without_fold,
    side_by_side,
    with_words_of_fold,
)
from frostline.monitoring.detector import PARTS
from frostline.monitoring.learning import Learning
from frostline.monitoring.profile import Profile, profile
from frostline.monitoring.token_probes import Probes
from tests.monitoring.sentences import fresh, sentences

TEXTS, HELD_OUT, OTHERS = np.split(np.array(sentences(130, seed=3)), [64, 90])
NOT_LEARNED = ("standards", "calibration")
"""Beginnings of the names of tensors that a detector of a fold does not have."""


@pytest.fixture(scope="module")
def learn(live, folder):
    """Learning of few texts, each read alone: what is said of a text does not depend on its neighbours in a batch."""
    alone = pytest.MonkeyPatch()
    alone.setattr(reference_states, "batches", lambda tokenized: forward.batches(tokenized, tokens=1))
    # Whether a kind has a probe at all depends on all folds; so few texts leave some kinds out.
    alone.setattr(token_probes, "FEWEST", 2)
    encoder = load(folder)
    yield lambda reference, held_out: Learning(encoder, *live, list(reference), list(held_out), seed=0)
    alone.undo()


@pytest.fixture(scope="module")
def learned(learn):
    return learn(TEXTS, HELD_OUT)


def same(judge, other):
    """For every tensor whether the other judge has the same bits."""
    others = judge_tensors(other)
    return {name: torch.equal(tensor, others[name]) for name, tensor in judge_tensors(judge).items()}


def test_folds_are_a_partition():
    for count in (3, 10, 121):
        folds = torch.stack([in_fold(count, fold) for fold in range(FOLDS)])
        assert (folds.sum(0) == 1).all() and folds.sum(1).max() - folds.sum(1).min() <= 1


@pytest.mark.slow
def test_no_text_of_a_fold_is_known_to_its_detector(learn, learned):
    """Other texts in fold 1: its detector keeps every bit, words and copies and all; others change."""
    reference, own = TEXTS.copy(), in_fold(len(TEXTS), 1).numpy()
    reference[own] = OTHERS[: own.sum()]
    changed, judge = learn(reference, HELD_OUT), learned.judge("full")
    for fold in range(FOLDS):
        (one, texts), (other, others) = learned.unseen("full")[fold], changed.unseen("full")[fold]
        equal = same(dataclasses.replace(judge, detector=one), dataclasses.replace(judge, detector=other))
        equal = {name: bit for name, bit in equal.items() if not name.startswith(NOT_LEARNED)}
        assert set(equal.values()) == {fold == 1}, (fold, equal, one.probes.kinds, other.probes.kinds)
        assert torch.equal(texts.means, others.means) == (fold != 1)


@pytest.mark.slow
def test_no_score_knows_the_texts_that_calibrate_it(learn, learned):
    """Other held-out texts: not a bit of the detectors changes. In another order: the same scores, up to rounding.

    So held-out texts and a new one of the same source are exchangeable, which is all that a conformal p-value needs.
    """
    replaced, turned = learn(TEXTS, OTHERS[: len(HELD_OUT)]), learn(TEXTS, HELD_OUT[::-1])
    for level in ("full", "light"):
        judge = learned.judge(level)
        equal = same(judge, turned.judge(level))
        assert [name for name, bit in equal.items() if not bit] in ([], ["calibration.table"])
        assert torch.allclose(judge.conformal.table, turned.judge(level).conformal.table, rtol=1e-5)
        equal = same(judge, replaced.judge(level))
        assert [name for name, bit in equal.items() if not bit] == ["calibration.table"]


def test_a_detector_is_learned_from_other_folds():
    """Profiles of noise. Numbers of one fold and of its copies change: its detector does not, all others do."""
    generator = torch.Generator().manual_seed(2)

    def drawn(count):
        numbers = torch.rand(count, 2 + 8, generator=generator) + torch.tensor([2.0] + 9 * [0.1])
        passages = torch.nn.functional.normalize(torch.randn(count, 4, 6, generator=generator), dim=2)
        return Profile(torch.randn(count, 3, generator=generator), numbers, passages, torch.zeros(count, 0))

    def changed(texts, others):
        rows = in_fold(len(texts), 2)[:, None]
        return Profile(
            torch.where(rows, others.means, texts.means),
            torch.where(rows, others.numbers, texts.numbers),
            torch.where(rows[:, None], others.passages, texts.passages),
            texts.words,
        )

    reference, copies = drawn(41), drawn(30)
    probes = [Probes((), torch.zeros(1, 0, 3), torch.zeros(0))] * FOLDS
    before = cross_fit(reference, {"typos": copies}, probes, seed=0)
    after = cross_fit(changed(reference, drawn(41)), {"typos": changed(copies, drawn(30))}, probes, seed=0)
    for fold in range(FOLDS):
        (one, texts), (other, others) = before[fold], after[fold]
        assert torch.equal(texts.numbers, reference.numbers[fold::FOLDS])
        assert torch.equal(texts.numbers, others.numbers) == (fold != 2)
        pairs = [(one.directions.weights, other.directions.weights), (one.codes, other.codes)]
        pairs += [(one.centre, other.centre), (one.whitening, other.whitening), (one.cosines, other.cosines)]
        assert {torch.equal(*pair) for pair in pairs} == {fold == 2}, fold


def test_words_of_a_text_are_scored_by_probes_that_do_not_know_it():
    """Texts read with the probes for all folds side by side, against each text read with those of its fold alone."""
    generator = torch.Generator().manual_seed(0)
    states = torch.randn(2, 9, 5, 6, generator=generator)
    present = torch.ones(9, 5, dtype=torch.bool)
    folds = [
        Probes(("a", "b", "c"), torch.randn(2, 3, 6, generator=generator), torch.randn(3, generator=generator))
        for _ in range(FOLDS)
    ]
    texts = with_words_of_fold(profile(list(states), present, side_by_side(folds)))
    for number in range(9):
        alone = profile(list(states[:, number : number + 1]), present[:1], folds[number % FOLDS])
        assert torch.allclose(texts.words[number], alone.words[0], atol=1e-5)


def test_the_probe_without_a_fold_is_the_mean_of_the_others():
    generator = torch.Generator().manual_seed(1)
    learned = {
        kind: [(torch.randn(12, generator=generator), torch.randn((), generator=generator)) for _ in range(FOLDS)]
        for kind in ("typos", "emoji", "injected")
    }
    learned["emoji"][1] = None  # too few changed tokens in one fold: no probe of this kind at all
    folds = probes_of_folds(learned, clouds=3, dimension=4)
    whole = mean_probes(folds)
    assert whole.kinds == ("typos", "injected") and whole.weights.shape == (3, 2, 4)
    for fold, without in enumerate(probes_without_fold(folds)):
        others = [weights for number, (weights, _) in enumerate(learned["injected"]) if number != fold]
        assert torch.allclose(without.weights[:, 1].flatten(), sum(others) / len(others), atol=1e-6)
        together = (FOLDS - 1) * without.offsets + folds[fold].offsets
        assert torch.allclose(together / FOLDS, whole.offsets, atol=1e-6)
    empty = mean_probes(probes_of_folds({"typos": [None] * FOLDS}, clouds=3, dimension=4))
    assert empty.kinds == () and empty.weights.shape == (3, 0, 4)


def test_a_broken_copy_takes_words_of_its_fold_only(live):
    """Each fold has a word of its own, which no copy of another fold has taken."""
    model, tokenizer = live
    texts = [f"{text} of fold{chr(97 + number % FOLDS)}" for number, text in enumerate(TEXTS)]
    broken_copies = BrokenCopies(texts, tokenizer, model.get_input_embeddings().weight, seed=0)
    for kind in ("spliced", "substituted"):
        copies = broken_copies(kind)
        for number, copy in enumerate(copies):
            other = {f"fold{chr(97 + fold)}" for fold in range(FOLDS) if fold != number % FOLDS}
            assert not other & set(copy.split())
        assert np.mean([copy != text for copy, text in zip(copies, texts, strict=True)]) > 0.8


def test_standards_hold_for_texts_that_were_not_learned_from(base, folder):
    """Parts of 400 fresh texts have mean 0 and spread 1 within .35; by scores of learned texts they would not."""
    parts = base.score(folder, fresh(400)).parts
    for name in PARTS:
        assert abs(parts[name].mean()) < 0.35 and abs(parts[name].std() - 1) < 0.35, name


def test_the_smallest_baseline(folder):
    base = fl.baseline(folder, sentences(500, seed=4))
    assert base.judges["full"].conformal.counts.tolist() == [count_calibration_texts(500)] == [200]
    assert base.about["calibration_texts"] == 200
