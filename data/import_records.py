r"""Import masked TFRecords written by Google's or Model Garden's tool into a record folder.

The command checks the files, links them (or copies them from another file system), and writes a
manifest. `pretraining.train`, `pretraining.evaluate` and `data.show_records` can then read them.

    python -m data.import_records --files='google/*.tfrecord' --tokenizer=spiece.model \
        --output=artifacts/imported
"""

import contextlib
import dataclasses
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import outputs, paths
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.training.progress import Progress
from data.objectives import DEFAULT_PAIR
from data.records import locations
from data.records.manifest import MANIFEST, REFERENCE, TOKENIZER, Counts, Manifest
from data.records.schema import COMPACT_VERSION

if TYPE_CHECKING:  # errors in options are reported without TensorFlow
    from data.objectives.pair_objective import PairObjective
    from data.records.reference_reader import StaticRecords

_BATCH = 1024


@dataclasses.dataclass(frozen=True)
class ImportOptions:
    """The command line of `data.import_records`."""

    files: str = commands.option("glob of the TFRecord files", path=True)
    tokenizer: str = commands.option(
        "tokenizer of the records: folder, spiece.model or vocab.txt", path=True
    )
    output: str = commands.option("folder to create", path=True)
    pair: str = commands.option(
        "the value of `objective.pair` that label 1 is for; none = no labels", DEFAULT_PAIR
    )
    dry_run: bool = commands.option("check the options and read all records; write nothing", False)


def import_records(options: ImportOptions) -> None:
    """Run the import described by `options`.

    Raises:
      InputError: an option is invalid, or the files are damaged, have another format, or do not
        match the tokenizer.
      InputNotFoundError: no file matches.
    """
    from data.objectives.registry import OBJECTIVES
    from data.records.reference_reader import StaticRecords

    if options.pair not in OBJECTIVES:
        raise InputError(f"--pair must be {', '.join(OBJECTIVES)}. Received: {options.pair!r}.")
    objective = OBJECTIVES[options.pair]
    locations.require_local(options.output, "--output")
    locations.require_local(options.files, "--files")
    files = paths.files_matching(options.files, "--files")
    if not files:
        raise InputNotFoundError(
            f"--files: no file matches {options.files!r} in the working directory {os.getcwd()!r}. "
            "Pass a glob of files, such as 'folder/*.tfrecord'."
        )
    tokenizer, records = load_tokenizer(options.tokenizer), StaticRecords.of_files(files)
    if _is_complete(options, tokenizer, records):
        print(f"{options.output} is already complete.")
        return
    outputs.require_new(options.output)
    if objective.is_trained and not records.has_pairs:
        raise InputError(
            f"--pair must be none, because the records of {options.files!r} have no labels. "
            f"Received: {options.pair!r}."
        )
    counts = _checked_counts(records, tokenizer, objective)
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return
    _write(options, tokenizer, records, counts)
    print(f"{options.output}: {counts.sequences:,} sequences of {records.seq_length} pieces.")


def _is_complete(options: ImportOptions, tokenizer: Tokenizer, records: "StaticRecords") -> bool:
    """Return True if --output already holds this import of the same files."""
    if not os.path.isfile(os.path.join(options.output, MANIFEST)):
        return False
    manifest = Manifest.read(options.output)
    identity = manifest.tokenizer_fingerprint, manifest.corpus_fingerprint, manifest.options
    return identity == (tokenizer.fingerprint, _fingerprint(records), _build_options(options))


def _build_options(options: ImportOptions) -> str:
    return json.dumps({"split": "all", "pair": options.pair})


