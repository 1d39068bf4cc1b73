"""`training.calibrate`: errors and temperatures by hand, and a run whose probabilities it made."""

import json
import pathlib
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.convert.__main__ import ConvertOptions
from albert_tf.convert.__main__ import main as convert
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.models.checkpoints import read_checkpoint
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Sequences, TextFeatures
from albert_tf.tasks.multi_label.model import MultiLabelClassifier, MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceModel, MultipleChoiceSettings
from albert_tf.tasks.predictor import load_predictor, load_task_model, predict
from albert_tf.tasks.probabilities import softmax
from albert_tf.tasks.texts import featurize_texts
from finetuning.datasets.scores.calibration import (
    Answered,
    Confidences,
    answered,
    calibration_error,
    reliability,
)
from finetuning.kinds.registry import FINETUNING
from finetuning.train import FinetuneOptions, main
from finetuning.training.calibration import (
    best_temperature,
    cross_fitted,
    halves,
    require_probabilities,
)
from tests.finetuning.conftest import QUICK

TEXTS = ["apple pear", "hammer", "plum saw", "cherry"]


def test_what_a_threshold_costs_by_hand():
    """Of five answers, three of them right, those of at least .8 are three, two of them right."""
    probability = np.array([0.5, 0.6, 0.8, 0.9, 0.95])
    confidences = Confidences(probability, np.array([False, True, True, False, True]))
    assert answered(confidences, 0.8) == pytest.approx(Answered(0.8, 3 / 5, 2 / 3, 1 / 3))
    assert answered(confidences, 0.0) == pytest.approx(Answered(0.0, 1, 3 / 5, 0))
    assert answered(confidences, 0.99) == pytest.approx(Answered(0.99, 0, np.nan, 1), nan_ok=True)


def test_the_calibration_error_by_hand():
    """Of 15 bins, .9 is in the 14th, .6 and .55 in the 9th, 0 in the first."""
    probability = np.array([0.9, 0.9, 0.6, 0.55, 0.0])
    confidences = Confidences(probability, np.array([True, False, True, False, False]))
    bins = reliability(confidences)
    assert bins.size.tolist() == [1, 2, 2] and bins.accuracy.tolist() == [0, 0.5, 0.5]
    np.testing.assert_allclose(bins.probability, [0, 0.575, 0.9])
    assert calibration_error(confidences) == pytest.approx((2 * 0.075 + 2 * 0.4) / 5)


def test_an_edge_is_in_the_lower_bin():
    probability = np.array([0.2, 0.2001, 1.0])
    sizes = reliability(Confidences(probability, np.ones(3, bool)), bins=5).size
    assert sizes.tolist() == [1, 1, 1]


def targets(labels: np.ndarray, windows: int = 1) -> TextFeatures:
    """The features of texts in windows, as far as a temperature depends on them."""
    ids = np.zeros(0, np.int32)
    empty = Sequences(ids, ids, ids, 0, np.zeros(0, bool))
    example = np.arange(len(labels), dtype=np.int32) // windows
    return TextFeatures(empty, 8, {"label": labels}, example=example)


def classifier(**values: object) -> SequenceClassifier:
    return SequenceClassifier(
        AlbertEncoder.from_preset("albert-tiny"), ClassifierSettings(**values)
    )


@pytest.mark.parametrize(
    "settings", [{}, {"pooling": "mean", "loss": "contrastive"}, {"exit_losses": True}]
)
def test_the_temperature_by_hand(settings: dict[str, object]):
    """With the logits 2 and 0, and 3 of 4 answers right, e^(2 / T) / (1 + e^(2 / T)) is 3/4.

    Also if another loss was trained.
    """
    model = classifier(labels=("a", "b"), **settings)
    logits, features = np.tile([[2.0, 0.0]], (40, 1)), targets(np.repeat([0, 1], (30, 10)))
    assert best_temperature(model, logits, features) == pytest.approx(2 / np.log(3), rel=1e-3)


def test_the_temperature_of_several_labels():
    task = MultiLabelSettings(labels=("a", "b"))
    model = MultiLabelClassifier(AlbertEncoder.from_preset("albert-tiny"), task)
    logits, labels = np.full([40, 2], 2.0), np.zeros([40, 2], np.float32)
    labels[:30, 0] = labels[10:, 1] = 1
    found = best_temperature(model, logits, targets(labels))
    assert found == pytest.approx(2 / np.log(3), rel=1e-3)


@pytest.mark.parametrize(
    ("kind", "long_texts", "right", "p"),
    [
        ("classifier", "mean", 24, 0.7),  # (p + 1/2) / 2 = .6
        ("multi_label", "mean", 24, 0.7),
        ("classifier", "max", 24, 0.75),  # p / (p + 1/2) = .6
        ("multi_label", "max", 30, 0.75),  # p = .75
        ("multiple_choice", "mean", 24, 0.7),
        ("multiple_choice", "max", 24, 0.75),
    ],
)
def test_the_temperature_of_texts_in_windows(kind, long_texts, right, p):
    """Of 40 texts of two windows, with the probabilities p and 1/2, so many are right."""
    encoder, labels = (
        AlbertEncoder.from_preset("albert-tiny"),
        np.repeat([0, 1], (right, 40 - right)),
    )
    if kind == "classifier":
        task = ClassifierSettings(labels=("a", "b"), long_texts=long_texts)
        model, logits = SequenceClassifier(encoder, task), np.tile([[2.0, 0.0], [0, 0]], (40, 1))
    elif kind == "multiple_choice":
        task = MultipleChoiceSettings(num_choices=2, long_texts=long_texts)
        model, logits = MultipleChoiceModel(encoder, task), np.tile([[2.0, 0.0], [0, 0]], (40, 1))
    else:
        task = MultiLabelSettings(labels=("a",), long_texts=long_texts)
        model, logits = MultiLabelClassifier(encoder, task), np.tile([[2.0], [0.0]], (40, 1))
        labels = 1 - labels[:, np.newaxis].astype(np.float32)
    found = best_temperature(model, logits, targets(np.repeat(labels, 2, axis=0), windows=2))
    assert found == pytest.approx(2 / np.log(p / (1 - p)), rel=1e-2)


