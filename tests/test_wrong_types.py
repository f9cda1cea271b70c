"""Arguments of the wrong type get a sentence too. Run without the tests' type checker, as users run."""

import subprocess
import sys

CODE = r"""
import numpy as np, torch, frostline as fl
from frostline.errors import FrostlineError
I = [[1.0, 0.0], [0.0, 1.0]]
head = fl.Attention.from_matrices(I, I, 1.0)
run = {"tokens": 5, "dimension": 2, "beta": 1.0, "B": I}
import tempfile
nowhere = tempfile.mkdtemp() + "/runs"
calls = {
    "beta as text": lambda: fl.Attention.from_matrices(I, I, "cold"),
    "beta as None": lambda: fl.Attention.from_matrices(I, I, None),
    "B as text": lambda: fl.Attention.from_matrices("B", I, 1.0),
    "B as None": lambda: fl.Attention.from_matrices(None, I, 1.0),
    "ragged V": lambda: fl.Attention.from_matrices(I, [[1.0], [1.0, 2.0]], 1.0),
    "heads as a number": lambda: fl.simulate(7, I, until=1.0),
    "heads as text": lambda: fl.limit("head"),
    "a layer of numbers": lambda: fl.simulate([[1, 2]], I, until=1.0),
    "tokens as None": lambda: fl.simulate(head, None, until=1.0),
    "until as text": lambda: fl.simulate(head, I, until="soon"),
    "save_at as text": lambda: fl.simulate(head, I, until=1.0, save_at="now"),
    "weights as text": lambda: fl.simulate(head, I, until=1.0, weights="equal"),
    "engine as number": lambda: fl.simulate(head, I, until=1.0, engine=3),
    "step as text": lambda: fl.simulate(head, I, until=1.0, stepper=fl.Euler("small")),
    "stepper as text": lambda: fl.simulate(head, I, until=1.0, stepper="euler"),
    "max_steps as text": lambda: fl.simulate(head, I, until=1.0, max_steps="many"),
    "times as text": lambda: fl.zero_temperature(head, I, times="now"),
    "tolerance as text": lambda: fl.limit(head, tolerance="tight"),
    "path tolerance as text": lambda: fl.zero_temperature(head, I, times=[1.0], tolerance="tight"),
    "map tolerance as text": lambda: fl.mean_map(head, I, tolerance="tight"),
    "a stack for the mean map": lambda: fl.mean_map([head], I),
    "n as text": lambda: fl.sample.uniform("ten", 3, seed=0),
    "n as float": lambda: fl.sample.uniform(2.5, 3, seed=0),
    "angle as text": lambda: fl.sample.caps(5, [0, 1], "wide", seed=0),
    "concentration as text": lambda: fl.sample.vmf(5, [0, 1], "high", seed=0),
    "tokens of a path": lambda: fl.plot.tokens(fl.zero_temperature(head, I, times=[1.0])),
    "distance of a path": lambda: fl.plot.distance(fl.zero_temperature(head, I, times=[1.0])),
    "axes for a figure": lambda: fl.plot.save("axes", "stem"),
    "path as number": lambda: fl.load_run(3),
    "a number for a sweep": lambda: fl.sweep(5),
    "half a worker": lambda: fl.sweep({"command": "theory", "spec": {}}, workers=1.5),
    "threads as text": lambda: fl.sweep({"command": "theory", "spec": run}, threads="2"),
    "cluster as a number": lambda: fl.sweep({"command": "theory", "spec": run, "out": nowhere}, cluster=7),
    "a cloud of text": lambda: fl.Cloud("many", [0.0, 0.0], I),
    "a mean as text": lambda: fl.Cloud(5, "mean", I),
    "a covariance as None": lambda: fl.Cloud(5, [0.0, 0.0], None),
    "tokens for a cloud": lambda: fl.Cloud.of(None),
    "an array for a cloud": lambda: fl.closure(head, I, np.eye(2)),
    "queries as text": lambda: fl.closure(head, "x", fl.Cloud(5, [0.0, 0.0], I)),
    "a head as text for a closure": lambda: fl.closure("head", I, fl.Cloud(5, [0.0, 0.0], I)),
    "a list for a warm limit": lambda: fl.warm_limit(head, [1.0, 2.0]),
    "times as text for a moment flow": lambda: fl.moment_flow(head, fl.Cloud(5, [0.0, 0.0], I), "now"),
    "huge beta": lambda: fl.Attention.from_matrices(I, I, 10**400),
    "huge until": lambda: fl.simulate(head, I, until=10**400),
    "huge entry": lambda: fl.Attention.from_matrices([[10**400, 0], [0, 1]], I, 1.0),
    "heads of numbers": lambda: fl.simulate([5], I, until=1.0),
    "engine as list": lambda: fl.simulate(head, I, until=1.0, engine=[]),
    "a class for a stepper": lambda: fl.simulate(head, I, until=1.0, stepper=fl.Euler),
    "negative seed": lambda: fl.sample.uniform(3, 2, seed=-1),
    "seed as text": lambda: fl.sample.uniform(3, 2, seed="x"),
    "too short a step": lambda: fl.simulate(head, I, until=1.0, stepper=fl.Euler(1e-320)),
    "sparse tokens": lambda: fl.simulate(head, torch.eye(2).to_sparse(), until=1.0),
    "antipodal retraction": lambda: fl.sphere.retract([1.0, 0.0], [-1.0, 0.0]),
    "points as text": lambda: fl.wasserstein("x", I),
    "points as None": lambda: fl.wasserstein(None, I),
    "order as a word": lambda: fl.wasserstein(I, I, p="two"),
    "method as list": lambda: fl.wasserstein(I, I, method=[]),
    "metric as list": lambda: fl.wasserstein(I, I, metric=[]),
    "coupling as number": lambda: fl.wasserstein(I, I, coupling=3),
    "seconds as text": lambda: fl.wasserstein(I, I, seconds="long"),
    "tolerance as a word": lambda: fl.wasserstein(I, I, tolerance="t"),
    "masses as text": lambda: fl.wasserstein(I, I, x_weights="w"),
    "huge masses": lambda: fl.wasserstein(I, I, x_weights=[1e308] * 2),
    "high order": lambda: fl.wasserstein(I, I, p=1e3),
    "coupling as a matrix": lambda: fl.wasserstein(I, I, coupling=np.eye(2)),
    "coupling of numbers": lambda: fl.wasserstein(I, I, coupling=(1, 2, 3)),
    "coupling of nothing": lambda: fl.wasserstein(I, I, coupling=(None, None, None)),
    "coupling outside": lambda: fl.wasserstein(I, I, coupling=([0], [9], [1.0])),
    "coupling of other lengths": lambda: fl.wasserstein(I, I, coupling=([0, 1], [0], [1.0])),
    "coupling below zero": lambda: fl.wasserstein(I, I, coupling=([0, 0, 1, 1], [0, 1, 0, 1], [0.6, -0.1, -0.1, 0.6])),
    "metric as an array": lambda: fl.wasserstein(I, I, metric=np.eye(2)),
    "method as an array": lambda: fl.wasserstein(I, I, method=np.eye(2)),
    "sliced in one dimension": lambda: fl.sliced([[1.0]], [[-1.0]]),
    "progress as a number": lambda: fl.distance_curve(fl.simulate(head, I, until=1.0), progress=3),
    "progress of a simulation": lambda: fl.simulate(head, I, until=1.0, progress=3),
    "progress of a recording": lambda: fl.record(fl.read_spec(run | {"until": 1.0}), out=nowhere, progress="x"),
    "a table for a spec": lambda: fl.record(run),
    "a spec of None": lambda: fl.read_spec(None),
    "a key that is a number": lambda: fl.read_spec({1: 2}),
    "overrides as a number": lambda: fl.read_spec(run, 3),
    "a bound at no time": lambda: fl.bound(head)(float("nan")),
    "a bound before the start": lambda: fl.bound(head)([0.0, -1.0]),
    "a bound at a word": lambda: fl.bound(head)("x"),
    "growth of a tube": lambda: fl.tube(head, growth="quick"),
    "a tube from text": lambda: fl.tube(head, start="caps"),
    "a tube for ever": lambda: fl.tube(head, until=float("inf")),
    "curve to a batch": lambda: fl.distance_curve(fl.simulate(head, I, until=1.0), np.stack([I, I])),
    "curve of text": lambda: fl.distance_curve("run"),
    "curve to text": lambda: fl.distance_curve(fl.simulate(head, I, until=1.0), "limit"),
    "certificate of a head": lambda: fl.certificate(head),
    "phases of an array": lambda: fl.phases(np.eye(2)),
    "clusters of None": lambda: fl.clusters(None),
    "clusters at a word": lambda: fl.clusters(fl.simulate(head, I, until=1.0), at="end"),
    "growth of text": lambda: fl.laplace_growth("run"),
    "fit of text": lambda: fl.fit("betas", [0, 1, 2, 3], I),
    "confidence as text": lambda: fl.fit([1, 10, 100], [0, 1, 2, 3], np.ones((3, 4)), confidence="high"),
    "order as text": lambda: fl.bound(head, p="two"),
    "bound of text": lambda: fl.bound("head"),
    "terminal of None": lambda: fl.terminal(None),
    "centre as text": lambda: fl.terminal(head, centre="north"),
    "regime of a number": lambda: fl.regime(3),
    "regime until text": lambda: fl.regime(head, I, until="late"),
    "stability of text": lambda: fl.stability(head, "x", I),
    "a density that is a number": lambda: fl.densities.from_function(3.0, np.zeros_like, 3),
    "a density that is text": lambda: fl.laplace(head, I, "uniform"),
    "laplace of a layer": lambda: fl.laplace([head], I, fl.densities.uniform(2)),
    "a density that vanishes": lambda: fl.sample.nodes(9, 2, log_density=lambda x: x[:, 0] * 0 - np.inf),
}
for name, call in calls.items():
    try:
        call()
    except FrostlineError as error:
        assert str(error).strip(), name
    except Exception as error:
        print(f"{name}: {type(error).__name__}: {error}")
    else:
        print(f"{name}: nothing was raised")
"""


def test_wrong_types_get_a_sentence():
    done = subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True)
    assert done.stdout == ""
