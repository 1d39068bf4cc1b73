"""Asking a run: only of data with its own labels; whole lines, of files and of stdin alike."""

import csv
import io
import json
import pathlib
import re
from typing import Any

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from finetuning import predict
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.kinds.input_lines import read_line
from finetuning.predict import PredictOptions
from finetuning.reporting.prediction_writer import PredictionWriter, format_of_output
from tests.finetuning.untrained import leave_run, leave_weights, load_once


@pytest.fixture(scope="module")
def ab(start: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run with the labels a and b."""
    section = ClassifierSettings(labels=("a", "b"), seq_length=16)
    run = leave_run(start, tmp_path_factory.mktemp("ab") / "run", "text_classification", section)
    leave_weights(run, 1)
    return run


def ask(run: str, *values: Any, **options: Any) -> None:
    predict.main(PredictOptions(run, *values, **options), load=load_once)


MNLI = ClassifierSettings(
    pair=True, labels=("contradiction", "entailment", "neutral"), seq_length=32
)
ROW = "0\tA first.\tA second."


@pytest.mark.parametrize(
    ("name", "section", "words"),
    [
        ("rte", MNLI, r"RTE .*labels\W+\('entailment', 'not_entail.* with .*'contradiction'"),
        ("sts-b", MNLI, r"STS-B .*kind` 'regressor' .* with .*'classifier'"),
        (
            "cola",
            ClassifierSettings(pair=True, labels=("0", "1")),
            r"CoLA .*pair` False.*pair` True",
        ),
        ("mrpc", ClassifierSettings(labels=("0", "1")), r"MRPC .*pair` True.*pair` False"),
        ("squad2", SpanSettings(), r"SQuAD 2.0 .*answerable` True.*answerable` False"),
        ("squad1", SpanSettings(answerable=True), r"SQuAD 1.1 .*answerable` False.* True"),
        ("race", SpanSettings(), r"RACE .*kind` 'multiple_choice'.* 'span'"),
        ("text_classification", RegressorSettings(), r"kind` 'classifier'.* 'regressor'"),
        ("text_regression", MultipleChoiceSettings(), r"kind` 'regressor'.* 'multiple_choice'"),
    ],
)
def test_data_with_other_answers_are_refused_before_they_are_read(
    name: str, section: Any, words: str, tmp_path: pathlib.Path
):
    with pytest.raises(InputError, match=words):
        DATASETS[name].read_part(Source(str(tmp_path)), "dev", section)


def test_a_run_of_mnli_answers_ax_and_not_rte(start: str, tmp_path: pathlib.Path, capsys):
    run = leave_run(start, tmp_path / "run", "mnli", MNLI)
    leave_weights(run, 1)
    (tmp_path / "diagnostic.tsv").write_text(f"index\tsentence1\tsentence2\n{ROW}\n")
    (tmp_path / "dev.tsv").write_text(f"index\tsentence1\tsentence2\tlabel\n{ROW}\tentailment\n")
    out = tmp_path / "out.tsv"
    values = {"data_dir": str(tmp_path), "submission": str(out)}
    ask(run, task="ax", part="test", **values)
    header, row = out.read_text().splitlines()
    assert header == "index\tprediction" and row.split("\t")[1] in MNLI.labels
    out.unlink()
    with pytest.raises(InputError, match="RTE requires a run with"):
        ask(run, task="rte", part="dev", **values)
    assert not out.exists()


def test_an_empty_question_or_context_is_answered(start: str, tmp_path: pathlib.Path):
    task = SpanSettings(answerable=True, seq_length=32, doc_stride=8)
    run = leave_run(start, tmp_path / "run", "squad2", task)
    leave_weights(run, 1)
    rows = [{"question": q, "context": c} for q, c in (("", "a file"), ("who?", ""), ("", ""))]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    out = tmp_path / "out.jsonl"
    ask(run, str(tmp_path / "in.jsonl"), str(out), null_threshold=1e9)
    answers = [json.loads(line) for line in out.read_text().splitlines()]
    assert [bool(each["answer"]) for each in answers] == [True, False, False]


EMPTY = {
    "text_classification": (
        "test.csv",
        'text,label\n"",b\n',
        ClassifierSettings(labels=("a", "b")),
    ),
    "text_regression": ("test.jsonl", '{"text": " ", "label": 2}\n', RegressorSettings()),
    "cola": ("test.tsv", "index\tsentence\n0\t\n", ClassifierSettings(labels=("0", "1"))),
    "squad1": (
        "test.json",
        json.dumps(
            {
                "data": [
                    {"paragraphs": [{"context": "", "qas": [{"id": "q", "question": "who?"}]}]},
                    {"paragraphs": [{"context": "a", "qas": [{"id": "r", "question": ""}]}]},
                ]
            }
        ),
        SpanSettings(),
    ),
    "race": (
        "test/all/1.txt",
        json.dumps({"article": "", "questions": [""], "options": [["a", "b"]]}),
        MultipleChoiceSettings(num_choices=2),
    ),
}


@pytest.mark.parametrize("name", EMPTY)
def test_empty_texts_of_a_part_are_examples(name: str, tmp_path: pathlib.Path):
    file, content, section = EMPTY[name]
    for level in ("middle", "high") if name == "race" else ("",):
        path = tmp_path / file.replace("all", level)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, encoding="utf-8")
    assert len(DATASETS[name].read_part(Source(str(tmp_path)), "test", section)) in (1, 2)


def test_an_empty_text_of_a_part_is_answered(ab: str, tmp_path: pathlib.Path):
    (tmp_path / "dev.csv").write_text('text,label\n"",b\nfine,a\n')
    out = tmp_path / "out.jsonl"
    ask(ab, output=str(out), data_dir=str(tmp_path), part="dev")
    (tmp_path / "in.txt").write_text("\nfine\n")
    other = tmp_path / "other.jsonl"
    ask(ab, str(tmp_path / "in.txt"), str(other))
    assert out.read_text() == other.read_text() and out.read_text().count("\n") == 2


def test_unknown_characters_are_told(ab: str, tmp_path: pathlib.Path, capsys):
    """Those of all chunks together, and of a part."""
    rows = ["红楼", "saw 红", "saw"]
    (tmp_path / "in.txt").write_text("\n".join(rows) + "\n", encoding="utf-8")
    (tmp_path / "dev.csv").write_text("text,label\n" + "".join(f"{row},a\n" for row in rows))
    options = PredictOptions(ab, str(tmp_path / "in.txt"), str(tmp_path / "out.jsonl"))
    predict.main(options, chunk_size=1, load=load_once)
    note = (
        r"\d+\.\d% of the pieces are unknown to the vocabulary: 2 of 红 \(U\+7EA2\), 1 of 楼 "
        r"\(U\+697C\)\. Check that the run is for such text\."
    )
    assert re.search(f"^{note}$", capsys.readouterr().err, re.MULTILINE)
    ask(ab, output=options.output, data_dir=str(tmp_path), part="dev")
    assert re.search(f"dev: {note}$", capsys.readouterr().err, re.MULTILINE)
    (tmp_path / "in.txt").write_text("saw\n" * 300 + "红\n", encoding="utf-8")
    predict.main(options, load=load_once)
    assert "unknown" not in capsys.readouterr().err


def test_texts_in_windows_are_counted(start: str, tmp_path: pathlib.Path, capsys):
    """Of all chunks together; each long text has 160 pieces, in windows of up to 14."""
    section = ClassifierSettings(labels=("a", "b"), seq_length=16, long_texts="mean")
    run = leave_run(start, tmp_path / "run", "text_classification", section)
    leave_weights(run, 1)
    long = " ".join(["pear"] * 40)
    (tmp_path / "in.txt").write_text(f"{long}\nsaw\n{long}\n")
    options = PredictOptions(run, str(tmp_path / "in.txt"), str(tmp_path / "out.jsonl"))
    capsys.readouterr()
    predict.main(options, chunk_size=2, load=load_once)
    note = "2 of 3 texts are longer than task.seq_length=16 and are read in windows, 25 in all"
    assert note in capsys.readouterr().err.splitlines()
    (tmp_path / "in.txt").write_text("")
    predict.main(options, load=load_once)
    assert "windows" not in capsys.readouterr().err


@pytest.mark.parametrize(
    "given", [{"data_dir": "d"}, {"tfds": True}, {"task": "ax"}, {"submission": "s"}]
)
def test_options_of_a_part_require_one(given: dict):
    with pytest.raises(InputError, match=rf"--{next(iter(given))} requires --part\. Received"):
        ask("nowhere", **given)


def test_a_file_and_a_part_exclude_each_other():
    with pytest.raises(InputError, match="--input and --part exclude each other"):
        ask("nowhere", input="a.txt", part="dev")


def test_an_id_comes_back():
    rows = [{"id": "q7"}, {"id": 7}, {"id": None}, {}]
    lines = [*(json.dumps({"text": "a", **row}) for row in rows), "b"]
    ids = [read_line(line, ClassifierSettings(labels=("a", "b")), "-", 1)[1] for line in lines]
    assert ids == ["q7", 7, None, None, None]
    out = io.StringIO()
    PredictionWriter(out, "span", "jsonl").write([{"answer": "c"}] * 5, ids)
    assert [json.loads(row) for row in out.getvalue().splitlines()] == [
        {"id": "q7", "answer": "c"},
        {"id": 7, "answer": "c"},
        *[{"answer": "c"}] * 3,
    ]


@pytest.mark.parametrize(
    ("file", "content", "ids"),
    [
        ("test.csv", 'text,id\n"a\nb",x 1\nb,\n', ["x 1", None]),
        ("test.jsonl", '{"text": "a"}\n\n{"text": "b", "id": 0}\n', [None, 0]),
        ("test.tsv", "text\tlabel\na\ta\nb\tb\n", [None, None]),
    ],
)
def test_ids_of_a_table_come_back(ab: str, tmp_path: pathlib.Path, file, content, ids):
    (tmp_path / file).write_text(content)
    out = tmp_path / "out.jsonl"
    ask(ab, output=str(out), data_dir=str(tmp_path), part="test")
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [row.get("id") for row in rows] == ids
    assert [next(iter(row)) for row in rows] == ["label" if each is None else "id" for each in ids]
    out = tmp_path / "out.tsv"  # the format follows from the name
    ask(ab, output=str(out), data_dir=str(tmp_path), part="test")
    first = out.read_text().splitlines()[0].split("\t")
    assert first[-3] in ("a", "b")
    assert first[:-3] == ([] if ids == [None, None] else [ids[0] or ""])


def test_the_texts_are_not_overwritten(ab: str, tmp_path: pathlib.Path):
    path = tmp_path / "texts.txt"
    path.write_text("a text\n")
    (tmp_path / "link").symlink_to(path)
    with pytest.raises(InputError, match="--output must not be a file of --input"):
        ask(ab, str(path), str(tmp_path / "link"))
    assert path.read_text() == "a text\n"


def test_lines_that_were_rejected_have_no_prediction(ab: str, tmp_path: pathlib.Path, capsys):
    rows = "1,x,a,accept\n2,y,b,reject\n3,z,a,accept\n"
    (tmp_path / "test.csv").write_text(f"id,text,label,answer\n{rows}")
    out = tmp_path / "out.jsonl"
    ask(ab, output=str(out), data_dir=str(tmp_path), part="test")
    assert [json.loads(line)["id"] for line in out.read_text().splitlines()] == ["1", "3"]
    assert capsys.readouterr().err.count("1 lines of Prodigy") == 1


def test_comma_separated_values():
    """With a header, also of spans; an example without an id has an empty cell."""
    out = io.StringIO()
    writer = PredictionWriter(out, "classifier", "csv")
    writer.write([{"label": 'a,"b"\n', "probabilities": {"é": 1.0}}], [7])
    writer.write([{"label": "b", "probabilities": {}}], [None])
    assert list(csv.reader(io.StringIO(out.getvalue()))) == [
        ["id", "label", "probabilities"],
        ["7", 'a,"b"\n', '{"é": 1.0}'],
        ["", "b", "{}"],
    ]
    out = io.StringIO()
    span = {"label": "A", "text": "b, c", "start": 0, "end": 4, "score": 0.5}
    PredictionWriter(out, "token_classifier", "csv").write([{"entities": [span]}], [None])
    assert out.getvalue() == 'index,start,end,label,score,text\n0,0,4,A,0.5,"b, c"\n'


@pytest.mark.parametrize("format", ["csv", "tsv"])
def test_values_without_a_column_are_refused(format: str):
    """A text has a vector and a pair a score; JSON lines hold both."""
    answers = [{"embedding": [1.0]}, {"score": 0.5}]
    writer = PredictionWriter(io.StringIO(), "embedding", format)
    with pytest.raises(InputError, match=f"--format={format}: .*embedding. Received: score, after"):
        writer.write(answers, [None, None])
    out = io.StringIO()
    PredictionWriter(out, "embedding", "jsonl").write(answers, [None, None])
    assert [json.loads(line) for line in out.getvalue().splitlines()] == answers


@pytest.mark.parametrize(("format", "mark"), [("csv", ","), ("tsv", "\t")])
def test_ids_of_some_examples(format: str, mark: str):
    """Their column is known after the first call."""
    out, answer = io.StringIO(), {"label": "a"}
    writer = PredictionWriter(out, "classifier", format)
    writer.write([answer] * 2, [None, 7])
    writer.write([answer], [None])
    rows = [row.split(mark) for row in out.getvalue().splitlines()]
    assert rows[-3:] == [["", "a"], ["7", "a"], ["", "a"]]
    out, span = io.StringIO(), {"start": 0, "end": 1, "label": "a", "score": 0.5, "text": "x"}
    PredictionWriter(out, "token_classifier", format).write([{"entities": [span]}] * 2, [1, None])
    assert [row.split(mark)[0] for row in out.getvalue().splitlines()] == ["id", "1", ""]
    for kind, answer in (("classifier", {"label": "a"}), ("token_classifier", {"entities": []})):
        writer = PredictionWriter(io.StringIO(), kind, format)
        writer.write([answer] * 2, [None, None])
        with pytest.raises(InputError, match=rf"--format={format}: .* the first 2, .* id 7 after"):
            writer.write([answer], [7])


@pytest.mark.parametrize(
    ("name", "format"),
    [
        ("a.csv", "csv"),
        ("a.CSV", "csv"),
        ("a.tsv", "tsv"),
        ("a.csv.gz", "csv"),
        *(
            (name, "jsonl")
            for name in ("-", "a/b.c/d", "a.ndjson", "a.log", "a.txt", "a.json", "a.jsonl")
        ),
    ],
)
def test_the_format_follows_the_name(name: str, format: str):
    assert format_of_output(name) == format


@pytest.mark.parametrize("name", ["out.xlsx", "out.Parquet", "out.csv2"])
def test_a_name_of_another_format_is_refused(tmp_path: pathlib.Path, name: str):
    with pytest.raises(
        InputError, match=r"--output must end in \.jsonl, \.tsv, \.csv\. .*--format"
    ):
        ask("nowhere", output=str(tmp_path / name))


def test_a_table_of_spans():
    """Tabs and line breaks in texts are spaces; an index counts the examples of all calls."""
    span = {"label": "place", "text": "New\tYork\r\n", "start": 4, "end": 14, "score": 0.5}
    predictions = [{"entities": []}, {"entities": [span, span]}]
    out = io.StringIO()
    writer = PredictionWriter(out, "token_classifier", "tsv")
    writer.write(predictions, [None, None])
    writer.write(predictions, [None, None])
    row = "4\t14\tplace\t0.5\tNew York  "
    header = "start\tend\tlabel\tscore\ttext"
    assert out.getvalue().split("\n") == [
        f"index\t{header}",
        *(f"{index}\t{row}" for index in (1, 1, 3, 3)),
        "",
    ]
    out = io.StringIO()
    PredictionWriter(out, "token_classifier", "tsv").write(predictions, ["a", "b"])
    assert out.getvalue() == f"id\t{header}\nb\t{row}\nb\t{row}\n"
