r"""Pretrain an encoder on records with masked LM and sentence order.

Rerunning the command resumes an interrupted run from its last checkpoint, with the same result as
an uninterrupted run, and does nothing for a finished one. SIGTERM and Ctrl-C save the run first;
the exit status is then 143 or 130. --set changes values of the experiment:

    python -m pretraining.train --experiment=laptop --data=artifacts/records \
        --run_dir=runs/first --set loop.steps=500 --set model.num_layers=6
"""

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from typing import Annotated, Any

from albert_tf.models.checkpoints import require_readable, weights_fingerprint
from albert_tf.models.head import HEADS
from albert_tf.models.pretrainer import AlbertPretrainer, require_heads
from albert_tf.runtime import commands, devices, plots, pretrained, settings
from albert_tf.runtime.bounds import one_of
from albert_tf.runtime.cores import num_cores
from albert_tf.runtime.errors import ConfigError, InputError, reading
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.checkpoints import steps_in
from albert_tf.training.progress import printing_if
from data.pipeline.batches import Mixture, Records
from data.records.manifest import Manifest, tokenizer_of
from pretraining.evaluation.heldout import note_overlap
from pretraining.evaluation.intrinsic import Evaluator
from pretraining.loop.config import PretrainConfig, resolve
from pretraining.loop.first_weights import first_weights
from pretraining.loop.groups import experiment
from pretraining.loop.result import finish
from pretraining.loop.runtime import Runtime, StrategyRuntime
from pretraining.loop.selection import Evaluate
from pretraining.loop.train_step import TrainStep, parts_of_batch
from pretraining.loop.training import MakeStep, check_batch, train
from pretraining.pjrt.runtime import PjrtRuntime

Evaluation = Callable[[AlbertPretrainer], Evaluate]
MakeEvaluation = Callable[[Records, PretrainConfig, Runtime], Evaluation]


@dataclasses.dataclass(frozen=True)
class TrainOptions(commands.CommandOptions):
    """The command line of `pretraining.train`."""

    data: str = commands.option(
        "records, a folder made by data.build; or DIR:weight,DIR:weight", path=True
    )
    run_dir: str = commands.option("the run's folder; an existing run is resumed", path=True)
    experiment: str = commands.option(
        "smoke, laptop, albert-mini, adapt, a published model, or another name listed by "
        "pretraining.experiments",
        "laptop",
    )
    init: str | None = commands.option(
        "a run, converted checkpoint or included model with the initial weights", None, path=True
    )
    unfinished: bool = commands.option(
        "use the last checkpoint of an --init run that has not ended", False, needs="init"
    )
    heldout: str | None = commands.option(
        "held-out records for `evaluation.every` and `loop.export=best`", None, path=True
    )
    skip_corrupt: bool = commands.option("train on the readable records of damaged shards", False)
    profile: bool = commands.option(
        "write a TensorBoard profile of the second loop of steps", False
    )
    device: str = commands.option("auto, cpu, gpu, tpu or multi_worker", "auto")
    tpu: str | None = commands.option(
        "name or address of the TPU, or `local`", None, only_for={"runtime": ("tensorflow",)}
    )
    runtime: Annotated[str, one_of("tensorflow", "pjrt")] = commands.option(
        "what computes the steps: tensorflow, or pjrt, which is JAX's client for GPUs and TPUs",
        "tensorflow",
    )
    dry_run: bool = commands.option("read all records and print the configuration", False)
    set: tuple[str, ...] = commands.option(
        "key=value of the experiment, such as loop.steps=500", ()
    )


