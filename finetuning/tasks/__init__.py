"""The tasks by name."""

from finetuning.task import Task
from finetuning.tasks.text_classification import TextClassification

TASKS: dict[str, Task] = {"text_classification": TextClassification()}
