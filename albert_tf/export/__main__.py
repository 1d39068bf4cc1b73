"""Exports a trained run as a SavedModel that takes raw text and needs none of our code.

    python -m albert_tf.export --run_dir=runs/first --output=export/encoder
    python -m albert_tf.export --run_dir=runs/first --kind=fill_mask --output=export/fill_mask
    python -m albert_tf.export --run_dir=runs/reviews --output=export/reviews

writes OUTPUT/VERSION/saved_model.pb, as TF Serving expects it, and OUTPUT/serving/, its
configuration. Without --kind a pretraining run gives its encoder (TF Hub's contract), a fine-tuned
run its task. --format=litert writes OUTPUT/VERSION/model.tflite with its tokenizer instead.
"""

import dataclasses
import os
from collections.abc import Callable
from typing import Annotated

from albert_tf.export import serving
from albert_tf.export.litert import QUANTIZATIONS, write_litert
from albert_tf.export.modules.classifier import ClassifierModule
from albert_tf.export.modules.embedding import POOLINGS, EmbeddingModule
from albert_tf.export.modules.encoder import load_encoder_module
from albert_tf.export.modules.fill_mask import FillMaskModule
from albert_tf.export.modules.multiple_choice import MultipleChoiceModule
from albert_tf.export.modules.preprocessing import PreprocessingModule
from albert_tf.export.modules.regressor import RegressorModule
from albert_tf.export.modules.span import SpanModule
from albert_tf.export.signatures import ServedModule, save
from albert_tf.models.checkpoints import load_config
from albert_tf.models.encoder import load_encoder
from albert_tf.models.pretrainer import load_pretrainer
from albert_tf.runtime import commands, devices, outputs, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import load_task_model
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions(commands.CommandOptions):
    """The command line of `albert_tf.export`."""

    run_dir: str = commands.option("the run, or converted folder, to export")
    output: str = commands.option("where OUTPUT/VERSION/ is made")
    kind: str | None = commands.option(
        "encoder, preprocessing, fill_mask, embedding, classifier, regressor, span or "
        "multiple_choice",
        None,
    )
    version: Annotated[int, POSITIVE] = commands.option(
        "the version's number; one that exists is refused", 1
    )
    pooling: Annotated[str, one_of(*POOLINGS)] = commands.option(
        "of --kind=embedding: mean or cls", "mean"
    )
    depths: str = commands.option(
        "of text exports, such as 3,6: for each K also a signature depth_K that ends after layer K",
        "",
    )
    patience: int = commands.option(
        "of --kind=classifier: also a signature early_exit, by which a text leaves the encoder "
        "when so many layers in a row have not changed its label; 0: none",
        0,
    )
    precision: Annotated[str, one_of("float32", "mixed_bfloat16")] = commands.option(
        "float32 or mixed_bfloat16: what it computes in", "float32"
    )
    format: Annotated[str, one_of("saved_model", "litert")] = commands.option(
        "saved_model, or litert: for phones, ids in", "saved_model"
    )
    quantization: Annotated[str, one_of(*QUANTIZATIONS)] = commands.option(
        "of --format=litert, of the weights: none, float16 or int8", "none"
    )
    seq_length: int | None = commands.option(
        "of --format=litert: one text of exactly so many pieces, for accelerators; else any", None
    )
    unfinished: bool = commands.option(
        "export the last checkpoint of a run that has not ended", False
    )
    dry_run: bool = commands.option("check everything and export nothing", False)


def _depths(options: ExportOptions) -> tuple[int, ...]:
    return settings.parse("--depths", tuple[int, ...], options.depths)


def _unroll(options: ExportOptions) -> bool:
    """LiteRT keeps shared weights once if layers are a loop, which takes any number of pieces."""
    return options.format != "litert" or options.seq_length is not None


Maker = Callable[[ExportOptions, Tokenizer], ServedModule]

