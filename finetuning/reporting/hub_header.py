"""The YAML header of a model card, which Hugging Face's Hub reads.

See https://huggingface.co/docs/hub/model-cards.
"""

import os
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from finetuning.datasets import DATASETS
from finetuning.datasets.scores import ranking_metrics
from finetuning.kinds.registry import FINETUNING

# The Hub's names of metrics.
_METRICS = {
    "accuracy": "accuracy",
    "f1": "f1",
    "macro_f1": "f1",
    "micro_f1": "f1",
    "average_precision": "average_precision",
    "mcc": "matthews_correlation",
    "pearson": "pearsonr",
    "spearman": "spearmanr",
    "precision": "precision",
    "recall": "recall",
    "exact_match": "exact_match",
    **{name: name for name in (*ranking_metrics.METRICS, *ranking_metrics.OF_LISTS)},
}


def hub_header(
    path: str, config: Mapping[str, Any], result: Mapping[str, Any], dev: Iterable[str]
) -> str:
    """Return the header, between lines of three hyphens.

    The language is the dataset's, if it has one. The license is unknown.

    Args:
      path: the run's folder, after which the model is named.
      config: the content of its config.json.
      result: the content of its result.json.
      dev: the names of the dev sets, of which the first has no suffix in `result`.
    """
    name, task = config["name"], FINETUNING[config["task"]["kind"]].hub_task
    results: list[dict[str, Any]] = [
        {
            "task": {"type": task},
            "dataset": {"name": name, "type": name, "split": part},
            "metrics": [
                {"type": _METRICS[metric], "name": metric, "value": result[metric + suffix]}
                for metric in _METRICS
                if metric + suffix in result
            ],
        }
        for number, part in enumerate(dev)
        for suffix in (f"_{part}" if number else "",)
    ]
    header = {
        **({"language": language} if (language := DATASETS[name].language) else {}),
        "library_name": "albert_tf",
        "tags": ["albert", "tensorflow", name],
        "pipeline_tag": task,
        "metrics": sorted({metric["type"] for result in results for metric in result["metrics"]}),
        "model-index": [{"name": os.path.basename(os.path.abspath(path)), "results": results}],
    }
    text = yaml.safe_dump(header, sort_keys=False, allow_unicode=True)
    return f"---\n{text}---"
