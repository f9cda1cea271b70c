"""Every claim holds at its test size, and turns when the system is sabotaged."""

import dataclasses
import functools

import numpy as np
import pytest

import frostline as fl
from frostline.dynamics.circle_mean_field import circle_mean_field
from frostline.errors import BadParameter
from frostline.experiments import setting, staying_runs
from frostline.experiments.claim import Criterion, Judgement
from frostline.experiments.claims import theorem, training
from frostline.experiments.claims.catalogue import CLAIMS, chosen

ROOT = "frostline.experiments."


def silent(what):
    """Nobody looks at the progress of a test."""


def judged(name, *, size="test", seed=0):
    claim = CLAIMS[name]
    evidence = claim.measure(claim.sizes[size], seed, silent)
    return claim.judge(evidence)


@functools.cache
def sound(name):
    """What is measured at the test size with nothing sabotaged."""
    claim = CLAIMS[name]
    return claim.measure(claim.sizes["test"], 0, silent)


@pytest.fixture(autouse=True)
def nothing_remembered():
    remembered = (setting.follow, staying_runs.stay, staying_runs.follow_hypothesis)
    for runs in remembered:
        runs.cache_clear()
    yield
    for runs in remembered:
        runs.cache_clear()


SOFTWARE = {
    "zero-temperature-limit": ["eq. 8 on", "the clock's closed form", "index coupling = W₂"],
    "stability": ["zero temperature"],
    "asymmetry": ["but a period"],
    "theorem": ["what is certified"],
}
"""What cannot fail if frostline computes what it says, and so is no evidence for the claim."""


@pytest.mark.parametrize("name", CLAIMS)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_it_holds_and_shows_it(name, seed):
    claim = CLAIMS[name]
    evidence = sound(name) if seed == 0 else claim.measure(claim.sizes["test"], seed, silent)
    found = claim.judge(evidence)
    assert found.verdict == "holds", [check for check in found.checks if check.holds is not True]
    marked, words = [check.what for check in found.checks if check.software], SOFTWARE.get(name, [])
    assert len(marked) == len(words) and all(word in what for word, what in zip(words, marked, strict=True))
    assert all(ax.has_data() for ax in claim.draw(evidence).axes)
    assert set(claim.sizes) >= {"test", "full"} and set(claim.seconds) == set(claim.sizes)
    assert min(map(len, (claim.prose.statement, claim.prose.reading, claim.prose.assumed))) > 60


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


def warmer(heads, x0, **options):
    """A tenth of the β it says."""
    return fl.simulate(heads.with_beta(heads.beta / 10), x0, **options)


def overrated(head, x, other, *, times):
    """Twice the ℓ there is."""
    found = fl.stability(head, x, other, times=times)
    return dataclasses.replace(found, ell=2 * found.ell, bound=found.bound[0] * np.exp(2 * found.ell * np.array(times)))


def untaught(answers, asked, answer, rng):
    """Answers drawn at random, whatever was to be taught."""
    return training.torch.from_numpy(rng.integers(training.VALUES, size=training.BATCH))


def warmed(head, density, **options):
    """A mean field at a tenth of the β it says."""
    return circle_mean_field(head.with_beta(head.beta / 10), density, **options)


def without_stragglers(head, density, **options):
    """A mean field from which the tokens near ±e₂ are always left out."""
    return circle_mean_field(head, density, **{**options, "reach": 3.0})


def at_rest(head, density, **options):
    """V that prefers nothing."""
    return circle_mean_field(fl.Attention.from_matrices(head.matrices.B, np.eye(2), head.beta), density, **options)


def lonelier(head, density, **options):
    """Λ that grows by two in every unit of time, at every token."""
    for state in circle_mean_field(head, density, **options):
        yield dataclasses.replace(state, exponents=state.exponents + 2 * state.time)


def another_task(answers, asked, answer, rng):
    return asked % training.VALUES


