"""The model card of a run: its data, scores and settings, as README.md in its folder."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import pretrained, programs, settings
from albert_tf.runtime.errors import shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.report_text import cell, markdown_table
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import task_of
from finetuning.datasets.dataset import Data, Prediction, Source
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import calibration_report
from finetuning.reporting.hub_header import hub_header
from finetuning.reporting.report import upper_bounds


def write(
    run: RunDir,
    data: Data,
    source: Source,
    result: Mapping[str, Any],
    predictions: Sequence[Prediction],
    held_out: bool = False,
) -> None:
    """Write the card of a run that is about to be complete.

    `held_out` is True if examples were held out of training to choose settings on.
    """
    config, task = run.config(), task_of(run.path)
    name, examples = next(iter(data.dev.items()))
    thresholds = FINETUNING[task.kind].thresholds
    shown = {("task", thresholds.key)} if thresholds and thresholds.per_label else set()
    values = [
        (
            f"{section}.{key}",
            cell(" ".join(value.split()) if isinstance(value, str) else shortened(value)),
        )
        for section in ("training", "task")
        for key, value in config[section].items()
        if value is not None and (section, key) not in {*_superseded(config["training"]), *shown}
    ]
    parts = [
        hub_header(run.path, config, result, data.dev),
        f"# {config['name']}",
        _origin(run, config, source, result),
        f"## Scores on `{name}`",
        _scores(task.kind, result),
        _explanation(data, result),
        "![loss](plots/loss.png) ![dev](plots/dev.png)",
        *FINETUNING[task.kind].card_sections(task, predictions, examples),
        *calibration_report.sections(task, result, held_out),
        "## Settings",
        markdown_table(("key", "value"), values),
        "## Use",
        programs.shown(f"    python -m finetuning.predict --run_dir={run.path} --input=FILE"),
        f'In Python: `albert_tf.{FINETUNING[task.kind].loader}("{run.path}")`.',
    ]
    with outputs.new_text(run.card_path) as file:
        file.write("\n\n".join(parts) + "\n")


def _origin(
    run: RunDir, config: Mapping[str, Any], source: Source, result: Mapping[str, Any]
) -> str:
    parameters = settings.from_dict(AlbertConfig, config["model"]).param_count()
    environment = run.environment()
    commit, version = environment.get("commit"), environment.get("albert_tf")
    code = f", with the code of commit `{commit}`" if commit else ""
    if version and not commit:
        code = f", with albert_tf {version}"
    return (
        f"An ALBERT model of kind `{config['task']['kind']}` with {parameters:,} parameters in its "
        f"encoder, fine-tuned from `{pretrained.shown(config['init'])}` on "
        f"{result['train_examples']:,} examples of {source.location} (data {config['data']}, seed "
        f"{config['seed']}) in {result['seconds']:,.0f} s{code}."
    )


def _scores(kind: str, result: Mapping[str, Any]) -> str:
    """Return the scores on all dev sets, with the errors and baselines that are known."""
    beside = {"standard error": "standard_errors", "baseline": "baselines"}
    if thresholds := FINETUNING[kind].thresholds:
        beside[f"at threshold {thresholds.default_label}"] = "at_default_threshold"
    columns = {title: result[key] for title, key in beside.items() if key in result}
    if errors := columns.get("standard error"):  # 0 is that of equal answers, and no certainty
        columns["standard error"] = {name: error for name, error in errors.items() if error}
    columns |= {"before training": result["at_start"]} if "at_start" in result else {}
    columns |= result.get("references", {})
    rows = [
        (
            name,
            f"{value:.4f}",
            *(f"{known[name]:.4f}" if name in known else "" for known in columns.values()),
        )
        for name, value in result.items()
        if isinstance(value, float) and name not in ("seconds", "baseline", "standard_error")
    ]
    return markdown_table(("", "value", *columns), rows)


def _explanation(data: Data, result: Mapping[str, Any]) -> str:
    """Return a text on the origin and the reliability of the scores."""
    count, evaluations = result["dev_examples"], result["evaluations"]
    parts = [f"There are {count:,} examples."]
    if not result.get("standard_errors"):
        parts = [f"There are {count:,} examples, too few for standard errors."]
    if (precision := result.get("training_precision", "float32")) != "float32":
        parts.append(f"The scores are computed in float32, those of the plots in {precision}.")
    if "thresholds" in result:
        parts.append(result["thresholds"])
    if bounds := [f"`{name}`" for name in upper_bounds(data.task.kind, result)]:
        parts.append(f"Chosen on these same examples, and so upper bounds: {', '.join(bounds)}.")
    if evaluations > 1:
        parts.append(
            f"The weights are those of step {result['best_step']:,} of {result['steps']:,}, with "
            f"the best `{result['metric']}` of {evaluations:,} evaluations on these same examples, "
            "so the scores are somewhat too high. For a fair estimate, report scores on a part "
            "that was not used to choose the weights."
        )
    if constant := FINETUNING[data.task.kind].constant_answer(data):
        parts.append(f"The baseline is to answer without reading the text: {constant[0]}.")
    return " ".join(parts)


def _superseded(training: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return the settings that the run's explicit steps replace."""
    pairs = {"steps": "epochs", "warmup_steps": "warmup_fraction"}
    return {("training", other) for key, other in pairs.items() if training[key] is not None}
