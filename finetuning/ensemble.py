r"""Average the predictions of several fine-tuned runs of a task (paper, section 4.9).

    python -m finetuning.ensemble --runs='runs/cola/seed-*' --data_dir=glue/CoLA \
        --output=ensembles/cola
    python -m finetuning.ensemble --runs='runs/mnli/*' --data_dir=glue/MNLI --part=test_matched \
        --submission=MNLI-m.tsv --output=ensembles/mnli

The members are selected on the dev set by the score that chose their weights (the task's first, if
these differ): first the best run, then, as long as the score rises, the run that raises it most.
--select=all takes the first --max_members runs instead. If the score is `best_f1` (SQuAD 2.0),
--part is answered at the null threshold that is best for the ensemble on the dev set, unless the
members' own were chosen on other examples (`training.threshold_share`).

The ensemble averages probabilities; for multi_label, also the members' thresholds; for regression,
scores; for spans, the scores of each candidate (sums of logits, or for SQuAD 2.0 log
probabilities). --output receives predictions.jsonl and result.json, which holds the scores of each
run and of the ensemble. The ensemble's score on the dev set is slightly too high, because the dev
set selected the members: report that of another part.
"""

import dataclasses
import os
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import POSITIVE, at_least, one_of
from albert_tf.runtime.errors import InputError, InputNotFoundError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.paths import matching
from albert_tf.runtime.report_text import markdown_table
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor, predict, task_of
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import load_tokenizer
from albert_tf.training.progress import Progress
from finetuning.datasets import DATASETS, reading_of
from finetuning.datasets.dataset import Data, Dataset, source_of
from finetuning.datasets.selection import read_part
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting.notes import notes_of
from finetuning.reporting.report import fingerprint, scores_if_known, write_predictions


@dataclasses.dataclass(frozen=True)
class EnsembleOptions(commands.CommandOptions):
    """The command line of `finetuning.ensemble`."""

    runs: tuple[str, ...] = commands.option("glob of fine-tuned runs; may be repeated", path=True)
    output: str = commands.option("the folder to create", path=True)
    data_dir: str | None = commands.option("the folder of the dataset's files", None, path=True)
    tfds: bool = commands.option("read the dataset prepared by TFDS; nothing is downloaded", False)
    select: Annotated[str, one_of("best", "all")] = commands.option(
        "best (on the dev set) or all", "best"
    )
    max_members: Annotated[int, at_least(2)] = commands.option(
        "the maximum number of members; the paper chose them from 6 to 17 checkpoints", 17
    )
    part: str | None = commands.option("also predict this part, such as test", None)
    submission: str | None = commands.option(
        "with --part: write the leaderboard's file here", None, path=True, needs="part"
    )
    batch_size: Annotated[int, POSITIVE] = commands.option("examples per batch", 32)
    dry_run: bool = commands.option("print the runs, but average nothing", False)


def main(options: EnsembleOptions) -> None:
    """Average the predictions of the runs that `options` name."""
    paths = _paths(options)
    dataset, task = _common_task(paths)
    outputs.require_new(options.output)
    folder = os.path.dirname(os.path.realpath(options.submission or ""))
    if options.submission and folder != os.path.realpath(options.output):  # created below
        outputs.require_file(options.submission, "--submission")
    if options.dry_run:
        print("\n".join(paths))
        return
    source = source_of(dataset, options.data_dir, options.tfds, reading_of(paths[0]))
    data = dataset.read(source)
    _check_data(paths, data)
    part = read_part(dataset, source, options.part, task) if options.part else None
    (name, examples), *_ = data.dev.items()
    ensemble = _Members(paths, task, options.batch_size)
    metric = _deciding_metric(paths, dataset)
    result, answers = _on_dev(
        options, metric, dataset, ensemble, ensemble.outputs(examples, name), examples
    )
    print(_table(result, dataset))
    with outputs.new_folder(options.output) as partial:  # renamed when complete
        outputs.write_json(os.path.join(partial, "result.json"), result)
        write_predictions(os.path.join(partial, "predictions.jsonl"), task, answers, examples)
        if part is not None:
            members = _Members(result["members"], task, options.batch_size)
            _answer_part(options, result, dataset, members, part, partial)


