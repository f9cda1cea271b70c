"""Checkpoints over training, and the logger, in a plain loop and in transformers' own."""

import pytest
import torch

import frostline as fl
from frostline.auditing.comparison.checkpoints import SpectraLogger, checkpoints, series
from tests.encoders import tiny


def test_a_folder_of_checkpoints(tmp_path):
    for step in (20, 100, 3):
        model = tiny.model("BERT")
        with torch.no_grad():
            model.encoder.layer[2].attention.self.query.weight *= 1 + step / 100
        tiny.save(model, tmp_path / f"checkpoint-{step}", tokenizer=False)
    (tmp_path / "runs").mkdir()
    assert [step for step, _ in checkpoints(tmp_path)] == [3, 20, 100]
    found = series(tiny.model("BERT"), tmp_path).layers.to_pylist()
    last = [row for row in found if row["layer"] == 2]
    assert [row["beta_ratio"] for row in last] == pytest.approx([1.03, 1.2, 2.0], rel=1e-5)
    assert {row["verdict"] for row in found if row["layer"] < 2} == {"unchanged"}
    with pytest.raises(fl.errors.BadModel, match="holds no checkpoints"):
        series(tiny.model("BERT"), tmp_path / "runs")


def test_the_logger_in_a_plain_loop():
    model, logger = tiny.model("BERT"), SpectraLogger(every=2)
    for step in range(5):
        with torch.no_grad():
            model.encoder.layer[0].attention.self.key.weight *= 2
        logger.record(model, step)
    rows = [row for row in logger.table.to_pylist() if row["layer"] == 0 and row["head"] == 1]
    assert [row["step"] for row in rows] == [0, 2, 4]
    assert rows[1]["beta"] == pytest.approx(4 * rows[0]["beta"], rel=1e-5)
    assert {row["kind"] for row in rows} == {rows[0]["kind"]}


def test_a_logger_needs_a_step():
    with pytest.raises(fl.errors.BadParameter, match="every is 0; it counts steps"):
        SpectraLogger(every=0)


def test_the_logger_as_a_callback():
    import transformers

    logger = SpectraLogger(every=1)
    callback = logger.callback()
    assert isinstance(callback, transformers.TrainerCallback)
    state = transformers.TrainerState(global_step=3)
    callback.on_train_begin(None, state, None, model=tiny.model("BERT"))
    callback.on_step_end(None, state, None, model=tiny.model("BERT"))
    assert sorted(set(logger.table["step"].to_pylist())) == [0, 3]
