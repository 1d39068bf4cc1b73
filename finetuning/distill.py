r"""Train a smaller run on the outputs of a fine-tuned one (distillation, Hinton et al. 2015).

    python -m finetuning.distill --teacher=runs/base-sst-2 --student_layers=3 \
        --task=sst-2 --data_dir=glue/SST-2 --texts=reviews.txt --output=runs/small-sst-2
    python -m finetuning.distill --teacher=runs/base-sst-2 --student=runs/narrow \
        --task=sst-2 --data_dir=glue/SST-2 --output=runs/narrow-sst-2

The student is either the teacher's shared block in fewer layers (--student_layers) or another
pretrained encoder, such as a narrower one (--student). The teacher's outputs for the training texts
and for those of --texts are computed once and stored in OUTPUT/teacher as TFRecords. A .csv, .tsv,
.jsonl, .json or .parquet file of --texts is a table with the column text, or text_a and text_b,
such as the training table; any other file holds one text per line, or for pairs two texts separated
by a tab. Texts of the dev part are left out.
The student is trained on the teacher's outputs, with the cross-entropy at --temperature, multiplied
by the square of the temperature, or with the mean squared error of the logits. A regressor is
always trained with the squared error. The thresholds of a multi-label classifier are the teacher's.
For --task=ranking, the losses compare the scores of each query's candidates: the cross-entropy of
their softmax or, with mse, the squared differences between the margins of two candidates. There,
the teacher may also be a model of vectors, whose scores are 20 times the cosines of a query and its
candidates. It has no layers to start from, so --student is required.

OUTPUT/student is an ordinary run. OUTPUT/control is the same student without a teacher: it is
trained on the labels for the same number of steps. With --student_layers, the student starts from
the teacher's encoder and the control from the encoder that the teacher started from; with
--student, both start from that encoder. The command prints the score, parameters and examples/s of
all three. The sequence length is the teacher's (for a model of vectors, the default), unless --set
task.seq_length overrides it.
"""

import dataclasses
import operator
import os
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import tf_keras

from albert_tf.models.checkpoints import weights_fingerprint
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder, load_encoder
from albert_tf.runtime import commands, devices, pretrained
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features, concatenate
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets import DATASETS, TRAINED, trained_dataset
from finetuning.datasets.dataset import Data, Dataset, source_of
from finetuning.kinds.kind import CROSS_ENTROPY, FinetuningKind
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import comparison
from finetuning.training import teacher_outputs
from finetuning.training.config import FinetuneConfig, Plan
from finetuning.training.distillation_teachers import RunTeacher, teacher_of
from finetuning.training.finetuner import Finetuner, TrainingSource
from finetuning.training.keys import require_settings
from finetuning.training.starting_point import StartingPoint, resolve


def _only_for(has: Callable[[FinetuningKind], bool]) -> commands.Conditions:
    """Return where an option applies: to the tasks whose kinds have something."""
    return {"task": lambda: [task for task, d in TRAINED.items() if has(FINETUNING[d.kind])]}


def _teachable() -> list[str]:
    return [name for name, dataset in TRAINED.items() if FINETUNING[dataset.kind].student_losses]


def _require_teachable(task: str) -> None:
    trained_dataset(task, "--task")
    if task not in (tasks := _teachable()):
        raise InputError(
            f"--task must be one of {', '.join(tasks)}. Received: {task!r}, whose models cannot be "
            "distilled here."
        )


LOSSES = {
    loss: _only_for(lambda kind, loss=loss: loss in kind.student_losses)
    for loss in dict.fromkeys(loss for kind in FINETUNING.values() for loss in kind.student_losses)
}
# A setting -> the student's only value, and why.
_REQUIRED = {
    "task.long_texts": ("cut", "the teacher provides an output for each text, not for its windows"),
    "training.class_weights": ("none", "the student learns the teacher's outputs"),
    "training.threshold_share": (0, "the student has the teacher's thresholds"),
}


