"""A table with columns of its own and no dev part, through every command that reads it."""

import contextlib
import dataclasses
import io
import json
import pathlib
import random
import shutil

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from finetuning import depth, distill, ensemble, predict
from finetuning.train import FinetuneOptions, _reading, main
from tests.finetuning import conftest

READING = {
    "text_column": ["review"],
    "label_column": "what",
    "dev_fraction": 0.2,
    "max_train_examples": 40,
    "label_separator": ",",
    "column_separator": "",
    "offsets": "characters",
    "label_columns": [],
}
QUICK = ("training.steps=4", "training.batch_size=8", "task.seq_length=32")


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """train.csv of 100 rows, and test.jsonl."""
    rng, folder = random.Random(0), tmp_path_factory.mktemp("own") / "things"
    folder.mkdir()
    rows = []
    for _ in range(100):
        kind = rng.choice(sorted(conftest.WORDS))
        rows.append(f'"{" ".join(rng.choices(conftest.WORDS[kind], k=4))}, ""yes""",{kind}\n')
    (folder / "train.csv").write_text("review,what\n" + "".join(rows))
    (folder / "test.jsonl").write_text('{"review": "a pear"}\n{"review": "a saw"}\n')
    return folder


@pytest.fixture(scope="module")
def options(table: pathlib.Path, start: str) -> FinetuneOptions:
    return FinetuneOptions(
        "text_classification",
        str(table.parent / "runs"),
        str(table),
        init=start,
        text_column=("review",),
        label_column=("what",),
        dev_fraction=0.2,
        max_train_examples=40,
        set=QUICK,
    )


@pytest.fixture(scope="module")
def runs(options: FinetuneOptions) -> pathlib.Path:
    """The folder of a run, seed-0, and of its copy."""
    folder = pathlib.Path(options.run_dir)
    main(dataclasses.replace(options, run_dir=str(folder / "seed-0")))
    shutil.copytree(folder / "seed-0", folder / "seed-1")
    return folder


@pytest.fixture(scope="module")
def config(options: FinetuneOptions) -> dict:
    """What the run's config.json will be."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        main(dataclasses.replace(options, dry_run=True))
    return json.loads(printed.getvalue()[printed.getvalue().index("{") :])


def test_the_run_knows_what_it_read(config: dict):
    assert config["reading"] == READING


@pytest.mark.slow
def test_a_trained_run_knows_it_too(runs: pathlib.Path):
    run = RunDir(str(runs / "seed-0"))
    assert run.config()["reading"] == READING
    assert run.result()["train_examples"] == 40 and 10 < run.result()["dev_examples"] < 30


@pytest.mark.slow
def test_it_reads_parts_and_lines_by_the_same_names(
    runs: pathlib.Path, table: pathlib.Path, tmp_path: pathlib.Path, capsys
):
    out, path = tmp_path / "out.jsonl", str(runs / "seed-0")
    given = {"data_dir": str(table), "output": str(out)}
    predict.main(predict.PredictOptions(path, part="test", **given))
    answers = out.read_text()
    assert len(answers.splitlines()) == 2
    assert capsys.readouterr().out == f"{out}: 2 predictions of {path}\n"
    predict.main(predict.PredictOptions(path, str(table / "test.jsonl"), str(out)))
    assert capsys.readouterr().out.endswith(" in place of the file that was there\n")
    assert [json.loads(line)["label"] for line in out.open()] == [
        json.loads(line)["label"] for line in answers.splitlines()
    ]
    predict.main(predict.PredictOptions(path, part="dev", **given))
    result = RunDir(path).result()
    assert len(out.read_text().splitlines()) == result["dev_examples"]
    assert f"accuracy {result['accuracy']:.4f}" in capsys.readouterr().err


@pytest.mark.slow
def test_other_commands_read_the_same(
    runs: pathlib.Path, table: pathlib.Path, tmp_path: pathlib.Path, capsys
):
    output = tmp_path / "both"
    members = (str(runs / "seed-*"),)
    ensemble.main(
        ensemble.EnsembleOptions(members, str(output), str(table), select="all", part="test")
    )
    run = RunDir(str(runs / "seed-0"))
    result = json.loads((output / "result.json").read_text())
    assert result["dev_examples"] == run.result()["dev_examples"]
    assert result["singles"][run.path]["accuracy"] == run.result()["accuracy"]
    depth.main(depth.DepthOptions(run.path, str(table), patience="", dry_run=True))
    texts = tmp_path / "texts.tsv"
    texts.write_text('review\tother\n"a ""pear"""\tx\n')
    distill.main(
        distill.DistillOptions(
            run.path,
            "text_classification",
            str(tmp_path / "small"),
            str(table),
            student_layers=1,
            texts=str(texts),
            dry_run=True,
            set=QUICK,
        )
    )
    printed = capsys.readouterr().out
    config = json.loads(printed[printed.index("{") :])
    assert config["reading"] == run.config()["reading"] and config["data"] == run.config()["data"]


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ((), ("label", ())),
        (("toxic",), ("toxic", ())),
        (("toxic", "insult"), ("label", ("toxic", "insult"))),
    ],
)
def test_a_column_for_each_label(given: tuple[str, ...], wanted: tuple[str, tuple[str, ...]]):
    reading = _reading(FinetuneOptions("multi_label", "run", "data", label_column=given))
    assert (reading.label_column, reading.label_columns) == wanted


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"dev_fraction": 0.3}, r"reading\.dev_fraction: 0\.2 != 0\.3"),
        ({"max_train_examples": None}, r"reading\.max_train_examples: 40 != None"),
        ({"dev_fraction": -0.1}, r"--dev_fraction must be in \[0, 1\)"),
        ({"text_column": ("text",)}, r"Received: \['review', 'what'\]; missing or repeated: text"),
        ({"task": "cola"}, "--text_column is only for --task=.*text_classification, .*cola"),
        ({"label_separator": ";"}, "--label_separator is only for --task=multi_label"),
        (
            {"label_column": ("a", "b")},
            "--label_column, repeated, is only for --task=multi_label. .*text_class",
        ),
        ({"task": "colla", "text_column": ("text",)}, "--task: unknown task.*cola"),
        ({"offsets": "utf16"}, "--offsets is only for --task=token_classification"),
        (
            {"task": "squad1", "text_column": ()},
            "--label_column is only for .* Received: --task=squad1",
        ),
    ],
)
def test_options_that_do_not_fit_the_table_are_refused(
    changes: dict,
    words: str,
    options: FinetuneOptions,
    config: dict,
    start: str,
    tmp_path: pathlib.Path,
):
    run = RunDir(str(tmp_path / "run"))
    run.begin(config, load_tokenizer(start))
    with pytest.raises(InputError, match=words):
        main(dataclasses.replace(options, run_dir=run.path, **changes))
