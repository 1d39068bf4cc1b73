"""`training.class_weights`: the loss by hand, in parts too, and what has no classes."""

import dataclasses
import pathlib

import numpy as np
import pytest
import tensorflow as tf
from scipy.special import log_softmax

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.texts import featurize_texts
from finetuning import distill
from finetuning.datasets.dataset import Data
from finetuning.training.config import Plan
from finetuning.training.fit import balanced_weights, compiled, fine_tune
from finetuning.training.starting_point import StartingPoint, resolve

TASK = ClassifierSettings(labels=("fruit", "tool", "animal"), dropout=0.0)
EXAMPLES = [
    TextExample(text, None, label)
    for text, label in (("apple pear", 0), ("plum", 0), ("melon melon cherry", 0), ("saw", 1))
]


def test_labels_that_do_not_occur_have_no_part():
    """Of 6 examples with 2 labels, 2 have label 0 and 4 have label 2."""
    assert balanced_weights(np.array([0, 0, 2, 2, 2, 2])) == {0: 6 / 4, 1: 0.0, 2: 6 / 8}


@pytest.mark.slow_parameters("none", "balanced parts")
@pytest.mark.parametrize(
    ("assignments", "weights"),
    [
        ((), [1, 1, 1, 1]),
        # n = 4, k = 2: 4 / (2 * 3) for each of three, 4 / (2 * 1) for the other.
        (("training.class_weights=balanced",), [2 / 3, 2 / 3, 2 / 3, 2]),
        (("training.class_weights=balanced", "training.accumulation_steps=2"), [2 / 3] * 3 + [2]),
    ],
    ids=["none", "balanced", "balanced parts"],
)
def test_the_loss_by_hand(
    begin: StartingPoint, tmp_path: pathlib.Path, assignments: tuple[str, ...], weights: list[float]
):
    """The only batch has all examples; its loss is that of the initial weights."""
    chosen = ("training.steps=1", "training.batch_size=4", "training.warmup_fraction=0")
    chosen = (*chosen, "task.seq_length=16", *assignments)
    config = resolve(begin, Data(TASK, EXAMPLES, {}), {}, chosen, "cpu")
    features = featurize_texts(EXAMPLES, begin.tokenizer, config.task)
    run, plan = RunDir(str(tmp_path / "run")), Plan.of(config.training, len(features))
    run.begin({"model": {}}, begin.tokenizer)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    model = compiled(config, plan, lambda: begin.model(config), strategy)
    logits = model(features.batch(tf.range(4))[0]).numpy()
    rows = zip(log_softmax(logits, axis=-1), EXAMPLES, strict=True)
    losses = [-row[example.label] for row, example in rows]
    fine_tune(model, config, plan, features, lambda _: {"accuracy": 1.0}, "accuracy", run)
    (row,) = run.metrics()
    assert row["loss/train"] == pytest.approx(np.dot(weights, losses) / 4, rel=1e-5)


@pytest.mark.parametrize("section", [RegressorSettings(), SpanSettings(), MultipleChoiceSettings()])
def test_other_kinds_refuse_class_weights(begin: StartingPoint, section: object):
    data = Data(dataclasses.replace(section, seq_length=64), [], {})
    with pytest.raises(
        ConfigError, match="`training.class_weights` requires a task of kind classifier. R"
    ):
        resolve(begin, data, {}, ("training.class_weights=balanced",), "cpu")
    resolve(begin, data, {}, ("training.class_weights=none",), "cpu")


def test_a_student_has_no_class_weights(tuned: pathlib.Path, fruit: str, tmp_path: pathlib.Path):
    options = distill.DistillOptions(
        str(tuned / "seed-0"),
        "text_classification",
        str(tmp_path / "out"),
        fruit,
        student_layers=1,
        set=("training.class_weights=balanced",),
    )
    with pytest.raises(InputError, match="`training.class_weights` must be none here"):
        distill.main(options)
