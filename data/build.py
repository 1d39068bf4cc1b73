"""Builds pretraining records from text: sentences, pieces, pairs of segments, shuffled TFRecords.

Masks and the pair objective (SOP, none) are chosen when the records are read, so one build
serves every ablation. The same corpus, tokenizer and seed give the same bytes, whatever the number
of workers. The output folder appears when it is complete; rerunning a complete build does nothing.
In memory are the longest document, a few batches, and one shard: the records of 32 MiB of text, or,
of more than 16 GiB, of a 512th of the text.

    python -m data.build --corpus=text:'corpus/*.txt' --tokenizer=artifacts/tokenizer \\
        --seq_length=512 --output=artifacts/records
"""

import dataclasses
import json
import os
from collections.abc import Iterator

from albert_tf import cli, outputs, settings
from albert_tf.errors import InputError
from albert_tf.progress import Progress
from albert_tf.tokenization import Tokenizer, load_tokenizer
from data import corpora, shuffle
from data.corpora import Document
from data.cutter import Cutter, cut_all, useful_workers
from data.records import MANIFEST, TOKENIZER, Counts, Manifest
from data.schema import COMPACT_VERSION, compact_schema
from data.splits import split_of

MIN_SEQ_LENGTH = 16
TEXT_BYTES_PER_SHARD = 32 * 2**20
# Each is an open file while the corpus is read, and many systems allow 1024. With more text than
# fits into so many (16 GiB), the shards grow, and with them the memory that one takes.
MAX_SHARDS = 512


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """The command line of `data.build`."""

    corpus: str = cli.option("where the text is: KIND:WHERE, " + corpora.KINDS)
    tokenizer: str = cli.option("tokenizer folder or spiece.model")
    output: str = cli.option("the folder to make")
    seq_length: int = cli.option("pieces per sequence, special ones included", 512)
    document_boundary: str = cli.option("blank_line, file or regex:RE", "blank_line")
    split: str = cli.option("documents to take: all, train or heldout", "all")
    heldout_fraction: float = cli.option("share of documents that `heldout` takes", 0.05)
    dupe_factor: int = cli.option("passes over the corpus, each with other segments", 1)
    seed: int = cli.option("of everything random", 0)
    errors: str = cli.option("strict, or replace: what invalid UTF-8 gets", "strict")
    data_dir: str | None = cli.option("where TFDS keeps its data sets", None)
    num_workers: int = cli.option("processes at most; 0 = one per core", 0)
    dry_run: bool = cli.option("check everything and write nothing", False)


def build(options: BuildOptions) -> None:
    """Runs the build that `options` describe."""
    _check(options)
    tokenizer = load_tokenizer(options.tokenizer)
    fingerprint = corpora.corpus_fingerprint(options.corpus, options.data_dir)
    if _is_complete(options, tokenizer, fingerprint):
        print(f"{options.output} is already complete.")
        return
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return
    with outputs.new_folder(options.output) as folder:
        num_shards = _num_shards(options)
        counts = _spill(options, tokenizer, folder, num_shards)
        schema = compact_schema(options.seq_length, tokenizer.vocab_size)
        shards = shuffle.write_shards(folder, schema, num_shards)
        tokenizer.save(os.path.join(folder, TOKENIZER))
        manifest = Manifest(
            schema_version=COMPACT_VERSION,
            layout="compact",
            seq_length=options.seq_length,
            vocab_size=tokenizer.vocab_size,
            special_ids=tuple(dataclasses.astuple(tokenizer.special)),
            tokenizer_fingerprint=tokenizer.fingerprint,
            corpus_fingerprint=fingerprint,
            shards=shards,
            counts=counts,
            options=json.dumps(_identity(options)),
        )
        manifest.write(folder)
    _report(options, counts)


