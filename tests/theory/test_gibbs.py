"""Gibbs–Laplace, eq. 19 and 19′, and the growth of −log density, eq. 21: 10⁵ problems that try to break them."""

import mpmath
import numpy as np
import pytest

from frostline.sphere import unit_rows
from frostline.theory import gibbs
from tests.tolerances import ROUNDING

BATCH = 5000
ATOMS = 12


def problems(rng, d):
    """BATCH random problems: x, B, V, u, κ, and weighted atoms of every kind that could make an inequality sharp."""
    x = unit_rows(rng.standard_normal((BATCH, d)))
    B, V = rng.standard_normal((2, BATCH, d, d))
    key = np.einsum("nij,ni->nj", B, x)
    s = np.linalg.norm(key, axis=1)
    u, beta = key / s[:, None], 10 ** rng.uniform(-1, 4, BATCH)
    y = unit_rows(rng.standard_normal((BATCH, ATOMS, d)))
    kind = np.arange(BATCH) % 5
    # Caps around u, near-Diracs, circles at one distance from u, two atoms of very different weight; the rest random.
    width = np.where(kind == 1, 10 ** rng.uniform(-3, 0, BATCH), np.where(kind == 2, 1e-6, 0.0))[:, None, None]
    tight = unit_rows(np.where(kind == 2, 1.0, 0.0)[:, None, None] * y[:, :1] + u[:, None] + width * y)
    across = y - np.einsum("nkd,nd->nk", y, u)[..., None] * u[:, None]
    angle = rng.uniform(0.01, 3, BATCH)[:, None, None]
    circle = np.cos(angle) * u[:, None] + np.sin(angle) * unit_rows(across)
    y = np.where(np.isin(kind, (1, 2))[:, None, None], tight, np.where((kind == 3)[:, None, None], circle, y))
    weights = rng.dirichlet(np.ones(ATOMS), BATCH)
    pair = np.zeros((BATCH, ATOMS))
    pair[:, 0] = 10 ** rng.uniform(-9, -0.1, BATCH)
    pair[:, 1] = 1 - pair[:, 0]
    return x, B, V, s, u, beta, y, np.where((kind == 4)[:, None], pair, weights)


def gibbs_weights(u, kappa, y, weights):
    """h, Λ and π by their definitions, shifted so that nothing underflows."""
    h = kappa[:, None] * ((y - u[:, None]) ** 2).sum(-1) / 2
    with np.errstate(divide="ignore"):
        logs = np.log(weights) - h
    top = logs.max(1, keepdims=True)
    total = np.exp(logs - top).sum(1)
    return h, -(top[:, 0] + np.log(total)), np.exp(logs - top) / total[:, None]


@pytest.mark.parametrize("d", [2, 3, 4, 6])
def test_no_problem_breaks_the_lemmas(d):
    """25,000 problems per d, 10⁵ in all."""
    closest = np.zeros(3)
    for batch in range(5):
        rng = np.random.default_rng([19, d, batch])
        x, B, V, s, u, beta, y, weights = problems(rng, d)
        kappa = beta * s
        h, exponent, pi = gibbs_weights(u, kappa, y, weights)
        room = 1 + ROUNDING
        mean = (pi[..., None] * y).sum(1)
        error, energy = ((mean - u) ** 2).sum(1), (pi * h).sum(1)
        slack = ROUNDING * (1 + exponent)
        assert (error <= room * 2 * energy / kappa + ROUNDING).all()
        assert (energy <= room * exponent + slack).all()
        # A Λ too small by a tenth is found out, by the circles at the latest.
        assert (energy > 0.9 * exponent + slack).any()
        closest[0] = max(closest[0], (error / (2 * exponent / kappa + 1e-9)).max())
        # (21): the divergence of v = P_xVm, exactly, and its bound.
        P = np.eye(d) - x[:, :, None] * x[:, None, :]
        around = y - mean[:, None]
        covariance = np.einsum("nk,nki,nkj->nij", pi, around, around)
        form = np.einsum("nji,njk,nkl->nil", B, P, V)
        stretch = np.maximum(np.linalg.eigvalsh((form + form.mT) / 2)[:, -1], 0.0)
        still = -(d - 1) * np.einsum("ni,nij,nj->n", x, V, mean)
        divergence = still + beta * np.einsum("nij,nji->n", covariance, form)
        bound = still + 2 * stretch / s * exponent
        assert (divergence <= bound + 1e-10 * (1 + np.abs(bound))).all()
        closest[1] = max(closest[1], ((divergence - still) / (2 * stretch / s * exponent + 1e-9)).max())
    # Near equality in all of them: none is far from what is true.
    assert closest[0] > 0.9999 and closest[1] > 0.2


def test_the_divergence_is_that_of_the_field(rng):
    """−(d−1)⟨x,Vm⟩ + β tr(cov BᵀP_xV) against central differences along an orthonormal frame."""
    d = 4
    x, B, V, s, u, beta, y, weights = (part[:20] for part in problems(rng, d))
    beta = np.minimum(beta, 3.0)

    def field(z):
        logits = beta[:, None] * np.einsum("ni,nij,nkj->nk", z, B, y)
        pi = weights * np.exp(logits - logits.max(1, keepdims=True))
        push = np.einsum("nij,nj->ni", V, (pi[..., None] * y).sum(1) / pi.sum(1)[:, None])
        return push - (push * z).sum(1, keepdims=True) * z

    frames = np.linalg.svd(x[:, None, :])[2][:, 1:]
    step, total = 1e-5, np.zeros(20)
    for k in range(d - 1):
        t = frames[:, k]
        slope = (field(unit_rows(x + step * t)) - field(unit_rows(x - step * t))) / (2 * step)
        total += (slope * t).sum(1)
    _, _, pi = gibbs_weights(u, beta * s, y, weights)
    mean = (pi[..., None] * y).sum(1)
    around = y - mean[:, None]
    P = np.eye(d) - x[:, :, None] * x[:, None, :]
    form = np.einsum("nji,njk,nkl->nil", B, P, V)
    covariance = np.einsum("nk,nki,nkj->nij", pi, around, around)
    exact = -(d - 1) * np.einsum("ni,nij,nj->n", x, V, mean) + beta * np.einsum("nij,nji->n", covariance, form)
    assert total == pytest.approx(exact, abs=1e-5)


