"""Classifiers from a handful of labelled texts: contrast, then a logistic regression."""

import json
import pathlib

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import albert_tf
from albert_tf.models.encoder import load_encoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.classifier.model import SequenceClassifier
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.predictor import load_task_model, predict
from albert_tf.tasks.texts import featurize_texts
from albert_tf.text.tokenizer import load_tokenizer
from finetuning.kinds.classifier import _texts_of
from finetuning.kinds.logistic_head import STRENGTHS, LogisticHead
from finetuning.kinds.registry import FINETUNING
from finetuning.train import FinetuneOptions, main
from finetuning.training.config import TrainingConfig

FEW = ("training.steps=20", "training.evaluate_every=10", "training.batch_size=16")


def few(folder: pathlib.Path, start: str, data: str, *more: str, **options) -> RunDir:
    given = {"init": start, "recipe": "few_labels", "device": "cpu"} | options
    chosen = (*FEW, "training.learning_rate=0.002", "task.seq_length=32", *more)
    task = given.pop("task", "text_classification")
    main(FinetuneOptions(task, str(folder), data, set=chosen, **given))
    return RunDir(str(folder))


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, start: str, fruit: str) -> RunDir:
    return few(tmp_path_factory.mktemp("few") / "run", start, fruit)


def table(folder: pathlib.Path, counts: dict[str, int]) -> str:
    folder.mkdir()
    for part in ("train", "dev"):
        rows = [f"{label} {i}\t{label}" for label, count in counts.items() for i in range(count)]
        (folder / f"{part}.tsv").write_text("\n".join(["text\tlabel", *rows]) + "\n")
    return str(folder)


def test_it_learns_and_predicts(run: RunDir):
    assert run.result()["accuracy"] == 1.0
    answers = albert_tf.load_predictor(run.path)(["apple plum", "saw hammer file"])
    assert [answer["label"] for answer in answers] == ["fruit", "tool"]
    section = run.section("task")
    assert (section["pooling"], section["loss"]) == ("mean", "contrastive")


def test_the_head_is_the_logistic_regression_of_the_training_texts(run: RunDir, fruit: str):
    model, tokenizer = load_task_model(run.path), load_tokenizer(run.path)
    rows = [line.split("\t") for line in pathlib.Path(fruit, "train.tsv").read_text().splitlines()]
    labels = np.array([model.task.labels.index(label) for _, label in rows[1:]])
    features = featurize_texts([TextExample(text) for text, _ in rows[1:]], tokenizer, model.task)
    vectors = predict(model.text_vectors(), features, 16)
    best = [
        LogisticRegression(C=strength, max_iter=1000).fit(vectors, labels).predict_proba(vectors)
        for strength in (1.0, 10.0, 100.0, 1000.0)
    ]
    logits = predict(model, features, 16)
    ours = np.exp(logits - logits.max(1, keepdims=True))
    ours /= ours.sum(1, keepdims=True)
    assert min(np.abs(ours - theirs).max() for theirs in best) < 1e-3


def test_contrast_brings_texts_of_a_label_together(run: RunDir, start: str):
    def margin(path: str) -> float:
        """The mean cosine within the labels less that between them."""
        embed = albert_tf.load_embedder(path)
        fruits = embed(["apple pear", "plum", "melon cherry"])
        tools = embed(["hammer", "saw file", "drill file"])
        return float((fruits @ fruits.T).mean() - (fruits @ tools.T).mean())

    assert margin(run.path) > margin(start) + 0.3


