"""An objective of pairs as a user would add it: which segment is cut to its first piece."""

import tensorflow as tf

from albert_tf.models.head import POOLED_OUTPUT, Head
from albert_tf.runtime import keyed_random
from data.objectives.pair_objective import PairObjective, Record, Segments, segment_lengths


class CutSegment(PairObjective):
    name, classes = "cut", ("neither is cut", "A is cut", "B is cut")
    without_label = "there is no second segment"
    head = Head("segment", POOLED_OUTPUT, 3)

    def draw(
        self, record: Record, partner: Record | None, key: tf.Tensor, max_pieces: int
    ) -> Segments:
        """Keep all pieces of A and B, or only the first one of one of them."""
        first, second = segment_lengths(record)
        which = keyed_random.graph_below(key, len(self.classes))
        return Segments(
            first_begin=tf.zeros_like(first),
            first_length=tf.where(which == 1, 1, first),
            second_begin=first,
            second_length=tf.where(which == 2, 1, second),
            label=which,
            weight=second > 0,
        )
