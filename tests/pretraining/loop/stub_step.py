"""A training step that costs nothing, for tests of the loop around it."""

from collections.abc import Collection, Mapping

import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW
from data.pipeline.batches import Records, training_batches
from pretraining.loop.config import PretrainConfig
from pretraining.loop.train_step import TrainStep


class StubStep:
    """Adds to one bias a number that depends on the batch and on the weights before it.

    So the weights tell which batches were trained on, and in which order.

    Args:
      bad: fingerprints of batches that are skipped, as a loss that is not finite would be.
    """

    def __init__(
        self,
        model: AlbertPretrainer,
        optimizer: AdamW,
        config: PretrainConfig,
        side_by_side: int = 1,
        bad: Collection[int] = (),
    ) -> None:
        self.optimizer, self.weight = optimizer, model.encoder.pooler.bias
        self.results = TrainStep(model, optimizer, config).results
        self.bad = tf.constant(list(bad), tf.int32)

    def __call__(self, batch: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        number = fingerprint(batch)
        skipped = tf.cast(tf.reduce_any(number == self.bad), tf.float32)
        moved = 0.9 * self.weight + tf.cast(number % 97, tf.float32) / 97
        self.weight.assign(tf.where(skipped > 0, self.weight, moved))
        self.optimizer.iterations.assign_add(1)
        results = dict.fromkeys(self.results, 1.0 - skipped)
        return results | {"grad_norm": tf.constant(1.0), "skipped": skipped}


def fingerprint(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
    """An int32 that differs between batches."""
    ids = batch["input_word_ids"]
    places = tf.reshape(tf.range(tf.size(ids)), tf.shape(ids))
    return tf.reduce_sum(ids * (places % 1009 + 1))


def fingerprints(records: Records, config: PretrainConfig, count: int) -> list[int]:
    """The fingerprints of the first batches of a run."""
    size = config.loop.global_batch_size
    values = config.objective.of_pairs, config.masking, size, config.seed
    batches = training_batches(records, *values, schedule_steps=config.schedule_steps)
    return [int(fingerprint(batch)) for batch in batches.take(count)]