def main(
    options: TrainOptions,
    make_step: MakeStep = TrainStep,
    make_evaluation: MakeEvaluation | None = None,
    open_run: Callable[[str], RunDir] = RunDir,
) -> None:
    """Run the training that `options` describe.

    Args:
      options: the command line.
      make_step: the step of the training loop.
      make_evaluation: the evaluation on held-out records; by default `evaluation_on`.
      open_run: the folder of the run.
    """
    run, chosen = open_run(options.run_dir), experiment(options.experiment)
    assignments = [*precision_of(run), *options.set]
    wanted = settings.override(chosen, assignments)  # refuses wrong settings before data is read
    is_over = run.is_complete and not options.dry_run
    pjrt = None if is_over else start_pjrt(options, wanted, assignments)
    records = Mixture.open(options.data, options.skip_corrupt)
    heldout = Records.open(options.heldout) if options.heldout else None
    config = resolve(chosen, assignments, records.manifest, options.device)
    if config.loop.export != "none":
        require_readable(run.path, "--run_dir, with `loop.export`,")
    if heldout:
        check_heldout(heldout, records, config)
    _require_both(options.heldout, config.evaluation.every)
    run_config, defaults = config_of_run(config, records, options), settings.defaults_of(config)
    run.check(run_config, defaults)
    if not options.dry_run and _is_complete(run):
        return
    runtime = pjrt or set_up_devices(config, records, options)
    check_batch(config, runtime.replicas)
    first = None
    if options.init and not steps_in(run.checkpoints_path):
        first = first_weights(options.init, config, records, options.unfinished)
    if pjrt:
        pjrt.check_memory(config, records, make_step)
    if options.dry_run:
        for part in (*records.parts, heldout):
            if part and not part.skip_corrupt:
                part.check_files()
        print(_to_text(run_config))
        return
    if runtime.is_chief:  # only one of several workers writes the run
        plots.require_plotting()
        run.begin(run_config, tokenizer_of(records.parts[0].folder), options.runtime, defaults)
        print(summary(config, records, runtime), flush=True)
    with printing_if(runtime.is_chief), contextlib.ExitStack() as stack:
        if runtime.is_chief:
            stack.enter_context(run.locked())  # nothing is written before
        if _is_complete(run):  # by another process, since the first check
            return
        for folder in (records, heldout) if heldout else (records,):
            stack.enter_context(folder.damage_as_input_error())
        make = make_evaluation or evaluation_on
        evaluation = make(heldout, config, runtime) if heldout else None
        train(config, records, run, runtime, first, evaluation, options.profile, make_step)
        if runtime.is_chief:
            finish(run, config.objectives)


def _require_both(heldout: str | None, every: int) -> None:
    if bool(every) != bool(heldout):
        raise InputError(
            "--heldout=FOLDER and --set evaluation.every=STEPS go together: pass both or neither. "
            f"Received: {heldout}, {every}."
        )


def _is_complete(run: RunDir) -> bool:
    if run.is_complete:
        print(f"{run.path} is already complete: {json.dumps(run.result())}")
    return run.is_complete


def start_pjrt(
    options: TrainOptions, wanted: PretrainConfig, assignments: list[str]
) -> PjrtRuntime | None:
    """Return the runtime of --runtime=pjrt, or None.

    The precision of its devices is appended to the assignments if `wanted` leaves it open.
    """
    if options.runtime != "pjrt":
        return None
    runtime = PjrtRuntime(options.device, wanted.loop.deterministic)
    check_batch(wanted, runtime.replicas)
    if wanted.precision == "auto":
        assignments.append(f"precision={runtime.precision}")
    return runtime


def set_up_devices(
    config: PretrainConfig, records: Mixture, options: TrainOptions
) -> StrategyRuntime:
    """Configure TensorFlow's devices; must precede all computation."""
    if config.loop.deterministic:
        devices.make_deterministic()
    rows = config.loop.global_batch_size // config.loop.accumulation_steps
    length, cores = records.manifest.seq_length, num_cores()
    parts = parts_of_batch(config.model, rows, length, cores)
    devices.divide_cores(options.device, parts)
    return StrategyRuntime(devices.strategy(options.device, options.tpu))


