r"""Check whether a pretraining step fits a TPU chip, and estimate its time, without a TPU.

    python -m pretraining.tpu_check --preset=albert-xxlarge-v2 --seq_length=512 --batch=64 \
        --topology=v5e
    python -m pretraining.tpu_check --preset=albert-xxlarge-v2 --global_batch=4096 --chips=64
    python -m pretraining.tpu_check --table --batch=16

The program of `pretraining.train --runtime=pjrt` is compiled for the chip. The time of a step is
the sum of the cycles that the compiler of libtpu estimates for each operation: it is not measured,
so use it to compare programs for the same chip.

--batch is per chip. Unless --set chooses how layers are computed (model.rematerialize or
loop.accumulation_steps), plain computation is tried first, then recomputation. --global_batch finds
the cheapest of plain, accumulation and recomputation. --table shows every preset. --quick compiles
with the least effort: it overestimates memory and time, for albert-tiny several times.

The exit status is 0 if the step fits or if --table was printed, whatever it shows, and 3 if the
step does not fit. The extra pjrt-tpu must be installed. Each program takes minutes to compile, but
only once: the results are cached in ~/.cache/albert_tf/tpu_check.
"""

import dataclasses
import itertools
import json
import sys
from collections.abc import Callable
from typing import Annotated

from albert_tf.models.config import PRESETS
from albert_tf.runtime import commands, devices, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE, POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from pretraining.loop.recipes import paper_recipe
from pretraining.pjrt.compiled import CompiledSize, gb
from pretraining.tpu import cache as tpu_cache
from pretraining.tpu import fit as tpu_fit
from pretraining.tpu.fit import Measure
from pretraining.tpu.report import (
    TIME_SOURCE,
    TIMES,
    as_json,
    describe_mode,
    plan_line,
    report,
    times_line,
)
from pretraining.tpu.step import CHIPS, CHUNK_PIECES, Chip, Step, parse_topology

DOES_NOT_FIT = 3
Result = tuple[list[dict[str, float | str | bool]], int]  # figures of steps and an exit status
_CHOICES = ("model.rematerialize", "model.rematerialize_chunks", "loop.accumulation_steps")


