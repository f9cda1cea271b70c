"""The right-hand side of eq. 20: intervals of |Bᵀx| against an exact minimiser, and θ' in adversarial clouds."""

import numpy as np
import pytest
from scipy import special

import frostline as fl
from frostline.sphere import unit_rows
from frostline.theory.sides import Sides
from tests.problems import head_with, similar, symmetric, turning
from tests.tolerances import ROUNDING


def exponent(head, x, y, weights):
    """Λ(x) = −log Σ_j w_j e^{−κ|y_j − u|²/2}, by its definition."""
    direction = x @ head.B
    s = np.linalg.norm(direction, axis=1)
    u = direction / s[:, None]
    far = ((u[:, None, :] - y) ** 2).sum(-1)
    return -special.logsumexp(-head.beta * s[:, None] * far / 2, b=weights, axis=1)


def angle_speed(sides, x, velocity):
    """θ' of tokens x that move with this velocity: −⟨ẋ, x_E⟩/(|x_E| sin θ)."""
    inside = x @ sides.basis @ sides.basis.T
    theta = sides.angles(x)
    return -(velocity * inside).sum(1) / (np.linalg.norm(inside, axis=1) * np.sin(theta))


def cloud(rng, d, kind, u):
    """Weighted atoms that make (19) as sharp as can be: near u, at one distance from it, or in two tight groups."""
    n = 40
    if kind == "random":
        return fl.sample.uniform(n, d, seed=rng), rng.dirichlet(np.ones(n))
    v = rng.standard_normal((n, d))
    v = unit_rows(v - (v @ u)[:, None] * u)
    if kind == "two atoms":
        y = np.stack([np.cos(0.3) * u + np.sin(0.3) * v[0], -u])
        return y, np.array([0.1, 0.9])
    angle = np.full((n, 1), 0.2) if kind == "circle" else 0.01 * rng.random((n, 1))
    return np.cos(angle) * u + np.sin(angle) * v, np.full(n, 1 / n)


@pytest.mark.parametrize("d", [2, 3, 5])
def test_the_interval_of_the_key_is_that_of_the_worst_token(rng, d):
    head = head_with(symmetric(np.linspace(-1, 1, d), rng), rng, beta=10.0)
    sides = Sides.of(head)
    e, C = sides.basis[:, 0], head.B @ head.B.T
    for theta in (0.05, 0.7, 1.5):
        # Projected ascent on |x_W| = 1 from many starts, as an independent oracle.
        w = rng.standard_normal((400, d))
        for sign in (1.0, -1.0):
            v = unit_rows(w - (w @ e)[:, None] * e)
            for _ in range(600):
                x = np.cos(theta) * e + np.sin(theta) * v
                push = sign * (x @ C)
                v = v + 0.3 * push / np.linalg.norm(C, 2)
                v = unit_rows(v - (v @ e)[:, None] * e)
            s = np.linalg.norm((np.cos(theta) * e + np.sin(theta) * v) @ head.B, axis=1)
            low, high = (bound[0] for bound in sides.speeds(np.array([theta]), np.array([theta])))
            sharp, bound = (s.max(), high) if sign > 0 else (s.min(), low)
            assert sign * bound >= sign * sharp - ROUNDING
            assert bound == pytest.approx(sharp, rel=0.02)


@pytest.mark.parametrize("kind", ["random", "two atoms", "circle", "cap"])
@pytest.mark.parametrize(("spectrum", "d"), [("symmetric", 2), ("symmetric", 5), ("subspace", 3), ("normal", 4)])
def test_no_token_turns_away_faster(rng, d, kind, spectrum):
    for _ in range(5):
        values = np.sort(rng.uniform(-1, 1, d))
        if spectrum == "subspace":
            values[-2] = values[-1]
        A = symmetric(values, rng)
        if spectrum == "normal":
            # A pair 0.1 ± 0.5i below a real eigenvalue 1.
            axes = np.linalg.qr(rng.standard_normal((d, d)))[0]
            A = (
                axes
                @ np.block(
                    [
                        [np.eye(1), np.zeros((1, d - 1))],
                        [np.zeros((2, 1)), turning(0.1, 0.5), np.zeros((2, d - 3))],
                        [np.zeros((d - 3, 3)), -0.5 * np.eye(d - 3)],
                    ]
                )
                @ axes.T
            )
        head = head_with(A, rng, beta=10 ** rng.uniform(1, 3))
        sides = Sides.of(head)
        x = fl.sample.uniform(30, d, seed=rng)
        u = unit_rows(x @ head.B)[0]
        y, w = cloud(rng, d, kind, u)
        push = fl.mean_map(head, x, sources=y, weights=w) @ head.V.T
        velocity = push - (push * x).sum(1, keepdims=True) * x
        theta = sides.angles(x)
        spent = exponent(head, x, y, w)
        speed = angle_speed(sides, x, velocity)
        assert (speed <= sides.rate(theta, theta, spent) + ROUNDING).all()
        s = np.linalg.norm(x @ head.B, axis=1)
        sharper = sides.rate(theta, theta, spent, speeds=(s, s))
        assert (speed <= sharper + ROUNDING).all()
        assert (sharper <= sides.rate(0.9 * theta, np.minimum(1.1 * theta, np.pi / 2), spent) + ROUNDING).all()


def test_one_atom_makes_it_an_equality():
    """All mass at one place y near u, turned away from E: Λ = κ|y−u|²/2 exactly, and (20) is sharp to 1e-3."""
    head = fl.Attention.from_matrices(0.5 * np.diag([1.0, 0.99]), 2 * np.eye(2), beta=100.0)
    sides, theta = Sides.of(head), np.array([0.2, 0.8, 1.3])
    x = np.stack([np.cos(theta), np.sin(theta)], 1)
    s = np.linalg.norm(x @ head.B, axis=1)
    turn = np.arctan2(*(x @ head.B).T[::-1]) + 0.05
    y = np.stack([np.cos(turn), np.sin(turn)], 1)
    for k in range(3):
        push = y[k : k + 1] @ head.V.T
        speed = angle_speed(sides, x[k : k + 1], push - (push * x[k]).sum() * x[k])
        spent = exponent(head, x[k : k + 1], y[k : k + 1], np.ones(1))
        bound = sides.rate(theta[k : k + 1], theta[k : k + 1], spent, speeds=(s[k : k + 1], s[k : k + 1]))
        assert speed[0] <= bound[0] <= speed[0] + 1e-3


def test_heads_without_sides_are_refused(rng):
    straight = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.eye(2), 10.0)
    slanted = head_with(similar([np.diag([1.0, 0.3, 0.1])], rng), rng)
    for heads, words in (
        ([[straight, straight]], "one head"),
        (fl.Attention.from_matrices(np.eye(2), np.eye(2), 10.0, key_bias=[0.1, 0.0]), "key bias"),
        (slanted, "does not reduce"),
        (fl.Attention.from_matrices(np.eye(2), np.eye(2), 10.0), "no gap"),
        (fl.Attention.from_matrices(np.eye(2), [[0.0, -1.0], [1.0, 0.0]], 10.0), "rotation"),
    ):
        with pytest.raises(fl.errors.FrostlineError, match=words):
            Sides.of(heads)