def test_each_half_has_the_temperature_of_the_other(begin):
    """The even examples are right in 3 of 4 cases, the odd ones in 9 of 10."""
    model = classifier(labels=("a", "b"))
    half = halves(80)
    places = [int(np.sum(half[:row] == half[row])) for row in range(80)]  # in its half
    labels = [int(place % (4, 10)[half[row]] == 0) for row, place in enumerate(places)]
    examples = [TextExample("apple", None, label) for label in labels]
    features = featurize_texts(examples, begin.tokenizer, model.task)
    predictions = cross_fitted(model, np.tile([[2.0, 0.0]], (80, 1)), features, examples)
    for row, prediction in enumerate(predictions):
        assert prediction["probabilities"]["a"] == pytest.approx([0.9, 0.75][half[row]], rel=1e-3)
    assert half.sum() == 40 and half[::2].sum() not in (0, 40)


@pytest.fixture(scope="module")
def calibrated(start: str, fruit: str, made_once: Callable) -> RunDir:
    """A run of few steps, whose probabilities are not those of right answers."""

    def write(folder: pathlib.Path) -> None:
        changes = ("training.steps=15", "training.calibrate=true")
        given = ("text_classification", str(folder), fruit)
        main(FinetuneOptions(*given, init=start, set=(*QUICK, *changes)))

    return RunDir(str(made_once("calibrated", write)))


def test_probabilities_are_those_of_divided_logits(calibrated: RunDir, tmp_path: pathlib.Path):
    predictor = load_predictor(calibrated.path)
    temperature = predictor.task.logit_temperature
    assert temperature != 1 and calibrated.section("task")["logit_temperature"] == temperature
    raw = SequenceClassifier(predictor.model.encoder, predictor.task).create_weights()
    read_checkpoint(tf.train.Checkpoint(model=raw), calibrated.path)
    features = featurize_texts(
        [TextExample(text) for text in TEXTS], predictor.tokenizer, predictor.task
    )
    wanted = softmax(predict(raw, features, 4) / temperature)
    answers = predictor(TEXTS)
    rows = [list(answer["probabilities"].values()) for answer in answers]
    np.testing.assert_allclose(rows, wanted, rtol=1e-5)

    export(ExportOptions(run_dir=calibrated.path, output=str(tmp_path / "export")))
    served = tf.saved_model.load(str(tmp_path / "export" / "1")).signatures["serving_default"]
    np.testing.assert_allclose(served(text=tf.constant(TEXTS))["probabilities"], wanted, rtol=1e-4)
    convert(ConvertOptions(calibrated.path, str(tmp_path / "converted")))
    converted = load_task_model(str(tmp_path / "converted"))
    assert converted.task.logit_temperature == 1
    np.testing.assert_allclose(softmax(predict(converted, features, 4)), wanted, rtol=1e-5)


def test_the_card_has_both_errors(calibrated: RunDir):
    result, card = calibrated.result(), pathlib.Path(calibrated.card_path).read_text()
    rows = [json.loads(line) for line in open(calibrated.predictions_path("dev"))]
    assert 0 < result["calibration_error"] and 0 < result["uncalibrated_error"]
    for name in ("calibration_error", "uncalibrated_error"):
        assert f"{result[name]:.4f}" in card
    first = result["answered"][0]
    assert f"| {first['least']:g} | {first['share']:.1%} | {first['accuracy']:.1%} | " in card
    likelihoods = [row["prediction"]["probabilities"][row["example"]["label"]] for row in rows]
    assert result["loss"] == pytest.approx(-np.mean(np.log(likelihoods)), rel=1e-4)
    assert (pathlib.Path(calibrated.plots_path) / "reliability.png").stat().st_size > 0


def test_what_cannot_be_calibrated_is_refused():
    examples = [TextExample("a", None, 0)] * 30
    require_probabilities("classifier", examples)
    with pytest.raises(InputError, match="at least 30 dev examples.*Received: 29"):
        require_probabilities("classifier", examples[:29])
    with pytest.raises(ConfigError, match="classifier, multi_label, multiple_choice.*regressor"):
        require_probabilities("regressor", examples)


def test_the_confidences_of_choices():
    predictions = [{"choice": 1, "probabilities": [0.2, 0.8]}, {"choice": 0, "probabilities": [1]}]
    examples = [ChoiceExample("q", "", ("x", "y"), label) for label in (1, 1)]
    confidences = FINETUNING["multiple_choice"].confidences(predictions, examples)
    assert confidences.probability.tolist() == [0.8, 1] and confidences.is_right.tolist() == [1, 0]