@dataclasses.dataclass(frozen=True)
class TpuCheckOptions(commands.CommandOptions):
    """The command line of `pretraining.tpu_check`."""

    preset: str = commands.option("the model", "albert-base-v2")
    seq_length: Annotated[int, POSITIVE] = commands.option("pieces per sequence", 512)
    num_predictions: Annotated[int, NOT_NEGATIVE] = commands.option(
        "predicted pieces per sequence; 0 for the recipe's 20", 0
    )
    batch: Annotated[int, POSITIVE] = commands.option("sequences per chip", 32)
    topology: str = commands.option(f"{', '.join(CHIPS)}, optionally with a layout: v5e:2x2", "v5e")
    quick: bool = commands.option("compile with the least effort: a rough answer in seconds", False)
    largest: bool = commands.option("also find the largest batch: two to five more compiles", True)
    global_batch: Annotated[int, NOT_NEGATIVE] = commands.option(
        "find the cheapest way to compute this global batch instead", 0
    )
    chips: Annotated[int, POSITIVE] = commands.option("chips that share --global_batch", 8)
    table: bool = commands.option(
        "print a table of all presets on all chips, with --batch on each, instead",
        False,
        excludes="global_batch",
    )
    presets: str = commands.option(
        "presets of --table, comma-separated", ",".join(PRESETS), needs="table"
    )
    json: str = commands.option(
        "also write the figures of each step to this file", "", path=True, excludes="table"
    )
    dry_run: bool = commands.option("print the configuration without compiling", False)
    set: tuple[str, ...] = commands.option(
        "key=value of the configuration, as for pretraining.train", ()
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.num_predictions > self.seq_length:
            raise InputError(
                "--num_predictions must be between 0 and --seq_length. "
                f"Received: {self.num_predictions}, {self.seq_length}."
            )
        if self.global_batch % self.chips:
            raise InputError(
                "--global_batch must be a multiple of --chips. "
                f"Received: {self.global_batch}, {self.chips}."
            )
        if self.table and not self.names:
            raise InputError("--presets must not be empty. Omit it to print all presets.")
        if self.global_batch and self.has_explicit_plan:
            raise InputError(
                "--global_batch chooses how a step is computed: omit --set for "
                f"{', '.join(_CHOICES)}."
            )

    def step(self, preset: str) -> Step:
        """Return the step of a preset with these options."""
        recipe = paper_recipe(preset)
        positions = max(recipe.model.max_positions, self.seq_length)
        model = dataclasses.replace(recipe.model, max_positions=positions)
        config = settings.override(dataclasses.replace(recipe, model=model), self.set)
        precision = devices.resolve_precision(config.precision, "tpu")
        config, model = dataclasses.replace(config, precision=precision), config.model
        if model.max_positions < self.seq_length:
            raise InputError(
                "`model.max_positions` must not be less than --seq_length. "
                f"Received: {model.max_positions}, {self.seq_length}."
            )
        predictions = self.num_predictions or config.masking.slots(self.seq_length)
        batch = self.global_batch // self.chips or self.batch
        step = Step(config, batch, self.seq_length, predictions, self.quick)
        if step.batch % step.unit:
            raise InputError(
                "the batch per chip must be a multiple of `loop.accumulation_steps` times "
                f"`model.rematerialize_chunks`. Received: {step.batch}, {step.parts} times "
                f"{model.rematerialize_chunks}."
            )
        return step

    @property
    def names(self) -> list[str]:
        """The presets in the table."""
        return [name for name in self.presets.split(",") if name]

    @property
    def has_explicit_plan(self) -> bool:
        """True if --set chooses how the step is computed."""
        return any(assignment.partition("=")[0].strip() in _CHOICES for assignment in self.set)


def main(
    options: TpuCheckOptions, compiler: tpu_cache.Compile | None = None, system: str = ""
) -> int:
    """Print what the options request; return the exit status.

    `compiler` can replace our compile; `system` is then the project whose model it compiles.
    """
    topology, chip = parse_topology(options.topology)
    step = options.step(options.preset)
    if options.json:
        outputs.require_file(options.json, "--json")
    if options.dry_run:
        print(json.dumps(settings.to_dict(step) | {"topology": topology}, indent=1))
        return 0
    cache = tpu_cache.Cache(compiler or compile_step, tpu_cache.folder(system))
    if options.table:
        _table(options, cache)
        return 0

    def measure(step: Step) -> CompiledSize:
        return cache(step, topology)

    shape = f"{step.batch} x {step.seq_length} pieces, {step.num_predictions} predicted in each,"
    name = f"{system} {options.preset}, {shape} on a {topology} chip".strip()
    kinds = f"{step.config.precision}, {step.config.optimizer.name}{', quick' * step.quick}"
    print(f"{name} of {gb(chip.hbm)}, {kinds}", flush=True)
    if step.fixed_bytes > chip.hbm:
        held = f"parameters, optimizer and gradients take {gb(step.fixed_bytes)}"
        print(f"does not fit, whatever the batch: {held}")
        return DOES_NOT_FIT
    run = _recommend if options.global_batch else _verdict
    figures, status = run(step, chip, measure, options)
    print(times_line(step, chip))
    if options.json:
        about = {
            "system": system or "albert_tf",
            "preset": options.preset,
            "topology": topology,
            "seq_length": step.seq_length,
            "num_predictions": step.num_predictions,
            "precision": step.config.precision,
            "optimizer": step.config.optimizer.name,
            "times_by": TIME_SOURCE,
        }
        outputs.write_json(options.json, about | {"steps": figures})
    return status


def compile_step(step: Step, topology: str, *make_model: Callable) -> CompiledSize:
    """Return the size of a step, compiled for a chip; `make_model` can replace our model."""
    from pretraining.tpu.lowering import TpuCompiler, lower_step_in_subprocess

    compiler = TpuCompiler(topology)  # first, because it may not be installed
    print(
        f"compiling {step.batch} x {step.seq_length}, {describe_mode(step)}, for {topology} ...",
        file=sys.stderr,
        flush=True,
    )
    shape = (step.batch, step.seq_length, step.num_predictions)
    lowered = lower_step_in_subprocess(step.config, *shape, *make_model)
    return compiler.compile_step(lowered, step.steps_per_call, step.quick)


def _verdict(step: Step, chip: Chip, measure: Measure, options: TpuCheckOptions) -> Result:
    """Print whether the step fits: plain, else recomputed, or as --set chooses."""
    steps = [step]
    if not options.has_explicit_plan:
        steps = [step.sized(step.batch, recompute) for recompute in (False, True)]
        if steps[0].estimate_activation_bytes() > 2 * chip.hbm:
            estimate = gb(steps[0].estimate_activation_bytes())
            print(f"plain: not compiled, by formula activations would take about {estimate}")
            del steps[0]
    figures = []
    for number, candidate in enumerate(steps):
        size = measure(candidate)
        fits = size.total <= chip.hbm
        print(report(candidate, size, chip), flush=True)
        parts = {"temporaries": size.temporaries, "code": size.code}
        figures.append(as_json(candidate, size.total, size.step_s, chip) | parts)
        if fits or number == len(steps) - 1:
            break
    if options.largest:
        largest = _largest(candidate, chip, measure, options)
        mode = "recomputed" if candidate.model.rematerialize else "plain"
        print(f"largest batch found that fits a chip, {mode}: {largest}")
    return figures, 0 if fits else DOES_NOT_FIT


def _largest(step: Step, chip: Chip, measure: Measure, options: TpuCheckOptions) -> int:
    """Return the largest batch found that fits if computed in the same way as `step`."""
    if options.has_explicit_plan:
        unit = step.unit

        def sized(batch: int) -> Step:
            return dataclasses.replace(step, batch=batch)
    else:
        recompute = step.model.rematerialize
        unit = max(1, CHUNK_PIECES // step.seq_length) if recompute else 1

        def sized(batch: int) -> Step:
            return step.sized(batch, recompute)

    def need(batch: int) -> int:
        return measure(sized(batch)).total

    start = max(unit, step.batch // unit * unit)
    return tpu_fit.largest_batch(need, chip.hbm, step.fixed_bytes, start, unit)


def _recommend(step: Step, chip: Chip, measure: Measure, options: TpuCheckOptions) -> Result:
    """Print the ways to compute a global batch, the cheapest first."""
    plans = tpu_fit.compute_plans(step, chip, measure)
    figures = []
    for plan in plans:
        print(plan_line(plan, chip))
        if plan.step is not None:
            figure = as_json(plan.step, plan.need, plan.step_s, chip)
            figures.append(figure | {"compiled": plan.confirmed})
    best = plans[0]
    if best.step is None:
        print("nothing fits: use more chips, shorter sequences or a smaller model")
        return figures, DOES_NOT_FIT
    flags = f"--set loop.global_batch_size={options.global_batch} {best.step.flags}".strip()
    print(f"cheapest: {best.name}: {flags}")
    return figures, 0


def _table(options: TpuCheckOptions, cache: tpu_cache.Cache) -> None:
    """Print a Markdown table of presets: all sizes on v5e, totals and times on every chip.

    Steps are recomputed unless --set chooses otherwise.
    """
    steps = {name: options.step(name) for name in options.names}
    step = next(iter(steps.values()))
    pieces = f"{step.batch} x {step.seq_length} pieces per chip"
    mode = "as --set chooses" if options.has_explicit_plan else "recomputed"
    print(f"{pieces}, {step.num_predictions} predicted in each sequence, {mode}\n")
    header = ["preset", "FLOPs", "temporaries", "code", *CHIPS, "largest on v5e"]
    lines = itertools.chain(
        [header, ["---", *["---:"] * (len(header) - 1)]],
        (_row(name, step, options, cache) for name, step in steps.items()),
    )
    for line in lines:
        print(f"| {' | '.join(line)} |", flush=True)
    print(f"\n{TIMES}")


def _row(name: str, step: Step, options: TpuCheckOptions, cache: tpu_cache.Cache) -> list[str]:
    if not options.has_explicit_plan:
        step = step.sized(step.batch, recompute=True)
    totals, temporaries, code, largest = [], "not compiled", "not compiled", "not compiled"
    for generation in CHIPS:
        topology, chip = parse_topology(generation)
        if step.fixed_bytes > chip.hbm:
            totals.append("does not fit")
            continue
        size = cache(step, topology)
        need = size.total
        speed = f", {1000 * size.step_s:.4g} ms" if need <= chip.hbm else ", does not fit"
        totals.append(gb(need) + speed)
        if generation == "v5e":
            temporaries, code = gb(size.temporaries), f"{size.code / 1e6:.0f} MB"
    if options.largest:
        topology, chip = parse_topology("v5e")
        largest = str(_largest(step, chip, lambda one: cache(one, topology), options))
    return [name, f"{step.flops:.3g}", temporaries, code, *totals, largest]


if __name__ == "__main__":
    commands.run(main, TpuCheckOptions, __doc__)
