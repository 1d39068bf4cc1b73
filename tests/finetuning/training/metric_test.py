"""`training.metric`: every metric of every task can decide; others are refused by name."""

import pathlib
from typing import Any

import pytest
import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Source
from finetuning.training.config import FinetuneConfig, TrainingConfig
from finetuning.training.finetuner import Finetuner, TrainingSource
from finetuning.training.starting_point import StartingPoint

SPAN = {"answer": "b", "n_best": [{"text": "b"}], "null_score": 0.5}
# kind or task -> examples and predictions, half of which are right.
ANSWERS: dict[str, tuple[list[Any], list[dict[str, Any]]]] = {
    "classifier": (
        [TextExample("", "", label) for label in (0, 1)],
        [{"label": "x", "probabilities": {"x": 0.9, "y": 0.1}}] * 2,
    ),
    "regressor": (
        [TextExample("", "", label) for label in (0.0, 1.0, 2.0)],
        [{"score": score} for score in (1.0, 2.0, 1.5)],
    ),
    "multiple_choice": (
        [ChoiceExample("", "", ("a", "b"), label) for label in (0, 1)],
        [{"choice": 0, "label": "A"}] * 2,
    ),
    "multi_label": (
        [TextExample("", None, labels) for labels in ((0,), (0, 1))],
        [{"labels": ["x"], "probabilities": {"x": 0.9, "y": 0.1}}] * 2,
    ),
    "token_classifier": (
        [TokenExample("a b", None, ((0, 1, label),)) for label in "xy"],
        [{"entities": [{"start": 0, "end": 1, "label": "x"}]}] * 2,
    ),
    "embedding": (
        [SearchExample(text, label=(("x", 1.0),)) for text in "ab"],
        [{"ranking": [["x", 0.9]]}, {"ranking": [["y", 0.9]]}],
    ),
    "ranking": (
        [RankingExample("", ("x", "y"), (1.0, 0.0))] * 2,
        [{"scores": [0.9, 0.1]}, {"scores": [0.1, 0.9]}],
    ),
    "sts": (
        [TextExample("", "", label) for label in (0.0, 1.0, 2.0)],
        [{"score": score} for score in (0.1, 0.9, 0.5)],
    ),
    "pair_classification": (
        [TextExample("", "", label) for label in (0.0, 1.0)],
        [{"score": 0.1}, {"score": 0.9}],
    ),
    "span": (
        [SpanExample("", "a b", "1", ((2, "b"),)), SpanExample("", "a b", "2", ((0, "a"),))],
        [SPAN, SPAN],
    ),
}


@pytest.mark.parametrize("name", DATASETS)
def test_every_metric_is_among_the_scores(name: str):
    task = DATASETS[name]
    examples, predictions = ANSWERS.get(name) or ANSWERS[task.kind]
    scores = task.score(predictions, examples)
    assert set(task.metrics) <= set(scores)
    assert all(isinstance(scores[metric], float) for metric in task.metrics)


@pytest.mark.parametrize("name", {task.kind: name for name, task in DATASETS.items()}.values())
def test_an_unknown_metric_is_refused_before_anything_is_computed(
    name: str, begin: StartingPoint, tmp_path: pathlib.Path
):
    task = DATASETS[name]
    kind = KINDS[task.kind].settings
    section = kind(labels=("x", "y")) if kind.has_labels() else kind()
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    data, training = Data(section, [], {"dev": []}), TrainingConfig(metric="specificity")
    finetuner = Finetuner(name, task, data, Source(None), begin.tokenizer, strategy)
    config = FinetuneConfig(AlbertConfig(), section, training)
    with pytest.raises(ConfigError) as error:
        finetuner.run(config, RunDir(str(tmp_path / "run")), TrainingSource("", begin.model, ""))
    names = f"a score of --task={name}: {', '.join(task.metrics)}. Received: 'specificity'."
    assert f"`training.metric` must be {names}" in str(error.value)
    assert not (tmp_path / "run").exists()
