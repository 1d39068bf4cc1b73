"""Export a trained run as a SavedModel that takes raw text and needs none of our code.

    python -m albert_tf.export --run_dir=runs/first --output=export/encoder
    python -m albert_tf.export --run_dir=runs/first --kind=fill_mask --output=export/fill_mask
    python -m albert_tf.export --run_dir=runs/reviews --output=export/reviews

The command writes OUTPUT/VERSION/saved_model.pb, as TF Serving expects it, and the server's
configuration in OUTPUT/serving/. Without --kind, it exports the encoder of a pretraining run (by TF
Hub's contract) or the task of a fine-tuned run. --format=litert and --format=onnx instead write
OUTPUT/VERSION/model.tflite or model.onnx, which take ids, and the tokenizer.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Annotated

from albert_tf.runtime import commands  # first: it silences TensorFlow's start-up notes

# isort: split
from albert_tf.export import serving
from albert_tf.export.format import Format, Request
from albert_tf.export.litert import LiteRT
from albert_tf.export.onnx import Onnx
from albert_tf.export.saved_model import SavedModel
from albert_tf.runtime import devices, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kind import POOLINGS, Export, ExportSettings
from albert_tf.tasks.kinds import EXPORTS, KINDS, PRETRAINED
from albert_tf.text.tokenizer import load_tokenizer

# The first one is the default.
FORMATS: dict[str, Format] = {"saved_model": SavedModel(), "litert": LiteRT(), "onnx": Onnx()}
_QUANTIZATIONS = dict.fromkeys(name for writer in FORMATS.values() for name in writer.quantizations)


def _kinds(can: Callable[[Export], bool]) -> commands.Conditions:
    """Return where something applies: to the kinds for which it is true."""
    return {"kind": lambda: [kind for kind, export in EXPORTS.items() if can(export)]}


def _kinds_with(name: str) -> commands.Conditions:
    return _kinds(lambda export: name in export.options)


def _formats_with(name: str) -> commands.Conditions:
    return {"format": [format for format, writer in FORMATS.items() if name in writer.options]}


def _require_kind(name: str) -> None:
    if name not in EXPORTS:
        raise InputError(f"--kind must be one of {', '.join(EXPORTS)}. Received: {name!r}.")


@dataclasses.dataclass(frozen=True)
class ExportOptions(commands.CommandOptions):
    """The command line of `albert_tf.export`."""

    run_dir: str = commands.option("run, converted folder or included model to export", path=True)
    output: str = commands.option("folder OUTPUT in which to create VERSION/", path=True)
    kind: str | None = commands.option(
        f"what to export: {', '.join(EXPORTS)}; default: the run's own",
        None,
        check=_require_kind,
    )
    version: Annotated[int, POSITIVE] = commands.option("version number; must not exist yet", 1)
    pooling: Annotated[str | None, one_of(*POOLINGS)] = commands.option(
        "mean or cls, of an encoder that was not trained for it; default: the run's own, or mean",
        None,
        only_for=_kinds_with("pooling"),
    )
    depths: str = commands.option(
        "such as 3,6: for each K, add a signature depth_K that uses K layers",
        "",
        only_for={**_kinds_with("depths"), **_formats_with("depths")},
    )
    patience: int = commands.option(
        "add a signature early_exit, where a text leaves the encoder once this many layers in a "
        "row have not changed its label; 0: do not add it",
        0,
        only_for={**_kinds_with("patience"), **_formats_with("patience")},
    )
    precision: Annotated[str, one_of("float32", "mixed_bfloat16")] = commands.option(
        "compute precision: float32 or mixed_bfloat16",
        "float32",
        only_for={**_kinds_with("precision"), **_formats_with("precision")},
    )
    format: Annotated[str, one_of(*FORMATS)] = commands.option(
        ", ".join(f"{name} ({writer.about})" for name, writer in FORMATS.items()),
        next(iter(FORMATS)),
        values_only_for={name: _kinds(writer.can_write) for name, writer in FORMATS.items()},
    )
    quantization: Annotated[str, one_of(*_QUANTIZATIONS)] = commands.option(
        f"type of the weights, where none is float32: {', '.join(_QUANTIZATIONS)}",
        "none",
        values_only_for={
            each: {"format": [n for n, writer in FORMATS.items() if each in writer.quantizations]}
            for each in _QUANTIZATIONS
        },
    )
    seq_length: int | None = commands.option(
        "fixed input of one text with this many pieces, for accelerators that need one shape; "
        "default: any number of texts and pieces",
        None,
        only_for=_formats_with("seq_length"),
    )
    unfinished: bool = commands.option(
        "export the last checkpoint of a run that has not ended", False
    )
    dry_run: bool = commands.option("load the run and check the options without exporting", False)


def main(options: ExportOptions) -> None:
    """Export the model that `options` describe."""
    options = dataclasses.replace(options, run_dir=pretrained.locate(options.run_dir))
    run = RunDir(options.run_dir)
    kind = _kind(options, run.kind())
    options = dataclasses.replace(options, kind=kind)
    run.require_ended("--run_dir", options.unfinished)
    serving.check_name(options.output)
    folder = os.path.join(options.output, str(options.version))
    if any(os.path.exists(os.path.join(folder, writer.file)) for writer in FORMATS.values()):
        raise InputError(
            f"--output={options.output} already contains version {options.version}, which will not "
            f"be overwritten: pass --version={options.version + 1}."
        )
    format = FORMATS[options.format]
    format.check(folder)
    request = Request(
        EXPORTS[kind],
        run,
        load_tokenizer(run.tokenizer_path),
        ExportSettings(
            depths=settings.parse("--depths", tuple[int, ...], options.depths),
            patience=options.patience,
            pooling=options.pooling,
        ),
        options.quantization,
        options.seq_length,
    )
    with devices.precision_policy(options.precision):
        built = format.build(request)
        if options.dry_run:
            print(f"{run.path} as {kind} to {folder}")
            return
        format.write(built, request, folder)
    print(f"{folder}: {kind} of {run.path}")


def _kind(options: ExportOptions, task: str | None) -> str:
    """Return the kind of export for a run that was trained for `task`."""
    of_encoders = [name for name, export in KINDS.items() if export.takes_encoders]
    allowed = [*PRETRAINED, *of_encoders]
    if task in KINDS:
        without_heads = (
            name for name, export in PRETRAINED.items() if not export.needs_pretraining_heads
        )
        allowed = list(dict.fromkeys([task, *without_heads, *of_encoders]))
    elif not options.kind and task != "pretraining":
        raise InputError(
            f"--run_dir={options.run_dir}: the task of the run must be pretraining or one of "
            f"{', '.join(KINDS)}. Received: {task!r} in config.json. Pass --kind=encoder, or "
            "another folder."
        )
    kind = options.kind or (allowed[0] if task == "pretraining" else task)
    if kind is None or kind not in allowed:
        raise InputError(
            f"--kind must be one of {', '.join(allowed)} for a run whose task is {task!r}. "
            f"Received: {options.kind!r}."
        )
    return kind


if __name__ == "__main__":
    commands.run(main, ExportOptions, __doc__)
