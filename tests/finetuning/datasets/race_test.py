"""RACE in the layout of its archive, merged, and from TFDS."""

import gzip
import json
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from finetuning.datasets.choices.race import RACE
from finetuning.datasets.dataset import Source

OPTIONS = ["one", "two", "three", "four"]


def passage(name: str, letters: str = "AC", **changes) -> dict:
    return {
        "article": f"Article of {name}.",
        "id": f"{name}.txt",
        "answers": list(letters),
        "questions": [f"What is _ in {name}?", "Why?"][: len(letters)],
        "options": [OPTIONS] * len(letters),
        **changes,
    }


def example(name: str, question: int, label: int | None) -> ChoiceExample:
    text = [f"What is _ in {name}?", "Why?"][question]
    return ChoiceExample(text, f"Article of {name}.", tuple(OPTIONS), label)


def archive(folder: pathlib.Path) -> Source:
    """RACE/{train,dev,test}/{middle,high}/<id>.txt, one passage each."""
    for part in ("train", "dev", "test"):
        for level in ("middle", "high"):
            write(folder, f"{part}/{level}/1.txt", [passage(f"{part} {level}")])
    return Source(str(folder))


def write(folder: pathlib.Path, name: str, passages: list) -> None:
    path = folder / "RACE" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in passages), encoding="utf-8")


def test_the_archive(tmp_path):
    source = archive(tmp_path)
    write(tmp_path, "train/high/0.txt", [passage("another", "D")])
    data = RACE["race"].read(source)
    assert data.train == [
        example("train middle", 0, 0),
        example("train middle", 1, 2),
        example("another", 0, 3),
        example("train high", 0, 0),
        example("train high", 1, 2),
    ]
    middle, high = (
        [example(f"dev {name}", i, 2 * i) for i in (0, 1)] for name in ("middle", "high")
    )
    assert data.dev == {"all": middle + high, "middle": middle, "high": high}
    assert next(iter(data.dev)) == "all"
    assert (data.task.kind, data.task.num_choices, data.task.seq_length) == (
        "multiple_choice",
        4,
        512,
    )
    inner = Source(str(tmp_path / "RACE"))
    assert RACE["race"].read(inner) == data
    assert RACE["race-middle"].read(inner).dev == {"dev": middle}
    assert RACE["race"].read_part(inner, "dev_high", data.task) == high
    assert RACE["race-high"].read_part(inner, "dev", data.task) == high


