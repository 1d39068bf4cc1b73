"""Records -> batches: a keyed order, pairs and masks, as a pure function of (seed, epoch, record).

Batch number s holds the records [s * B, (s + 1) * B) of the endless stream. So a saved position is
a step, and a restart seeks.
"""

import dataclasses

import tensorflow as tf

from albert_tf.errors import ConfigError
from data import keyed, pairs
from data.masking import MaskingConfig, Vocabulary, mask_batch
from data.pairs import PAIR_OBJECTIVES, Objective, Partners, Segments
from data.record_stream import record_stream, records_in_order
from data.records import Manifest

__all__ = [
    "PAIR_OBJECTIVES",
    "ExampleMaker",
    "Objective",
    "Records",
    "evaluation_batches",
    "training_batches",
]

_MASK_STREAMS = (keyed.NGRAM, keyed.TILE, keyed.REPLACE, keyed.PIECE)


@dataclasses.dataclass(frozen=True)
class Records:
    """A folder of records with its manifest."""

    folder: str
    manifest: Manifest

    @classmethod
    def open(cls, folder: str) -> "Records":
        """Opens a complete folder; errors as `Manifest.read`."""
        return cls(folder, Manifest.read(folder))

    def shards(self) -> list[tuple[str, int]]:
        """(file, number of records) of each shard that has any, in the order of the manifest."""
        sizes = enumerate(self.manifest.shards)
        return [(self.manifest.shard_path(self.folder, i), size) for i, size in sizes if size]


def training_batches(
    records: Records,
    objective: Objective,
    masking: MaskingConfig,
    global_batch_size: int,
    seed: int,
    start_step: int = 0,
    num_workers: int = 1,
    worker: int = 0,
    batch_size_per_replica: int | None = None,
) -> tf.data.Dataset:
    """Endless batches from step `start_step` on.

    With several workers each takes its own run of every global batch, so that together they read
    what one would. Shapes are static: features as `ExampleMaker` makes them, with
    `batch_size_per_replica` rows (by default, all of the worker's).

    Raises:
      ConfigError: the workers or the replicas cannot share a global batch evenly, or NSP is wanted
        of a single document.
    """
    per_worker = global_batch_size // num_workers
    if global_batch_size % num_workers or per_worker % (batch_size_per_replica or per_worker):
        raise ConfigError(
            f"`loop.global_batch_size` must be a multiple of the {num_workers} workers times the "
            f"batch of a replica ({batch_size_per_replica}). Received: {global_batch_size}."
        )
    examples = ExampleMaker(records.manifest, objective, masking, seed)
    start, partners = start_step * global_batch_size, _partners(records, objective, seed)
    dataset = record_stream(records.shards(), seed, start, partners)
    dataset = dataset.batch(global_batch_size, drop_remainder=True)
    # Cut while the records are still strings: parsing and masking cost more than reading.
    mine = slice(worker * per_worker, (worker + 1) * per_worker)
    dataset = dataset.map(lambda *fields: tuple(field[mine] for field in fields))
    dataset = dataset.rebatch(batch_size_per_replica or per_worker, drop_remainder=True)
    dataset = dataset.map(examples, num_parallel_calls=tf.data.AUTOTUNE, deterministic=True)
    return dataset.prefetch(4)


def evaluation_batches(
    records: Records,
    objective: Objective,
    masking: MaskingConfig,
    batch_size: int,
    seed: int = 0,
) -> tf.data.Dataset:
    """Every record once, in the order of the files, the same masks each time.

    The last batch is filled up with copies whose weights are 0.
    """
    examples = ExampleMaker(records.manifest, objective, masking, seed)
    dataset = records_in_order(records.shards(), _partners(records, objective, seed))
    dataset = dataset.batch(batch_size)
    dataset = dataset.map(lambda *fields: examples.padded(batch_size, *fields))
    return dataset.prefetch(4)


def _partners(records: Records, objective: Objective, seed: int) -> Partners | None:
    if objective.pair != "nsp":
        return None
    if (documents := records.manifest.counts.documents) < 2:
        raise ConfigError(
            "`objective.pair=nsp` needs records of at least two documents. Received: "
            f"{records.folder!r}, of {documents}. Choose sop or none, or build with another "
            "--document_boundary."
        )
    return Partners(records.manifest.schema, _room(records.manifest.seq_length), seed)


def _room(seq_length: int) -> int:
    """Pieces beside [CLS] and two [SEP]."""
    return seq_length - 3


