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
from collections.abc import Sequence
from typing import Annotated

from albert_tf.runtime import commands  # first: it silences TensorFlow's start-up notes

# isort: split
from albert_tf.export import litert, onnx, serving
from albert_tf.export.constant_stack import with_constants
from albert_tf.export.saved_model import save
from albert_tf.graph.onnx.graph import import_onnx
from albert_tf.models.checkpoints import require_readable
from albert_tf.runtime import devices, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kind import LITERT, ONNX, POOLINGS, SAVED_MODEL, ExportSettings
from albert_tf.tasks.kinds import EXPORTS, KINDS, PRETRAINED
from albert_tf.text.tokenizer import load_tokenizer


def _only_for(name: str, *formats: str) -> dict[str, Sequence[str]]:
    """Return where an option applies: to the kinds that take it, in these formats or in all."""
    kinds = [kind for kind, export in EXPORTS.items() if name in export.options]
    return {"kind": kinds} | ({"format": formats} if formats else {})


@dataclasses.dataclass(frozen=True)
class ExportOptions(commands.CommandOptions):
    """The command line of `albert_tf.export`."""

    run_dir: str = commands.option("run, converted folder or included model to export", path=True)
    output: str = commands.option("folder OUTPUT in which to create VERSION/", path=True)
    kind: str | None = commands.option(
        f"what to export: {', '.join(EXPORTS)}; default: the run's own", None
    )
    version: Annotated[int, POSITIVE] = commands.option("version number; must not exist yet", 1)
    pooling: Annotated[str, one_of(*POOLINGS)] = commands.option(
        "mean or cls", "mean", only_for=_only_for("pooling")
    )
    depths: str = commands.option(
        "such as 3,6: for each K, add a signature depth_K that uses K layers",
        "",
        only_for=_only_for("depths", SAVED_MODEL),
    )
    patience: int = commands.option(
        "add a signature early_exit, where a text leaves the encoder once this many layers in a "
        "row have not changed its label; 0: do not add it",
        0,
        only_for=_only_for("patience", SAVED_MODEL),
    )
    precision: Annotated[str, one_of("float32", "mixed_bfloat16")] = commands.option(
        "compute precision: float32 or mixed_bfloat16",
        "float32",
        only_for=_only_for("precision", SAVED_MODEL),
    )
    format: Annotated[str, one_of(SAVED_MODEL, LITERT, ONNX)] = commands.option(
        "saved_model; or, with ids as input, litert (for phones) or onnx (for ONNX Runtime and "
        "OpenVINO)",
        "saved_model",
    )
    quantization: Annotated[str, one_of(*litert.QUANTIZATIONS)] = commands.option(
        "type of the weights: none (float32), int8 or, only for --format=litert, float16", "none"
    )
    seq_length: int | None = commands.option(
        "fixed input of one text with this many pieces, for accelerators that need one shape; "
        "default: any number of texts and pieces",
        None,
        only_for={"format": (LITERT,)},
    )
    unfinished: bool = commands.option(
        "export the last checkpoint of a run that has not ended", False
    )
    dry_run: bool = commands.option("load the run and check the options without exporting", False)


FILES = ("saved_model.pb", litert.MODEL_FILE, onnx.MODEL_FILE)  # one of them is in each version
_QUANTIZATIONS_OF = {
    SAVED_MODEL: ("none",),
    LITERT: litert.QUANTIZATIONS,
    ONNX: onnx.QUANTIZATIONS,
}


def main(options: ExportOptions) -> None:
    """Export the model that `options` describe."""
    options = dataclasses.replace(options, run_dir=pretrained.locate(options.run_dir))
    run = RunDir(options.run_dir)
    kind = _kind(options, run.kind())
    _check(dataclasses.replace(options, kind=kind), kind)
    run.require_ended("--run_dir", options.unfinished)
    serving.check_name(options.output)
    folder = os.path.join(options.output, str(options.version))
    if any(os.path.exists(os.path.join(folder, name)) for name in FILES):
        raise InputError(
            f"--output={options.output} already contains version {options.version}, which will not "
            f"be overwritten: pass --version={options.version + 1}."
        )
    outputs.require_new(folder)
    if options.format == "saved_model":
        require_readable(folder, "--output")
    tokenizer, export = load_tokenizer(run.tokenizer_path), EXPORTS[kind]
    depths = settings.parse("--depths", tuple[int, ...], options.depths)
    values = ExportSettings(depths, options.patience, options.pooling)
    if options.format == ONNX:
        import_onnx()
    if options.format == ONNX and not options.dry_run:
        model, quantization = export.load(run.path), options.quantization
        onnx.write_onnx(export, model, folder, tokenizer, run.config_path, values, quantization)
        print(f"{folder}: {kind} of {run.path}")
        return
    with devices.precision_policy(options.precision):
        model = export.load(run.path, _unroll(options))
        module = export.module(
            with_constants(model) if export.may_freeze else model, tokenizer, values
        )
        if options.dry_run:
            print(f"{run.path} as {kind} to {folder}")
            return
        if options.format == LITERT:
            quantization, length = options.quantization, options.seq_length
            litert.write_litert(module, folder, tokenizer, run.config_path, quantization, length)
        else:
            save(module, folder, tokenizer, run.config_path)
            serving.write_configuration(options.output)
    print(f"{folder}: {kind} of {run.path}")


def _unroll(options: ExportOptions) -> bool:
    """Return True to unroll the encoder's layers, False to build them as a loop.

    In LiteRT, a loop keeps shared weights in memory once and takes any number of pieces.
    """
    return options.format != LITERT or options.seq_length is not None


def _check(options: ExportOptions, kind: str) -> None:
    """Check that the kind can be exported in the format, with its weights in the given type.

    Raises:
      InputError: it cannot.
    """
    if options.quantization not in (allowed := _QUANTIZATIONS_OF[options.format]):
        raise InputError(
            f"--quantization must be {' or '.join(allowed)} for --format={options.format}. "
            f"Received: --quantization={options.quantization}."
        )
    if options.format not in EXPORTS[kind].formats:
        raise InputError(
            f"--format={options.format} needs a model that takes ids, but --kind={kind} takes "
            "text: export a SavedModel."
        )


def _kind(options: ExportOptions, task: str | None) -> str:
    """Return the kind of export for a run that was trained for `task`."""
    allowed = list(PRETRAINED)
    if task in KINDS:
        kept = (name for name, each in PRETRAINED.items() if not each.needs_pretraining_heads)
        allowed = [task, *kept]
    kind = options.kind or (allowed[0] if task == "pretraining" else task)
    if kind is None or kind not in allowed:
        raise InputError(
            f"--kind must be one of {', '.join(allowed)} for a run whose task is {task!r}. "
            f"Received: {options.kind!r}."
        )
    return kind


if __name__ == "__main__":
    commands.run(main, ExportOptions, __doc__)
