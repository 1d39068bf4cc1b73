"""Tables are read exactly; what does not fit is named by file, line and remedy."""

import gzip
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from finetuning.datasets.table_files import (
    find,
    lines_of,
    open_table,
    parse_json,
    write_predictions,
)


def cells(path: pathlib.Path, *names: str, **options) -> list[tuple[int, list[str]]]:
    """The line and the cells of each row."""
    rows = open_table(str(path)).select(names, **options)
    return [(int(place.removeprefix(f"{path}:")), chosen) for place, chosen in rows]


def written(folder: pathlib.Path, name: str, content: str | bytes) -> pathlib.Path:
    content = content.encode("utf-8") if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_tsv_is_divided_by_tabs_alone(tmp_path, name):
    # A byte order mark, quotes, carriage returns at ends of lines and within, U+2028, blank lines.
    content = '\ufefftext\tid\tlabel\r\n"a\t1\tx\r\n\nb "c"\u2028d\re\t2\ty, z'
    path = written(tmp_path, name, content)
    assert cells(path, "label", "text") == [(2, ["x", '"a']), (4, ["y, z", 'b "c"\u2028d\re'])]


def test_csv_has_quoting(tmp_path):
    long = "word " * 50_000  # beyond the csv module's own limit of 131,072 characters
    content = f'id,text\n1,"a, ""b""\n\nc"\n\n2,{long}\n'
    assert cells(written(tmp_path, "a.csv", content), "text") == [
        (2, ['a, "b"\n\nc']),
        (6, [long]),
    ]


def test_json_lines_have_keys_for_columns(tmp_path):
    lines = '{"text": "a\\nb", "label": 1}\n\n{"label": true, "more": [], "text": "\\ud83dc"}\n'
    path = written(tmp_path, "a.jsonl.gz", lines)
    assert open_table(str(path)).columns == ("text", "label")
    assert cells(path, "text", "label") == [(1, ["a\nb", "1"]), (3, ["?c", "true"])]


BAD = {
    "empty": ("a.tsv", "", ["a.tsv is empty"]),
    "no rows": ("a.csv", "text,label\n", ["no rows"]),
    "no column": ("a.tsv", "text\tclass\na\tb\n", ["a.tsv:1", "label", "class"]),
    "column twice": ("a.tsv", "text\tlabel\tlabel\na\tb\tc\n", ["a.tsv:1", "repeated: label"]),
    "a tab too many": ("a.tsv", "text\tlabel\na\tb\nc\td\te\n", ["a.tsv:3", "3 columns", "tabs"]),
    "too short": ("a.csv", "text,label\na\n", ["a.csv:2", "1 columns", "quotes"]),
    "empty text": ("a.csv", "text,label\n  ,b\n", ["a.csv:2", "`text` is empty", "remove"]),
    "not UTF-8": ("a.tsv", "text\tlabel\na\tb\ncafé\tb\n".encode("latin-1"), ["a.tsv:3", "UTF-8"]),
    "open quote": ("a.csv", 'text,label\na,b\n"c,d\n', ["a.csv:3", "quotes"]),
    "no JSON": ("a.jsonl", '{"text": "a", "label": "b"}\nc\n', ["a.jsonl:2", "JSON"]),
    "no object": ("a.jsonl", '["text", "label"]\n', ["a.jsonl:1", "object"]),
    "no text": ("a.jsonl", '{"text": null, "label": 0}\n', ["a.jsonl:1", "`text`", "None"]),
    "no key": ("a.jsonl", '{"text": "a", "label": 0}\n{"text": "b"}\n', ["a.jsonl:2", "`label`"]),
    "half a file": ("a.tsv.gz", gzip.compress(b"text\tlabel\n" * 99)[:-9], ["complete gzip"]),
}


@pytest.mark.parametrize("case", BAD)
def test_what_does_not_fit_is_named(tmp_path, case):
    name, content, words = BAD[case]
    path = tmp_path / name
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(InputError) as error:
        cells(path, "text", "label")
    assert all(word in str(error.value) for word in words), error.value


def test_short_rows_are_skipped_and_counted_where_that_is_asked_for(tmp_path, capsys):
    path = written(tmp_path, "a.tsv", "text\tlabel\na\nb\tx\nc\n\ty\n")
    options = {"skip_short": True, "allow_empty": True}
    assert cells(path, "text", "label", **options) == [(3, ["b", "x"]), (5, ["", "y"])]
    assert (
        capsys.readouterr().out
        == f"{path}: 2 rows with too few columns skipped, the first at line 2.\n"
    )
    with pytest.raises(InputError, match=r"a\.tsv:2: 1 columns"):
        cells(path, "text", "label", allow_empty=True)


def test_a_file_is_found_by_one_of_its_names(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"--data_dir: no file a\.tsv or a\.csv"):
        find(str(tmp_path), ["a.tsv", "a.csv"])
    path = written(tmp_path, "a.csv.gz", b"")
    assert find(str(tmp_path), ["a.tsv", "a.csv"]) == str(path)
    written(tmp_path, "a.tsv", b"")
    with pytest.raises(InputError, match=r"one of .*a\.tsv and .*a\.csv\.gz: remove"):
        find(str(tmp_path), ["a.tsv", "a.csv"])


def test_lines_keep_their_ends_and_numbers(tmp_path):
    path = written(tmp_path, "a.txt.gz", "é\n\nb")
    assert list(lines_of(str(path))) == [(1, "é\n"), (2, "\n"), (3, "b")]


def test_whole_surrogate_pairs_stay():
    assert parse_json('["\\ud83d\\ude00", "\\uDC00", "é"]', "x") == ["😀", "?", "é"]


def test_predictions_are_numbered(tmp_path):
    write_predictions(str(tmp_path / "CoLA.tsv"), ["1", "0"])
    assert (tmp_path / "CoLA.tsv").read_text() == "index\tprediction\n0\t1\n1\t0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["CoLA.tsv"]
