"""The tasks by name."""

from finetuning.task import Task
from finetuning.tasks.glue import GLUE
from finetuning.tasks.race import RACE
from finetuning.tasks.squad import SQUAD
from finetuning.tasks.text_classification import TextClassification
from finetuning.tasks.text_regression import TextRegression

TASKS: dict[str, Task] = {
    **GLUE,
    **SQUAD,
    **RACE,
    "text_classification": TextClassification(),
    "text_regression": TextRegression(),
}
