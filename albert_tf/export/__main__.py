"""Exports a trained run as a SavedModel that takes raw text and needs none of our code.

    python -m albert_tf.export --run_dir=runs/first --output=export/encoder
    python -m albert_tf.export --run_dir=runs/first --kind=fill_mask --output=export/fill_mask

writes OUTPUT/VERSION/saved_model.pb, as TF Serving expects it. Without --kind a pretraining run
gives its encoder (TF Hub's contract), a fine-tuned run its task.
"""

import dataclasses
import os
from collections.abc import Callable

from albert_tf import cli, outputs
from albert_tf.checkpoints import load_encoder, load_pretrainer
from albert_tf.errors import InputError
from albert_tf.export.classifier import ClassifierModule
from albert_tf.export.encoder import EncoderModule
from albert_tf.export.fill_mask import FillMaskModule
from albert_tf.export.preprocessing import PreprocessingModule
from albert_tf.export.signatures import ServedModule, save
from albert_tf.runs import RunDir
from albert_tf.tasks.predictor import load_task_model
from albert_tf.tokenization import Tokenizer, load_tokenizer


@dataclasses.dataclass(frozen=True)
class ExportOptions:
    """The command line of `albert_tf.export`."""

    run_dir: str = cli.option("the run to export")
    output: str = cli.option("where OUTPUT/VERSION/ is made")
    kind: str | None = cli.option("encoder, preprocessing, fill_mask or classifier", None)
    version: int = cli.option("the version's number; one that exists is refused", 1)
    dry_run: bool = cli.option("check everything and export nothing", False)


def _preprocessing(path: str, tokenizer: Tokenizer) -> ServedModule:
    return PreprocessingModule(tokenizer, load_encoder(path).config.max_positions)


KINDS: dict[str, Callable[[str, Tokenizer], ServedModule]] = {
    "encoder": lambda path, _: EncoderModule(load_encoder(path)),
    "preprocessing": _preprocessing,
    "fill_mask": lambda path, tokenizer: FillMaskModule(load_pretrainer(path), tokenizer),
    "classifier": lambda path, tokenizer: ClassifierModule(load_task_model(path), tokenizer),
}


def main(options: ExportOptions) -> None:
    """Exports what `options` describe."""
    run = RunDir(options.run_dir)
    task = run.config().get("task", {}).get("kind")
    kind = options.kind or ("encoder" if task == "pretraining" else task)
    if kind not in KINDS:
        raise InputError(
            f"--kind must be one of {', '.join(KINDS)}. Received: {options.kind!r}, for a run "
            f"whose task is {task!r}."
        )
    if options.version < 1:
        raise InputError(f"--version must be a positive number. Received: {options.version}.")
    folder = os.path.join(options.output, str(options.version))
    if os.path.exists(os.path.join(folder, "saved_model.pb")):
        raise InputError(
            f"--output={options.output} has version {options.version} already, and an existing "
            f"version is never written over: pass --version={options.version + 1} or remove it."
        )
    outputs.require_new(folder)
    tokenizer = load_tokenizer(run.tokenizer_path)
    module = KINDS[kind](run.path, tokenizer)
    if options.dry_run:
        print(f"{run.path} as {kind} to {folder}")
        return
    save(module, folder, tokenizer, run.config_path)
    print(f"{folder}: {kind} of {run.path}")


if __name__ == "__main__":
    cli.run(main, ExportOptions, __doc__)
