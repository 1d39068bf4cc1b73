"""A dev part and a subset of the training examples: by their content alone, nested, refused."""

import collections
import dataclasses
import functools
import json
import pathlib
import random

import numpy as np
import pytest

from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets import DATASETS, OWN
from finetuning.datasets.choices.race import RACE
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.embeddings.teacher_vectors import StoredVector, VectorStore
from finetuning.datasets.selection import (
    Connected,
    InDocuments,
    groups,
    limited,
    read_part,
    split,
    with_dev,
)
from finetuning.datasets.spans.squad import SQUAD
from tests.finetuning.datasets.race_test import archive, passage, write
from tests.finetuning.datasets.squad_test import content, question

TEXTS = [TextExample(f"text {i}", None, i % 2) for i in range(1000)]


def source(**reading: object) -> Source:
    return Source(None, reading=Reading(**reading))


def absent() -> list:
    raise InputNotFoundError("no file dev.tsv.")


def test_the_same_text_is_always_in_the_same_part():
    train, dev = split(TEXTS, 0.1)
    assert sorted([*train, *dev], key=TEXTS.index) == TEXTS
    assert len(dev) == 100
    # Recorded: other numbers here would move the examples of existing runs.
    assert [each.first for each in dev[:4]] == ["text 0", "text 1", "text 2", "text 18"]
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert set(split(shuffled, 0.1)[1]) == set(dev)
    assert set(split(TEXTS, 0.2)[1]) > set(dev)
    scored = [TextExample(each.first, None, 0.5) for each in TEXTS]  # without labels
    assert len(split(scored, 0.1)[1]) == pytest.approx(100, abs=3 * (1000 * 0.1 * 0.9) ** 0.5)


