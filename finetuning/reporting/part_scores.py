"""The scores of finished runs on a part that chose nothing, such as `test`."""

import dataclasses
import os
from typing import Any

from albert_tf.runtime import outputs
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import load_predictor
from finetuning.datasets.metrics import is_known
from finetuning.datasets.task import Data, Source, Task
from finetuning.reporting import report


def read(task: Task, source: Source, part: str) -> Data:
    """Return a dataset with a part in place of its dev parts.

    Raises:
      InputError: there is no such part, or an example of it has no known answer.
    """
    data = task.read(source)
    examples = task.read_part(source, part, data.task)
    if unknown := sum(not is_known(example) for example in examples):
        raise InputError(
            f"--part must be a part with all answers. Received: {part!r} in {source.data_dir!r}, "
            f"where {unknown:,} of {len(examples):,} examples have none. Pass another part, or "
            "leave this task out."
        )
    return dataclasses.replace(data, dev={part: examples})


def result_of(task: Task, data: Data, run: RunDir) -> dict[str, Any]:
    """Return a run's scores on the only part in `data.dev`, in the form of result.json.

    The run keeps them as evaluations/PART.json, which is used again while the data is the same.
    """
    ((part, examples),) = data.dev.items()
    path, fingerprint = run.evaluation_path(part), report.fingerprint(data)
    if os.path.isfile(path) and (kept := outputs.read_json(path))["data"] == fingerprint:
        return kept["result"]
    predictions, _ = load_predictor(run.path).answer(examples, 32)
    metric = run.result()["metric"]
    result = {"metric": metric, **task.score(predictions, examples)}
    result |= report.baselines_and_errors(task, data, part, predictions, metric)
    outputs.write_json(path, {"data": fingerprint, "result": result})
    return result
