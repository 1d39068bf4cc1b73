"""The model card of a run: its data, scores and settings, as README.md in its folder."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import info
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import outputs, settings
from albert_tf.runtime.run_dir import RunDir
from finetuning.datasets.squad_metrics import score_answer
from finetuning.datasets.task import Data, Prediction

_SHOWN = 10  # wrong predictions at most
_TEXT = 160  # characters of a text at most
_LABELS = 20  # labels of a confusion matrix at most


def write(
    run: RunDir, data: Data, result: dict[str, Any], predictions: Sequence[Prediction]
) -> None:
    """Write the card of a run that is about to be complete."""
    config = run.config()
    parameters = settings.from_dict(AlbertConfig, config["model"]).param_count()
    name, examples = next(iter(data.dev.items()))
    scores = [
        (key, f"{value:.4f}" if isinstance(value, float) else f"{value}")
        for key, value in result.items()
    ]
    values = [
        (f"{section}.{key}", _cell(str(value)))
        for section in ("training", "task")
        for key, value in config[section].items()
        if value is not None and (section, key) not in _superseded(config["training"])
    ]
    parts = [
        f"# {config['name']}",
        f"An ALBERT {config['task']['kind']} with {parameters:,} parameters in its encoder, "
        f"fine-tuned from `{config['init']}` on {result['train_examples']:,} examples (data "
        f"{config['data']}, seed {config['seed']}).",
        f"## Scores on `{name}`",
        info.markdown_table(("", "value"), scores),
        "`standard_error` is that of `metric`, from the number of dev examples.",
        "![loss](plots/loss.png) ![dev](plots/dev.png)",
        *_mistakes(config["task"], predictions, examples),
        "## Settings",
        info.markdown_table(("key", "value"), values),
        "## Use",
        f"    python -m finetuning.predict --run_dir={run.path} --input=FILE",
    ]
    with outputs.new_file(run.card_path) as partial, open(partial, "w", encoding="utf-8") as file:
        file.write("\n\n".join(parts) + "\n")


def _superseded(training: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the settings that the run's explicit steps replace."""
    pairs = {"steps": "epochs", "warmup_steps": "warmup_fraction"}
    return {("training", other) for key, other in pairs.items() if training[key] is not None}


def _mistakes(task: Any, predictions: Sequence[Prediction], examples: Sequence[Any]) -> list[str]:
    rows = [_compared(task, *pair) for pair in zip(predictions, examples, strict=True)]
    parts = []
    labels = task.get("labels") or []
    if 0 < len(labels) <= _LABELS:
        counts = collections.Counter((right, given) for _, right, given, _ in rows)
        confusion = [
            (_shortened(right), *(str(counts[right, given]) for given in labels))
            for right in labels
        ]
        parts += [
            "## Confusion",
            "Rows are correct labels, columns are predicted labels.",
            info.markdown_table(("", *map(_shortened, labels)), confusion),
        ]
    wrong = sorted((row for row in rows if row[1] != row[2]), key=lambda row: -row[3])
    shown = [tuple(map(_shortened, row[:3])) for row in wrong[:_SHOWN]]
    return [
        *parts,
        "## Worst mistakes",
        info.markdown_table(("example", "correct", "predicted"), shown),
    ]


def _compared(task: Any, prediction: Prediction, example: Any) -> tuple[str, str, str, float]:
    """Return the example, the correct and the predicted answer, and the confidence or the error."""
    kind = task["kind"]
    if kind == "span":
        texts, answer = [text for _, text in example.answers], prediction["answer"]
        exact, _ = score_answer(answer, example, task["answerable"])
        right = answer if exact else texts[0] if texts else ""
        shown = (text or "(no answer)" for text in (right, answer))
        return example.question, *shown, prediction["score"]
    if kind == "multiple_choice":
        right, answer = example.options[example.label], example.options[prediction["choice"]]
        return example.question, right, answer, max(prediction["probabilities"])
    text = f"{example.first} ‖ {example.second}" if example.second else example.first
    if kind == "regressor":
        score = prediction["score"]
        return text, f"{example.label:.2f}", f"{score:.2f}", abs(example.label - score)
    return text, task["labels"][int(example.label)], prediction["label"], prediction["score"]


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return _cell(text if len(text) <= _TEXT else text[: _TEXT - 1] + "…")


def _cell(text: str) -> str:
    """Escape bars, which would start another cell."""
    return text.replace("|", "\\|")
