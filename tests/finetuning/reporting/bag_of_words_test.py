"""The baseline without an encoder, on data whose answer words decide."""

import dataclasses
import json
import pathlib
import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Source
from finetuning.kinds.baselines.text_features import features_of
from finetuning.kinds.registry import FINETUNING
from finetuning.reporting import bag_of_words

WORDS = ("apple", "saw", "pear", "hammer", "plum", "file")


def texts(count: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(WORDS, k=6)) for _ in range(count)]


def result(name: str, task: object, train: Sequence, dev: Sequence) -> dict:
    return bag_of_words.result_of(DATASETS[name], Data(task, train, {"dev": dev}))


def test_one_decisive_word_is_learned():
    def examples(count: int, seed: int) -> list[TextExample]:
        return [TextExample(each, None, int("plum" in each)) for each in texts(count, seed)]

    train, dev = examples(400, 0), examples(100, 1)
    found = result("sst-2", ClassifierSettings(("bad", "good")), train, dev)
    assert found["accuracy"] > 0.95 and found["metric"] == "accuracy"
    assert found["dev_examples"] == 100
    most = round(np.mean([example.label for example in train]))
    assert found["baseline"] == np.mean([example.label == most for example in dev])


def rare(count: int, seed: int, kind: str) -> list[TextExample]:
    """200 rare words decide, 60 of them for `good`; no two texts are the same."""
    words = random.Random(seed).choices(range(200), k=count)
    labels = [(0,) * (word < 60) if kind == "multi_label" else int(word < 60) for word in words]
    return [
        TextExample(f"the w{word} {seed}x{i}", None, label)
        for i, (word, label) in enumerate(zip(words, labels, strict=True))
    ]


@pytest.mark.parametrize(
    ("name", "task", "metric"),
    [
        ("sst-2", ClassifierSettings(("bad", "good")), "accuracy"),
        ("multi_label", MultiLabelSettings(("good",)), "macro_f1"),
    ],
)
def test_cross_validation_chooses_the_regularization(name: str, task: Any, metric: str):
    """With C = 0.1, "bad" is always more probable."""
    train, dev = rare(1000, 0, task.kind), rare(300, 1, task.kind)
    found = result(name, task, train, dev)
    assert found[metric] > 0.95 and found["regularization"] > 0.1
    data = Data(task, train, {"dev": dev})
    weak = bag_of_words.result_of(DATASETS[name], data, on_dev={"regularization": 0.1})
    assert weak[metric] == weak.get("baseline") if name == "sst-2" else weak[metric] == 0


def test_tokens_choose_their_own_regularization(tmp_path: pathlib.Path):
    """A third of 60 words are names, each seen five times: with C = 0.1, some are missed."""
    for part, seed in (("train", 0), ("dev", 1)):
        words = random.Random(seed).choices(range(60), k=300)
        rows = [f"w{i:02} {'O' if i % 3 else 'B-name'}\n{n} O\n" for n, i in enumerate(words)]
        (tmp_path / f"{part}.conll").write_text("\n".join(rows))
    task = DATASETS["token_classification"]
    data = task.read(Source(str(tmp_path)))
    assert bag_of_words.result_of(task, data)["regularization"] > 0.1
    weak, strong = (
        bag_of_words.result_of(task, data, on_dev={"regularization": c}) for c in (0.1, 10.0)
    )
    assert weak["f1"] < 0.9 and strong["f1"] == 1


@pytest.mark.parametrize("count", [3, 12])
def test_a_label_that_occurs_once(count):
    """Three examples are too few for five folds; one fold has no example of the rare label."""
    train = [TextExample(f"apple pear {i}", None, 0) for i in range(count - 1)]
    train.append(TextExample("plum", None, 1))
    found = result("sst-2", ClassifierSettings(("a", "b")), train, [TextExample("apple", None, 0)])
    assert found["accuracy"] == 1


def test_a_label_that_does_not_occur_has_probability_0():
    train = [TextExample(text, None, 2 * int("plum" in text)) for text in texts(50, 0)]
    task = ClassifierSettings(("a", "b", "c"))
    predictions = FINETUNING["classifier"].baseline(task, train, [TextExample("a plum")])(1.0)
    assert predictions[0]["probabilities"]["b"] == 0
    assert sum(predictions[0]["probabilities"].values()) == pytest.approx(1)


