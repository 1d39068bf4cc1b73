"""Labelled files in the shapes that tools write, made by hand."""

import json
import pathlib

import pyarrow
import pyarrow.parquet
import pytest

from albert_tf.runtime.errors import InputError
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Reading, Source
from finetuning.datasets.tables.json_files import normalized, object_rows


def read(folder: pathlib.Path, task: str, name: str, content: str | bytes, **reading) -> Data:
    content = content.encode() if isinstance(content, str) else content
    for part in ("train", "dev"):
        (folder / f"{part}{name}").write_bytes(content)
    return DATASETS[task].read(Source(str(folder), reading=Reading(**reading)))


def lines(*rows: dict) -> str:
    return "\n".join(map(json.dumps, rows))


def parquet(columns: dict, metadata: dict | None = None) -> bytes:
    table = pyarrow.table(columns)
    if metadata:
        table = table.replace_schema_metadata({"huggingface": json.dumps(metadata)})
    stream = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(table, stream, row_group_size=2)
    return stream.getvalue().to_pybytes()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        (
            [{"start_offset": 0, "end_offset": 3, "label": "A"}],
            [{"start": 0, "end": 3, "label": "A"}],
        ),
        (
            [{"start": 0, "end": 3, "labels": ["A"]}],
            [{"start": 0, "end": 3, "labels": ["A"], "label": "A"}],
        ),
        ([{"start": 0, "labels": ["A", "B"]}], [{"start": 0, "labels": ["A", "B"]}]),
        ({"choices": ["A", "B"]}, ["A", "B"]),
        (
            {"text": ["x", "y"], "answer_start": [3, 5]},
            [{"text": "x", "answer_start": 3}, {"text": "y", "answer_start": 5}],
        ),
        ({"text": [], "answer_start": []}, []),
        ({"text": ["x"], "answer_start": []}, {"text": ["x"], "answer_start": []}),
        ([[0, 3, "A"]], [[0, 3, "A"]]),
        ("text", "text"),
    ],
)
def test_the_shape_of_a_value(given, wanted):
    assert normalized({"key": given}) == {"key": wanted}
    assert normalized([given]) == [given]  # a row that is no object stays as it is


ROWS = [{"text": "a good day", "label": "pos"}, {"text": "a bad day", "label": "neg"}]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".json", json.dumps(ROWS)),
        (".json", json.dumps(ROWS, indent=2)),
        (".json", lines(*ROWS)),  # as datasets' to_json writes them
        (".parquet", parquet({k: [row[k] for row in ROWS] for k in ROWS[0]})),
        ("-00000-of-00001.parquet", parquet({k: [row[k] for row in ROWS] for k in ROWS[0]})),
        (".csv", "sep=;\r\ntext;label\r\na good day;pos\r\na bad day;neg\r\n"),
        (".csv", "SEP=|\ntext|label\na good day|pos\na bad day|neg\n"),
        (".csv", '"sep=\t"\ntext\tlabel\na good day\tpos\na bad day\tneg\n'),
        (".csv", '"text";"label"\n"a good day";"pos"\n"a bad day";"neg"\n'),
        (".csv", '"text";"label";"x,y"\na good day;pos;1,5\na bad day;neg;2\n'),
        (".json", json.dumps([row | {"label": {"choices": [row["label"]]}} for row in ROWS])),
    ],
)
def test_the_same_table_in_many_forms(tmp_path, name, content):
    data = read(tmp_path, "text_classification", name, content)
    assert data.task.labels == ("neg", "pos")
    assert [(e.first, e.label) for e in data.train] == [("a good day", 1), ("a bad day", 0)]


def shards(folder: pathlib.Path, part: str, count: int = 2) -> None:
    for number, row in enumerate(ROWS):
        content = parquet({key: [row[key]] for key in row})
        (folder / f"{part}-{number:05d}-of-{count:05d}.parquet").write_bytes(content)


def test_all_shards_are_read(tmp_path):
    shards(tmp_path, "train")
    shards(tmp_path, "validation")
    data = DATASETS["text_classification"].read(Source(str(tmp_path), reading=Reading()))
    assert [(e.first, e.label) for e in data.train] == [("a good day", 1), ("a bad day", 0)]
    assert data.dev["dev"] == data.train


