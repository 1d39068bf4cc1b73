"""Teachers of a distillation: a fine-tuned run or, for a ranker, a model of vectors."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from albert_tf.models.checkpoints import weights_fingerprint
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, predict, task_of
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets import OWN, reading_of
from finetuning.datasets.dataset import Dataset, Reading
from finetuning.datasets.embeddings.teachers import load_search_teacher, teacher_fingerprint
from finetuning.kinds.kind import FinetuningKind, TeacherOutput
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import comparison

_BATCH = 32  # texts
Outputs = Callable[[Sequence[Any]], Sequence[TeacherOutput]]  # examples -> outputs


class Teacher(Protocol):
    """A model whose outputs a student learns.

    Attributes:
      path: its folder or file, or the name of an included model.
      has_layers: True if a student may begin with some of its layers.
    """

    path: str
    has_layers: bool

    def weights(self) -> str:
        """Return 16 hex digits that change with the model."""

    def reading(self, name: str) -> Reading:
        """Return the columns and examples of the dataset `name` that a student reads."""

    def task_for(self, name: str, dataset_task: TaskSettings) -> TaskSettings:
        """Return the `task` section of a student that learns from it.

        Args:
          name: the student's dataset.
          dataset_task: the settings for the data.

        Raises:
          InputError: the teacher does not fit the dataset.
        """

    def require_ended(self, unfinished: bool) -> None:
        """Check that its training has ended, or may be `unfinished`."""

    def load(self, batch_size: int) -> Outputs:
        """Return the function from examples, whose labels it ignores, to outputs."""

    def result(self, dataset: Dataset, examples: Sequence[Any]) -> dict[str, Any]:
        """Return its row of the final table."""


class RunTeacher:
    """A fine-tuned run of the student's kind."""

    has_layers = True

    def __init__(self, path: str) -> None:
        self.path = path

    def weights(self) -> str:
        """Return a hash of the checkpoint's index."""
        return weights_fingerprint(self.path)

    def reading(self, name: str) -> Reading:
        """Return what the run reads, if `name` is its own dataset."""
        return reading_of(self.path, name)

    def task_for(self, name: str, dataset_task: TaskSettings) -> TaskSettings:
        """Return the run's `task` section, without losses that are not distilled.

        Raises:
          InputError: the run's kind cannot be taught, or the run belongs to another dataset than
            `name`, or differs from the data in kind, pair or labels.
        """
        task, own_name = task_of(self.path), RunDir(self.path).config().get("name")
        if not FINETUNING[task.kind].student_losses:
            kinds = ", ".join(name for name, kind in FINETUNING.items() if kind.student_losses)
            raise InputError(
                f"--teacher={self.path} must be of kind {kinds}. Received: a run of "
                f"kind {task.kind!r}, which cannot be distilled here."
            )
        if task.long_texts != "cut":
            raise InputError(
                f"--teacher={self.path} must truncate long texts: it provides an output for each "
                f"text, not for its windows. Received: a run with task.long_texts="
                f"{task.long_texts}."
            )
        # A user's own table has no fixed name.
        if own_name not in (name, None) and name not in OWN:
            raise InputError(
                f"--teacher={self.path} must be a run of --task={name}. Received: a run of "
                f"{own_name!r}."
            )
        for key in ("kind", "pair", *(task.HEAD if task.has_labels() else ())):
            if (own := getattr(task, key)) != (of_data := getattr(dataset_task, key)):
                raise InputError(
                    f"--teacher={self.path} must have the same {key} as --data_dir. Received: "
                    f"{shortened(own)}, and {shortened(of_data)} in the data."
                )
        tuned = FINETUNING[task.kind]
        changes = {k.partition(".")[2]: value for k, (value, _) in tuned.student_settings.items()}
        changes |= {name: getattr(dataset_task, name) for name in tuned.student_data}
        if task.logit_temperature != 1:  # the outputs that a student learns are divided already
            changes["logit_temperature"] = 1.0
        return task.replace(**changes)

    def require_ended(self, unfinished: bool) -> None:
        """Check the run's result."""
        RunDir(self.path).require_ended("--teacher", unfinished)

    def load(self, batch_size: int) -> Outputs:
        """Return the function from examples to the outputs of the model's head."""
        predictor = load_predictor(self.path)
        kind, tuned = KINDS[predictor.task.kind], FINETUNING[predictor.task.kind]

        def outputs(examples: Sequence[Any]) -> Sequence[TeacherOutput]:
            unlabeled = [tuned.of_texts(*example.texts) for example in examples]
            features = kind.featurize(unlabeled, predictor.tokenizer, predictor.task)
            return tuned.taught_outputs(features, predict(predictor.model, features, batch_size))

        return outputs

    def result(self, dataset: Dataset, examples: Sequence[Any]) -> dict[str, Any]:
        """Return scores, size and speed."""
        return comparison.measured(self.path, dataset, examples)


class VectorTeacher:
    """A model of vectors, whose cosines a student of the kind learns.

    Args:
      path: the model, as for `finetuning.embed --teacher`.
      kind: the student's kind, which `learns_vectors`.

    Raises:
      InputNotFoundError: there is no model at `path`.
      InputError: it is damaged, of another form, or not a model of vectors.
    """

    has_layers = False

    def __init__(self, path: str, kind: FinetuningKind) -> None:
        self.path, self._kind = path, kind
        self._embed = load_search_teacher(path, _BATCH)

    def weights(self) -> str:
        """Return a hash of the model's files."""
        return teacher_fingerprint(self.path)

    def reading(self, name: str) -> Reading:
        """Return the default: a model of vectors has no columns."""
        return Reading()

    def task_for(self, name: str, dataset_task: TaskSettings) -> TaskSettings:
        """Return the settings for the data."""
        return dataset_task

    def require_ended(self, unfinished: bool) -> None:
        """Check the result of a run of embeddings."""
        RunDir(pretrained.locate(self.path)).require_ended("--teacher", unfinished)

    def load(self, batch_size: int) -> Outputs:
        """Return the function from examples to the cosines of queries and candidates.

        It raises an InputError if one is not a number.
        """

        def outputs(examples: Sequence[Any]) -> Sequence[TeacherOutput]:
            taught = self._kind.vector_outputs(examples, *self._embed)
            for example, (values, _) in zip(examples, taught, strict=True):
                if not np.isfinite(values).all():
                    raise InputError(
                        f"--teacher={self.path} must give vectors of finite numbers. Received "
                        f"others, for {shortened(example.texts)}. Pass another model, or leave "
                        "the text out."
                    )
            return taught

        return outputs

    def result(self, dataset: Dataset, examples: Sequence[Any]) -> dict[str, Any]:
        """Return scores; size and speed are not comparable."""
        answers = [self._kind.as_prediction(output) for output in self.load(_BATCH)(examples)]
        return comparison.scored(dataset, self._kind, answers, examples)


def teacher_of(path: str, kind: FinetuningKind) -> Teacher:
    """Return the teacher at a path.

    A fine-tuned run is one of vectors if the student's kind `learns_vectors` and that of the run
    `has_vectors`. Any other model is one of vectors if the student's kind `learns_vectors`.
    """
    try:
        own = FINETUNING[task_of(pretrained.locate(path)).kind]
    except InputError:
        own = None
    is_run = own is not None and not own.has_vectors
    return VectorTeacher(path, kind) if kind.learns_vectors and not is_run else RunTeacher(path)
