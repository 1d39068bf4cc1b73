"""The options of `data.build` and their validation."""

import dataclasses
from typing import Annotated

from albert_tf.runtime import commands
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE, at_least, between, one_of
from albert_tf.runtime.errors import InputError
from data.building import beam_runner
from data.corpora.options import CorpusOptions
from data.records import locations
from data.records.manifest import COMPACT, REFERENCE
from data.records.schema import FOREIGN_NAMES, GOOGLE, MAX_SEQ_LENGTH

LOCAL, BEAM = "local", "beam"
MIN_SEQ_LENGTH = 16
_FOR_REFERENCE = {"layout": (REFERENCE,)}
REFERENCE_PREDICTIONS = 20  # the maximum of Google's tool, at any length


@dataclasses.dataclass(frozen=True)
class BuildOptions(CorpusOptions):
    """The command line of `data.build`."""

    tokenizer: str = commands.option(
        "tokenizer folder, run, included model, spiece.model or vocab.txt", path=True
    )
    output: str = commands.option("folder to create", path=True)
    seq_length: Annotated[
        int, at_least(MIN_SEQ_LENGTH, "because shorter ones rarely fit a pair of sentences")
    ] = commands.option("pieces per sequence, special pieces included", 512)
    split: Annotated[str, one_of("all", "train", "heldout")] = commands.option(
        "documents to use: all, train or heldout", "all"
    )
    heldout_fraction: Annotated[float, between("(0, 1)")] = commands.option(
        "share of documents in the `heldout` split", 0.05
    )
    dupe_factor: Annotated[int, POSITIVE] = commands.option(
        "passes over the corpus, each with different segments", 1
    )
    layout: Annotated[str, one_of(COMPACT, REFERENCE)] = commands.option(
        "compact, or reference (masked, for other projects' loaders)", COMPACT
    )
    feature_names: Annotated[str, one_of(*FOREIGN_NAMES)] = commands.option(
        "names of google or model_garden", GOOGLE, only_for=_FOR_REFERENCE
    )
    masking_rate: Annotated[float, between("(0, 1)")] = commands.option(
        "share of pieces to predict", 0.15, only_for=_FOR_REFERENCE
    )
    max_predictions: Annotated[int, NOT_NEGATIVE] = commands.option(
        "prediction slots; 0 = round(masking_rate x seq_length)", 0, only_for=_FOR_REFERENCE
    )
    max_ngram: Annotated[int, POSITIVE] = commands.option(
        "maximum number of words masked together", 3, only_for=_FOR_REFERENCE
    )
    reference_quirks: bool = commands.option(
        "quirks of Google's tool: random partners with label 1 for single sentences, one target "
        "length per document, special pieces among random ones, 20 slots; the partners come from "
        "documents that are read together",
        False,
        only_for={**_FOR_REFERENCE, "runner": (LOCAL,)},
    )
    seed: int = commands.option("seed of all random choices", 0)
    num_workers: Annotated[int, NOT_NEGATIVE] = commands.option(
        "local runner: maximum number of processes; 0 = one per core", 0
    )
    runner: Annotated[str, one_of(LOCAL, BEAM)] = commands.option(
        "local, or beam (Apache Beam, for a cluster); both write the same bytes", LOCAL
    )
    beam_args: str = commands.option(
        "Beam's own flags as one string: '--runner=FlinkRunner --flink_master=...'; without a "
        "--runner, Beam runs in this process and keeps everything in memory",
        "",
        only_for={"runner": (BEAM,)},
    )


def check(options: BuildOptions) -> None:
    """Check the options.

    Raises:
      InputError: an option is invalid, or conflicts with another.
    """
    for name in ("tokenizer", "output"):
        locations.require_local(getattr(options, name), f"--{name}")
    if options.layout == COMPACT and options.seq_length > MAX_SEQ_LENGTH:
        raise InputError(
            f"--seq_length must be at most {MAX_SEQ_LENGTH}, the limit of masking at read time. "
            f"Received: {options.seq_length}. Lower it, or choose --layout=reference."
        )
    if options.max_predictions > options.seq_length:
        raise InputError(
            "--max_predictions must not exceed --seq_length. "
            f"Received: {options.max_predictions}, {options.seq_length}."
        )
    if options.runner == BEAM:
        beam_runner.require_beam(options.beam_args)


def slots(options: BuildOptions) -> int:
    """Return the maximum number of pieces to predict in a record of the reference layout."""
    default = max(1, round(options.masking_rate * options.seq_length))
    if options.reference_quirks:
        default = min(REFERENCE_PREDICTIONS, options.seq_length)
    return options.max_predictions or default
