"""Distils a fine-tuned run into a smaller one, which answers faster (Hinton et al. 2015).

    python -m finetuning.distill --teacher=runs/base-sst-2 --student_layers=3 \\
        --task=sst-2 --data_dir=glue/SST-2 --texts=reviews.txt --output=runs/small-sst-2
    python -m finetuning.distill --teacher=runs/base-sst-2 --student=runs/narrow \\
        --task=sst-2 --data_dir=glue/SST-2 --output=runs/narrow-sst-2

A light model in parameters is not a light one in time: ALBERT computes as many layers as BERT. The
student is the teacher's own shared block in fewer layers (--student_layers), or another pretrained
encoder, such as a narrower one (--student). The teacher is asked once about the training texts, and
about those of --texts, a text a line (for pairs two, with a tab between them); its answers stay in
OUTPUT/teacher as TFRecords. The student learns them: cross-entropy with --temperature (times its
square), or the mean squared error of the logits, which is also what a regression takes.

OUTPUT/student is a run like others. OUTPUT/control is the same student fine-tuned without a
teacher, in as many steps; the table has score, parameters and examples/s of all three.
"""

import dataclasses
import json
import os
import time
from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import cli, hardware, info, outputs, settings
from albert_tf.checkpoints import load_config
from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import InputError
from albert_tf.runs import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, load_task_model, predict
from albert_tf.tasks.task_model import TaskModel
from finetuning import report, teacher
from finetuning.config import FinetuneConfig, Plan
from finetuning.fit import fine_tune
from finetuning.start import Start, resolve
from finetuning.task import Data, Source, Task
from finetuning.tasks import TASKS

LOSSES = ("cross_entropy", "mse")
_TIMED = 512  # dev examples that the speed is measured on


@dataclasses.dataclass(frozen=True)
class DistillOptions:
    """The command line of `finetuning.distill`."""

    teacher: str = cli.option("the fine-tuned run to learn from")
    task: str = cli.option("the teacher's task: " + ", ".join(TASKS))
    output: str = cli.option("the folder of teacher/, student/ and control/")
    data_dir: str | None = cli.option("the task's files", None)
    tfds: bool = cli.option("the task's prepared TFDS", False)
    student_layers: int | None = cli.option("the teacher's block in so many layers", None)
    student: str | None = cli.option("instead: run, converted folder or exported encoder", None)
    texts: str | None = cli.option("a file of unlabelled texts, besides the training texts", None)
    loss: str = cli.option("cross_entropy, or mse", "cross_entropy")
    temperature: float = cli.option("of teacher and student, for cross_entropy", 2.0)
    device: str = cli.option("auto, cpu, gpu, tpu or multi_worker", "auto")
    tpu: str | None = cli.option("name, grpc address or local", None)
    dry_run: bool = cli.option("check everything and train nothing", False)
    set: tuple[str, ...] = cli.option("key=value, as for finetuning.train", ())


def main(options: DistillOptions) -> None:
    """Distils as `options` describe."""
    work = _Distillation(options)
    if options.dry_run:
        print(json.dumps(settings.to_dict(work.config), indent=1))
        return
    teacher.ask(options.teacher, work.texts(), work.at("teacher"), work.config.training.batch_size)
    results = {
        "teacher": work.measured(load_task_model(options.teacher)),
        "student": work.run("student", *work.lessons()),
        "control": work.run("control", work.labelled(), None),
    }
    outputs.write_json(work.at("result.json"), results)
    print(table(results, work.task.metrics))