def _write(
    options: ImportOptions, tokenizer: Tokenizer, records: "StaticRecords", counts: Counts
) -> None:
    manifest = Manifest(
        schema_version=COMPACT_VERSION,
        layout=REFERENCE,
        seq_length=records.seq_length,
        vocab_size=tokenizer.vocab_size,
        special_ids=tuple(dataclasses.astuple(tokenizer.special)),
        tokenizer_fingerprint=tokenizer.fingerprint,
        corpus_fingerprint=_fingerprint(records),
        shards=tuple(size for _, size in records.shards),
        counts=counts,
        options=_build_options(options),
        feature_names=records.names,
        max_predictions=records.max_predictions,
    )
    with outputs.new_folder(options.output) as folder:
        for shard, (path, _) in enumerate(records.shards):
            target = manifest.shard_path(folder, shard)
            with contextlib.suppress(OSError):
                os.link(os.path.realpath(path), target)
            if not os.path.exists(target):
                shutil.copyfile(path, target)
        tokenizer.save(os.path.join(folder, TOKENIZER))
        manifest.write(folder)


def _checked_counts(
    records: "StaticRecords", tokenizer: Tokenizer, objective: "PairObjective"
) -> Counts:
    """Read every record and return the counts.

    Raises:
      InputError: a record is damaged, does not match the tokenizer's vocabulary or [CLS], or has a
        flag, label or position out of range.
    """
    from data.records.reference_reader import check_ranges

    sequences = pieces = label_1_count = 0
    with Progress("records", sum(size for _, size in records.shards)) as progress:
        for path, batch in _batches(records):
            ids, mask = batch["input_word_ids"], batch["input_mask"]
            largest = max(int(ids.max()), int(batch["masked_lm_ids"].max(initial=0)))
            if largest >= tokenizer.vocab_size or (ids[:, 0] != tokenizer.special.cls).any():
                raise InputError(
                    "--tokenizer must be the one that made the records. Received: "
                    f"{tokenizer.vocab_size} pieces with [CLS] {tokenizer.special.cls}, but the "
                    f"records contain id {largest} and begin with "
                    f"{sorted(set(ids[:, 0].tolist()))[:5]}. Pass the tokenizer of the records."
                )
            sizes = records.seq_length, tokenizer.vocab_size, objective.num_classes
            check_ranges(batch, *sizes, f"--files: {path}")
            sequences += len(ids)
            pieces += int(mask.sum()) - 3 * len(ids)
            label_1_count += int((batch["pair_label"] == 1).sum())
            progress.advance(len(ids))
    return Counts(
        sequences=sequences,
        sequences_without_pair=0 if objective.is_trained else sequences,
        sequences_of_label_1=label_1_count if objective.is_trained else 0,
        pieces=pieces,
    )


def _batches(records: "StaticRecords") -> Iterator[tuple[str, dict[str, np.ndarray]]]:
    """Yield batches of one file each, with its path."""
    import tensorflow as tf

    from data.pipeline.record_stream import DAMAGE, find_damage, find_misfit

    def parsed(path: tf.Tensor) -> tf.data.Dataset:
        batches = tf.data.TFRecordDataset(path).batch(_BATCH)
        return batches.map(lambda raw: (path, records.parse(raw)))

    paths_of_files = tf.data.Dataset.from_tensor_slices([path for path, _ in records.shards])
    try:
        for path, batch in paths_of_files.flat_map(parsed).as_numpy_iterator():
            yield os.fsdecode(path), batch
    except DAMAGE:
        if damage := find_damage(list(records.shards)):
            raise InputError(f"--files: {damage}. Fetch it again.") from None
        if not (misfit := find_misfit(records.shards, records.parse)):
            raise
        raise InputError(
            f"--files: {misfit[0]} must hold records as the first one, of {records.names}'s "
            f"features with {records.seq_length} pieces and {records.max_predictions} prediction "
            f"slots, but record {misfit[1]} (from 0) is not. Import each kind into its own "
            "--output, or make the file again."
        ) from None


def _fingerprint(records: "StaticRecords") -> str:
    digest = hashlib.sha256()
    for path, _ in records.shards:
        with open(path, "rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()[:16]


if __name__ == "__main__":
    commands.run(import_records, ImportOptions, __doc__)
