"""Runs from the command line's options: seeds, cards, caches, recipes, what is refused."""

import contextlib
import dataclasses
import json
import math
import os
import pathlib
import shutil
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.checkpoints import weights_fingerprint
from albert_tf.models.encoder import load_encoder
from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.features import Features
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.texts import featurize_texts
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from finetuning import train
from finetuning.datasets import DATASETS, TRAINED
from finetuning.datasets.choices.race import RACE
from finetuning.datasets.dataset import Source
from finetuning.datasets.glue import GLUE
from finetuning.datasets.spans.squad import SQUAD
from finetuning.datasets.text_classification import TextClassification
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import report
from finetuning.train import FinetuneOptions, main
from finetuning.training.config import FinetuneConfig, Plan, TrainingConfig
from finetuning.training.feature_cache import features_of
from finetuning.training.starting_point import StartingPoint
from tests.finetuning.conftest import QUICK


def test_every_seed_learns_and_leaves_a_whole_run(tuned: pathlib.Path, fruit: str):
    for number in (0, 1):
        run = RunDir(str(tuned / f"seed-{number}"))
        result, config = run.result(), run.config()
        assert result["accuracy"] > 0.9 > result["baseline"]
        assert config["seed"] == number and config["task"]["labels"] == ["fruit", "tool"]
        assert [row["step"] for row in run.metrics()] == [20, 40, 60]
        best = max(run.metrics(), key=lambda row: (row["dev/accuracy"], -row["dev/loss"]))
        assert (best["step"], best["dev/accuracy"]) == (result["best_step"], result["accuracy"])
        card = pathlib.Path(run.card_path).read_text(encoding="utf-8")
        assert "## Confusion" in card and f"{result['accuracy']:.4f}" in card
        assert f'`albert_tf.load_predictor("{run.path}")`' in card
        rows = pathlib.Path(run.predictions_path("dev")).read_text(encoding="utf-8").splitlines()
        right = sum(
            row["example"]["label"] == row["prediction"]["label"] for row in map(json.loads, rows)
        )
        assert right / len(rows) == pytest.approx(result["accuracy"])
        likelihoods = [
            row["prediction"]["probabilities"][row["example"]["label"]]
            for row in map(json.loads, rows)
        ]
        assert result["loss"] == pytest.approx(-np.mean(np.log(likelihoods)), rel=1e-4)
        assert result["loss"] == pytest.approx(best["dev/loss"], rel=1e-2)  # in bfloat16
        assert f"| loss | {result['loss']:.4f} |" in card and f"examples of `{fruit}`" in card
        assert not pathlib.Path(run.training_path).exists()


def test_the_seeds_are_summarized(tuned: pathlib.Path):
    summary = json.loads((tuned / "seeds.json").read_text())["accuracy"]
    values = [RunDir(str(tuned / f"seed-{i}")).result()["accuracy"] for i in (0, 1)]
    assert summary["median"] == pytest.approx(sum(values) / 2)
    assert (summary["min"], summary["max"]) == (min(values), max(values))


