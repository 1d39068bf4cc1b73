"""The tasks by name."""

from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets.glue import GLUE
from finetuning.datasets.race import RACE
from finetuning.datasets.squad import SQUAD
from finetuning.datasets.task import Task
from finetuning.datasets.text_classification import TextClassification
from finetuning.datasets.text_regression import TextRegression

TASKS: dict[str, Task] = {
    **GLUE,
    **SQUAD,
    **RACE,
    "text_classification": TextClassification(),
    "text_regression": TextRegression(),
}


def task_name(run_dir: str, given: str | None) -> str:
    """The name in TASKS of what to read for a run: `given` by --task, or else the run's own.

    Raises:
      InputError: an unknown name, or none, as of a converted model.
    """
    name = given or RunDir(run_dir).config().get("name")
    if name is None:
        raise InputError(
            f"--run_dir={run_dir} does not state its data set, as it was converted: pass --task, "
            f"one of {', '.join(TASKS)}."
        )
    if name not in TASKS:
        raise InputError(f"--task: {settings.unknown_key(name, TASKS, 'task')}")
    return name
