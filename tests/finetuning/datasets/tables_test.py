"""Tables are read exactly; what does not fit is named by file, line and remedy."""

import bz2
import csv
import gzip
import io
import lzma
import os
import pathlib
import zipfile

import pandas
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.text_files import lines_of
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import (
    note_if_quoted,
    open_table,
    write_predictions,
)


def cells(
    path: pathlib.Path, *names: str, quotes_are_text: bool = False, **options
) -> list[tuple[int, list[str]]]:
    """The line and the cells of each row."""
    rows = open_table(str(path), quotes_are_text=quotes_are_text).select(names, **options)
    return [(int(place.removeprefix(f"{path}:")), chosen) for place, chosen in rows]


def zipped(content: bytes) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        kinds = {b"{": "a.jsonl", b"text,": "a.csv", b"text\t": "a.tsv"}
        archive.writestr(
            next(name for begin, name in kinds.items() if content.startswith(begin)), content
        )
    return stream.getvalue()


def written(folder: pathlib.Path, name: str, content: str | bytes) -> pathlib.Path:
    content = content.encode("utf-8") if isinstance(content, str) else content
    (folder / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    return folder / name


@pytest.mark.parametrize("name", ["a.tsv", "a.tsv.gz"])
def test_where_quotes_are_text_tabs_alone_divide(tmp_path, name):
    # A byte order mark, quotes, carriage returns at ends of lines and within, U+2028, blank lines.
    content = '\ufefftext\tid\tlabel\r\n"a\t1\tx\r\n\nb "c"\u2028d\re\t2\ty, z'
    path = written(tmp_path, name, content)
    rows = cells(path, "label", "text", quotes_are_text=True)
    assert rows == [(2, ["x", '"a']), (4, ["y, z", 'b "c"\u2028d\re'])]


TEXTS = [
    '"Great" film',
    'He said "so"',
    '"',
    'a\ttab, a "quote" and\na line\r\n',
    "naïve\u2028漢字 😀",
    " ' ; \\t",
    '"all of it"',
]


@pytest.mark.parametrize("writer", ["csv", "csv, all quoted", "pandas"])
@pytest.mark.parametrize(("name", "delimiter"), [("a.tsv", "\t"), ("a.csv", ",")])
def test_tables_by_csv_and_pandas_are_read_exactly(tmp_path, writer, name, delimiter):
    path = tmp_path / name
    if writer == "pandas":
        table = pandas.DataFrame({"text": TEXTS, "label": range(len(TEXTS))})
        table.to_csv(path, sep=delimiter, index=False)
    else:
        with open(path, "w", encoding="utf-8", newline="") as file:
            quoting = csv.QUOTE_ALL if "all" in writer else csv.QUOTE_MINIMAL
            rows = csv.writer(file, delimiter=delimiter, quoting=quoting)
            rows.writerows([("text", "label"), *zip(TEXTS, range(len(TEXTS)), strict=True)])
    found = cells(path, "text", "label")
    assert [row for _, row in found] == [[text, str(i)] for i, text in enumerate(TEXTS)]
    assert [line for line, _ in found] == [2, 3, 4, 5, 8, 9, 10]


def test_a_row_in_quotes_that_swallows_others_is_noted_once(tmp_path, capsys):
    """Of a file whose quotes were meant as text, csv makes one row of three."""
    rows = 'a\tx\n"b\ty\nc\ty\nd"\tx\n'
    path = written(tmp_path, "a.tsv", "text\tlabel\n" + rows * 2)
    assert [line for line, _ in cells(path, "text", "label")] == [2, 3, 6, 7]
    note = (
        "a text in quotes holds tabs and line breaks. If these quotes belong to the text, rewrite"
    )
    printed = capsys.readouterr().err
    assert (
        printed.startswith(f"{path}:3: {note} the file with csv.writer")
        and printed.count("\n") == 1
    )


@pytest.mark.parametrize(
    ("rows", "is_noted"),
    [
        (['"a"', '"b "" c"'], True),
        (['"a"'] * 5 + ["b"], True),
        (['"a"', "b"], False),
        (['"'], False),
        ([], False),
    ],
)
def test_texts_that_csv_quoted_are_noted_where_quotes_are_text(capsys, rows, is_noted):
    table = [(f"a.tsv:{i}", [text, "label"]) for i, text in enumerate(rows, start=2)]
    assert list(note_if_quoted(iter(table), 1)) == table
    printed = capsys.readouterr().err
    assert printed.startswith("a.tsv:2: the texts begin and end with quotes") is is_noted
    assert ("csv.QUOTE_NONE" in printed) is is_noted


def test_csv_has_quoting(tmp_path):
    long = "word " * 50_000  # beyond the csv module's own limit of 131,072 characters
    content = f'id,text\n1,"a, ""b""\n\nc"\n\n2,{long}\n'
    assert cells(written(tmp_path, "a.csv", content), "text") == [
        (2, ['a, "b"\n\nc']),
        (6, [long]),
    ]


@pytest.mark.parametrize(
    ("header", "row"),
    [
        ("id;text", '1;"a; b, c"'),
        ('id;"text";"x, y"', '1;"a; b, c";'),  # a comma in quotes does not count
        ("id,text,x; y", '1,"a; b, c",'),
    ],
)
def test_the_header_of_a_csv_names_its_separator(tmp_path, header: str, row: str):
    path = written(tmp_path, "a.csv", f"{header}\n{row}\n")
    assert cells(path, "text") == [(2, ["a; b, c"])]


def test_json_lines_have_keys_for_columns(tmp_path):
    lines = '{"text": "a\\nb", "label": 1}\n\n{"label": true, "more": [], "text": "c"}\n'
    path = written(tmp_path, "a.jsonl.gz", lines)
    assert open_table(str(path)).columns == ("text", "label")
    assert cells(path, "text", "label") == [(1, ["a\nb", "1"]), (3, ["c", "true"])]


NO_VALUE = "is missing, or its value is null. Add it, or remove the row."
WORKBOOK = "must be text. Received: an Excel workbook. Save it as CSV UTF-8."
BAD = {
    "empty": ("a.tsv", "", ["a.tsv is empty"]),
    "no rows": ("a.csv", "text,label\n", ["no rows"]),
    "no column": ("a.tsv", "text\tclass\na\tb\n", ["a.tsv:1", "label", "class"]),
    "column twice": ("a.tsv", "text\tlabel\tlabel\na\tb\tc\n", ["a.tsv:1", "repeated: label"]),
    "a tab too many": ("a.tsv", "text\tlabel\na\tb\nc\td\te\n", ["a.tsv:3", "3 columns", "tabs"]),
    "too short": ("a.csv", "text,label\na\n", ["a.csv:2", "1 columns", "quotes"]),
    "empty text": ("a.csv", "text,label\n  ,b\n", ["a.csv:2", "`text` is empty", "remove"]),
    "not UTF-8": ("a.tsv", "text\tlabel\na\tb\ncafé\tb\n".encode("latin-1"), ["a.tsv:3", "UTF-8"]),
    "UTF-16": (
        "a.tsv",
        "text\tlabel\n".encode("utf-16"),
        ["a.tsv must be text", "Received: UTF-16.", "iconv -f UTF-16 -t UTF-8"],
    ),
    "UTF-32": ("a.tsv.gz", gzip.compress("text".encode("utf-32")), ["iconv -f UTF-32 -t UTF-8"]),
    "open quote": ("a.csv", 'text,label\na,b\n"c,d\n', ["a.csv:3", "quotes"]),
    "no JSON": ("a.jsonl", '{"text": "a", "label": "b"}\nc\n', ["a.jsonl:2", "JSON"]),
    "no object": ("a.jsonl", '["text", "label"]\n', ["a.jsonl:1", "object"]),
    "stray quote": ("a.tsv", 'text\tlabel\n"a" b\tc\n', ["a.tsv:2", "\\t", "double the quotes"]),
    "csv": ("a.tsv", 'text\tlabel\na\tb\n"c\td\n', ["a.tsv:3", "csv.writer or pandas to_csv"]),
    "no text": ("a.jsonl", '{"text": ["a"], "label": 0}\n', ["a.jsonl:1", "`text`", "['a']"]),
    "null": (
        "a.jsonl",
        '{"text": null, "label": 0}\n',
        [f"a.jsonl:1: the key `text` {NO_VALUE}"],
    ),
    "no key": (
        "a.jsonl",
        '{"text": "a", "label": 0}\n{"text": "b"}\n',
        [f"a.jsonl:2: the key `label` {NO_VALUE}"],
    ),
    "NaN as text": (
        "a.jsonl",
        '{"text": NaN, "label": 0}\n',
        ["a.jsonl:1 must be JSON: NaN is not a JSON value"],
    ),
    "NaN as label": (
        "a.jsonl",
        '{"text": "a", "label": 0}\n{"text": "b", "label": NaN}\n',
        ["a.jsonl:2 must be JSON: NaN is not a JSON value"],
    ),
    "infinity": ("a.jsonl", '{"text": "a", "label": -Infinity}\n', ["a.jsonl:1", "-Infinity is"]),
    "CR and LF": ("a.csv", "text,label\ra,x\rb,y\n", ["a.csv:1: some lines end in CR alone"]),
    "infinity as a number": (
        "a.jsonl",
        '{"text": "a", "label": 1e999}\n',
        ["a.jsonl:1", "too large"],
    ),
    "no key in the first": ("a.jsonl", '{"text": "a"}\n', ["the first object must name", "label"]),
    "commas in .tsv": ("a.tsv", "text,label\na,b\n", ["a.tsv:1", "separated by ',': name it .csv"]),
    "tabs in .csv": ("a.csv", "text\tlabel\na\tb\n", ["separated by '\\t': name it .tsv"]),
    "xls": (
        "a.csv",
        bytes.fromhex("d0cf11e0a1b11ae1") + b"\n",
        ["a.csv must be text. Received: an ", "CSV"],
    ),
    "half a file": ("a.tsv.gz", gzip.compress(b"text\tlabel\n" * 99)[:-9], ["complete gzip"]),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_that_do_not_fit_are_named(tmp_path, case):
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


@pytest.mark.parametrize(("name", "mark"), [("a.csv", ","), ("a.tsv", "\t"), ("text.tsv", "\t")])
def test_the_header_of_a_file_that_was_appended_is_no_row(tmp_path, capsys, name, mark):
    rows = ["text,label", "a,x", "text,x", "\ufefftext,label", "b,y", "text,label", "c,label"]
    path = written(tmp_path, name, "\n".join(rows).replace(",", mark))
    found = cells(path, "text", "label", quotes_are_text=name == "text.tsv")
    assert found == [(2, ["a", "x"]), (3, ["text", "x"]), (5, ["b", "y"]), (7, ["c", "label"])]
    note = f"note: {path}: lines that repeat the header are left out: 4, 6.\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    ("name", "content"),
    [("a.csv", "text\na\ntext\n"), ("a.jsonl", '{"text": "text", "label": "label"}\n')],
)
def test_a_row_that_may_be_data_is_kept(tmp_path, capsys, name, content):
    path = written(tmp_path, name, content)
    assert cells(path, "text")[-1][1] == ["text"]
    assert not capsys.readouterr().err


def test_a_file_is_found_by_one_of_its_names(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"--data_dir: no file a\.tsv or a\.csv"):
        find(str(tmp_path), ["a.tsv", "a.csv"])
    path = written(tmp_path, "a.csv.gz", b"")
    assert find(str(tmp_path), ["a.tsv", "a.csv"]) == str(path)
    written(tmp_path, "a.tsv", b"")
    with pytest.raises(InputError, match=r"one of .*a\.tsv and .*a\.csv\.gz: remove"):
        find(str(tmp_path), ["a.tsv", "a.csv"])


@pytest.mark.parametrize("name", ["dev", "validation", "valid", "val"])
def test_a_dev_part_has_one_of_four_names(tmp_path, name):
    path = written(tmp_path, f"{name}.csv", b"")
    assert find(str(tmp_path), ["dev.tsv", "dev.csv"]) == str(path)
    written(tmp_path, "val.tsv", b"")
    with pytest.raises(InputError, match=rf"one of .*{name}\.csv.*: remove"):
        find(str(tmp_path), ["dev.tsv", "dev.csv"])


def test_a_dev_part_of_another_format_is_named(tmp_path):
    written(tmp_path, "valid.xlsx", b"")
    with pytest.raises(InputNotFoundError, match=r"There is valid\.xlsx: save it in one of these"):
        find(str(tmp_path), ["dev.tsv", "dev.csv"])


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("a.CSV", "write it in lower case"),
        ("A.Tsv.GZ", "write it in lower case"),
        ("a.xlsx", "save it in one of these formats"),
        ("a.json", "save it in one of these formats"),
        ("a.csv.txt", "save it in one of these formats"),
    ],
)
def test_a_file_of_another_format_is_named(tmp_path, name, remedy):
    for other in (name, "ab.csv", "b.csv"):
        written(tmp_path, other, b"")
    with pytest.raises(InputNotFoundError) as error:
        find(str(tmp_path), ["a.tsv", "a.csv"])
    assert str(error.value) == (
        "--data_dir: no file a.tsv or a.csv (or the same with .gz, .bz2, .xz, .zst, .zip) in "
        f"{str(tmp_path)!r} (working directory {os.getcwd()}). There is {name}: {remedy}."
    )


