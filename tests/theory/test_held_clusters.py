"""The density of held clusters: every token of it rests."""

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter, NoLimit
from frostline.theory.held_clusters import held_log_density


def push(head, log_density, angles):
    """|P_xVm| at these angles, m by 200,000 equispaced nodes."""
    fine = 2 * np.pi * (np.arange(200_000) + 0.5) / 200_000
    y = np.stack([np.cos(fine), np.sin(fine)], axis=1)
    logs = log_density(y)
    x = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    speeds = []
    for token in x:
        logits = head.beta * y @ (head.matrices.B.T @ token) + logs
        parts = np.exp(logits - logits.max())
        pull = head.matrices.V @ (parts @ y / parts.sum())
        speeds.append(token[0] * pull[1] - token[1] * pull[0])
    return np.array(speeds)


@pytest.mark.parametrize("v", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("turned", [0.0, 0.7])
def test_every_token_rests_up_to_one_over_beta(v, turned):
    """Tokens of a uniform density move at a speed of order one; those of e^{βf} at one of order 1/β."""
    c, s = np.cos(turned), np.sin(turned)
    frame = np.array([[c, -s], [s, c]])
    matrices = [frame @ np.diag(values) @ frame.T for values in ([1.0, 0.5], [1.0, v])]
    angles = np.linspace(-1.0, 1.0, 9) + turned
    sizes = []
    for beta in (1000.0, 10_000.0):
        head = fl.Attention.from_matrices(*matrices, beta)
        sizes.append(np.abs(push(head, held_log_density(head), angles)).max())
        assert np.abs(push(head, lambda y: np.zeros(len(y)), angles)).max() > 0.1
    assert sizes[0] < 0.01 and sizes[0] / sizes[1] == pytest.approx(10, rel=0.1)


def test_close_to_the_limit_it_is_a_gaussian_turned_upside_down():
    """βθ²/8 for B = diag(1, ½), V = diag(1, 1.5): f″ = (λ₁ − λ₂)/v₁ = 1/4."""
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5]), np.diag([1.0, 1.5]), 100.0)
    assert held_log_density(head)(np.array([[np.cos(0.01), np.sin(0.01)]]))[0] == pytest.approx(
        100 * 1e-4 / 8, rel=1e-3
    )


def test_heads_without_such_a_density_are_refused():
    diagonal = fl.Attention.from_matrices
    for head, error in [
        (diagonal(np.eye(3), np.diag([1.0, 0.5, 0.2]), 1.0), BadParameter),
        (diagonal(np.array([[1.0, 0.2], [0.0, 0.5]]), np.eye(2), 1.0), BadParameter),
        (diagonal(np.diag([-1.0, 0.5]), np.diag([-1.0, 1.0]), 1.0), BadParameter),
        (diagonal(np.eye(2), np.eye(2), 1.0), NoLimit),
    ]:
        with pytest.raises(error):
            held_log_density(head)