@pytest.mark.parametrize("count", [1, 5])
def test_a_single_label_is_certain(count):
    train, task = [TextExample("apple", None, 1)] * count, ClassifierSettings(("a", "b"))
    assert result("sst-2", task, train, [TextExample("pear", None, 1)])["accuracy"] == 1
    predictions = FINETUNING["classifier"].baseline(task, train, [TextExample("pear")])(1.0)
    assert predictions == [{"label": "b", "probabilities": {"a": 0.0, "b": 1.0}}]


def test_decisive_words_are_learned_for_each_label():
    """Label c never occurs, d always does: their probabilities are constant."""

    def examples(count: int, seed: int) -> list[TextExample]:
        words = {"plum": 0, "saw": 1}
        sets = [{words[word] for word in words if word in each} for each in texts(count, seed)]
        return [
            TextExample(each, None, (*sorted(found), 3))
            for each, found in zip(texts(count, seed), sets, strict=True)
        ]

    train, dev = examples(400, 0), examples(100, 1)
    task = MultiLabelSettings(tuple("abcd"), (0.9,) * 4)
    found = result("multi_label", task, train, dev)
    assert found["micro_f1"] > 0.95 and found["metric"] == "macro_f1"
    assert found["macro_f1"] < 0.76  # of c it is 0
    task = dataclasses.replace(task, thresholds=())
    predictions = FINETUNING["multi_label"].baseline(task, train, [TextExample("a plum")])(1.0)
    assert predictions[0]["probabilities"]["c"] == 0 and predictions[0]["probabilities"]["d"] == 1
    assert predictions[0]["labels"] == ["d", "a"]


def test_thresholds_are_those_of_held_out_texts():
    """A word gives its label in one of five texts: F1 is best where everything above is taken."""
    train = [
        TextExample(text, None, (0,) if "plum" in text and i % 5 == 0 else ())
        for i, text in enumerate(texts(2000, 0))
    ]
    dev = [TextExample("plum saw file", None, (0,)), TextExample("apple saw file", None, ())]
    data = Data(MultiLabelSettings(("a",)), train, {"dev": dev})
    task = DATASETS["multi_label"]
    assert bag_of_words.result_of(task, data)["micro_f1"] == 0
    assert bag_of_words.result_of(task, data, 0.2)["micro_f1"] == 1


def test_similarity_is_seen_by_the_cosine():
    """The score is the share of common words, which the words themselves tell badly."""

    def examples(first: int) -> list[TextExample]:
        pairs = []
        for i in range(first, first + 500):
            words, common = [f"w{(17 * i + j) % 3000}" for j in range(8)], i % 5
            a, b = words[:4], words[4 - common : 8 - common]
            pairs.append(TextExample(" ".join(a), " ".join(b), common / 4))
        return pairs

    train, dev = examples(0), examples(500)
    assert result("sts-b", RegressorSettings(pair=True), train, dev)["pearson"] > 0.8
    features = [each[:, :-1] for each in features_of(train, dev)]
    blind = Ridge().fit(features[0], [example.label for example in train]).predict(features[1])
    assert np.corrcoef(blind, [example.label for example in dev])[0, 1] < 0.6


def test_words_of_entities_and_their_neighbors(tmp_path):
    """Names follow "at"; the words themselves are new in dev, in tokens and in plain texts."""
    task = DATASETS["token_classification"]
    for part, names in (("train", "Abcd Efgh Ijkl Mnop Qrst"), ("dev", "Uvwx Yzab")):
        rows = "\n".join(
            f"we O\nmet O\nat O\n{name} B-place\nHall I-place\n. O\n" for name in names.split()
        )
        (tmp_path / f"{part}.conll").write_text("\n".join([rows] * 4))
    result = bag_of_words.result_of(task, task.read(Source(str(tmp_path))))
    assert result["f1"] == 1.0 and result["baseline"] == 0.0
    for part, names in (("train", "Abcd Efgh Ijkl Mnop Qrst"), ("dev", "Uvwx Yzab")):
        rows = [
            json.dumps({"text": f"we met at {name} Hall.", "entities": [[10, 19, "place"]]})
            for name in names.split()
        ]
        (tmp_path / f"{part}.conll").unlink()
        (tmp_path / f"{part}.jsonl").write_text("\n".join(rows * 4))
    assert bag_of_words.result_of(task, task.read(Source(str(tmp_path))))["f1"] == 1.0
