"""Metrics of the scores of pairs that belong together or not."""

import numpy as np

from finetuning.datasets.scores.multi_label_metrics import average_precision, by_rank

METRICS = ("average_precision", "best_f1", "best_accuracy")


def score_pairs(labels: np.ndarray, scores: np.ndarray) -> dict[str, float]:
    """Return the average precision, and F1 and accuracy at the thresholds that are best for them.

    They are those of sentence-transformers' `BinaryClassificationEvaluator`: a threshold is in the
    middle between two neighboring scores, and the highest of equally good ones counts. There, a
    threshold may also lie between equal scores, which it could not separate. As the thresholds are
    chosen on these pairs, `best_f1` and `best_accuracy` are upper bounds; without one, they are 0.

    Args:
      labels: 1 for pairs that belong together and 0 for others, [N].
      scores: higher for pairs that are more alike, [N].

    Returns:
      `METRICS`, and `best_f1_threshold` and `best_accuracy_threshold`.
    """
    # Of the pairs above each threshold, and of those among them with 1; not of all pairs.
    counts, hits = (values[:-1] for values in by_rank(scores, labels))
    distinct = np.unique(scores)[::-1]
    thresholds = (distinct[:-1] + distinct[1:]) / 2
    positives = labels.sum()
    values = {
        "best_f1": 2 * hits / (counts + positives),
        "best_accuracy": (hits + (len(labels) - positives) - (counts - hits)) / len(labels),
    }
    result = {"average_precision": average_precision(labels[:, np.newaxis], scores[:, np.newaxis])}
    for name, curve in values.items():
        best = int(np.argmax(curve)) if len(curve) else None
        result[name] = 0.0 if best is None else float(curve[best])
        result[f"{name}_threshold"] = 0.0 if best is None else float(thresholds[best])
    return result