def _on_dev(
    options: EnsembleOptions,
    metric: str,
    dataset: Dataset,
    ensemble: "_Members",
    outputs_of: Sequence[Any],
    examples: Sequence[Any],
) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the content of result.json and the ensemble's predictions, from each run's outputs."""

    def score(members: Sequence[int]) -> dict[str, float]:
        return dataset.score(ensemble.decode([outputs_of[i] for i in members], examples), examples)

    singles = [score([i]) for i in range(len(outputs_of))]
    chosen = list(range(len(outputs_of)))[: options.max_members]
    if options.select == "best":
        values = [single[metric] for single in singles]
        chosen = select_members(values, lambda members: score(members)[metric], options.max_members)
    answers = ensemble.decode([outputs_of[i] for i in chosen], examples)
    return {
        "metric": metric,
        "members": [ensemble.paths[i] for i in chosen],
        "singles": dict(zip(ensemble.paths, singles, strict=True)),
        "ensemble": dataset.score(answers, examples),
        "dev_examples": len(examples),
    }, answers


def select_members(singles: Sequence[float], score: Any, max_members: int) -> list[int]:
    """Return the numbers of the members, in order of selection, by greedy forward selection.

    Args:
      singles: the score of each run.
      score: a function of run numbers that returns the score of their mean.
      max_members: the largest number of members.
    """
    chosen = [max(range(len(singles)), key=lambda i: singles[i])]
    best = singles[chosen[0]]
    while len(chosen) < min(max_members, len(singles)):
        remaining = [i for i in range(len(singles)) if i not in chosen]
        values = {i: score([*chosen, i]) for i in remaining}
        following = max(remaining, key=lambda i: values[i])
        if values[following] <= best:
            break
        best = values[following]
        chosen.append(following)
    return chosen


class _Output(NamedTuple):
    """What a member predicts.

    Attributes:
      values: the outputs of its model.
      task: its `task` section.
    """

    values: Any
    task: TaskSettings


class _Members:
    """Runs of one task that predict the same examples."""

    def __init__(self, paths: Sequence[str], task: TaskSettings, batch_size: int) -> None:
        self.paths, self.task, self._batch_size = paths, task, batch_size
        self._kind = KINDS[task.kind]
        self._thresholds = FINETUNING[task.kind].thresholds
        self._features: Any = None
        self._features_task: TaskSettings | None = None

    def outputs(self, examples: Sequence[Any], name: str) -> list[_Output]:
        """Return each member's outputs for the examples; `name` is shown in notes and progress."""
        member_outputs: list[_Output] = []
        vocabularies: dict[Any, Features] = {}
        with Progress(f"runs on {name}", len(self.paths)) as progress:
            for path in self.paths:
                member = load_predictor(path)
                task = self._thresholds.common(member.task) if self._thresholds else member.task
                key = (member.tokenizer.fingerprint, str(_of_features(task)))
                if key not in vocabularies:
                    vocabularies[key] = self._kind.featurize(examples, member.tokenizer, task)
                    for note in notes_of(vocabularies[key], examples, member.tokenizer, path):
                        print(f"{name}: {note}", file=sys.stderr)
                self._features, self._features_task = vocabularies[key], task
                output = predict(member.model, self._features, self._batch_size)
                if self._thresholds:
                    output = self._thresholds.comparable(output, member.task)
                member_outputs.append(_Output(output, member.task))
                progress.advance(1)
        return member_outputs

    def decode(self, members: Sequence[_Output], examples: Sequence[Any]) -> list[dict[str, Any]]:
        """Return the predictions of the mean of some members' outputs."""
        values, task = [member.values for member in members], self._features_task
        mean = self._kind.average(values) if len(values) > 1 else values[0]
        if self._thresholds:
            task = self._thresholds.averaged(task, [member.task for member in members])
        return self._kind.decode(mean, self._features, examples, task)


def _paths(options: EnsembleOptions) -> list[str]:
    paths = [path for pattern in options.runs for path in matching(pattern)]
    # A run that several patterns match counts once.
    runs = list(dict.fromkeys(os.path.normpath(p) for p in paths if RunDir(p).is_complete))
    if len(runs) < 2:
        raise InputNotFoundError(
            f"--runs must match at least two complete runs. Received: {', '.join(options.runs)}, "
            f"which matches {len(runs)} (working directory {os.getcwd()})."
        )
    return runs


def _deciding_metric(paths: Sequence[str], dataset: Dataset) -> str:
    """Return the score that chose the weights of all members; the first one if they differ."""
    first, *others = [RunDir(path).result().get("metric") for path in paths]
    return first if first in dataset.metrics and {first} >= {*others} else dataset.metrics[0]


