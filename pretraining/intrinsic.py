"""Held-out losses and accuracies of a pretrainer, with baselines and standard errors."""

import math
from typing import Any

import numpy as np
import tensorflow as tf

from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.progress import Progress
from data.input_pipeline import Records, evaluation_batches
from pretraining.config import PretrainConfig
from pretraining.losses import SUMS, means, pretraining_sums
from pretraining.step import MODEL_INPUTS


def evaluate(
    model: AlbertPretrainer, records: Records, config: PretrainConfig, batch_size: int
) -> dict[str, Any]:
    """Losses, accuracies, their baselines and standard errors, and the counts behind them."""

    @tf.function
    def sums_of(batch: dict[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        return pretraining_sums(model({name: batch[name] for name in MODEL_INPUTS}), batch)

    totals = dict.fromkeys(SUMS, 0.0)
    targets: np.ndarray = np.zeros(records.manifest.vocab_size, np.int64)
    batches = evaluation_batches(records, config.objective, config.masking, batch_size)
    with Progress("sequences", records.manifest.num_records) as progress:
        for batch in batches:
            for name, value in sums_of(batch).items():
                totals[name] += float(value)
            real = batch["masked_lm_weights"].numpy() > 0
            np.add.at(targets, batch["masked_lm_ids"].numpy()[real], 1)
            progress.advance(min(batch_size, records.manifest.num_records - progress.done))
    result: dict[str, Any] = means(totals) | {
        "baseline/mlm": float(targets.max() / targets.sum()),
        "count/mlm": totals["mlm_count"],
        "count/pair": totals["pair_count"],
    }
    for name in ("mlm", "pair"):
        if f"accuracy/{name}" in result:
            p, n = result[f"accuracy/{name}"], result[f"count/{name}"]
            result[f"standard_error/{name}"] = math.sqrt(p * (1 - p) / n)
    if "accuracy/pair" in result:
        result["verdict/pair"] = above_chance(result["accuracy/pair"], result["count/pair"])
    return result


def report(result: dict[str, Any]) -> str:
    """The figures as two lines a person can read."""
    lines = [
        f"MLM: loss {result['loss/mlm']:.3f}, accuracy {result['accuracy/mlm']:.4f} "
        f"± {result['standard_error/mlm']:.4f} over {result['count/mlm']:,.0f} pieces "
        f"(always the most frequent piece: {result['baseline/mlm']:.4f})"
    ]
    if "accuracy/pair" in result:
        lines.append(
            f"SOP: loss {result['loss/pair']:.3f}, accuracy {result['accuracy/pair']:.4f} "
            f"± {result['standard_error/pair']:.4f} over {result['count/pair']:,.0f} pairs: "
            f"{result['verdict/pair']}"
        )
    return "\n".join(lines)


def above_chance(accuracy: float, count: float) -> str:
    """Says plainly whether an accuracy is above one half, by two standard errors."""
    distance = (accuracy - 0.5) / (0.5 / math.sqrt(count))
    verdict = "above chance" if distance > 2 else "not above chance yet"
    return f"{verdict} ({distance:+.1f} standard errors from 50 %)"
