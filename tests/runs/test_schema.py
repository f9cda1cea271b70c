import numpy as np
import pytest
import tomli_w
from hypothesis import given
from hypothesis import strategies as st

from frostline.errors import BadArray, BadParameter, BadSpec
from frostline.runs import schema as specs
from frostline.runs.build import build_density, build_heads, build_tokens
from tests.tolerances import ROUNDING

PLAIN = {"tokens": 50, "dimension": 3, "beta": 10.0, "B": [1.0, 0.5, 0.2], "until": 1.0}


def build(**changes):
    table = {key: value for key, value in (PLAIN | changes).items() if value is not None}
    spec = specs.parse(table)
    return build_heads(spec), *build_tokens(spec)


def test_a_plain_spec_builds_its_head_and_tokens():
    layers, x, w = build()
    assert len(layers) == 1 and len(layers[0]) == 1 and x.shape == (50, 3) and w is None
    assert np.array_equal(layers[0][0].B, np.diag([1, 0.5, 0.2])) and np.array_equal(layers[0][0].V, np.eye(3))


def test_matrices_can_be_rows_a_diagonal_or_a_file(tmp_path):
    rows = np.arange(9.0).reshape(3, 3)
    np.save(tmp_path / "B.npy", rows)
    for B in (rows.tolist(), str(tmp_path / "B.npy")):
        assert np.array_equal(build(B=B)[0][0][0].B, rows)
    Q, K = np.ones((2, 3)).tolist(), np.eye(2, 3).tolist()
    assert build(B=None, Q=Q, K=K)[0][0][0].rank_bound == 2


def test_heads_and_layers_inherit_beta():
    head = {"B": [1.0, 0.5, 0.2]}
    layers, *_ = build(B=None, heads=[head, head | {"beta": 99.0, "key_bias": [0.1, 0, 0]}])
    assert [h.beta for h in layers[0]] == [10.0, 99.0] and layers[0][1].key_bias is not None
    layers, *_ = build(B=None, layers=[head, {"heads": [head, head], "beta": 5.0}])
    assert [[h.beta for h in layer] for layer in layers] == [[10.0], [5.0, 5.0]]


def test_heads_inherit_value_and_bias_and_a_beta_flag_overrides_them_all(tmp_path):
    table = PLAIN | {"B": None, "V": [-1.0, -1.0, -1.0], "key_bias": [0.1, 0, 0]}
    table["layers"] = [{"B": [1.0, 0.5, 0.2]}, {"heads": [{"B": [1.0, 0.5, 0.2], "V": [2.0, 2.0, 2.0], "beta": 5.0}]}]
    table = {key: value for key, value in table.items() if value is not None}
    first, second = (layer[0] for layer in build_heads(specs.parse(table)))
    assert np.array_equal(first.V, -np.eye(3)) and first.key_bias[0] == 0.1
    assert np.array_equal(second.V, 2 * np.eye(3)) and second.beta == 5.0
    colder = build_heads(specs.parse(table, {"beta": 1000.0}))
    assert [head.beta for layer in colder for head in layer] == [1000.0, 1000.0]


@pytest.mark.parametrize(
    "tokens",
    [
        {"count": 20, "distribution": "vmf", "mean": [0, 0, 1], "concentration": 5},
        {"count": 20, "distribution": "caps", "centres": [[0, 0, 1], [1, 0, 0]], "angle": 0.3},
        {"count": 20, "distribution": "nodes", "mean": [0, 0, 1], "concentration": 5},
        {"count": 20, "antipodal": True},
        {
            "count": 20,
            "distribution": "mixture",
            "components": [
                {"weight": 0.5, "distribution": "vmf", "mean": [0, 0, 1], "concentration": 5},
                {"weight": 0.5},
            ],
        },
    ],
)
def test_every_distribution_builds_and_repeats(tokens):
    _, x, w = build(tokens=tokens)
    assert np.array_equal(x, build(tokens=tokens)[1])
    assert np.abs(np.linalg.norm(x, axis=1) - 1).max() < ROUNDING
    assert (w is not None) == (tokens.get("distribution") == "nodes")


