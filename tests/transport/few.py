"""Random problems with few atoms: sizes, weights and moves over many magnitudes, both costs."""

import numpy as np

import frostline as fl


def problem(seed):
    """x, y and the keywords of ``fl.wasserstein``."""
    rng = np.random.default_rng([25, seed])
    n, k, d = int(rng.integers(1, 90)) if seed % 5 == 0 else int(rng.integers(1, 20)), int(rng.integers(1, 7)), 0
    metric = "geodesic" if rng.random() < 0.5 else "euclidean"
    d = int(rng.integers(2, 6))
    x, y = rng.standard_normal((n, d)), rng.standard_normal((k, d))
    near = rng.random()
    spread = 10 ** rng.uniform(-13, 0)
    side = 1
    if near < 0.5:
        # Everything moves little; or, on the sphere, to near the antipode.
        side = -1 if metric == "geodesic" and near < 0.25 else 1
        y = fl.sphere.normalise(y) if metric == "geodesic" else y
        atom = rng.integers(0, k, n)
        x = side * y[atom] + spread * x
    if metric == "geodesic":
        x, y = fl.sphere.normalise(x), fl.sphere.normalise(y)
    else:
        size = 10.0 ** rng.uniform(-12, 12)
        x, y = size * x, size * y
    a, b = (weights(rng, len(points)) for points in (x, y))
    if near < 0.1 or 0.25 < near < 0.35:
        # Every atom has the mass of the points near it: nothing has to go far.
        a = rng.integers(1, 1000, n).astype(float)
        b = np.bincount(atom, weights=a, minlength=k)
    p = float(rng.integers(1, 9)) if rng.random() < 0.7 else float(rng.uniform(1, 8))
    if rng.random() < 0.5:
        x, y, a, b = y, x, b, a
    return x, y, {"p": p, "metric": metric, "x_weights": a, "y_weights": b}


def weights(rng, n):
    """Equal ones, usual ones, or such that differ by twenty orders of magnitude."""
    kind = rng.random()
    if kind < 0.1:
        return None
    if kind < 0.2:
        found = rng.integers(1, 9, n)
        return found / found.sum()
    found = 10 ** rng.uniform(-20, 0, n) if kind < 0.5 else rng.dirichlet(np.ones(n))
    return found / found.sum()
