r"""Train a grid of configurations, or a named group, with several seeds, and compare them.

    python -m pretraining.sweep --grid=model.sharing=all,attention,ffn,none --seeds=3 \
        --data=artifacts/records --heldout=artifacts/heldout --output=runs/sharing
    python -m pretraining.sweep --group=objective --experiment=laptop --budget=seconds:1200 \
        --data=artifacts/records --heldout=artifacts/heldout --output=runs/objective

Each member is a run folder OUTPUT/NAME_seed-N. `pretraining.train` trains it, and
`pretraining.evaluate` evaluates it on --heldout, with the paper's masks (at most 20 pieces of a
sequence) or those of --heldout_set, regardless of its own. Each command is a separate process, so
that its memory is freed. A rerun skips finished members and resumes interrupted ones; seeds, values
of the grid and --heldout may be added. If a member fails, the sweep reports it, trains the others
and exits with status 2. OUTPUT gets results.csv with a row per member of this command, and
results.png; the table has means over the seeds.

--group trains the rows of a group of `pretraining.experiments`. With --experiment, the changes of
each row, but for `loop.steps`, are applied to that experiment instead of the paper's model.

--budget sets the length of each run: steps:N, tokens:N (positions, padding included) or seconds:N
of training. Seconds are converted to steps: before all training, some loops of each configuration
are timed after its first loop, which compiles, and the number of steps is stored in
OUTPUT/sweep.json. So a run remains a function of its configuration, which has `loop.steps`, and a
rerun uses the same number. Compilation, checkpoints and evaluations do not count. Warm-up and
schedule keep their share of the steps.
"""

import contextlib
import dataclasses
import functools
import itertools
import os
import sys
from collections.abc import Callable
from typing import Any

from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.log_rows import has_numbers
from albert_tf.runtime.report_text import markdown_table
from albert_tf.runtime.run_dir import RunDir
from data.pipeline.batches import Mixture
from data.records import locations
from data.records.manifest import COMPACT, Manifest
from pretraining.loop.config import PretrainConfig, resolve
from pretraining.loop.groups import experiment
from pretraining.loop.recipes import PAPER_MASKING
from pretraining.sweeping.calls import CommandError, call, steps_within
from pretraining.sweeping.plan import Configuration, SweepOptions, configurations, of_length
from pretraining.sweeping.results import TRAINING, Result, compare, write_csv


def main(options: SweepOptions, run_command: Callable[..., None] | None = None) -> int:
    """Run the sweep and return the exit status.

    `run_command` can replace the separate process of each command.
    """
    sweep = Sweep(options, run_command or call)
    if options.dry_run:
        print(sweep.describe())
        return 0
    sweep.begin()
    for member in sweep.configurations:
        with contextlib.suppress(CommandError):  # reported when the member is trained
            sweep.time(member)
    members = [(m, n) for n in range(options.seeds) for m in sweep.configurations]
    results: dict[str, Result] = {}
    failures = []
    # Finished members first, so that results.csv always has them.
    for member, number in sorted(members, key=lambda pair: not sweep.run_dir(*pair).is_complete):
        path = sweep.run_dir(member, number).path
        print(f"== {path}", flush=True)
        try:
            results[path] = sweep.run(member, number)
        except CommandError as error:
            failures.append(f"failed: {path}: {error}")
            continue
        in_order = [results[p] for p in (sweep.run_dir(*m).path for m in members) if p in results]
        write_csv(os.path.join(options.output, "results.csv"), in_order)
    if results:
        print(compare(in_order, os.path.join(options.output, "results.png")))
    print("\n".join(failures), file=sys.stderr, end="\n" if failures else "")
    return commands.USAGE_ERROR if failures else 0


