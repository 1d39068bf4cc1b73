"""Schemas of records: one object writes, parses and documents a record."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from albert_tf.text.sentencepiece_model import varint
from data.records.writer import BYTES, INTEGERS, entry_head

if TYPE_CHECKING:
    import tensorflow as tf

COMPACT_VERSION = 2  # of the records and their manifest
MAX_SEQ_LENGTH = 2**13  # limit of masking at read time, in the compact layout
# Of the pieces to predict, the shares that [MASK] and random pieces replace (BERT, section 3.1).
MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
# Feature names of the compact layout; parsing adds `<name>_length` for each array.
PIECES, WORD_STARTS, FIRST_LENGTH, DOCUMENT = "pieces", "word_starts", "first_length", "document"
# Feature names of the reference layout, as in Google's or Model Garden's tool: ids, segment types
# and word starts, if stored. The other features have the same names in both.
GOOGLE, MODEL_GARDEN = "google", "model_garden"
FOREIGN_NAMES = {
    GOOGLE: ("input_ids", "segment_ids", "token_boundary"),
    MODEL_GARDEN: ("input_word_ids", "input_type_ids", None),
}


@dataclasses.dataclass(frozen=True)
class Feature:
    """A value of a record: an int64 scalar, or an array of at most `max_length` items as raw bytes.

    Raw little-endian bytes have half the size of varints and are several times faster to read.
    """

    name: str
    doc: str
    dtype: str = "int64"
    max_length: int = 0

    @property
    def is_scalar(self) -> bool:
        """True if the feature is one int64."""
        return self.max_length == 0


@dataclasses.dataclass(frozen=True)
class RecordSchema:
    """The features of a record, in order, and their conversion to and from `tf.train.Example`."""

    features: tuple[Feature, ...]

    def encode(self, record: dict[str, object]) -> bytes:
        """Return the serialized `tf.train.Example` of a record.

        Raises:
          ValueError: `record` has other names than the schema, or an array is too long or has more
            than one dimension.
        """
        import tensorflow as tf

        names = [feature.name for feature in self.features]
        if sorted(record) != sorted(names):
            raise ValueError(f"a record must have {names}. Received: {sorted(record)}.")
        wire = {f.name: self._wire(f, record[f.name]) for f in self.features}
        example = tf.train.Example(features=tf.train.Features(feature=wire))
        # Otherwise the order of the features, and so the bytes, would change from run to run.
        return example.SerializeToString(deterministic=True)

    def encode_batch(self, columns: Mapping[str, Sequence[Any]]) -> list[bytes]:
        """Return the bytes of `encode` for many records at once, without TensorFlow.

        Args:
          columns: N values for each name: integers for a scalar, raw bytes for an array.
        """
        parts: list[Sequence[bytes]] = []
        for feature in sorted(self.features, key=lambda feature: feature.name):
            name, column = feature.name, columns[feature.name]
            if feature.is_scalar:
                parts.append([_integer(name, value) for value in column])
            else:
                parts += ([_bytes_head(name, len(value)) for value in column], column)
        bodies = map(b"".join, zip(*parts, strict=True))
        return [b"\n" + varint(len(body)) + body for body in bodies]

    def _wire(self, feature: Feature, value: object) -> "tf.train.Feature":
        import tensorflow as tf

        if feature.is_scalar:
            return tf.train.Feature(int64_list=tf.train.Int64List(value=[value]))
        array = np.asarray(value, dtype=np.dtype(feature.dtype).newbyteorder("<"))
        if array.ndim != 1 or len(array) > feature.max_length:
            raise ValueError(
                f"`{feature.name}` must be one row of at most {feature.max_length} items. "
                f"Received: shape {array.shape}."
            )
        return tf.train.Feature(bytes_list=tf.train.BytesList(value=[array.tobytes()]))

    def parse(self, serialized: "tf.Tensor") -> dict[str, "tf.Tensor"]:
        """Parse serialized records, string [B].

        Returns:
          For a scalar: `name`, int64 [B]. For an array: `name`, [B, max_length] in the feature's
          dtype, padded with 0, and `name_length`, int32 [B].
        """
        import tensorflow as tf

        kinds = {f.name: tf.int64 if f.is_scalar else tf.string for f in self.features}
        spec = {name: tf.io.FixedLenFeature([], kind) for name, kind in kinds.items()}
        parsed = tf.io.parse_example(serialized, spec)
        values = {}
        for feature in self.features:
            value = parsed[feature.name]
            values[feature.name] = value
            if not feature.is_scalar:
                size = np.dtype(feature.dtype).itemsize
                dtype = tf.as_dtype(feature.dtype)
                values[feature.name] = tf.io.decode_raw(
                    value, dtype, fixed_length=feature.max_length * size
                )
                values[f"{feature.name}_length"] = tf.strings.length(value) // size
        return values

    def describe(self) -> str:
        """Return the features as a Markdown table."""
        rows = ["| feature | type | content |", "|---|---|---|"]
        for f in self.features:
            kind = "int64" if f.is_scalar else f"{f.dtype} x at most {f.max_length}, raw bytes"
            rows.append(f"| `{f.name}` | {kind} | {f.doc} |")
        return "\n".join(rows)


@functools.lru_cache(2**14)
def _integer(name: str, value: int) -> bytes:
    payload = varint(value)
    return entry_head(name, INTEGERS, len(payload)) + payload


@functools.lru_cache(2**14)
def _bytes_head(name: str, size: int) -> bytes:
    return entry_head(name, BYTES, size)


def compact_schema(seq_length: int, vocab_size: int) -> RecordSchema:
    """Return the schema of the compact layout, ordered pairs without masks or special pieces."""
    return RecordSchema(
        (
            Feature(
                PIECES,
                "ids of segment A, then B, in document order",
                ids_dtype(vocab_size),
                seq_length,
            ),
            Feature(
                WORD_STARTS,
                "one bit per piece: 1 where a word starts (big-endian bits)",
                "uint8",
                -(-seq_length // 8),
            ),
            Feature(
                FIRST_LENGTH, "number of pieces of segment A; all pieces if there is no segment B"
            ),
            Feature(DOCUMENT, "number of the document in its corpus"),
        )
    )


def ids_dtype(vocab_size: int) -> str:
    """Return the smaller of uint16 and int32 that holds every id of a vocabulary."""
    return "uint16" if vocab_size <= 2**16 else "int32"
