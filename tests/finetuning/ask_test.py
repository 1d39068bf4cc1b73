"""Asking fine-tuned runs: a file's lines, a leaderboard's part, ensembles."""

import json
import pathlib
import re

import numpy as np
import pandas
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning import ensemble, predict
from finetuning.kinds.input_lines import read_line
from finetuning.predict import PredictOptions
from tests.finetuning.untrained import leave_run, leave_weights, load_once


def ask(
    tuned: pathlib.Path, text: str, folder: pathlib.Path, chunk_size: int = 1024, **options: object
) -> str:
    (folder / "in.txt").write_text(text, encoding="utf-8")
    out = folder / "out.txt"
    asked = PredictOptions(str(tuned / "seed-0"), str(folder / "in.txt"), str(out), **options)
    predict.main(asked, chunk_size, load_once)
    return out.read_text(encoding="utf-8")


def test_a_line_an_answer(tuned: pathlib.Path, tmp_path: pathlib.Path):
    texts = ["pear apple plum", "saw file hammer", '{"text": "melon\\tcherry"}']
    answers = ask(tuned, "\n".join(texts), tmp_path, chunk_size=2)  # they come chunk by chunk
    rows = [json.loads(line) for line in answers.splitlines()]
    assert [row["label"] for row in rows] == ["fruit", "tool", "fruit"]
    answer = load_once(str(tuned / "seed-0"))([TextExample("saw file hammer")])[0]
    assert rows[1]["probabilities"]["tool"] == pytest.approx(answer["score"], abs=1e-5)
    tsv = ask(tuned, texts[0] + "\n", tmp_path, format="tsv").rstrip("\n").split("\t")
    assert tsv[0] == "fruit" and float(tsv[1]) == pytest.approx(rows[0]["score"], abs=1e-4)


def test_asking_in_python(tuned: pathlib.Path):
    predictor = load_once(str(tuned / "seed-0"))
    assert predictor([]) == []
    first, _ = predictor(["pear plum", TextExample("saw")])
    (alone,) = predictor([TextExample("pear plum")])
    assert first["label"] == alone["label"]
    assert first["probabilities"] == pytest.approx(alone["probabilities"], abs=1e-6)
    for wrong, received in {
        "pear plum": "'pear plum'. Pass a list, also for a single example.",
        "": "''. Pass a list",
        TextExample("pear"): "TextExample.* Pass a list",
        (SpanExample("q", "c"),): "SpanExample",
        ("a", None): "None as number 1",
        frozenset({"a"}): "frozenset.* Pass a list",
        5: "5. Pass a list",
    }.items():
        with pytest.raises(
            InputError, match=f"a list of albert_tf.TextExample or strings. Received: {received}"
        ):
            predictor(wrong)


def test_texts_come_in_lists_columns_and_generators(tuned: pathlib.Path):
    predictor, texts = load_once(str(tuned / "seed-0")), ["pear plum", "saw"]
    wanted = predictor(texts)
    table = pandas.DataFrame({"text": texts})
    for given in (table["text"], np.array(texts), iter(texts), dict.fromkeys(texts).keys()):
        assert predictor(given) == wanted
    for wrong in (table, {"text": texts}):
        with pytest.raises(InputError, match="or strings. Received: .* Pass a list, .* or a col"):
            predictor(wrong)
    for second in (5, float("nan")):
        with pytest.raises(InputError, match="`second` of albert_tf.TextExample must be a str"):
            predictor([TextExample("a", second)])


def test_the_snippet_of_the_docs(start: str, tmp_path: pathlib.Path, monkeypatch, capsys):
    """With untrained runs."""
    page = (pathlib.Path(__file__).parents[2] / "docs" / "python.md").read_text(encoding="utf-8")
    snippets = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    (snippet,) = (each for each in snippets if "load_predictor" in each)
    tasks = {
        "names": TokenSettings(("person", "place"), seq_length=64),
        "emotions": MultiLabelSettings(labels=("joy", "surprise"), seq_length=64),
        "questions": MultipleChoiceSettings(seq_length=64),
    }
    for name, task in tasks.items():
        leave_weights(leave_run(start, tmp_path / "runs" / name, name, task), seed=1)
    monkeypatch.chdir(tmp_path)
    exec(snippet, {})
    *_, emotions, question = capsys.readouterr().out.splitlines()
    assert "'surprise': 0." in emotions
    assert question.startswith(("A Jane Austen [0.", "B George Eliot [0.", "C Anne Bronte [0."))


def test_an_empty_text_is_answered(tuned: pathlib.Path, tmp_path: pathlib.Path):
    """In Python, as a line and in JSON: the answer to no pieces at all."""
    (empty,) = load_once(str(tuned / "seed-0"))([""])
    lines = ask(tuned, 'pear plum\n\n{"text": ""}\n', tmp_path).splitlines()
    for line in lines[1:]:
        assert json.loads(line)["score"] == pytest.approx(empty["score"], abs=1e-5)
    assert len(lines) == 3


def test_a_threshold_is_of_questions(tuned: pathlib.Path):
    with pytest.raises(InputError, match="--null_threshold requires a run on questions"):
        predict.main(PredictOptions(str(tuned / "seed-0"), null_threshold=1.0))


class Section:
    """As much of a `task` section as reading a line takes."""

    def __init__(self, kind: str, pair: bool = False) -> None:
        self.kind, self.pair = kind, pair


