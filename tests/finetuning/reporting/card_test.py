"""A card: its header for the Hub, what scores are worth, classes by hand, mistakes of each kind."""

import json
import pathlib

import pytest
import yaml

from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.task_settings import TaskSettings
from finetuning.datasets.dataset import Data, Source
from finetuning.kinds.cards.mistakes import of_classes
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import card
from finetuning.reporting.hub_header import hub_header
from finetuning.training.config import TrainingConfig
from tests.finetuning.untrained import leave_run

ONE, TWO = SpanSettings(), SpanSettings(answerable=True)
NONE = SpanExample("who?", "Jane wrote", is_impossible=True)
SPAN = SpanExample("who?", "Jane wrote", answers=((0, "Jane"),))
CHOICE = ChoiceExample("q", "c", ("x", "y"), 0)


def sections_of(task: TaskSettings, predictions: list, examples: list) -> list[str]:
    return FINETUNING[task.kind].card_sections(task, predictions, examples)


@pytest.mark.parametrize(
    ("task", "example", "right", "wrong", "row"),
    [
        (
            ONE,
            SPAN,
            {"answer": "Jane", "score": 0.9},
            {"answer": "", "score": 0.0},
            "| who? | missed answer | Jane | (no answer) |",
        ),
        (
            ONE,
            SPAN,
            {"answer": "the JANE.", "score": 0.9},
            {"answer": "Jane wrote", "score": 0.1},
            "| who? | wrong span | Jane | Jane wrote |",
        ),  # as the scorer has it: case, articles, marks
        (
            TWO,
            NONE,
            {"answer": "", "score": 0.0, "null_score": 1.0},
            {"answer": "Jane", "score": 0.1, "null_score": -1.0},
            "| who? | invented answer | (no answer) | Jane |",
        ),
        (
            MultipleChoiceSettings(),
            CHOICE,
            {"choice": 0, "probabilities": [0.9, 0.1]},
            {"choice": 1, "probabilities": [0.2, 0.8]},
            "| q | x | y |",
        ),
        (
            RegressorSettings(),
            TextExample("a", "b", 2.0),
            {"score": 2.0},
            {"score": 4.5},
            "| a ‖ b | 2.00 | 4.50 |",
        ),
        (
            ClassifierSettings(("no", "yes")),
            TextExample("a|b", label=1),
            {"label": "yes", "score": 0.9},
            {"label": "no", "score": 0.8},
            r"| a\|b | yes | no |",
        ),
    ],
)
def test_mistakes(task: TaskSettings, example: object, right: dict, wrong: dict, row: str):
    table = sections_of(task, [right, wrong], [example, example])[-1]
    assert table.splitlines()[2:] == [row]


def test_the_number_that_is_furthest_from_the_label_is_the_worst():
    """2 too high, 1 too low, right, and 3 too high."""
    rows = [(-1.0, 1.0), (3.0, 2.0), (7.0, 7.0), (-2.0, 1.0)]
    examples = [TextExample(f"text {i}", label=label) for i, (label, _) in enumerate(rows)]
    (*_, table) = sections_of(RegressorSettings(), [{"score": s} for _, s in rows], examples)
    assert [row.split(" | ")[0] for row in table.splitlines()[2:]] == [
        "| text 3",
        "| text 0",
        "| text 1",
    ]


def test_labels_by_hand():
    """Label a: 1 of 2 found, one wrong; b: 1 of 1, none wrong. The worst is most wrong.

    Of the second row, a is missed with an error of 0.6; of the third, a is invented with one of
    0.9.
    """
    task = MultiLabelSettings(("a", "b"), thresholds=(0.5, 0.25))
    rows = [
        ("x", (0, 1), ["b", "a"], (0.8, 0.9)),
        ("y", (0,), [], (0.4, 0.1)),
        ("z", (), ["a"], (0.9, 0.2)),
    ]
    examples = [TextExample(text, label=right) for text, right, _, _ in rows]
    predictions = [
        {"labels": given, "probabilities": dict(zip("ab", values, strict=True))}
        for _, _, given, values in rows
    ]
    parts = sections_of(task, predictions, examples)
    assert parts[0::2] == ["## Labels", "## Worst mistakes"]
    assert parts[1].splitlines() == [
        "|  | examples | precision | recall | F1 | threshold |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
        "| a | 2 | 0.5000 | 0.5000 | 0.5000 | 0.5000 |",
        "| b | 1 | 1.0000 | 1.0000 | 1.0000 | 0.2500 |",
    ]
    assert parts[3].splitlines()[2:] == ["| z | (no label) | a |", "| y | a | (no label) |"]


