"""A model card: what a run was made of and what it can do, as README.md in its folder."""

import collections
from collections.abc import Sequence
from typing import Any

from albert_tf import info, outputs, settings
from albert_tf.config import AlbertConfig
from albert_tf.runs import RunDir
from finetuning.task import Data, Prediction

_SHOWN = 10  # wrong answers
_TEXT = 160  # characters of a text
_LABELS = 20  # of a confusion matrix at most


def write(
    run: RunDir, data: Data, result: dict[str, Any], predictions: Sequence[Prediction]
) -> None:
    """Writes the card of a run that is about to be complete."""
    config = run.config()
    parameters = settings.from_dict(AlbertConfig, config["model"]).param_count()
    name, examples = next(iter(data.dev.items()))
    scores = [
        (key, f"{value:.4f}" if isinstance(value, float) else f"{value}")
        for key, value in result.items()
    ]
    values = [(f"training.{key}", str(value)) for key, value in config["training"].items()]
    values += [(f"task.{key}", str(value)) for key, value in config["task"].items()]
    parts = [
        f"# {config['name']}",
        f"An ALBERT {config['task']['kind']} of {parameters:,} parameters in its "
        f"encoder, fine-tuned from `{config['init']}` on {len(data.train):,} examples (data "
        f"{config['data']}, seed {config['seed']}).",
        f"## Scores on `{name}`",
        info.markdown_table(("", "value"), scores),
        "`standard_error` is that of the first metric, from the number of examples.",
        "![loss](plots/loss.png) ![dev](plots/dev.png)",
        *_mistakes(config["task"], predictions, examples),
        "## Settings",
        info.markdown_table(("key", "value"), values),
        "## Use",
        f"    python -m finetuning.predict --run_dir={run.path} --input=texts.txt\n"
        f"    python -m albert_tf.export --run_dir={run.path} --output=export",
    ]
    with outputs.new_file(run.card_path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts) + "\n")


def _mistakes(task: Any, predictions: Sequence[Prediction], examples: Sequence[Any]) -> list[str]:
    labels = task.get("labels")
    if not labels:
        return []
    given = [prediction["label"] for prediction in predictions]
    right = [labels[int(example.label)] for example in examples]
    parts = []
    if len(labels) <= _LABELS:
        counts = collections.Counter(zip(right, given, strict=True))
        rows = [(label, *(str(counts[label, other]) for other in labels)) for label in labels]
        parts += [
            "## Confusion",
            "A row is what is right, a column what was predicted.",
            info.markdown_table(("", *labels), rows),
        ]
    wrong = [
        (_shortened(f"{example.first} ‖ {example.second}" if example.second else example.first),
         answer, prediction["label"], f"{prediction['score']:.2f}")
        for example, answer, prediction in zip(examples, right, predictions, strict=True)
        if answer != prediction["label"]
    ]  # fmt: skip
    wrong.sort(key=lambda row: row[-1], reverse=True)  # the surest first
    return [
        *parts,
        "## Its surest mistakes",
        info.markdown_table(("text", "right", "predicted", "probability"), wrong[:_SHOWN]),
    ]


def _shortened(text: str) -> str:
    text = text.replace("|", "\\|")
    return text if len(text) <= _TEXT else text[: _TEXT - 1] + "…"
