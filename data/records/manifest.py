"""Record folders: shards, the tokenizer that made them, and a manifest, which is written last."""

import dataclasses
import functools
import json
import os
import pathlib
import tempfile
from typing import Annotated, Any

from albert_tf.runtime import settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, Bounded, at_least, at_most, one_of
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError, reading
from albert_tf.runtime.files.json_text import json_object
from albert_tf.runtime.files.paths import require_file
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data.records import locations
from data.records.schema import COMPACT_VERSION, FOREIGN_NAMES, RecordSchema, compact_schema

COMPACT, REFERENCE = "compact", "reference"  # layouts
MANIFEST = "manifest.json"
TOKENIZER = "tokenizer"


@dataclasses.dataclass(frozen=True)
class Counts:
    """Counts of what a build read and wrote."""

    documents: int = 0
    single_sentence_documents: int = 0
    sentences: int = 0
    sequences: int = 0
    sequences_without_pair: int = 0
    sequences_of_label_1: int = 0
    pieces: int = 0
    pieces_lost: int = 0
    text_bytes: int = 0
    replaced_characters: int = 0
    unknown_pieces: int = 0  # in the text, even if not written

    def __add__(self, other: "Counts") -> "Counts":
        pairs = zip(dataclasses.astuple(self), dataclasses.astuple(other), strict=True)
        return Counts(*(a + b for a, b in pairs))


@dataclasses.dataclass(frozen=True)
class Manifest(Bounded):
    """Description of a record folder; its presence means that the folder is complete.

    `shards` are the numbers of records, in the order of the files. `special_ids` are the ids of
    <pad>, <unk>, [CLS], [SEP] and [MASK]. `options` are the options of the command; a rerun
    compares them to identify the build. `sketch` is that of the documents (`data.records.sketch`);
    anything that is no sketch means that they are unknown.

    Raises:
      ConfigError: a value is impossible.
      InputError: `options` is not JSON.
    """

    schema_version: int
    layout: Annotated[str, one_of(COMPACT, REFERENCE)]
    seq_length: Annotated[int, at_least(4), at_most(2**20)]
    vocab_size: Annotated[int, POSITIVE, at_most(2**24)]
    special_ids: tuple[int, ...]
    tokenizer_fingerprint: str
    corpus_fingerprint: str
    shards: tuple[int, ...]
    counts: Counts
    options: str  # JSON
    feature_names: str = ""  # google or model_garden; empty in the compact layout
    max_predictions: Annotated[int, NOT_NEGATIVE] = 0  # slots of a record; 0 in the compact layout
    sketch: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        names, ids = ([""] if self.layout == COMPACT else [*FOREIGN_NAMES]), self.special_ids
        rules = {
            f"have `feature_names` {' or '.join(names) or 'empty'}": self.feature_names in names,
            "have at most `seq_length` `max_predictions`": self.max_predictions <= self.seq_length,
            "have five `special_ids` in [0, `vocab_size`)": len(ids) == 5
            and all(0 <= i < self.vocab_size for i in ids),
            "have `shards` of 0 to 2^40 records": all(0 <= n <= 2**40 for n in self.shards),
            "have a record in one of its `shards`": any(self.shards),
            "have `counts` of 0 to 2^60": all(
                0 <= n <= 2**60 for n in dataclasses.astuple(self.counts)
            ),
        }
        for rule, holds in rules.items():
            if not holds:
                raise ConfigError(f"a manifest must {rule}, but does not.")
        self.build_options  # noqa: B018 (raises an error)

    @functools.cached_property
    def build_options(self) -> dict[str, Any]:
        """The options of the command."""
        return json_object(self.options, "`options` of a manifest")

    @property
    def schema(self) -> RecordSchema:
        """Schema of records in the compact layout."""
        return compact_schema(self.seq_length, self.vocab_size)

    @property
    def num_records(self) -> int:
        """Number of records in all shards."""
        return sum(self.shards)

    def identity(self) -> dict[str, Any]:
        """Return what determines the records: the text, the tokenizer and the build's options."""
        build = dict(self.build_options)
        build.pop("corpus", None)  # the path of the text; only its content matters
        return {
            "seq_length": self.seq_length,
            "num_records": self.num_records,
            "tokenizer": self.tokenizer_fingerprint,
            "corpus": self.corpus_fingerprint,
            "build": build,
        }

    def describe(self) -> str:
        """Return a description of the records as Markdown."""
        if self.layout == COMPACT:
            return self.schema.describe()
        return (
            f"Masked records with {self.feature_names}'s feature names, {self.seq_length} pieces "
            f"and {self.max_predictions} prediction slots each."
        )

    def shard_path(self, folder: str, shard: int) -> str:
        """Return the path of a shard."""
        return os.path.join(folder, shard_name(shard, len(self.shards)))

    def write(self, folder: str) -> None:
        """Write the manifest, after all other files."""
        with open(os.path.join(folder, MANIFEST), "w", encoding="utf-8") as file:
            json.dump(settings.to_dict(self), file, indent=1)

    @classmethod
    def read(cls, folder: str) -> "Manifest":
        """Read the manifest of a complete folder, on this machine or in a bucket.

        Raises:
          InputNotFoundError: there is no manifest, because this is not a record folder or its build
            did not finish; or a shard is missing.
          InputError: it is not a manifest, or has another version; or a shard is not a file.
        """
        path = os.path.join(folder, MANIFEST)
        reader = locations.reader_of(folder)
        if not reader.is_file(path):
            raise InputNotFoundError(
                f"no {MANIFEST} in {folder!r} (working directory {os.getcwd()}). "
                "Pass a folder that `python -m data.build` has completed."
            )
        try:
            manifest = settings.from_dict(cls, _checked_values(path))
        except ConfigError as error:
            raise InputError(f"{path!r}: {error} Build the records again.") from None
        present = set(reader.names(folder))
        for shard in range(len(manifest.shards)):
            file = manifest.shard_path(folder, shard)
            if os.path.basename(file) not in present:
                raise InputNotFoundError(
                    f"{file!r} is missing. Remove {folder!r} and build it again."
                )
            if not locations.is_remote(file):
                require_file(file, "")
        return manifest


