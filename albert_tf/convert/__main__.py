"""Converts a trained model: ours, Google's TF1 checkpoints, Hugging Face's, modules of TF Hub.

    python -m albert_tf.convert --from=google:albert_base --to=artifacts/albert_base
    python -m albert_tf.convert --from=huggingface:albert-base-v2 --to=artifacts/albert_base
    python -m albert_tf.convert --from=hub:albert_en_base_3 --to=artifacts/albert_base \\
        --allow_missing=mlm_head,pair_head
    python -m albert_tf.convert --from=runs/base --to=huggingface:export/base
    python -m albert_tf.convert --from=huggingface:sentiment --to=artifacts/sentiment \\
        --set task.labels=negative,positive

A bare path is our own format: as --from a run, a converted folder or an exported encoder. Nothing
is downloaded. With the weights travel configuration and tokenizer. --init_groups_from_shared
--set num_groups=4 (or --set sharing=none) starts a model with fewer shared weights from one with
more.

To and from huggingface: a fine-tuned run keeps its head. A classifier or regressor is an
AlbertForSequenceClassification there, a SQuAD 1.1 run an AlbertForQuestionAnswering, a multiple
choice run an AlbertForMultipleChoice. What a folder made elsewhere does not state, such as whether
the task takes pairs (task.pair), gets the kind's default, which is printed; --set task.KEY=value
sets it. --ignore=head --allow_missing=mlm_head,pair_head leaves the head behind and takes the
encoder alone.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Callable, Collection
from typing import NamedTuple

from albert_tf.convert import google, hub, native
from albert_tf.convert.bundle import (
    OPTIONAL,
    Bundle,
    MismatchPolicy,
    weight_shapes,
    with_initialized_parts,
)
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.convert.overrides import assumptions, with_overrides
from albert_tf.runtime import commands, outputs, pretrained
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir


@dataclasses.dataclass(frozen=True)
class ConvertOptions:
    """The command line of `albert_tf.convert`."""

    source: str = commands.option(
        "what to read: google:DIR, or google:PREFIX of one checkpoint, huggingface:DIR, hub:DIR, "
        "or a PATH of ours",
        flag="from",
    )
    target: str = commands.option(
        "what to write: google:DIR, huggingface:DIR or a PATH of ours, new or empty", flag="to"
    )
    init_groups_from_shared: bool = commands.option(
        "give layers that share weights copies of their own, for --set num_groups or sharing", False
    )
    allow_missing: str = commands.option(
        f"parts that the source may lack and that get random weights, of {','.join(OPTIONAL)}", ""
    )
    ignore: str = commands.option(
        "what to leave behind: weights whose names begin so, keys of the source's configuration", ""
    )
    set: tuple[str, ...] = commands.option(
        "key=value of the target's configuration, where the weights stay the same model", ()
    )
    half_precision: bool = commands.option(
        "write weights of 16 bits, half the bytes, for a model that is to be passed on; ours only",
        False,
    )
    unfinished: bool = commands.option(
        "take the last checkpoint of a run that has not ended", False
    )
    dry_run: bool = commands.option("read and check everything, write nothing", False)


class Format(NamedTuple):
    """How a kind of folder is read, what it cannot hold (errors; losses, returned), and written."""

    read: Callable[[str, MismatchPolicy], Bundle]
    check: Callable[[Bundle], list[str]]
    write: Callable[[Bundle, str], None]


FORMATS = {
    "google": Format(google.read, google.check, google.write),
    "huggingface": Format(huggingface.read, huggingface.check, huggingface.write),
}
OURS = Format(native.read, native.check, native.write)
# Written for TF Hub by albert_tf.export --kind=encoder.
READERS = {kind: form.read for kind, form in FORMATS.items()} | {"hub": hub.read}


def main(options: ConvertOptions) -> None:
    """Converts what `options` describe."""
    kind, source_path = _split_kind(options.source, "--from", READERS)
    read = READERS.get(kind, OURS.read)
    kind, target_path = _split_kind(options.target, "--to", FORMATS)
    target = FORMATS.get(kind, OURS)
    outputs.require_new(target_path, "--to")
    if options.half_precision and target is not OURS:
        raise InputError(
            f"--half_precision is of our own format alone. Received: --to={options.target}."
        )
    _require_target_outside(source_path, target_path)
    policy = MismatchPolicy(_split_names(options.allow_missing), _split_names(options.ignore))
    if read is OURS.read:
        source_path = pretrained.locate(source_path)
    RunDir(source_path).require_ended("--from", options.unfinished)
    bundle = read(source_path, policy)
    print(f"read {options.source}: {_describe(bundle)}")
    _check_tokenizer(bundle, options, source_path)
    bundle = _with_missing_parts(
        with_overrides(bundle, options.set, options.init_groups_from_shared), options
    )
    if assumed := assumptions(bundle, options.set):
        print(f"{options.source} does not state {assumed}: other values go with --set.")
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
            f"no tokenizer in {folder!r}, so {options.target} gets none: it cannot be exported, "
            "fine-tuned or trained further. Put the spiece.model or vocab.txt that the model was "
            f"trained with into {folder!r}, and convert again."
        )
    elif tokenizer.vocab_size > config.vocab_size:
        raise InputError(
            f"{options.source}: the tokenizer in {folder!r} has {tokenizer.vocab_size} pieces, and "
            f"the model must have one for each. Received: `vocab_size` {config.vocab_size}. Put "
            "the one that the model was trained with in its place."
        )


def _with_missing_parts(bundle: Bundle, options: ConvertOptions) -> Bundle:
    if not (absent := _missing_parts(bundle)):
        return bundle
    _warn(
        f"{options.source} has no {', '.join(absent)}: in {options.target} its weights are random, "
        "as before training."
    )
    weights = with_initialized_parts(bundle.config, bundle.weights, bundle.task)
    return dataclasses.replace(bundle, weights=weights)


def _missing_parts(bundle: Bundle) -> list[str]:
    """The names of the parts of OPTIONAL of which any weight is absent."""
    names = weight_shapes(bundle.config, bundle.task).keys() - bundle.weights.keys()
    return [part for part, path in OPTIONAL.items() if any(n.startswith(path) for n in names)]


def _split_kind(text: str, flag: str, kinds: Collection[str]) -> tuple[str, str]:
    """(kind, path) of `KIND:PATH`; ("", path) of one in our own format."""
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
    """What a folder holds, and what it does not."""
    config, tokenizer = bundle.config, bundle.tokenizer
    total = sum(value.size for value in bundle.weights.values())
    encoder = sum(v.size for name, v in bundle.weights.items() if name.startswith("encoder/"))
    pieces = f"a tokenizer of {tokenizer.vocab_size:,} pieces" if tokenizer else "no tokenizer"
    return (
        f"{total:,} parameters, of which {encoder:,} in the encoder; {config.num_layers} layers "
        f"of {config.hidden_size}, embeddings of {config.embedding_size}, vocabulary "
        f"{config.vocab_size:,}, sharing {config.sharing}, groups {config.num_groups}; {pieces}"
        + (f"; fine-tuned, of kind {bundle.task.kind}" if bundle.task else "")
        + "".join(f"; no {part}" for part in _missing_parts(bundle))
    )


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    commands.run(main, ConvertOptions, __doc__)
