"""A fine-tuning run from start or interruption to result, shared by `train` and `distill`."""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.runtime import devices, plots, settings
from albert_tf.runtime.errors import ConfigError, InputError, writing
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.training.graph_memory import graphs_forgotten
from finetuning.datasets.dataset import Data, Dataset, Prediction, Source
from finetuning.kinds.registry import FINETUNING
from finetuning.kinds.thresholds import Thresholds
from finetuning.reporting import calibration_report, card, notes, report
from finetuning.reporting.intact_results import read_result
from finetuning.training import calibration
from finetuning.training.batches import in_pairs
from finetuning.training.config import FinetuneConfig, Plan, TrainingConfig
from finetuning.training.feature_cache import features_of
from finetuning.training.fit import Fit, Scores, compiled, evaluated_loss, fine_tune, keras_fit


@dataclasses.dataclass(frozen=True)
class TrainingSource:
    """The initial weights, training features and loss of a run.

    Attributes:
      init: the origin of the initial weights.
      model: returns a model with these weights.
      fingerprint: that of the weights; empty for new ones.
      train: returns the training features. None: those of the training examples.
      examples: returns the examples of `train`.
      loss: (the `task` section) -> the loss, as for `compile`. None: the task's own.
      extra_config: further entries of the run's config.json.
    """

    init: str
    model: Callable[[FinetuneConfig], TaskModel]
    fingerprint: str
    train: Callable[[], Features] | None = None
    examples: Callable[[], Iterable[Any]] = tuple
    loss: Callable[[Any], Any] | None = None
    extra_config: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Finetuner:
    """A trainer of runs on one dataset, which share its examples and features.

    Args:
      name: the task's name in `finetuning.datasets.DATASETS`.
      source: the location of `data`, and its `reading`, which is part of each run's config.
      threshold_share: as `training.threshold_share`.
      fit: computes the steps, by default `keras_fit`.
      runtime: the name of what `fit` uses.
    """

    def __init__(
        self,
        name: str,
        dataset: Dataset,
        data: Data,
        source: Source,
        tokenizer: Tokenizer,
        strategy: tf.distribute.Strategy,
        cache_dir: str | None = None,
        threshold_share: float = 0.0,
        fit: Fit = keras_fit,
        runtime: str = "tensorflow",
    ) -> None:
        self.fingerprint = report.fingerprint(data)
        for note in notes.repeated(data):
            print(f"note: {note}.", flush=True)
        self.held_out: Sequence[Any] = ()
        if threshold_share:
            train, self.held_out = _thresholds(dataset).hold_out(data.train, threshold_share)
            data = dataclasses.replace(data, train=train)
        self.name, self.dataset, self.data, self.tokenizer = name, dataset, data, tokenizer
        self.strategy, self.cache_dir, self.source = strategy, cache_dir, source
        self.fit, self.runtime = fit, runtime
        self._features: dict[str, Features] = {}

    @graphs_forgotten()  # the next run has its own
    def run(
        self, config: FinetuneConfig, run: RunDir, source: TrainingSource, dry_run: bool = False
    ) -> None:
        """Complete a run; with `dry_run`, make everything but write nothing."""
        metric = self._deciding_metric(config)
        if config.training.calibrate:
            calibration.require_probabilities(self.dataset.kind, self._calibrating()[1])
        run_config, defaults = self._config_of(config, run, source), settings.defaults_of(config)
        defaults["reading"] = settings.defaults_of(self.source.reading)
        run.check(run_config, defaults)
        self._require_same_vocabulary(run)
        if _is_complete(run, self.dataset.kind):
            return
        is_chief = devices.is_chief(self.strategy)
        if source.train:
            train = source.train()
            self._print_notes("train", train, source.examples())
        else:
            train = self.features("train", self.data.train, config.task)
        kind = FINETUNING[self.dataset.kind]
        kind.check_training(config, train, self.strategy.num_replicas_in_sync)
        task = kind.with_counts(config.task, train)
        config = dataclasses.replace(config, task=task)
        run_config["task"] |= {key: settings.to_dict(task)[key] for key in kind.counted}
        plan = Plan.of(config.training, len(train))
        loss = source.loss(config.task) if source.loss else None
        with devices.precision_policy(config.training.precision):
            model = compiled(config, plan, lambda: source.model(config), self.strategy, loss)
        count = sum(1 for _ in source.examples()) if source.train else len(self.data.train)
        self._announce(config, count, plan)
        if dry_run:
            print(json.dumps(run_config, indent=1))
            return
        if is_chief:
            plots.require_plotting()  # the last check
            run.begin(run_config, self.tokenizer, self.runtime, defaults)
        with run.locked() if is_chief else contextlib.nullcontext(), writing(run.path):
            if _is_complete(run, self.dataset.kind):  # by another process, since the first check
                return
            with devices.precision_policy(config.training.precision):
                solve = kind.head_solver(model, train, config.training)
                evaluate = self._evaluation(config.training, solve)
                arrange = in_pairs(train.targets["label"]) if solve else None
                best_step = fine_tune(
                    model, config, plan, train, evaluate, metric, run, arrange, self.fit
                )
            model = self._in_float32(model, config, source)
            start = self._scores_at_start(config, source)
            self._finish(model, config, run_config, metric, best_step, count, run, start)

    def _require_same_vocabulary(self, run: RunDir) -> None:
        if not os.path.isdir(run.tokenizer_path):
            return
        if load_tokenizer(run.path).fingerprint != self.tokenizer.fingerprint:
            raise InputError(
                f"--run_dir={run.path} was begun with another vocabulary. Name another folder."
            )

    def _deciding_metric(self, config: FinetuneConfig) -> str:
        """Return the name of the score that chooses the best weights."""
        default = _thresholds(self.dataset).metric if self.held_out else None
        metric = config.training.metric or default or self.dataset.metrics[0]
        if metric not in self.dataset.metrics:
            raise ConfigError(
                f"`training.metric` must be a score of --task={self.name}: "
                f"{', '.join(self.dataset.metrics)}. Received: {metric!r}."
            )
        return metric

    def _config_of(
        self, config: FinetuneConfig, run: RunDir, source: TrainingSource
    ) -> dict[str, Any]:
        values = settings.to_dict(config) | {
            "name": self.name,
            "reading": settings.to_dict(self.source.reading),
            "init": source.init,
            "init_weights": source.fingerprint,
            "data": self.fingerprint,
            **source.extra_config,
        }
        if os.path.isfile(run.config_path):  # with what the run has chosen or counted
            stored, keys = run.section("task"), [*FINETUNING[self.dataset.kind].counted]
            keys += [_thresholds(self.dataset).key] if self.held_out else []
            keys += ["logit_temperature"] if config.training.calibrate else []
            values["task"] |= {key: stored[key] for key in keys if key in stored}
        return values

    def _announce(self, config: FinetuneConfig, count: int, plan: Plan) -> None:
        dev = "".join(f", {len(part):,} {name}" for name, part in self.data.dev.items())
        held_out = f", {len(self.held_out):,} held-out" if self.held_out else ""
        print(
            f"encoder of {config.model.param_count():,} parameters; examples of "
            f"{self.source.location}: {count:,} training{held_out}{dev}; {plan.steps:,} steps of "
            f"{config.training.batch_size}, {self.strategy.num_replicas_in_sync} replica(s)",
            flush=True,
        )

    def _evaluation(
        self, values: TrainingConfig, solve: Callable[[TaskModel], None] | None
    ) -> Callable[[TaskModel], Scores]:
        (name, examples), *_ = self.data.dev.items()

        def evaluate(model: TaskModel) -> Scores:
            if solve:
                solve(model)
            return self.scores(model, name, examples, values)[0]

        return evaluate

    def features(self, name: str, examples: Sequence[Any], task: TaskSettings) -> Features:
        """Return a part's features, made once; print notes on what the model does not see."""
        if name not in self._features:
            self._features[name] = features_of(examples, self.tokenizer, task, self.cache_dir)
            self._print_notes(name.removeprefix("dev "), self._features[name], examples)
        return self._features[name]

    def _print_notes(self, name: str, features: Features, examples: Iterable[Any]) -> None:
        for note in notes.notes_of(features, examples, self.tokenizer, "the encoder"):
            print(f"{name}: {note}", flush=True)

    def scores(
        self, model: TaskModel, name: str, examples: Sequence[Any], values: TrainingConfig
    ) -> tuple[Scores, list[Prediction]]:
        """Return a dev set's metrics, with the loss if the outputs have one, and predictions."""
        features = self.features(f"dev {name}", examples, model.task)
        model_outputs = predict(model, features, values.batch_size // values.accumulation_steps)
        predictions = KINDS[model.task.kind].decode(model_outputs, features, examples, model.task)
        scores = self.dataset.score(predictions, examples)
        loss = model.mean_loss(model_outputs, features.targets, values.batch_size)
        if loss is not None:
            scores["loss"] = loss
        return scores, predictions

    def _in_float32(
        self, model: TaskModel, config: FinetuneConfig, source: TrainingSource
    ) -> TaskModel:
        """Return the model in float32, the precision in which a run is loaded.

        The reported scores are those of this model.
        """
        if config.training.precision == "float32":
            return model
        model.trainable = True  # frozen layers change the order of the weights
        with self.strategy.scope():
            used = source.model(config)
            used.set_weights(model.get_weights())
        return used

    def _calibrating(self) -> tuple[str, Sequence[Any]]:
        """Return the name of the examples on which the temperature is chosen, and the examples."""
        return ("held out", self.held_out) if self.held_out else next(iter(self.data.dev.items()))

    def _calibrate(self, model: TaskModel, values: TrainingConfig) -> dict[str, list[Prediction]]:
        """Set the temperature of a model; return predictions for dev by which to judge it."""
        name, examples = self._calibrating()
        features = self.features(f"dev {name}", examples, model.task)
        logits = predict(model, features, values.batch_size // values.accumulation_steps)
        if self.held_out:  # dev has no part in the choice
            dev = next(iter(self.data.dev.items()))
            judged = {calibration_report.BEFORE: self.scores(model, *dev, values)[1]}
        else:
            decode = KINDS[model.task.kind].decode
            judged = {
                calibration_report.ERROR: calibration.cross_fitted(
                    model, logits, features, examples
                ),
                calibration_report.BEFORE: decode(logits, features, examples, model.task),
            }
        calibration.calibrate(model, logits, features)
        return judged

    def _choose_threshold(self, model: TaskModel, values: TrainingConfig) -> str:
        """Set the thresholds that are best for the held-out examples; return a sentence on them."""
        rule, examples = _thresholds(self.dataset), self.held_out
        per_label = values.threshold_per_label
        scores, predictions = self.scores(model, "held out", examples, values)
        best = rule.best(predictions, examples, scores, per_label)
        model.task = model.task.replace(**{rule.key: best})
        return rule.describe(best, examples, len(self.data.train), per_label)

    def _scores_at_start(self, config: FinetuneConfig, source: TrainingSource) -> Scores | None:
        """Return the dev scores before training; None unless the kind makes vectors."""
        if not FINETUNING[self.dataset.kind].has_vectors:
            return None
        tf_keras.utils.set_random_seed(config.seed)  # for the weights that the run began with
        with self.strategy.scope():
            model = source.model(config)
        return self.scores(model, *next(iter(self.data.dev.items())), config.training)[0]

    def _finish(
        self,
        model: TaskModel,
        config: FinetuneConfig,
        run_config: dict[str, Any],
        metric: str,
        best_step: int,
        count: int,
        run: RunDir,
        start: Scores | None,
    ) -> None:
        """Evaluate the best weights; write scores, predictions, plots and the model card."""
        judged = self._calibrate(model, config.training) if config.training.calibrate else {}
        thresholds = self._choose_threshold(model, config.training) if self.held_out else None
        parts = {  # on all workers, which compute together
            name: self.scores(model, name, examples, config.training)
            for name, examples in self.data.dev.items()
        }
        for name, (scores, _) in parts.items():
            features = self._features[f"dev {name}"]
            is_alone = isinstance(self.strategy, tf.distribute.OneDeviceStrategy)
            if "loss" not in scores and features.targets and is_alone:
                scores["loss"] = evaluated_loss(model, features, config.training.batch_size)
        if not devices.is_chief(self.strategy):
            return
        if model.task != config.task:
            outputs.write_json(run.config_path, run_config | {"task": settings.to_dict(model.task)})
        result = report.result_of(
            self.dataset, self.data, parts, run.metrics("seconds"), metric, best_step
        )
        if start:
            result["at_start"] = start
        result |= {"train_examples": count, "training_precision": config.training.precision}
        predictions, (examples, *_) = next(iter(parts.values()))[1], self.data.dev.values()
        judged = {calibration_report.ERROR: predictions, **judged}
        result |= calibration_report.write(run, self.dataset.kind, judged, examples)
        if thresholds:
            result["thresholds"] = thresholds
            print(thresholds)
            if at_default := report.at_default(self.dataset, model.task, predictions, examples):
                result["at_default_threshold"] = at_default
        for name, (_, answers) in parts.items():
            examples_of = self.data.dev[name]
            report.write_predictions(run.predictions_path(name), model.task, answers, examples_of)
        losses = ("loss/train", "dev/loss")
        panels = {"loss": losses, "dev": tuple(f"dev/{m}" for m in self.dataset.metrics)}
        plots.plot_metrics(run, panels, "step")
        card.write(run, self.data, self.source, result, predictions, bool(self.held_out))
        run.finish(result)
        shutil.rmtree(run.training_path, ignore_errors=True)
        print(f"{run.path}: {report.line(self.dataset.kind, result)}")
        if note := report.empty_note(self.dataset.kind, predictions, examples, result["steps"]):
            print(note)


def _thresholds(dataset: Dataset) -> Thresholds:
    thresholds = FINETUNING[dataset.kind].thresholds
    assert thresholds is not None
    return thresholds


def _is_complete(run: RunDir, kind: str) -> bool:
    if run.is_complete:
        print(f"{run.path} is already complete: {report.line(kind, read_result(run))}")
    return run.is_complete