@pytest.mark.parametrize("kappa", [3.0, 50.0, 2000.0])
@pytest.mark.parametrize("least", [0.5, 1e-2, 1e-5])
def test_a_density_above_a_multiple_of_the_uniform_one_is_bounded_sharply(kappa, least):
    """c·uniform + (1 − c)·(atom at the distance r), d = 3, in closed form: the worst r reaches (19′)."""
    mass = -np.expm1(-2 * kappa) / (2 * kappa)
    a = 1 - (1 / np.tanh(kappa) - 1 / kappa)
    exponent = np.array([-np.log(least * mass)])
    r = np.linspace(1e-3, 2, 100_001)
    atom = (1 - least) * np.exp(-kappa * r**2 / 2)
    total = least * mass + atom
    energy = (least * mass * kappa * a + atom * kappa * r**2 / 2) / total
    angle = 2 * np.arcsin(r / 2)
    error = np.hypot(-least * mass * a - atom * (1 - np.cos(angle)), atom * np.sin(angle)) / total
    most_energy = gibbs.largest_energy(exponent, 3)[0]
    most_error = gibbs.largest_error(exponent, np.array([kappa]), np.array([kappa]), 3)[0] / np.sqrt(kappa)
    assert energy.max() <= most_energy and error.max() <= most_error
    if kappa > 10 and least < 0.1:
        # The uniform part of the error, at most a, is charged in full although it points elsewhere.
        assert energy.max() > 0.98 * most_energy and error.max() > 0.99 * (most_error - a)
        # (19) alone is far from it.
        assert most_energy < 0.85 * exponent[0]


@pytest.mark.parametrize("d", [2, 3, 5])
def test_no_atom_beside_a_multiple_of_the_uniform_density_errs_more(d):
    """The uniform part in quadrature, an atom at every distance: from warm, where (19) rules, to cold."""
    t, weights = np.polynomial.legendre.leggauss(400)
    angle = np.pi * (t + 1) / 2
    law = weights * np.sin(angle) ** (d - 2)
    law /= law.sum()
    r = np.linspace(1e-4, 2, 20_001)
    ratios = []
    for kappa in (1e-3, 0.1, 1.0, 10.0, 100.0):
        for least in (1.0, 0.9, 0.3, 1e-3):
            tilt = law * np.exp(-kappa * (1 - np.cos(angle)))
            mass, along = tilt.sum(), (tilt * (1 - np.cos(angle))).sum()
            atom = (1 - least) * np.exp(-kappa * r**2 / 2)
            turn = 2 * np.arcsin(r / 2)
            error = np.hypot(least * along + atom * (1 - np.cos(turn)), atom * np.sin(turn)) / (least * mass + atom)
            exponent = gibbs.uniform_exponent(np.array([kappa]), d) - np.log(least)
            assert exponent[0] >= -np.log(least * mass)
            bound = gibbs.largest_error(exponent, np.array([kappa]), np.array([kappa]), d)[0] / np.sqrt(kappa)
            assert error.max() <= bound
            ratios.append(error.max() / bound)
    # At κ → 0 the uniform density errs by 1, and √(2Λ/κ) = √2.
    assert max(ratios) > 0.9


@pytest.mark.parametrize("d", [2, 3, 5, 20])
def test_exponents_of_the_uniform_density_are_those_of_mpmath(d):
    kappa = np.array([1e-3, 0.3, 5.0, 80.0, 2e3, 1e5])
    with mpmath.workdps(40):
        nu = mpmath.mpf(d) / 2 - 1
        exact = [
            float(k - mpmath.log(mpmath.gamma(nu + 1) * (2 / k) ** nu * mpmath.besseli(nu, k)))
            for k in map(mpmath.mpf, kappa)
        ]
        means = [float(k * (1 - mpmath.besseli(nu + 1, k) / mpmath.besseli(nu, k))) for k in map(mpmath.mpf, kappa)]
    found = gibbs.uniform_exponent(kappa, d)
    assert (found >= exact).all() and found == pytest.approx(exact, abs=1e-9)
    assert max(means) <= gibbs.mean_energy(d)


def test_the_function_of_lambert_is_rounded_up():
    y = np.array([-300.0, -5.0, 0.0, 1.0, 2.0, 30.0, 1e5, 1e12])
    found = gibbs.lambert_of_exp(y)
    with mpmath.workdps(40):
        for value, exponent in zip(found, y, strict=True):
            w = mpmath.mpf(value)
            assert w + mpmath.log(w) >= exponent
            assert mpmath.almosteq(w + mpmath.log(w), exponent, abs_eps=1e-11, rel_eps=1e-11)
    assert gibbs.lambert_of_exp(np.array([np.inf]))[0] == np.inf