@dataclasses.dataclass(frozen=True)
class DistillOptions(commands.CommandOptions):
    """The command line of `finetuning.distill`."""

    teacher: str = commands.option(
        "the fine-tuned run to distill; of a ranker also a model of vectors, as for "
        "finetuning.embed",
        path=True,
    )
    task: str = commands.option("the task: " + ", ".join(_teachable()), check=_require_teachable)
    output: str = commands.option("the folder for teacher/, student/ and control/", path=True)
    data_dir: str | None = commands.option("the folder of the task's files", None, path=True)
    tfds: bool = commands.option("read the dataset prepared by TFDS; nothing is downloaded", False)
    student_layers: int | None = commands.option(
        "the student is the teacher's block in this many layers", None
    )
    student: str | None = commands.option(
        "instead of --student_layers: a run, converted folder or exported encoder to train",
        None,
        path=True,
    )
    unfinished: bool = commands.option(
        "accept a run that has not ended and use its last checkpoint", False
    )
    texts: str | None = commands.option(
        "unlabeled texts to add to the training texts: a table, or a text per line",
        None,
        path=True,
        only_for=_only_for(lambda kind: bool(kind.student_losses) and kind.takes_texts),
    )
    loss: Annotated[str | None, one_of(*LOSSES)] = commands.option(
        f"{' or '.join(LOSSES)}; default: the first that the task has",
        None,
        values_only_for=LOSSES,
    )
    temperature: Annotated[float, POSITIVE] = commands.option(
        "the temperature of teacher and student", 2.0, only_for={"loss": (CROSS_ENTROPY,)}
    )
    device: Annotated[str, one_of("auto", "cpu", "gpu", "tpu")] = commands.option(
        "auto, cpu, gpu or tpu: one process, and all of its devices", "auto"
    )
    tpu: str | None = commands.option("the TPU: its name, its grpc:// address, or local", None)
    dry_run: bool = commands.option("read all data and check the options, but train nothing", False)
    set: tuple[str, ...] = commands.option(
        "key=value of the student's training, as for finetuning.train", ()
    )


def main(options: DistillOptions) -> None:
    """Run the distillation that `options` describe."""
    distillation = _Distillation(options)
    runs = {name: RunDir(distillation.path(name)) for name in ("student", "control")}
    control = distillation.control()
    if options.dry_run:
        distillation.finetuner.run(distillation.config, runs["control"], control, dry_run=True)
        return
    values = distillation.config.training
    with distillation.strategy.scope():
        batch_size = values.batch_size // values.accumulation_steps
        teacher_outputs.write_outputs(
            distillation.teacher,
            distillation.identity,
            distillation.texts(),
            distillation.path("teacher"),
            batch_size,
        )
    for name, source in {"student": distillation.student(), "control": control}.items():
        print(f"== {name}", flush=True)
        distillation.finetuner.run(distillation.config, runs[name], source)
    teachers = {"teacher": distillation.teacher}
    teachers |= {name: RunTeacher(run.path) for name, run in runs.items()}
    dev = next(iter(distillation.data.dev.values()))
    results = {name: model.result(distillation.dataset, dev) for name, model in teachers.items()}
    outputs.write_json(distillation.path("result.json"), results)
    print(comparison.table(results, distillation.dataset.metrics))


