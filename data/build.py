"""Builds pretraining records from text: sentences, pieces, pairs of segments, shuffled TFRecords.

In the compact layout, masks and the pair objective (SOP, none) are chosen when the records are
read, so one build serves every ablation. `--layout=reference` writes what Google's and Model
Garden's loaders read: masks and labels that stay as they are, `--dupe_factor` times over.
The same corpus, tokenizer and seed give the same bytes, whatever the number of workers. The output
folder appears when it is complete; rerunning a complete build does nothing, and one that was
interrupted continues. In memory are the longest document, a few batches, and one shard: the records
of 16 MiB of text, or, of more than 8 GiB, of a 512th of the text.

    python -m data.build --corpus=text:'corpus/*.txt' --tokenizer=artifacts/tokenizer \\
        --seq_length=512 --output=artifacts/records
"""

import dataclasses
import errno
import json
import os
from collections.abc import Iterator

from albert_tf import cli, outputs, settings
from albert_tf.errors import InputError
from albert_tf.tokenization import Tokenizer, load_tokenizer
from data import corpora, local_runner
from data.compact_layout import CompactLayout
from data.corpora import Document
from data.cutter import Cutter, useful_workers
from data.records import MANIFEST, TOKENIZER, Counts, Manifest
from data.reference_layout import GOOGLE, NAMES, ReferenceLayout
from data.schema import COMPACT_VERSION
from data.shuffle import Layout
from data.splits import split_of
from data.static_masking import StaticMasking

MIN_SEQ_LENGTH = 16
TEXT_BYTES_PER_SHARD = 16 * 2**20
# Each is an open file while the corpus is read, and many systems allow 1024. With more text than
# fits into so many (8 GiB), the shards grow, and with them the memory that one takes.
MAX_SHARDS = 512
COMPACT, REFERENCE = "compact", "reference"
REFERENCE_PREDICTIONS = 20  # what Google's tool predicts at most, at any length


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
    layout: str = cli.option("compact, or reference: masked, for other projects' loaders", COMPACT)
    feature_names: str = cli.option("reference layout: google or model_garden", GOOGLE)
    masking_rate: float = cli.option("reference layout: share of pieces to predict", 0.15)
    max_predictions: int = cli.option(
        "reference layout: slots; 0 = round(masking_rate x seq_length)", 0
    )
    max_ngram: int = cli.option("reference layout: most words masked together", 3)
    reference_quirks: bool = cli.option(
        "reference layout: the oddities of Google's tool: random partners with label 1 for lone "
        "sentences, short documents, special pieces among random ones, 20 slots",
        False,
    )
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
    _build(options, tokenizer, fingerprint)


def _build(options: BuildOptions, tokenizer: Tokenizer, fingerprint: str) -> None:
    identity = json.dumps([_identity(options), tokenizer.fingerprint, fingerprint])
    text_bytes = corpora.corpus_bytes(options.corpus, options.data_dir)
    workers = useful_workers(options.num_workers, text_bytes)
    cutter, layout = make_stages(options, tokenizer)
    with (
        outputs.new_folder(options.output) as folder,
        local_runner.workplace(options.output, identity) as work,
    ):
        documents = _documents(options)
        try:
            shards, counts = local_runner.run(
                work, cutter, layout, documents, num_shards(options), workers
            )
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            raise OSError(
                f"--output={options.output}: the disk is full. Make room and give the same command "
                "again: it continues."
            ) from None
        if not counts.sequences:
            raise InputError(
                f"--corpus must hold text. Received: {options.corpus!r}, of which --split="
                f"{options.split} has none. Give more documents, or another --heldout_fraction."
            )
        local_runner.move_shards(work, folder, len(shards))
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
            counts=counts,
            options=json.dumps(_identity(options)),
            feature_names=options.feature_names if options.layout == REFERENCE else "",
            max_predictions=_slots(options) if options.layout == REFERENCE else 0,
        )
        manifest.write(folder)
    _report(options, counts)