def test_a_missing_shard_is_named(tmp_path):
    shards(tmp_path, "train", count=3)
    shards(tmp_path, "dev")
    with pytest.raises(
        InputError,
        match=r"train-00000-of-00003.parquet is the first of 3 files. Missing: .*00002-of",
    ):
        DATASETS["text_classification"].read(Source(str(tmp_path), reading=Reading()))


def test_lines_are_counted_below_the_separator(tmp_path):
    with pytest.raises(InputError, match=r"train.csv:4: `label` is empty"):
        read(tmp_path, "text_classification", ".csv", "sep=;\ntext;label\nx;a\ny;\n")


@pytest.mark.parametrize(
    ("labels", "names", "wanted"),
    [
        ([1, 0, 1], ["neg", "pos"], ("neg", "pos")),
        ([1, 0, 1], ["0", "1"], ("0", "1")),
        ([1, 0, 1], None, ("0", "1")),
    ],
)
def test_classes_of_parquet_have_their_names(tmp_path, labels, names, wanted):
    feature = {"names": names, "_type": "ClassLabel"} if names else {"dtype": "int64"}
    info = {"info": {"features": {"label": feature, "text": {"_type": "Value"}}}}
    content = parquet({"text": ["a", "b", "c"], "label": labels}, info)
    data = read(tmp_path, "text_classification", ".parquet", content)
    assert data.task.labels == wanted and [e.label for e in data.train] == labels


def test_classes_after_a_column_of_lists_have_their_names(tmp_path):
    """A feature may be a list with the feature of its items."""
    info = {"tags": [{"_type": "Value"}], "label": {"names": ["neg", "pos"], "_type": "ClassLabel"}}
    columns = {"tags": [["x"], []], "text": ["a", "b"], "label": [1, 0]}
    content = parquet(columns, {"info": {"features": info}})
    assert read(tmp_path, "text_classification", ".parquet", content).task.labels == ("neg", "pos")


def test_several_choices_of_label_studio_in_a_table(tmp_path):
    """A single one is plain text there."""
    several = json.dumps({"choices": ["joy", "love"]}).replace('"', '""')
    table = f'text,label\na,"{several}"\nb,joy\n'
    data = read(tmp_path, "multi_label", ".csv", table)
    assert data.task.labels == ("joy", "love")
    assert [e.label for e in data.train] == [(0, 1), (0,)]
    with pytest.raises(InputError, match="csv:2: `label` must hold one label.*multi_label"):
        read(tmp_path, "text_classification", ".csv", table)


def test_the_folder_of_a_saved_dataset(tmp_path):
    for part in ("train", "validation"):
        (tmp_path / part).mkdir()
        table = pyarrow.table({key: [row[key] for row in ROWS] for key in ROWS[0]})
        path = tmp_path / part / "data-00000-of-00001.arrow"
        with pyarrow.ipc.new_stream(path, table.schema) as stream:
            stream.write_table(table)
    data = DATASETS["text_classification"].read(Source(str(tmp_path), reading=Reading()))
    assert [(e.first, e.label) for e in data.train] == [("a good day", 1), ("a bad day", 0)]
    assert data.dev["dev"] == data.train


@pytest.mark.parametrize(
    ("task", "rows", "unknown"),
    [
        ("text_classification", [{"text": "a", "label": "x"}, {"text": "b", "label": "y"}], -1),
        ("text_regression", [{"text": "a", "label": 1.0}, {"text": "b", "label": 2.5}], -1.0),
        (
            "sts",
            [
                {"sentence1": "a", "sentence2": "c", "label": 1.0},
                {"sentence1": "b", "sentence2": "d", "label": 0.0},
            ],
            -1.0,
        ),
        (
            "multiple_choice",
            [
                {"question": "q", "options": ["a", "b"], "label": 1},
                {"question": "p", "options": ["a", "b"], "label": 0},
            ],
            -1,
        ),
    ],
)
def test_labels_of_a_test_part_that_are_kept_secret(tmp_path, capsys, task, rows, unknown):
    data = read(tmp_path, task, ".jsonl", lines(*rows))
    (tmp_path / "test.jsonl").write_text(lines(*(row | {"label": unknown} for row in rows)))
    source = Source(str(tmp_path), reading=Reading())
    examples = DATASETS[task].read_part(source, "test", data.task)
    assert [example.label for example in examples] == [None, None]
    assert "is -1 in all rows, so it is unknown" in capsys.readouterr().out
    (tmp_path / "test.jsonl").write_text(lines(rows[0], rows[1]))
    examples = DATASETS[task].read_part(source, "test", data.task)
    assert all(example.label is not None for example in examples)


