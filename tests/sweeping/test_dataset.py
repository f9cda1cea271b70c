"""The dataset: rows appear whole and once, whoever dies when."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys

import pyarrow as pa
import pytest
from pyarrow import parquet

from frostline.errors import BadRun
from frostline.sweeping import dataset
from frostline.sweeping.dataset import Dataset, read_table, schema_of
from frostline.sweeping.kinds import KINDS
from frostline.sweeping.worker import lost

KIND = KINDS["theory"]
TABLE = {"tokens": {"count": 5}, "dimension": 2, "B": [1.0, 0.5], "beta": 1.0}


def row(number, status="done"):
    return lost("theory", f"{number:032x}", TABLE, "none") | {"status": status, "seconds": 0.1}


def ids(out):
    return sorted(int(id, 16) for id in read_table(out)["id"].to_pylist())


def test_rows_come_back_in_one_schema(tmp_path):
    out = tmp_path / "runs"
    for first in (0, 3):
        with Dataset(out, KIND) as data:
            for number in range(first, first + 3):
                data.add(row(number) | {"gap": 0.5})
    assert ids(out) == list(range(6)) and len(dataset.parts(out)) == 2
    # Any reader of Parquet sees the same table, and nothing else in the folder.
    plain = parquet.read_table(out)
    assert plain.schema.names == schema_of(KIND).names and len(plain) == 6
    assert set(plain["gap"].to_pylist()) == {0.5} and set(plain["B"].to_pylist()) == {"[1.0, 0.5]"}
    assert all(path.name.startswith(("_", "part-")) for path in out.iterdir())


def test_a_row_is_never_there_twice(tmp_path):
    with Dataset(tmp_path / "runs", KIND) as one, Dataset(tmp_path / "runs", KIND) as other:
        assert other.others == 1
        for data in (one, other):
            data.add(row(1))
        one.flush()
        other.add(row(2))
        other.flush()
        assert one.status(f"{2:032x}") is None
        one.refresh()
        assert one.status(f"{2:032x}") == "done"
    assert ids(tmp_path / "runs") == [1, 2]


DIES = """
import os, signal, sys
from pathlib import Path
from tests.sweeping.test_dataset import KIND, row
from frostline.sweeping.dataset import Dataset
data = Dataset(Path(sys.argv[1]), KIND)
for number in range(5):
    data.add(row(number))
    if number == 2 and sys.argv[2] == "half":
        data.flush()
if sys.argv[2] == "torn":
    data._journal.write(b'{"id": "00')
    data._journal.flush()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize("how", ["plain", "half", "torn"])
def test_what_a_killed_client_had_finished_stays(tmp_path, how):
    out = tmp_path / "runs"
    gone = subprocess.run([sys.executable, "-c", DIES, str(out), how], cwd=os.getcwd())
    assert gone.returncode == -signal.SIGKILL
    before = ids(out)
    assert before == ([0, 1, 2] if how == "half" else [])
    with Dataset(out, KIND) as data:
        assert data.others == 0
    assert ids(out) == [0, 1, 2, 3, 4]
    assert not list(out.glob("_journal*"))


def test_a_row_that_another_client_has_published_meanwhile_is_left_out(tmp_path):
    """Also where this client has seen it already."""
    with Dataset(tmp_path / "runs", KIND) as one, Dataset(tmp_path / "runs", KIND) as other:
        one.add(row(1))
        other.add(row(1))
        other.flush()
        one.refresh()
        one.flush()
    assert ids(tmp_path / "runs") == [1]


def test_killed_between_publishing_and_forgetting(tmp_path, monkeypatch):
    """The journal then holds rows that the table has."""
    data = Dataset(tmp_path / "runs", KIND)
    data.add(row(1))
    left = data._path.read_bytes()
    data.flush()
    data._path.write_bytes(left)
    data._journal.close()
    with Dataset(tmp_path / "runs", KIND):
        pass
    assert ids(tmp_path / "runs") == [1]


def writer(out, numbers):
    for number in numbers:
        with Dataset(out, KIND) as data:
            if data.status(f"{number:032x}") is None:
                data.add(row(number))


def test_many_clients_at_once(tmp_path):
    out = tmp_path / "runs"
    start = multiprocessing.get_context("spawn")
    clients = [start.Process(target=writer, args=(out, range(k, k + 12))) for k in (0, 4, 8)]
    for client in clients:
        client.start()
    # Meanwhile every look sees whole rows, each once.
    while any(client.is_alive() for client in clients):
        if (out / dataset.MARK).exists():
            found = ids(out)
            assert len(found) == len(set(found))
    for client in clients:
        client.join()
        assert client.exitcode == 0
    assert ids(out) == list(range(20))


def test_failed_rows_can_be_taken_out(tmp_path):
    with Dataset(tmp_path / "runs", KIND) as data:
        for number in range(4):
            data.add(row(number, "failed" if number % 2 else "done"))
        data.flush()
        data.add(row(9, "lost"))
        data.flush()
        # Only those that are asked for, and never those that are done.
        assert data.drop([f"{number:032x}" for number in (0, 1, 2, 9, 77)]) == 2
        assert data.status(f"{1:032x}") is None and data.status(f"{2:032x}") == "done"
    assert ids(tmp_path / "runs") == [0, 2, 3]


