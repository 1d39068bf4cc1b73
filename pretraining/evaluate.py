"""Intrinsic evaluation of a run on held-out records: MLM and SOP loss and accuracy.

Every record is read once, with the same masks and pairs each time. Beside the MLM accuracy stands
that of always guessing the most frequent piece; beside the SOP accuracy its standard error.

    python -m pretraining.evaluate --run_dir=runs/first --data=artifacts/heldout
"""

import dataclasses
import json
import os

from albert_tf import cli, outputs, settings
from albert_tf.checkpoints import load_pretrainer
from albert_tf.errors import InputError
from albert_tf.runs import RunDir
from data.input_pipeline import Records, check_objective
from pretraining.config import PretrainConfig
from pretraining.intrinsic import evaluate, report


@dataclasses.dataclass(frozen=True)
class EvaluateOptions:
    """The command line of `pretraining.evaluate`."""

    run_dir: str = cli.option("the run to evaluate")
    data: str = cli.option("held-out records, a folder made by data.build")
    batch_size: int = cli.option("sequences at a time", 32)
    dry_run: bool = cli.option("check everything and evaluate nothing", False)


def main(options: EvaluateOptions) -> None:
    """Evaluates, prints, and leaves the figures in the run's folder."""
    if options.batch_size < 1:
        raise InputError(f"--batch_size must be positive. Received: {options.batch_size}.")
    run, records = RunDir(options.run_dir), Records.open(options.data)
    config = config_of_run(run, records)
    if options.dry_run:
        print(f"{run.path} on {records.manifest.num_records:,} sequences of {options.data}")
        return
    model = load_pretrainer(run.path)
    with records.naming_damage():
        result = evaluate(model, records, config, options.batch_size)
    print(report(result))
    result |= {"data": options.data, "corpus": records.manifest.corpus_fingerprint}
    name = os.path.basename(os.path.abspath(options.data))
    outputs.write_json(run.evaluation_path(name), result)


def config_of_run(run: RunDir, records: Records) -> PretrainConfig:
    """The run's configuration, if its model can read the records.

    Raises:
      InputError: not a pretraining run, another tokenizer made the records, or they are too long
        for the model.
    """
    values, manifest = run.config(), records.manifest
    if "records" not in values:
        raise InputError(f"--run_dir={run.path} must be a pretraining run: it has no records.")
    trained_on = values.pop("records")
    build = json.loads(manifest.options)
    if manifest.corpus_fingerprint == trained_on["corpus"] and (
        "all" in (build["split"], trained_on["build"]["split"])
        or build["split"] == trained_on["build"]["split"]
    ):
        print(f"note: the run was trained on documents of {records.folder}: nothing is held out.")
    values.pop("init")
    config = settings.from_dict(PretrainConfig, values)
    if manifest.tokenizer_fingerprint != trained_on["tokenizer"]:
        raise InputError(
            f"--data={records.folder} was made by another tokenizer than the run's: "
            f"build it with --tokenizer={run.tokenizer_path}."
        )
    if manifest.seq_length > config.model.max_positions:
        raise InputError(
            f"--data={records.folder} has sequences of {manifest.seq_length}, the model takes "
            f"{config.model.max_positions}: build it with a smaller --seq_length."
        )
    check_objective(manifest, config.objective)
    return config


if __name__ == "__main__":
    cli.run(main, EvaluateOptions, __doc__)
