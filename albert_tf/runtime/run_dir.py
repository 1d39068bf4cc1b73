"""RunDir, the single definition of the paths inside a run folder."""

import contextlib
import glob
import json
import os
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from albert_tf.runtime.environment import environment, other_code
from albert_tf.runtime.errors import (
    InputError,
    InputNotFoundError,
    shortened,
    writing,
)
from albert_tf.runtime.files import locks, log_rows, outputs
from albert_tf.runtime.run_differences import differences, refusal

if TYPE_CHECKING:  # albert_tf.text imports this package
    from albert_tf.text.tokenizer import Tokenizer

_NO_DEFAULTS: Mapping[str, Any] = {}


class RunDir:
    """The folder of a run.

    result.json is written last and marks the run as complete. Only pretraining writes best/ (itself
    a run folder), export/ and skipped.jsonl; only fine-tuning predictions/, README.md and, until
    the run is complete, training/.

    Attributes:
      path: the folder.
      config_path: the file of the resolved configuration.
      environment_path: the file of the versions and the command that began the run.
      metrics_path: the file of the metrics, one JSON object per line.
      tensorboard_path: the folder of the TensorBoard summaries.
      checkpoints_path: the folder of the `tf.train.Checkpoint` files.
      plots_path: the folder of the PNG files.
      tokenizer_path: the folder of the tokenizer that made the run's data.
      best_path: the best weights on held-out records: config.json, tokenizer/ and checkpoints/.
      training_path: the folder of an unfinished fine-tuning: weights and optimizer at the last
        evaluation.
      card_path: the file of the model card of a fine-tuned run.
      export_path: the folder of SavedModels of the encoder, one subfolder per step.
      skipped_path: the file of skipped steps and their batches' records, one JSON object per line.
      result_path: the file that a complete run writes last.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        self.config_path = self._join("config.json")
        self.environment_path = self._join("environment.json")
        self.metrics_path = self._join("metrics.jsonl")
        self.tensorboard_path = self._join("tensorboard")
        self.checkpoints_path = self._join("checkpoints")
        self.plots_path = self._join("plots")
        self.tokenizer_path = self._join("tokenizer")
        self.best_path = self._join("best")
        self.training_path = self._join("training")
        self.card_path = self._join("README.md")
        self.export_path = self._join("export")
        self.skipped_path = self._join("skipped.jsonl")
        self.result_path = self._join("result.json")

    def _join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def evaluation_path(self, name: str) -> str:
        """Return the file for the metrics on the dataset `name`, after creating its folder."""
        os.makedirs(self._join("evaluations"), exist_ok=True)
        return os.path.join(self._join("evaluations"), f"{name}.json")

    def predictions_path(self, name: str) -> str:
        """Return the file for a fine-tuned run's predictions on the split `name`.

        It has one JSON object per line. The folder is created.
        """
        os.makedirs(self._join("predictions"), exist_ok=True)
        return os.path.join(self._join("predictions"), f"{name}.jsonl")

    def predictions(self) -> dict[str, str]:
        """Return the files of predictions by the names of their splits, none if there are none."""
        pattern = os.path.join(glob.escape(self._join("predictions")), "*.jsonl")
        return {
            os.path.basename(path)[: -len(".jsonl")]: path for path in sorted(glob.glob(pattern))
        }

    def with_seeds(self) -> list["RunDir"]:
        """Return this folder and those of its seeds, in their order, as far as they have begun."""
        seeds = glob.glob(os.path.join(glob.escape(self.path), "seed-*"))
        paths = [self.path, *sorted(seeds, key=lambda seed: (len(seed), seed))]
        return [run for run in map(RunDir, paths) if os.path.isfile(run.config_path)]

    @property
    def is_complete(self) -> bool:
        """True if the run has its result."""
        return os.path.isfile(self.result_path)

    @property
    def is_unfinished(self) -> bool:
        """True if this is a run, not a converted folder, and has not ended."""
        return os.path.isfile(self.environment_path) and not self.is_complete

    def require_ended(self, flag: str, unfinished: bool) -> None:
        """Check that the run has ended, unless `unfinished` runs are allowed.

        Raises:
          InputError: the run has not ended; the message gives `flag`.
        """
        if self.is_unfinished and not unfinished:
            raise InputError(
                f"{flag}={self.path} has not ended. Wait for it, or pass --unfinished to use its "
                "last checkpoint."
            )

    def begin(
        self,
        config: Mapping[str, Any],
        tokenizer: "Tokenizer",
        runtime: str = "tensorflow",
        defaults: Mapping[str, Any] = _NO_DEFAULTS,
    ) -> None:
        """Start a run, or resume the same one, with a note if another runtime or code began it.

        Args:
          config: the resolved configuration of the run.
          tokenizer: the tokenizer to save in the run.
          runtime: what computes the steps; environment.json has it besides `environment()`.
          defaults: the values of keys that the run may lack, because older code began it.

        Raises:
          InputError: the folder holds a run with another configuration (the message lists the
            differing keys) or something else, or cannot be written.
        """
        if os.path.isfile(self.config_path):
            self._require_same_config(config, defaults)
            begun = self.environment()
            if (before := begun.get("runtime", "tensorflow")) != runtime:
                change = f"begun with --runtime={before} and continues with --runtime={runtime}"
                print(f"note: this run was {change}, which rounds differently", flush=True)
            if code := other_code(begun):
                print(f"note: this run was begun by {code[0]}, and this is {code[1]}", flush=True)
            return
        with outputs.new_folder(self.path, "--run_dir") as folder:
            new = RunDir(folder)
            tokenizer.save(new.tokenizer_path)
            outputs.write_json(new.environment_path, environment() | {"runtime": runtime})
            outputs.write_json(new.config_path, config)

    def environment(self) -> dict[str, Any]:
        """Return the contents of environment.json."""
        return outputs.read_json(self.environment_path)

    def check(self, config: Mapping[str, Any], defaults: Mapping[str, Any] = _NO_DEFAULTS) -> None:
        """Check the folder as `begin` does, without writing anything."""
        if os.path.isfile(self.config_path):
            self._require_same_config(config, defaults)
            if not self.is_complete:  # else a resumed run fails only later
                self.metrics()
                outputs.read_json(self.environment_path)
        else:
            outputs.require_new(self.path, "--run_dir")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from training the run, which must have begun.

        Raises:
          InputError: another process is training it.
          MachineError: the run cannot be written.
        """
        with writing(self.environment_path):
            file = open(self.environment_path, "r+")  # never replaced; r+, as NFS locks need it
        with file:
            locks.lock(file, f"--run_dir={self.path}: another process is training this run")
            yield

    def _require_same_config(self, config: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        saved, wanted = self.config(), json.loads(json.dumps(config))
        if differing := differences(saved, wanted, defaults):
            kind = _kind_of(saved)
            if kind != _kind_of(config):
                raise InputError(f"--run_dir={self.path} holds {kind}: name another folder.")
            has_environment = os.path.isfile(self.environment_path)
            code = other_code(self.environment()) if has_environment else None
            raise InputError(refusal(self.path, differing, code))

    def config(self) -> dict[str, Any]:
        """Return the run's configuration.

        Raises:
          InputNotFoundError: the folder is not a run.
          InputError: config.json does not contain a JSON object.
        """
        if not os.path.isfile(self.config_path):
            nested = sorted(glob.glob(os.path.join(glob.escape(self.path), "*", "config.json")))
            suggestion = f" Did you mean {os.path.dirname(nested[0])!r}?" if nested else ""
            what = f"no config.json in {self.path!r}"
            if not os.path.exists(self.path):
                what = f"no folder {self.path!r}"
            raise InputNotFoundError(
                f"{what} (working directory {os.getcwd()}): not a run folder.{suggestion}"
            )
        return outputs.read_json(self.config_path)

    def section(self, name: str) -> dict[str, Any]:
        """Return a section of the configuration, empty if there is none.

        Raises:
          InputNotFoundError: the folder is not a run.
          InputError: config.json or the section is not a JSON object.
        """
        values = self.config().get(name, {})
        if not isinstance(values, dict):
            raise InputError(
                f"{self.config_path!r}: `{name}` must be a section of keys. "
                f"Received: {shortened(values)}."
            )
        return values

    def kind(self) -> str | None:
        """Return the kind of the run's task, `pretraining` among them; None if it states none.

        The errors are those of `section`.
        """
        kind = self.section("task").get("kind")
        if not isinstance(kind, str | None):
            raise InputError(
                f"{self.config_path!r}: `task.kind` must be a name. Received: {shortened(kind)}."
            )
        return kind

    def metrics(self, *names: str) -> list[dict[str, float]]:
        """Return the rows of metrics.jsonl; the arguments and errors are those of `metrics_in`."""
        return log_rows.metrics_in(self.metrics_path, *names)

    def skipped(self) -> list[dict[str, Any]]:
        """Return the rows of skipped.jsonl; the errors are those of `skipped_in`."""
        return log_rows.skipped_in(self.skipped_path)

    def truncate_metrics(self, step: int) -> None:
        """Drop the rows after `step`, because a restart from a checkpoint writes them again."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        with outputs.new_text(self.metrics_path) as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)

    def add_metrics(self, row: Mapping[str, float]) -> None:
        """Append a row to metrics.jsonl."""
        with writing(self.metrics_path), open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        """Write result.json, which marks the run as complete."""
        outputs.write_json(self.result_path, result)

    def result(self) -> dict[str, Any]:
        """Return the result that `finish` wrote."""
        return outputs.read_json(self.result_path, allow_nan=True)


def _kind_of(config: Mapping[str, Any]) -> str:
    section = config.get("task")
    kind = section.get("kind") if isinstance(section, Mapping) else None
    if kind in (None, "pretraining"):
        return "a pretraining run" if kind else "a converted model"
    return f"a fine-tuned {kind}"
