"""The options of a sweep, and the configurations that it compares."""

import dataclasses
import itertools
import re
from collections.abc import Mapping
from typing import Annotated

from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from pretraining.loop.config import PretrainConfig
from pretraining.loop.groups import experiment, group_of

UNITS = ("steps", "tokens", "seconds")


@dataclasses.dataclass(frozen=True)
class SweepOptions(commands.CommandOptions):
    """The command line of `pretraining.sweep`."""

    output: str = commands.option("the sweep's folder; an existing sweep is resumed", path=True)
    grid: tuple[str, ...] = commands.option("key=value,value...; repeat for combinations", ())
    group: str | None = commands.option(
        "a group of pretraining.experiments instead of a grid", None
    )
    rows: tuple[str, ...] = commands.option(
        "a row of the group; repeatable; by default all", (), needs="group"
    )
    experiment: str | None = commands.option(
        "the experiment to change; by default laptop for a grid", None
    )
    data: str = commands.option(
        "the records, as for pretraining.train", "artifacts/records", path=True
    )
    heldout: str | None = commands.option(
        "records to evaluate on; by default none", None, path=True
    )
    heldout_set: tuple[str, ...] = commands.option(
        "masking.KEY=value for the evaluation; by default the paper's masks", ()
    )
    seeds: Annotated[int, POSITIVE] = commands.option(
        "runs of each configuration, with seed, seed + 1...", 1
    )
    budget: str | None = commands.option("length of a run: steps:N, tokens:N or seconds:N", None)
    device: Annotated[str, one_of("auto", "cpu", "gpu", "tpu")] = commands.option(
        "as for pretraining.train: auto, cpu, gpu or tpu", "auto"
    )
    tpu: str | None = commands.option("as for pretraining.train", None)
    dry_run: bool = commands.option("print the members without training them", False)
    set: tuple[str, ...] = commands.option(
        "key=value for every member, as for pretraining.train", ()
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.grid) == bool(self.group):
            raise InputError(
                "pass either --grid or --group. "
                f"Received: --grid={' '.join(self.grid)}, --group={self.group}."
            )
        for text in self.heldout_set:
            if not text.startswith("masking."):
                raise InputError(f"--heldout_set must be masking.KEY=value. Received: {text!r}.")
        unit, _, amount = (self.budget or "steps:1").partition(":")
        if unit not in UNITS or not amount.isdigit() or not int(amount):
            raise InputError(
                "--budget must be steps:N, tokens:N or seconds:N with a positive integer N. "
                f"Received: {self.budget!r}."
            )

    @property
    def devices(self) -> list[str]:
        """The flags that select the device, for the commands of a member."""
        return [f"--device={self.device}", *([f"--tpu={self.tpu}"] if self.tpu else [])]


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A configuration to compare, without a seed.

    Attributes:
      name: usable as the name of a folder.
      experiment: the base experiment.
      values: the values that distinguish the configuration, key -> text.
      assignments: for `--set`.
    """

    name: str
    experiment: str
    values: Mapping[str, str]
    assignments: tuple[str, ...]

    def tree(self) -> PretrainConfig:
        """Return the configuration without the values that depend on the records."""
        return settings.override(experiment(self.experiment), self.assignments)


def configurations(options: SweepOptions) -> list[Configuration]:
    """Return every combination of the grid's values, or every row of the group."""
    if options.group is None:
        return _of_grid(options)
    group = group_of(options.group)
    if group.is_sequence:
        raise InputError(
            f"--group must not be {options.group}, whose runs need weights of each other. Train "
            f"--experiment={options.group}/ROW with pretraining.train, each later run with --init."
        )
    members, rows = [], dict(group.rows)
    if unknown := [name for name in options.rows if name not in rows]:
        raise InputError(
            f"--rows: {settings.unknown_key(unknown[0], list(rows), f'{options.group} row')}"
        )
    rows = {name: row for name, row in rows.items() if name in (options.rows or rows)}
    presets = sorted({row.preset for row in rows.values()})
    sized = [row for row, value in rows.items() if "model.hidden_size=" in value.changes]
    is_other = options.experiment is not None and presets != [options.experiment]
    if is_other and (sized or len(presets) > 1 or presets[0].startswith("bert")):
        raise InputError(
            f"--experiment must not be passed with --group={options.group}, whose rows have sizes "
            f"of their own: {', '.join(sized or presets)}. Omit it, and shorten the runs with "
            "--budget."
        )
    for row, value in rows.items():
        assignments, base = tuple(value.assignments()), options.experiment
        if base is not None:  # whose length the runs have
            assignments = tuple(a for a in assignments if not a.startswith("loop.steps="))
        values = dict(text.split("=", 1) for text in assignments)
        if base is None:  # GROUP/ROW includes the changes of the row
            base, assignments = f"{options.group}/{row}", ()
        members.append(Configuration(row, base, values, (*assignments, *options.set)))
    return members


def _of_grid(options: SweepOptions) -> list[Configuration]:
    axes: dict[str, list[str]] = {}
    for text in options.grid:
        key, _, values = text.partition("=")
        if key in (*axes, "seed", *(other.partition("=")[0] for other in options.set)):
            raise InputError(
                f"--grid: `{key}` must be given only once, in --grid or --set, and seeds only in "
                f"--seeds. Received: {text!r}."
            )
        if key == "loop.steps" and options.budget:
            raise InputError(
                f"--grid must not contain `loop.steps` beside --budget, which decides the steps of "
                f"all members. Received: {text!r}."
            )
        axes[key] = list(filter(None, values.split(",")))
        if not axes[key]:
            raise InputError(f"--grid must be key=value,value... Received: {text!r}.")
    members = []
    for chosen in itertools.product(*axes.values()):
        pairs = dict(zip(axes, chosen, strict=True))
        assignments = tuple(f"{key}={value}" for key, value in pairs.items())
        name = re.sub(r"[^\w.+-]", "-", "_".join(assignments))
        base = options.experiment or "laptop"
        members.append(Configuration(name, base, pairs, (*options.set, *assignments)))
    return members


def of_length(config: PretrainConfig, steps: int) -> tuple[str, ...]:
    """Return assignments for `steps` steps, with warm-up and schedule of `config` in proportion."""
    share, optimizer = steps / config.loop.steps, config.optimizer
    warmup = round(optimizer.warmup_steps * share)
    schedule = round(optimizer.schedule_steps * share)
    decay = 0  # from the end of the warm-up
    if optimizer.decay_steps:
        decay = min(max(1, round(optimizer.decay_steps * share)), (schedule or steps) - warmup)
    return (
        f"loop.steps={steps}",
        f"optimizer.warmup_steps={warmup}",
        f"optimizer.schedule_steps={schedule}",
        f"optimizer.decay_steps={decay}",
    )
