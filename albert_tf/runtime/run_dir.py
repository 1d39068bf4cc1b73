"""RunDir: the only object that knows the paths inside a run."""

import contextlib
import glob
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from importlib import metadata
from typing import TYPE_CHECKING, Any

from albert_tf.runtime import outputs, settings
from albert_tf.runtime.errors import InputError, InputNotFoundError, reading, writing

if TYPE_CHECKING:  # text stands on runtime
    from albert_tf.text.tokenizer import Tokenizer

PACKAGES = (
    "tensorflow",
    "tensorflow-text",
    "tf-keras",
    "tensorflow-hub",
    "sentencepiece",
    "numpy",
)


class RunDir:
    """A run's folder.

    config.json (the resolved configuration), environment.json, metrics.jsonl, tensorboard/,
    checkpoints/, plots/, evaluations/, tokenizer/ and result.json, which is written last: where it
    is present, the run is complete. Of pretraining also best/ (a run folder of the best weights),
    export/ and skipped.jsonl; of fine-tuning predictions/, README.md and,
    until it is complete, training/.
    """

    def __init__(self, path: str) -> None:
        self.path = path

    def _join(self, name: str) -> str:
        return os.path.join(self.path, name)

    @property
    def config_path(self) -> str:
        """The resolved configuration."""
        return self._join("config.json")

    @property
    def metrics_path(self) -> str:
        """One JSON object a line."""
        return self._join("metrics.jsonl")

    @property
    def tensorboard_path(self) -> str:
        """Summaries for TensorBoard."""
        return self._join("tensorboard")

    @property
    def checkpoints_path(self) -> str:
        """`tf.train.Checkpoint` files."""
        return self._join("checkpoints")

    @property
    def plots_path(self) -> str:
        """PNG files."""
        return self._join("plots")

    @property
    def tokenizer_path(self) -> str:
        """The tokenizer that made the run's data."""
        return self._join("tokenizer")

    @property
    def best_path(self) -> str:
        """What was best on held-out records: config.json, tokenizer/ and checkpoints/."""
        return self._join("best")

    @property
    def training_path(self) -> str:
        """Of an unfinished fine-tuning: weights and optimizer at its last evaluation."""
        return self._join("training")

    @property
    def card_path(self) -> str:
        """The model card of a fine-tuned run."""
        return self._join("README.md")

    @property
    def export_path(self) -> str:
        """SavedModels of the encoder, one folder a step."""
        return self._join("export")

    @property
    def skipped_path(self) -> str:
        """Steps that were skipped, with the records of their batches: one JSON object a line."""
        return self._join("skipped.jsonl")

    @property
    def result_path(self) -> str:
        """What a complete run leaves last."""
        return self._join("result.json")

    def evaluation_path(self, name: str) -> str:
        """The figures of an evaluation on the data set `name`."""
        os.makedirs(self._join("evaluations"), exist_ok=True)
        return os.path.join(self._join("evaluations"), f"{name}.json")

    def predictions_path(self, name: str) -> str:
        """What a fine-tuned run says of the examples of a part, one JSON object a line."""
        os.makedirs(self._join("predictions"), exist_ok=True)
        return os.path.join(self._join("predictions"), f"{name}.jsonl")

    @property
    def is_complete(self) -> bool:
        """Whether the run has its result."""
        return os.path.isfile(self.result_path)

    @property
    def is_unfinished(self) -> bool:
        """Whether it is a run, and no converted folder, that has not ended."""
        return os.path.isfile(self._join("environment.json")) and not self.is_complete

    def require_ended(self, flag: str, unfinished: bool) -> None:
        """InputError, which names `flag`: the run has not ended, and its state is not asked for."""
        if self.is_unfinished and not unfinished:
            raise InputError(
                f"{flag}={self.path} has not ended. Let it end, or pass --unfinished to take its "
                "last checkpoint."
            )

    def begin(
        self,
        config: Mapping[str, Any],
        tokenizer: "Tokenizer",
        defaults: Mapping[str, Any] | None = None,
    ) -> None:
        """Starts a run, or takes up the same one.

        Args:
          defaults: what a key means that an older version's run lacks.

        Raises:
          InputError: the folder holds a run of another configuration (the differing keys are
            named), something else, or cannot be written.
        """
        if os.path.isfile(self.config_path):
            self._require_same_config(config, defaults)
            return
        with outputs.new_folder(self.path, "--run_dir") as folder:
            new = RunDir(folder)
            tokenizer.save(new.tokenizer_path)
            outputs.write_json(new._join("environment.json"), environment())
            outputs.write_json(new.config_path, config)

    def check(self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None = None) -> None:
        """As `begin`, without writing anything."""
        if os.path.isfile(self.config_path):
            self._require_same_config(config, defaults)
        else:
            outputs.require_new(self.path, "--run_dir")

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keeps other processes from training the run, which has been begun.

        Raises:
          InputError: one does.
        """
        with open(self.config_path, encoding="utf-8") as file:
            with contextlib.suppress(OSError):  # a file system without locks
                outputs.lock(file, f"--run_dir={self.path}: another process is training this run")
            yield

    def _require_same_config(
        self, config: Mapping[str, Any], defaults: Mapping[str, Any] | None
    ) -> None:
        own = settings.merged(defaults or {}, self.config())
        if differing := settings.differing_keys(own, json.loads(json.dumps(config))):
            raise InputError(
                f"--run_dir={self.path} holds a run of another configuration (there != here): "
                f"{'; '.join(differing)}. Name another folder, or pass the run's own values."
            )

    def config(self) -> dict[str, Any]:
        """The run's configuration.

        Raises:
          InputNotFoundError: the folder is not a run.
          InputError: its config.json is not JSON.
        """
        if not os.path.isfile(self.config_path):
            nested = sorted(glob.glob(os.path.join(glob.escape(self.path), "*", "config.json")))
            suggestion = f" Meant {os.path.dirname(nested[0])!r}?" if nested else ""
            raise InputNotFoundError(
                f"no config.json in {self.path!r} (working folder {os.getcwd()}): not a run folder."
                + suggestion
            )
        return outputs.read_json(self.config_path)

    def metrics(self) -> list[dict[str, float]]:
        """The rows of metrics.jsonl; a torn last line is left out."""
        if not os.path.isfile(self.metrics_path):
            return []
        with reading(self.metrics_path), open(self.metrics_path, encoding="utf-8") as file:
            lines = [line for line in file if line.endswith("\n")]
        try:
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise InputError(f"{self.metrics_path!r} must hold JSON lines: {error}.") from None

    def truncate_metrics(self, step: int) -> None:
        """Drops the rows after `step`: a restart from a checkpoint writes them again."""
        rows = [row for row in self.metrics() if row["step"] <= step]
        with outputs.new_file(self.metrics_path) as partial:
            with open(partial, "w", encoding="utf-8") as file:
                file.writelines(json.dumps(row) + "\n" for row in rows)

    def add_metrics(self, row: Mapping[str, float]) -> None:
        """Appends a row to metrics.jsonl."""
        with writing(self.metrics_path), open(self.metrics_path, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def finish(self, result: Mapping[str, Any]) -> None:
        """Writes result.json: the run is complete."""
        outputs.write_json(self.result_path, result)

    def result(self) -> dict[str, Any]:
        """What `finish` wrote."""
        return outputs.read_json(self.result_path)


def environment() -> dict[str, Any]:
    """What the run ran on."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "packages": {name: _version(name) for name in PACKAGES},
        "command": sys.argv,
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # TensorFlow for TPUs has another name
        return None