class _Distillation:
    """The teacher, the starting point of the student, and the data of both."""

    def __init__(self, options: DistillOptions) -> None:
        self.options = options = _checked(options)
        require_settings(KINDS[DATASETS[options.task].kind].settings, options.set)
        outputs.require_folder(options.output, "--output")
        self.strategy = devices.strategy(options.device, options.tpu)
        self.dataset: Dataset = DATASETS[options.task]
        self.teacher = teacher_of(options.teacher, self._kind)
        self.reading = self.teacher.reading(options.task)
        source = source_of(self.dataset, options.data_dir, options.tfds, self.reading)
        self.data: Data = self.dataset.read(source)
        self._dev_texts = {each.source for part in self.data.dev.values() for each in part}
        teaching = self.teacher.task_for(options.task, self.data.task)
        self.teacher.require_ended(options.unfinished)
        if not (options.student or self.teacher.has_layers):
            raise InputError(
                f"--teacher={options.teacher} must be a run of --task={options.task} to give its "
                "layers to the student. Received: another model. Pass --student."
            )
        if options.student:
            RunDir(options.student).require_ended("--student", options.unfinished)
        self.start = StartingPoint.of(
            options.student or options.teacher, None, None, unfinished=True
        )
        if options.student_layers:
            shallow = _fewer_layers(self.start, options.student_layers)
            self.start = dataclasses.replace(self.start, config=shallow)
        self.identity = teacher_outputs.identity_of(self.teacher, self.texts())
        data = dataclasses.replace(self.data, task=teaching)  # with a run's sequence length
        config = resolve(self.start, data, {}, options.set, options.device)
        _require_student_settings(config)
        # Student and control take the same steps: epochs are passes over the teacher's texts.
        plan = Plan.of(config.training, self._num_units(config.task))
        training = dataclasses.replace(config.training, **dataclasses.asdict(plan))
        training.check_batch(self.strategy.num_replicas_in_sync)
        self.config: FinetuneConfig = dataclasses.replace(config, training=training)
        self.finetuner = Finetuner(
            options.task, self.dataset, self.data, source, self.start.tokenizer, self.strategy
        )

    def _num_units(self, task: TaskSettings) -> int:
        """Return the number of the teacher's texts, or of their windows."""
        if not task.reads_windows:
            return self.identity["count"]
        return len(KINDS[task.kind].featurize(list(self.texts()), self.start.tokenizer, task))

    @property
    def _kind(self) -> FinetuningKind:
        return FINETUNING[self.dataset.kind]

    def path(self, name: str) -> str:
        """Return a path in the output folder."""
        return os.path.join(self.options.output, name)

    def texts(self) -> Iterator[Any]:
        """Yield the examples that the teacher predicts."""
        yield from self.data.train
        if self.options.texts:
            columns = self._kind.text_columns(self.reading.text_column, self.data.task.pair)
            for texts in teacher_outputs.examples_of(self.options.texts, columns):
                example = self._kind.of_texts(*texts)
                if example.source not in self._dev_texts:
                    yield example

    def student(self) -> TrainingSource:
        """Return the source of the student, which is trained on the teacher's outputs.

        It starts from --student, or else from the teacher's encoder in fewer layers.
        """
        extra_config = {
            "teacher": self.identity,
            "loss": self.options.loss,
            "temperature": self.options.temperature,
        }
        source = self._source_from(self.options.teacher)
        return dataclasses.replace(
            source,
            train=self._answers,
            examples=self.texts,
            loss=self._loss,
            extra_config=extra_config,
        )

    def control(self) -> TrainingSource:
        """Return the source of the control, which is trained on the labels.

        It is the student before any fine-tuning.

        Raises:
          InputError: the folder that the teacher started from no longer exists.
        """
        if self.options.student:
            return self._source_from(self.options.student)
        # A converted teacher does not record where it started.
        origin = str(RunDir(self.options.teacher).config().get("init", "unknown"))
        if origin.startswith(pretrained.RANDOM):
            raise InputError(
                "--student_layers: the control starts where the teacher started, which must not be "
                f"random weights. Received: {origin!r}. Pass --student={origin}."
            )
        path = os.path.join(pretrained.FOLDER, origin) if origin in pretrained.names() else origin
        if not os.path.isdir(path):
            raise InputError(
                "--student_layers: the control starts where the teacher started, so this folder "
                f"must still exist. Received: {origin!r}. Restore it, or pass --student."
            )
        return self._source_from(path)

    def _source_from(self, path: str) -> TrainingSource:
        """Return a source that starts from --student, or else from `path` in fewer layers."""
        if self.options.student:
            return TrainingSource(self.start.origin, self.start.model, self.start.fingerprint)
        return TrainingSource(
            pretrained.shown(os.path.abspath(path)),
            lambda config: _with_encoder_of(path, config),
            weights_fingerprint(path),
        )

    def _answers(self) -> Features:
        """Return features whose targets are the teacher's outputs.

        Only one chunk of the texts is in memory at a time.
        """
        kind, values = self._kind, (self.start.tokenizer, self.config.task)
        chunks = teacher_outputs.read_outputs(self.path("teacher"), kind)
        return concatenate([kind.taught_features(*chunk, *values) for chunk in chunks])

    def _loss(self, task: TaskSettings) -> tf_keras.losses.Loss:
        assert self.options.loss, "a kind that can be taught has one"
        return self._kind.taught_loss(task, self.options.loss, self.options.temperature)


def _checked(options: DistillOptions) -> DistillOptions:
    """Return the options with the loss, after the checks that need no data."""
    default = FINETUNING[DATASETS[options.task].kind].student_losses[0]
    options = dataclasses.replace(options, loss=options.loss or default)
    if (options.student is None) == (options.student_layers is None):
        raise InputError(
            "pass either --student or --student_layers. Received: "
            f"{options.student!r}, {options.student_layers!r}."
        )
    return options


def _require_student_settings(config: FinetuneConfig) -> None:
    kind = FINETUNING[config.task.kind]
    required = {**_REQUIRED, **kind.student_settings}
    if kind.thresholds:
        required["training.calibrate"] = (False, "the student has the teacher's thresholds")
    for key, (value, why) in required.items():
        if (setting := operator.attrgetter(key)(config)) != value:
            raise InputError(
                f"`{key}` must be {str(value).lower()} here: {why}. Received: "
                f"{str(setting).lower()}. Leave it out, and set it for fine-tuning."
            )


def _with_encoder_of(path: str, config: FinetuneConfig) -> TaskModel:
    encoder = AlbertEncoder(config.model).create_weights()
    encoder.set_weights(load_encoder(path).get_weights())
    return KINDS[config.task.kind].model(encoder, config.task).create_weights()


def _fewer_layers(start: StartingPoint, layers: int) -> AlbertConfig:
    config = start.config
    if not 1 <= layers < config.num_layers or not config.has_one_block:
        raise InputError(
            "--student_layers must be less than the teacher's number of layers, which must share "
            f"all weights. Received: {layers}, and a teacher of {config.num_layers} layers with "
            f"sharing={config.sharing}, {config.num_groups} group(s). Pass --student instead."
        )
    return config.replace(num_layers=layers)


if __name__ == "__main__":
    commands.run(main, DistillOptions, __doc__)