def summary(config: PretrainConfig, records: Mixture, runtime: Runtime) -> str:
    """Return the line that a run prints first: sizes, steps, replicas."""
    parts = runtime.parallel_parts
    return (
        f"{config.model.param_count():,} parameters, {records.num_records:,} sequences, "
        f"{config.loop.steps:,} steps of {config.loop.global_batch_size}, "
        f"{runtime.replicas} replica(s)"
        + (f", each batch in {parts} parallel parts" if parts > 1 else "")
    )


def evaluation_on(heldout: Records, config: PretrainConfig, runtime: Runtime) -> Evaluation:
    """Return a function from a model to its evaluation on masked LM and its own objective."""
    strategy = runtime.strategy  # under PJRT, that of the host alone
    share = config.loop.accumulation_steps * runtime.replicas // strategy.num_replicas_in_sync
    batch_size = config.loop.global_batch_size // share

    def evaluation(model: AlbertPretrainer) -> Evaluate:
        with reading(heldout.folder):
            run = Evaluator(
                *(model, heldout, config, batch_size),
                trained_only=True,
                by_kind=False,
                strategy=strategy,
            ).run
        return reading(heldout.folder)(run)

    return evaluation


def precision_of(run: RunDir) -> list[str]:
    """Return a begun run's precision as an assignment: it stays the same on any machine."""
    if not os.path.isfile(run.config_path):
        return []
    return [f"precision={run.config().get('precision', 'float32')}"]


def _to_text(run_config: Mapping[str, Any]) -> str:
    """Return a run's configuration for the terminal, without the long sketches."""
    shown = {key: value for key, value in run_config.items() if key != "records_sketches"}
    return json.dumps(shown, indent=1)


def check_heldout(heldout: Records, records: Mixture, config: PretrainConfig) -> None:
    """Check that the model can read the held-out records and that they provide its metric.

    Raises:
      InputError: tokenizer or sequence length differ, or `evaluation.metric` cannot be computed.
    """
    for key in ("tokenizer_fingerprint", "seq_length"):
        value, expected = getattr(heldout.manifest, key), getattr(records.manifest, key)
        if value != expected:
            raise InputError(
                f"--heldout={heldout.folder} must have the {key} of --data. Received: {value}, "
                f"and {expected} in {records.parts[0].folder!r}. Rebuild one of them."
            )
    if (metric := config.evaluation.metric).partition("/")[2] != "mlm":
        try:
            config.objective.of_pairs.check(heldout.manifest)
        except ConfigError as error:
            raise InputError(
                f"--heldout={heldout.folder} cannot provide `evaluation.metric={metric}`: {error}"
            ) from None
    for part in records.parts:
        note_overlap(part.manifest.identity(), part.manifest.sketch, heldout)


def config_of_run(
    config: PretrainConfig, records: Mixture, options: TrainOptions
) -> dict[str, object]:
    """Return the contents of config.json: resolved tree, records, and source of the weights.

    `heads` is left out if they are ALBERT's own, and `init_weights` without --init.
    """
    heads = [settings.to_dict(head) for head in config.heads]
    return settings.to_dict(config) | {
        **({"heads": heads} if config.heads != HEADS else {}),
        "records": [
            part.manifest.identity() | {"weight": weight}
            for part, weight in zip(records.parts, records.weights, strict=True)
        ],
        "records_sketches": [part.manifest.sketch for part in records.parts],
        "heldout": options.heldout and Manifest.read(options.heldout).identity(),
        "init": options.init and os.path.normpath(options.init),
        **({"init_weights": _init_weights(options)} if options.init else {}),
    }


def _init_weights(options: TrainOptions) -> str | None:
    """Return the `weights_fingerprint` of --init, or None where it does not matter.

    A run that has checkpoints needs its --init no more, which may be deleted or train on.
    """
    if options.unfinished and steps_in(RunDir(options.run_dir).checkpoints_path):
        return None
    try:
        init = pretrained.locate(str(options.init))
        require_heads(init)
        return weights_fingerprint(init)
    except InputError:  # said by `first_weights`, if they are needed
        return None


if __name__ == "__main__":
    commands.run(main, TrainOptions, __doc__)
