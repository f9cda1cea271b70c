"""Profiles against a plain reference, text by text; padding and batching change nothing."""

import re
from importlib import import_module

import numpy as np
import pytest
import torch

from frostline import monitoring
from frostline.monitoring import profile as profiles
from frostline.monitoring.profile import names, profile


def plain(states, layers):
    """The same numbers of one text without padding, one by one."""
    unit = [x / np.linalg.norm(x, axis=1, keepdims=True) for x in states]
    n = len(unit[0])

    def apart(u, lag):
        return np.mean([u[k] @ u[k + lag] for k in range(n - lag)]) if n > lag else 0.0

    found = [np.log(n), max(apart(unit[0], lag) for lag in range(1, 7))]
    for u in unit:
        mean = u.mean(0)
        length = np.linalg.norm(mean)
        along = u @ mean / length
        pairs = [u[i] @ u[j] for i in range(n) for j in range(n) if i != j]
        usual = np.mean(pairs)
        found += [length, along.std(), along.min(), apart(u, 1) - usual, apart(u, 2) - usual]
        found += [along[0], along[-1], along[-2]]
    assert len(found) == len(names(range(layers + 1)))
    return np.array(found)


@pytest.mark.parametrize("stacked", [True, False])
@pytest.mark.parametrize("short", [True, False])
def test_profiles_are_what_a_plain_loop_gives(monkeypatch, stacked, short):
    """In all four ways of going about it: all layers at once or one by one, with Gram matrices or without."""
    monkeypatch.setattr(profiles, "STACKED", 10**9 if stacked else 0)
    monkeypatch.setattr(profiles, "SHORT", 100 if short else 0)
    rng = np.random.default_rng(0)
    lengths, layers, d = (9, 4, 12, 7), 3, 6
    present = torch.tensor([[place < length for place in range(12)] for length in lengths])
    states = [torch.from_numpy(rng.standard_normal((4, 12, d)) + 0.5) for _ in range(layers + 1)]
    found = profile(states, present)
    for row, length in enumerate(lengths):
        own = [x[row, :length].numpy() for x in states]
        assert np.allclose(found.numbers[row], plain(own, layers), atol=1e-7)
        assert np.allclose(found.means[row], np.concatenate([x.mean(0) for x in own]))
        for part in range(4):
            mine = [place for place in range(length) if place * 4 // length == part]
            for half, cloud in enumerate((2, 3)):
                mean = own[cloud][mine].mean(0)
                expected = mean / np.linalg.norm(mean) / np.sqrt(2)
                assert np.allclose(found.passages[row, part, half * d : (half + 1) * d], expected)


@pytest.mark.parametrize("short", [True, False])
@pytest.mark.parametrize(("length", "places"), [(1, 5), (2, 5), (3, 5), (1, 1), (2, 2)])
def test_texts_of_few_tokens_have_finite_profiles(monkeypatch, length, places, short):
    monkeypatch.setattr(profiles, "SHORT", 100 if short else 0)
    states = [torch.randn(2, places, 4) for _ in range(3)]
    present = torch.zeros(2, places, dtype=torch.bool)
    present[:, :length] = True
    found = profile(states, present)
    assert all(bool(torch.isfinite(part).all()) for part in (found.means, found.numbers, found.passages))


def test_the_way_of_a_text_is_drawn_as_it_is():
    """The docstring of the package names four types and their modules, and the drawing has them in this order."""
    table = re.findall(r"^    (\w+) +(\w+)  +\S", monitoring.__doc__, re.MULTILINE)
    assert len(table) == 4 and re.findall(r"▶ (\w+)", monitoring.__doc__) == [name for name, _ in table]
    for name, module in table:
        assert "tation of a text" in getattr(import_module(f"frostline.monitoring.{module}"), name).__doc__