PACKED = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zip": zipped}


@pytest.mark.parametrize("suffix", PACKED)
@pytest.mark.parametrize(
    ("name", "content"),
    {
        "a.tsv": 'text\tlabel\n"1\n2"\tb\n',
        "a.csv": 'text,label\n"1\n2",b\n',
        "a.jsonl": '{"text": "1\\n2", "label": "b"}',
    }.items(),
)
def test_tables_of_every_compression(tmp_path, suffix, name, content):
    (tmp_path / f"{name}{suffix}").write_bytes(PACKED[suffix](content.encode()))
    path = find(str(tmp_path), ["a.tsv", "a.csv", "a.jsonl"])
    assert path == f"{tmp_path}/{name}{suffix}"
    assert [chosen for _, chosen in cells(path, "text", "label")] == [["1\n2", "b"]]


def test_an_excel_workbook_is_named(shared_data):
    with pytest.raises(
        InputError, match=r"train\.csv must be text\. Received: an Excel workbook\. "
    ):
        open_table(str(shared_data / "odd_files" / "T29" / "train.csv"))


def test_a_pipe_among_the_tables_is_refused(tmp_path):
    os.mkfifo(tmp_path / "a.csv")
    with pytest.raises(
        InputError, match=r"--data_dir: .*/a\.csv must be a file\. Received: a pipe"
    ):
        find(str(tmp_path), ["a.tsv", "a.csv"])


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_lines_may_end_in_cr_alone(tmp_path, name):
    """In files without other line ends, as LF; elsewhere CR is text, also in the first line."""
    path = written(tmp_path, name, '\ufefftext,label\ra,x\r"b\rc",y\r')
    assert cells(path, "text", "label") == [(2, ["a", "x"]), (3, ["b\nc", "y"])]
    path = written(tmp_path, name, "text\r,label\r\na,x\r\n")
    assert list(lines_of(str(path))) == [(1, "text\r,label\r\n"), (2, "a,x\r\n")]


def test_a_workbook_is_named(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.csv", "w") as file:
        file.writestr("[Content_Types].xml", "<x/>")
        file.writestr("xl/worksheets/sheet1.xml", "<x/>")
    with pytest.raises(InputError) as error:
        cells(tmp_path / "a.csv", "text")
    assert str(error.value) == f"{tmp_path / 'a.csv'} {WORKBOOK}"


def test_predictions_in_csv(tmp_path):
    write_predictions(str(tmp_path / "a.csv"), ["a, b", "c"])
    assert (tmp_path / "a.csv").read_text() == 'index,prediction\n0,"a, b"\n1,c\n'


def test_predictions_are_numbered(tmp_path):
    write_predictions(str(tmp_path / "CoLA.tsv"), ["1", "0"])
    assert (tmp_path / "CoLA.tsv").read_text() == "index\tprediction\n0\t1\n1\t0\n"
    assert [path.name for path in tmp_path.iterdir()] == ["CoLA.tsv"]