def test_tokens_from_a_file(tmp_path):
    np.save(tmp_path / "x.npy", np.eye(3))
    assert np.array_equal(build(tokens={"distribution": "file", "path": str(tmp_path / "x.npy")})[1], np.eye(3))


@given(st.floats(0.1, 1e6), st.integers(1, 9999), st.lists(st.floats(-5, 5), min_size=3, max_size=3))
def test_a_spec_survives_the_way_to_toml_and_back(beta, count, diagonal):
    import tomllib

    spec = specs.parse(PLAIN | {"beta": beta, "tokens": {"count": count}, "B": diagonal, "save_at": [0, 0.5]})
    again = specs.parse(tomllib.loads(tomli_w.dumps(specs.to_table(spec))))
    assert again == spec and specs.identity(again) == specs.identity(spec)


def test_identity_ignores_where_but_not_what(tmp_path):
    spec = lambda **c: specs.identity(specs.parse(PLAIN | c))  # noqa: E731
    assert spec(out="a") == spec(out="b")
    assert len({spec(), spec(seed=1), spec(beta=11.0), spec(until=2.0)}) == 4
    path = tmp_path / "B.npy"
    np.save(path, np.eye(3))
    before = spec(B=str(path))
    np.save(path, 2 * np.eye(3))
    assert spec(B=str(path)) != before


def test_flags_override_the_file(tmp_path):
    file = tmp_path / "run.toml"
    file.write_text(tomli_w.dumps(PLAIN | {"tokens": {"count": 5, "antipodal": False}}))
    spec = specs.read(file, {"beta": 7.0, "tokens": 9, "seed": None})
    assert spec.beta == 7.0 and spec.tokens.count == 9 and spec.seed == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"betta": 3}, r"unknown key 'betta'; did you mean 'beta'\?"),
        ({"zzz": 3}, "unknown key 'zzz'; there are: "),
        ({"tokens": {"cuont": 5}}, r"\[tokens\] has the unknown key 'cuont'; did you mean 'count'"),
        ({"heads": [{"Bee": 1}]}, r"\[heads\] has the unknown key 'Bee'"),
        ({"beta": "cold"}, "beta: expected a number, got text"),
        ({"tokens": None}, "tokens is missing"),
        ({"stepper": "leapfrog"}, r"stepper: 'leapfrog' is not known; there are: adaptive, euler, rk4\."),
        ({"B": "diag"}, "B of the spec is 'diag'; write rows"),
        ({"B": [[1, 0, 0], [0, 1]]}, "rows of lengths"),
        ({"B": [1.0, [2.0]]}, "rows of lengths"),
        ({"B": "no/such.npy"}, "cannot read 'no/such.npy'"),
        ({"B": None}, "needs either B or both Q and K"),
        ({"Q": [1.0, 1.0, 1.0]}, "needs either B or both Q and K"),
        ({"beta": None}, "has no beta"),
        ({"dimension": 4}, r"B of the spec has shape \(3, 3\), but dimension = 4"),
        ({"tokens": {"distribution": "vmf", "count": 5}}, "needs mean and concentration"),
        ({"tokens": {"distribution": "caps", "count": 5}}, "needs centres"),
        ({"tokens": {"distribution": "mixture", "count": 5}}, "needs .*components"),
        ({"tokens": {"distribution": "file"}}, "needs tokens.path"),
        ({"tokens": {}}, "count is missing"),
        ({"tokens": {"count": 5, "antipodal": True}}, "even"),
        ({"layers": [{"B": [1.0, 1.0, 1.0]}]}, "layers beside"),
        ({"layers": [], "B": None}, "empty list"),
        ({"seed": -1}, "seed is -1"),
        ({"dimension": 1, "B": [1.0]}, "dimension = 1"),
        ({"dimension": -3}, "dimension = -3"),
        ({"out": "a\0b"}, "NUL"),
        ({"B": "a\0b.npy"}, "null"),
        ({"tokens": {"count": 5, "concentration": 3.0}}, "concentration goes with vmf or nodes"),
        ({"tokens": {"count": 5, "distribution": "vmf", "mean": [], "concentration": 3.0}}, "empty"),
        ({"tokens": {"count": 5, "distribution": "nodes", "mean": [1.0]}}, "has 1 entries"),
        ({"tokens": {"distribution": "file", "path": "x.dat"}}, "not a .npy file"),
        ({"K": [1.0, 1.0, 1.0], "B": None, "heads": [{"B": [1.0, 1.0, 1.0]}]}, "beside B, Q or K"),
        ({"tokens": {"distribution": "file", "path": "x.npy", "count": 3}}, "leave count"),
        ({"heads": [{"B": [1.0, 1.0, 1.0]}]}, "heads beside"),
    ],
)
def test_bad_specs_get_a_sentence(changes, words):
    with pytest.raises((BadSpec, BadArray), match=words):
        build(**changes)


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"tokens": 0}, "at least 1"), ({"beta": -1}, "beta")],
)
def test_the_library_judges_what_the_types_allow(changes, words):
    with pytest.raises((BadParameter, BadArray), match=words):
        build(**changes)