def test_tags_of_tokens_beside_the_text(tmp_path):
    row = {"text": "Ann left.", "tokens": ["Ann", "left", "."], "ner_tags": ["B-PER", "O", "O"]}
    data = read(tmp_path, "token_classification", ".jsonl", lines(row))
    assert data.train[0].text == "Ann left ." and data.train[0].entities == ((0, 3, "PER"),)
    spans = {"text": "Ann left.", "tokens": [{"text": "Ann"}], "spans": [[0, 3, "PER"]]}
    data = read(tmp_path, "token_classification", ".jsonl", lines(spans))
    assert data.train[0].text == "Ann left."


def test_tags_of_parquet_have_their_names(tmp_path):
    tags = {"feature": {"names": ["O", "B-PER", "I-PER"], "_type": "ClassLabel"}, "_type": "List"}
    columns = {"tokens": [["Ann", "Berg", "left"], []], "ner_tags": [[1, 2, 0], []]}
    content = parquet(columns, {"info": {"features": {"ner_tags": tags}}})
    data = read(tmp_path, "token_classification", ".parquet", content)
    (example,) = data.train
    assert (example.text, example.entities) == ("Ann Berg left", ((0, 8, "PER"),))


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        (
            [{"tokens": ["a", "b"], "ner_tags": ["O"]}],
            ":1: each token must have a tag. Received: 2 tokens and 1 tags",
        ),
        (
            [{"tokens": ["a"], "ner_tags": [3]}],
            ":1: `ner_tags` must be a list of texts that are not empty. Received: 3. Write",
        ),
        ([{"tokens": ["a", " "]}], ":1: `tokens` must be a list of texts that are not empty"),
        ([{"tokens": ["a"], "ner_tags": "O"}], ":1: `ner_tags` must be a list of texts"),
        (
            [{"tokens": ["a"], "ner_tags": ["O"]}, {"text": "a"}],
            ":2 must be an object with a list of tokens, as the first one is",
        ),
        ([{"tokens": []}], "holds no tokens"),
        ([{"tokens": [], "ner_tags": 1}], ":1: `ner_tags` must be a list of texts"),
    ],
)
def test_tokens_that_do_not_fit(tmp_path, rows, message):
    with pytest.raises(InputError) as error:
        read(tmp_path, "token_classification", ".jsonl", lines(*rows))
    assert message in str(error.value)


def test_tokens_under_other_keys_and_without_tags(tmp_path):
    row = {"words": ["Ann", "left"], "pos": ["NOUN", "VERB"]}
    data = read(tmp_path, "token_classification", ".jsonl", lines(row), label_column="pos")
    assert data.task.labels == ("NOUN", "VERB") and data.task.scheme == "words"
    (tmp_path / "test.jsonl").write_text(lines({"words": ["Bo"]}))
    source = Source(str(tmp_path), reading=Reading(label_column="pos"))
    (example,) = DATASETS["token_classification"].read_part(source, "test", data.task)
    assert (example.text, example.tokens, example.entities) == ("Bo", ((0, 2),), None)


@pytest.mark.parametrize(
    ("start", "end", "is_read"), [(3, 4, True), (1, 4, False), (3, 9, False), (0, 3, True)]
)
def test_offsets_in_utf16(tmp_path, start, end, is_read):
    content = lines({"text": "\U0001f600 b", "entities": [[start, end, "X"]]})
    if not is_read:  # within the emoji, behind the end
        with pytest.raises(InputError, match="a span must have a label, and cover text"):
            read(tmp_path, "token_classification", ".jsonl", content, offsets="utf16")
        return
    data = read(tmp_path, "token_classification", ".jsonl", content, offsets="utf16")
    ((begin, stop, _),) = data.train[0].entities
    assert data.train[0].text[begin:stop] == ("b" if start else "\U0001f600")


