"""Reader of masked records, from this project or from Google's and Model Garden's tools.

Files of other projects have no manifest (`data.import_records` writes one). The first record
determines their format.
"""

import dataclasses
import os
import struct
from collections.abc import Mapping, Sequence

import numpy as np
import tensorflow as tf
from google.protobuf import message

from albert_tf.runtime.errors import InputError, reading
from data.records.manifest import Manifest
from data.records.schema import FOREIGN_NAMES

LABEL = "next_sentence_labels"


@dataclasses.dataclass(frozen=True)
class StaticRecords:
    """Files of masked records.

    Attributes:
      shards: (file, number of records), none of them empty.
      names: feature names, `google` or `model_garden`.
      seq_length: length of a sequence, S.
      max_predictions: prediction slots, P.
      has_pairs: True if records have a label.
    """

    shards: tuple[tuple[str, int], ...]
    names: str
    seq_length: int
    max_predictions: int
    has_pairs: bool = True

    @classmethod
    def of_build(cls, folder: str, manifest: Manifest, has_pairs: bool) -> "StaticRecords":
        """Return the records of `data.build --layout=reference` or `data.import_records`."""
        sizes = enumerate(manifest.shards)
        shards = tuple((manifest.shard_path(folder, i), size) for i, size in sizes if size)
        names, slots = manifest.feature_names, manifest.max_predictions
        return cls(shards, names, manifest.seq_length, slots, has_pairs)

    @classmethod
    def of_files(cls, files: Sequence[str]) -> "StaticRecords":
        """Return the records in files of another project's tool, all of one kind.

        Raises:
          InputError: a file is truncated, there is no record, or the first one has other features.
        """
        shards = tuple((path, size) for path in files if (size := count_records(path)))
        if not shards:
            raise InputError(f"no masked record in {list(files)}. Pass other files.")
        features = _first_features(shards[0][0])
        for names, (ids, segments, _) in FOREIGN_NAMES.items():
            required = {
                ids,
                segments,
                "input_mask",
                "masked_lm_positions",
                "masked_lm_ids",
                "masked_lm_weights",
            }
            if required <= set(features):
                seq_length = len(features["input_mask"].int64_list.value)
                slots = len(features["masked_lm_positions"].int64_list.value)
                return cls(shards, names, seq_length, slots, LABEL in features)
        raise InputError(
            f"{shards[0][0]!r} must contain masked records with the feature names of "
            f"{' or '.join(FOREIGN_NAMES)}. Received: {sorted(features)}."
        )

    def parse(self, raw: tf.Tensor, use_pairs: bool = True) -> dict[str, tf.Tensor]:
        """Parse serialized records, string [B], into a batch.

        Returns:
          input_word_ids, input_mask, input_type_ids: int32 [B, S].
          masked_lm_positions, masked_lm_ids: int32 [B, P]; masked_lm_weights: float32 [B, P].
          pair_label: int32 [B].
          pair_weight: float32 [B], 0 if there are no labels or `use_pairs` is False.
        """
        ids, segments, _ = FOREIGN_NAMES[self.names]
        wide, slots = [self.seq_length], [self.max_predictions]
        spec = {
            name: tf.io.FixedLenFeature(wide, tf.int64) for name in (ids, segments, "input_mask")
        }
        for name in ("masked_lm_positions", "masked_lm_ids"):
            spec[name] = tf.io.FixedLenFeature(slots, tf.int64)
        spec["masked_lm_weights"] = tf.io.FixedLenFeature(slots, tf.float32)
        if self.has_pairs:
            spec[LABEL] = tf.io.FixedLenFeature([1], tf.int64)
        parsed = tf.io.parse_example(raw, spec)
        batch = {k: tf.cast(v, tf.int32) if v.dtype == tf.int64 else v for k, v in parsed.items()}
        rows = tf.shape(raw)[:1]
        label = batch.pop(LABEL)[:, 0] if self.has_pairs else tf.zeros(rows, tf.int32)
        return batch | {
            "input_word_ids": batch.pop(ids),
            "input_type_ids": batch.pop(segments),
            "pair_label": label,
            "pair_weight": tf.fill(rows, float(self.has_pairs and use_pairs)),
        }


def _first_features(path: str) -> Mapping[str, tf.train.Feature]:
    """Return the features of the first record of a file."""
    try:
        raw = next(tf.data.TFRecordDataset(path).as_numpy_iterator())
        return tf.train.Example.FromString(raw).features.feature
    except (tf.errors.DataLossError, message.DecodeError):
        raise InputError(
            f"{path!r} must be a TFRecord file of masked records, but its first record is damaged "
            "or holds something else. Copy it again, or pass other files."
        ) from None


def check_ranges(
    batch: Mapping[str, np.ndarray],
    seq_length: int,
    vocab_size: int,
    num_classes: int,
    source: str,
) -> None:
    """Check the values of a model's input, whose labels are below `num_classes`.

    Raises:
      InputError: an id, a flag, a label or a position is out of range; the message begins with
        `source`.
    """
    ends = {"input_word_ids": vocab_size, "masked_lm_ids": vocab_size}
    ends |= {"input_mask": 2, "input_type_ids": 2, "pair_label": num_classes}
    for name, end in (ends | {"masked_lm_positions": seq_length}).items():
        low, high = int(batch[name].min(initial=0)), int(batch[name].max(initial=0))
        if low < 0 or high >= end:
            raise InputError(
                f"{source}: `{name}` must be from 0 to {end - 1}. "
                f"Received: {low if low < 0 else high}. Make the records again."
            )


def count_records(path: str) -> int:
    """Count the records of a TFRecord file, reading only their lengths.

    Raises:
      InputError: the file ends inside a record.
    """
    size, offset, count = os.path.getsize(path), 0, 0
    with reading(path), open(path, "rb") as file:
        while offset < size:
            file.seek(offset)
            header = file.read(12)
            length = struct.unpack("<Q", header[:8])[0] if len(header) == 12 else size
            offset += 12 + length + 4  # length and its checksum, the record and its checksum
            if offset > size:
                raise InputError(
                    f"{path!r} must be a TFRecord file of whole records, but it ends inside record "
                    f"{count}. Copy it again."
                )
            count += 1
    return count