class _Distillation:
    """A teacher, a student to be, and the data they share."""

    def __init__(self, options: DistillOptions) -> None:
        self.options = options
        _check(options)
        self.task: Task = TASKS[options.task]
        self.data: Data = self.task.read(Source(options.data_dir, options.tfds))
        self.strategy = hardware.strategy(options.device, options.tpu)
        self.teacher = load_predictor(options.teacher)
        if self.teacher.task.kind not in ("classifier", "regressor"):
            raise InputError(
                f"--teacher={options.teacher} must label texts. Received: a run of kind "
                f"{self.teacher.task.kind!r}, whose answers cannot be distilled here."
            )
        if getattr(self.teacher.task, "labels", None) != getattr(self.data.task, "labels", None):
            raise InputError(
                f"--teacher={options.teacher} must have the labels of --data_dir. Received: "
                f"{self.teacher.task}, and {self.data.task}."
            )
        self.start = Start.of(options.student or options.teacher, None, None)
        if options.student_layers:
            self.start = dataclasses.replace(
                self.start, config=_fewer_layers(self.start, options.student_layers)
            )
        self.config: FinetuneConfig = resolve(
            self.start, self.data, {}, options.set, options.device
        )

    def at(self, name: str) -> str:
        """A path in the output folder."""
        return os.path.join(self.options.output, name)

    def texts(self) -> Any:
        """What the teacher is asked about."""
        yield from self.data.train
        if self.options.texts:
            yield from teacher.examples_of(self.options.texts, self.data.task.pair)

    def featurize(self, examples: Sequence[Any]) -> Features:
        """In the student's vocabulary."""
        kind = KINDS[self.config.task.kind]
        return kind.featurize(examples, self.start.tokenizer, self.config.task)

    def lessons(self) -> tuple[Features, Any]:
        """The teacher's answers as targets, and the loss."""
        examples, said = teacher.answers_in(self.at("teacher"), self.data.task.pair)
        features = dataclasses.replace(self.featurize(examples), targets={"label": said})
        if self.config.task.kind == "regressor":
            return dataclasses.replace(features, targets={"label": said[:, 0]}), "mse"
        if self.options.loss == "mse":
            return features, "mse"
        return features, SoftCrossEntropy(self.options.temperature)

    def labelled(self) -> Features:
        """The training examples with their own labels."""
        return self.featurize(self.data.train)

    def run(self, name: str, train: Features, loss: Any) -> dict[str, Any]:
        """Trains student or control, unless that is done; both take the steps of the student."""
        run = RunDir(self.at(name))
        config = self._as_long(self.config)
        run_config = settings.to_dict(config) | {
            "name": self.options.task,
            "init": os.path.normpath(self.start.path),
            "data": report.fingerprint(self.data),
            "teacher": None if loss is None else os.path.normpath(self.options.teacher),
            "loss": loss if loss is None or loss == "mse" else loss.get_config(),
        }
        run.check(run_config)
        if not run.is_complete:
            run.begin(run_config, self.start.tokenizer)
            self._train(config, train, loss, run)
        return run.result()

    def _as_long(self, config: FinetuneConfig) -> FinetuneConfig:
        """With the steps of passes over what the teacher was asked about."""
        with open(os.path.join(self.at("teacher"), "manifest.json"), encoding="utf-8") as file:
            count = json.load(file)["texts"]
        steps = Plan.of(config.training, count).steps
        return dataclasses.replace(
            config, training=dataclasses.replace(config.training, steps=steps)
        )

    def _train(self, config: FinetuneConfig, train: Features, loss: Any, run: RunDir) -> None:
        (_, examples), *_ = self.data.dev.items()
        features, kind = self.featurize(examples), KINDS[config.task.kind]

        def evaluate(model: TaskModel) -> dict[str, float]:
            said = predict(model, features, config.training.batch_size)
            answers = kind.decode(said, features, examples, config.task)
            return self.task.score(answers, examples)

        with hardware.precision_policy(config.training.precision):
            model = fine_tune(
                config, self._student(config), train, evaluate, self.task.metrics[0], run,
                self.strategy, loss,
            )  # fmt: skip
        run.finish(self.measured(model))

    def _student(self, config: FinetuneConfig) -> Callable[[], TaskModel]:
        if self.options.student:
            return lambda: self.start.model(config)

        def model() -> TaskModel:
            encoder = AlbertEncoder(config.model).create_weights()
            encoder.set_weights(self.teacher.model.encoder.get_weights())
            return KINDS[config.task.kind].model(encoder, config.task).create_weights()

        return model

    def measured(self, model: TaskModel) -> dict[str, Any]:
        """Scores on the dev set, parameters, and examples/s of a batch of 32 on this machine."""
        (_, examples), *_ = self.data.dev.items()
        is_teacher = model.task == self.teacher.task
        tokenizer = self.teacher.tokenizer if is_teacher else self.start.tokenizer
        kind = KINDS[model.task.kind]
        features = kind.featurize(examples, tokenizer, model.task)
        said = predict(model, features, 32)
        scores = self.task.score(kind.decode(said, features, examples, model.task), examples)
        some = kind.featurize(examples[:_TIMED], tokenizer, model.task)
        predict(model, some, 32)  # traced
        start = time.perf_counter()
        predict(model, some, 32)
        speed = len(some) / (time.perf_counter() - start)
        metric, count = self.task.metrics[0], model.count_params()
        answers = kind.decode(said, features, examples, model.task)
        error = report.standard_error(self.task, model.task.kind, answers, examples)
        return scores | {
            "metric": metric, "standard_error": error, "parameters": count,
            "layers": model.encoder.config.num_layers if hasattr(model.encoder, "config") else None,
            "examples_per_s": speed, "dev_examples": len(examples),
        }  # fmt: skip