def longer(head, x, other, *, times):
    """Clouds that follow the flow for three times as long as they say."""
    found = fl.stability(head, x, other, times=[3 * t for t in times])
    bound = found.bound[0] * np.exp(found.ell * np.array(times))
    return dataclasses.replace(found, times=np.array(times), bound=bound)


@pytest.mark.parametrize(
    ("name", "what", "sabotage"),
    [
        ("zero-temperature-limit", "claims.zero_temperature.limit", elsewhere),
        ("laplace-principle", "setting.simulate", flipped),
        ("theorem", "setting.simulate", flipped),
        ("theorem", "setting.simulate", shuffled),
        ("time-scale", "setting.simulate", flipped),
        ("metastability", "setting.simulate", pushed),
        ("metastability", "setting.simulate", flipped),
        ("terminal-phase", "claims.terminal_phase.simulate", flipped),
        ("subspaces", "claims.subspaces.limit", elsewhere),
        ("subspaces", "claims.subspaces.simulate", flipped),
        ("stability", "claims.wasserstein_stability.stability", longer),
        ("stability", "claims.wasserstein_stability.stability", overrated),
        ("stability", "claims.wasserstein_stability.simulate", warmer),
        ("mean-field", "claims.mean_field.simulate", rushed),
        ("finite-tokens", "claims.finite_tokens.freezing", hasty),
        *(
            pytest.param("staying", "staying_runs.circle_mean_field", sabotage, marks=pytest.mark.slow)
            for sabotage in (warmed, without_stragglers, at_rest, lonelier)
        ),
        ("asymmetry", "claims.asymmetry.simulate", flipped),
        ("asymmetry", "setting.simulate", flipped),
        ("many-heads", "claims.many_heads.simulate", flipped_stack),
        ("high-dimension", "claims.high_dimension.freezing", hasty),
        ("training", "claims.training.LEARNING_RATE", 0.0),
        ("training", "claims.training.taught", untaught),
        ("training", "claims.training.taught", another_task),
    ],
)
def test_a_sabotaged_system_turns_the_verdict(monkeypatch, name, what, sabotage):
    monkeypatch.setattr(ROOT + what, sabotage)
    found = judged(name)
    assert found.verdict == "fails", found


def test_the_bound_is_judged_from_both_sides(monkeypatch):
    """Eq. 11 with other constants, or with another law for its first term, on the same curves: it fails."""
    claim = CLAIMS["theorem"]
    evidence = sound("theorem")
    right = evidence.numbers["predicted"]

    def refused(**wrong):
        """The checks that fail, or that can no longer be decided."""
        numbers = {**evidence.numbers, **wrong.pop("numbers", {}), "predicted": {**right, **wrong}}
        found = claim.judge(dataclasses.replace(evidence, numbers=numbers))
        against = [check.what for check in found.checks if check.holds is not True]
        assert (found.verdict == "holds") == (not against)
        return against

    assert refused() == []
    for wrong, words in [
        ({"c": 0.0}, "c, from both sides"),
        ({"c": 2 * right["c"]}, "c, from both sides"),
        ({"C": 0.0}, "C, from both sides"),
        ({"C": right["C"] / 2}, "C, from both sides"),
        ({"C": 2 * right["C"]}, "C, from both sides"),
        ({"numbers": {"growth": 2 * evidence.numbers["growth"]}}, "in time: it grows"),
        ({"numbers": {"growth": 0.7 * evidence.numbers["growth"]}}, "in time: it grows"),
    ]:
        assert any(words in what for what in refused(**wrong)), wrong
    # A distance to zero temperature that falls like β^{−1/2} from a smooth start.
    table = evidence.tables["coupling"]
    slower = {**table, "W2": np.array(table["W2"]) * np.sqrt(table["beta"])}
    found = claim.judge(dataclasses.replace(evidence, tables={**evidence.tables, "coupling": slower}))
    assert any("at a fixed time" in check.what for check in found.checks if check.holds is False)
    # Without its logarithm; and 1/β.
    for law in (lambda self, beta=None: self._beta(beta) ** -0.5, lambda self, beta=None: 1 / self._beta(beta)):
        monkeypatch.setattr(theorem.Bound, "amplitude", law)
        assert any("a = √" in what for what in refused())