def test_what_is_on_disk_can_be_looked_at_while_others_write(tmp_path):
    out = tmp_path / "runs"
    with Dataset(out, KIND) as data:
        data.add(row(1))
        data.flush()
        data.add(row(2), row(3, "failed"))
        before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
        found = dataset.statuses(out)
        assert {int.from_bytes(key): status for key, status in found.items()} == {1: "done", 2: "done", 3: "failed"}
        assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"id": f"{2:032x}", "status": 3}),
        json.dumps({"id": f"{2:032x}", "status": "done", "beta": "x"}),
        json.dumps({"id": f"{2:032x}", "status": "done", "seed": 10**30}),
        json.dumps({"id": f"{2:032x}", "status": "failed", "error": "\ud800"}),
        json.dumps({"id": "abcd", "status": "done"}),
        json.dumps({"id": "abcd"}),
        "[" * 100_000,
        "[1, 2]",
    ],
    ids=["status", "text", "huge", "surrogate", "id", "no status", "deep", "list"],
)
def test_a_row_that_fits_into_no_table_stands_in_nobodys_way(tmp_path, line):
    out = tmp_path / "runs"
    with Dataset(out, KIND) as data:
        data.add(row(1))
    (out / "_journal-0.jsonl").write_text(f"{line}\n{json.dumps(row(3))}\n")
    assert {int.from_bytes(key) for key in dataset.statuses(out)} >= {1, 3}
    with Dataset(out, KIND) as data:
        data.add(row(4))
    assert ids(out) == [1, 3, 4] and not list(out.glob("_journal*"))


@pytest.mark.parametrize(
    "table",
    [
        {"id": [7], "status": ["done"]},
        {"id": [None], "status": ["done"]},
        {"id": ["xyz"], "status": ["done"]},
        {"id": [f"{7:032x}"], "status": pa.array([None], pa.string())},
        {"status": ["done"]},
    ],
)
def test_a_part_that_no_sweep_wrote_is_named(tmp_path, table):
    with Dataset(tmp_path / "runs", KIND):
        pass
    parquet.write_table(pa.table(table), tmp_path / "runs" / "part-0.parquet")
    for look in (read_table, dataset.statuses, lambda out: Dataset(out, KIND)):
        with pytest.raises(BadRun, match=r"part-0\.parquet cannot be read"):
            look(tmp_path / "runs")


def test_parts_that_do_not_fit_together_are_said(tmp_path):
    with Dataset(tmp_path / "runs", KIND) as data:
        data.add(row(1))
    other = pa.table({"id": [f"{7:032x}"], "status": ["done"], "beta": [[1]]})
    parquet.write_table(other, tmp_path / "runs" / "part-0.parquet")
    with pytest.raises(BadRun, match="do not fit together"):
        read_table(tmp_path / "runs")


def test_another_client_writes_the_same_file_at_the_same_moment(tmp_path, monkeypatch):
    """Both write one temporary file, and the other one's rename takes it away."""
    rename = os.replace

    def taken(source, target):
        rename(source, target)
        raise FileNotFoundError(2, "No such file or directory", str(source))

    monkeypatch.setattr(os, "replace", taken)
    data = Dataset(tmp_path / "runs", KIND)
    data.keep_arrays(f"{1:032x}", b"same")
    monkeypatch.undo()
    data.__exit__()
    assert dataset.arrays_of(tmp_path / "runs", f"{1:032x}").read_bytes() == b"same"


def test_rows_of_some_runs(tmp_path):
    with Dataset(tmp_path / "runs", KIND) as data:
        data.add(*map(row, range(5)))
    found = read_table(tmp_path / "runs", ids={f"{k:032x}" for k in (1, 3, 99)})
    assert sorted(int(id, 16) for id in found["id"].to_pylist()) == [1, 3]


def test_a_full_disk_loses_nothing_that_was_there(tmp_path, monkeypatch):
    out = tmp_path / "runs"
    with Dataset(out, KIND) as data:
        data.add(row(1))

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(OSError, match="No space"), Dataset(out, KIND) as data:
        data.add(row(2))
        patch.setattr(dataset, "write_atomically", full)
        data.flush()
    assert ids(out) == [1]
    # The journal stayed; the next client publishes it.
    with Dataset(out, KIND):
        pass
    assert ids(out) == [1, 2]


def test_folders_that_are_not_ours(tmp_path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").write_text("x")
    with pytest.raises(BadRun, match="not empty and holds no sweep"):
        Dataset(tmp_path / "mine", KIND)
    (tmp_path / "file").write_text("x")
    with pytest.raises(BadRun, match="is a file"):
        Dataset(tmp_path / "file", KIND)
    with Dataset(tmp_path / "runs", KIND):
        pass
    with pytest.raises(BadRun, match="holds runs of theory, and these are of simulate"):
        Dataset(tmp_path / "runs", KINDS["simulate"])
    with pytest.raises(BadRun, match="holds no sweep"):
        read_table(tmp_path / "mine")
    (tmp_path / "runs" / dataset.MARK).write_text("[1]")
    with pytest.raises(BadRun, match="cannot be read"):
        read_table(tmp_path / "runs")


def test_a_damaged_part_is_named(tmp_path):
    out = tmp_path / "runs"
    with Dataset(out, KIND) as data:
        data.add(row(1))
    (part,) = dataset.parts(out)
    part.write_bytes(part.read_bytes()[:100])
    with pytest.raises(BadRun, match=f"{part.name} cannot be read"):
        read_table(out)


def test_rows_of_another_version_are_read_along(tmp_path):
    out = tmp_path / "runs"
    with Dataset(out, KIND) as data:
        data.add(row(1))
    old = pa.table({"id": [f"{7:032x}"], "status": ["done"], "gone": [1.0]})
    parquet.write_table(old, out / "part-0.parquet")
    assert ids(out) == [1, 7] and read_table(out)["gone"].null_count == 1


def test_journals_are_json_lines(tmp_path):
    data = Dataset(tmp_path / "runs", KIND)
    data.add(row(1))
    assert json.loads(data._path.read_text()) == row(1)
    data.__exit__()