@pytest.mark.slow
def test_an_interrupted_run_is_resumed(run: RunDir, start: str, fruit: str, tmp_path: pathlib.Path):
    from finetuning.training import fit

    saved, save = [], fit.FinetuningState.save

    def stop(self, step):
        save(self, step)
        saved.append(step)
        raise SystemExit(143)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(fit.FinetuningState, "save", stop)
        few(tmp_path / "run", start, fruit)
    assert saved == [10]
    resumed = few(tmp_path / "run", start, fruit)
    weights = (load_task_model(each.path).get_weights() for each in (resumed, run))
    for ours, theirs in zip(*weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_equal_texts_are_in_one_fold(run: RunDir):
    """Their windows too. A text that is the beginning of another one is another text."""
    task = load_task_model(run.path).task.replace(long_texts="mean", seq_length=6)
    texts = ["apple", "saw hammer file saw hammer", "apple", "saw hammer file saw hammer", "saw"]
    examples = [TextExample(text, label=0) for text in texts]
    features = featurize_texts(examples, load_tokenizer(run.path), task)
    numbers = _texts_of(features)
    assert len(features) > len(texts) and len(numbers) == len(features)
    _, first = np.unique(features.example, return_index=True)
    assert numbers[first].tolist() == [0, 1, 0, 1, 2]
    assert (numbers == numbers[first][features.example]).all()


def test_a_balanced_head_is_that_of_balanced_weights(run: RunDir):
    task = load_task_model(run.path).task
    model = SequenceClassifier(load_encoder(run.path), task).create_weights()
    rng = np.random.default_rng(0)
    labels = np.array([0] * 36 + [1] * 4)
    vectors = rng.normal(size=[40, model.encoder.config.hidden_size]) + 0.5 * labels[:, np.newaxis]
    LogisticHead(model, lambda model: vectors, labels, np.arange(40), "balanced")(model)
    kernel, bias = model.head.get_weights()
    found = vectors @ (kernel[:, 1] - kernel[:, 0]) + bias[1] - bias[0]
    strengths = {
        C: LogisticRegression(C=C, class_weight="balanced", max_iter=1000) for C in STRENGTHS
    }
    wanted = [each.fit(vectors, labels).decision_function(vectors) for each in strengths.values()]
    assert min(np.abs(found - each).max() for each in wanted) < 1e-3


@pytest.mark.parametrize(("setting", "weights"), [("none", None), ("balanced", "balanced")])
def test_the_head_has_the_weights_of_the_training(run: RunDir, setting: str, weights: str | None):
    model, tokenizer = load_task_model(run.path), load_tokenizer(run.path)
    labels = {"saw": 1, "plum": 0, "a hammer": 1, "a pear": 0, "file": 1, "saw and file": 1}
    texts = [TextExample(text, label=label) for text, label in labels.items()]
    features = featurize_texts(texts, tokenizer, model.task)
    training = TrainingConfig(class_weights=setting)
    solver, found = FINETUNING["classifier"].head_solver(model, features, training), []
    vectors_of = lambda model: predict(model.text_vectors(), features, 4)  # noqa: E731
    wanted = LogisticHead(model, vectors_of, features.targets["label"], features.example, weights)
    for head in (solver, wanted):
        head(model)
        found.append(model.head.get_weights()[1])
    np.testing.assert_allclose(*found, atol=1e-4)  # the vectors are of other batch sizes


def test_windows_of_a_text_are_in_one_fold(run: RunDir):
    """Labels are random, and windows copies: who knows a text's other windows is right."""
    model = SequenceClassifier(load_encoder(run.path), load_task_model(run.path).task)
    rng = np.random.default_rng(0)
    vectors = np.repeat(rng.normal(size=[60, model.encoder.config.hidden_size]), 5, axis=0)
    labels = np.repeat(rng.permutation(60) % 2, 5)
    of_texts = LogisticHead(model, lambda model: vectors, labels, np.repeat(np.arange(60), 5))
    of_windows = LogisticHead(model, lambda model: vectors, labels, np.arange(300))
    assert of_texts.accuracy < 0.75 < 0.95 < of_windows.accuracy


def test_a_label_with_one_text_is_refused(start: str, tmp_path: pathlib.Path):
    data = table(tmp_path / "data", {"a": 5, "b": 1, "c": 4})
    file = tmp_path / "data" / "train.tsv"
    file.write_text(file.read_text().replace("\tb", " and so on, for many windows of text\tb"))
    with pytest.raises(ConfigError) as caught:
        few(tmp_path / "run", start, data, "task.seq_length=8", "task.long_texts=mean")
    assert str(caught.value) == (
        "`task.loss` contrastive needs at least 2 different training texts of each label (texts of "
        "the same pieces count once). Received: fewer of b. Add some, use more of them "
        "(--max_train_examples and --dev_fraction leave some out), or set task.loss=cross_entropy."
    )
    assert not (tmp_path / "run").exists()


def test_a_text_that_repeats_counts_once(start: str, tmp_path: pathlib.Path):
    """Also in other letters of the same pieces."""
    data = table(tmp_path / "data", {"a": 5, "b": 1})
    with open(tmp_path / "data" / "train.tsv", "a", encoding="utf-8") as file:
        file.write("b 0\tb\nB 0\tb\n")
    with pytest.raises(ConfigError, match="different training texts of each label .* fewer of b"):
        few(tmp_path / "run", start, data)
    assert not (tmp_path / "run").exists()


def test_a_label_without_texts_is_refused(start: str, tmp_path: pathlib.Path):
    data = table(tmp_path / "data", {"a": 40, "b": 2})
    with pytest.raises(ConfigError, match="texts of each label .* Received: fewer of b"):
        few(tmp_path / "run", start, data, max_train_examples=2)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("training.batch_size=15", "must be an even number of at least 4 for each replica"),
        ("training.group_by_length=true", "`training.group_by_length` true. Leave it out."),
    ],
)
def test_settings_that_do_not_fit(
    setting: str, message: str, start: str, fruit: str, tmp_path: pathlib.Path
):
    with pytest.raises(ConfigError, match=message):
        few(tmp_path / "run", start, fruit, setting)


def test_the_recipe_is_for_classifiers(start: str, fruit: str, tmp_path: pathlib.Path):
    message = "--recipe=few_labels is only for --task=.*text_classification. .*--task=multi_label."
    with pytest.raises(InputError, match=message):
        few(tmp_path / "run", start, fruit, task="multi_label")


def test_transformers_has_no_such_head(run: RunDir, tmp_path: pathlib.Path):
    from albert_tf.convert.__main__ import ConvertOptions
    from albert_tf.convert.__main__ import main as convert

    with pytest.raises(InputError, match="transformers has no class whose head reads the mean"):
        convert(ConvertOptions(run.path, f"huggingface:{tmp_path / 'out'}"))


def test_a_student_does_not_contrast(
    run: RunDir, start: str, fruit: str, tmp_path: pathlib.Path, capsys
):
    from finetuning import distill

    flags = {"data_dir": fruit, "student": start, "set": ("training.steps=2",)}
    given = {"teacher": run.path, "task": "text_classification", "device": "cpu"}
    out = str(tmp_path / "out")
    options = distill.DistillOptions(output=out, dry_run=True, **given, **flags)
    distill.main(options)
    shown = capsys.readouterr().out
    config = json.loads(shown[shown.index("{\n") :])
    assert (config["task"]["loss"], config["task"]["pooling"]) == ("cross_entropy", "mean")
