"""The scores of finished runs on a part that chose nothing, such as `test`."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import load_predictor
from finetuning.datasets.dataset import Data, Dataset, Prediction, Source
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report
from finetuning.reporting.intact_results import read_result, require_intact


def name_of(kind: str, metric: str) -> str:
    """Return the name that a metric of a dev part has on another part."""
    thresholds = FINETUNING[kind].thresholds
    plain = thresholds.at_best.get(metric) if thresholds else None
    return f"{plain}_at_dev_threshold" if plain else metric


def read(dataset: Dataset, source: Source, part: str) -> Data:
    """Return a dataset with a part in place of its dev parts.

    Raises:
      InputError: there is no such part, or an example of it has no known answer.
    """
    data = dataset.read(source)
    examples = dataset.read_part(source, part, data.task)
    if unknown := sum(not example.is_known for example in examples):
        raise InputError(
            f"--part must be a part with all answers. Received: {part!r} in {source.data_dir!r}, "
            f"where {unknown:,} of {len(examples):,} examples have none. Pass another part, or "
            "leave this task out."
        )
    return dataclasses.replace(data, dev={part: examples})


def result_of(dataset: Dataset, data: Data, run: RunDir) -> dict[str, Any]:
    """Return a run's scores on the only part in `data.dev`, in the form of result.json.

    The run keeps them as evaluations/PART.json, which is used again while the data is the same.
    """
    ((part, examples),) = data.dev.items()
    path, identity = run.evaluation_path(part), {"data": report.fingerprint(data)}
    if os.path.isfile(path):
        stored = outputs.read_json(path, allow_nan=True)
        if identity.items() <= stored.items():
            require_intact(stored.get("result"), path)
            return stored["result"]
    predictions, _ = load_predictor(run.path).answer(examples, 32)
    result = scores_of(dataset, data, predictions, read_result(run))
    outputs.write_json(path, identity | {"result": result})
    return result


def scores_of(
    dataset: Dataset, data: Data, predictions: Sequence[Prediction], on_dev: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the scores of predictions for the only part in `data.dev`.

    In place of scores at the threshold that is best for the part itself, such as SQuAD 2.0's, it
    has those at the best threshold of the dev part, under the names of `name_of`.

    Args:
      dataset: the dataset.
      data: the part, as from `read`.
      predictions: at the run's own threshold.
      on_dev: the run's result.json.
    """
    ((part, examples),) = data.dev.items()
    metric = on_dev["metric"]

    def scores(answers: Sequence[Prediction]) -> dict[str, Any]:
        values = {"metric": metric, **dataset.score(answers, examples)}
        return values | report.baselines_and_errors(dataset, data, part, answers, metric)

    result = scores(predictions)
    thresholds = FINETUNING[dataset.kind].thresholds
    if thresholds is None or thresholds.best_value not in on_dev:
        return result
    task = thresholds.at(data.task, on_dev[thresholds.best_value])
    other = scores(thresholds.applied(predictions, task))

    def fixed_of(values: Mapping[str, Any], at_dev: Mapping[str, Any]) -> dict[str, Any]:
        """Return values at the run's own threshold, with those at dev's under other names."""
        exact = {
            name: value for name, value in values.items() if name not in thresholds.upper_bounds
        }
        names = thresholds.at_best.items()
        return exact | {name_of(dataset.kind, best): at_dev[plain] for best, plain in names}

    metric = name_of(dataset.kind, metric)
    fixed = fixed_of(result, other) | {"metric": metric}
    for key in {"baselines", "standard_errors"} & result.keys():
        values = fixed_of(result[key], other[key])
        fixed |= {key: values, key.removesuffix("s"): values[metric]}
    return fixed
