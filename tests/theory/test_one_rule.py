"""Which directions lead VBᵀ: the theory, the audit, its scenes and the service give the same answer to any head."""

from dataclasses import replace

import numpy as np
import pytest

import frostline as fl
from frostline.encoders.fold import folded
from frostline.encoders.load import load
from frostline.encoders.spectra import Factors, spectra
from frostline.theory.spectrum import dominant_of_product
from tests.encoders import tiny
from tests.problems import jordan, similar

HEADS = 300
DOUBLE = float(np.finfo(np.float64).eps)


def leading(outer, inner):
    """The leading basis of a head with VBᵀ = outer @ inner, as the service takes it."""
    eye = np.eye(*inner.shape)[None]
    (lead,) = Factors(inner[None], eye, eye, outer[None], 1.0).dominant(epsilon=DOUBLE, resolve=False)
    return lead.ends


def answers(query, key, value, output):
    """``fl.limit`` of the d×d matrices, and basis and kind by the audit and the service from the factors."""
    limit = fl.limit(fl.Attention.from_matrices(query.T @ key, output @ value, 1.0))
    factors = Factors(*(part[None] for part in (query, key, value, output)), 1.0)
    (service,) = factors.dominant(epsilon=DOUBLE, resolve=False)
    return limit, spectra(factors), service.ends


def same_space(one, other):
    """Two orthonormal bases (columns) span the same space."""
    return one.shape == other.shape and np.abs(one @ one.T - other @ other.T).max() < 1e-6


def test_random_heads():
    """300 heads of many shapes; the service answers as the limit does, the audit as far as float32 weights can tell."""
    kinds = set()
    for number in range(HEADS):
        rng = np.random.default_rng([25, number])
        d = int(rng.integers(3, 24))
        k = int(rng.integers(1, d))
        query, key, value, output = (rng.standard_normal(shape) for shape in [(k, d)] * 3 + [(d, k)])
        limit, audit, service = answers(query, key, value, output)
        A = output @ value @ key.T @ query
        norm = np.linalg.norm(A, 2)
        if np.linalg.eigvals(query @ output @ value @ key.T).real.max() < 0:
            # E is the kernel of A, and no token is drawn anywhere.
            assert limit.kind in ("points", "subspace") and limit.dimension == d - k
            assert service.shape == (d, 0) and audit.kind == ("kernel",)
        else:
            assert same_space(limit.basis.T, service)
        kinds.add(audit.kind[0])
        if audit.kind == ("kernel",):
            assert limit.leading.real < 1e-3 * norm and audit.leading[0].shape == (d, 0)
            continue
        assert audit.kind == (limit.kind,) and same_space(limit.basis.T, audit.leading[0])
        assert audit.gap[0] * norm == pytest.approx(limit.gap, rel=1e-6)
    assert kinds == {"points", "rotation", "kernel"}


@pytest.mark.parametrize(
    "A",
    [
        np.diag([-2.0, 1.0, 0.3]),
        np.diag([1.0, 1.0, 0.3]),
        np.array([[0.5, -3.0, 0], [3.0, 0.5, 0], [0, 0, 0.4]]),
        np.array([[0.5, -3.0, 0], [3.0, 0.5, 0], [0, 0, 0.6]]),
        jordan(0.7, 3),
    ],
    ids=["larger |λ| below", "tie", "pair", "pair below", "Jordan block"],
)
@pytest.mark.parametrize("d", [3, 4, 9, 40])
def test_planted_heads(A, d):
    """VBᵀ is similar to A, and zero beyond three dimensions."""
    rng = np.random.default_rng(d)
    outer = rng.standard_normal((d, 3))
    inner = similar([A], rng, condition=3.0) @ np.linalg.pinv(outer)
    limit = fl.limit(fl.Attention.from_matrices(np.eye(d), outer @ inner, 1.0))
    found = dominant_of_product(outer, inner, epsilon=2.3e-16)
    assert found.kind == limit.kind and found.gap == pytest.approx(limit.gap, abs=1e-9)
    assert same_space(found.ends, limit.basis.T)
    assert same_space(leading(outer, inner), limit.basis.T)
    assert (found.resolution > 10) == (limit.resolution > 10)


def test_the_example_of_the_mistake():
    """diag(−2, 1, 0.3): tokens go to ±e₂, though −2 is the largest in size."""
    assert np.abs(leading(np.eye(3), np.diag([-2.0, 1.0, 0.3]))[:, 0]) == pytest.approx([0, 1, 0])


def test_factors_that_are_dead_or_lose_rank():
    assert leading(np.zeros((5, 2)), np.zeros((2, 5))).shape == (5, 0)
    outer = np.random.default_rng(0).standard_normal((6, 1)) @ np.ones((1, 3))
    lead = leading(outer, np.linalg.pinv(outer))
    assert same_space(lead, outer[:, :1] / np.linalg.norm(outer[:, 0]))
    assert leading(outer, -np.linalg.pinv(outer)).shape == (6, 0)


def test_scenes_look_along_what_leads_the_sum_of_heads():
    layer = folded(load(tiny.model("BERT")), 0)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        names = ("query", "key", "value", "output")
        drawn = replace(layer, **{name: rng.standard_normal(getattr(layer, name).shape) for name in names})
        total = np.asarray(sum(head.beta * head.matrices.A for head in drawn.heads()))
        limit = fl.limit(fl.Attention.from_matrices(np.eye(len(total)), total, 1.0))
        found = Factors.of(drawn).leading_of_sum(3)
        assert found.T @ found == pytest.approx(np.eye(3), abs=1e-9)
        assert same_space(found[:, : limit.dimension], limit.basis.T)