def _checked_values(path: str) -> dict[str, Any]:
    """Return the values of the manifest.

    The version is checked first, because other versions may have other keys.
    """
    try:
        with reading(path), locations.reader_of(path).open(path, "rb") as file:
            values = json_object(file.read(), path)
        version = values["schema_version"]
    except (ValueError, KeyError):
        values = {}
    if not values.keys() >= _OWN_KEYS:
        raise InputError(
            f"{path!r} must be a manifest of `python -m data.build`, but is not. Pass another "
            "folder, or build the records again in a new one."
        )
    if version != COMPACT_VERSION:
        raise InputError(
            f"{path!r} has schema version {version}, but this program reads version "
            f"{COMPACT_VERSION}. Build the records again."
        )
    return values


_OWN_KEYS = {"schema_version", "shards"}  # of every version


def tokenizer_of(folder: str) -> Tokenizer:
    """Return the tokenizer that made the records of a complete folder."""
    home = os.path.join(folder, TOKENIZER)
    if not locations.is_remote(home):
        return load_tokenizer(home)
    reader = locations.reader_of(home)
    with tempfile.TemporaryDirectory() as copy:
        for name in reader.names(home):
            with reader.open(os.path.join(home, name), "rb") as source:
                pathlib.Path(copy, name).write_bytes(source.read())
        return load_tokenizer(copy)


def shard_name(shard: int, num_shards: int) -> str:
    """Return the file name of a shard, such as `records-00003-of-00010.tfrecord`."""
    return f"records-{shard:05d}-of-{num_shards:05d}.tfrecord"