def test_each_label_has_its_share():
    """Of 8 texts a label, .25 are 2, and .3 are 2 or 3; a text that comes twice counts once."""
    texts = [TextExample(f"text {i}", None, i // 8) for i in range(240)]
    texts += texts[:40]
    for fraction, counts in ((0.25, {2}), (0.3, {2, 3})):
        train, dev = split(texts, fraction)
        assert not {each.first for each in train} & {each.first for each in dev}
        found = collections.Counter(label for _, label in {(e.first, e.label) for e in dev})
        assert len(found) == 30 and set(found.values()) == counts
    assert 30 * 2.4 - 12 < sum(found.values()) < 30 * 2.4 + 12


def test_a_text_with_several_labels_does_not_depend_on_the_order():
    texts = [TextExample(f"text {i}", None, i % 3) for i in range(60)]
    texts += [TextExample(f"text {i}", None, (i + 1) % 3) for i in range(0, 60, 2)]
    dev = split(texts, 0.3)[1]
    assert set(split(texts[::-1], 0.3)[1]) == set(dev)
    assert not {each.first for each in dev} & {each.first for each in split(texts, 0.3)[0]}


def test_pairs_and_contexts_stay_together():
    pairs = [TextExample("same", f"text {i}") for i in range(100)]
    spans = [SpanExample(f"q{i}", f"context {i // 5}") for i in range(500)]
    choices = [ChoiceExample(f"q{i}", f"context {i // 5}", ("a", "b")) for i in range(500)]
    assert all(split(pairs, 0.5))
    for questions in (spans, choices):
        train, dev = ({each.context for each in part} for part in split(questions, 0.3))
        assert dev and not train & dev


def test_connected_pairs_stay_together():
    """Chains of a query with two passages, of which the second has two queries."""
    pairs = [
        pair
        for i in range(200)
        for pair in [(f"q{i}", f"p{i}"), (f"q{i}", f"r{i}"), (f"s{i}", f"r{i}"), (f"s{i}", f"q{i}")]
    ]
    examples = Connected(TextExample(*pair) for pair in pairs)
    train, dev = split(examples, 0.2)
    assert len(dev) == pytest.approx(160, abs=4 * 3 * (200 * 0.2 * 0.8) ** 0.5)
    assert not {*chain(train)} & {*chain(dev)} and len(train) + len(dev) == 800
    shuffled = Connected(random.Random(0).sample(examples, 800))
    assert set(split(shuffled, 0.2)[1]) == set(dev) < set(split(examples, 0.4)[1])


def chain(pairs: list[TextExample]) -> list[str | None]:
    return [text for each in pairs for text in (each.first, each.second)]


def test_more_pairs_than_the_fraction_are_never_held_out_together():
    for fraction in (0.3, 0.9):
        pairs = [(f"q{i}", "same") for i in range(95)] + [(f"a{i}", f"b{i}") for i in range(5)]
        _, dev = split(Connected(TextExample(*pair) for pair in pairs), fraction)
        assert dev and "same" not in chain(dev)
    one = Connected(TextExample(f"q{i}", "same") for i in range(9))
    with pytest.raises(InputError, match="takes 0 of 9 .* or a dev part: pairs that share texts"):
        with_dev(source(dev_fraction=0.5), one, {"dev": absent})


def in_documents(count: int) -> InDocuments:
    """Documents of ten sentences."""
    numbers = [i // 10 for i in range(10 * count)]
    return InDocuments([TokenExample(f"text {i}") for i in range(10 * count)], numbers)


def test_documents_stay_whole(capsys):
    examples = in_documents(20)
    train, dev = split(examples, 0.1)
    held_out = {int(each.text[5:]) // 10 for each in dev}
    assert len(held_out) == 2 and len(dev) == 20 and len(train) == 180
    turned = InDocuments(
        [each for i in reversed(range(20)) for each in examples[10 * i : 10 * i + 10]],
        examples.documents,
    )
    assert set(split(turned, 0.1)[1]) == set(dev) < set(split(examples, 0.2)[1])
    assert len(split(in_documents(5), 1e-9)[1]) == 10  # at least one
    repeated = InDocuments([examples[0]] * 3 + examples[1:6], range(8))
    for fraction in (0.1, 0.3, 0.5, 0.7):
        assert split(repeated, fraction)[1].count(examples[0]) in (0, 3)
    with_dev(source(dev_fraction=0.1), examples, {"dev": absent})
    said = "dev: 20 of 200 training examples, whole documents (--dev_fraction=0.1)\n"
    assert capsys.readouterr().out == said


def test_what_is_chosen_keeps_its_documents():
    """So that cross-validation on it does not divide them."""
    examples = in_documents(10)
    rest, held_out = split(examples, 0.3)
    chosen = limited(source(max_train_examples=len(examples) - 1), examples)
    for some in (rest, held_out, chosen):
        wanted = [examples.documents[examples.index(example)] for example in some]
        assert some.documents == wanted
    assert len(set(groups(chosen))) == 10


def test_ids_of_a_part_that_was_held_out_come_back(tmp_path: pathlib.Path):
    rows = "".join(f"q{i},text {i},{'ab'[i % 2]}\n" for i in range(20))
    (tmp_path / "train.csv").write_text(f"id,text,label\n{rows}")
    task = ClassifierSettings(labels=("a", "b"))
    folder = Source(str(tmp_path), reading=Reading(dev_fraction=0.3))
    found = read_part(DATASETS["text_classification"], folder, "dev", task)
    assert len(found) == 6
    assert all(example.first == f"text {example.id[1:]}" for example in found)


def test_few_documents_are_divided(capsys):
    train, dev = with_dev(source(dev_fraction=0.3), in_documents(4), {"dev": absent})
    assert (train, dev["dev"]) == split(list(in_documents(4)), 0.3)
    assert "note: 4 documents are too few to keep each of them whole" in capsys.readouterr().out
    with_dev(source(dev_fraction=0.3), in_documents(1), {"dev": absent})
    assert "note" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("name", "mark", "row"),
    [
        ("train.conll", "-DOCSTART- O\n\n", "{} B-x\n"),
        ("train.conllu", "# newdoc id = 1\n", "1\t{}\t_\tNOUN\n"),
    ],
)
def test_documents_of_conll_files(tmp_path: pathlib.Path, name: str, mark: str, row: str):
    """Seven documents of five sentences; the first mark follows no blank line."""
    sentences = [row.format(f"d{i // 5}-{i}") + "\n" * (i != 4) for i in range(35)]
    text = "".join(mark * (i % 5 == 0) + each for i, each in enumerate(sentences))
    (tmp_path / name).write_text(text)
    task = DATASETS["token_classification"]
    made = Source(str(tmp_path), reading=Reading(dev_fraction=0.3))
    data = task.read(made)
    train, dev = ({each.text[:2] for each in part} for part in (data.train, data.dev["dev"]))
    assert len(train) == 5 and len(dev) == 2 and not train & dev
    assert len(data.train) == 25 and len(data.dev["dev"]) == 10
    assert read_part(task, made, "dev", data.task) == data.dev["dev"]


def test_a_dev_part_is_used_or_made(capsys):
    given = TEXTS[:5]
    assert with_dev(source(), TEXTS, {"dev": lambda: given}) == (TEXTS, {"dev": given})
    train, dev = with_dev(source(dev_fraction=0.1), TEXTS, {"matched": absent, "other": absent})
    assert (train, dev["dev"]) == split(TEXTS, 0.1)
    count = len(dev["dev"])
    assert capsys.readouterr().out == (
        f"dev: {count} of 1,000 training examples (--dev_fraction=0.1)\n"
    )


@pytest.mark.parametrize(
    ("fraction", "train", "dev", "words"),
    [
        (
            0.0,
            TEXTS,
            {"dev": absent},
            r"no file dev\.tsv\. Add it, or run finetuning.train with",
        ),
        (0.1, TEXTS, {"dev": lambda: TEXTS[:5]}, r"without a dev part.* 0.1, .* 5 examples in dev"),
        (0.1, TEXTS, {"a": absent, "b": lambda: TEXTS[:5]}, "5 examples in b. Leave it out"),
        (1e-9, TEXTS, {"dev": absent}, r"in both parts. Received: 1e-09, .* 0 of 1,000 training"),
    ],
)
def test_parts_that_cannot_be_divided_are_refused(fraction, train, dev, words):
    with pytest.raises(InputError, match=words):
        with_dev(source(dev_fraction=fraction), train, dev)


def test_subsets_are_nested_and_keep_the_order(capsys):
    assert limited(source(), TEXTS) is TEXTS
    recorded = ["text 48", "text 282", "text 656", "text 780"]
    assert [each.first for each in limited(source(max_train_examples=4), TEXTS)] == recorded
    chosen = {n: limited(source(max_train_examples=n), TEXTS) for n in (1, 10, 11, 500, 2000)}
    assert [len(each) for each in chosen.values()] == [1, 10, 11, 500, 1000]
    assert set(chosen[1]) < set(chosen[10]) < set(chosen[11]) < set(chosen[500]) < set(TEXTS)
    assert all(each == sorted(each, key=TEXTS.index) for each in chosen.values())
    shuffled = random.Random(0).sample(TEXTS, len(TEXTS))
    assert set(limited(source(max_train_examples=10), shuffled)) == set(chosen[10])
    assert "train: 10 of 1,000 examples (--max_train_examples=10)\n" in capsys.readouterr().out
    # Another draw than that of the dev part: about as many of its examples as of the others.
    dev = set(split(TEXTS, 0.5)[1])
    assert len(dev & set(chosen[500])) == pytest.approx(len(dev) / 2, abs=50)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"dev_fraction": 1.0}, r"--dev_fraction must be in \[0, 1\)"),
        ({"max_train_examples": 0}, "--max_train_examples must be positive"),
        ({"text_column": ("a", "b", "c")}, "--text_column must name one column"),
        ({"text_column": ("a", "a")}, "Received: a, a, label"),
        ({"label_column": "a", "text_column": ("a",)}, "--label_column another one"),
    ],
)
def test_impossible_values(values: dict, words: str):
    with pytest.raises((ConfigError, InputError), match=words):
        Reading(**values)


