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

OUTPUT/student is a run like others. OUTPUT/control is the same student without a teacher: it
starts where the teacher did, and learns the labels in as many steps. The table has score,
parameters and examples/s of all three. Examples are as long as the teacher's, unless
--set task.seq_length says otherwise.
"""

import dataclasses
import json
import os
import shutil
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf import cli, hardware, info, outputs, settings
from albert_tf.checkpoints import load_encoder
from albert_tf.encoder import AlbertEncoder
from albert_tf.errors import InputError
from albert_tf.runs import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, load_task_model, predict
from albert_tf.tasks.task_model import TaskModel
from finetuning import report, teacher
from finetuning.config import FinetuneConfig, Plan
from finetuning.fit import Scores, fine_tune
from finetuning.start import Start, resolve
from finetuning.task import Data, Task, source_of
from finetuning.tasks import TASKS

LOSSES = ("cross_entropy", "mse")
_TIMED, _ROUNDS = 512, 5  # dev examples that the speed is measured on, and how often


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
    device: str = cli.option("auto, cpu, gpu or tpu", "auto")
    tpu: str | None = cli.option("name, grpc address or local", None)
    dry_run: bool = cli.option("check everything and train nothing", False)
    set: tuple[str, ...] = cli.option("key=value, as for finetuning.train", ())


def main(options: DistillOptions) -> None:
    """Distils as `options` describe."""
    work = _Distillation(options)
    if options.dry_run:
        print(json.dumps(settings.to_dict(work.config), indent=1))
        return
    values = work.config.training
    with work.strategy.scope():
        batch_size = values.batch_size // values.accumulation_steps
        teacher.ask(work.identity, work.texts(), work.at("teacher"), batch_size)
    work.run("student", work.student(), *work.lessons())
    work.run("control", work.control(), work.featurize(work.data.train), None)
    paths = {
        "teacher": options.teacher,
        "student": work.at("student"),
        "control": work.at("control"),
    }
    results = {name: work.measured(path) for name, path in paths.items()}
    outputs.write_json(work.at("result.json"), results)
    print(table(results, work.task.metrics))


class _Distillation:
    """A teacher, a student to be, and the data they share."""

    def __init__(self, options: DistillOptions) -> None:
        self.options = options
        _check(options)
        self.strategy = hardware.strategy(options.device, options.tpu)
        self.task: Task = TASKS[options.task]
        self.data: Data = self.task.read(source_of(options.data_dir, options.tfds))
        teaching = load_task_model(options.teacher).task
        if teaching.kind not in ("classifier", "regressor"):
            raise InputError(
                f"--teacher={options.teacher} must label texts. Received: a run of kind "
                f"{teaching.kind!r}, whose answers cannot be distilled here."
            )
        if getattr(teaching, "labels", None) != getattr(self.data.task, "labels", None):
            raise InputError(
                f"--teacher={options.teacher} must have the labels of --data_dir. Received: "
                f"{teaching}, and {self.data.task}."
            )
        self.start = Start.of(options.student or options.teacher, None, None)
        if options.student_layers:
            config = _fewer_layers(self.start, options.student_layers)
            self.start = dataclasses.replace(self.start, config=config)
        self.identity = teacher.identity_of(options.teacher, self.texts())
        data = dataclasses.replace(self.data, task=teaching)  # as long as the teacher's examples
        config = resolve(self.start, data, {}, options.set, options.device)
        if getattr(config.task, "exit_losses", False):
            raise InputError(
                "`task.exit_losses` is for fine-tuning: a teacher speaks of the last layer alone."
            )
        # Student and control alike: the steps are passes over what the teacher is asked about.
        plan = Plan.of(config.training, self.identity["count"])
        training = dataclasses.replace(config.training, **dataclasses.asdict(plan))
        training.check_batch(self.strategy.num_replicas_in_sync)
        self.config: FinetuneConfig = dataclasses.replace(config, training=training)

    def at(self, name: str) -> str:
        """A path in the output folder."""
        return os.path.join(self.options.output, name)

    def texts(self) -> Iterator[TextExample]:
        """What the teacher is asked about."""
        yield from self.data.train
        if self.options.texts:
            yield from teacher.examples_of(self.options.texts, self.data.task.pair)

    def featurize(self, examples: Sequence[TextExample]) -> Features:
        """In the student's vocabulary."""
        kind = KINDS[self.config.task.kind]
        return kind.featurize(examples, self.start.tokenizer, self.config.task)

    def lessons(self) -> tuple[Features, Any]:
        """The teacher's answers as targets, and the loss."""
        examples, said = teacher.answers_in(self.at("teacher"), self.data.task.pair)
        if self.config.task.kind == "regressor":
            said = said[:, 0]
        features = dataclasses.replace(self.featurize(examples), targets={"label": said})
        if self.options.loss == "mse" or self.config.task.kind == "regressor":
            return features, "mse"
        return features, SoftCrossEntropy(self.options.temperature)

    def student(self) -> Callable[[], TaskModel]:
        """Makes the student: its own encoder, or the teacher's in fewer layers."""
        if self.options.student:
            return lambda: self.start.model(self.config)
        return lambda: self._in_fewer_layers(self.options.teacher)

    def control(self) -> Callable[[], TaskModel]:
        """Makes the same student as it was before anybody fine-tuned it."""
        if self.options.student:
            return self.student()
        origin = str(RunDir(self.options.teacher).config()["init"])
        if not os.path.isdir(origin):
            raise InputError(
                f"--student_layers: the control starts where the teacher did, and {origin!r} is "
                "not there any more: put it back, or pass --student."
            )
        return lambda: self._in_fewer_layers(origin)

    def _in_fewer_layers(self, path: str) -> TaskModel:
        encoder = AlbertEncoder(self.config.model).create_weights()
        encoder.set_weights(load_encoder(path).get_weights())
        return KINDS[self.config.task.kind].model(encoder, self.config.task).create_weights()

    def run(self, name: str, model_of: Callable[[], TaskModel], train: Features, loss: Any) -> None:
        """Trains student or control, unless that is done."""
        run = RunDir(self.at(name))
        run_config = settings.to_dict(self.config) | {
            "name": self.options.task,
            "init": os.path.normpath(self.start.path),
            "data": report.fingerprint(self.data),
            "teacher": self.identity if loss else None,
            "loss": loss.get_config() if isinstance(loss, SoftCrossEntropy) else loss,
        }
        run.check(run_config)
        if run.is_complete:
            return
        run.begin(run_config, self.start.tokenizer)
        examples = next(iter(self.data.dev.values()))
        features, training = self.featurize(examples), self.config.training

        def evaluate(model: TaskModel) -> Scores:
            said = predict(model, features, training.batch_size // training.accumulation_steps)
            return self._scores(model.task, said, features)

        with hardware.precision_policy(training.precision):
            fine_tune(
                self.config, model_of, train, evaluate, self.task.metrics[0], run, self.strategy,
                loss,
            )  # fmt: skip
        run.finish(run.metrics()[-1])
        shutil.rmtree(run.training_path, ignore_errors=True)

    def _scores(self, task: Any, said: Any, features: Features) -> Scores:
        examples = next(iter(self.data.dev.values()))
        return self.task.score(KINDS[task.kind].decode(said, features, examples, task), examples)

    def measured(self, path: str) -> dict[str, Any]:
        """Dev scores, parameters, and examples/s in batches of 32, float32 and on one device."""
        examples, asked = next(iter(self.data.dev.values())), load_predictor(path)
        kind = KINDS[asked.task.kind]
        features = kind.featurize(examples, asked.tokenizer, asked.task)
        said = predict(asked.model, features, 32)
        some = kind.featurize(examples[:_TIMED], asked.tokenizer, asked.task)
        seconds = []
        for _ in range(_ROUNDS):
            start = time.perf_counter()
            predict(asked.model, some, 32)
            seconds.append(time.perf_counter() - start)
        answers = kind.decode(said, features, examples, asked.task)
        return self.task.score(answers, examples) | {
            "metric": self.task.metrics[0],
            "standard_error": report.standard_error(self.task, asked.task.kind, answers, examples),
            "parameters": asked.model.count_params(),
            "layers": asked.model.encoder.config.num_layers,
            "examples_per_s": len(some) / statistics.median(seconds),
            "dev_examples": len(examples),
        }


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
    if options.device == "multi_worker":
        raise InputError(
            "--device=multi_worker: distillation runs in one process, on all of its devices. Pass "
            "auto, cpu, gpu or tpu."
        )
    if not options.temperature > 0:
        raise InputError(f"--temperature must be positive. Received: {options.temperature}.")


def _fewer_layers(start: Start, layers: int) -> Any:
    config = start.config
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
