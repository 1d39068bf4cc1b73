"""A user's own numbers: read exactly, learned in any unit, named where they are none."""

import dataclasses
import pathlib
import random

import numpy as np
import pytest

from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.predictor import load_predictor
from finetuning import distill, train
from finetuning.datasets.dataset import Reading
from finetuning.datasets.text_regression import TextRegression
from tests.finetuning.conftest import QUICK
from tests.finetuning.datasets.text_classification_test import write

TASK = TextRegression()


def test_numbers_of_every_format(tmp_path, capsys):
    source = write(
        tmp_path,
        train_csv='text,label\n"a, b",-1.5\nc,2e3\nd,5\n',
        dev_jsonl='{"text": "e", "label": 2.5}\n{"text": "f", "label": "7"}\n',
        test_tsv="text\nh\n",
    )
    data = TASK.read(source)
    assert data.train == [
        TextExample("a, b", None, -1.5),
        TextExample("c", None, 2000.0),
        TextExample("d", None, 5.0),
    ]
    assert data.dev == {"dev": [TextExample("e", None, 2.5), TextExample("f", None, 7.0)]}
    numbers = [-1.5, 2000.0, 5.0]
    assert data.task.center == pytest.approx(np.mean(numbers))
    assert data.task.scale == pytest.approx(np.std(numbers))
    assert TASK.read_part(source, "test", data.task) == [TextExample("h", None, None)]
    assert "dev: 2 examples: mean 4.75, deviation 2.25, from 2.5 to 7\n" in capsys.readouterr().out


def test_columns_with_names_of_their_own(tmp_path):
    rows = "review\tstars\nx\t1\ny\t2\n"
    source = write(tmp_path, train_tsv=rows, dev_tsv=rows, test_tsv="review\nx\n")
    source = dataclasses.replace(source, reading=Reading(("review",), "stars"))
    data = TASK.read(source)
    assert data.train == data.dev["dev"] == [TextExample("x", None, 1), TextExample("y", None, 2)]
    assert TASK.read_part(source, "test", data.task) == [TextExample("x")]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ("x\t1\ny\tgood\n", ("train.tsv:3", "'good'", "text_classification")),
        ("x\t1\ny\tnan\n", ("train.tsv:3", "'nan'")),
        ("x\t1\ny\tinf\n", ("train.tsv:3", "'inf'")),
        ("x\t1\ny\t1.0\n", ("train.tsv", "different numbers", "1.0")),
        ("x\t1700000000\ny\t1700000600\n", ("train.tsv", "float32", "1.7e+09 and", "Subtract")),
        ("x\t1\ny\t\n", ("train.tsv:3", "empty")),
    ],
)
def test_values_that_are_no_numbers_are_named(tmp_path, rows: str, words: tuple[str, ...]):
    with pytest.raises(InputError) as error:
        TASK.read(write(tmp_path, train_tsv="text\tlabel\n" + rows, dev_tsv="text\tlabel\nx\t1\n"))
    assert all(word in str(error.value) for word in words), error.value


@pytest.mark.slow
def test_a_run_on_prices(start: str, tmp_path: pathlib.Path):
    """A text's price is 10,000 for each pear in it, and some."""
    rng = random.Random(0)
    folder = tmp_path / "prices"
    folder.mkdir()
    for part, count in (("train", 160), ("dev", 40)):
        lines = ["text\tlabel"]
        for _ in range(count):
            words = rng.choices(["pear", "saw"], k=4)
            lines.append(f"{' '.join(words)}\t{50_000 + 10_000 * words.count('pear')}")
        (folder / f"{part}.tsv").write_text("\n".join(lines) + "\n")
    options = train.FinetuneOptions(
        "text_regression",
        str(tmp_path / "run"),
        str(folder),
        init=start,
        set=(*QUICK, "training.steps=120", "training.evaluate_every=40"),
    )
    train.main(options)
    result = RunDir(str(tmp_path / "run")).result()
    assert result["pearson"] > 0.9
    answers = load_predictor(str(tmp_path / "run"))(
        [TextExample("pear pear pear pear"), TextExample("saw saw saw saw")]
    )
    most, least = (each["score"] for each in answers)
    assert most == pytest.approx(90_000, abs=12_000) and least == pytest.approx(50_000, abs=12_000)
    out = tmp_path / "distilled"  # the loss is in units of the labels' variance, not of 1e8
    distill.main(
        distill.DistillOptions(
            str(tmp_path / "run"),
            "text_regression",
            str(out),
            str(folder),
            student_layers=1,
            set=QUICK,
        )
    )
    rows = RunDir(str(out / "student")).metrics()
    assert rows[0]["loss/train"] < 2 and rows[-1]["loss/train"] < 0.2
    with pytest.raises(ConfigError, match=r"`task.scale` follows from the data"):
        train.main(
            train.FinetuneOptions(
                "text_regression",
                str(tmp_path / "other"),
                str(folder),
                init=start,
                set=(*QUICK, "task.scale=1"),
            )
        )