def _check(options: BuildOptions) -> None:
    if options.seq_length < MIN_SEQ_LENGTH:
        raise InputError(
            f"--seq_length must be at least {MIN_SEQ_LENGTH}. Received: {options.seq_length}. "
            "Raise it: below, hardly a pair of sentences fits."
        )
    if options.split not in ("all", "train", "heldout"):
        raise InputError(f"--split must be all, train or heldout. Received: {options.split!r}.")
    if not 0 < options.heldout_fraction < 1:
        raise InputError(
            f"--heldout_fraction must lie between 0 and 1. Received: {options.heldout_fraction}."
        )
    if options.dupe_factor < 1:
        raise InputError(f"--dupe_factor must be at least 1. Received: {options.dupe_factor}.")
    if options.num_workers < 0:
        raise InputError(
            f"--num_workers must be at least 1, or 0 for all cores. Received: "
            f"{options.num_workers}."
        )


def _identity(options: BuildOptions) -> dict[str, object]:
    """The options of a build; the tokenizer's and the corpus's content are recorded beside."""
    values = settings.to_dict(options)
    for name in ("output", "tokenizer", "num_workers", "dry_run", "data_dir"):
        del values[name]
    return values


def _is_complete(options: BuildOptions, tokenizer: Tokenizer, fingerprint: str) -> bool:
    folder = options.output
    if not os.path.isfile(os.path.join(folder, MANIFEST)):
        outputs.require_new(folder)
        return False
    manifest = Manifest.read(folder)
    found = json.loads(manifest.options) | {
        "tokenizer": manifest.tokenizer_fingerprint, "corpus content": manifest.corpus_fingerprint
    }  # fmt: skip
    wanted = _identity(options) | {
        "tokenizer": tokenizer.fingerprint, "corpus content": fingerprint
    }  # fmt: skip
    ignored = ["corpus"]  # where it lies and how that is spelled; its content counts
    if "all" in (found.get("split"), options.split):
        ignored.append("heldout_fraction")
    for name in ignored:
        found.pop(name, None)
        wanted.pop(name, None)
    if differing := settings.differing_keys(found, wanted):
        raise InputError(
            f"--output={folder} holds a build of other options ({'; '.join(differing)}): "
            "name another folder or remove it."
        )
    return True


def _num_shards(options: BuildOptions) -> int:
    text_bytes = corpora.corpus_bytes(options.corpus, options.data_dir) * options.dupe_factor
    return min(MAX_SHARDS, max(1, -(-text_bytes // TEXT_BYTES_PER_SHARD)))


def _documents(options: BuildOptions) -> Iterator[tuple[int, Document]]:
    """The split's documents, each with its number in the whole corpus."""
    documents = corpora.read_documents(
        options.corpus, options.document_boundary, options.errors, options.data_dir
    )
    for number, document in enumerate(documents):
        if options.split in ("all", split_of(document, options.heldout_fraction)):
            yield number, document


def _spill(options: BuildOptions, tokenizer: Tokenizer, folder: str, num_shards: int) -> Counts:
    """Cuts the corpus into records and spills them by shard."""
    cutter = Cutter(tokenizer, options.seq_length, options.dupe_factor, options.seed)
    text_bytes = corpora.corpus_bytes(options.corpus, options.data_dir)
    workers = useful_workers(options.num_workers, text_bytes)
    total = Counts()
    with shuffle.Spill(folder, num_shards) as spill, Progress("documents") as progress:
        for records, counts in cut_all(cutter, _documents(options), workers):
            spill.add(records)
            total += counts
            progress.advance(counts.documents)
    if not total.sequences:
        raise InputError(
            f"--corpus must hold text. Received: {options.corpus!r}, of which --split="
            f"{options.split} has none. Give more documents, or another --heldout_fraction."
        )
    return total


def _report(options: BuildOptions, counts: Counts) -> None:
    print(
        f"{options.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, "
        f"{counts.text_bytes:,} bytes -> {counts.pieces:,} pieces in "
        f"{counts.sequences:,} sequences ({counts.pieces / counts.sequences:.1f} pieces each); "
        f"{counts.sequences_without_pair:,} without a pair, {counts.pieces_lost:,} pieces lost "
        f"where pairs were too long; {counts.single_sentence_documents:,} documents of 1 sentence."
    )
    if counts.single_sentence_documents > counts.documents / 4:
        print(
            "note: many documents have one sentence, which has no order to predict. If blank lines "
            "stand between paragraphs, say where documents begin: --document_boundary."
        )


if __name__ == "__main__":
    cli.run(build, BuildOptions, __doc__)
