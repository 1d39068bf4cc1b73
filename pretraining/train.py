"""Pretrains an encoder on records: masked LM and sentence order, by a custom loop.

Rerunning the command takes up an interrupted run where its last checkpoint is, to the same end, and
does nothing for a finished one. Values of the experiment are changed with --set:

    python -m pretraining.train --experiment=laptop --data=artifacts/records \\
        --run_dir=runs/first --set loop.steps=500 --set model.num_layers=6
"""

import dataclasses
import json
import os
import time

from albert_tf import cli, hardware, settings
from albert_tf.config import AlbertConfig
from albert_tf.errors import InputError
from albert_tf.runs import RunDir
from albert_tf.tokenization import load_tokenizer
from data.input_pipeline import Records
from data.records import TOKENIZER
from pretraining.config import PretrainConfig, resolve
from pretraining.experiments import EXPERIMENTS, experiment
from pretraining.loop import check_batch, train
from pretraining.plots import plot_training


@dataclasses.dataclass(frozen=True)
class TrainOptions:
    """The command line of `pretraining.train`."""

    data: str = cli.option("the records, a folder made by data.build")
    run_dir: str = cli.option("the run's folder; one that exists is taken up again")
    experiment: str = cli.option("the configuration: " + ", ".join(EXPERIMENTS), "laptop")
    init: str | None = cli.option("a run or converted folder to take the first weights from", None)
    device: str = cli.option("auto, cpu, gpu, tpu or multi_worker", "auto")
    tpu: str | None = cli.option("name or address of the TPU, or `local`", None)
    dry_run: bool = cli.option("print the resolved configuration and check everything", False)
    set: tuple[str, ...] = cli.option("key=value", ())


def main(options: TrainOptions) -> None:
    """Runs the training that `options` describe."""
    records = Records.open(options.data)
    config = resolve(experiment(options.experiment), options.set, records.manifest)
    if options.init:
        check_init(options.init, config, records)
    run = RunDir(options.run_dir)
    run_config = config_of_run(config, records, options)
    run.check(run_config)
    if options.dry_run:
        print(json.dumps(run_config, indent=1))
        return
    if run.is_complete:
        print(f"{run.path} is already complete: {json.dumps(run.result())}")
        return
    strategy = hardware.strategy(options.device, options.tpu)
    check_batch(config, strategy)
    run.begin(run_config, os.path.join(options.data, TOKENIZER))
    print(
        f"{config.model.param_count():,} parameters, {records.manifest.num_records:,} sequences, "
        f"{config.loop.steps:,} steps of {config.loop.global_batch_size}, "
        f"{strategy.num_replicas_in_sync} replica(s)",
        flush=True,
    )
    start = time.monotonic()
    train(config, records, run, strategy, options.init)
    plot_training(run)
    last = run.metrics()[-1]
    run.finish(last | {"seconds": round(time.monotonic() - start, 1)})
    print(f"{run.path}: " + ", ".join(f"{name} {value:.4g}" for name, value in last.items()))


def check_init(init: str, config: PretrainConfig, records: Records) -> None:
    """Refuses first weights of another model or vocabulary than the run's.

    Raises:
      InputError: the differing keys, or the tokenizers, are named.
    """
    model = AlbertConfig.from_json(os.path.join(init, "config.json"))
    if differing := settings.differing_keys(model, config.model):
        raise InputError(
            f"--init={init} holds another model than the run's (there != here): "
            f"{'; '.join(differing)}."
        )
    if load_tokenizer(init).fingerprint != records.manifest.tokenizer_fingerprint:
        raise InputError(
            f"--init={init} was trained with another tokenizer than made --data={records.folder}: "
            f"build the records with --tokenizer={init}."
        )


def config_of_run(
    config: PretrainConfig, records: Records, options: TrainOptions
) -> dict[str, object]:
    """What config.json holds: the resolved tree, and which records and first weights it took."""
    manifest = records.manifest
    return settings.to_dict(config) | {
        "records": {
            "seq_length": manifest.seq_length,
            "num_records": manifest.num_records,
            "tokenizer": manifest.tokenizer_fingerprint,
            "corpus": manifest.corpus_fingerprint,
            "build": json.loads(manifest.options),
        },
        "init": options.init,
    }


if __name__ == "__main__":
    cli.run(main, TrainOptions, __doc__)
