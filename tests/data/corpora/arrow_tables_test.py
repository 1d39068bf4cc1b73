"""Parquet and Arrow files as corpora, saved datasets, and folders of many kinds."""

import gzip
import json
import pathlib
import subprocess
import sys
import zipfile

import pyarrow
import pyarrow.parquet
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.corpora.corpus import NumberedCorpus, corpus_fingerprint, read_documents

TEXTS = ["One is here. Two is not.", "Drei.", None, "Vier.\n\nFive."]
READ = [("One is here.", "Two is not."), ("Drei.",), ("Vier.", "Five.")]


def read(corpus: str, **options) -> list[tuple[str, ...]]:
    return [document.sentences for document in read_documents(corpus, **options)]


def table(column: str = "text", texts=TEXTS) -> pyarrow.Table:
    return pyarrow.table({"id": list(range(len(texts))), column: texts})


def write_arrow(path: pathlib.Path, data: pyarrow.Table, is_stream: bool) -> pathlib.Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    make = pyarrow.ipc.new_stream if is_stream else pyarrow.ipc.new_file
    with make(str(path), data.schema) as writer:
        writer.write_table(data, max_chunksize=2)
    return path


@pytest.mark.parametrize("kind", ["parquet", "arrow", "files"])
@pytest.mark.parametrize("form", ["parquet", "arrow file", "arrow stream"])
@pytest.mark.parametrize("dtype", [pyarrow.string(), pyarrow.large_string()])
def test_the_texts_of_a_column(tmp_path, kind, form, dtype):
    data = pyarrow.table({"body": pyarrow.array(TEXTS, dtype), "n": [1, 2, 3, 4]})
    if form == "parquet":
        pyarrow.parquet.write_table(data, tmp_path / "a.parquet", row_group_size=3)
    else:
        write_arrow(tmp_path / "a.arrow", data, "stream" in form)
    corpus = f"{kind}:{tmp_path}/a.*"
    assert read(corpus, text_column="body") == READ
    numbered = NumberedCorpus(corpus, "blank_line", "strict", None, "body")
    numbered.require_text()
    assert [number for number, _ in numbered.documents(numbered.parts())] == [0, 1, 2]


def save(folder: pathlib.Path, parts: list[list[str]]) -> None:
    """Write what `save_to_disk` of Hugging Face's datasets does."""
    names = [f"data-{i:05}-of-{len(parts):05}.arrow" for i in range(len(parts))]
    for name, texts in zip(names, parts, strict=True):
        write_arrow(folder / name, table("text", texts), is_stream=True)
    state = {"_data_files": [{"filename": name} for name in names], "_split": "train"}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text("{}")


def test_a_saved_dataset_and_its_splits(tmp_path):
    save(tmp_path / "one", [["Eins.", "Zwei."], ["Drei."]])
    assert read(f"datasets:{tmp_path}/one") == [("Eins.",), ("Zwei.",), ("Drei.",)]
    save(tmp_path / "many" / "test", [["Test."]])
    (tmp_path / "many" / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    with pytest.raises(InputNotFoundError, match=r"no state.json in .*/many/train'"):
        read(f"datasets:{tmp_path}/many")
    save(tmp_path / "many" / "train", [["Train."]])
    assert read(f"datasets:{tmp_path}/many") == [("Train.",)]
    (tmp_path / "one" / "data-00001-of-00002.arrow").unlink()
    with pytest.raises(InputNotFoundError, match=r"no file .*data-00001-of-00002.arrow', which"):
        read(f"datasets:{tmp_path}/one")
    with pytest.raises(InputNotFoundError, match=r"Pass a folder that save_to_disk"):
        read(f"datasets:{tmp_path}/none")


@pytest.mark.parametrize("state", ["{}", '{"_data_files": []}', '{"_data_files": [{"x": 1}]}'])
def test_a_state_without_files(tmp_path, state):
    (tmp_path / "state.json").write_text(state)
    with pytest.raises(InputError, match=r"state.json' must list its files"):
        read(f"datasets:{tmp_path}")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (
            table("body"),
            "must have texts in the column `text`. Received: id, body. Pass the name",
        ),
        (table("text", [1, 2]), "Received: `text` of type int64. Pass the name"),
        (table("text", [["a"]]), "Received: `text` of type list<"),
    ],
)
def test_a_table_without_texts_is_named_before_the_work_begins(tmp_path, data, message):
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet")
    pyarrow.parquet.write_table(data, tmp_path / "b.parquet")
    corpus = NumberedCorpus(f"parquet:{tmp_path}/*", "blank_line", "strict", None)
    with pytest.raises(InputError) as error:
        corpus.require_text()
    assert f"{tmp_path}/b.parquet" in str(error.value) and message in str(error.value)


@pytest.mark.parametrize("cut", [0, 4, 30, -1, -30])
@pytest.mark.parametrize("form", ["parquet", "arrow"])
def test_a_file_that_is_cut_off(tmp_path, form, cut):
    path = tmp_path / f"a.{form}"
    if form == "parquet":
        pyarrow.parquet.write_table(table(), path)
    else:
        write_arrow(path, table(), is_stream=False)
    path.write_bytes(path.read_bytes()[:cut])
    with pytest.raises(InputError, match=r"--corpus: .* must be a complete parquet or Arrow file"):
        read(f"{form}:{path}")


