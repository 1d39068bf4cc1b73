"""Builds pretraining records from text: sentences, pieces, pairs of segments, shuffled TFRecords.

Masks and the pair objective (SOP, none) are chosen when the records are read, so one build
serves every ablation. The same corpus, tokenizer and seed give the same bytes, whatever the number
of workers. The output folder appears when it is complete; rerunning a complete build does nothing.

    python -m data.build --corpus=text:'corpus/*.txt' --tokenizer=artifacts/tokenizer \\
        --seq_length=512 --output=artifacts/records
"""

import dataclasses
import json
import os
import random
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np

from albert_tf import cli, outputs, settings
from albert_tf.errors import InputError
from albert_tf.progress import Progress
from albert_tf.tokenization import Tokenizer, load_tokenizer
from data import corpora, keyed, shuffle
from data.corpora import Document
from data.records import TOKENIZER, Counts, Manifest
from data.schema import COMPACT_VERSION
from data.segments import segment_pairs
from data.shuffle import Keyed
from data.splits import split_of

MIN_SEQ_LENGTH = 16
SPECIAL_PIECES = 3  # [CLS] A [SEP] B [SEP]
TEXT_BYTES_PER_SHARD = 32 * 2**20
BATCH_CHARACTERS = 500_000


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
    num_workers: int = cli.option("processes; 0 = one per core", 0)
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
        num_shards = -(
            -corpora.corpus_bytes(options.corpus, options.data_dir) // TEXT_BYTES_PER_SHARD
        )
        num_shards = max(1, num_shards * options.dupe_factor)
        counts = _spill(options, tokenizer, folder, num_shards)
        if not counts.sequences:
            raise InputError(f"--corpus={options.corpus} (--split={options.split}) has no text.")
        manifest = Manifest(
            schema_version=COMPACT_VERSION,
            layout="compact",
            seq_length=options.seq_length,
            vocab_size=tokenizer.vocab_size,
            special_ids=tuple(dataclasses.astuple(tokenizer.special)),
            tokenizer_fingerprint=tokenizer.fingerprint,
            corpus_fingerprint=fingerprint,
            shards=(0,) * num_shards,
            counts=counts,
            options=_identity(options),
        )
        shards = shuffle.write_shards(folder, manifest.schema, num_shards)
        tokenizer.save(os.path.join(folder, TOKENIZER))
        dataclasses.replace(manifest, shards=shards).write(folder)
    _report(options, counts)


def _check(options: BuildOptions) -> None:
    if options.seq_length < MIN_SEQ_LENGTH:
        raise InputError(
            f"--seq_length must be at least {MIN_SEQ_LENGTH}. Received: {options.seq_length}."
        )
    if options.split not in ("all", "train", "heldout"):
        raise InputError(f"--split must be all, train or heldout. Received: {options.split!r}.")
    if not 0 < options.heldout_fraction < 1:
        raise InputError(
            f"--heldout_fraction must lie between 0 and 1. Received: {options.heldout_fraction}."
        )
    if options.dupe_factor < 1:
        raise InputError(f"--dupe_factor must be at least 1. Received: {options.dupe_factor}.")


def _identity(options: BuildOptions) -> str:
    """The options that decide the output's bytes, as JSON."""
    values = settings.to_dict(options)
    for name in ("output", "tokenizer", "num_workers", "dry_run", "data_dir"):
        del values[name]
    return json.dumps(values)


def _is_complete(options: BuildOptions, tokenizer: Tokenizer, fingerprint: str) -> bool:
    folder = options.output
    if not os.path.isfile(os.path.join(folder, "manifest.json")):
        outputs.require_new(folder)
        return False
    manifest = Manifest.read(folder)
    found = json.loads(manifest.options) | {
        "tokenizer": manifest.tokenizer_fingerprint, "corpus content": manifest.corpus_fingerprint
    }  # fmt: skip
    wanted = json.loads(_identity(options)) | {
        "tokenizer": tokenizer.fingerprint, "corpus content": fingerprint
    }  # fmt: skip
    if differing := settings.differing_keys(found, wanted):
        raise InputError(
            f"--output={folder} holds a build of other options ({'; '.join(differing)}): "
            "name another folder or remove it."
        )
    return True


def _spill(options: BuildOptions, tokenizer: Tokenizer, folder: str, num_shards: int) -> Counts:
    """Cuts the corpus into records and spills them by shard, in bounded memory."""
    totals = dataclasses.asdict(Counts())
    with shuffle.Spill(folder, num_shards) as spill, Progress("documents") as progress:
        for records, counts in _records(options, tokenizer):
            for name, value in dataclasses.asdict(counts).items():
                totals[name] += value
            spill.add(records)
            progress.advance(counts.documents)
    return Counts(**totals)


