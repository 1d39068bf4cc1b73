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
from typing import Annotated, Any

from albert_tf.runtime import commands  # first: it silences TensorFlow's start-up notes

# isort: split
from albert_tf.export import litert, serving
from albert_tf.export import onnx as onnx_models
from albert_tf.export.constant_stack import with_constants
from albert_tf.export.saved_model import save
from albert_tf.graph.onnx.graph import import_onnx
from albert_tf.graph.signatures import ServedModule
from albert_tf.models.checkpoints import load_config, require_readable
from albert_tf.models.encoder import load_encoder
from albert_tf.models.pretrainer import load_pretrainer
from albert_tf.runtime import devices, outputs, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.multi_label.module import MultiLabelModule
from albert_tf.tasks.multiple_choice.module import MultipleChoiceModule
from albert_tf.tasks.predictor import load_task_model
from albert_tf.tasks.pretrained.embedding import POOLINGS, EmbeddingModule
from albert_tf.tasks.pretrained.encoder import load_encoder_module
from albert_tf.tasks.pretrained.fill_mask import FillMaskModule
from albert_tf.tasks.pretrained.preprocessing import PreprocessingModule
from albert_tf.tasks.regressor.module import RegressorModule
from albert_tf.tasks.spans.module import SpanModule
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.tokens.module import TokenClassifierModule
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions(commands.CommandOptions):
    """The command line of `albert_tf.export`."""

    run_dir: str = commands.option("run, converted folder or included model to export", path=True)
    output: str = commands.option("folder OUTPUT in which to create VERSION/", path=True)
    kind: str | None = commands.option(
        "encoder, preprocessing, fill_mask, embedding, classifier, multi_label, regressor, span, "
        "multiple_choice or token_classifier",
        None,
    )
    version: Annotated[int, POSITIVE] = commands.option("version number; must not exist yet", 1)
    pooling: Annotated[str, one_of(*POOLINGS)] = commands.option(
        "for --kind=embedding: mean or cls", "mean"
    )
    depths: str = commands.option(
        "for text exports, such as 3,6: for each K, add a signature depth_K that uses K layers",
        "",
    )
    patience: int = commands.option(
        "for --kind=classifier: add a signature early_exit, where a text leaves the encoder once "
        "this many layers in a row have not changed its label; 0: do not add it",
        0,
    )
    precision: Annotated[str, one_of("float32", "mixed_bfloat16")] = commands.option(
        "compute precision: float32 or mixed_bfloat16", "float32"
    )
    format: Annotated[str, one_of("saved_model", "litert", "onnx")] = commands.option(
        "saved_model; or, with ids as input, litert (for phones) or onnx (for ONNX Runtime and "
        "OpenVINO)",
        "saved_model",
    )
    quantization: Annotated[str, one_of(*litert.QUANTIZATIONS)] = commands.option(
        "type of the weights: none (float32), int8 or, only for --format=litert, float16", "none"
    )
    seq_length: int | None = commands.option(
        "for --format=litert: fixed input of one text with this many pieces, for accelerators that "
        "need one shape; default: any number of texts and pieces",
        None,
    )
    unfinished: bool = commands.option(
        "export the last checkpoint of a run that has not ended", False
    )
    dry_run: bool = commands.option("load the run and check the options without exporting", False)


def _depths(options: ExportOptions) -> tuple[int, ...]:
    return settings.parse("--depths", tuple[int, ...], options.depths)


def _unroll(options: ExportOptions) -> bool:
    """Return True to unroll the encoder's layers, False to build them as a loop.

    In LiteRT, a loop keeps shared weights in memory once and takes any number of pieces.
    """
    return options.format != "litert" or options.seq_length is not None


def _task_model(options: ExportOptions) -> TaskModel:
    return with_constants(load_task_model(options.run_dir, unroll=_unroll(options)))


Maker = Callable[[ExportOptions, Tokenizer], ServedModule]

ENCODER_MAKERS: dict[str, Maker] = {
    "encoder": lambda options, _: load_encoder_module(options.run_dir, unroll=_unroll(options)),
    "preprocessing": lambda options, tokenizer: PreprocessingModule(
        tokenizer, load_config(options.run_dir).max_positions
    ),
    "fill_mask": lambda options, tokenizer: FillMaskModule(
        with_constants(load_pretrainer(options.run_dir)), tokenizer
    ),
    "embedding": lambda options, tokenizer: EmbeddingModule(
        with_constants(load_encoder(options.run_dir, unroll=_unroll(options))),
        tokenizer,
        options.pooling,
        _depths(options),
    ),
}
TASK_MAKERS: dict[str, Maker] = {
    "classifier": lambda options, tokenizer: ClassifierModule(
        _task_model(options),
        tokenizer,
        _depths(options),
        options.patience,
    ),
    "multi_label": lambda options, tokenizer: MultiLabelModule(
        _task_model(options), tokenizer, _depths(options)
    ),
    "regressor": lambda options, tokenizer: RegressorModule(
        _task_model(options), tokenizer, _depths(options)
    ),
    "span": lambda options, tokenizer: SpanModule(_task_model(options), tokenizer),
    "multiple_choice": lambda options, tokenizer: MultipleChoiceModule(
        _task_model(options), tokenizer
    ),
    "token_classifier": lambda options, tokenizer: TokenClassifierModule(
        _task_model(options), tokenizer
    ),
}
MAKERS = ENCODER_MAKERS | TASK_MAKERS
FILES = (
    "saved_model.pb",
    litert.MODEL_FILE,
    onnx_models.MODEL_FILE,
)  # one of them is in each version


