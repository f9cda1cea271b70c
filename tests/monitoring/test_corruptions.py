"""Broken copies: changed, the same for the same seed, and made of any text at all."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from frostline.monitoring.corruptions import corrupted, corruptions
from tests.encoders import tiny
from tests.monitoring.sentences import sentences


class Words:
    """One token per word."""

    def __call__(self, text, add_special_tokens=True):
        return {"input_ids": [tiny.WORDS.index(word) for word in text.split() if word in tiny.WORDS]}


TEXTS = sentences(60, seed=0)
KINDS = corruptions(TEXTS, Words(), torch.randn(40, 8, generator=torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("name", KINDS)
def test_copies_are_broken_and_reproducible(name):
    long = [text for text in TEXTS if len(text.split()) > 5]
    copies = corrupted(long, KINDS[name], seed=3)
    assert copies == corrupted(long, KINDS[name], seed=3) != corrupted(long, KINDS[name], seed=4)
    assert np.mean([one != other for one, other in zip(copies, long, strict=True)]) > 0.8
    assert corrupted(long[:2], KINDS[name], seed=3) == copies[:2]


@pytest.mark.parametrize("name", KINDS)
@given(st.text(max_size=40), st.integers(0, 99))
def test_any_text_can_be_broken(name, text, seed):
    assert isinstance(KINDS[name](text, np.random.default_rng(seed)), str)


def test_what_each_kind_does():
    rng = np.random.default_rng(0)
    text = "the head of a layer sees the ice and the water and the ground below it"
    assert sorted(KINDS["shuffled"](text, rng).split()) == sorted(text.split())
    assert KINDS["homoglyphs"](text, rng) != text and len(KINDS["homoglyphs"](text, rng)) == len(text)
    assert text.startswith(KINDS["truncated"](text, rng))
    assert len(KINDS["repeated"](text, rng).split()) > len(text.split())
    assert len(KINDS["dropped"](text, rng).split()) < len(text.split())
    assert len(KINDS["injected"](text, rng)) > len(text) + 20
    known = {word for each in TEXTS for word in each.split()} | set(text.split())
    for kind in ("substituted", "paraphrased"):
        assert set(KINDS[kind](text, rng).split()) <= known
