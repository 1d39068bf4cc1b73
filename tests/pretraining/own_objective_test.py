"""An objective of one's own is a file and a line: it is trained, resumed, evaluated and loaded."""

import dataclasses
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.convert import native
from albert_tf.convert.bundle import MismatchPolicy
from albert_tf.models.checkpoints import latest_in
from albert_tf.models.head import HEADS, MLM_HEAD, PAIR_HEAD, load_heads, parse_heads
from albert_tf.models.pretrainer import load_pretrainer
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.pretrained.encoder import load_encoder_module
from data.objectives.masking import MaskingConfig
from data.objectives.registry import OBJECTIVES
from data.pipeline.batches import Records, training_batches
from data.show_records import ShowRecordsOptions, show_records
from pretraining import evaluate, train
from pretraining.sweeping.results import compare
from tests.pretraining.toy_objective import CutSegment

SETTINGS = (
    "objective.pair=cut",
    "loop.steps=60",
    "loop.steps_per_loop=10",
    "loop.checkpoint_every=30",
    "loop.global_batch_size=64",
    "masking.max_predictions=1",
    "optimizer.name=adamw",
    "optimizer.learning_rate=0.003",
    "model.norm=pre",
    "evaluation.every=30",
    "evaluation.metric=accuracy/cut",
    "model.hidden_dropout=0.1",
)


@pytest.fixture
def toy(monkeypatch) -> CutSegment:
    """List the toy, which is all that changes."""
    objective = CutSegment()
    monkeypatch.setitem(OBJECTIVES, objective.name, objective)
    return objective


@pytest.fixture
def trained(toy, tiny_records: str, made_once) -> str:
    return str(made_once("own_objective", lambda folder: run(tiny_records, str(folder))))


def run(records: str, folder: str, *more: str, init: str | None = None) -> None:
    options = {"heldout": records, "init": init, "device": "cpu", "set": (*SETTINGS, *more)}
    train.main(train.TrainOptions(records, folder, "smoke", **options))


def test_the_batches_hold_what_it_draws(toy, tiny_records: str):
    records = Records.open(tiny_records)
    batch = next(iter(training_batches(records, toy, MaskingConfig(), 256, seed=0)))
    labels, is_pair = batch["pair_label"].numpy(), batch["pair_weight"].numpy() > 0
    assert np.bincount(labels[is_pair]) / is_pair.sum() == pytest.approx([1 / 3] * 3, abs=0.1)
    second = batch["input_type_ids"].numpy().sum(1)
    first = batch["input_mask"].numpy().sum(1) - second
    shares = [(second / first)[is_pair & (labels == label)].mean() for label in (2, 0, 1)]
    assert shares[0] < shares[1] < shares[2]


def test_it_is_learned_and_logged_like_any_other(toy, trained: str, capsys):
    rows = RunDir(trained).metrics()
    assert rows[0]["loss/segment"] == pytest.approx(np.log(3), rel=0.1)
    assert rows[-1]["accuracy/segment"] > 0.6 and rows[-1]["loss/segment"] < 0.8 * np.log(3)
    assert rows[-1]["heldout/accuracy/cut"] == rows[-1]["heldout/accuracy/segment"] > 0.6
    assert load_heads(trained) == (MLM_HEAD, CutSegment.head)


@pytest.mark.slow
def test_a_resumed_run_is_the_same_to_the_bit(
    toy, trained: str, tiny_records: str, tmp_path: pathlib.Path
):
    half = tmp_path / "half"
    shutil.copytree(trained, half)
    os.remove(half / "result.json")
    for file in half.glob("checkpoints/ckpt-60.*"):
        file.unlink()
    tf.compat.v1.train.update_checkpoint_state(str(half / "checkpoints"), "ckpt-30", ["ckpt-30"])
    run(tiny_records, str(half))
    ours, theirs = (
        tf.train.load_checkpoint(latest_in(f"{folder}/checkpoints")) for folder in (half, trained)
    )
    names = [n for n in ours.get_variable_to_shape_map() if "ATTRIBUTES" in n and "save_" not in n]
    assert any("segment_head" in name for name in names)
    assert [n for n in names if not np.array_equal(ours.get_tensor(n), theirs.get_tensor(n))] == []