# Header and row of an own table; others have a text and a number.
TABLES = {"multiple_choice": ("question\toption_a\toption_b\tlabel\n", "text {}\tx\t0\tA\n")}
# Read from other files, or made into a search or queries to train on.
OTHERS = ("token_classification", "embedding", "ranking")


@pytest.mark.parametrize("name", [name for name in OWN if name not in OTHERS])
def test_own_tables(tmp_path: pathlib.Path, name: str, capsys):
    header, row = TABLES.get(name, ("text\tlabel\n", "text {}\t{}\n"))
    rows = "".join(row.format(i, i % 3) for i in range(100))
    (tmp_path / "train.tsv").write_text(header + rows)
    task, reading = DATASETS[name], Reading(dev_fraction=0.2, max_train_examples=30)
    made = Source(str(tmp_path), reading=reading)
    data = task.read(made)
    every = task.read_part(made, "train", data.task)
    train, dev = split(every, 0.2)
    assert data.dev == {"dev": dev} and list(data.train) == limited(made, train)
    assert "train: 30 of" in capsys.readouterr().out
    assert read_part(task, made, "dev", data.task) == dev
    assert f"dev: {len(dev)} of 100 training examples, as for the run" in capsys.readouterr().err
    with pytest.raises(InputNotFoundError, match=r"no file test\.tsv"):
        read_part(task, made, "test", data.task)
    with pytest.raises(InputNotFoundError, match=r"no file dev\.tsv"):
        read_part(task, Source(str(tmp_path)), "dev", data.task)
    (tmp_path / "dev.tsv").write_text(header + row.format("x", 1))
    assert len(read_part(task, made, "dev", data.task)) == 1
    with pytest.raises(InputError, match="--dev_fraction is only for data without a dev part"):
        task.read(made)