# Flags that only some exports accept -> the kinds, or the format, that accept them.
_KINDS_OF = {
    "depths": ("classifier", "multi_label", "regressor", "embedding"),
    "patience": ("classifier",),
    "pooling": ("embedding",),
    "precision": ("encoder", "fill_mask", "embedding", *TASK_MAKERS),
}
_FORMAT_OF = {
    "depths": "saved_model",
    "patience": "saved_model",
    "precision": "saved_model",
    "seq_length": "litert",
}
_QUANTIZATIONS_OF = {
    "saved_model": ("none",),
    "litert": litert.QUANTIZATIONS,
    "onnx": onnx_models.QUANTIZATIONS,
}


def main(options: ExportOptions) -> None:
    """Export the model that `options` describe."""
    options = dataclasses.replace(options, run_dir=pretrained.locate(options.run_dir))
    run = RunDir(options.run_dir)
    kind = _kind(options, run.kind())
    _check(options, kind)
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
    tokenizer = load_tokenizer(run.tokenizer_path)
    if options.format == "onnx":
        import_onnx()
    if options.format == "onnx" and not options.dry_run:
        model, path = _loaded(kind, options.run_dir), run.config_path
        onnx_models.write_onnx(
            model, kind, folder, tokenizer, path, options.pooling, options.quantization
        )
        print(f"{folder}: {kind} of {run.path}")
        return
    with devices.precision_policy(options.precision):
        module = MAKERS[kind](options, tokenizer)
        if options.dry_run:
            print(f"{run.path} as {kind} to {folder}")
            return
        if options.format == "litert":
            quantization, length = options.quantization, options.seq_length
            litert.write_litert(module, folder, tokenizer, run.config_path, quantization, length)
        else:
            save(module, folder, tokenizer, run.config_path)
            serving.write_configuration(options.output)
    print(f"{folder}: {kind} of {run.path}")


def _loaded(kind: str, path: str) -> Any:
    """Return the model of a kind of export."""
    if kind in TASK_MAKERS:
        return load_task_model(path)
    return load_pretrainer(path) if kind == "fill_mask" else load_encoder(path)


def _check(options: ExportOptions, kind: str) -> None:
    """Check that no option is set that this export does not use.

    Raises:
      InputError: such an option is set, or the kind cannot be exported in the format.
    """
    for field in dataclasses.fields(options):
        if getattr(options, field.name) == field.default:
            continue
        kinds, formats = _KINDS_OF.get(field.name, (kind,)), _FORMAT_OF.get(field.name)
        if kind not in kinds:
            raise InputError(
                f"--{field.name} is only for --kind={', '.join(kinds)}. Received: --kind={kind}."
            )
        if formats not in (None, options.format):
            raise InputError(
                f"--{field.name} is only for --format={formats}. "
                f"Received: --format={options.format}."
            )
    if options.quantization not in (allowed := _QUANTIZATIONS_OF[options.format]):
        raise InputError(
            f"--quantization must be {' or '.join(allowed)} for --format={options.format}. "
            f"Received: --quantization={options.quantization}."
        )
    if kind in {"litert": ("preprocessing", "fill_mask"), "onnx": ("preprocessing",)}.get(
        options.format, ()
    ):
        raise InputError(
            f"--format={options.format} needs a model that takes ids, but --kind={kind} takes "
            "text: export a SavedModel."
        )


def _kind(options: ExportOptions, task: str | None) -> str:
    """Return the kind of export for a run that was trained for `task`."""
    allowed = list(ENCODER_MAKERS)
    if task in TASK_MAKERS:  # fine-tuned, and without the masked-LM head
        allowed = [task, *(kind for kind in ENCODER_MAKERS if kind != "fill_mask")]
    kind = options.kind or ("encoder" if task == "pretraining" else task)
    if kind is None or kind not in allowed:
        raise InputError(
            f"--kind must be one of {', '.join(allowed)} for a run whose task is {task!r}. "
            f"Received: {options.kind!r}."
        )
    return kind


if __name__ == "__main__":
    commands.run(main, ExportOptions, __doc__)
