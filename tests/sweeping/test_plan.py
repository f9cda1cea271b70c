"""A sweep file: axes, conditions, budget; what is wrong with it is said before anything runs."""

import itertools
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import BadSpec
from frostline.sweeping import plan as plans
from frostline.sweeping.columns import MEANINGS
from frostline.sweeping.conditions import condition
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.kinds.models import AUDIT_METRICS

BASE = {"tokens": 20, "dimension": 2, "B": [1.0, 0.5], "beta": 10.0, "until": 1.0}


def nested(depth):
    found = {}
    for _ in range(depth):
        found = {"a": found}
    return found


def parsed(axes, **more):
    return plans.parse({"command": "simulate", "spec": BASE, "axes": axes, **more})


def values(plan, *names):
    return [tuple(plan.kind.columns(run.table)[name] for name in names) for run in plan.runs()]


def test_runs_are_the_product_of_the_axes_the_last_one_fastest():
    plan = parsed({"beta": [1, 10], "seed": "0..2"})
    assert values(plan, "beta", "seed") == list(itertools.product([1.0, 10.0], range(3)))
    assert plan.count() == plan.combinations == 6 and len({run.id for run in plan.runs()}) == 6


def test_a_spread_has_its_ends_and_even_steps():
    (plan,) = [parsed({"beta": {"from": 1, "to": 1e4, "count": 5, "scale": "log"}})]
    assert values(plan, "beta") == [(1.0,), (10.0,), (100.0,), (1000.0,), (10000.0,)]
    assert values(parsed({"until": {"from": 1, "to": 2, "count": 3}}), "until") == [(1.0,), (1.5,), (2.0,)]


def test_a_spread_of_whole_numbers_has_each_once():
    plan = parsed(
        {"tokens": {"from": 1, "to": 1000, "count": 4, "scale": "log"}, "seed": {"from": 0, "to": 2, "count": 9}}
    )
    assert values(plan, "tokens", "seed") == list(itertools.product([1, 10, 100, 1000], range(3)))


def test_a_key_with_a_dot_needs_no_quotes():
    vmf = BASE | {"tokens": {"count": 20, "distribution": "vmf", "mean": [1.0, 0.0], "concentration": 1.0}}
    (given,) = [{"tokens": {"concentration": [1, 2], "count": [10, 30]}}]
    plan = plans.parse({"command": "theory", "spec": vmf, "axes": given})
    wanted = [(1.0, 10), (1.0, 30), (2.0, 10), (2.0, 30)]
    assert values(plan, "tokens.concentration", "tokens") == wanted


def test_many_combinations_are_refused_and_chosen_from_at_once():
    """Nothing is made that is not asked for: this would take minutes and gigabytes otherwise."""
    with pytest.raises(BadSpec, match=r"10,000,000 of seed × 10,000,000 of max_steps = 100,000,000,000,000 comb"):
        parsed({"seed": "0..9999999", "max_steps": "1..10000000"})
    assert parsed({"seed": "0..99999"}, where="seed < 3").count() == 3


def test_names_with_a_comma_move_together():
    plan = parsed({"tokens, dimension": [[10, 2], [20, 2]], "seed": [0]})
    assert values(plan, "tokens", "dimension") == [(10, 2), (20, 2)]


def test_matrices_and_dotted_keys_are_axes_too():
    plan = parsed({"B": [[1, 0.5], [[1, 0.2], [0, 1]]], "tokens.antipodal": [True, False]})
    assert values(plan, "B", "tokens.antipodal") == [
        ("[1.0, 0.5]", True),
        ("[1.0, 0.5]", False),
        ("[[1.0, 0.2], [0.0, 1.0]]", True),
        ("[[1.0, 0.2], [0.0, 1.0]]", False),
    ]
    assert {count for (count,) in values(plan, "tokens")} == {20}


def test_conditions_choose():
    plan = parsed({"beta": [1, 10, 100], "seed": "0..9"}, where=["beta * seed <= 100", "seed < 5 or beta == 1"])
    wanted = [(b, s) for b in (1.0, 10.0, 100.0) for s in range(10) if b * s <= 100 and (s < 5 or b == 1)]
    assert values(plan, "beta", "seed") == wanted and plan.count() == len(wanted)


def test_the_same_run_has_the_same_name_however_it_is_written(tmp_path):
    one = parsed({"beta": [10]})
    other = plans.parse({"command": "simulate", "spec": BASE | {"tokens": {"count": 20}, "seed": 0, "out": "x"}})
    assert [run.id for run in one.runs()] == [run.id for run in other.runs()]
    assert next(parsed({"seed": [1]}).runs()).id != next(one.runs()).id
    theory = plans.parse({"command": "theory", "spec": BASE})
    assert next(theory.runs()).id != next(one.runs()).id


