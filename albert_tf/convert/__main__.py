"""Converts a trained model: ours, Google's TF1 checkpoints, Hugging Face's folders.

    python -m albert_tf.convert --from=google:albert_base --to=artifacts/albert_base
    python -m albert_tf.convert --from=huggingface:albert-base-v2 --to=artifacts/albert_base
    python -m albert_tf.convert --from=runs/base --to=huggingface:export/base

A bare path is our own format: as --from a run, a converted folder or an exported encoder. With it
travel configuration and vocabulary. --init_groups_from_shared --set num_groups=4 (or
--set sharing=none) starts a model with fewer shared weights from one with more.
"""

import dataclasses
import os
import re
import sys
from collections.abc import Callable
from typing import NamedTuple

from albert_tf import cli, outputs, settings
from albert_tf.convert import google_tf1, huggingface, native
from albert_tf.convert.bundle import (
    OPTIONAL,
    Bundle,
    Leniency,
    weight_shapes,
    with_new_parts,
)
from albert_tf.convert.unshare import init_groups_from_shared
from albert_tf.errors import ConfigError, InputError


@dataclasses.dataclass(frozen=True)
class ConvertOptions:
    """The command line of `albert_tf.convert`."""

    source: str = cli.option("google:DIR_OR_PREFIX, huggingface:DIR or PATH", flag="from")
    target: str = cli.option("google:DIR, huggingface:DIR or PATH, new or empty", flag="to")
    init_groups_from_shared: bool = cli.option(
        "copy shared weights apart, for a target with more groups or less sharing", False
    )
    allow_missing: str = cli.option(
        f"parts that the source may lack and that start anew, of {','.join(OPTIONAL)}", ""
    )
    ignore: str = cli.option("weights that begin so and configuration keys to leave behind", "")
    set: tuple[str, ...] = cli.option(
        "a value of the target's configuration that fits its weights", ()
    )
    dry_run: bool = cli.option("read and check everything, write nothing", False)


class Format(NamedTuple):
    """How a kind of folder is read, what it cannot hold (errors; losses, returned), and written."""

    read: Callable[[str, Leniency], Bundle]
    check: Callable[[Bundle], list[str]]
    write: Callable[[Bundle, str], None]


FORMATS = {
    "google": Format(google_tf1.read, google_tf1.check, google_tf1.write),
    "huggingface": Format(huggingface.read, huggingface.check, huggingface.write),
}
OURS = Format(native.read, native.check, native.write)
# What --set may change: the weights compute what they were trained for. The MLM head's epsilon is
# among it because older Hugging Face models were trained with another than they tell.
_FREE = (
    "hidden_dropout", "attention_dropout", "initializer_range", "mlm_layer_norm_eps",
    "rematerialize", "rematerialize_chunks",
)  # fmt: skip
_UNSHARING = ("sharing", "num_groups")


def main(options: ConvertOptions) -> None:
    """Converts what `options` describe."""
    source, source_path = _format(options.source, "--from")
    target, target_path = _format(options.target, "--to")
    outputs.require_new(target_path, "--to")
    _check_apart(source_path, target_path)
    leniency = Leniency(_names(options.allow_missing), _names(options.ignore))
    bundle = source.read(source_path, leniency)
    _check_tokenizer(bundle, options)
    bundle = _completed(reshaped(bundle, options.set, options.init_groups_from_shared))
    for note in target.check(bundle):
        _warn(note)
    if not options.dry_run:
        with outputs.new_folder(target_path, "--to") as folder:
            target.write(bundle, folder)
    done = "would become" if options.dry_run else "became"
    print(f"{options.source} {done} {options.target}: {_described(bundle)}")


def reshaped(bundle: Bundle, assignments: tuple[str, ...], unshare: bool) -> Bundle:
    """The bundle with values of its configuration set, and weights copied apart for them.

    Raises:
      ConfigError: a value with which the weights would be another model.
      InputError: with `unshare`, sharing that cannot be had by copying.
    """
    config = settings.override(bundle.config, assignments)
    allowed = _FREE + _UNSHARING if unshare else _FREE
    for key, value in settings.to_dict(config).items():
        if value != getattr(bundle.config, key) and key not in allowed:
            raise ConfigError(
                f"--set takes here what leaves the weights the model that they are: "
                f"{', '.join(_FREE)}, and with --init_groups_from_shared, which copies shared "
                f"weights apart, {', '.join(_UNSHARING)}. Received: {key}={value}."
            )
    weights = bundle.weights
    if unshare:
        weights = init_groups_from_shared(weights, bundle.config, config)
    return Bundle(config, weights, bundle.tokenizer)


def _check_apart(source: str, target: str) -> None:
    inside = os.path.join(os.path.realpath(source), "")
    if os.path.isdir(source) and os.path.realpath(target).startswith(inside):
        raise InputError(
            f"--to must lie outside the --from folder {source!r}. Received: {target!r}."
        )


def _check_tokenizer(bundle: Bundle, options: ConvertOptions) -> None:
    if bundle.tokenizer is None:
        _warn(f"{options.source} has no vocabulary: {options.target} gets no tokenizer")
    elif bundle.tokenizer.vocab_size > bundle.config.vocab_size:
        raise InputError(
            f"the tokenizer's {bundle.tokenizer.vocab_size} pieces must fit the model's "
            f"`vocab_size`. Received: {bundle.config.vocab_size}."
        )


def _completed(bundle: Bundle) -> Bundle:
    new = sorted(weight_shapes(bundle.config).keys() - bundle.weights.keys())
    if not new:
        return bundle
    _warn(f"{len(new)} weights start anew: {', '.join(new)}")
    return dataclasses.replace(bundle, weights=with_new_parts(bundle.config, bundle.weights))


def _format(text: str, flag: str) -> tuple[Format, str]:
    """`KIND:PATH`, or a path in our own format."""
    kind, colon, path = text.partition(":")
    if kind in FORMATS and colon and path:
        return FORMATS[kind], path
    if kind in FORMATS or (re.fullmatch(r"\w+:.*", text) and not os.path.exists(text)):
        raise InputError(
            f"{flag} must be a path or one of {', '.join(f'{k}:PATH' for k in FORMATS)}. "
            f"Received: {text!r}."
        )
    return OURS, text


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _described(bundle: Bundle) -> str:
    config, count = bundle.config, sum(value.size for value in bundle.weights.values())
    return (
        f"{len(bundle.weights)} weights, {count:,} parameters with heads; {config.num_layers} "
        f"layers of {config.hidden_size}, embeddings of {config.embedding_size}, vocabulary "
        f"{config.vocab_size}, sharing {config.sharing}, groups {config.num_groups}"
    )


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


if __name__ == "__main__":
    cli.run(main, ConvertOptions, __doc__)