def test_evaluation_has_its_rows(toy, trained: str, tiny_records: str, capsys, tmp_path):
    evaluate.main(evaluate.EvaluateOptions(trained, tiny_records, batch_size=64, device="cpu"))
    shown = capsys.readouterr().out
    for line in ("CUT, pair head", "CUT, probe", "SOP, probe", "NSP, probe"):
        assert line in shown
    assert "SOP, pair head" not in shown  # of two classes, which this head does not have
    folder = RunDir(trained).path + "/evaluations"
    (name,) = os.listdir(folder)
    with open(os.path.join(folder, name)) as file:
        figures = json.load(file)
    assert figures["trained_with"] == "cut" and figures["baseline/segment"] == 1 / 3
    assert figures["accuracy/cut"] == figures["accuracy/segment"] > 0.6
    assert figures["lengths/cut"] > 0.6 and figures["baseline/sop"] == 0.5
    member = {"configuration": "toy", "parameters": 1, "train/step": 1, **figures}
    table = compare([member], str(tmp_path / "plot.png"))
    assert "accuracy/cut" in table and "accuracy/segment" not in table


def test_its_head_is_built_from_config_json_alone(trained: str, monkeypatch):
    monkeypatch.delitem(OBJECTIVES, "cut")
    model = load_pretrainer(trained)
    inputs = {name: tf.ones([2, 8], tf.int32) for name in ("input_word_ids", "input_mask")}
    inputs |= {"input_type_ids": tf.zeros([2, 8], tf.int32)}
    outputs = model(inputs | {"masked_lm_positions": tf.zeros([2, 1], tf.int32)})
    assert outputs["segment_logits"].shape == (2, 3) and outputs["mlm_logits"].shape == (2, 1, 600)
    again = type(model).from_config(model.get_config())
    assert again.heads == model.heads
    again.set_weights(model.get_weights())
    same = again(inputs | {"masked_lm_positions": tf.zeros([2, 1], tf.int32)})["segment_logits"]
    np.testing.assert_array_equal(same, outputs["segment_logits"])
    assert load_encoder_module(trained).mlm is not None


def test_weights_of_another_head_are_refused(toy, trained: str, tiny_records: str, tmp_path):
    with pytest.raises(InputError, match="other pretraining heads than `objective.pair=sop` needs"):
        more = "objective.pair=sop", "evaluation.metric=loss/mlm"
        run(tiny_records, str(tmp_path / "run"), *more, init=trained)


def test_it_is_not_converted(trained: str):
    with pytest.raises(
        InputError, match="other pretraining heads than ALBERT's.*mlm_head, segment_"
    ):
        native.read(trained, MismatchPolicy())


def test_show_records_explains_it(toy, tiny_records: str, capsys):
    show_records(ShowRecordsOptions(tiny_records, num=1, objective="cut", sample=200))
    shown = capsys.readouterr().out
    assert "label 0: neither is cut; 1: A is cut; 2: B is cut; none: there is no" in shown
    assert "| label 1, of pairs | 0.3" in shown and "| label 2, of pairs | 0.3" in shown


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({}, "`heads` must be a list"),
        ([], "begin with the MLM head"),
        ([{"name": "mlm", "input": "masked_positions", "num_classes": 2}], "must be null"),
        ([{"name": "pair", "input": "pooled_output"}], "a number for pooled_output"),
        ([dataclasses.asdict(head) for head in (MLM_HEAD, PAIR_HEAD, PAIR_HEAD)], "different"),
        ([{"name": "pair", "input": "cls"}], "`heads.input` must be one of pooled_output, masked"),
    ],
)
def test_impossible_heads_are_refused(values, words):
    with pytest.raises(ConfigError, match=words):
        parse_heads(values)


def test_absent_heads_are_alberts():
    assert parse_heads(None) == HEADS
