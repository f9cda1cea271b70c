"""``limit.resolution`` vouches for the kind and the period: against spectra of 60 digits."""

import numpy as np
import pytest
from scipy.linalg import block_diag

import frostline as fl
from tests.problems import head_with, jordan, similar, turning
from tests.theory.exact_spectra import SORTS, Case, draw, mistake

HEADS = 3000
RIGHT_AND_RESOLVED = 0.9
"""At least this share of all heads (measured: 0.935), though two of eleven sorts are made to be beyond float64."""


def judged(numbers):
    """Which of the heads are resolved, and what is wrong with the answers that are."""
    resolved, wrong = [], {}
    for number in numbers:
        case = draw(number)
        found = fl.limit(case.head)
        resolved.append(found.resolution > 10)
        said = mistake(case, found) if resolved[-1] else None
        if said is not None:
            wrong[number, case.sort] = f"{said} (resolution {found.resolution:.1g})"
    return np.array(resolved), wrong


def test_no_wrong_answer_is_called_resolved():
    resolved, wrong = judged(range(3 * len(SORTS)))
    assert wrong == {}
    assert resolved.mean() > 0.7


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_wrong_answer_of_three_thousand_is_called_resolved():
    resolved, wrong = judged(range(HEADS))
    assert wrong == {}
    # A rule that calls nothing resolved would be useless.
    assert resolved.mean() > RIGHT_AND_RESOLVED


def test_strong_coupling_is_not_a_jordan_block():
    """Eigenvalues 0, −0.1, −0.2, which rounding of the entries 1e4 may move anywhere: nothing is resolved."""
    V = np.array([[0, 1e4, 0], [0, -0.1, 1e4], [0, 0, -0.2]])
    found = fl.limit(fl.Attention.from_matrices(np.eye(3), V, 1.0))
    assert (found.kind, found.dimension) == ("points", 1)
    assert found.gap == pytest.approx(0.1) and found.resolution < 1
    assert "do not trust it" in found.describe()


def test_what_is_not_resolved_is_said_where_there_is_no_gap():
    """Two eigenvalues that a tolerance calls equal, or rounding: nothing is below, and the words say how sure it is."""
    sure = fl.limit(fl.Attention.from_matrices(np.eye(2), [[1.0, 1.0], [0.0, 1.0]], 1.0))
    assert (sure.kind, sure.gap) == ("defective", np.inf) and "do not trust" not in sure.describe()
    pair = fl.limit(fl.Attention.from_matrices(np.eye(2), [[1.0, -1.0], [1e-13, 1.0]], 1.0))
    assert (pair.kind, pair.gap) == ("rotation", np.inf) and pair.resolution < 10
    assert "do not trust it" in pair.describe()


@pytest.mark.parametrize("exponent", [1, 3, 5, 7, 9])
def test_the_period_is_as_right_as_its_resolution_says(exponent):
    """B = I: |Bᵀx| = 1 and the period is 2π/ω, ω² = bc; rounding of the similarity changes c by some ε."""
    c = 10.0**-exponent
    for seed in range(5):
        rng = np.random.default_rng([exponent, seed])
        head = head_with(similar([[[0.0, 1.0], [-c, 0.0]], [[-1.0]]], rng, condition=10.0), rng, B=np.eye(3))
        found = fl.limit(head)
        error = abs(found.period * np.sqrt(c) / (2 * np.pi) - 1)
        assert found.kind == "rotation" and error <= 1 / found.resolution + 1e-11
        assert found.resolution > 1e-6 * c / np.finfo(float).eps


def test_the_period_of_a_long_thin_orbit_under_a_lopsided_key():
    """x ∝ (cos ωτ, r sin ωτ), |Bᵀx| is a where x is along the first axis and 1 along the second: r = 1e6.

    ∮|Bᵀx|dτ = 4/ω ∫₀^{π/2} √((a²cos² + r²sin²)/(cos² + r²sin²)) dψ: 2π/ω of the second axis, but for a share ~a/r.
    """
    r, a = 1e6, 1e3
    A = np.array([[0.0, -1 / r], [r, 0.0]])
    B = np.diag([a, 1.0])
    found = fl.limit(fl.Attention.from_matrices(B, A @ np.linalg.inv(B), 1.0))
    # With tan ψ = u/r the integrand is √((a² + u²)/(1 + u²))/(1 + u²/r²)/r, smooth in log u.
    u = np.exp(np.linspace(-40, 60, 400_001))
    values = np.sqrt((a**2 + u**2) / (1 + u**2)) / (1 + (u / r) ** 2) / r * u
    assert found.kind == "rotation"
    assert found.period == pytest.approx(4 * np.trapezoid(values, np.log(u)), rel=1e-9)


def test_an_orbit_whose_plane_may_turn_has_an_uncertain_period():
    """|Bᵀx| is 1e-5 in the plane of the orbit and 1 beside it; there a second pair of the same frequency is 1e-6 below:
    rounding turns the plane, and the period is off by twenty times what the gap and the frequency alone allow."""
    small, gap = 1e-5, 1e-6
    A = block_diag(turning(0.0, small), turning(-gap, small), -1.0)
    key = np.diag([small, small, 1.0, 1.0, 1.0])
    key[:2, 2:4] = np.eye(2)
    V = A @ np.linalg.inv(key)
    for seed in range(5):
        Q = np.linalg.qr(np.random.default_rng(seed).standard_normal((5, 5)))[0]
        case = Case("tilting plane", fl.Attention.from_matrices(Q @ key.T @ Q.T, Q @ V @ Q.T, 1.0))
        found = fl.limit(case.head)
        assert found.kind == "rotation" and found.resolution > 10
        assert mistake(case, found) is None


def test_an_eigenvalue_far_below_may_still_be_the_one_that_rounding_moves_past():
    """The next eigenvalue is well-conditioned, and a strongly coupled pair lies lower: the pair decides."""
    low = np.array([[-1.0, 1e12], [0.0, -1.1]])
    V = np.zeros((4, 4))
    V[:2, :2], V[2:, 2:] = np.diag([1e-3, 0.0]), low
    assert fl.limit(fl.Attention.from_matrices(np.eye(4), V, 1.0)).resolution < 10
    V[2, 3] = 1.0
    assert fl.limit(fl.Attention.from_matrices(np.eye(4), V, 1.0)).resolution > 1e9


def test_planted_jordan_blocks_stay_resolved(rng):
    for size in (2, 3):
        found = fl.limit(head_with(similar([jordan(1.0, size), [[0.3]]], rng), rng))
        assert found.kind == "defective" and found.resolution > 100


def test_values_that_cancel_are_known_less_well():
    """V = A·B⁻ᵀ with B of condition number 1e10: A has lost ten digits, and a gap of 1e-8 is not resolved."""
    rng = np.random.default_rng(2)
    frames = [np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2)]
    resolution = {}
    for condition in (1.0, 1e10):
        B = frames[0] @ np.diag([1.0, 1 / np.sqrt(condition), 1 / condition]) @ frames[1]
        V = np.diag([1.0, 1.0 - 1e-8, 0.3]) @ np.linalg.inv(B).T
        resolution[condition] = fl.limit(fl.Attention.from_matrices(B, V, 1.0)).resolution
    # Merged (a tie that rounding explains) or split, nothing finer than 1e-6 is told apart in the second.
    assert resolution[1.0] > 1e4 and fl.limit(fl.Attention.from_matrices(B, V, 1.0)).dimension == 2