class ExampleMaker:
    """Turns a batch of serialized records into the model's features and targets."""

    def __init__(
        self, manifest: Manifest, objective: Objective, masking: MaskingConfig, seed: int
    ) -> None:
        self.manifest, self.objective, self.masking, self.seed = manifest, objective, masking, seed
        self.pad_id, _, self.cls_id, self.sep_id, mask_id = manifest.special_ids
        self.vocabulary = Vocabulary(manifest.vocab_size, mask_id, manifest.special_ids)

    @tf.autograph.experimental.do_not_convert  # graph operations only: converting takes seconds
    def __call__(
        self, raw: tf.Tensor, index: tf.Tensor, epoch: tf.Tensor, partner: tf.Tensor | None = None
    ) -> dict[str, tf.Tensor]:
        """string [B], int64 [B], int64 [B], for NSP string [B] -> the batch.

        input_word_ids, input_mask, input_type_ids: int32 [B, S].
        masked_lm_positions, masked_lm_ids: int32 [B, P]; masked_lm_weights: float32 [B, P].
        pair_label: int32 [B], 0 = in order, 1 = swapped or of another document; pair_weight:
        float32 [B], 0 where the record has one segment, the objective has no pairs, or NSP's draw
        wanted a partner and found records of the same document only.
        """
        record = self.manifest.schema.parse(raw)
        others = None if partner is None else self.manifest.schema.parse(partner)
        segments = self._segments(record, others, self._keys(keyed.PAIR, index, epoch)[:, 0])
        layout = _lay_out(segments, self.manifest.seq_length)
        sources = [record] if others is None else [record, others]
        pieces = tf.concat([tf.cast(source["pieces"], tf.int32) for source in sources], axis=1)
        word_starts = tf.concat([_unpack_bits(source) for source in sources], axis=1)
        masked = mask_batch(
            self._ids(pieces, layout),
            tf.gather(word_starts, layout.source, batch_dims=1),
            layout.ordinary,
            layout.segment_starts,
            {stream: self._keys(stream, index, epoch) for stream in _MASK_STREAMS},
            self.masking,
            self.vocabulary,
        )
        return masked | {
            "input_mask": tf.cast(layout.real, tf.int32),
            "input_type_ids": tf.cast(layout.in_second, tf.int32),
            "pair_label": tf.cast(segments.label, tf.int32),
            "pair_weight": tf.cast(segments.weight, tf.float32),
        }

    @tf.autograph.experimental.do_not_convert
    def padded(self, batch_size: int, *fields: tf.Tensor) -> dict[str, tf.Tensor]:
        """As a call, for at most `batch_size` records, filled up with copies of weight 0."""
        count = tf.shape(fields[0])[0]
        rows = tf.minimum(tf.range(batch_size), count - 1)
        batch = self(*(tf.gather(field, rows) for field in fields))
        is_own = tf.cast(tf.range(batch_size) < count, tf.float32)
        batch["masked_lm_weights"] *= is_own[:, None]
        batch["pair_weight"] *= is_own
        return batch

    def _keys(self, stream: int, index: tf.Tensor, epoch: tf.Tensor) -> tf.Tensor:
        """uint64 [B, 1]: the key of each record in a stream."""
        return keyed.graph_bits(keyed.graph_stream_key(self.seed, stream, epoch), index)[:, None]

    def _segments(
        self,
        record: dict[str, tf.Tensor],
        others: dict[str, tf.Tensor] | None,
        key: tf.Tensor,
    ) -> Segments:
        first, second = _lengths(record)
        if others is not None:
            begin, length = _lengths(others)
            is_other = others["document"] != record["document"]
            # The partner's pieces stand behind the record's own.
            begin, length = begin + record["pieces"].shape[1], tf.where(is_other, length, 0)
            room = _room(self.manifest.seq_length)
            return pairs.replace_half(first, second, key, begin, length, room)
        if self.objective.pair == "sop":
            return pairs.swap_half(first, second, key)
        return pairs.in_order(first, second)

    def _ids(self, pieces: tf.Tensor, layout: "_Layout") -> tf.Tensor:
        ids = tf.gather(pieces, layout.source, batch_dims=1)
        ids = tf.where(layout.ordinary, ids, tf.where(layout.real, self.sep_id, self.pad_id))
        cls = tf.fill([tf.shape(ids)[0], 1], self.cls_id)
        return tf.concat([cls, ids[:, 1:]], axis=1)


@dataclasses.dataclass(frozen=True)
class _Layout:
    """[CLS] X [SEP] Y [SEP]: what stands at each position, all [B, S]."""

    source: tf.Tensor  # int32, index into the record's pieces; 0 where special
    ordinary: tf.Tensor  # bool, neither special nor padding
    real: tf.Tensor  # bool, not padding
    in_second: tf.Tensor  # bool, Y and its [SEP]
    segment_starts: tf.Tensor  # bool, the first piece of X and of Y


def _lay_out(segments: Segments, seq_length: int) -> _Layout:
    at = tf.range(seq_length)[None]  # [1, S]
    x, y = segments.first_length[:, None], segments.second_length[:, None]
    x_begin, y_begin = 1, x + 2
    in_x = (at >= x_begin) & (at < x_begin + x)
    in_y = (at >= y_begin) & (at < y_begin + y)
    end = tf.where(y > 0, y_begin + y + 1, y_begin)  # one past the last [SEP]
    from_x = at - x_begin + segments.first_begin[:, None]
    from_y = at - y_begin + segments.second_begin[:, None]
    return _Layout(
        source=tf.where(in_x, from_x, tf.where(in_y, from_y, 0)),
        ordinary=in_x | in_y,
        real=at < end,
        in_second=(at >= y_begin) & (at < end),
        segment_starts=((at == x_begin) | (at == y_begin)) & (in_x | in_y),
    )


def _lengths(record: dict[str, tf.Tensor]) -> tuple[tf.Tensor, tf.Tensor]:
    """Pieces of segments A and B, int32 [B]."""
    first = tf.cast(record["first_length"], tf.int32)
    return first, record["pieces_length"] - first


def _unpack_bits(record: dict[str, tf.Tensor]) -> tf.Tensor:
    """The record's word starts, uint8 [B, S / 8] of big-endian bits -> bool [B, S]."""
    packed, length = record["word_starts"], record["pieces"].shape[1]
    shifts = tf.constant([7, 6, 5, 4, 3, 2, 1, 0], tf.uint8)
    bits = tf.bitwise.bitwise_and(tf.bitwise.right_shift(packed[:, :, None], shifts), 1)
    return tf.reshape(bits, [tf.shape(packed)[0], packed.shape[1] * 8])[:, :length] > 0