def test_mistakes_of_every_kind_are_shown():
    """Of 20 missed answers, 2 invented and 1 wrong: in turns, the surest of each kind first."""
    predictions = [{"answer": "", "score": 0.0, "null_score": i} for i in range(20)]
    examples = [SPAN] * 20
    for example, scores in ((NONE, (0.3, 0.4)), (SPAN, (0.1,))):
        predictions += [{"answer": "wrote", "score": s, "null_score": -1.0} for s in scores]
        examples += [example] * len(scores)
    count, table = sections_of(TWO, predictions, examples)[-2:]
    listed = "20 x missed answer, 2 x invented answer, 1 x wrong span"
    assert count == f"23 of 23 answers do not match exactly: {listed}."
    kinds = [line.split(" | ")[1].split()[0] for line in table.splitlines()[2:]]
    assert kinds == ["missed", "invented", "wrong", "missed", "invented", *["missed"] * 5]


def test_a_label_with_a_bar_is_one_cell():
    task = ClassifierSettings(("a|b", "c"))
    parts = sections_of(task, [{"label": "c", "score": 1.0}], [TextExample("x", label=0)])
    confusion = parts[parts.index("## Confusion") + 2].splitlines()
    assert confusion[0] == r"|  | a\|b | c |"
    assert confusion[2:] == [r"| a\|b | 0 | 1 |", "| c | 0 | 0 |"]


def test_classes_by_hand():
    """Label a: 3 of 4 found, one b mislabeled a; precision and recall are 3/4.

    Label b: 1 of 2 found, one a mislabeled b; both are 1/2. Nothing is c: 0.
    """
    answers = dict(zip("123456", "aaabab", strict=True))
    task = ClassifierSettings(("a", "b", "c"))
    examples = [TextExample("", label=0)] * 4 + [TextExample("", label=1)] * 2
    predictions = [{"label": label, "score": 0.5} for label in answers.values()]
    parts = sections_of(task, predictions, examples)
    assert parts[parts.index("## Classes") + 1].splitlines() == [
        "|  | examples | precision | recall | F1 |",
        "| --- | ---: | ---: | ---: | ---: |",
        "| a | 4 | 0.7500 | 0.7500 | 0.7500 |",
        "| b | 2 | 0.5000 | 0.5000 | 0.5000 |",
        "| c | 0 | 0.0000 | 0.0000 | 0.0000 |",
    ]
    assert of_classes(["a"], [])[0].endswith("| a | 0 | 0.0000 | 0.0000 | 0.0000 |")


@pytest.mark.parametrize(
    ("name", "kind", "result", "pipeline", "language", "metrics"),
    [
        (
            "mnli",
            "classifier",
            {"accuracy": 0.8, "accuracy_mismatched": 0.7, "loss": 0.5},
            "text-classification",
            "en",
            [[("accuracy", 0.8)], [("accuracy", 0.7)]],
        ),
        (
            "multi_label",
            "multi_label",
            {"macro_f1": 0.5, "micro_f1": 0.25, "average_precision": 0.75},
            "text-classification",
            None,
            [[("f1", 0.5), ("f1", 0.25), ("average_precision", 0.75)]],
        ),
        (
            "text_regression",
            "regressor",
            {"pearson": 0.5, "spearman": 0.25},
            "text-classification",
            None,
            [[("pearsonr", 0.5), ("spearmanr", 0.25)]],
        ),
        (
            "squad1",
            "span",
            {"f1": 0.5, "exact_match": 0.25},
            "question-answering",
            None,
            [[("f1", 0.5), ("exact_match", 0.25)]],
        ),
        (
            "race",
            "multiple_choice",
            {"accuracy": 0.5},
            "multiple-choice",
            "en",
            [[("accuracy", 0.5)]],
        ),
    ],
)
def test_the_header_is_the_hub_s_yaml(name, kind, result, pipeline, language, metrics):
    config = {"name": name, "task": {"kind": kind}}
    dev = ("matched", "mismatched") if name == "mnli" else ("dev",)
    text = hub_header("runs/the run/", config, result, dev)
    assert text.startswith("---\n") and text.endswith("\n---")
    header = yaml.safe_load(text.strip("-"))
    assert (header["pipeline_tag"], header.get("language")) == (pipeline, language)
    assert header["library_name"] == "albert_tf" and "license" not in header
    assert header["metrics"] == sorted({name for each in metrics for name, _ in each})
    (model,) = header["model-index"]
    assert model["name"] == "the run"
    for each, part, scores in zip(model["results"], dev, metrics, strict=True):
        assert each["task"] == {"type": pipeline}
        assert each["dataset"] == {"name": name, "type": name, "split": part}
        assert [(metric["type"], metric["value"]) for metric in each["metrics"]] == scores


