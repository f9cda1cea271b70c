"""The protocol of results: frozen, one printable line of at most 200 characters, words, and plain values for JSON."""

import dataclasses
import inspect
import json

import numpy as np
import pytest
import torch

import frostline as fl
from frostline.files.plain_json import plain
from frostline.results import Result
from frostline.sweeping import plan as plans
from frostline.sweeping.driver import Sweep
from tests.encoders import tiny
from tests.monitoring.sentences import fresh, sentences

LINE = 200
ARRAYS = {"mean_map"}
"""Verbs that return arrays."""
INPUTS = {"Attention", "Factored", "Euler", "RK4", "Adaptive", "densities"}
"""Problems and methods, which are given to verbs."""
AT_WORK = {"watch", "wrap"}
"""Verbs whose first result watches a model: it is used, and is no frozen result."""


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Two models whose names are longer than a line."""
    place = tmp_path_factory.mktemp("models")
    tuned = tiny.model("BERT", spread=0.1)
    with torch.no_grad():
        tuned.encoder.layer[1].attention.self.query.weight.mul_(1.5)
    names = [place / ("a-name-that-is-long-" * 10 + end) for end in ("base", "tuned")]
    return tiny.save(tiny.model("BERT", spread=0.1), names[0]), tiny.save(tuned, names[1])


@pytest.fixture(scope="module")
def results(folders, tmp_path_factory):
    """Name of the verb, and everything of ours that it can return."""
    place = tmp_path_factory.mktemp("place")
    folder, tuned = folders
    rng = np.random.default_rng(3)
    head = fl.Attention.from_matrices(np.diag([1.0, 0.5, 0.2]), np.eye(3), beta=100.0)
    turning = fl.Attention.from_matrices(np.eye(2), [[0.0, -1.0], [1.0, 0.0]], 10.0)
    x = fl.sample.uniform(60, 3, seed=0)
    times = np.linspace(0, 6, 25)
    cloud = fl.Cloud(60, [0.5, 0.0, 0.0], np.eye(3) / 4)
    run = fl.simulate(head, x, until=6.0, save_at=times)
    path = fl.zero_temperature(head, x, times=times)
    curve = fl.distance_curve(run)
    betas = np.array([10.0, 30.0, 100.0, 300.0])
    bound = fl.bound(head)
    noisy = [bound(times, beta) * np.exp(0.1 * rng.standard_normal(25)) for beta in betas]
    distance = fl.wasserstein(x, x[::-1] + 0.0, plan=True)
    seen = fl.phases(run)
    plan = plans.parse({"command": "theory", "spec": {"tokens": 5, "dimension": 2, "beta": 1.0, "B": [1.0, 0.5]}})
    swept = Sweep(place / ("runs" * 60), 9, 7, 1, 1, 8, 3.2, "the budget is spent" * 20, plan=plan)
    base = fl.baseline(folder, sentences(520, seed=0))
    base.save(place / "enc.frost")
    model = tiny.model("BERT", spread=0.1)
    watch = fl.watch(model, base, hold=1)
    with watch, torch.inference_mode():
        model(input_ids=torch.randint(5, 40, (2, 9), generator=torch.Generator().manual_seed(0)))
    scores = base.score(folder, [*fresh(5), "ice " * 50])
    return {
        "Attention": [head, turning],
        "Factored": [fl.Factored(np.ones((3, 1)), torch.ones(1, 3))],
        "limit": [fl.limit(head), fl.limit(turning), fl.limit([[head, head]])],
        "zero_temperature": [path],
        "simulate": [run],
        "Trajectory": [run],
        "Euler": [fl.Euler(0.1)],
        "RK4": [fl.RK4(0.1)],
        "Adaptive": [fl.Adaptive()],
        "rates": [fl.rates(head)],
        "bound": [bound],
        "tube": [fl.tube(head.with_beta(1e4)), fl.tube(head.with_beta(1.0))],
        "terminal": [fl.terminal(head), fl.terminal(turning, centre=[1.0, 0.0])],
        "regime": [regime := fl.regime(head, x, until=6.0), *regime.checks],
        "closure": [
            fl.closure(head, x, cloud),
            fl.closure(head, x, fl.Cloud.of(x)),
            fl.closure(head, x, cloud.seen_by(head)),
        ],
        "Cloud": [cloud, fl.Cloud.of(x, x[:2]), cloud.seen_by(head)],
        "warm_limit": [fl.warm_limit(head, cloud), fl.warm_limit(head, fl.Cloud(9, np.zeros(3), np.eye(3) / 3))],
        "moment_flow": [fl.moment_flow(head, cloud, [0.0, 0.1])],
        "certificate": [fl.certificate(run)],
        "phases": [seen, seen.concentration, seen.plateau, seen.terminal, seen.curve],
        "clusters": [fl.clusters(run), fl.clusters(run, at=0.0)],
        "stability": [fl.stability(head, x, fl.sample.uniform(60, 3, seed=1))],
        "laplace": [fl.laplace(head, x, fl.densities.uniform(3)), fl.laplace(head, x, x)],
        "laplace_growth": [fl.laplace_growth(run)],
        "fit": [fl.fit(betas, times, noisy)],
        "wasserstein": [distance, fl.wasserstein(x, fl.sample.uniform(90, 3, seed=4))],
        "Coupling": [distance.plan],
        "sliced": [fl.sliced(x, x)],
        "distance_curve": [curve],
        "densities": [
            fl.densities.vmf([1.0, 0, 0], 5.0),
            fl.densities.from_function(lambda y: 0 * y[:, 0] + 1, np.zeros_like, 3),
        ],
        "Finding": [fl.Finding("cold head", "layer 2, head 5", 2, 5, 0.8, "β = 90", "random: 20", "It picks tokens.")],
        "audit": [audited := fl.audit(folder, fresh(30)), *audited.findings, *audited.assumptions, audited.proof],
        "diff": [fl.diff(folder, tuned)],
        "baseline": [base],
        "load_baseline": [fl.load_baseline(place / "enc.frost")],
        "merge": [base],
        "score": [scores, scores.part(slice(0, 0)), *scores.reasons[-1]],
        "watch": [watch, watch.last],
        "wrap": [watch],
        "sweep": [swept],
        "load_run": [run],
    }


def test_no_verb_and_no_public_class_is_left_out(results):
    public = {name for name in fl.__all__ if callable(getattr(fl, name)) and not inspect.ismodule(getattr(fl, name))}
    classes = {type(one).__name__ for found in results.values() for one in found}
    assert public - ARRAYS <= results.keys() | classes


def test_every_result_is_one_line(results):
    said = {(verb, type(one).__name__): repr(one) for verb, found in results.items() for one in found}
    too_much = {
        name: len(line)
        for name, line in said.items()
        if len(line) > LINE or not line.isprintable() or not line.startswith((f"{name[1]}(", "None"))
    }
    assert not too_much
    assert "520 texts" in said["load_baseline", "Baseline"]


@pytest.fixture(scope="module")
def frozen(results):
    """Every result there is, with its verb: inputs and the watch itself left out."""
    rows = [
        (verb, one) for verb, several in results.items() if verb not in INPUTS for one in several if one is not None
    ]
    return [(verb, one) for verb, one in rows if not (verb in AT_WORK and one is results[verb][0])]


def is_frozen(result):
    """A frozen dataclass, or a named tuple."""
    return isinstance(result, tuple) or (dataclasses.is_dataclass(result) and type(result).__dataclass_params__.frozen)


def test_every_result_is_one_of_ours_and_frozen(frozen):
    strange = {
        f"{verb}: {type(one).__name__}" for verb, one in frozen if not isinstance(one, Result) or not is_frozen(one)
    }
    assert not strange


def test_every_result_says_itself_in_words(frozen):
    words = {f"{verb}: {type(one).__name__}": one.describe() for verb, one in frozen}
    assert not {name for name, text in words.items() if not (isinstance(text, str) and len(text.split()) >= 3)}
    assert not {name for name, text in words.items() if "<frostline" in text or "object at 0x" in text}


def test_every_result_has_plain_values(frozen):
    """As JSON takes them: what comes back from JSON is what went in."""
    for verb, one in frozen:
        facts = plain(one.facts())
        assert facts and json.loads(json.dumps(facts, allow_nan=False)) == facts, f"{verb}: {type(one).__name__}"
