"""How long clusters stay, on the circle: the hand-over against range, resolution, tilt, β and n; and hypothesis (H).

    python -m benchmarks.handover range | push | tilt | long | others | hypothesis | means | tokens

B = diag(1, ½), V = diag(1, 1.5) (for hypothesis V = I). Mean fields take a few seconds a line; n random tokens
until t = 60, a minute a line from n = 1,000 on, ten from 3,000 on. Not part of ``make bench``.
"""

import argparse
from collections.abc import Callable

import numpy as np
from scipy.integrate import RK45
from scipy.special import iv, logsumexp

import frostline as fl
from frostline.dynamics.circle_mean_field import circle_mean_field
from frostline.dynamics.label_panels import NODES
from frostline.dynamics.panel_sums import panel_sums
from frostline.experiments.staying_runs import LEVEL, Stay, follow_hypothesis, stay
from frostline.theory.terminal import hand_over_time
from frostline.transport.atoms import two_atoms

B, V = np.diag([1.0, 0.5]), np.diag([1.0, 1.5])
ATOMS = np.array([[1.0, 0.0], [-1.0, 0.0]])
UNTIL = 60.0
JOINED = 1e-3
"""Tokens nearer than this, in kernel widths, and away from the equator, go on as one."""


def show(name: str, found: Stay) -> None:
    """One line about a run."""
    print(
        f"{name}: least W2 {found.distances.min():.4f}, back at {LEVEL} at t = {found.leaves:.2f}; "
        f"W2 at the end (t = {found.times[-1]:g}) {found.distances[-1]:.3f}, nodes {found.nodes}",
        flush=True,
    )


def ranges() -> None:
    """The symmetric start: range of labels and resolution, separately."""
    for beta in (30.0, 100.0, 200.0, 250.0, 300.0, 1000.0, 3000.0, 10_000.0):
        for reach in (3.0, 4.0, 5.0, 6.0, 8.0, 12.0, 20.0):
            for spacing in (1.0, 0.5, 0.25):
                found = stay(beta, 0.48, until=UNTIL, reach=reach, spacing=spacing)
                show(f"beta {beta:g} range {reach:g} spacing {spacing:g}", found)


def pushes() -> None:
    """The symmetric start: how strong the tilt is."""
    for tilt in (0.48, 0.24, 0.12, 0.06, 0.03, 0.0075):
        for beta in (30.0, 60.0, 100.0, 150.0, 200.0, 240.0, 300.0, 400.0, 500.0, 700.0, 1000.0, 2000.0, 3000.0):
            show(f"tilt {tilt:g} beta {beta:g}", stay(beta, tilt, until=UNTIL))


def tilts() -> None:
    """A start tilted across the limit, too: both separatrices move, and are found by bisection of the labels."""
    for beta in (30.0, 100.0, 200.0, 300.0, 1000.0, 3000.0, 10_000.0):
        for spacing in (1.0, 0.5):
            found = stay(beta, 0.48, along=0.36, until=40.0, spacing=spacing)
            show(f"tilt (.36, .48) beta {beta:g} spacing {spacing:g}", found)
            print(f"    separatrices at x1 = {np.round(found.parting, 6)}", flush=True)


def long_stays() -> None:
    """Until t = 600."""
    for beta in (300.0, 500.0, 1000.0):
        for spacing in (0.5, 0.25):
            show(f"beta {beta:g} spacing {spacing:g}", stay(beta, 0.48, until=600.0, reach=8.0, spacing=spacing))


def hypotheses() -> None:
    """(H): until when −log min ρ ≤ Γt + .5 and Λ ≤ Λ₀ + t + .5; and the mean of e^Λ over tokens."""
    betas = (100.0, 178.0, 300.0, 562.0, 1000.0, 1778.0, 3000.0, 5623.0, 10_000.0, 30_000.0)
    for beta in betas:
        for spacing in (0.5, 0.25) if beta <= 10_000 else (0.5,):
            found = follow_hypothesis(beta, until=min(3 + 0.35 * np.sqrt(beta), 45.0), spacing=spacing)
            print(
                f"beta {beta:g} spacing {spacing:g}: density until {found.density:.2f}, largest Lambda until "
                f"{found.exponent:.2f}; log mean e^Lambda {found.log_means[0]:.3f} at the start, largest later "
                f"{found.log_means[1:].max():.3f}, last {found.log_means[-1]:.3f}",
                flush=True,
            )


def others() -> None:
    """Eight pairs B, V with the tilt (0, .12): the hand-over beside (13)."""
    tilt = 0.12
    for b, v in ((0.5, 1.5), (0.25, 3.0), (0.25, 2.0), (0.8, 1.1), (0.7, 1.2), (0.35, 2.0), (0.5, 1.8), (0.5, 1.2)):
        for beta in (30.0, 100.0):
            head = fl.Attention.from_matrices(np.diag([1.0, b]), np.diag([1.0, v]), beta)
            time = before = leaves = np.nan
            for state in circle_mean_field(head, lambda x: tilt * x[:, 1], until=120.0, mirrored=True, reach=15.0):
                now = np.sqrt(2 * state.weights @ (2 - 2 * state.tokens[:, 0]))
                if before < LEVEL <= now:
                    leaves = time + (state.time - time) * (LEVEL - before) / (now - before)
                    break
                time, before = state.time, now
            predicted = hand_over_time(beta, 1 - b * v, v - 1, float(iv(1, tilt) / iv(0, tilt)))
            print(f"b {b:g} v {v:g} beta {beta:g}: back at t = {leaves:.2f}, (13) {predicted:.2f}", flush=True)


