"""Partners of records: segments of other documents, which next-sentence prediction needs.

A partner is segment B of a record of another document. Three properties should not distinguish it
from a true segment B:

- Its length. It is drawn from the records whose segments B are nearest in length to the one that it
  replaces.
- Its ends. The segments of a full sequence may have been truncated. So the partner for a full
  sequence comes from a full sequence too, and any excess is truncated by the rule of the build.
- Its familiarity. It comes from a shard drawn by key from the whole dataset, anew for each shard in
  each epoch.
"""

import dataclasses

import tensorflow as tf

from albert_tf.runtime import keyed_random
from data.records.schema import DOCUMENT, FIRST_LENGTH, PIECES, RecordSchema

# A partner is drawn from at least 1/16 of the records of a shard, clipped to these numbers.
MIN_NEIGHBORS, MAX_NEIGHBORS = 8, 64
_FULL, _NO_SECOND = 2**20, 2**21  # sort full records after the others, and unusable ones last


@dataclasses.dataclass(frozen=True)
class Partners:
    """Choice of a partner for each record, a function of (seed, epoch, record).

    Attributes:
      schema: the schema of the records.
      max_pieces: maximum number of pieces of both segments together.
      seed: seed of the draws.
    """

    schema: RecordSchema
    max_pieces: int
    seed: int

    def shard(self, shard: tf.Tensor, epoch: tf.Tensor, ends: tf.Tensor) -> tf.Tensor:
        """Return the shard with the partners of `shard`, drawn in proportion to its records.

        `ends`, int64 [shards], contains the cumulative numbers of records.
        """
        draw = keyed_random.graph_bits(
            keyed_random.graph_stream_key(self.seed, keyed_random.PARTNER_SHARD, epoch), shard
        )
        count = ends[-1]
        of_many = tf.cast(draw % tf.cast(count, tf.uint64), tf.int64)
        of_few = tf.cast(keyed_random.graph_below(draw, count), tf.int64)
        record = tf.where(count < 2**31, of_few, of_many)
        return tf.searchsorted(ends, record[None], side="right", out_type=tf.int64)[0]

    def choose(
        self, raw: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, others: tf.Tensor
    ) -> tf.Tensor:
        """Return a partner, string [n], for each record.

        If no record of another document has a segment B, the partner is any record.

        Args:
          raw: string [n], the serialized records.
          index: int64 [n], the indices of the records.
          epoch: the epoch, a scalar.
          others: string [m], the serialized records to choose from.
        """
        (document, length), (other_document, other_length) = map(
            self._document_and_length, (raw, others)
        )
        tie = self._bits(keyed_random.PARTNER_TIE, epoch, tf.range(tf.size(others, tf.int64)))
        tie = tf.cast(tf.bitwise.right_shift(tie, tf.constant(24, tf.uint64)), tf.int64)
        usable = tf.where(other_length > 0, other_length, _NO_SECOND)
        order = tf.argsort(usable * 2**40 + tie)
        lengths, documents = tf.gather(usable, order), tf.gather(other_document, order)
        count = tf.reduce_sum(tf.cast(other_length > 0, tf.int32))
        begin, size = _windows(length, lengths, count)
        pick = begin + keyed_random.graph_below(
            self._bits(keyed_random.PARTNER_PICK, epoch, index), tf.maximum(size, 1)
        )
        another = tf.gather(_next_other_document(documents[:count]), pick)
        pick = tf.where(tf.gather(documents, pick) == document, another, pick)
        return tf.gather(others, tf.gather(order, pick))

    def _document_and_length(self, raw: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Return document and length of segment B (plus _FULL in a full sequence), int64 [n]."""
        parsed = self.schema.parse(raw)
        pieces = tf.cast(parsed[f"{PIECES}_length"], tf.int64)
        second = pieces - parsed[FIRST_LENGTH]
        is_full = (second > 0) & (pieces >= self.max_pieces)
        return parsed[DOCUMENT], second + _FULL * tf.cast(is_full, tf.int64)

    def _bits(self, stream: int, epoch: tf.Tensor, counter: tf.Tensor) -> tf.Tensor:
        return keyed_random.graph_bits(
            keyed_random.graph_stream_key(self.seed, stream, epoch), counter
        )


def _windows(
    length: tf.Tensor, lengths: tf.Tensor, count: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return begin and size, int32 [n], of the range from which the partners are drawn.

    The range is in `lengths`, which is sorted and starts with `count` usable entries. It contains
    all entries equal to `length`. If these are few, it also contains entries around them; for a
    full sequence, longer ones if possible, so that the sequence stays full.
    """
    low, high = (tf.searchsorted(lengths, length, side) for side in ("left", "right"))
    fewest = tf.clip_by_value(count // 16, MIN_NEIGHBORS, MAX_NEIGHBORS)
    size = tf.minimum(tf.maximum(fewest, high - low), count)
    is_full = length >= _FULL
    end_of_class = tf.where(is_full, count, tf.reduce_sum(tf.cast(lengths < _FULL, tf.int32)))
    begin = tf.where(is_full, low, (low + high - size) // 2)
    return tf.maximum(tf.minimum(begin, end_of_class - size), 0), size


def _next_other_document(documents: tf.Tensor) -> tf.Tensor:
    """Return the index of the next entry of another document, int32 [count + 1].

    If there is none, it is the last index before, or 0 if all entries are of one document.
    """
    changes = tf.cast(tf.where(documents[1:] != documents[:-1])[:, 0], tf.int32)
    change = tf.searchsorted(changes, tf.range(tf.size(documents) + 1))
    return tf.gather(tf.concat([changes + 1, changes[-1:], [0]], axis=0), change)