class Sweep:
    """The members of a sweep and its folder, where sweep.json stores the timed steps."""

    def __init__(self, options: SweepOptions, run_command: Callable[..., None]) -> None:
        self._run_command = run_command
        self.options, records = options, Mixture.open(options.data)
        self.manifest = records.manifest
        self.configurations = configurations(options)
        self._path = os.path.join(options.output, "sweep.json")
        same = {key: getattr(options, key) for key in ("group", "experiment", "budget", "data")}
        in_training = any(member.tree().evaluation.every for member in self.configurations)
        if in_training and not options.heldout:
            raise InputError("`evaluation.every` requires --heldout: pass it, or set 0.")
        same["heldout"] = options.heldout if in_training else None  # else it may be added later
        same["records"] = [part.manifest.identity() for part in records.parts]
        self._state: dict[str, Any] = same | {"set": list(options.set), "steps": {}}
        self._require_distinct_members()
        if options.heldout:
            self._check_heldout(Manifest.read(options.heldout))  # else it fails only after hours
        if not os.path.isfile(self._path):
            outputs.require_new(options.output)
            return
        state = outputs.read_json(self._path)
        self._state["steps"] = steps = state.get("steps", {})
        if not isinstance(steps, dict) or not all(type(n) is int and n > 0 for n in steps.values()):
            raise InputError(
                f"{self._path!r}: `steps` must have a number for each configuration. Received: "
                f"{shortened(steps)}. Restore the file, or name another --output."
            )
        if differing := settings.differing_keys(state, self._state):
            raise InputError(
                f"--output={options.output} contains another sweep (its value != yours): "
                f"{'; '.join(differing)}. Choose another folder, or pass the values of that sweep."
            )

    def _require_distinct_members(self) -> None:
        trees = [(member.name, self.config(member)) for member in self.configurations]
        for (name, tree), (other_name, other_tree) in itertools.combinations(trees, 2):
            if tree == other_tree:
                raise InputError(
                    f"members must differ. Received: {name} and {other_name}, which are the same "
                    "configuration (with --experiment, all have its length). Omit one, or train "
                    "each on its own --data with pretraining.train."
                )

    def _check_heldout(self, heldout: Manifest) -> None:
        if heldout.tokenizer_fingerprint != self.manifest.tokenizer_fingerprint:
            raise InputError(
                f"--heldout={self.options.heldout} must have the tokenizer of "
                f"--data={self.options.data}. Rebuild one of them."
            )
        longest = min(self.config(member).model.max_positions for member in self.configurations)
        if heldout.seq_length > longest:
            raise InputError(
                f"--heldout={self.options.heldout} must have sequences of at most {longest} "
                f"pieces, `model.max_positions`. Received: {heldout.seq_length}."
            )
        if heldout.layout != COMPACT and self.options.heldout_set:
            raise InputError(
                "--heldout_set requires --heldout records of the compact layout, because those of "
                f"{self.options.heldout} are already masked. Leave it out."
            )
        self._masks(heldout)

    def _masks(self, heldout: Manifest) -> dict[str, Any]:
        """Return the masking of the evaluation; nothing for records that are already masked.

        Raises:
          ConfigError: that of --heldout_set is invalid or does not fit the records.
        """
        if heldout.layout != COMPACT:
            return {}
        most = min(PAPER_MASKING.max_predictions, heldout.seq_length)
        papers = PretrainConfig(masking=dataclasses.replace(PAPER_MASKING, max_predictions=most))
        masking = settings.override(papers, self.options.heldout_set).masking
        masking.slots(heldout.seq_length)  # which checks that they fit
        return settings.to_dict(masking)

    def begin(self) -> None:
        """Create the folder if it does not exist yet."""
        if not os.path.isfile(self._path):
            with outputs.new_folder(self.options.output) as folder:
                outputs.write_json(os.path.join(folder, "sweep.json"), self._state)

    def run_dir(self, member: Configuration, number: int) -> RunDir:
        """Return the folder of the member's run with the seed of this number, counted from 0."""
        seed = member.tree().seed + number
        return RunDir(os.path.join(self.options.output, f"{member.name}_seed-{seed}"))

    def config(self, member: Configuration) -> PretrainConfig:
        """Return the resolved configuration of the member with its first seed.

        Until the member is timed, it has the experiment's length.

        Raises:
          ConfigError: see `resolve`.
        """
        # On the CPU: looking for a TPU here would block it for the members' processes.
        assignments = (*member.assignments, *self._length(member))
        return resolve(experiment(member.experiment), assignments, self.manifest, "cpu")

    def steps(self, member: Configuration) -> int | None:
        """Return the steps that the member trains, or None if it has yet to be timed."""
        loop = member.tree().loop
        unit, _, amount = (self.options.budget or f"steps:{loop.steps}").partition(":")
        if unit == "seconds":
            return self._state["steps"].get(member.name)
        per_step = loop.global_batch_size * self.manifest.seq_length
        return int(amount) if unit == "steps" else max(1, int(amount) // per_step)

    def _length(self, member: Configuration) -> tuple[str, ...]:
        steps = self.steps(member)
        return () if steps is None else of_length(member.tree(), steps)

    def run(self, member: Configuration, number: int) -> Result:
        """Train and evaluate the member if not yet done; return its row of results.csv.

        Raises:
          CommandError: a command failed.
        """
        run, seed = self.run_dir(member, number), member.tree().seed + number
        if not run.is_complete:
            self.time(member)
            self._train(member, run, f"seed={seed}", *self._length(member))
        result = {
            "run": os.path.basename(run.path),
            "configuration": member.name,
            "seed": seed,
            **member.values,
            "parameters": self.config(member).model.param_count(),
            **{f"{TRAINING}{name}": value for name, value in _result_of(run).items()},
        }
        return result | (self._evaluation(run) if self.options.heldout else {})

    def time(self, member: Configuration) -> None:
        """Convert the seconds of the budget to the steps of the member, if not yet done.

        All configurations are timed before any is trained, so that a machine whose speed changes
        over hours affects all of them equally.

        Raises:
          CommandError: a command failed.
        """
        if self.steps(member) is not None:
            return
        for other in self.configurations:  # steps of equal cost are timed once: timings vary
            steps = self.steps(other)
            if steps is not None and self._step_shape(other) == self._step_shape(member):
                self._keep_steps(member, steps)
                return
        print(f"== timing {member.name}", flush=True)
        _, _, seconds = (self.options.budget or "").partition(":")
        train = functools.partial(self._train, member)
        loop = member.tree().loop.steps_per_loop
        self._keep_steps(member, steps_within(int(seconds), train, loop, self.options.output))

    def _keep_steps(self, member: Configuration, steps: int) -> None:
        self._state["steps"][member.name] = steps
        outputs.write_json(self._path, self._state)

    def _step_shape(self, member: Configuration) -> tuple[object, ...]:
        """Return everything that the time of a step depends on."""
        config = self.config(member)
        loop = config.loop
        batch = loop.global_batch_size, loop.accumulation_steps
        kinds = config.objective.pair, config.optimizer.name, config.precision
        return config.model, config.masking, *batch, *kinds, loop.kernels, loop.deterministic

    def _train(self, member: Configuration, run: RunDir, *assignments: str) -> None:
        options = self.options
        flags = [f"--experiment={member.experiment}", f"--data={options.data}"]
        flags += [f"--run_dir={run.path}", *options.devices]
        config = settings.override(member.tree(), assignments)
        if options.heldout and config.evaluation.every:
            flags.append(f"--heldout={options.heldout}")
        flags += [f"--set={text}" for text in (*member.assignments, *assignments)]
        self._run_command("pretraining.train", *flags)

    def _evaluation(self, run: RunDir) -> Result:
        """Return the metrics of the run's last checkpoint on --heldout, evaluating if necessary."""
        folder, path = self.options.heldout or "", run.evaluation_path("sweep")
        heldout = Manifest.read(folder)
        wanted: dict[str, Any] = {
            "checkpoint": f"ckpt-{_result_of(run)['step']}",
            "data": locations.absolute(folder),
            "records": heldout.identity(),
        }
        if masks := self._masks(heldout):
            wanted["masking"] = masks
        figures = outputs.read_json(path, allow_nan=True) if os.path.isfile(path) else {}
        if figures | wanted != figures:
            flags = [f"--set=masking.{key}={value}" for key, value in masks.items()]
            flags += [f"--run_dir={run.path}", f"--data={self.options.heldout}", f"--output={path}"]
            flags += self.options.devices
            self._run_command("pretraining.evaluate", *flags)
            figures = outputs.read_json(path, allow_nan=True)
        return {name: value for name, value in figures.items() if isinstance(value, int | float)}

    def describe(self) -> str:
        """Return a table of the members, their parameters and steps."""
        rows = []
        for number, member in itertools.product(range(self.options.seeds), self.configurations):
            size, steps = self.config(member).model.param_count(), self.steps(member)
            length = "to be timed" if steps is None else f"{steps:,}"
            rows.append((self.run_dir(member, number).path, f"{size:,}", length))
        return markdown_table(("run", "parameters", "steps"), rows)


def _result_of(run: RunDir) -> Result:
    result = run.result()
    if type(result.get("step")) is not int or not has_numbers(result, result):
        raise InputError(
            f"{run.result_path!r} must have numbers, with the integer `step`. Received: "
            f"{shortened(result)}. Restore the file, or remove it to finish the run again."
        )
    return result


if __name__ == "__main__":
    commands.run(main, SweepOptions, __doc__)