def test_how_long_clusters_stay_is_judged_on_every_count():
    """Each table of the evidence, changed to what another theory would give: its check fails."""
    claim, evidence = CLAIMS["staying"], sound("staying")

    def refused(table, **changes):
        columns = {name: np.array(column, float) for name, column in evidence.tables[table].items()}
        columns |= {name: change(columns) for name, change in changes.items()}
        found = claim.judge(dataclasses.replace(evidence, tables={**evidence.tables, table: columns}))
        return [check.what for check in found.checks if check.holds is False]

    assert refused("lives") == []
    for words, table, changes in [
        # A time in √β, not log β.
        ("the hand-over", "lives", {"leaves": lambda c: np.sqrt(c["beta"])}),
        ("neither resolution nor range", "lives", {"leaves": lambda c: c["leaves"] + 0.3 * (c["spacing"] == 1.0)}),
        ("neither resolution nor range", "lives", {"leaves": lambda c: c["leaves"] + 0.3 * (c["range"] == 6.0)}),
        ("clusters are held", "lives", {"leaves": lambda c: np.where(np.isnan(c["leaves"]), 20.0, c["leaves"])}),
        ("clusters are held", "lives", {"last": lambda c: c["last"] * (1 + 0.1 * (c["spacing"] == 1.0))}),
        ("stragglers", "lives", {"leaves": lambda c: np.where(c["range"] == 3.0, 21.0, c["leaves"])}),
        ("against βf", "profile", {"predicted": lambda c: 1.2 * c["predicted"]}),
        ("against βf", "profile", {"log_density": lambda c: 0 * c["predicted"]}),
        ("(H): the time", "broken", {"density": lambda c: c["beta"]}),
        ("(H): the time", "broken", {"density": lambda c: np.log(c["beta"]) ** 0.5}),
        ("(H): the time", "broken", {"exponent": lambda c: c["exponent"] * (1 + 0.03 * (c["spacing"] == 1.0))}),
        ("controlled instead", "broken", {"largest": lambda c: c["start"] + 0.02}),
    ]:
        against = refused(table, **changes)
        assert any(words in what for what in against), (words, against)


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
        return Judgement("", [Criterion("", "", "", one) for one in holds]).verdict

    assert verdict(True, True) == "holds" and verdict(True, None) == "undecided" == verdict()
    assert verdict(True, None, False) == "fails"


def test_checks_of_the_software_are_no_evidence():
    """Alone they decide nothing; where one fails, nothing is believed, and a failed claim stays failed."""

    def judged_with(*checks):
        return Judgement("all well", [Criterion("it", "this", "that", holds, software) for holds, software in checks])

    assert judged_with((True, True)).verdict == "undecided"
    assert judged_with((True, False), (True, True)).verdict == "holds"
    broken = judged_with((True, False), (False, True))
    assert broken.verdict == "undecided" and broken.why.startswith("Frostline contradicts itself")
    both = judged_with((False, False), (False, True))
    assert both.verdict == "fails" and both.why.startswith("it: asked this")


def test_names():
    found = [claim.name for claim in chosen(["theorem", "zero-temperature-limit"], "quick")]
    assert found == ["zero-temperature-limit", "theorem"]
    assert len(chosen([], "quick")) == 10 and len(chosen([], "full")) == 15
    with pytest.raises(BadParameter, match="training is measured with --full only"):
        chosen(["training"], "quick")
    with pytest.raises(BadParameter, match=r"no claim 'theorems'; did you mean 'theorem'\?"):
        chosen(["theorems"], "quick")