@pytest.mark.parametrize("packed", [False, True])
def test_merged_files_come_before_what_they_were_merged_from(tmp_path, packed):
    source = archive(tmp_path)
    write(tmp_path, "test/high/all.txt", [passage("x", "B"), passage("y", "", questions=[])])
    path = tmp_path / "RACE/test/high/all.txt"
    if packed:
        path.with_name("all.txt.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    task = RACE["race-high"].read(source).task
    assert RACE["race-high"].read_part(source, "test", task) == [example("x", 0, 1)]


def test_answers_may_be_unknown(tmp_path):
    source = archive(tmp_path)
    changes = {"answers": None, "questions": ["Why?"], "options": [OPTIONS]}
    write(tmp_path, "test/high/1.txt", [passage("x", **changes)])
    task = RACE["race-high"].read(source).task
    assert RACE["race-high"].read_part(source, "test", task) == [example("x", 1, None)]


def test_any_number_of_options(tmp_path):
    """Training has up to 3, dev has 4; a run with another number of options can be asked too."""
    source = archive(tmp_path)
    write(tmp_path, "train/high/1.txt", [passage("x", options=[OPTIONS[:2], OPTIONS[:3]])])
    data = RACE["race-high"].read(source)
    assert [example.options for example in data.train] == [("one", "two"), ("one", "two", "three")]
    assert data.task.num_choices == 3
    assert {len(example.options) for example in data.dev["dev"]} == {4}
    other = MultipleChoiceSettings(num_choices=2)
    assert RACE["race-high"].read_part(source, "dev", other) == data.dev["dev"]


BAD = {
    "one option": (
        passage("x", "AA", options=[OPTIONS, OPTIONS[3:]]),
        ["at least two options", "Why?"],
    ),
    "no such answer": (passage("x", "AE"), ["question 2", "A, B, C, D", "'E'"]),
    "an answer too few": (passage("x", answers=["A"]), ["2 questions", "answers for 1"]),
    "no article": ({"questions": [], "options": []}, ["article"]),
    "empty article": (passage("x", article=" "), ["article", "empty"]),
    "no text": (passage("x", questions=["Why?", 3]), ["question 2", "texts"]),
    "no options": (passage("x", "AA", options=[OPTIONS, None]), ["question 2", "list", "None"]),
    "options in a text": (passage("x", "AA", options=[OPTIONS, "abcd"]), ["question 2", "'abcd'"]),
    "a number of answers": (passage("x", answers=3), ["passage of RACE", "answers"]),
    "a list": ([1], ["passage of RACE", "[1]"]),
}


@pytest.mark.parametrize("case", BAD)
def test_passages_that_do_not_fit_are_named(tmp_path, case):
    content, words = BAD[case]
    source = archive(tmp_path)
    write(tmp_path, "train/high/7.txt", [passage("fine"), content])
    with pytest.raises(InputError) as error:
        RACE["race"].read(source)
    assert all(word in str(error.value) for word in ["7.txt:2", *words]), error.value


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputNotFoundError, match="--data_dir: no folder train/middle"):
        RACE["race"].read(Source(str(tmp_path)))
    (tmp_path / "train" / "high").mkdir(parents=True)
    with pytest.raises(InputNotFoundError, match=r"no \.txt files"):
        RACE["race-high"].read(Source(str(tmp_path)))
    write(tmp_path, "train/middle/1.txt", [passage("x", "")])
    with pytest.raises(InputError, match="train of middle has no questions"):
        RACE["race-middle"].read(Source(str(tmp_path)))
    (tmp_path / "train" / "high" / "1.txt").write_text("{")
    with pytest.raises(InputError, match=r"1\.txt:1 must be JSON"):
        RACE["race-high"].read(Source(str(tmp_path)))


def test_scores_and_answers(tmp_path):
    predictions = [{"choice": 0, "label": "A"}, {"choice": 3, "label": "D"}]
    examples = [example("x", 0, 0), example("x", 1, 2)]
    assert RACE["race"].score(predictions, examples) == {"accuracy": 0.5}
    RACE["race"].write_submission(str(tmp_path / "out.tsv"), predictions, examples)
    assert (tmp_path / "out.tsv").read_text() == "index\tprediction\n0\tA\n1\tD\n"


def test_tfds(tmp_path):
    import tensorflow_datasets as tfds

    text = tfds.features.Text()
    texts = tfds.features.Sequence(text)
    rows = [passage("b", "AC"), passage("a", "B", article="é")]
    rows = [(row["id"], {"example_id": row.pop("id"), **row}) for row in rows]
    tfds.dataset_builders.store_as_tfds_dataset(
        name="race",
        config="high",
        version="2.0.0",
        data_dir=str(tmp_path),
        features=tfds.features.FeaturesDict(
            {
                "article": text,
                "questions": texts,
                "answers": texts,
                "options": tfds.features.Sequence(texts),
                "example_id": text,
            }
        ),
        split_datasets={"train": rows, "dev": rows},
    )
    data = RACE["race-high"].read(Source(str(tmp_path), tfds=True))
    first = ChoiceExample("What is _ in a?", "é", tuple(OPTIONS), 1)
    assert data.train == [first, example("b", 0, 0), example("b", 1, 2)]
    assert data.dev == {"dev": data.train}
    with pytest.raises(InputNotFoundError, match="tfds build race/middle"):
        RACE["race-middle"].read(Source(str(tmp_path), tfds=True))