def test_files_count_by_what_is_in_them(tmp_path, monkeypatch):
    import numpy as np

    monkeypatch.chdir(tmp_path)
    np.save("B.npy", np.diag([1.0, 0.5]))
    first = next(parsed({"B": ["B.npy"]}).runs()).id
    np.save("B.npy", np.diag([1.0, 0.4]))
    assert next(parsed({"B": ["B.npy"]}).runs()).id != first


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ({"axes": {"bta": [1]}}, "'bta' is no key of simulate; did you mean 'beta'"),
        ({"axes": {"beta": []}}, "the axis beta is empty"),
        ({"axes": {"seed": "5..3"}}, "the axis seed is empty"),
        ({"axes": {"seed": "0.9"}}, 'a range like "0..9"'),
        ({"axes": {"beta": 3.0}}, r"for example \[3.0\]"),
        ({"axes": {"seed": "0..999999999"}}, "1,000,000,000 combinations.*Take fewer values of seed"),
        ({"axes": {"seed": "0.." + "9" * 5000}}, 'a range like "0..9"'),
        ({"axes": {"seed": [2**63]}}, "9,223,372,036,854,775,808 is too large"),
        ({"axes": {"beta": [float("inf")]}}, "inf is no value"),
        ({"axes": {"beta": {"from": -1e308, "to": float("nan"), "count": 3}}}, "nan is no value"),
        ({"axes": {"beta": {"from": 1, "to": 2, "count": 10**30}}}, "too large"),
        ({"axes": {"beta": {"from": 1, "to": 2, "count": 10**9}}}, "count is 1 to 2,000,000"),
        ({"axes": {"beta": (1, 2)}}, r"for example \[1, 2\]"),
        ({"axes": {"beta": [1]}, "where": "1 / 0 > 1"}, "cannot be decided : division by zero"),
        ({"axes": {"tokens": [10], "tokens.count": [20]}}, "tokens is on two axes"),
        ({"axes": {}, "out": ""}, "is no folder"),
        ({"axes": {}, "spec": nested(3000)}, "nested too deeply"),
        ({"axes": {}, 3: 4}, "unknown key 3"),
        (
            {"axes": {"seed": "0..999", "beta": {"from": 1, "to": 9, "count": 1000}, "until": [1, 2]}},
            "2,000,000 combin",
        ),
        ({"axes": {"seed": "0..99999", "beta": {"from": 1, "to": 9, "count": 10000}}}, "1,000,000,000 combinations"),
        ({"axes": {"beta": ["x"]}}, "beta"),
        ({"axes": {"beta": [1]}, "where": "gamma > 1"}, "gamma is no axis; there are: beta"),
        ({"axes": {"beta": [1]}, "where": "__import__('os')"}, "is not allowed"),
        ({"axes": {"beta": [1]}, "where": "beta >"}, "cannot be read"),
        ({"axes": {"beta": [1]}, "where": "beta > 2"}, "none of them meets where"),
        ({"axes": {"beta": [1]}, "where": "beta < 'a'"}, "cannot be decided for beta = 1"),
        ({"axes": {"beta, until": [[1, 2], 3]}}, "lists of 2"),
        ({"axes": {"beta": [1], "beta,seed": [[1, 1]]}}, "beta is on two axes"),
        ({"axes": {"beta": {"from": -1, "to": 1, "count": 3, "scale": "log"}}}, "above zero"),
        ({"axes": {"beta": {"from": 1}}}, "from = 1, to = 1e4"),
        ({"axes": {}, "budget": {"runs": 0}}, "above zero"),
        ({"axes": {}, "command": "simulat"}, "did you mean 'simulate'"),
        ({"axes": {}, "axis": {}}, "did you mean 'axes'"),
        ({"axes": {}, "spec": {"tokens": 3}}, "dimension is missing"),
        ({"axes": {}, "command": "theory", "arrays": True}, "no arrays"),
        ({"axes": {}, "command": "reproduce", "spec": {"claim": "nothing"}}, "no claim 'nothing'"),
    ],
)
def test_bad_sweeps_are_refused_with_a_sentence(table, said):
    with pytest.raises(BadSpec, match=said):
        plans.parse({"command": "simulate", "spec": BASE} | table)


def test_too_many_runs_say_how_to_narrow_it():
    with pytest.raises(BadSpec, match=r"(?s)1,000 of seed × 1,000 of beta = 1,000,000 combinations.*100,000.*where"):
        parsed({"seed": "0..999", "beta": {"from": 1, "to": 9, "count": 1000}})


def test_unreadable_files(tmp_path):
    with pytest.raises(BadSpec, match="No such file"):
        plans.read(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("axes = [")
    with pytest.raises(BadSpec, match="not TOML"):
        plans.read(tmp_path / "bad.toml")


def test_every_measure_has_a_meaning_and_nothing_else_has():
    measures = {name for kind in KINDS.values() for name in kind.measures} - set(AUDIT_METRICS) | {"layers"}
    assert measures | {"seconds"} == set(MEANINGS)
    page = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    for name, meaning in MEANINGS.items():
        assert f"| `{name}` | {meaning.replace('|', chr(92) + '|')} |" in page, name


def test_no_measure_has_the_name_of_a_key():
    for kind in KINDS.values():
        assert not set(kind.keys) & set(kind.measures), kind.name


NUMBERS = st.integers(-5, 5)


@st.composite
def expressions(draw, depth=3):
    """An expression, as text and as Python knows it."""
    kind = draw(
        st.sampled_from(["name", "number"] if depth == 0 else ["name", "number", "arith", "compare", "and", "not"])
    )
    if kind == "name":
        return draw(st.sampled_from(["a", "b"]))
    if kind == "number":
        return f"({draw(NUMBERS)})"
    if kind == "not":
        return f"(not {draw(expressions(depth - 1))})"
    sign = {"arith": "+-*", "compare": ["<", "<=", "==", "!=", ">", ">="], "and": ["and", "or"]}[kind]
    return f"({draw(expressions(depth - 1))} {draw(st.sampled_from(sign))} {draw(expressions(depth - 1))})"


@given(expressions(), NUMBERS, NUMBERS)
def test_conditions_mean_what_python_means(text, a, b):
    assert condition(text, ["a", "b"])({"a": a, "b": b}) == bool(eval(text, {"a": a, "b": b}))


def test_reading_a_plan_loads_no_torch():
    table = {"command": "simulate", "spec": BASE, "axes": {"seed": "0..9"}}
    code = (
        "import sys; from frostline.sweeping import plan;"
        f"print(plan.parse({table!r}).count(), [m for m in ('torch', 'scipy', 'matplotlib') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "10 []", done.stderr