@pytest.mark.parametrize("name", ["test.csv", "test.csv.gz"])
def test_a_part_is_named_without_the_extension(tmp_path, name):
    (tmp_path / name).touch()
    task, folder = ClassifierSettings(("a", "b")), Source(str(tmp_path))
    with pytest.raises(InputError, match=rf"Received: '{name}'\. Pass --part=test\."):
        read_part(DATASETS["text_classification"], folder, name, task)


def test_contexts_of_squad(tmp_path: pathlib.Path):
    """A question whose answer is not at its place is no training question, but a dev one."""
    paragraphs = [
        content(question(f"q{i}", [(0, "Anna")]), question(f"r{i}", [(3, "Anna")]), context=text)
        for i, text in ((i, f"Anna {i}.") for i in range(40))
    ]
    every = {"version": "1.1", "data": [each["data"][0] for each in paragraphs]}
    (tmp_path / "train-v1.1.json").write_text(json.dumps(every))
    made = Source(str(tmp_path), reading=Reading(dev_fraction=0.3, max_train_examples=5))
    data = SQUAD["squad1"].read(made)
    dev = data.dev["dev"]
    assert len(data.train) == 5 and {each.id[0] for each in data.train} == {"q"}
    assert {each.id[0] for each in dev} == {"q", "r"}
    assert not {each.context for each in data.train} & {each.context for each in dev}
    assert read_part(SQUAD["squad1"], made, "dev", data.task) == dev


def test_levels_of_race(tmp_path: pathlib.Path):
    archive(tmp_path)
    write(tmp_path, "train/high/all.txt", [passage(f"train {i}") for i in range(30)])
    made = functools.partial(Source, str(tmp_path))
    with pytest.raises(InputError, match=r"data with 2 examples in middle"):
        RACE["race"].read(made(reading=Reading(dev_fraction=0.5)))
    for path in (tmp_path / "RACE" / "dev").rglob("*.txt"):
        path.unlink()
    for level in ("middle", "high"):
        (tmp_path / "RACE" / "dev" / level).rmdir()
    data = RACE["race"].read(made(reading=Reading(dev_fraction=0.5)))
    parts = data.train, data.dev["dev"]
    train, dev = ({each.context for each in part} for part in parts)
    assert list(data.dev) == ["dev"] and train and dev and not train & dev
    assert len(train | dev) == 31 and sum(map(len, parts)) == 62


def test_neither_the_place_nor_a_teacher_decides_which_examples_are_taken(tmp_path):
    queries = [RankingExample(f"query {i}", ("a", "b"), (1.0, 0.0)) for i in range(30)]
    few = source(max_train_examples=6)

    def chosen(order: range) -> set[str]:
        rows = [
            dataclasses.replace(queries[i], location=f"a.jsonl:{n}") for n, i in enumerate(order)
        ]
        return {example.query for example in limited(few, rows)}

    assert chosen(range(30)) == chosen(range(29, -1, -1))
    (tmp_path / "train.vectors").mkdir()
    values = {"sha256": "", "count": 30, "width": 2}
    (tmp_path / "train.vectors" / "texts.json").write_text(json.dumps(values))
    found = []
    for number in range(2):
        path = tmp_path / "train.vectors" / "vectors.npy"
        np.save(path, np.full([30, 2], number, np.float16))
        store = VectorStore(str(path.parent))
        rows = [TextExample(f"text {i}", None, StoredVector(store, i)) for i in range(30)]
        found.append([example.first for example in limited(few, rows)])
    assert found[0] == found[1]
