"""Baselines without an encoder: features of words, with logistic or ridge regression."""

import functools
from collections.abc import Mapping
from typing import Any

from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Dataset
from finetuning.kinds.baselines.regularization import Examples, Predictions, best_strength
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report

KINDS = tuple(name for name, kind in FINETUNING.items() if kind.has_baseline)


def has_baseline(name: str) -> bool:
    """Return True if the dataset `name` is of a kind with such a baseline."""
    return DATASETS[name].kind in KINDS


def result_of(
    dataset: Dataset,
    data: Data,
    threshold_share: float = 0.0,
    threshold_per_label: bool = False,
    on_dev: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Train on the training examples and return the scores on the first dev set, as result.json.

    The words of a text are weighted by TF-IDF with logarithmic counts. A pair of texts has the
    features of each, their products and absolute differences, and its cosine. For several labels,
    there is a logistic regression for each. For token classification, see `word_features`.
    Five-fold cross-validation on the training examples chooses the strength of the regularization
    by the task's first metric; for several labels with `threshold_share`, at the thresholds that
    are best for the same predictions. The result has it as `regularization`.

    Args:
      dataset: of a kind that has such a baseline.
      data: its examples.
      threshold_share: as in `TrainingConfig`, for several labels. If 0, the threshold is 0.5.
      threshold_per_label: as in `TrainingConfig`.
      on_dev: an earlier result, whose strength is taken instead of being chosen again.
    """
    (name, dev), *_ = data.dev.items()
    kind, task, metric = FINETUNING[dataset.kind], data.task, dataset.metrics[0]
    train: Examples = data.train
    held_out: Examples = []
    thresholds = kind.thresholds
    if thresholds and threshold_share:
        train, held_out = thresholds.hold_out(train, threshold_share)
    prepare = functools.partial(kind.baseline, task)

    def tuned(predictions: Predictions, known: Predictions, examples: Examples) -> Predictions:
        """Return the predictions at the thresholds that are best for those of known examples."""
        if not (thresholds and held_out):
            return predictions
        best = thresholds.best(known, examples, {}, threshold_per_label)
        return thresholds.applied(predictions, task.replace(**{thresholds.key: best}))

    def score(predictions: Predictions, examples: Examples) -> float:
        return dataset.score(tuned(predictions, predictions, examples), examples)[metric]

    strength = on_dev["regularization"] if on_dev else best_strength(prepare, train, score)
    every = prepare(train, [*dev, *held_out])(strength)
    predictions = tuned(every[: len(dev)], every[len(dev) :], held_out)
    scores = {"metric": metric, **dataset.score(predictions, dev)}
    scores |= {"train_examples": len(train), "regularization": strength}
    return scores | report.baselines_and_errors(dataset, data, name, predictions, metric)
