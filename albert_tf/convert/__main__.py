r"""Convert a trained model between our format, Google's, Hugging Face's and TF Hub's.

    python -m albert_tf.convert --from=google:albert_base --to=artifacts/albert_base
    python -m albert_tf.convert --from=huggingface:albert-base-v2 --to=artifacts/albert_base \
        --allow_missing=pair_head
    python -m albert_tf.convert --from=hub:albert_en_base_3 --to=artifacts/albert_base \
        --allow_missing=mlm_head,pair_head
    python -m albert_tf.convert --from=runs/base --to=huggingface:export/base
    python -m albert_tf.convert --from=huggingface:sentiment --to=artifacts/sentiment \
        --set task.labels=negative,positive

A path without a prefix means our own format; --from then takes a run, a converted folder or an
exported encoder. google: reads TF1 checkpoints, hub: reads TF2 modules. Nothing is downloaded. The
configuration and the tokenizer are converted along with the weights. --init_groups_from_shared
--set num_groups=4 (or --set sharing=none) initializes a model that shares fewer weights from one
that shares more.

Conversions to and from huggingface: keep the head of a fine-tuned run. A classifier, a multi-label
classifier or a regressor corresponds to an AlbertForSequenceClassification, a SQuAD 1.1 run to an
AlbertForQuestionAnswering, a multiple-choice run to an AlbertForMultipleChoice and a token
classifier to an AlbertForTokenClassification. A folder made elsewhere may lack task settings, such
as task.pair (true if the task takes pairs of texts). These get the defaults of the kind, which are
printed; set other values with --set task.KEY=value. --ignore=head
--allow_missing=mlm_head,pair_head drops the head and converts only the encoder.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

from albert_tf.runtime import commands  # first: it silences TensorFlow's start-up notes

# isort: split
from albert_tf.convert import google, hub, native
from albert_tf.convert.bundle import (
    OPTIONAL,
    PIECES,
    Bundle,
    MismatchPolicy,
    weight_shapes,
    with_initialized_parts,
)
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.convert.huggingface.task import class_of
from albert_tf.convert.overrides import assumptions, with_folded_punctuation, with_overrides
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir

MAX_PADDING = 1024  # rows of a word table beyond the vocabulary


@dataclasses.dataclass(frozen=True)
class ConvertOptions:
    """The command line of `albert_tf.convert`."""

    source: str = commands.option(
        "source: google:DIR, google:PREFIX of one checkpoint, huggingface:DIR, hub:DIR, or a PATH "
        "in our format",
        flag="from",
        path=True,
    )
    target: str = commands.option(
        "target, new or empty: google:DIR, huggingface:DIR, or a PATH in our format",
        flag="to",
        path=True,
    )
    init_groups_from_shared: bool = commands.option(
        "copy shared weights to layers that no longer share them after --set num_groups or sharing",
        False,
    )
    allow_missing: str = commands.option(
        f"parts to initialize at random if the source lacks them, from {','.join(OPTIONAL)}", ""
    )
    ignore: str = commands.option(
        "what to skip: prefixes of weight names, and keys of the source's configuration", ""
    )
    set: tuple[str, ...] = commands.option(
        "key=value to set in the target's configuration, without changing the model", ()
    )
    half_precision: bool = commands.option(
        "write 16-bit weights, half the size, for a model to distribute; only in our format", False
    )
    fold_punctuation: bool = commands.option(
        "add rules to a sentencepiece vocabulary that map unknown typographic quotes, dashes and "
        "bullets to ' \" - *",
        False,
    )
    unfinished: bool = commands.option("use the last checkpoint of a run that has not ended", False)
    dry_run: bool = commands.option("read and check everything without writing", False)


class Format(NamedTuple):
    """The functions of a format. `check` raises an error or returns notes on what is lost."""

    read: Callable[[str, MismatchPolicy], Bundle]
    check: Callable[[Bundle], list[str]]
    write: Callable[[Bundle, str], None]


FORMATS = {
    "google": Format(google.read, google.check, google.write),
    "huggingface": Format(huggingface.read, huggingface.check, huggingface.write),
}
OURS = Format(native.read, native.check, native.write)
# Only a reader for TF Hub: albert_tf.export --kind=encoder writes that format.
READERS = {kind: form.read for kind, form in FORMATS.items()} | {"hub": hub.read}


def main(options: ConvertOptions) -> None:
    """Convert the model that `options` describe."""
    kind, source_path = _split_kind(options.source, "--from", READERS)
    read = READERS.get(kind, OURS.read)
    kind, target_path = _split_kind(options.target, "--to", FORMATS)
    target = FORMATS.get(kind, OURS)
    outputs.require_new(target_path, "--to")
    if options.half_precision and target is not OURS:
        raise InputError(
            f"--half_precision needs a target in our own format. Received: --to={options.target}. "
            "Leave it out, or pass --to=PATH without the name of a format."
        )
    _require_target_outside(source_path, target_path)
    policy = MismatchPolicy(_split_names(options.allow_missing), _split_names(options.ignore))
    if read is OURS.read:
        source_path = pretrained.locate(source_path)
    RunDir(source_path).require_ended("--from", options.unfinished)
    bundle = read(source_path, policy)
    print(f"read {options.source}: {_describe(bundle)}")
    _check_tokenizer(bundle, options, source_path)
    bundle = _without_unused_pieces(bundle)
    if options.fold_punctuation:
        bundle = with_folded_punctuation(bundle)
    bundle = _with_missing_parts(
        with_overrides(bundle, options.set, options.init_groups_from_shared), options
    )
    if assumed := assumptions(bundle, options.set):
        print(f"{options.source} does not state {assumed}: change them with --set.")
    if bundle.assumed and (note := class_of(bundle.task).note):
        _warn(note)
    for note in target.check(bundle):
        _warn(note)
    if options.dry_run:
        print(f"would write {options.target}: {_describe(bundle)}")
        return
    with outputs.new_folder(target_path, "--to") as folder:
        target.write(bundle, folder)
        if options.half_precision:
            native.halve(folder)
    print(f"wrote {options.target}: {_describe(bundle)}")


def _require_target_outside(source: str, target: str) -> None:
    source_prefix = os.path.join(os.path.realpath(source), "")
    if os.path.isdir(source) and os.path.realpath(target).startswith(source_prefix):
        raise InputError(
            f"--to must lie outside the --from folder {source!r}. Received: {target!r}."
        )


def _check_tokenizer(bundle: Bundle, options: ConvertOptions, path: str) -> None:
    config, tokenizer = bundle.config, bundle.tokenizer
    folder = path if os.path.isdir(path) else os.path.dirname(path) or "."
    if tokenizer is None:
        _warn(
            f"no tokenizer in {folder!r}, so {options.target} gets none and cannot be exported, "
            "fine-tuned or trained further. Put the spiece.model or vocab.txt that the model was "
            f"trained with into {folder!r}, and convert again."
        )
    elif tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"{options.source}: the tokenizer in {folder!r} has {tokenizer.vocab_size} pieces, and "
            f"the model must have at least as many. Received: `vocab_size` {config.vocab_size}. "
            "Replace the tokenizer with the one that the model was trained with."
        )


def _without_unused_pieces(bundle: Bundle) -> Bundle:
    """Return the bundle without the rows with which other programs pad the word table.

    Raises:
      InputError: there are more of them than padding explains.
    """
    size = bundle.tokenizer.vocab_size if bundle.tokenizer else bundle.config.vocab_size
    if size == bundle.config.vocab_size:
        return bundle
    rest = bundle.config.vocab_size - size
    sizes = f"the model has {bundle.config.vocab_size:,} pieces and its tokenizer {size:,}"
    if rest >= MAX_PADDING:
        raise InputError(f"--from: {sizes}, so it is another model's. Pass the model's own.")
    _warn(f"{sizes}: the rows of the last {rest:,} pieces are left out.")
    weights = {
        name: value[:size] if name in PIECES else value for name, value in bundle.weights.items()
    }
    config = bundle.config.replace(vocab_size=size)
    return dataclasses.replace(bundle, config=config, weights=weights)


def _with_missing_parts(bundle: Bundle, options: ConvertOptions) -> Bundle:
    if not (absent := _missing_parts(bundle)):
        return bundle
    _warn(
        f"{options.source} has no {', '.join(absent)}: {options.target} gets random weights "
        "instead, as before training."
    )
    weights = with_initialized_parts(bundle.config, bundle.weights, bundle.task)
    return dataclasses.replace(bundle, weights=weights)


def _missing_parts(bundle: Bundle) -> list[str]:
    """Return the names of the parts of OPTIONAL that lack any weight."""
    names = weight_shapes(bundle.config, bundle.task).keys() - bundle.weights.keys()
    return [part for part, path in OPTIONAL.items() if any(n.startswith(path) for n in names)]


def _split_kind(text: str, flag: str, kinds: Collection[str]) -> tuple[str, str]:
    """Return (kind, path) for `KIND:PATH`, or ("", path) for a path in our own format."""
    kind, colon, path = text.partition(":")
    if kind in kinds and colon and path:
        return kind, path
    if kind in kinds or (re.fullmatch(r"\w+:.*", text) and not os.path.exists(text)):
        raise InputError(
            f"{flag} must be a path or one of {', '.join(f'{k}:PATH' for k in kinds)}. "
            f"Received: {text!r}."
        )
    return "", text


def _split_names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _describe(bundle: Bundle) -> str:
    """Return a summary of a folder's contents and missing parts."""
    config, tokenizer = bundle.config, bundle.tokenizer
    total = sum(value.size for value in bundle.weights.values())
    encoder = sum(v.size for name, v in bundle.weights.items() if name.startswith("encoder/"))
    pieces = f"a tokenizer of {tokenizer.vocab_size:,} pieces" if tokenizer else "no tokenizer"
    return (
        f"{total:,} parameters, {encoder:,} of them in the encoder; {config.num_layers} layers "
        f"of {config.hidden_size}, embeddings of {config.embedding_size}, vocabulary "
        f"{config.vocab_size:,}, sharing {config.sharing}, groups {config.num_groups}; {pieces}"
        + (f"; fine-tuned, kind {bundle.task.kind}" if bundle.task else "")
        + "".join(f"; no {part}" for part in _missing_parts(bundle))
    )


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    commands.run(main, ConvertOptions, __doc__)
