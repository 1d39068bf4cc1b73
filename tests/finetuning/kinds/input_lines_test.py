"""The lines of --input: what is a text, what is an object, and what is a mistake."""

import io
import os
import pathlib
import sys

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.kinds.input_lines import input_lines, read_line

SINGLE = ClassifierSettings(labels=("a", "b"))


def test_stdin_is_read_as_files_are(tmp_path: pathlib.Path, monkeypatch):
    def lines(content: bytes) -> list:
        (tmp_path / "in.txt").write_bytes(content)
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content), "ascii"))
        read = list(input_lines("-"))
        assert read == list(input_lines(str(tmp_path / "in.txt")))
        return read

    assert lines(b"\xef\xbb\xbf\xc3\xa9\r\na\rb") == [(1, "é\r\n"), (2, "a\rb")]
    with pytest.raises(InputError, match="-:2 must be UTF-8"):
        lines(b"fine\n\xff\n")


@pytest.mark.parametrize(
    "line",
    [
        '{"question": ' + "[" * 100_000,
        '[{"text": "a"}, {"text": "b"}]',
        '{"text": "a"},',
        '{"text": "a',
        '"text": "ba"}',
        "{'text': 'a'}",
        '{text: "a"}',
        "{a",
        ' ["a"]',
        '["a", 1],',
        "['a', 'b']",
        '[null, "x"]',
        "[1, 2]",
        "[]",
        "[{",
        *"[]{}",
        "},",
    ],
)
def test_data_that_is_no_object_is_a_mistake(line: str):
    with pytest.raises(InputError, match="in:7: the line looks like JSON or Python data, but is n"):
        read_line(line, SINGLE, "in", 7)


@pytest.mark.parametrize(
    "text",
    [
        *(" a", "", "[MASK] a", "[1] and [2]", "[Chorus] la la", "[[Link]] of a wiki", "(a)", "a}"),
        *('"a text"', '"Well," she said.', "['Tis the season]", "[sic]", "1, 2", ","),
    ],
)
def test_a_line_that_is_no_json_object_is_a_text(text: str):
    assert read_line(text, SINGLE, "in", 1)[0].first == text


def test_a_long_line_of_brackets_is_read_in_linear_time():
    # Quadratic time, by trying each bracket as the last one, would be hours.
    assert read_line("[" * 2_000_000 + "x", SINGLE, "in", 1)[0].first


def test_a_line_that_begins_with_a_brace_and_a_quote_is_an_object():
    with pytest.raises(InputError, match=r"JSON object \(NaN is not a JSON value; leave it out\)"):
        read_line('{"text": NaN}', SINGLE, "in", 1)
    for line in (
        '\ufeff{"text": " a"}',
        '\u200b{"text": " a"}',
        ' {"text": " a"}',
        '\t{"text": " a"} \n',
    ):
        assert read_line(line, SINGLE, "in", 1)[0].first == " a"
    with pytest.raises(InputError, match="in:1: the key `text` must hold a text. A line"):
        read_line('{"text": 1}', SINGLE, "in", 1)


def test_a_pipe_is_refused_with_what_to_pass(tmp_path: pathlib.Path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match=r"--input: .* Received: a pipe\. Pass --input=- and pipe"):
        input_lines(str(tmp_path / "pipe"))


@pytest.mark.parametrize(
    ("header", "columns"),
    [
        ("text\tlabel", ()),
        ("text_a\ttext_b", ()),
        ("a\tb", ("b",)),
        ("sentence1\tsentence2", ()),
        ("query\tpassage\tmore", ()),
    ],
)
def test_a_table_is_read_as_a_part(tmp_path: pathlib.Path, header: str, columns: tuple[str, ...]):
    (tmp_path / "x.tsv").write_text(f"{header}\none\tother\n")
    with pytest.raises(
        InputError, match=r"x.tsv', a table\. .* as --data_dir and its name .*--part"
    ):
        input_lines(str(tmp_path / "x.tsv"), columns)
    (tmp_path / "x.tsv").write_text("one\tother\n")
    assert list(input_lines(str(tmp_path / "x.tsv"), columns)) == [(1, "one\tother\n")]


def test_a_json_list_is_read_as_a_part(tmp_path: pathlib.Path):
    (tmp_path / "x.json").write_text('[\n{"text": "one"}\n]\n')
    with pytest.raises(InputError, match=r"x.json', a table\. .* as --data_dir and its name"):
        input_lines(str(tmp_path / "x.json"))
    (tmp_path / "x.json").write_text('{"text": "one"}\n')
    assert list(input_lines(str(tmp_path / "x.json"))) == [(1, '{"text": "one"}\n')]


def test_keys_of_the_run_and_those_of_all_runs():
    task = TokenSettings(labels=("x",))
    for columns in ((), ("body",), ("tokens",)):
        line = '{"id": 7, "text": "Ann met", "tokens": ["Ann", "met"]}'
        example, name = read_line(line, task, "in", 1, columns)
        assert (example.text, name) == ("Ann met", 7)
    assert read_line('{"body": "Bo"}', task, "in", 1, ("body",))[0].text == "Bo"


def test_a_context_may_be_null():
    line = '{"question": "a", "options": ["b", "c"], "context": null}'
    example, _ = read_line(line, MultipleChoiceSettings(), "in", 1)
    assert example.context == ""


def test_an_embedding_is_of_a_text_or_of_a_whole_pair():
    task = EmbeddingSettings()
    pair, _ = read_line('{"text_a": "one", "text_b": "two"}', task, "in", 1)
    assert (pair.first, pair.second) == ("one", "two")
    single, _ = read_line('{"text": "one"}', task, "in", 1)
    assert (single.first, single.second) == ("one", None)
    for given, missing in (("text_a", "text_b"), ("text_b", "text_a")):
        with pytest.raises(InputError, match=f"in:1: the key `{missing}` is missing"):
            read_line(f'{{"{given}": "one", "text": "two"}}', task, "in", 1)
