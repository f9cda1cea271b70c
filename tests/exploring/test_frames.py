"""What the page is sent is what the library says."""

import numpy as np
import pytest

import frostline as fl
from frostline.exploring.address import read, times_of, to_spec
from frostline.exploring.frames import MOST_DRAWN, show, show_again
from frostline.exploring.messages import FINEST, pack, unpack
from frostline.runs.build import build_heads, build_stepper, build_tokens
from tests.tolerances import EXACT_DISTANCE

FINE = 0.5 / FINEST + 1e-12
"""Half of what 16 bits resolve."""


def shown(address):
    spec = to_spec(read(address))
    return spec, list(unpack(b"".join(show(spec))))


def of_kind(messages, kind):
    return [(facts, arrays) for facts, arrays in messages if facts["kind"] == kind]


def test_messages_come_back_as_they_were():
    arrays = [np.arange(6, dtype="<i2").reshape(2, 3), np.array([1.5, np.nan], dtype="<f4")]
    blob = pack("one", {"x": 1.5, "none": float("nan"), "words": "βᵀ"}, *arrays) + pack("two", {})
    (first, found), (second, none) = unpack(blob)
    assert first == {"kind": "one", "x": 1.5, "none": None, "words": "βᵀ"} and second == {"kind": "two"} and not none
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(arrays, found, strict=True))


@pytest.mark.parametrize(
    "address", ["n=200&until=2", "d=2&n=150&stepper=rk4&until=2", "n=100&stepper=adaptive&until=1&tokens=nodes"]
)
def test_frames_are_the_run_and_the_overlay_is_the_limit(address):
    spec, messages = shown(address)
    x0, weights = build_tokens(spec)
    heads = build_heads(spec)
    run = fl.simulate(heads, x0, until=spec.until, weights=weights, stepper=build_stepper(spec), save_at=times_of(spec))
    ((opening, (start, goal)),) = of_kind(messages, "opening")
    assert opening["times"] == run.times.tolist() and np.abs(start / FINEST - x0).max() <= FINE
    assert goal == pytest.approx(np.asarray(fl.limit(heads)(x0)), abs=1e-6)
    frames = of_kind(messages, "frame")
    assert len(frames) == len(run.times)
    for (facts, (positions,)), t, x in zip(frames, run.times, run.tokens, strict=True):
        assert facts["t"] == t and np.abs(positions / FINEST - x).max() <= FINE
    exact = fl.distance_curve(run)
    w = np.array([facts["w"] for facts, _ in frames])
    assert w == pytest.approx(exact.values, rel=EXACT_DISTANCE)
    assert messages[-1][0]["status"] == run.status


def test_brackets_hold_and_the_line_is_above_them():
    _, messages = shown("n=300&B=1,1,0.3&until=3")
    frames, brackets = of_kind(messages, "frame"), of_kind(messages, "bracket")
    assert len(brackets) == 12 and not messages[0][0]["exact"]
    for facts, _ in brackets:
        line = frames[facts["number"]][0]["w"]
        assert 0 <= facts["lower"] <= facts["upper"] <= line * (1 + 1e-9)


def test_phases_and_bound_are_those_of_the_library():
    spec, messages = shown("d=2&n=300&beta=30&until=12")
    frames = of_kind(messages, "frame")
    curve = np.array([(facts["t"], facts["w"]) for facts, _ in frames]).T
    from frostline.analysis.phases import phases_of_curve

    assert of_kind(messages, "phases")[-1][0]["meaning"] == phases_of_curve(*curve).describe()
    bound = fl.bound(build_heads(spec))
    assert messages[0][0]["bound"]["values"] == pytest.approx(bound(curve[0]).tolist())


def test_without_a_limit_there_are_frames_all_the_same():
    _, messages = shown("B=1,1,0.3&Bturn=0,0,60&n=100&until=2")
    ((opening, (_, goal)),) = of_kind(messages, "opening")
    assert opening["limit"]["kind"] == "rotation" and np.isnan(goal).all() and "no limit" in opening["no_distance"]
    assert len(of_kind(messages, "frame")) == 21 and not of_kind(messages, "bracket")


def test_two_heads_are_one_layer():
    spec, messages = shown("n=50&B2=0.2,0.4,1&until=1")
    assert messages[0][0]["kind"] == "preparing" and messages[1][0]["limit"]["kind"] == "numerical"
    assert len(build_heads(spec)[0]) == 2
    assert messages[1][0]["bound"]["none_because"]


def test_of_many_tokens_some_are_drawn():
    messages = show(to_spec(read("d=2&n=50000&until=0.2")))
    ((opening, (start, _)),) = unpack(next(messages))
    assert opening["tokens"] == 50_000 and len(start) == opening["drawn"] <= MOST_DRAWN
    messages.close()


def test_a_saved_run_is_shown_again(tmp_path):
    spec = to_spec(read("n=100&until=2"))
    from frostline.runs.record import record

    folder = record(spec, out=tmp_path / "run").folder
    run = fl.load_run(folder)
    messages = list(unpack(b"".join(show_again(run))))
    frames = of_kind(messages, "frame")
    assert [facts["t"] for facts, _ in frames] == run.times.tolist()
    assert np.abs(frames[-1][1][0] / FINEST - run.tokens[-1]).max() <= FINE
    assert 'out = "run"' in (folder / "spec.toml").read_text()


def test_a_stepper_that_takes_too_many_steps_is_stopped(monkeypatch):
    monkeypatch.setattr("frostline.exploring.frames.MOST_STEPS", 20)
    _, messages = shown("n=50&stepper=adaptive&until=100&beta=1000")
    assert messages[-1][0]["status"] == "step limit" and "step limit" in messages[-1][0]["says"]