OF_ENCODERS: dict[str, Maker] = {
    "encoder": lambda options, _: load_encoder_module(options.run_dir, unroll=_unroll(options)),
    "preprocessing": lambda options, tokenizer: PreprocessingModule(
        tokenizer, load_config(options.run_dir).max_positions
    ),
    "fill_mask": lambda options, tokenizer: FillMaskModule(
        load_pretrainer(options.run_dir), tokenizer
    ),
    "embedding": lambda options, tokenizer: EmbeddingModule(
        load_encoder(options.run_dir, unroll=_unroll(options)),
        tokenizer,
        options.pooling,
        _depths(options),
    ),
}
OF_TASKS: dict[str, Maker] = {
    "classifier": lambda options, tokenizer: ClassifierModule(
        load_task_model(options.run_dir, unroll=_unroll(options)),
        tokenizer,
        _depths(options),
        options.patience,
    ),
    "regressor": lambda options, tokenizer: RegressorModule(
        load_task_model(options.run_dir, unroll=_unroll(options)), tokenizer, _depths(options)
    ),
    "span": lambda options, tokenizer: SpanModule(
        load_task_model(options.run_dir, unroll=_unroll(options)), tokenizer
    ),
    "multiple_choice": lambda options, tokenizer: MultipleChoiceModule(
        load_task_model(options.run_dir, unroll=_unroll(options)), tokenizer
    ),
}
MAKERS = OF_ENCODERS | OF_TASKS


# Flags that not every export takes: what is said of those that do.
_KINDS_OF = {
    "depths": ("classifier", "regressor", "embedding"),
    "patience": ("classifier",),
    "pooling": ("embedding",),
    "precision": ("encoder", "fill_mask", "embedding", *OF_TASKS),
}
_FORMAT_OF = {
    "depths": "saved_model",
    "patience": "saved_model",
    "precision": "saved_model",
    "quantization": "litert",
    "seq_length": "litert",
}


def main(options: ExportOptions) -> None:
    """Exports what `options` describe."""
    options = dataclasses.replace(options, run_dir=pretrained.locate(options.run_dir))
    run = RunDir(options.run_dir)
    kind = _kind(options, run.config().get("task", {}).get("kind"))
    _check(options, kind)
    run.require_ended("--run_dir", options.unfinished)
    serving.check_name(options.output)
    folder = os.path.join(options.output, str(options.version))
    if os.path.exists(os.path.join(folder, "saved_model.pb")):
        raise InputError(
            f"--output={options.output} has version {options.version} already, and an existing "
            f"version is never written over: pass --version={options.version + 1} or remove it."
        )
    outputs.require_new(folder)
    tokenizer = load_tokenizer(run.tokenizer_path)
    with devices.precision_policy(options.precision):
        module = MAKERS[kind](options, tokenizer)
        if options.dry_run:
            print(f"{run.path} as {kind} to {folder}")
            return
        if options.format == "litert":
            quantization, length = options.quantization, options.seq_length
            write_litert(module, folder, tokenizer, run.config_path, quantization, length)
        else:
            save(module, folder, tokenizer, run.config_path)
            serving.write_configuration(options.output)
    print(f"{folder}: {kind} of {run.path}")


def _check(options: ExportOptions, kind: str) -> None:
    """Refuses flags that this export would not look at."""
    for field in dataclasses.fields(options):
        if getattr(options, field.name) == field.default:
            continue
        kinds, formats = _KINDS_OF.get(field.name, (kind,)), _FORMAT_OF.get(field.name)
        if kind not in kinds:
            raise InputError(f"--{field.name} is for {', '.join(kinds)}. Received: --kind={kind}.")
        if formats not in (None, options.format):
            raise InputError(
                f"--{field.name} is for --format={formats}. Received: --format={options.format}."
            )
    if options.format == "litert" and kind in ("preprocessing", "fill_mask"):
        raise InputError(f"--format=litert takes ids, --kind={kind} text: export a SavedModel.")


def _kind(options: ExportOptions, task: str | None) -> str:
    """What is exported, of a run that was trained for `task`."""
    allowed = list(OF_ENCODERS)
    if task in OF_TASKS:  # fine-tuned, and without the masked-LM head
        allowed = [task, *(kind for kind in OF_ENCODERS if kind != "fill_mask")]
    kind = options.kind or ("encoder" if task == "pretraining" else task)
    if kind is None or kind not in allowed:
        raise InputError(
            f"--kind must be one of {', '.join(allowed)} for a run whose task is {task!r}. "
            f"Received: {options.kind!r}."
        )
    return kind


if __name__ == "__main__":
    commands.run(main, ExportOptions, __doc__)
