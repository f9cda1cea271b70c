"""An address is a setting is a spec; what makes no run is refused with a sentence."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import BadSpec, FrostlineError
from frostline.experiments.claims.catalogue import CLAIMS
from frostline.exploring.address import DEFAULTS, matrix, read, times_of, to_spec
from frostline.exploring.presets import PRESETS
from frostline.runs.build import build_heads, build_tokens, token_count
from frostline.theory.limits import limit
from tests.tolerances import ROUNDING


def head(address):
    ((found,),) = build_heads(to_spec(read(address)))
    return found


@given(
    st.sampled_from([2, 3]),
    st.lists(st.floats(-2, 2), min_size=3, max_size=3),
    st.floats(-90, 90),
    st.floats(-90, 90),
)
def test_values_are_eigenvalues_without_a_twist_and_singular_values_with_one(d, values, angle, tilt):
    text = ",".join(map(repr, values))
    plain = np.array(matrix({"B": text, "Bturn": f"{angle},{tilt},0"}, "B", d))
    assert np.abs(plain - plain.T).max() <= ROUNDING
    assert np.linalg.eigvalsh(plain) == pytest.approx(sorted(values[:d]), abs=ROUNDING)
    twisted = np.array(matrix({"B": text, "Bturn": f"{angle},{tilt},37"}, "B", d))
    sizes = sorted(np.abs(values[:d]), reverse=True)
    assert np.linalg.svd(twisted, compute_uv=False) == pytest.approx(sizes, abs=ROUNDING)


def test_rows_that_are_typed_are_the_matrix():
    found = head("d=2&B=1,2;3,4&V=0,1;-1,0").matrices
    assert (found.B == [[1, 2], [3, 4]]).all() and (found.V == [[0, 1], [-1, 0]]).all()


@pytest.mark.parametrize("preset", PRESETS, ids=lambda one: one.name)
def test_presets_are_settings(preset):
    spec = to_spec(read(preset.setting))
    assert len(times_of(spec)) >= 12 and len(build_tokens(spec)[0]) >= 10
    assert preset.claim is None or preset.claim in CLAIMS
    assert preset.watch.endswith(".")


def test_presets_are_of_the_kinds_they_show():
    kinds = {one.name: limit(build_heads(to_spec(read(one.setting)))).kind for one in PRESETS}
    assert kinds["rotation"] == "rotation" and kinds["defective"] == "defective" and kinds["subspaces"] == "subspace"
    assert kinds["many-heads"] == "numerical" and kinds["asymmetry"] == kinds["first"] == "points"


def test_every_claim_that_two_or_three_dimensions_can_show_has_a_preset():
    # Clusters that stay are of the mean field: finite clouds of tokens leave.
    assert set(CLAIMS) - {one.claim for one in PRESETS} == {"high-dimension", "training", "staying"}


def test_times_are_layers():
    assert times_of(to_spec({"step": "0.1", "until": "1"})) == pytest.approx(np.arange(11) / 10)
    assert times_of(to_spec({"step": "0.3", "until": "1"}))[-1] == 1.0
    assert len(times_of(to_spec({"stepper": "adaptive"}))) == 241


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("n=1000000", "10 to 100,000"),
        ("n=two", "whole number"),
        ("d=4", "circle"),
        ("beta=nan", "finite"),
        ("beta=-1", "beta"),
        ("B=1,nan;0,1&d=2", "NaN"),
        ("B=1,0;0,1", "2 rows"),
        ("B=1", "1 values"),
        ("B=x,1,1", "'x'"),
        ("Bturn=1", "three"),
        ("step=0.0001", "layers"),
        ("step=0", "above zero"),
        ("until=1e9", "until"),
        ("stepper=magic", "magic"),
        ("tokens=file", "uniform"),
        ("tokens=vmf&mean=0,0,0", "direction"),
        ("tokens=vmf&concentration=-2", "concentration"),
        ("antipodal=maybe", "0 or 1"),
        ("colour=red", "unknown key"),
        ("seed=-1", "seed"),
        ("B2=1,1,1&n=50000", "second head"),
        ("B=" + "1," * 300, "characters"),
        ("&".join(f"a{k}=1" for k in range(70)), "64 keys"),
    ],
)
def test_what_makes_no_run_is_refused(address, said):
    with pytest.raises(FrostlineError, match=said):
        spec = to_spec(read(address))
        build_heads(spec)
        build_tokens(spec)


@given(st.dictionaries(st.sampled_from(sorted(DEFAULTS)), st.text(max_size=12)))
def test_nothing_that_can_stand_in_an_address_is_a_crash(asked):
    try:
        spec = to_spec(asked)
    except BadSpec as error:
        assert str(error)
    else:
        assert 10 <= token_count(spec) <= 100_000
