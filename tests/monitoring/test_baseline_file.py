"""The reader of .frost files against files of anybody: a baseline that works, or one printable sentence."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from typer.testing import CliRunner

from frostline.cli import main
from frostline.errors import BadBaseline, BadParameter
from frostline.monitoring.baseline_content import content_hash
from frostline.monitoring.baseline_file import load_baseline
from tests.monitoring.sentences import fresh
from tests.monitoring.test_baseline import open_header

HOSTILE = "\x1b[31mred\x1b]0;title\x07 \x9b2J \u202egnp.exe \x00\ud800\nfrostline: fine"
LONGEST_SENTENCE = 500
"""Characters of an error, beside the path that it names."""


@pytest.fixture(scope="module")
def whole(frost):
    """What is in a file; with two groups of texts by their length, so that no tensor is empty."""
    tensors = load_file(frost)
    for level in ("full", "light"):
        tensors[f"{level}.calibration.table"] = tensors[f"{level}.calibration.table"].expand(2, -1).contiguous()
        tensors[f"{level}.calibration.edges"] = torch.tensor([2.3])
    return SimpleNamespace(tensors=tensors, header=json.loads(open_header(frost)))


@pytest.fixture
def forge(whole, tmp_path):
    """A function: a file with other tensors and another header (None: without it) and a checksum that is right."""

    def make(tensors=None, header=None):
        own = {name: tensor for name, tensor in (whole.tensors | (tensors or {})).items() if tensor is not None}
        told = {key: value for key, value in (whole.header | (header or {})).items() if key != "checksum"}
        told = {key: value for key, value in told.items() if value is not ...}
        told["checksum"] = content_hash(own, told)
        save_file(own, tmp_path / "forged.frost", {"frostline": json.dumps(told)})
        return tmp_path / "forged.frost"

    return make


def refused(path):
    with pytest.raises(BadBaseline) as told:
        load_baseline(path)
    said = str(told.value)
    assert said.isprintable() and len(said.replace(str(path), "")) <= LONGEST_SENTENCE, said[:1000]
    return said


def test_what_is_not_changed_opens(forge, folder, base):
    again = load_baseline(forge())
    assert np.array_equal(again.score(folder, texts=fresh(5)).scores, base.score(folder, texts=fresh(5)).scores)


WRONG = {
    "missing": lambda own: None,
    "empty": lambda own: own[:0],
    "empty in the last axis": lambda own: own[..., :0].contiguous(),
    "a number": lambda own: torch.tensor(0.5),
    "an axis more": lambda own: own[None],
    "of bytes": lambda own: own.to(torch.uint8),
    "of doubles": lambda own: own.double(),
    "of whole numbers": lambda own: own.long(),
    "NaN": lambda own: torch.full_like(own, torch.nan),
    "one NaN": lambda own: torch.where(torch.arange(own.numel()).view(own.shape) == 0, torch.nan, own),
    "minus infinity": lambda own: torch.full_like(own, -torch.inf),
    "infinity": lambda own: torch.full_like(own, torch.inf),
}


@pytest.mark.parametrize("what", WRONG)
def test_every_tensor_that_is_wrong(forge, whole, what):
    assert len(whole.tensors) == 30
    for name, own in whole.tensors.items():
        said = refused(forge({name: WRONG[what](own)}))
        assert name in said or "of a kind no baseline has" in said or "calibration" in said, (name, said)


def test_tensors_that_do_not_fit_each_other(forge, whole):
    for name, own in whole.tensors.items():
        if not name.endswith("codes"):  # as many of these as one likes
            assert name.rpartition(".")[0] in refused(forge({name: torch.cat([own, own])}))
        if own.ndim > 1:
            assert name in refused(forge({name: own.flatten()}))
    for level in ("full", "light"):
        name = f"{level}.calibration.table"
        assert "not in order" in refused(forge({name: whole.tensors[name].flip(1).contiguous()}))


def test_numbers_that_are_too_large_give_scores(forge, whole, folder):
    """Nothing is known of what such a file says; but nothing breaks."""
    for name, own in whole.tensors.items():
        level = name.partition(".")[0]
        found = load_baseline(forge({name: torch.full_like(own, 3e38)}))
        p = found.score(folder, texts=[*fresh(2), "ice " * 50], profile=level).p_values
        assert len(p) == 3 and ((p > 0) & (p <= 1)).all()


def test_tensors_that_are_none_of_a_baseline(forge):
    assert "1 tensors are none of a baseline" in refused(forge({HOSTILE.replace("\ud800", ""): torch.zeros(2)}))
    assert "texts that were kept" in refused(forge({"texts": torch.zeros(3)}))
    for told in (b"[1, 2]", b'"text"', b"{", b"\xff\xfe", b"[" * 100_000):
        refused(forge({"texts": torch.frombuffer(bytearray(told), dtype=torch.uint8)}))


STRANGE = [
    None,
    True,
    -1,
    1.5,
    float("nan"),
    10**400,
    "",
    "text",
    HOSTILE,
    "x" * 10**6,
    [],
    [[]],
    {},
    [HOSTILE],
    [10**400],
]


def test_every_name_that_is_wrong(forge):
    """A baseline need not have a name; one that it has is short and printable."""
    assert load_baseline(forge(header={"name": "text"})).name == "text"
    for value in STRANGE:
        if value != "text":
            assert "name is" in refused(forge(header={"name": value}))


@pytest.mark.parametrize("key", ["model", "shape", "model_sha256", "tokenizer_sha256", "texts", "judges", "version"])
def test_every_key_of_the_header_that_is_wrong(forge, key):
    refused(forge(header={key: ...}))
    for value in STRANGE:
        if key == "model" and isinstance(value, str) and len(value) < 100:
            assert load_baseline(forge(header={key: value})).about["model"] == value
        else:
            refused(forge(header={key: value}))
    assert load_baseline(forge(header={"note": HOSTILE})).about["note"] == HOSTILE


def test_shapes_and_judges_that_are_wrong(forge, whole):
    name, layers, dimension = whole.header["shape"]
    for shape in ([name, layers], [name, layers, 0], [name, "3", dimension], [name, 10**400, dimension], [1, 3, 32]):
        assert "shape" in refused(forge(header={"shape": shape}))
    assert "clouds" in refused(forge(header={"shape": [name, 2, dimension]}))
    assert "shape" in refused(forge(header={"shape": [HOSTILE, layers, dimension]}))
    for level in ("full", "light"):
        for part in ("clouds", "kinds", "probes"):
            for value in [..., *STRANGE, ["a", "b"], [HOSTILE] * 3, ["x" * 101], ["a"] * 101]:
                own = {k: v for k, v in (whole.header["judges"][level] | {part: value}).items() if v is not ...}
                refused(forge(header={"judges": whole.header["judges"] | {level: own}}))


def test_a_deep_level_that_is_wrong(forge, whole):
    for value in [*STRANGE, [], {}, {"inside": []}, {"inside": [1, 1]}, {"inside": [2, 1]}, {"inside": [1, 9]}]:
        refused(forge(header={"judges": whole.header["judges"] | {"deep": value}}))
    spread = whole.tensors["deep.reference_cloud.spread"]
    assert "above zero" in refused(forge({"deep.reference_cloud.spread": 0 * spread}))


def test_a_file_without_a_deep_level_opens(forge, whole, folder):
    """Older ones, and those of encoders that can have none."""
    without = {name: None for name in whole.tensors if name.startswith("deep.")}
    judges = {level: own for level, own in whole.header["judges"].items() if level != "deep"}
    base = load_baseline(forge(without, {"judges": judges, "version": 3}))
    assert list(base.judges) == ["full", "light"]
    with pytest.raises(BadParameter, match="'deep'; of this baseline it is one of full, light"):
        base.score(folder, fresh(2), profile="deep")


def test_a_header_that_is_no_table(whole, tmp_path):
    for told in ("", "[]", '"text"', "{", "null", "1", '{"version": 3}', "[" * 100_000, '{"version": NaN}', "9" * 5000):
        save_file(whole.tensors, tmp_path / "odd.frost", {"frostline": told})
        refused(tmp_path / "odd.frost")


def test_files_that_were_cut_or_spoilt(frost, tmp_path):
    """Cut anywhere; and 200 files with a few bytes changed at the begin, where the names and shapes are."""
    data, path = frost.read_bytes(), tmp_path / "spoilt.frost"
    rng = np.random.default_rng(8)
    for length in (0, 1, 7, 8, 9, 100, *rng.integers(8, len(data), 40)):
        path.write_bytes(data[: int(length)])
        refused(path)
    for _ in range(200):
        spoilt = bytearray(data)
        for place in rng.integers(0, 4000, rng.integers(1, 5)):
            spoilt[place] = rng.integers(256)
        path.write_bytes(spoilt)
        if bytes(spoilt) != data:
            refused(path)
    for kind in ("F4", "F8_E8M0", "F8_E4M3", "BF16", "BOOL", "C64", "U64", "X"):
        path.write_bytes(forged_header({"a": {"dtype": kind, "shape": [8], "data_offsets": [0, 8]}}, bytes(8)))
        refused(path)
    path.write_bytes(forged_header({HOSTILE: {"dtype": "F32", "shape": [2], "data_offsets": [0, 99]}}, bytes(8)))
    refused(path)


def forged_header(header, data):
    told = json.dumps(header).encode()
    return len(told).to_bytes(8, "little") + told + data


def test_every_surface_that_is_wrong(forge, whole, folder):
    surface = whole.header["surface"]
    for value in STRANGE:
        assert "surface" in refused(forge(header={"surface": value}))
        for key in surface:
            if value != {}:
                assert "surface" in refused(forge(header={"surface": surface | {key: value}}))
        assert "surface" in refused(forge(header={"surface": surface | {"scripts": {"Latin": value}}}))
        assert "surface" in refused(forge(header={"surface": surface | {"shares": {"markup": value}}}))
    assert "surface" in refused(forge(header={"surface": surface | {"scripts": {HOSTILE: [1.0, 1.0]}}}))
    assert "surface" in refused(forge(header={"surface": surface | {"shares": {"other": 0.5}}}))
    for part in ({"scripts": {}}, {"shares": {}}):
        found = load_baseline(forge(header={"surface": surface | part})).score(folder, texts=["ice " * 50, "ice < ice"])
        assert len(found.p_values) == 2


def test_a_model_without_probes_has_reasons(forge, whole, folder):
    """Where no probe could be learned, the words part has nothing to name, even if a file lets it speak."""
    judges, tensors = {"deep": whole.header["judges"]["deep"]}, {}
    for level in ("full", "light"):
        own = whole.header["judges"][level]
        judges[level] = own | {"probes": []}
        kinds = whole.tensors[f"{level}.standards.kinds"][: len(own["kinds"])].clone()
        parts = whole.tensors[f"{level}.standards.parts"].clone()
        parts[1] = torch.linspace(-2, -1, parts.shape[1])
        tensors |= {f"{level}.standards.kinds": kinds, f"{level}.standards.parts": parts}
        weights = whole.tensors[f"{level}.probes.weights"]
        tensors |= {f"{level}.probes.weights": weights[:, :0].contiguous(), f"{level}.probes.offsets": torch.zeros(0)}
    found = load_baseline(forge(tensors, {"judges": judges})).score(folder, texts=["ice " * 50])
    assert any(one.part == "words" for one in found.reasons[0])


def test_a_hostile_name_is_not_obeyed_by_the_terminal(forge, folder):
    path = forge(header={"model": HOSTILE})
    for words in (["--inspect"], ["--inspect", "--json"]):
        done = CliRunner().invoke(main, ["baseline", str(path), *words])
        assert done.exit_code == 0 and done.output.replace("\n", "").isprintable() and "red" in done.output
    assert repr(load_baseline(path)).isprintable()
    path = forge(header={"shape": [HOSTILE, 1, 2]})
    for words in (["baseline", str(path), "--inspect"], ["score", str(path), "--model", str(folder), "--text", "x"]):
        for more in ([], ["--json"]):
            done = CliRunner().invoke(main, words + more)
            assert done.exit_code == 2 and done.output.replace("\n", "").isprintable()