def test_options_that_do_not_apply():
    with pytest.raises(InputError, match=r"--text_column applies only to the kinds jsonl, files,"):
        NumberedCorpus("text:a", "blank_line", "strict", None, "body")
    with pytest.raises(InputError, match="--document_boundary applies only to the kind"):
        NumberedCorpus("parquet:a", "file", "strict", None)


def test_json_lines_with_another_key(shared_data):
    path = f"{shared_data}/odd_files/C03/a.jsonl"
    found = list(read_documents(f"jsonl:{path}", text_column="content"))
    rows = [json.loads(line) for line in open(path, encoding="utf-8")]
    assert [document.text for document in found] == [row["content"] for row in rows]
    with pytest.raises(InputError, match=r"with text under `text`.* Pass --text_column if the"):
        read(f"jsonl:{path}")


def test_each_file_by_its_suffix(tmp_path, capsys):
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.txt").write_text("Text one.\n\nText two.")
    (tmp_path / "b.MD").write_text("# Head\n\nMark *down*.")
    (tmp_path / "c.ndjson").write_text('{"text": "Json."}')
    (tmp_path / "d.jsonl.gz").write_bytes(gzip.compress(b'{"text": "Packed."}'))
    pyarrow.parquet.write_table(table("text", ["Parquet."]), tmp_path / "e.parquet")
    with zipfile.ZipFile(tmp_path / "f.zip", "w") as archive:
        archive.writestr("x.md", "In *zip*.")
        archive.writestr("y.txt", "In zip.")
    write_arrow(tmp_path / "sub" / "g.arrow", table("text", ["Arrow."]), is_stream=True)
    (tmp_path / "h.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    wanted = [
        *(("Text one.",), ("Text two.",), ("Head", "Mark down."), ("Json.",), ("Packed.",)),
        *(("Parquet.",), ("In zip.",), ("In zip.",), ("Arrow.",)),
    ]
    assert read(f"files:{tmp_path}") == read(f"files:{tmp_path}/**") == wanted
    note = f"note: --corpus: files with other suffixes are left out: {tmp_path}/h.png."
    assert note in capsys.readouterr().err
    assert corpus_fingerprint(f"files:{tmp_path}") == corpus_fingerprint(f"files:{tmp_path}/**/*")
    one = read(f"files:{tmp_path}/a.txt", document_boundary="file")
    assert one == [("Text one.", "Text two.")]


@pytest.mark.parametrize("name", ["b.pdf", "b.PDF", "b.docx", "b.epub"])
def test_documents_that_are_not_read(tmp_path, name):
    (tmp_path / "a.txt").write_text("One.")
    (tmp_path / name).write_bytes(b"%PDF-1.4")
    with pytest.raises(InputError) as error:
        read(f"files:{tmp_path}")
    assert str(error.value).startswith(f"--corpus: {tmp_path}/{name} must end in .txt, .jsonl, ")
    assert "a PDF with pdftotext" in str(error.value)


def test_other_suffixes_in_a_zip(tmp_path, capsys):
    corpus = NumberedCorpus(f"files:{tmp_path}/*", "blank_line", "strict", None)
    files = {"x.css": b"\0", "y.txt": b"A text."}
    for name in ("", "z.pdf", "z.parquet"):
        with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
            for each, content in (files | ({name: b"\0"} if name else {})).items():
                archive.writestr(each, content)
        if name:
            with pytest.raises(InputError, match=f"a.zip/{name} cannot be read inside a .zip"):
                corpus.require_text()
            continue
        corpus.require_text()
        assert [document.text for _, document in corpus.documents(corpus.parts())] == ["A text."]
        assert "files of a .zip that end in '.css' are left out" in capsys.readouterr().err


def test_the_memory_does_not_grow_with_a_parquet_file(tmp_path):
    """100 MB of text in one row group."""
    path, rows, size = tmp_path / "a.parquet", 1000, 100_000
    schema = pyarrow.schema([("text", pyarrow.string())])
    with pyarrow.parquet.ParquetWriter(path, schema, write_batch_size=8) as writer:
        texts = [f"{i} " + "words " * (size // 6) for i in range(rows)]
        writer.write_table(pyarrow.table({"text": texts}, schema), row_group_size=rows)
    program = (
        "import re, sys; from data.corpora.corpus import NumberedCorpus\n"
        f"corpus = NumberedCorpus('parquet:{path}', 'blank_line', 'strict', None)\n"
        "print(sum(len(document.text) for _, document in corpus.documents(corpus.parts())))\n"
        "print(re.search(r'VmHWM:\\s*(\\d+) kB', open('/proc/self/status').read())[1])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    total, memory_kb = map(int, done.stdout.split())
    assert total == sum(map(len, texts)) and memory_kb < 260_000


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    pyarrow.parquet.write_table(table(), tmp_path / "a.parquet")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(
        InputError, match=r"a.parquet needs the package pyarrow. Run pip install -e '"
    ):
        read(f"parquet:{tmp_path}/a.parquet")
