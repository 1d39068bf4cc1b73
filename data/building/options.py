"""The options of `data.build`, and what is wrong with them."""

import dataclasses

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from data.building import beam_runner
from data.corpora.corpus import KINDS
from data.records import locations
from data.records.manifest import COMPACT, REFERENCE
from data.records.schema import FOREIGN_NAMES, GOOGLE, MAX_SEQ_LENGTH

LOCAL, BEAM = "local", "beam"
MIN_SEQ_LENGTH = 16
REFERENCE_OPTIONS = (
    "feature_names", "masking_rate", "max_predictions", "max_ngram", "reference_quirks",
)  # fmt: skip
REFERENCE_PREDICTIONS = 20  # what Google's tool predicts at most, at any length


@dataclasses.dataclass(frozen=True)
class BuildOptions:
    """The command line of `data.build`."""

    corpus: str = commands.option("where the text is: KIND:WHERE, " + KINDS)
    tokenizer: str = commands.option("tokenizer folder, spiece.model or vocab.txt")
    output: str = commands.option("the folder to make")
    seq_length: int = commands.option("pieces per sequence, special ones included", 512)
    document_boundary: str = commands.option("blank_line, file or regex:RE", "blank_line")
    split: str = commands.option("documents to take: all, train or heldout", "all")
    heldout_fraction: float = commands.option("share of documents that `heldout` takes", 0.05)
    dupe_factor: int = commands.option("passes over the corpus, each with other segments", 1)
    layout: str = commands.option(
        "compact, or reference: masked, for other projects' loaders", COMPACT
    )
    feature_names: str = commands.option("reference layout: google or model_garden", GOOGLE)
    masking_rate: float = commands.option("reference layout: share of pieces to predict", 0.15)
    max_predictions: int = commands.option(
        "reference layout: slots; 0 = round(masking_rate x seq_length)", 0
    )
    max_ngram: int = commands.option("reference layout: most words masked together", 3)
    reference_quirks: bool = commands.option(
        "reference layout: the oddities of Google's tool: random partners with label 1 for lone "
        "sentences, short documents, special pieces among random ones, 20 slots",
        False,
    )
    seed: int = commands.option("of everything random", 0)
    errors: str = commands.option("strict, or replace: what invalid UTF-8 gets", "strict")
    data_dir: str | None = commands.option("where TFDS keeps its data sets", None)
    num_workers: int = commands.option("local runner: processes at most; 0 = one per core", 0)
    runner: str = commands.option(
        "local, or beam: Apache Beam, for a cluster; the same bytes", LOCAL
    )
    beam_args: str = commands.option(
        "Beam's own flags as one string: '--runner=FlinkRunner --flink_master=...'; without a "
        "--runner, Beam works in this process and in its memory",
        "",
    )
    dry_run: bool = commands.option("check everything and write nothing", False)


def check(options: BuildOptions) -> None:
    """InputError: an option is impossible, or does not go with another."""
    for name in ("tokenizer", "output"):
        locations.require_local(getattr(options, name), f"--{name}")
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
    _check_runner(options)
    if options.dupe_factor < 1:
        raise InputError(f"--dupe_factor must be at least 1. Received: {options.dupe_factor}.")
    if options.num_workers < 0:
        raise InputError(
            f"--num_workers must be at least 1, or 0 for all cores. Received: "
            f"{options.num_workers}."
        )


def _check_layout(options: BuildOptions) -> None:
    for name, valid in (("layout", (COMPACT, REFERENCE)), ("feature_names", tuple(FOREIGN_NAMES))):
        if (value := getattr(options, name)) not in valid:
            raise InputError(f"--{name} must be {' or '.join(valid)}. Received: {value!r}.")
    if options.layout == COMPACT:
        _check_compact(options)
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


def _check_compact(options: BuildOptions) -> None:
    for name in REFERENCE_OPTIONS:
        value = getattr(options, name)
        if value != getattr(BuildOptions, name):
            raise InputError(
                f"--{name} is for --layout=reference. Received: {value!r}. In the compact layout, "
                "masks and pairs are chosen when reading: leave it out."
            )
    if options.seq_length > MAX_SEQ_LENGTH:
        raise InputError(
            f"--seq_length must be at most {MAX_SEQ_LENGTH}, which is what masking can read. "
            f"Received: {options.seq_length}. Lower it, or choose --layout=reference."
        )


def _check_runner(options: BuildOptions) -> None:
    if options.runner not in (LOCAL, BEAM):
        raise InputError(f"--runner must be local or beam. Received: {options.runner!r}.")
    if options.runner == LOCAL and options.beam_args:
        raise InputError(
            f"--beam_args is for --runner=beam. Received: {options.beam_args!r}. Leave it out."
        )
    if options.runner == BEAM:
        beam_runner.require_beam(options.beam_args)
        if options.reference_quirks:
            raise InputError(
                "--reference_quirks is for --runner=local: its random partners come from the "
                "documents that are read together. Received: --runner=beam. Leave one of them out."
            )


def slots(options: BuildOptions) -> int:
    """Pieces to predict in a record of the reference layout, at most."""
    default = max(1, round(options.masking_rate * options.seq_length))
    if options.reference_quirks:
        default = REFERENCE_PREDICTIONS
    return options.max_predictions or default