class SoftCrossEntropy(tf_keras.losses.Loss):
    """T^2 times the cross-entropy of softmax(logits / T) with the teacher's softmax(logits / T)."""

    def __init__(self, temperature: float) -> None:
        super().__init__(name="soft_cross_entropy")
        self.temperature = temperature

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        wanted = tf.nn.softmax(y_true / self.temperature)
        losses = tf.nn.softmax_cross_entropy_with_logits(wanted, y_pred / self.temperature)
        return self.temperature**2 * losses

    def get_config(self) -> dict[str, Any]:
        return {"name": self.name, "temperature": self.temperature}


def _check(options: DistillOptions) -> None:
    if options.task not in TASKS:
        raise InputError(f"--task: {settings.unknown_key(options.task, TASKS, 'task')}")
    if (options.student is None) == (options.student_layers is None):
        raise InputError(
            "pass either --student or --student_layers. Received: "
            f"{options.student!r}, {options.student_layers!r}."
        )
    if options.loss not in LOSSES:
        raise InputError(f"--loss must be one of {', '.join(LOSSES)}. Received: {options.loss!r}.")
    if not options.temperature > 0:
        raise InputError(f"--temperature must be positive. Received: {options.temperature}.")


def _fewer_layers(start: Start, layers: int) -> Any:
    config = load_config(start.path)
    if not 1 <= layers < config.num_layers or config.sharing != "all" or config.num_groups != 1:
        raise InputError(
            "--student_layers must be fewer than the teacher's, of a teacher whose layers share "
            f"all weights. Received: {layers}, and a teacher of {config.num_layers} layers with "
            f"sharing={config.sharing}, {config.num_groups} group(s): pass --student instead."
        )
    return config.replace(num_layers=layers)


def table(results: dict[str, dict[str, Any]], metrics: Sequence[str]) -> str:
    """Teacher, student and control side by side."""
    rows = []
    for name, result in results.items():
        speed = result["examples_per_s"]
        rows.append((
            name, str(result["layers"]), f"{result['parameters']:,}",
            *(f"{result[metric]:.4f}" for metric in metrics), f"{result['standard_error']:.4f}",
            f"{speed:,.0f}", f"{speed / results['teacher']['examples_per_s']:.1f}",
        ))  # fmt: skip
    header = ("", "layers", "parameters", *metrics, "standard error", "examples/s", "speed-up")
    return info.markdown_table(header, rows)


if __name__ == "__main__":
    cli.run(main, DistillOptions, __doc__)