def _common_task(paths: Sequence[str]) -> tuple[Dataset, Any]:
    """Return the dataset of the runs and the first run's `task` section.

    Raises:
      InputError: a run is not fine-tuned, or the runs differ in task, kind, labels or data.
    """
    tasks = [task_of(path) for path in paths]  # raises if a run is not fine-tuned
    configs = [RunDir(path).config() for path in paths]
    answers = [
        (config["name"], *task.head(), config["data"])
        for config, task in zip(configs, tasks, strict=True)
    ]
    for path, other in zip(paths, answers, strict=True):
        if other != answers[0]:
            raise InputError(
                f"--runs must all be of the same task and dataset. Received: {paths[0]} of "
                f"{', '.join(map(shortened, answers[0]))} and {path} of "
                f"{', '.join(map(shortened, other))}."
            )
    if any(task.reads_windows for task in tasks):
        _require_same_windows(paths, tasks)
    return DATASETS[answers[0][0]].with_reading(reading_of(paths[0])), tasks[0]


def _require_same_windows(paths: Sequence[str], tasks: Sequence[Any]) -> None:
    """Check that the members split texts alike and, for spans, propose equally many.

    Otherwise their outputs cannot be averaged. Thresholds, temperatures, losses and what is counted
    are each member's own.

    Raises:
      InputError: the members differ in vocabulary or task settings.
    """
    first, *others = [
        _of_features(task) | {"vocabulary": load_tokenizer(path).fingerprint}
        for path, task in zip(paths, tasks, strict=True)
    ]
    for path, other in zip(paths[1:], others, strict=True):
        if differing := settings.differing_keys(first, other):
            raise InputError(
                "--runs: members that split texts into windows must have the same vocabulary "
                f"and the same task settings. Received: {paths[0]} and {path}, which differ in "
                f"{'; '.join(differing)}. Leave one out."
            )


def _of_features(task: Any) -> dict[str, Any]:
    """Return the settings of a task from which features may depend."""
    kind = FINETUNING[task.kind]
    own = {"dropout", "logit_temperature", "exit_losses", "loss", "contrast_temperature"}
    own |= {*kind.counted, *([kind.thresholds.key] if kind.thresholds else [])}
    return {name: value for name, value in settings.to_dict(task).items() if name not in own}


def _check_data(paths: Sequence[str], data: Data) -> None:
    """Check that --data_dir holds the runs' own data; other data may number the labels differently.

    Raises:
      InputError: it holds other data.
    """
    trained = RunDir(paths[0]).config()["data"]
    if (data_fingerprint := fingerprint(data)) != trained:
        raise InputError(
            f"--data_dir must hold the data that the runs were trained on ({trained}). Received: "
            f"different examples ({data_fingerprint})."
        )


def _answer_part(
    options: EnsembleOptions,
    result: Mapping[str, Any],
    dataset: Dataset,
    members: _Members,
    examples: Sequence[Any],
    partial: str,
) -> None:
    """Write the predictions for a part into `partial`, the unfinished --output.

    `result` is the content of result.json.
    """
    answers = members.decode(members.outputs(examples, str(options.part)), examples)
    thresholds = FINETUNING[members.task.kind].thresholds
    trainings = [RunDir(path).config().get("training", {}) for path in members.paths]
    is_chosen = any(each.get("threshold_share") for each in trainings)  # without the dev set
    if thresholds and result["metric"] in thresholds.at_best and not is_chosen:
        best = result["ensemble"][thresholds.best_value]
        answers = thresholds.applied(answers, thresholds.at(members.task, best))
        print(f"{options.part}: at the {thresholds.key} that is best for the dev set, {best:.4f}")
    path = options.submission or os.path.join(options.output, f"{options.part}.jsonl")
    # `partial` and --output have the same parent, so relative paths are the same for both.
    relative_path = os.path.relpath(os.path.realpath(path), os.path.realpath(options.output))
    file = os.path.join(partial, relative_path)
    if options.submission:
        dataset.write_submission(file, answers, examples)
    else:
        write_predictions(file, members.task, answers, examples)
    print(f"{path}: {len(answers):,} predictions")
    if scores := scores_if_known(dataset, answers, examples):
        print(scores)


def _table(result: dict[str, Any], dataset: Dataset) -> str:
    rows = [
        (path, "yes" if path in result["members"] else "", *_values(scores, dataset))
        for path, scores in result["singles"].items()
    ]
    rows.append(
        ("**ensemble**", str(len(result["members"])), *_values(result["ensemble"], dataset))
    )
    return markdown_table(("run", "member", *dataset.metrics), rows)


def _values(scores: dict[str, float], dataset: Dataset) -> list[str]:
    return [f"{scores[metric]:.4f}" for metric in dataset.metrics]


if __name__ == "__main__":
    commands.run(main, EnsembleOptions, __doc__)
