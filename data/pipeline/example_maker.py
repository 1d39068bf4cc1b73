"""The model's inputs from compact records: segments laid out with special pieces, and masked."""

import dataclasses

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from data.objectives.masked_lm import MaskedLm
from data.objectives.masking import MaskingConfig, Vocabulary
from data.objectives.pair_objective import PairObjective, Segments
from data.objectives.row_ops import take
from data.records.manifest import Manifest


def max_pieces(seq_length: int) -> int:
    """Return the maximum number of pieces of a pair, without [CLS] and two [SEP]."""
    return seq_length - 3


class ExampleMaker:
    """Function from serialized records of the compact layout to features and targets."""

    def __init__(
        self, manifest: Manifest, objective: PairObjective, masking: MaskingConfig, seed: int
    ) -> None:
        self.manifest, self.objective, self.seed = manifest, objective, seed
        self.masked_lm = MaskedLm(masking)
        self.pad_id, _, self.cls_id, self.sep_id, mask_id = manifest.special_ids
        self.vocabulary = Vocabulary(manifest.vocab_size, mask_id, manifest.special_ids)

    @tf.autograph.experimental.do_not_convert  # only graph operations; conversion takes seconds
    def __call__(
        self,
        raw: tf.Tensor,
        index: tf.Tensor,
        epoch: tf.Tensor,
        partner: tf.Tensor | None = None,
        rate: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Return a batch of examples.

        Args:
          raw: string [B], the serialized records.
          index: int64 [B], the indices of the records.
          epoch: int64 [B], the epochs of the records.
          partner: string [B], the serialized partners, if the objective has them.
          rate: float32 [B], the masking rate of each record; by default `masking.rate`.

        Returns:
          input_word_ids, input_mask, input_type_ids: int32 [B, S].
          masked_lm_positions, masked_lm_ids: int32 [B, P]; masked_lm_weights: float32 [B, P].
          pair_label: int32 [B], the class that the objective of pairs drew.
          pair_weight: float32 [B], 0 if it has none, as for records of one segment.
        """
        record = self.manifest.schema.parse(raw)
        partners = None if partner is None else self.manifest.schema.parse(partner)
        seq_length = self.manifest.seq_length
        key = self._keys(keyed_random.PAIR, index, epoch)[:, 0]
        segments = self.objective.draw(record, partners, key, max_pieces(seq_length))
        layout = _lay_out(segments, seq_length)
        sources = [record] if partners is None else [record, partners]
        # One gather for both the id of a piece and, in the lowest bit, its word start.
        pieces = take(tf.concat([_pieces(source) for source in sources], axis=1), layout.source)
        masked = self.masked_lm.draw(
            self._ids(tf.bitwise.right_shift(pieces, 1), layout),
            tf.bitwise.bitwise_and(pieces, 1) > 0,
            layout.ordinary,
            layout.segment_starts,
            {stream: self._keys(stream, index, epoch) for stream in MaskedLm.STREAMS},
            self.vocabulary,
            rate,
        )
        return masked | {
            "input_mask": tf.cast(layout.real, tf.int32),
            "input_type_ids": tf.cast(layout.in_second, tf.int32),
            "pair_label": tf.cast(segments.label, tf.int32),
            "pair_weight": tf.cast(segments.weight, tf.float32),
        }

    def _keys(self, stream: int, index: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """Return the key of each record in a stream, uint64 [B, 1]."""
        return keyed_random.graph_bits(
            keyed_random.graph_stream_key(self.seed, stream, epoch), index
        )[:, None]

    def _ids(self, pieces: tf.Tensor, layout: "_Layout") -> tf.Tensor:
        ids = tf.where(layout.ordinary, pieces, tf.where(layout.real, self.sep_id, self.pad_id))
        cls = tf.fill([tf.shape(ids)[0], 1], self.cls_id)
        return tf.concat([cls, ids[:, 1:]], axis=1)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """The layout [CLS] X [SEP] Y [SEP], position by position; all [B, S]."""

    source: tf.Tensor  # int32, index into the record's pieces; 0 if not ordinary
    ordinary: tf.Tensor  # bool, neither special nor padding
    real: tf.Tensor  # bool, not padding
    in_second: tf.Tensor  # bool, Y and its [SEP]
    segment_starts: tf.Tensor  # bool, the first piece of X and of Y


def _lay_out(segments: Segments, seq_length: int) -> _Layout:
    position = tf.range(seq_length)[None]  # [1, S]
    x, y = segments.first_length[:, None], segments.second_length[:, None]
    x_begin, y_begin = 1, x + 2
    in_x = (position >= x_begin) & (position < x_begin + x)
    in_y = (position >= y_begin) & (position < y_begin + y)
    end = tf.where(y > 0, y_begin + y + 1, y_begin)  # one past the last [SEP]
    from_x = position - x_begin + segments.first_begin[:, None]
    from_y = position - y_begin + segments.second_begin[:, None]
    return _Layout(
        source=tf.where(in_x, from_x, tf.where(in_y, from_y, 0)),
        ordinary=in_x | in_y,
        real=position < end,
        in_second=(position >= y_begin) & (position < end),
        segment_starts=((position == x_begin) | (position == y_begin)) & (in_x | in_y),
    )


def _pieces(record: dict[str, tf.Tensor]) -> tf.Tensor:
    """Return twice the id of each piece, plus 1 if it starts a word, int32 [B, S]."""
    ids, packed = tf.cast(record["pieces"], tf.int32), tf.cast(record["word_starts"], tf.int32)
    bits_of_byte = np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)
    bits = tf.reshape(tf.gather(bits_of_byte, packed), [tf.shape(packed)[0], packed.shape[1] * 8])
    return 2 * ids + tf.cast(bits[:, : ids.shape[1]], tf.int32)