def means() -> None:
    """log ∫ e^Λ dρ along other runs: its start, its largest, its end."""
    for b, v, tilt, beta, until in (
        (0.2, 1.0, (0.0, 0.0), 1000.0, 8.0),
        (0.8, 1.0, (0.0, 0.0), 1000.0, 30.0),
        (0.5, 1.0, (0.0, 2.0), 1000.0, 14.0),
        (0.5, 1.0, (-2.0, 2.0), 300.0, 10.0),
        (0.5, 1.0, (3.0, 0.0), 300.0, 10.0),
        (0.5, 1.5, (0.0, 0.48), 300.0, 40.0),
        (0.5, 1.5, (0.0, 0.48), 1000.0, 40.0),
        (1.0, 0.5, (0.0, 0.48), 300.0, 20.0),
    ):
        head = fl.Attention.from_matrices(np.diag([1.0, b]), np.diag([1.0, v]), beta)
        direction, mirrored = np.array(tilt), tilt[0] == 0
        logs = [
            float(logsumexp(state.exponents, b=state.weights / state.weights.sum()))
            for state in circle_mean_field(head, direction.__rmatmul__, until=until, mirrored=mirrored)
        ]
        print(f"b {b:g} v {v:g} tilt {tilt} beta {beta:g}: {logs[0]:.3f}, {max(logs):.3f}, {logs[-1]:.3f}", flush=True)


def random_tokens_leave(count: int, beta: float, seed: list[int]) -> float:
    """The time at which W₂ of n random tokens is back at LEVEL; NaN when it is not by UNTIL."""
    x = fl.sample.vmf(count, [0.0, 1.0], 0.48, seed=np.random.default_rng(seed))
    angles, weights = np.sort(np.arctan2(x[:, 1], x[:, 0])), np.full(count, 1 / count)
    share = float((np.cos(angles) > 0).mean())

    def speed(time: float, state: np.ndarray) -> np.ndarray:
        order = np.argsort(state, kind="stable")
        padding = -len(order) % NODES
        # Sources come in whole panels: the last token again, with weight zero.
        places = np.concatenate([order, np.repeat(order[-1:], padding)])
        masses = np.concatenate([weights[order], np.zeros(padding)])
        y = np.stack([np.cos(state[places]), np.sin(state[places])], axis=1)
        push = panel_sums(beta * y[: len(order)] @ B, y, state[places], masses)[0] @ V.T
        speeds = np.empty_like(state)
        speeds[order] = y[: len(order), 0] * push[:, 1] - y[: len(order), 1] * push[:, 0]
        return speeds

    def distance() -> float:
        y = np.stack([np.cos(angles), np.sin(angles)], axis=1)
        return two_atoms(y, weights, ATOMS, share)

    time, step, below, before = 0.0, 0.05, False, distance()
    while time < UNTIL:
        solver = RK45(speed, time, angles, UNTIL, first_step=min(step, UNTIL - time), max_step=0.25, rtol=1e-13,
                      atol=3e-3 / np.sqrt(beta))  # fmt: skip
        solver.step()
        last, time, step, angles = time, solver.t, solver.h_abs, np.sort(solver.y)
        now = distance()
        if below and now > LEVEL:
            return last + (time - last) * (LEVEL - before) / (now - before)
        below, before = below or now < LEVEL, now
        close = (np.diff(angles) < JOINED / np.sqrt(beta)) & (np.abs(np.cos(angles[:-1])) > 0.5)
        # Every other pair of a row of close ones.
        first = np.flatnonzero(close & ~np.r_[False, close[:-1]])
        if len(first):
            mass = weights[first] + weights[first + 1]
            angles[first] = (weights[first] * angles[first] + weights[first + 1] * angles[first + 1]) / mass
            weights[first] = mass
            angles, weights = np.delete(angles, first + 1), np.delete(weights, first + 1)
    return np.nan


def tokens() -> None:
    """Medians and quartiles over 20 seeds."""
    for count in (100, 300, 1000, 3000, 10_000):
        for beta in (30.0, 100.0, 300.0, 1000.0, 3000.0):
            times = [random_tokens_leave(count, beta, [29, count, int(beta), seed]) for seed in range(20)]
            late = np.sort(np.where(np.isnan(times), np.inf, times))
            print(
                f"n {count} beta {beta:g}: median {np.median(late):.2f}, quartiles {late[5]:.2f} {late[14]:.2f}, "
                f"not by t = {UNTIL:g}: {int(np.isnan(times).sum())} of 20",
                flush=True,
            )


PARTS: dict[str, Callable[[], None]] = {
    "range": ranges,
    "push": pushes,
    "tilt": tilts,
    "long": long_stays,
    "others": others,
    "means": means,
    "hypothesis": hypotheses,
    "tokens": tokens,
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=PARTS)
    PARTS[parser.parse_args().part]()
