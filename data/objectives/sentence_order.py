"""Sentence-order prediction: whether two segments are swapped (paper section 3.1)."""

import tensorflow as tf

from data.objectives.pair_objective import PairObjective, Record, Segments, bit, segment_lengths


class SentenceOrder(PairObjective):
    """SOP: the segments are in order or swapped, in equal shares."""

    name, classes = "sop", ("in order", "swapped")
    without_label = "there is no second segment"

    def draw(
        self, record: Record, partner: Record | None, key: tf.Tensor, max_pieces: int
    ) -> Segments:
        """Return B before A if a bit of the key is set and there is a B."""
        first, second = segment_lengths(record)
        has_pair = second > 0
        swapped = (bit(key, 63) == 1) & has_pair
        return Segments(
            first_begin=tf.where(swapped, first, 0),
            first_length=tf.where(swapped, second, first),
            second_begin=tf.where(swapped, 0, first),
            second_length=tf.where(swapped, first, second),
            label=swapped,
            weight=has_pair,
        )