def test_a_run_that_cannot_be_plotted_does_not_begin(start, fruit, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    run = tmp_path / "run"
    with pytest.raises(InputError, match="plotting needs the package matplotlib"):
        main(FinetuneOptions("text_classification", str(run), fruit, init=start, set=QUICK))
    assert not run.exists()


@pytest.mark.parametrize("values", [[0.5, math.nan], [math.nan, 0.5]])
def test_where_a_seed_has_no_score_there_is_no_summary(tmp_path: pathlib.Path, values):
    shown = report.summarize(str(tmp_path), [{"spearman": value} for value in values])
    assert f"| spearman | {' | '.join(['nan'] * 5)} |" in shown


def test_all_seeds_are_valid_before_the_first_is_trained(fruit: str, start: str, tmp_path):
    options = FinetuneOptions("text_classification", str(tmp_path / "r"), fruit, init=start)
    options = dataclasses.replace(options, seeds=2, set=(*QUICK, f"seed={2**31 - 1}"))
    with pytest.raises(ConfigError, match="`?seed`? must be in"):
        main(options)
    assert not (tmp_path / "r").exists()


def test_features_are_read_from_the_cache(
    tuned: pathlib.Path, fruit: str, start: str, monkeypatch: pytest.MonkeyPatch
):
    task = DATASETS["text_classification"]
    data = task.read(Source(fruit))
    config = RunDir(str(tuned / "seed-0")).config()
    section = type(data.task)(labels=tuple(config["task"]["labels"]), seq_length=32)
    tokenizer = StartingPoint.of(start, None, None).tokenizer

    def never(*_: object) -> Features:
        raise AssertionError("the features were in the cache")

    with monkeypatch.context() as patch:
        patch.setattr(type(KINDS["classifier"]), "featurize", never)
        cached = features_of(data.train, tokenizer, section, str(tuned.parent / "features"))
        with pytest.raises(AssertionError, match="in the cache"):
            features_of(data.train[1:], tokenizer, section, str(tuned.parent / "features"))
    assert_same(cached, featurize_texts(data.train, tokenizer, section))


def assert_same(one: Any, other: Any) -> None:
    """Dataclasses, mappings and arrays of equal values."""
    assert type(one) is type(other)
    if dataclasses.is_dataclass(one):
        one, other = (
            {f.name: getattr(e, f.name) for f in dataclasses.fields(e)} for e in (one, other)
        )
    if isinstance(one, dict):
        assert one.keys() == other.keys()
        for key in one:
            assert_same(one[key], other[key])
    else:
        np.testing.assert_array_equal(one, other)
        assert getattr(one, "dtype", None) == getattr(other, "dtype", None)


def test_a_cache_cannot_run_code(begin: StartingPoint, tmp_path: pathlib.Path, capsys):
    """Spans have the most kinds of fields; a pickle in the place of arrays is refused."""
    examples = [SpanExample("Which?", "An apple, a plum and a pear.", "1", ((3, "apple"),))]
    task, folder = SpanSettings(seq_length=16, doc_stride=4), str(tmp_path / "cache")
    made, read = (features_of(examples, begin.tokenizer, task, folder) for _ in range(2))
    assert_same(made, read)
    (path,) = (tmp_path / "cache").iterdir()
    assert path.stat().st_mode & 0o777 == 0o666 & ~umask()
    with np.load(path, allow_pickle=False) as arrays:
        values = dict(arrays)
    np.savez(path, **values | {"lost": np.array([{"a": 1}], object)})
    archive = path.read_bytes()
    header = archive.replace(b"{'descr'", b"{\0descr'", 1)  # NumPy raises a TokenError
    assert header != archive
    for content in (archive, b"no archive", header):
        path.write_bytes(content)
        assert_same(made, features_of(examples, begin.tokenizer, task, folder))
        printed = capsys.readouterr().out
        assert "must hold features written by this program" in printed
        assert "The features are made again." in printed


def umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize(
    ("name", "values", "words"),
    [
        ("metric", ("training.metric=recall",), "accuracy, macro_f1. Received: 'recall'"),
        ("cache", (), "--cache_dir must be a folder. Received: .*, a file"),
    ],
)
def test_invalid_options_are_refused_before_anything_is_computed(
    name: str, values: tuple, words: str, start: str, fruit: str, tmp_path: pathlib.Path
):
    (tmp_path / "file").touch()
    cache = {"cache_dir": str(tmp_path / "file")} if name == "cache" else {}
    run = tmp_path / "run"
    options = FinetuneOptions(
        "text_classification", str(run), fruit, init=start, set=(*QUICK, *values), **cache
    )
    with pytest.raises(InputError, match=words):
        main(options)
    assert not run.exists()


@pytest.mark.slow
@pytest.mark.parametrize(("metric", "kept"), [("accuracy", "ckpt-2"), ("macro_f1", "ckpt-4")])
def test_the_weights_with_the_best_metric_are_kept(
    metric: str, kept: str, start: str, fruit: str, tmp_path: pathlib.Path, monkeypatch
):
    """Of two evaluations the first has the better accuracy, the second the better macro F1."""
    scores = [{"accuracy": 0.9, "macro_f1": 0.1}, {"accuracy": 0.2, "macro_f1": 0.8}]

    class Scripted(TextClassification):
        def score(self, *_: object) -> dict[str, float]:
            return scores.pop(0) if scores else {"accuracy": 0.5, "macro_f1": 0.5}

    for datasets in (DATASETS, TRAINED):
        monkeypatch.setitem(datasets, "text_classification", Scripted())
    chosen = ("training.steps=4", "training.evaluate_every=2", f"training.metric={metric}")
    chosen = (*chosen, "training.batch_size=8", "task.seq_length=32")
    run = RunDir(str(tmp_path / "run"))
    main(FinetuneOptions("text_classification", run.path, fruit, init=start, set=chosen))
    assert tf.train.latest_checkpoint(run.checkpoints_path).endswith(kept)
    assert run.result()["metric"] == metric
    assert run.result()["best_step"] == int(kept.removeprefix("ckpt-"))


def test_a_run_that_has_not_ended_is_begun_from_only_if_asked(start: str, tmp_path: pathlib.Path):
    shutil.copytree(start, tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    with pytest.raises(InputError, match=r"--init=.*begun has not ended.*--unfinished"):
        StartingPoint.of(str(tmp_path / "begun"), None, None)
    assert StartingPoint.of(str(tmp_path / "begun"), None, None, unfinished=True).path


def test_a_finished_run_is_left_alone_and_another_configuration_refused(
    tuned: pathlib.Path, fruit: str, start: str, capsys: pytest.CaptureFixture
):
    same = FinetuneOptions(
        "text_classification", str(tuned / "seed-0"), fruit, init=start, set=QUICK
    )
    main(same)
    assert "already complete" in capsys.readouterr().out
    other = FinetuneOptions(
        "text_classification",
        str(tuned / "seed-0"),
        fruit,
        init=start,
        set=(*QUICK, "training.learning_rate=0.5"),
    )
    with pytest.raises(InputError, match=r"training.learning_rate: 0.002 != 0.5"):
        main(other)


def test_a_finished_run_from_weights_that_have_changed_is_refused(
    tuned: pathlib.Path, fruit: str, start: str, tmp_path: pathlib.Path
):
    """As after an update of an included model."""
    run = RunDir(str(shutil.copytree(tuned / "seed-0", tmp_path / "run")))
    options = FinetuneOptions("text_classification", run.path, fruit, init=start, set=QUICK)
    config = run.config()
    assert config["init_weights"] == weights_fingerprint(start)
    model = load_encoder(start)
    model.trainable_variables[0].assign_add(tf.ones_like(model.trainable_variables[0]))
    tf.train.Checkpoint(model=model).save(str(tmp_path / "checkpoints" / "ckpt"))
    changed = config | {"init_weights": weights_fingerprint(str(tmp_path))}
    outputs.write_json(run.config_path, changed)
    with pytest.raises(InputError, match="the weights of --init have changed since the run began"):
        main(options)


def test_the_same_weights_elsewhere_are_the_same_run(
    tuned: pathlib.Path, fruit: str, start: str, tmp_path: pathlib.Path, capsys
):
    """As after a move of both folders."""
    run, moved = tmp_path / "run", tmp_path / "start"
    shutil.copytree(tuned / "seed-0", run)
    shutil.copytree(start, moved)
    main(FinetuneOptions("text_classification", str(run), fruit, init=str(moved), set=QUICK))
    assert "already complete" in capsys.readouterr().out


@pytest.mark.parametrize("random", ["", "random:"])
def test_an_included_model_is_recorded_by_its_name(random: str):
    """Its path is that of an installation."""
    for path in (name := "albert-mini-en", os.path.join(pretrained.FOLDER, name)):
        assert StartingPoint.of(random + path, None, None).origin == random + name


def test_a_run_with_another_vocabulary_is_refused(
    tuned: pathlib.Path, fruit: str, start: str, tmp_path: pathlib.Path
):
    """As after an update of an included model's vocabulary, which leaves its weights."""
    run = RunDir(str(shutil.copytree(tuned / "seed-0", tmp_path / "run")))
    options = FinetuneOptions("text_classification", run.path, fruit, init=start, set=QUICK)
    main(options)
    older = load_tokenizer(start)
    rules = dataclasses.replace(older.normalization, unify_quotes=True)
    Tokenizer(older.model, rules).save(run.tokenizer_path)
    with pytest.raises(InputError, match="run was begun with another vocabulary"):
        main(options)


def files_of(folder: pathlib.Path) -> dict[pathlib.Path, int]:
    return {path: path.stat().st_mtime_ns for path in folder.rglob("*")}


@pytest.fixture
def live(tuned: pathlib.Path, fruit: str, start: str, tmp_path: pathlib.Path) -> FinetuneOptions:
    """The command of a run that has begun and not ended."""
    shutil.copytree(tuned / "seed-0", tmp_path / "run")
    (tmp_path / "run" / "result.json").unlink()
    path = str(tmp_path / "run")
    return FinetuneOptions("text_classification", path, fruit, init=start, set=QUICK)


def test_a_second_process_writes_nothing_into_a_live_run(live: FinetuneOptions):
    run = RunDir(live.run_dir)
    before = files_of(pathlib.Path(run.path))
    with run.locked(), pytest.raises(InputError, match="another process is training this run"):
        main(live)
    assert files_of(pathlib.Path(run.path)) == before


def test_a_run_that_finishes_before_the_lock_is_left_alone(
    live: FinetuneOptions, tuned: pathlib.Path, capsys
):
    """It ends between the look at result.json and the lock."""
    before = files_of(pathlib.Path(live.run_dir))

    class Ending(RunDir):
        def locked(self) -> contextlib.AbstractContextManager:
            self.finish(RunDir(str(tuned / "seed-0")).result())
            return super().locked()

    main(live, Ending)
    assert "is already complete: dev accuracy" in capsys.readouterr().out
    after = files_of(pathlib.Path(live.run_dir))
    after.pop(pathlib.Path(live.run_dir, "result.json"))
    assert after.keys() == before.keys()


def test_a_vocabulary_of_another_language_is_told(start: str, tmp_path: pathlib.Path, capsys):
    """All of the pieces of the Chinese part are unknown, and none of the English one."""
    texts = {"train": "红楼梦\tyes\n满纸荒唐言\tno\n", "dev": "a file\tyes\na name\tno\n"}
    for part, rows in texts.items():
        (tmp_path / f"{part}.tsv").write_text(f"text\tlabel\n{rows}", encoding="utf-8")
    options = FinetuneOptions(
        "text_classification", str(tmp_path / "run"), str(tmp_path), init=start, set=QUICK[:2]
    )
    main(dataclasses.replace(options, dry_run=True))
    (line,) = (line for line in capsys.readouterr().out.splitlines() if "unknown" in line)
    assert line.startswith("train: ")
    note = "of the pieces are unknown to the vocabulary: 1 of 红 (U+7EA2), 1 of 楼"
    assert note in line
    assert line.endswith(", and 3 other characters. Check that the encoder is for such text.")


def test_the_paper_s_recipe_gives_way_to_the_user():
    """CoLA in Table 14: 5,336 steps, 320 of them warm-up."""

    def recipe(*assignments: str, name: str = "paper") -> dict:
        options = FinetuneOptions("cola", "r", recipe=name, set=assignments)
        return train.recipe_of(DATASETS["cola"], options)

    paper = recipe()
    assert (paper["training.steps"], paper["training.learning_rate"]) == (5336, 1e-5)
    values = TrainingConfig(steps=5336, warmup_fraction=paper["training.warmup_fraction"])
    assert Plan.of(values, 8551).warmup_steps == 320
    assert "training.steps" not in recipe("training.epochs=2")
    assert "training.steps" not in recipe(" training.epochs = 2")
    assert recipe(name="none") == {}
    with pytest.raises(InputError, match="--recipe must be one of paper, few_labels, none"):
        recipe(name="google")


def test_the_recipes_read_the_dev_examples_as_often_as_the_reference():
    """run_glue.sh, run_race.py and the SQuAD programs: `save_checkpoints_steps`."""
    paper = {name: task for name, task in {**GLUE, **RACE, **SQUAD}.items() if name != "ax"}
    every = {name: task.recipe.get("training.evaluate_every") for name, task in paper.items()}
    others = {"qnli": 200, "squad1": 1000, "squad2": 1000}
    assert every == dict.fromkeys(paper, 100) | others
    assert DATASETS["squad2"].recipe["training.metric"] == "best_f1"
    assert "best_f1" in DATASETS["squad2"].metrics


@pytest.mark.parametrize(
    ("values", "units", "plan"),
    [
        (TrainingConfig(epochs=3, batch_size=32), 320, Plan(30, 3, 6)),
        (TrainingConfig(epochs=10, batch_size=32), 320, Plan(100, 10, 10)),
        (TrainingConfig(epochs=0.1, batch_size=32), 32, Plan(1, 0, 1)),
        (TrainingConfig(steps=50, warmup_steps=7, evaluate_every=80), 32, Plan(50, 7, 50)),
        (TrainingConfig(steps=1, warmup_fraction=0.6), 32, Plan(1, 0, 1)),
    ],
)
def test_a_plan_in_steps(values: TrainingConfig, units: int, plan: Plan):
    assert Plan.of(values, units) == plan


def test_a_warm_up_that_is_too_long():
    with pytest.raises(ConfigError, match=r"warmup_steps.*Received: 60, and 50 steps"):
        Plan.of(TrainingConfig(steps=50, warmup_steps=60), 32)


@pytest.mark.slow
def test_an_exported_encoder_is_a_start(exports: pathlib.Path):
    path = str(exports / "encoder" / "1")
    begin = StartingPoint.of(path, None, None)
    model = begin.model(FinetuneConfig(begin.config, ClassifierSettings(("a", "b"))))
    for mine, theirs in zip(model.encoder.weights, load_encoder(path).weights, strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_where_to_start_from(tuned: pathlib.Path, start: str):
    with pytest.raises(InputError, match="either --init or --init_from_task"):
        StartingPoint.of(None, None, None)
    with pytest.raises(
        InputError, match="must be a fine-tuned run. Received: a run of kind 'pretraining"
    ):
        StartingPoint.of(None, start, None)
    assert StartingPoint.of(None, str(tuned / "seed-0"), None).is_task


def test_a_vocabulary_of_another_model(start: str, tmp_path: pathlib.Path):
    vocabulary = tmp_path / "vocab.txt"
    vocabulary.write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a"]))
    with pytest.raises(
        InputError, match=r"--tokenizer=.*must be the vocabulary in .*Received: a different one"
    ):
        StartingPoint.of(start, None, str(vocabulary))


def test_the_head_of_the_same_task_is_kept(tuned: pathlib.Path, fruit: str):
    from albert_tf.tasks.predictor import load_task_model
    from finetuning.training.starting_point import resolve

    path = str(tuned / "seed-1")
    begin = StartingPoint.of(None, path, None)
    data = DATASETS["text_classification"].read(Source(fruit))
    config = resolve(begin, data, {}, ("task.seq_length=32",), "cpu")
    kept = begin.model(config).head.get_weights()[0]
    assert (kept == load_task_model(path).head.get_weights()[0]).all()
    new = StartingPoint.of(path, None, None).model(config).head.get_weights()[0]
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
    errors = FINETUNING["classifier"].standard_errors(DATASETS["cola"], answers, examples)
    assert errors["mcc"] == pytest.approx(1 / 20, rel=0.2)


def test_a_random_start_has_the_shape_of_its_run(start: str):
    given = StartingPoint.of(start, None, None)
    random = StartingPoint.of(f"random:{start}", None, None)
    assert random.origin == f"random:{given.origin}" and given.origin == start
    config = FinetuneConfig(given.config, ClassifierSettings(("a", "b")))
    tf_keras.utils.set_random_seed(2)
    first, second, trained = (point.model(config).encoder for point in (random, random, given))
    for a, b in zip(trained.weights, load_encoder(start).weights, strict=True):
        np.testing.assert_array_equal(a, b)
    kernel = "attention_0/query/kernel:0"
    kernels = [
        next(w.numpy() for w in encoder.weights if w.name.endswith(kernel))
        for encoder in (first, second, trained)
    ]
    assert all(abs(each).max() <= 2 * given.config.initializer_range for each in kernels[:2])
    assert (kernels[0] != kernels[1]).any() and (kernels[0] != kernels[2]).any()
    with pytest.raises(InputError, match="--init_from_task must not begin with random:"):
        StartingPoint.of(None, f"random:{start}", None)
