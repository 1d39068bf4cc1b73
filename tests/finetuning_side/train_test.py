"""Runs from the command line's options: seeds, cards, caches, recipes, what is refused."""

import json
import pathlib

import pytest

from albert_tf.errors import ConfigError, InputError
from albert_tf.runs import RunDir
from albert_tf.tasks.features import Features
from finetuning import report, train
from finetuning.config import Plan, TrainingConfig
from finetuning.feature_cache import features_of
from finetuning.start import Start
from finetuning.task import Source
from finetuning.tasks import TASKS
from finetuning.train import FinetuneOptions, main
from tests.finetuning_side.conftest import QUICK


def test_every_seed_learns_and_leaves_a_whole_run(tuned: pathlib.Path):
    for number in (0, 1):
        run = RunDir(str(tuned / f"seed-{number}"))
        result, config = run.result(), run.config()
        assert result["accuracy"] > 0.9 > result["baseline"]
        assert config["seed"] == number and config["task"]["labels"] == ["fruit", "tool"]
        assert [row["step"] for row in run.metrics()] == [20, 40, 60]
        best = max(run.metrics(), key=lambda row: row["dev/accuracy"])
        assert (best["step"], best["dev/accuracy"]) == (result["best_step"], result["accuracy"])
        card = pathlib.Path(run.card_path).read_text(encoding="utf-8")
        assert "## Confusion" in card and f"{result['accuracy']:.4f}" in card
        rows = pathlib.Path(run.predictions_path("dev")).read_text(encoding="utf-8").splitlines()
        right = sum(
            row["example"]["label"] == row["prediction"]["label"] for row in map(json.loads, rows)
        )
        assert right / len(rows) == pytest.approx(result["accuracy"])
        assert not pathlib.Path(run.training_path).exists()


def test_the_seeds_are_summarized(tuned: pathlib.Path):
    summary = json.loads((tuned / "seeds.json").read_text())["accuracy"]
    values = [RunDir(str(tuned / f"seed-{i}")).result()["accuracy"] for i in (0, 1)]
    assert summary["median"] == pytest.approx(sum(values) / 2)
    assert (summary["min"], summary["max"]) == (min(values), max(values))


def test_features_are_read_from_the_cache(tuned: pathlib.Path, fruit: str, start: str, monkeypatch):
    task = TASKS["text_classification"]
    data = task.read(Source(fruit))
    config = RunDir(str(tuned / "seed-0")).config()
    section = type(data.task)(labels=tuple(config["task"]["labels"]), seq_length=32)
    tokenizer = Start.of(start, None, None).tokenizer

    def never(*_: object) -> Features:
        raise AssertionError("the features were in the cache")

    kind = type("Kind", (), {"featurize": staticmethod(never)})
    monkeypatch.setattr("finetuning.feature_cache.KINDS", {"classifier": kind})
    cached = features_of(data.train, tokenizer, section, str(tuned.parent / "features"))
    assert len(cached) == len(data.train)
    with pytest.raises(AssertionError, match="in the cache"):
        features_of(data.train[1:], tokenizer, section, str(tuned.parent / "features"))


def test_a_finished_run_is_left_alone_and_another_configuration_refused(
    tuned: pathlib.Path, fruit: str, start: str, capsys: pytest.CaptureFixture
):
    same = FinetuneOptions(
        "text_classification", str(tuned / "seed-0"), fruit, init=start, set=QUICK
    )
    main(same)
    assert "already complete" in capsys.readouterr().out
    other = FinetuneOptions(
        "text_classification", str(tuned / "seed-0"), fruit, init=start,
        set=(*QUICK, "training.learning_rate=0.5"),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"training.learning_rate: 0.002 != 0.5"):
        main(other)


def test_the_paper_s_recipe_gives_way_to_the_user(start: str):
    """CoLA in Table 14: 5,336 steps, 320 of them warm-up."""

    def recipe(*assignments: str, name: str = "paper") -> dict:
        options = FinetuneOptions("cola", "r", recipe=name, set=assignments)
        return train.recipe_of(TASKS["cola"], options)

    paper = recipe()
    assert (paper["training.steps"], paper["training.learning_rate"]) == (5336, 1e-5)
    values = TrainingConfig(steps=5336, warmup_fraction=paper["training.warmup_fraction"])
    assert Plan.of(values, 8551).warmup_steps == 320
    assert "training.steps" not in recipe("training.epochs=2")
    assert recipe(name="none") == {}
    with pytest.raises(InputError, match="--recipe must be paper or none"):
        recipe(name="google")


@pytest.mark.parametrize(
    ("values", "units", "plan"),
    [
        (TrainingConfig(epochs=3, batch_size=32), 320, Plan(30, 3, 6)),
        (TrainingConfig(epochs=10, batch_size=32), 320, Plan(100, 10, 10)),
        (TrainingConfig(epochs=0.1, batch_size=32), 32, Plan(1, 0, 1)),
        (TrainingConfig(steps=50, warmup_steps=7, evaluate_every=80), 32, Plan(50, 7, 50)),
    ],
)
def test_a_plan_in_steps(values: TrainingConfig, units: int, plan: Plan):
    assert Plan.of(values, units) == plan


def test_a_warm_up_that_is_too_long():
    with pytest.raises(ConfigError, match=r"warmup_steps.*Received: 60, and 50 steps"):
        Plan.of(TrainingConfig(steps=50, warmup_steps=60), 32)


def test_where_to_start_from(tuned: pathlib.Path, start: str, tmp_path: pathlib.Path):
    with pytest.raises(InputError, match="either --init or --init_from_task"):
        Start.of(None, None, None)
    with pytest.raises(InputError, match="must be a fine-tuned run. Received: one of 'pretraining"):
        Start.of(None, start, None)
    assert Start.of(None, str(tuned / "seed-0"), None).is_task


def test_a_vocabulary_of_another_model(start: str, tmp_path: pathlib.Path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    with pytest.raises(
        InputError, match=r"--tokenizer=.*must be the vocabulary that .* holds itself"
    ):
        Start.of(start, None, str(vocabulary))


def test_the_head_of_the_same_task_is_kept(tuned: pathlib.Path, fruit: str, start: str):
    from albert_tf.tasks.predictor import load_task_model
    from finetuning.start import resolve

    path = str(tuned / "seed-1")
    begin = Start.of(None, path, None)
    data = TASKS["text_classification"].read(Source(fruit))
    config = resolve(begin, data, {}, ("task.seq_length=32",), "cpu")
    kept = begin.model(config).head.get_weights()[0]
    assert (kept == load_task_model(path).head.get_weights()[0]).all()
    new = Start.of(path, None, None).model(config).head.get_weights()[0]
    assert (new != kept).any()


def test_the_standard_error_of_a_correlation_is_that_of_resamples():
    """Of MCC over n coin tosses it is about 1 / sqrt(n)."""
    import random

    from albert_tf.tasks.examples import TextExample

    rng = random.Random(0)
    examples = [TextExample("", label=rng.randint(0, 1)) for _ in range(400)]
    answers = [
        {"label": str(label), "probabilities": {"0": 1 - label, "1": label}}
        for label in (rng.randint(0, 1) for _ in examples)
    ]
    error = report.standard_error(TASKS["cola"], "classifier", answers, examples)
    assert error == pytest.approx(1 / 20, rel=0.2)