def _records(options: BuildOptions, tokenizer: Tokenizer) -> Iterator[tuple[list[Keyed], Counts]]:
    """Records of batch after batch of documents; the order of batches never shows in the output."""
    batches = _batches(_documents(options))
    workers = options.num_workers or os.cpu_count() or 1
    if workers == 1:
        for batch in batches:
            yield cut_documents(batch, tokenizer, options)
        return
    context = get_context("spawn")  # fork is unsafe beside TensorFlow's threads
    initial = (options.tokenizer, options)
    with ProcessPoolExecutor(workers, context, _start_worker, initial) as pool:
        pending: list = []
        for batch in batches:
            pending.append(pool.submit(_cut_in_worker, batch))
            if len(pending) > 2 * workers:  # bounds what waits in memory
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


_worker: dict = {}


def _start_worker(tokenizer: str, options: BuildOptions) -> None:
    _worker.update(tokenizer=load_tokenizer(tokenizer), options=options)


def _cut_in_worker(batch: list[tuple[int, Document]]) -> tuple[list[Keyed], Counts]:
    return cut_documents(batch, _worker["tokenizer"], _worker["options"])


def _documents(options: BuildOptions) -> Iterator[tuple[int, Document]]:
    documents = corpora.read_documents(
        options.corpus, options.document_boundary, options.errors, options.data_dir
    )
    for number, document in enumerate(documents):
        if options.split in ("all", split_of(document, options.heldout_fraction)):
            yield number, document


def _batches(
    documents: Iterable[tuple[int, Document]],
) -> Iterator[list[tuple[int, Document]]]:
    batch, size = [], 0
    for number, document in documents:
        batch.append((number, document))
        size += sum(map(len, document.sentences))
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def cut_documents(
    batch: list[tuple[int, Document]], tokenizer: Tokenizer, options: BuildOptions
) -> tuple[list[Keyed], Counts]:
    """The records of numbered documents, each with the key that orders it, and what was counted."""
    encoded = iter(tokenizer.encode_batch([s for _, d in batch for s in d.sentences]))
    cutter = _Cutter(tokenizer, options)
    for number, document in batch:
        pieces = [ids for ids in (next(encoded) for _ in document.sentences) if ids]
        cutter.cut(number, pieces)
    text_bytes = sum(len(s.encode()) for _, d in batch for s in d.sentences)
    sentences = sum(len(document.sentences) for _, document in batch)
    counts = Counts(
        documents=len(batch), sentences=sentences, text_bytes=text_bytes, **cutter.counts
    )
    return cutter.records, counts


class _Cutter:
    """Cuts documents of pieces into records and counts."""

    def __init__(self, tokenizer: Tokenizer, options: BuildOptions) -> None:
        self.options = options
        self.starts = tokenizer.is_word_start
        self.dtype = np.uint16 if tokenizer.vocab_size <= 2**16 else np.int32
        self.records: list[Keyed] = []
        self.counts = dict.fromkeys(
            ("single_sentence_documents", "sequences", "sequences_without_pair", "pieces",
             "pieces_lost"), 0)  # fmt: skip

    def cut(self, number: int, sentences: list[list[int]]) -> None:
        if len(sentences) == 1:
            self.counts["single_sentence_documents"] += 1
        max_pieces = self.options.seq_length - SPECIAL_PIECES
        for turn in range(self.options.dupe_factor):
            # Seeded by the document's number: the same whichever worker has it.
            rng = random.Random(keyed.stream_key(self.options.seed, turn, number))
            for pair in segment_pairs(sentences, max_pieces, rng):
                pieces = np.array(pair.first + pair.second, self.dtype)
                starts = self.starts[pieces]
                record = {
                    "pieces": pieces,
                    "word_starts": np.packbits(starts),
                    "first_length": len(pair.first),
                    "document": number,
                }
                self.records.append(Keyed(rng.getrandbits(64), number, turn, record))
                self.counts["sequences"] += 1
                self.counts["sequences_without_pair"] += not pair.second
                self.counts["pieces"] += len(pieces)
                self.counts["pieces_lost"] += pair.lost


def _report(options: BuildOptions, counts: Counts) -> None:
    print(
        f"{options.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, "
        f"{counts.text_bytes:,} bytes -> {counts.pieces:,} pieces in "
        f"{counts.sequences:,} sequences ({counts.pieces / counts.sequences:.1f} pieces each); "
        f"{counts.sequences_without_pair:,} without a pair "
        f"({counts.single_sentence_documents:,} documents have one sentence), "
        f"{counts.pieces_lost:,} pieces lost to truncation."
    )


if __name__ == "__main__":
    cli.run(build, BuildOptions, __doc__)
