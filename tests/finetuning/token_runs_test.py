"""Runs of token classification: predictions, ensembles and exports from their files."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy.special import softmax

import albert_tf
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.predictor import load_task_model
from albert_tf.tasks.predictor import predict as predict_all
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import featurize_tokens
from albert_tf.tasks.tokens.model import TokenSettings
from albert_tf.text.tokenizer import load_tokenizer
from finetuning import distill, predict, train
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.kinds.kind import TeacherOutput
from finetuning.kinds.registry import FINETUNING
from finetuning.kinds.text_kind import SoftCrossEntropy
from finetuning.kinds.tokens import PerWordLoss
from finetuning.reporting.report import fingerprint
from finetuning.train import FinetuneOptions
from tests.finetuning.untrained import leave_run, leave_weights

NAME = "token_classification"
SECTION = TokenSettings(("person", "place"), seq_length=24, doc_stride=8)
ROWS = "An O\napple O\nfrom O\nNew B-place\nYork I-place\n\nAnn B-person\n"


@pytest.fixture
def runs(start: str, tmp_path: pathlib.Path) -> list[str]:
    """Two runs without training, of the data in `data`."""
    (tmp_path / "data").mkdir()
    for part in ("train", "dev", "test"):
        (tmp_path / "data" / f"{part}.conll").write_text(ROWS)
    data = fingerprint(DATASETS[NAME].read(Source(str(tmp_path / "data"))))
    paths = [leave_run(start, tmp_path / name, NAME, SECTION, data) for name in ("a", "b")]
    for seed, path in enumerate(paths):
        leave_weights(path, seed)
    return paths


def test_predictions_of_lines_and_of_parts(runs, tmp_path):
    lines = ["Ann, from New York.", json.dumps({"text": "a\tfile"}), "", "with\ta tab"]
    (tmp_path / "in.txt").write_text("\n".join(lines) + "\n")
    out = tmp_path / "out.jsonl"
    predict.main(predict.PredictOptions(runs[0], str(tmp_path / "in.txt"), str(out)))
    found = [json.loads(line) for line in out.read_text().splitlines()]
    texts = [lines[0], "a\tfile", "", "with\ta tab"]
    assert found == albert_tf.load_predictor(runs[0])(texts)
    for text, prediction in zip(texts, found, strict=True):
        for each in prediction["entities"]:
            assert text[each["start"] : each["end"]] == each["text"] and each["text"]
    submission = tmp_path / "test.conll"
    options = predict.PredictOptions(
        runs[0], output=str(out), part="test", submission=str(submission)
    )
    predict.main(dataclasses.replace(options, data_dir=str(tmp_path / "data"), format="tsv"))
    tags = [line.split("\t") for line in submission.read_text().split("\n") if line]
    assert [token for token, _ in tags] == ["An", "apple", "from", "New", "York", "Ann"]
    assert {tag for _, tag in tags} <= set(SECTION.tags)
    header, *spans = out.read_text().splitlines()
    assert header == "index\tstart\tend\tlabel\tscore\ttext"
    assert {span.split("\t")[0] for span in spans} <= {"0", "1"}
    (tmp_path / "in.txt").write_text('{"text": 3}\n')
    with pytest.raises(InputError, match="in.txt:1: the key `text` must .* a text, or a JSON"):
        predict.main(predict.PredictOptions(runs[0], str(tmp_path / "in.txt")))


def test_a_head_of_the_other_scheme_is_refused(runs, tmp_path):
    """Words have no O. With other labels the head is new; with --init it always is."""
    data = tmp_path / "data"
    options = FinetuneOptions(
        NAME, str(tmp_path / "new"), str(data), init_from_task=runs[0], device="cpu", dry_run=True
    )
    train.main(options)
    for part in ("train", "dev"):
        (data / f"{part}.conll").write_text("Ann person\nYork place\n")
    message = r"--init_from_task=.* `task.scheme` .* with 'bio', and data with 'words'.*--init="
    with pytest.raises(InputError, match=message):
        train.main(options)
    train.main(dataclasses.replace(options, init_from_task=None, init=runs[0]))
    for part in ("train", "dev"):
        (data / f"{part}.conll").write_text("Ann name\nYork place\n")
    train.main(options)


@pytest.mark.slow
@pytest.mark.parametrize("loss", distill.LOSSES)
def test_a_student_learns_the_words_of_its_teacher(runs, start, tmp_path, loss):
    """Also from texts without labels: it comes close to its untrained teacher."""
    texts = tmp_path / "more.txt"
    texts.write_text("Ann and the apple.\nFrom New York, by Ann.\n" * 8)
    output, data = tmp_path / "small", str(tmp_path / "data")
    values = (
        "training.steps=80",
        "training.evaluate_every=80",
        "training.batch_size=8",
        "training.learning_rate=0.003",
    )
    options = distill.DistillOptions(
        runs[0], NAME, str(output), data, student=start, texts=str(texts), loss=loss, device="cpu"
    )
    distill.main(dataclasses.replace(options, set=values))
    examples = [TokenExample("Ann and the apple."), TokenExample("From New York, by Ann.")]
    features = featurize_tokens(examples, load_tokenizer(start), SECTION)
    teacher, student, control = (
        softmax(features.of_words(predict_all(load_task_model(str(path)), features, 2)), axis=-1)
        for path in (runs[0], output / "student", output / "control")
    )
    assert abs(student - teacher).max() < 0.1 * abs(control - teacher).max()


def test_losses_of_words_by_hand():
    """Two words and one; the other positions have no target."""
    rng = np.random.default_rng(0)
    targets = np.full([2, 5, 3], np.nan, np.float32)
    places = ([0, 0, 1], [1, 2, 1])
    targets[places] = rng.normal(size=[3, 3])
    logits = rng.normal(size=[2, 4, 3]).astype(np.float32)
    for loss in (tf_keras.losses.MeanSquaredError(), SoftCrossEntropy(2.0)):
        one, two, three = loss.call(targets[places], logits[places]).numpy()
        of_words = PerWordLoss.from_config(PerWordLoss(loss, 1.5).get_config())
        found = of_words.call(tf.constant(targets), tf.constant(logits))
        np.testing.assert_allclose(found, [(one + two) / 1.5, three / 1.5], rtol=1e-5)


def test_targets_of_another_vocabulary(start):
    """The student has words a, ", b and c; the teacher's begin at 0, 4 and 6."""
    features = featurize_tokens([TokenExample('a " b c')], load_tokenizer(start), SECTION)
    assert features.word_first.tolist() == [0, 2, 4, 6]
    logits = np.arange(15, dtype=np.float32).reshape(3, 5)
    answers = [TeacherOutput(logits.ravel(), np.array([0, 4, 6]))]
    targets = FINETUNING["token_classifier"].taught_targets(features, answers, SECTION)
    at = targets[features.word_window, features.word_position]
    np.testing.assert_array_equal(at[[0, 2, 3]], logits)
    assert np.isnan(at[1]).all() and np.isnan(targets).sum() == targets.size - 15