def test_lines_of_every_kind():
    pair, span, choice = Section("regressor", True), Section("span"), Section("multiple_choice")
    assert read_line("a b\tc\n", pair, "-", 1)[0] == TextExample("a b", "c")
    assert read_line('{"text_a": "a", "text_b": "b"}', pair, "-", 1)[0] == TextExample("a", "b")
    question = '{"question": "q", "context": "c"'
    assert read_line(question + "}", span, "-", 1)[0] == SpanExample("q", "c")
    options = question + ', "options": ["x", "y"]}'
    assert read_line(options, choice, "-", 1)[0] == ChoiceExample("q", "c", ("x", "y"))
    more = '{"question": "q", "options": ["x", "y", "z"]}'  # of any number, without a context
    assert read_line(more, choice, "-", 1)[0] == ChoiceExample("q", "", ("x", "y", "z"))


@pytest.mark.parametrize(
    ("line", "section", "words"),
    [
        ("a\tb", Section("classifier"), "in.txt:7: A line must be a text without tabs"),
        ("a", Section("classifier", True), "in.txt:7: A line must be two texts separated by a tab"),
        ("what?", Section("span"), "in.txt:7: A line must be a JSON object with question"),
        ('{"context": "c"}', Section("span"), "in.txt:7: the key `question` is missing"),
        ('{"txt": "c"}', Section("classifier"), "in.txt:7: the key `text` is missing"),
        ('{"text_a": "c"}', Section("classifier", True), "in.txt:7: the key `text_b` is missing"),
        ('{"question": "q"}', Section("multiple_choice"), "7: the key `options` is missing"),
        ('{"text": null}', Section("classifier"), "in.txt:7: the key `text` must hold a text"),
        ("", Section("classifier", True), "in.txt:7: A line must be two texts separated by a tab"),
        (
            '{"question": "q", "context": "c", "options": "ab"}',
            Section("multiple_choice"),
            "in.txt:7: options must be a list of at least two",
        ),
        (
            '{"question": "q", "options": ["a"]}',
            Section("multiple_choice"),
            "in.txt:7: options must be a list of at least two",
        ),
        (
            '{"question": "q", "context": 1, "options": ["a", "b"]}',
            Section("multiple_choice"),
            "in.txt:7: the key `context` must hold a text",
        ),
    ],
)
def test_lines_that_do_not_fit(line: str, section: Section, words: str):
    with pytest.raises(InputError, match=words):
        read_line(line, section, "in.txt", 7)


def test_a_mistake_leaves_no_output(tuned: pathlib.Path, tmp_path: pathlib.Path):
    with pytest.raises(InputError, match="in.txt:2"):
        ask(tuned, "fine\ntwo\ttexts\n", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["in.txt"]
    with pytest.raises(InputError, match="--submission requires --part"):
        ask(tuned, "fine", tmp_path, submission="x.tsv")


def test_members_are_picked_greedily():
    """The second best alone adds nothing, the worst does; the last would not."""
    scores = {
        (1, 0): 0.8,
        (1, 2): 0.85,
        (1, 3): 0.7,
        (1, 2, 0): 0.9,
        (1, 2, 3): 0.85,
        (1, 2, 0, 3): 0.9,
    }
    singles = [0.7, 0.8, 0.5, 0.6]
    assert ensemble.select_members(singles, lambda members: scores[tuple(members)], 17) == [1, 2, 0]
    assert ensemble.select_members(singles, lambda members: scores[tuple(members)], 2) == [1, 2]


def test_one_run_is_no_ensemble(tuned: pathlib.Path, tmp_path: pathlib.Path):
    with pytest.raises(InputNotFoundError, match="at least two complete runs.*which matches 1"):
        ensemble.main(ensemble.EnsembleOptions((str(tuned / "seed-0"),), str(tmp_path / "x")))


def test_an_ensemble_s_submission_is_checked_first(tuned: pathlib.Path, tmp_path: pathlib.Path):
    options = ensemble.EnsembleOptions(
        (f"{tuned}/seed-*",),
        str(tmp_path / "out"),
        str(tmp_path / "no data"),
        part="dev",
        submission=str(tmp_path / "no" / "x.tsv"),
    )
    (tmp_path / "no").touch()
    with pytest.raises(InputError, match="--submission must be a local file in a folder"):
        ensemble.main(options)


@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("flag", ["output", "submission"])
def test_where_answers_go_is_checked_before_anything_is_asked(
    flag: str, dry_run: bool, tmp_path: pathlib.Path
):
    """The run is not even looked for."""
    (tmp_path / "no").touch()
    values = {flag: str(tmp_path / "no" / "p.json"), "part": "dev", "dry_run": dry_run}
    with pytest.raises(InputError, match=f"--{flag} must be a local file in a folder"):
        predict.main(PredictOptions(str(tmp_path / "no run"), **values))


def test_texts_that_are_cut_are_counted(tuned: pathlib.Path, tmp_path: pathlib.Path, capsys):
    """32 pieces; the count is of all chunks together, and of parts too."""
    long = " ".join(["pear"] * 40)
    ask(tuned, f"{long}\nsaw\n{long}\n", tmp_path, chunk_size=2)
    note = "examples are longer than task.seq_length=32 and are truncated"
    assert capsys.readouterr().err == f"2 of 3 {note}\n"
    ask(tuned, "saw\n", tmp_path)
    assert capsys.readouterr().err == ""
    (tmp_path / "test.tsv").write_text(f"text\n{long}\nsaw\n")
    run, out = str(tuned / "seed-0"), str(tmp_path / "answers")
    options = PredictOptions(run, part="test", data_dir=str(tmp_path), output=out)
    predict.main(options, load=load_once)
    assert capsys.readouterr().err == f"text_classification test: 1 of 2 {note}\n"
