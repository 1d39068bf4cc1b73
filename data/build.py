r"""Build pretraining records from text: pairs of segments in globally shuffled TFRecords.

The compact layout stores no masks and no labels. Masks and the pair objective (SOP, NSP or none)
are chosen at read time, so one build serves every ablation. `--layout=reference` writes records for
Google's and Model Garden's loaders. Their masks and labels are fixed; `--dupe_factor` sets how many
differently masked passes over the corpus are written.

The same corpus, tokenizer, options and seed produce the same bytes with any number of workers. The
output folder appears only when it is complete. Rerunning a complete build does nothing; rerunning
an interrupted local build resumes it. The memory is bounded: a few batches and 64 MiB of records
per worker. A shard contains the records of 16 MiB of text, or of 1/512 of the text if there is more
than 8 GiB.

    python -m data.build --corpus=text:'corpus/*.txt' --tokenizer=artifacts/tokenizer \
        --seq_length=512 --output=artifacts/records
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator

from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.unknown_pieces import UnknownPieces
from data.building import beam_runner, local_runner
from data.building.compact_layout import CompactLayout
from data.building.cutter import Cutter, Tally
from data.building.options import BEAM, BuildOptions, check, slots
from data.building.reference_layout import ReferenceLayout
from data.building.shuffle import Layout
from data.building.static_masking import StaticMasking
from data.building.workers import DEFAULT_SIZES, Sizes, useful_workers
from data.corpora.corpus import NumberedCorpus, corpus_bytes, corpus_fingerprint, has_boundary
from data.records import sketch
from data.records.manifest import MANIFEST, REFERENCE, TOKENIZER, Manifest
from data.records.schema import COMPACT_VERSION

# While the corpus is read, each shard is an open file, and many systems allow 1024.
MAX_SHARDS = 512


def build(options: BuildOptions, sizes: Sizes = DEFAULT_SIZES) -> None:
    """Run the build described by `options`."""
    check(options)
    tokenizer = load_tokenizer(options.tokenizer)
    _corpus(options).require_text()
    fingerprint = corpus_fingerprint(options.corpus, options.data_dir)
    if _is_complete(options, tokenizer, fingerprint):
        print(f"{options.output} is already complete.")
        return
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return
    _build(options, tokenizer, fingerprint, sizes)


def _build(options: BuildOptions, tokenizer: Tokenizer, fingerprint: str, sizes: Sizes) -> None:
    run, identity = _run_beam, ""
    if options.runner != BEAM:  # only local builds can be resumed
        run = _run_local
        identity = json.dumps([_identity(options), tokenizer.fingerprint, fingerprint])
    with (
        _report_interrupt(bool(identity)),
        outputs.new_folder(options.output, identity=identity) as folder,
    ):
        shards, tally = run(options, folder, *make_stages(options, tokenizer), sizes)
        if not tally.counts.sequences:
            raise InputError(_no_sequences_message(options, tally))
        tokenizer.save(os.path.join(folder, TOKENIZER))
        manifest = Manifest(
            schema_version=COMPACT_VERSION,
            layout=options.layout,
            seq_length=options.seq_length,
            vocab_size=tokenizer.vocab_size,
            special_ids=tuple(dataclasses.astuple(tokenizer.special)),
            tokenizer_fingerprint=tokenizer.fingerprint,
            corpus_fingerprint=fingerprint,
            shards=shards,
            counts=tally.counts,
            options=json.dumps(_identity(options)),
            feature_names=options.feature_names if options.layout == REFERENCE else "",
            max_predictions=slots(options) if options.layout == REFERENCE else 0,
            sketch=sketch.to_text(tally.sketch),
        )
        manifest.write(folder)
    _report(options, tally)


@contextlib.contextmanager
def _report_interrupt(continues: bool) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        print("interrupted" + (": run the same command again to resume" if continues else ""))
        raise


def _no_sequences_message(options: BuildOptions, tally: Tally) -> str:
    """Return the error message for a build that has no text, or no document in the split."""
    if options.split == "all" or not tally.documents:
        return f"--corpus must contain text. Received: {options.corpus!r}, which has no sentence."
    change = "Raise" if options.split == "heldout" else "Lower"
    hint = ", or set another --document_boundary" if has_boundary(options.corpus) else ""
    return (
        f"--split={options.split} selects none of the {tally.documents:,} documents of "
        f"--corpus={options.corpus!r} (--document_boundary={options.document_boundary!r}, "
        f"--heldout_fraction={options.heldout_fraction}). {change} --heldout_fraction{hint}."
    )


def _run_local(
    options: BuildOptions, folder: str, cutter: Cutter, layout: Layout, sizes: Sizes
) -> tuple[tuple[int, ...], Tally]:
    corpus, count = _corpus(options), num_shards(options, sizes.shard_bytes)
    text_bytes = corpus_bytes(options.corpus, options.data_dir)
    workers = useful_workers(options.num_workers, text_bytes, sizes.worker_bytes)
    documents = corpus.documents(corpus.parts())
    return local_runner.run(folder, cutter, layout, documents, text_bytes, count, workers, sizes)


def _run_beam(
    options: BuildOptions, folder: str, cutter: Cutter, layout: Layout, sizes: Sizes
) -> tuple[tuple[int, ...], Tally]:
    count = num_shards(options, sizes.shard_bytes)
    return beam_runner.run(folder, _corpus(options), cutter, layout, count, options.beam_args)


def num_shards(options: BuildOptions, shard_bytes: int = Sizes.shard_bytes) -> int:
    """Return the number of shards, of about `shard_bytes` of text each."""
    text_bytes = corpus_bytes(options.corpus, options.data_dir) * options.dupe_factor
    return min(MAX_SHARDS, max(1, -(-text_bytes // shard_bytes)))


def make_stages(options: BuildOptions, tokenizer: Tokenizer) -> tuple[Cutter, Layout]:
    """Return the cutter, which splits documents into pairs, and the layout, which encodes pairs."""
    is_reference = options.layout == REFERENCE
    quirks = options.reference_quirks
    cutter = Cutter(
        tokenizer=tokenizer,
        seq_length=options.seq_length,
        dupe_factor=options.dupe_factor,
        seed=options.seed,
        labeled=is_reference,
        quirks=quirks,
        split=options.split,
        heldout_fraction=options.heldout_fraction,
    )
    if not is_reference:
        return cutter, CompactLayout(options.seq_length, tokenizer.is_word_start)
    special = tokenizer.special
    masking = StaticMasking(
        rate=options.masking_rate,
        max_ngram=options.max_ngram,
        max_predictions=slots(options),
        mask_id=special.mask,
        special_ids=tuple(dataclasses.astuple(special)),
        vocab_size=tokenizer.vocab_size,
        quirks=quirks,
    )
    return cutter, ReferenceLayout(
        options.feature_names,
        options.seq_length,
        special.cls,
        special.sep,
        masking,
        tokenizer.is_word_start,
    )


def _identity(options: BuildOptions) -> dict[str, object]:
    """Return the options that identify a build.

    The manifest also stores fingerprints of the tokenizer and of the corpus's content.
    """
    values = settings.to_dict(options)
    not_identity = ("runner", "beam_args", "num_workers", "data_dir")
    for name in ("output", "tokenizer", "dry_run", *not_identity):
        del values[name]
    return values


def _is_complete(options: BuildOptions, tokenizer: Tokenizer, fingerprint: str) -> bool:
    folder = options.output
    if not os.path.isfile(os.path.join(folder, MANIFEST)):
        outputs.require_new(folder)
        return False
    manifest = Manifest.read(folder)
    identity = manifest.build_options | {
        "tokenizer": manifest.tokenizer_fingerprint,
        "corpus content": manifest.corpus_fingerprint,
    }
    expected = _identity(options) | {
        "tokenizer": tokenizer.fingerprint,
        "corpus content": fingerprint,
    }
    ignored = ["corpus"]  # the path may change; the fingerprint covers the content
    if "all" in (identity.get("split"), options.split):
        ignored.append("heldout_fraction")
    for name in ignored:
        identity.pop(name, None)
        expected.pop(name, None)
    if differing := settings.differing_keys(identity, expected):
        raise InputError(
            f"--output={folder} holds a build with other options ({'; '.join(differing)}). "
            "Name another folder."
        )
    return True


def _corpus(options: BuildOptions) -> NumberedCorpus:
    return NumberedCorpus(*options.reading)


def _report(options: BuildOptions, tally: Tally) -> None:
    counts = tally.counts
    print(
        f"{options.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, "
        f"{counts.text_bytes:,} bytes -> {counts.pieces:,} pieces in "
        f"{counts.sequences:,} sequences ({counts.pieces / counts.sequences:.1f} pieces each, "
        "without [CLS] and [SEP]); "
        f"{counts.sequences_without_pair:,} without a pair, {counts.pieces_lost:,} pieces lost to "
        f"truncation; {counts.single_sentence_documents:,} documents with 1 sentence."
    )
    if options.layout == REFERENCE:
        print(f"labels: {counts.sequences_of_label_1 / counts.sequences:.1%} are 1.")
    if counts.replaced_characters:
        print(
            f"note: {counts.replaced_characters:,} characters are U+FFFD, which replaces invalid "
            "UTF-8."
        )
    pieces = counts.pieces + counts.pieces_lost
    unknown = UnknownPieces(counts.unknown_pieces, pieces, tally.unknown_characters)
    if note := unknown.note("--tokenizer"):
        print(f"note: {note}")
    is_text = has_boundary(options.corpus)
    if counts.single_sentence_documents > counts.documents / 4:
        print(
            "note: many documents have only one sentence, so they have no order to predict."
            + (
                " If blank lines separate paragraphs, set --document_boundary to mark where "
                "documents begin."
                if is_text
                else ""
            )
        )
    if is_text and counts.documents == 1 and options.document_boundary != "file":
        print(
            "note: all of the text is one document. If it contains several, set "
            "--document_boundary to mark where they begin."
        )


if __name__ == "__main__":
    commands.run(build, BuildOptions, __doc__)