def num_shards(options: BuildOptions) -> int:
    """Shards of a build: so many that each fits into memory."""
    text_bytes = corpora.corpus_bytes(options.corpus, options.data_dir) * options.dupe_factor
    return min(MAX_SHARDS, max(1, -(-text_bytes // TEXT_BYTES_PER_SHARD)))


def make_stages(options: BuildOptions, tokenizer: Tokenizer) -> tuple[Cutter, Layout]:
    """What cuts documents into pairs, and what writes pairs as records."""
    is_reference = options.layout == REFERENCE
    quirks = options.reference_quirks
    cutter = Cutter(
        tokenizer, options.seq_length, options.dupe_factor, options.seed, is_reference, quirks
    )
    if not is_reference:
        return cutter, CompactLayout(options.seq_length, tokenizer.is_word_start)
    special = tokenizer.special
    masking = StaticMasking(
        rate=options.masking_rate,
        max_ngram=options.max_ngram,
        max_predictions=_slots(options),
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


def _slots(options: BuildOptions) -> int:
    default = max(1, round(options.masking_rate * options.seq_length))
    if options.reference_quirks:
        default = REFERENCE_PREDICTIONS
    return options.max_predictions or default


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
    _check_layout(options)
    if options.dupe_factor < 1:
        raise InputError(f"--dupe_factor must be at least 1. Received: {options.dupe_factor}.")
    if options.num_workers < 0:
        raise InputError(
            f"--num_workers must be at least 1, or 0 for all cores. Received: "
            f"{options.num_workers}."
        )


def _check_layout(options: BuildOptions) -> None:
    for name, valid in (("layout", (COMPACT, REFERENCE)), ("feature_names", tuple(NAMES))):
        if (value := getattr(options, name)) not in valid:
            raise InputError(f"--{name} must be {' or '.join(valid)}. Received: {value!r}.")
    if options.layout == COMPACT:
        for field in dataclasses.fields(options):
            value, is_reference = getattr(options, field.name), "reference layout" in _help(field)
            if is_reference and value != field.default:
                raise InputError(
                    f"--{field.name} is for --layout=reference. Received: {value!r}. In the "
                    "compact layout, masks and pairs are chosen when reading: leave it out."
                )
    if not 0 < options.masking_rate < 1:
        raise InputError(
            f"--masking_rate must lie between 0 and 1. Received: {options.masking_rate}."
        )
    if not 0 <= options.max_predictions <= options.seq_length:
        raise InputError(
            f"--max_predictions must lie between 1 and --seq_length, or be 0 for the default. "
            f"Received: {options.max_predictions}."
        )
    if options.max_ngram < 1:
        raise InputError(f"--max_ngram must be at least 1. Received: {options.max_ngram}.")


def _help(field: dataclasses.Field) -> str:
    return field.metadata["help"]


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


def _documents(options: BuildOptions) -> Iterator[tuple[int, Document]]:
    """The split's documents, each with its number in the whole corpus."""
    documents = corpora.read_documents(
        options.corpus, options.document_boundary, options.errors, options.data_dir
    )
    for number, document in enumerate(documents):
        if options.split == "all" or options.split == split_of(document, options.heldout_fraction):
            yield number, document


def _report(options: BuildOptions, counts: Counts) -> None:
    print(
        f"{options.output}: {counts.documents:,} documents, {counts.sentences:,} sentences, "
        f"{counts.text_bytes:,} bytes -> {counts.pieces:,} pieces in "
        f"{counts.sequences:,} sequences ({counts.pieces / counts.sequences:.1f} pieces each); "
        f"{counts.sequences_without_pair:,} without a pair, {counts.pieces_lost:,} pieces lost "
        f"where pairs were too long; {counts.single_sentence_documents:,} documents of 1 sentence."
    )
    if options.layout == REFERENCE:
        print(f"labels: {counts.sequences_of_label_1 / counts.sequences:.1%} are 1.")
    if counts.replaced_characters:
        print(f"note: {counts.replaced_characters:,} characters are U+FFFD: bytes not UTF-8.")
    if counts.single_sentence_documents > counts.documents / 4:
        print(
            "note: many documents have one sentence, which has no order to predict. If blank lines "
            "stand between paragraphs, say where documents begin: --document_boundary."
        )


if __name__ == "__main__":
    cli.run(build, BuildOptions, __doc__)
