"""A folder of records: shards, the tokenizer that made them, and a manifest written last."""

import dataclasses
import json
import os

from albert_tf import settings
from albert_tf.errors import InputError, InputNotFoundError
from data.schema import COMPACT_VERSION, RecordSchema, compact_schema

MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"


@dataclasses.dataclass(frozen=True)
class Counts:
    """What a build read and wrote."""

    documents: int = 0
    single_sentence_documents: int = 0
    sentences: int = 0
    sequences: int = 0
    sequences_without_pair: int = 0
    pieces: int = 0
    pieces_lost: int = 0
    text_bytes: int = 0


@dataclasses.dataclass(frozen=True)
class Manifest:
    """What a folder of records is: its presence means that the folder is complete.

    `shards` are the numbers of records, in the order of the files; `special_ids` are the ids of
    <pad>, <unk>, [CLS], [SEP] and [MASK]; `options` are the command's own, by which a rerun knows
    that it is the same build.
    """

    schema_version: int
    layout: str
    seq_length: int
    vocab_size: int
    special_ids: tuple[int, ...]
    tokenizer_fingerprint: str
    corpus_fingerprint: str
    shards: tuple[int, ...]
    counts: Counts
    options: str  # JSON

    @property
    def schema(self) -> RecordSchema:
        """How the records are written."""
        return compact_schema(self.seq_length, self.vocab_size)

    @property
    def num_records(self) -> int:
        """Records in all shards."""
        return sum(self.shards)

    def shard_path(self, folder: str, shard: int) -> str:
        """The file of a shard."""
        return os.path.join(folder, shard_name(shard, len(self.shards)))

    def write(self, folder: str) -> None:
        """Writes the manifest: last, when everything else is there."""
        with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
            json.dump(settings.to_dict(self), file, indent=1)

    @classmethod
    def read(cls, folder: str) -> "Manifest":
        """Reads the manifest of a complete folder.

        Raises:
          InputNotFoundError: there is none: not a record folder, or its build did not finish.
          InputError: another version wrote it, or a shard is missing.
        """
        path = os.path.join(folder, MANIFEST)
        if not os.path.isfile(path):
            raise InputNotFoundError(
                f"no {MANIFEST} in {folder!r} (working folder {os.getcwd()}): "
                "pass a folder that `python -m data.build` has completed."
            )
        with open(path, encoding="utf-8") as file:
            manifest = settings.from_dict(cls, json.load(file))
        if manifest.schema_version != COMPACT_VERSION:
            raise InputError(
                f"{folder!r} has records of schema version {manifest.schema_version}; this program "
                f"reads version {COMPACT_VERSION}: build them again."
            )
        for shard in range(len(manifest.shards)):
            if not os.path.isfile(manifest.shard_path(folder, shard)):
                raise InputNotFoundError(f"{manifest.shard_path(folder, shard)!r} is missing.")
        return manifest


def shard_name(shard: int, num_shards: int) -> str:
    """`records-00003-of-00010.tfrecord`."""
    return f"records-{shard:05d}-of-{num_shards:05d}.tfrecord"
