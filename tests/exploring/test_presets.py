"""Presets show what their words say: every number in them, and every phase, is looked for."""

import numpy as np
import pytest

from frostline.exploring.address import read, to_spec
from frostline.exploring.frames import show
from frostline.exploring.messages import unpack
from frostline.exploring.presets import PRESETS

BY_NAME = {preset.name: preset for preset in PRESETS}


class Seen:
    """A preset, played: W at each time, the last frame's facts, the last phases."""

    def __init__(self, name, **changed):
        self.times, self.w, self.phases, self.heights = [], [], None, []
        asked = read(BY_NAME[name].setting) | {key: str(value) for key, value in changed.items()}
        for message in show(to_spec(asked)):
            for facts, arrays in unpack(message):
                if facts["kind"] == "opening":
                    self.opening, self.start = facts, arrays[0]
                elif facts["kind"] == "frame":
                    self.times.append(facts["t"])
                    self.w.append(facts.get("w", np.nan))
                    self.last, self.end = facts, arrays[0]
                    self.heights.append(float(np.sqrt(((arrays[0][:, -1] / 32767) ** 2).mean())))
                elif facts["kind"] == "phases":
                    self.phases = facts
            # Brackets take seconds, and are tested elsewhere.
            if self.times and len(self.times) == len(self.opening["times"]) and self.phases_are_in(facts):
                return

    def phases_are_in(self, facts):
        return facts["kind"] in ("bracket", "end") or "w" not in self.last or self.phases is not None

    def seen(self, name):
        return bool(self.phases) and self.phases[name]["seen"]

    def at(self, t):
        return self.w[int(np.argmin(np.abs(np.array(self.times) - t)))]

    def height(self, t):
        """Root mean square of the last coordinate."""
        return self.heights[int(np.argmin(np.abs(np.array(self.times) - t)))]

    @property
    def lowest(self):
        k = int(np.argmin(self.w))
        return self.times[k], self.w[k]


def test_every_preset_is_here():
    shown = {name.removeprefix("test_").replace("_", "-") for name in globals() if name.startswith("test_")}
    assert {preset.name for preset in PRESETS} <= shown


def test_first():
    run = Seen("first")
    assert run.seen("concentration") and run.last["off_cluster"] < 20 and run.w[-1] < 0.2


def test_zero_temperature_limit():
    run = Seen("zero-temperature-limit")
    fall = np.log(np.array([run.at(t) for t in (3, 4, 5, 6, 7)]))
    # A straight line: second differences are small against the first.
    assert np.abs(np.diff(fall, 2)).max() < 0.15 * np.abs(np.diff(fall)).min()


def test_laplace_principle():
    for beta, level in ((10, 0.31), (30, 0.16), (100, 0.09)):
        run = Seen("laplace-principle", beta=beta)
        assert run.seen("plateau") and run.w[-1] == pytest.approx(level, abs=0.006)


def test_theorem():
    run = Seen("theorem")
    bound = np.array(run.opening["bound"]["values"])
    assert (np.array(run.w) <= bound).all()
    assert bound.min() == pytest.approx(0.67, abs=0.01)
    assert run.times[int(bound.argmin())] == pytest.approx(5.0, abs=0.1)
    assert run.w[-1] < 0.05 < 1 < bound[-1]


def test_time_scale():
    for beta, when in ((30, 5.6), (300, 10), (3000, 15)):
        assert Seen("time-scale", beta=beta).lowest[0] == pytest.approx(when, abs=0.35)


def test_metastability():
    run = Seen("metastability")
    assert run.seen("concentration") and run.seen("plateau") and run.seen("terminal")
    plateau = run.phases["plateau"]
    assert plateau["end"] - plateau["begin"] > 15


def test_terminal_phase():
    run = Seen("terminal-phase")
    assert run.seen("concentration") and run.seen("plateau") and run.seen("terminal")
    # In the end, at the leading eigenvectors of V.
    assert np.abs(run.end[:, 2] / 32767).min() > 0.9


def test_subspaces():
    run = Seen("subspaces")
    assert run.seen("concentration") and not run.seen("terminal") and run.w[-1] < 0.06
    # Tokens are spread over the circle, and clump when it is warmer and they are fewer.
    assert gaps(run.end) < 0.3 < gaps(Seen("subspaces", beta=100, n=2000, until=12).end)


def gaps(cloud):
    angles = np.sort(np.arctan2(cloud[:, 1], cloud[:, 0]))
    return np.diff(angles).max()


def test_stability():
    one, two = (Seen("stability", seed=seed) for seed in (0, 1))
    assert max(one.last["off_cluster"], two.last["off_cluster"]) < 80
    shares = [(run.end[:, 0] > 0).mean() for run in (one, two)]
    assert abs(shares[0] - shares[1]) < 0.03


def test_mean_field():
    # As it is would take minutes here: a tenth of the tokens twice, which must agree already.
    one, two = (Seen("mean-field", n=10_000, seed=seed) for seed in (0, 1))
    assert np.abs(np.array(one.w) - two.w).max() < 0.05


def test_finite_tokens():
    run = Seen("finite-tokens")
    places = run.end / 32767
    groups = len({tuple(place) for place in np.round(places, 1)})
    assert 8 <= groups <= 24 and run.w[-1] > 0.5 and run.last["off_cluster"] > 40
    assert Seen("finite-tokens", n=3000, beta=100).w[-1] < 0.25


def test_asymmetry():
    assert Seen("asymmetry").w[-1] < 0.25


def test_many_heads():
    run = Seen("many-heads")
    assert run.seen("concentration") and run.w[-1] < 0.25


def test_rotation():
    run = Seen("rotation")
    assert run.opening["no_distance"] and np.isnan(run.w[-1])
    # In the plane, and out of it.
    assert run.height(15) < 0.05 and run.height(60) > 0.8
    # If all tokens are z above the plane, so is what each sees, while a step holds back only cos 30° of it: z grows at
    # the rate 1 − cos 30° = 0.134. Tokens that clump see a little less than that.
    assert 0.11 < np.log(run.height(36) / run.height(28)) / 8 < 0.134


def test_defective():
    run = Seen("defective")
    assert run.w[-1] == pytest.approx(0.13, abs=0.01) and run.lowest[1] > 0.12
    # Like 1/t: t·W hardly changes while W falls by half.
    assert run.at(6) * 6 == pytest.approx(run.at(3) * 3, rel=0.25) and run.at(6) < 0.62 * run.at(3)


def test_repelling():
    run = Seen("repelling")
    assert run.w[-1] < 0.01 and run.last["off_cluster"] == 0
