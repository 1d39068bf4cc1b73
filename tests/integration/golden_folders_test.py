"""What an earlier commit wrote is read by today's code, which gives that commit's answers.

tests/golden/run/make.sh has the commands that wrote it.
"""

import itertools
import json
import pathlib
import tarfile

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text  # noqa: F401  (operations of the export that takes text)

import albert_tf
from data.objectives.masking import MaskingConfig
from data.objectives.registry import ObjectiveConfig
from data.pipeline.batches import Records, training_batches
from pretraining import train as pretrain

ARCHIVE = pathlib.Path(__file__).resolve().parents[1] / "golden" / "run" / "run.tar.xz"
Answers = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def golden(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder golden_run, in the folder that its commands were given in."""
    place = tmp_path_factory.mktemp("golden")
    with tarfile.open(ARCHIVE) as archive:
        archive.extractall(place, filter="data")
    return place / "golden_run"


@pytest.fixture(scope="module")
def answers(golden: pathlib.Path) -> Answers:
    """What that commit computed of N texts: one with accents, emoji, Chinese, one empty.

    texts: [N]; input_word_ids: int32 [N, S], as one segment each with its special pieces.
    sequence_output, pooled_output, pair_logits, mlm_logits at position 1: of the pretrained run.
    labels, probabilities: of the fine-tuned run. batch/*: the run's first batch of records.
    """
    with np.load(golden / "answers.npz") as arrays:
        return dict(arrays)


def inputs_of(answers: Answers) -> dict[str, np.ndarray]:
    ids = answers["input_word_ids"]
    mask = (ids > 0).astype(np.int32)  # <pad> is 0
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": np.zeros_like(ids)}


def assert_same(found: dict[str, tf.Tensor], answers: Answers, *names: str) -> None:
    """To float32's rounding: sums may be taken in another order."""
    for name in names:
        np.testing.assert_allclose(found[name], answers[name], rtol=1e-5, atol=1e-5, err_msg=name)


@pytest.mark.parametrize(
    "place",
    ["tokenizer", "records", "pretrained", "finetuned", "export/encoder/1", "export/classifier/1"],
)
def test_ids(golden: pathlib.Path, answers: Answers, place: str):
    tokenizer = albert_tf.load_tokenizer(str(golden / place))
    special = tokenizer.special
    for text, row in zip(answers["texts"].tolist(), answers["input_word_ids"], strict=True):
        assert [special.cls, *tokenizer.encode(text), special.sep] == row[row > 0].tolist(), text


@pytest.mark.parametrize("place", ["pretrained", "export/encoder/1"])
def test_encoder(golden: pathlib.Path, answers: Answers, place: str):
    outputs = albert_tf.load_encoder(str(golden / place))(inputs_of(answers))
    assert_same(outputs, answers, "sequence_output", "pooled_output")


def test_pretrainer(golden: pathlib.Path, answers: Answers):
    positions = {"masked_lm_positions": np.ones([len(answers["texts"]), 1], np.int32)}
    outputs = albert_tf.load_pretrainer(str(golden / "pretrained"))(inputs_of(answers) | positions)
    assert_same(outputs, answers, "mlm_logits", "pair_logits", "pooled_output")


def test_predictor(golden: pathlib.Path, answers: Answers):
    examples = [albert_tf.TextExample(text) for text in answers["texts"].tolist()]
    found = albert_tf.load_predictor(str(golden / "finetuned"))(examples)
    labels = answers["labels"].tolist()
    probabilities = np.array([[one["probabilities"][label] for label in labels] for one in found])
    assert_same({"probabilities": probabilities}, answers, "probabilities")
    best = answers["probabilities"].argmax(axis=1)
    assert [one["label"] for one in found] == [labels[index] for index in best]


def test_saved_models(golden: pathlib.Path, answers: Answers):
    encoder, classifier = (
        tf.saved_model.load(str(golden / "export" / name / "1"))
        for name in ("encoder", "classifier")
    )
    ids = {name: tf.constant(value) for name, value in inputs_of(answers).items()}
    assert_same(encoder(ids), answers, "sequence_output", "pooled_output")
    served = encoder.signatures["serving_default"](**ids)
    assert_same(served, answers, "sequence_output", "pooled_output")
    served = classifier.signatures["serving_default"](text=tf.constant(answers["texts"].tolist()))
    assert_same(served, answers, "probabilities")


def test_the_first_batch_of_the_records(golden: pathlib.Path, answers: Answers):
    """Their order, their pieces, pairs and masks: a restart draws them again."""
    config = json.loads((golden / "pretrained" / "config.json").read_text(encoding="utf-8"))
    batches = training_batches(
        Records.open(str(golden / "records")),
        ObjectiveConfig(**config["objective"]).of_pairs,
        MaskingConfig(**config["masking"]),
        config["loop"]["global_batch_size"],
        config["seed"],
    )
    batch = next(iter(batches))
    expected = {
        name.removeprefix("batch/"): value
        for name, value in answers.items()
        if name.startswith("batch/")
    }
    assert expected.keys() == batch.keys()
    for name, value in expected.items():
        np.testing.assert_array_equal(batch[name], value, err_msg=name)


def test_the_command_finds_its_run_complete(
    golden: pathlib.Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    """Nothing is written."""
    run = golden / "pretrained"
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    command = json.loads((run / "environment.json").read_text(encoding="utf-8"))["command"]
    flags = dict(
        word[2:].split("=", 1) for word in command if word.startswith("--") and "=" in word
    )
    values = tuple(value for flag, value in itertools.pairwise(command) if flag == "--set")
    monkeypatch.chdir(golden.parent)
    pretrain.main(pretrain.TrainOptions(**flags, set=values))
    assert f"{flags['run_dir']} is already complete" in capsys.readouterr().out
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