COLUMNS = {"text_column": ("text",), "label_columns": ("joy", "fear")}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".csv", "text,joy,fear\na,1,0\nb,0,0\nc,1.0,TRUE\n"),
        (
            ".jsonl",
            lines(
                {"text": "a", "joy": 1, "fear": 0},
                {"text": "b", "joy": False, "fear": 0.0},
                {"text": "c", "joy": True, "fear": "1"},
            ),
        ),
        (".parquet", parquet({"text": ["a", "b", "c"], "joy": [1, 0, 1], "fear": [0, 0, 1]})),
    ],
)
def test_columns_of_labels(tmp_path, name, content):
    data = read(tmp_path, "multi_label", name, content, **COLUMNS)
    assert data.task.labels == ("fear", "joy")
    assert [example.label for example in data.train] == [(1,), (), (0, 1)]
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "test.csv").write_text("text\nx\n")
    source = Source(str(tmp_path), reading=Reading(**COLUMNS))
    (example,) = DATASETS["multi_label"].read_part(source, "test", data.task)
    assert (example.first, example.label) == ("x", None)


@pytest.mark.parametrize("cell", ["2", "-1", "", "x", "0.5"])
def test_columns_of_labels_that_are_not_0_and_1(tmp_path, cell):
    with pytest.raises(InputError, match=r"train.csv:2: `fear` must be 0 or 1"):
        read(tmp_path, "multi_label", ".csv", f"text,joy,fear\na,1,{cell}\n", **COLUMNS)


FLAT = {
    "id": 7,
    "question": "Who?",
    "context": "Ann left.",
    "answers": {"text": ["Ann"], "answer_start": [0]},
}
EMPTY = FLAT | {"id": 8, "answers": {"text": [], "answer_start": []}}


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (".json", json.dumps({"data": [FLAT, EMPTY]})),
        (".json", json.dumps([FLAT, EMPTY])),
        (".jsonl", lines(FLAT, EMPTY)),
        (".json", lines(FLAT, EMPTY)),
        (".parquet", parquet({key: [FLAT[key], EMPTY[key]] for key in FLAT})),
    ],
)
def test_flat_questions(tmp_path, name, content):
    data = read(tmp_path, "squad2", name, content)
    found = [(e.id, e.answers, e.is_impossible) for e in data.train]
    assert found == [("7", ((0, "Ann"),), False), ("8", (), True)]
    with pytest.raises(InputError, match="'8' must have an answer in this part"):
        read(tmp_path, "squad1", name, content)


def test_a_part_without_any_answers_is_not_unanswerable(tmp_path):
    (tmp_path / "test.jsonl").write_text(lines(EMPTY))
    data = read(tmp_path, "squad2", ".jsonl", lines(FLAT, EMPTY))
    source = Source(str(tmp_path))
    (example,) = DATASETS["squad2"].read_part(source, "test", data.task)
    assert not example.is_impossible and not example.answers


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (".parquet", b"PAR1 this is not parquet PAR1", "must be a complete parquet or Arrow file"),
        (".parquet.gz", b"x", "train.parquet.gz must not be packed"),
        (".json", "[1, 2]", "train.json:1 must be a JSON object. Received: '1'"),
        (".json", '[{"text": "a"}', "train.json must be JSON"),
        (".parquet", parquet({"body": ["a"]}), "the first object must name text and label"),
        (
            ".parquet",
            parquet({"text": ["a", None], "label": ["x", "y"]}),
            "train.parquet:2: the key `text` is missing, or its value is null",
        ),
        (
            ".parquet",
            parquet({"text": ["a", "b"], "label": [1.5, float("nan")]}),
            "train.parquet:2: the key `label` is missing, or its value is null",
        ),
        (".parquet", parquet({"text": [b"\xff"], "label": ["x"]}), "`text` must be text"),
    ],
)
def test_invalid_files_of_tools_are_refused(tmp_path, name, content, message):
    with pytest.raises(InputError) as error:
        read(tmp_path, "text_classification", name, content)
    assert message in str(error.value) and "\n" not in str(error.value)


def test_parquet_is_read_in_small_batches(tmp_path):
    path = tmp_path / "a.parquet"
    path.write_bytes(parquet({"text": [str(i) for i in range(3000)]}))
    assert [(n, row["text"]) for n, _, row in object_rows(str(path))] == [
        (i + 1, str(i)) for i in range(3000)
    ]
