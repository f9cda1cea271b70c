"""Every claim holds at its test size, and turns when the system is sabotaged."""

import dataclasses

import numpy as np
import pytest

import frostline as fl
from frostline.errors import BadParameter
from frostline.experiments import setting
from frostline.experiments.catalogue import CLAIMS, chosen
from frostline.experiments.claim import Check, Judgement

ROOT = "frostline.experiments."


def silent(what):
    """Nobody looks at the progress of a test."""


def judged(name, *, size="test", seed=0):
    claim = CLAIMS[name]
    evidence = claim.measure(claim.sizes[size], seed, silent)
    return claim.judge(evidence)


@pytest.fixture(autouse=True)
def nothing_remembered():
    setting.follow.cache_clear()
    yield
    setting.follow.cache_clear()


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_it_holds_and_shows_it(name, seed):
    claim = CLAIMS[name]
    evidence = claim.measure(claim.sizes["test"], seed, silent)
    found = claim.judge(evidence)
    assert found.verdict == "holds", [check for check in found.checks if check.holds is not True]
    assert all(ax.has_data() for ax in claim.draw(evidence).axes)
    assert set(claim.sizes) >= {"test", "full"} and set(claim.seconds) == set(claim.sizes)
    assert min(len(claim.statement), len(claim.reading), len(claim.assumed)) > 60


def flipped(heads, x0, **options):
    """The wrong sign of V."""
    head = fl.Attention.from_matrices(heads.matrices.B, -heads.matrices.V, heads.beta)
    return fl.simulate(head, x0, **options)


def shuffled(heads, x0, **options):
    """Tokens that change places at every kept time: each keeps its weight but not its path."""
    run = fl.simulate(heads, x0, **options)
    rng = np.random.default_rng(0)
    tokens = np.stack([run.tokens[0], *(x[rng.permutation(len(x))] for x in run.tokens[1:])])
    return dataclasses.replace(run, tokens=tokens)


def elsewhere(head):
    """The wrong eigenspace: that of the least eigenvalue."""
    B, V, _, _ = head.matrices
    return fl.limit(fl.Attention.from_matrices(B, -V, head.beta))


def rushed(heads, x0, **options):
    """A time step too long, for the random tokens only."""
    if np.asarray(x0).ndim == 3:
        options["stepper"] = fl.Euler(2.0)
    return fl.simulate(heads, x0, **options)


def pushed(heads, x0, **options):
    """A small push across the limit, which breaks the mirror symmetry."""
    return fl.simulate(heads, fl.sphere.normalise(x0 + np.array([0.0, 0.05])), **options)


def flipped_stack(layers, x0, **options):
    """The wrong sign of V in every layer."""
    heads = [head for layer in layers for head in layer]
    wrong = [[fl.Attention.from_matrices(h.matrices.B, -h.matrices.V, h.beta)] for h in heads]
    return fl.simulate(wrong, x0, **options)


def hasty(n, d):
    """A freezing temperature that is the same in all dimensions, and wrong in most."""
    return 2000.0


def longer(head, x, other, *, times):
    """Clouds that follow the flow for three times as long as they say."""
    found = fl.stability(head, x, other, times=[3 * t for t in times])
    bound = found.bound[0] * np.exp(found.ell * np.array(times))
    return dataclasses.replace(found, times=np.array(times), bound=bound)


@pytest.mark.parametrize(
    ("name", "what", "sabotage"),
    [
        ("zero-temperature-limit", "zero_temperature.limit", elsewhere),
        ("laplace-principle", "setting.simulate", flipped),
        ("theorem", "setting.simulate", flipped),
        ("theorem", "setting.simulate", shuffled),
        ("time-scale", "setting.simulate", flipped),
        ("metastability", "setting.simulate", pushed),
        ("metastability", "setting.simulate", flipped),
        ("terminal-phase", "terminal_phase.simulate", flipped),
        ("subspaces", "subspaces.limit", elsewhere),
        ("subspaces", "subspaces.simulate", flipped),
        ("stability", "wasserstein_stability.stability", longer),
        ("mean-field", "mean_field.simulate", rushed),
        ("finite-tokens", "finite_tokens.freezing", hasty),
        ("asymmetry", "asymmetry.simulate", flipped),
        ("asymmetry", "setting.simulate", flipped),
        ("many-heads", "many_heads.simulate", flipped_stack),
        ("high-dimension", "high_dimension.freezing", hasty),
        ("training", "training.LEARNING_RATE", 0.0),
    ],
)
def test_a_sabotaged_system_turns_the_verdict(monkeypatch, name, what, sabotage):
    monkeypatch.setattr(ROOT + what, sabotage)
    found = judged(name)
    assert found.verdict == "fails", found


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_quick_size_gives_the_same_verdicts(seed):
    found = {
        name: judged(name, size="quick", seed=seed).verdict for name, claim in CLAIMS.items() if "quick" in claim.sizes
    }
    assert set(found.values()) == {"holds"}, found


def test_verdicts():
    def verdict(*holds):
        return Judgement("", [Check("", "", "", one) for one in holds]).verdict

    assert verdict(True, True) == "holds" and verdict(True, None) == "undecided" == verdict()
    assert verdict(True, None, False) == "fails"


def test_names():
    found = [claim.name for claim in chosen(["theorem", "zero-temperature-limit"], "quick")]
    assert found == ["zero-temperature-limit", "theorem"]
    assert len(chosen([], "quick")) == 9 and len(chosen([], "full")) == 14
    with pytest.raises(BadParameter, match="training is measured with --full only"):
        chosen(["training"], "quick")
    with pytest.raises(BadParameter, match=r"no claim 'theorems'; did you mean 'theorem'\?"):
        chosen(["theorems"], "quick")