def test_unreadable_files_get_a_sentence(tmp_path):
    for name, content, words in (
        ("a.toml", b"tokens = = 3", "is not TOML"),
        ("b.toml", b"\xff\xfe\x00", "not UTF-8"),
        ("c.toml", b"tokens = " + b"9" * 5000, "is not TOML"),
        ("d.toml", b"B = " + b"[" * 3000 + b"]" * 3000, "nested too deeply"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(BadSpec, match=words):
            specs.read(tmp_path / name)
    with pytest.raises(BadSpec, match="No such file"):
        specs.read(tmp_path / "none.toml")
    with pytest.raises(BadSpec, match="Is a directory"):
        specs.read(tmp_path)
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00garbage")
    with pytest.raises(BadSpec, match=r"not a readable \.npy"):
        build(B=str(tmp_path / "bad.npy"))


@pytest.mark.parametrize("bad", [np.eye(3) + 1j, np.ones((2, 3, 3)), np.array([["a"]])])
def test_files_of_another_kind_get_a_sentence(tmp_path, bad):
    np.save(tmp_path / "x.npy", bad)
    with pytest.raises(BadSpec, match="a matrix of real numbers is needed"):
        build(tokens={"distribution": "file", "path": str(tmp_path / "x.npy")})


def test_float32_and_big_endian_files_are_read_as_float64(tmp_path):
    x = np.array([[0.6, 0.8, 0.0], [1 / 3, 2 / 3, 2 / 3]])
    for dtype in (np.float32, ">f8"):
        np.save(tmp_path / "x.npy", x.astype(dtype))
        found = build(tokens={"distribution": "file", "path": str(tmp_path / "x.npy")})[1]
        assert found.dtype == np.float64 and np.abs(np.linalg.norm(found, axis=1) - 1).max() < ROUNDING


def test_pickled_arrays_are_never_loaded(tmp_path):
    np.save(tmp_path / "evil.npy", np.array([{"a": 1}], dtype=object), allow_pickle=True)
    with pytest.raises(BadSpec, match=r"not a readable \.npy"):
        build(B=str(tmp_path / "evil.npy"))


@pytest.mark.parametrize(
    ("tokens", "parameters"),
    [
        (7, [[0, 0, 0]]),
        ({"count": 8, "distribution": "vmf", "mean": [0, 0, 2], "concentration": 3.0}, [[0, 0, 3]]),
        (
            {"count": 8, "distribution": "vmf", "mean": [0, 0, 1], "concentration": 3.0, "antipodal": True},
            [[0, 0, 3], [0, 0, -3]],
        ),
        ({"count": 8, "distribution": "nodes", "mean": [0, 1, 0], "concentration": 2.0}, [[0, 2, 0]]),
        ({"count": 8, "distribution": "caps", "centres": [[0, 0, 1]], "angle": 0.3}, None),
    ],
)
def test_the_density_of_the_tokens_is_known_where_it_is_positive(tokens, parameters):
    density = build_density(specs.parse({"tokens": tokens, "dimension": 3, "beta": 1.0, "B": [1.0, 0.5, 0.2]}))
    assert (density is None) == (parameters is None)
    assert density is None or np.allclose(density.parameters, parameters)