def test_the_card_has_errors_and_baselines_beside_the_scores(start: str, tmp_path: pathlib.Path):
    """Loss, errors and baselines beside the scores; path, commit, and how often they were read."""
    task = ClassifierSettings(labels=("no", "yes"))
    run = RunDir(leave_run(start, tmp_path / "run", "text_classification", task))
    config = run.config() | {
        "init": start,
        "data": "0",
        "seed": 1,
        "training": vars(TrainingConfig()),
    }
    pathlib.Path(run.config_path).write_text(json.dumps(config))
    environment = json.loads(pathlib.Path(run.environment_path).read_text())
    pathlib.Path(run.environment_path).write_text(json.dumps(environment | {"commit": "abc"}))
    examples = [TextExample("x", label=1)] * 40
    predictions = [{"label": "yes", "score": 0.9}] * 40
    result = {
        "metric": "accuracy",
        "training_precision": "float32",
        "accuracy": 1.0,
        "loss": 0.1054,
        "baseline": 0.5,
        "baselines": {"accuracy": 0.5},
        "standard_error": 0.0,
        "standard_errors": {"accuracy": 0.0},
        "dev_examples": 40,
        "train_examples": 100,
        "steps": 60,
        "best_step": 20,
        "evaluations": 3,
        "seconds": 1.5,
    }

    def text(**changes: object) -> str:
        data, source = Data(task, examples, {"dev": examples}), Source(str(tmp_path))
        card.write(run, data, source, result | changes, predictions)
        return pathlib.Path(run.card_path).read_text(encoding="utf-8")

    full = text()
    assert yaml.safe_load(full.split("---\n")[1])["model-index"][0]["name"] == "run"
    assert "|  | value | standard error | baseline |" in full
    assert "| accuracy | 1.0000 |  | 0.5000 |" in full and "| loss | 0.1054 |  |  |" in full
    assert f"on 100 examples of `{tmp_path}`" in full and "commit `abc`" in full
    assert "step 20 of 60, with the best `accuracy` of 3 evaluations on these same" in full
    assert "always `yes`, the most frequent label in training" in full
    assert "There are 40 examples." in full
    before, _, settings = full.partition("## Settings")
    assert "float32" not in full and "threshold" not in before
    assert "| training.epochs | 3.0 |" in settings and "| task.pooling | cls |" in settings
    assert "training.steps" not in settings and "training.warmup_steps" not in settings
    steps = vars(TrainingConfig(steps=60, warmup_steps=0))
    pathlib.Path(run.config_path).write_text(json.dumps(config | {"training": steps}))
    settings = text().partition("## Settings")[2]
    assert "| training.steps | 60 |" in settings and "| training.warmup_steps | 0 |" in settings
    assert "training.epochs" not in settings and "training.warmup_fraction" not in settings
    chosen = text(training_precision="mixed_bfloat16", thresholds="The best for 17.")
    assert "in float32, those of the plots in mixed_bfloat16. The best for 17." in chosen
    less = text(accuracy=0.9, standard_errors={"accuracy": 0.0474})
    assert "| accuracy | 0.9000 | 0.0474 | 0.5000 |" in less
    few = text(evaluations=1, dev_examples=29, standard_errors={})
    assert "29 examples, too few for standard errors" in few and "same examples" not in few


def test_the_location_of_examples_of_tfds():
    assert Source(None, True).location == "TFDS"
    assert Source("/a", True).location == "TFDS in `/a`"


def test_scores_beside_those_at_the_default_threshold():
    scores = {"macro_f1": 0.5, "average_precision": 0.4}
    table = card._scores("multi_label", scores | {"at_default_threshold": {"macro_f1": 0.25}})
    assert "|  | value | at threshold 0.5 |" in table
    assert "| macro_f1 | 0.5000 | 0.2500 |" in table
    assert "| average_precision | 0.4000 |  |" in table
