"""Indexes: built at once or in steps, interrupted, extended, refused."""

import itertools
import json
import os
import pathlib
import zipfile

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError, MachineError
from finetuning.searching import part_files, word_postings
from finetuning.searching.indexing import CorpusToIndex, IndexingResult, update_index
from finetuning.searching.part_files import CONTENTS, IndexedFile
from finetuning.searching.search_index import SETTINGS, SearchIndex
from finetuning.searching.searcher import METHODS, Searcher
from finetuning.searching.word_postings import LARGE
from tests.finetuning.searching.conftest import NOTES, LetterModel, build

QUERIES = ("tea with water", "wind", "fox and dog", "zebra")


def passages(path: str) -> list:
    index = SearchIndex(path)
    return [index.passage(row) for row in range(len(index))]


def answers(path: str) -> list:
    searcher = Searcher(SearchIndex(path), LetterModel().query)
    return [
        [(result.passage, pytest.approx(result.score)) for result in searcher.results(query, 3, by)]
        for query, by in itertools.product(QUERIES, METHODS)
    ]


def test_an_index_has_all_passages_with_their_places(notes):
    result = build()
    assert (result.new_files, result.old_files) == (3, 0)
    found = passages("index")
    assert len(found) == result.passages == 8
    by_source = {name: [p for p in found if p.source.endswith(name)] for name in NOTES}
    for name, text in NOTES.items():
        lines = text.split("\n")
        for passage in by_source[name]:
            assert text.startswith(passage.text, passage.character)
            assert passage.text.split("\n")[0] in lines[passage.line - 1]
    assert SearchIndex("index").parts[0].vectors.dtype == np.float16
    assert not [p for p in pathlib.Path("index").rglob("*") if "unfinished" in p.name]


def test_an_extended_index_equals_one_built_at_once(notes):
    build("whole")
    build("steps", "text:notes/b/*.txt")
    assert len(passages("steps")) == 3
    result = build("steps", "text:notes/[bc]/*.txt")
    assert (result.new_files, result.old_files) == (1, 1)
    result = build("steps")
    assert (result.new_files, result.old_files) == (1, 2)
    assert passages("steps") == passages("whole")
    assert answers("steps") == answers("whole")
    model = LetterModel()
    result = build("steps", model=model)
    assert (result.new_files, result.passages, model.calls) == (0, 0, [])
    assert len(SearchIndex("steps").parts) == 3


@pytest.mark.parametrize("large", [LARGE, 0])
def test_small_parts_keep_no_file_open(large: int, notes, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(word_postings, "LARGE", large)
    monkeypatch.setattr(part_files, "LARGE", large)
    for pattern in ("notes/b/*.txt", "notes/[bc]/*.txt", "notes/**/*.txt"):
        build("index", f"text:{pattern}")
    before = len(os.listdir("/proc/self/fd"))
    index = SearchIndex("index")
    opened = len(os.listdir("/proc/self/fd")) - before
    # Three parts, each with places, texts, vectors and the four arrays of words; LENGTHS is copied.
    assert len(index.parts) == 3 and opened == (0 if large else 3 * 6)


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("fails_at", [0, 1, 2])
def test_an_interrupted_index_continues(notes, is_new, fails_at):
    build("whole")
    if not is_new:
        build("index", "text:notes/b/*.txt")
    interrupted, model = LetterModel(fails_at=fails_at), LetterModel()
    with pytest.raises(KeyboardInterrupt):
        build(model=interrupted, chunk=2)
    assert interrupted.calls == [2] * fails_at
    if is_new:
        with pytest.raises(InputNotFoundError):
            SearchIndex("index")
    else:
        assert len(passages("index")) == 3  # the old part still answers
    build(model=model, chunk=2)
    total = 8 if is_new else 5
    assert sum(model.calls) == total - 2 * fails_at
    assert passages("index") == passages("whole") and answers("index") == answers("whole")
    assert not list(pathlib.Path().glob("**/*.incomplete"))


def test_an_interrupted_index_of_other_files_starts_over(notes):
    with pytest.raises(KeyboardInterrupt):
        build(model=LetterModel(fails_at=1), chunk=2)
    (notes / "notes" / "b" / "fox.txt").write_text("Something else.")
    build(chunk=2)
    assert passages("index")[0].text == "Something else."


def test_a_dry_run_writes_nothing(notes):
    result = build(dry_run=True)
    assert (result.new_files, result.passages) == (3, None)
    assert not pathlib.Path("index").exists()


def test_other_settings_are_refused(notes):
    build()
    (notes / "notes" / "e.txt").write_text("More.")
    with pytest.raises(InputError, match="--model must be the model of the vectors in 'index'"):
        build(model=LetterModel("b"))
    with pytest.raises(InputError, match=r"--max_words must be that of the index, 8\. Received: 9"):
        build(max_words=9)
    assert build().new_files == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"text_column": "title"}, r"--text_column must be .* indexed, 'text'\. Received: 'title'"),
        ({"document_boundary": "blank_line"}, "--document_boundary must be .* indexed, 'file'"),
        ({"corpus": "text:notes/*.jsonl"}, "--corpus must be .*a.jsonl was indexed, 'files:notes'"),
    ],
)
def test_files_are_read_as_before(notes, option, message):
    (notes / "notes" / "a.jsonl").write_text('{"text": "A goose.", "title": "A swan."}\n')

    def update(**given) -> IndexingResult:
        corpus = given.pop("corpus", "files:notes")
        return update_index("index", CorpusToIndex(corpus, **given), 8, LetterModel)

    update()
    with pytest.raises(InputError, match=message):
        update(**option)
    assert update(document_boundary="file").new_files == 0  # the default of texts
    assert build(corpus="jsonl:notes/*.jsonl").new_files == 0  # has no boundary
    other = update(corpus="files:notes/b", text_column="title")  # which only tables have
    assert other[:3] == (0, 0, 0)


def test_an_index_in_its_folder_leaves_itself_out(notes):
    def build_there(**given) -> IndexingResult:
        return build("notes/index", "files:notes", chunk=1, **given)

    with pytest.raises(KeyboardInterrupt):
        build_there(model=LetterModel(fails_at=3))
    model = LetterModel()
    assert build_there(model=model).passages == 8 and len(model.calls) == 5  # it was continued
    (notes / "notes" / "e.txt").write_text("A heron.")
    assert build_there()[:4] == (1, 0, 0, 3)
    assert build_there()[:4] == (0, 0, 0, 4) and len(passages("notes/index")) == 9
    assert build("notes/index", "text:notes/**/*")[:4] == (0, 0, 0, 4)


@pytest.mark.parametrize("fails_at", [-1, 1])
def test_an_index_follows_its_files(notes, fails_at):
    """The answers are those of a new index; only passages of new and changed files get vectors."""
    build()
    (notes / "notes" / "b" / "fox.txt").write_text("A dog and a fox meet. They drink water.")
    (notes / "notes" / "c" / "sea.txt").unlink()
    (notes / "notes" / "c" / "new.txt").write_text("A zebra stands in the wind, without tea.")
    if fails_at > 0:
        with pytest.raises(KeyboardInterrupt):
            build(model=LetterModel(fails_at=fails_at), chunk=1)
        assert len(passages("index")) == 8  # as before
    model = LetterModel()
    result = build(model=model, chunk=1)
    assert result[:4] == (1, 1, 1, 3) and result.passages == 3
    assert len(model.calls) == 3 - max(0, fails_at)
    build("whole")
    assert sorted(passages("index")) == sorted(passages("whole"))
    # Not by both: the order of equal ranks may differ.
    for query, by in itertools.product(QUERIES, METHODS[1:]):
        updated, whole = (
            sorted(
                (each.passage, round(each.score, 6))
                for each in Searcher(SearchIndex(path), LetterModel().query).results(query, 9, by)
            )
            for path in ("index", "whole")
        )
        assert updated == whole
    assert build() == IndexingResult(0, 0, 0, 3, 0)


def test_a_file_comes_and_goes(notes):
    """Changed twice, removed, and put back with its first text."""
    build()
    path = notes / "notes" / "b" / "fox.txt"
    for text in ("One cat.", "Two cats."):
        path.write_text(text)
        assert build().changed_files == 1
        assert [each.text for each in passages("index") if "cat" in each.text] == [text]
    path.unlink()
    assert build(corpus="text:notes/c/*.txt") == IndexingResult(0, 0, 1, 3, 0)
    assert {each.source for each in passages("index")} == {
        str(notes / "notes" / name) for name in ("c/sea.txt", "d/tea.txt")
    }
    path.write_text(NOTES["b/fox.txt"])
    assert build() == IndexingResult(1, 0, 0, 2, 3)
    build("whole")
    assert sorted(passages("index")) == sorted(passages("whole"))


def test_a_file_that_cannot_be_reached_is_not_removed(notes, break_folder):
    build()
    break_folder(notes / "notes" / "b")
    with pytest.raises(MachineError, match="notes/b' cannot be read: Permission denied"):
        build(corpus="text:notes/c/*.txt")
    assert len(passages("index")) == 8


def test_a_changed_file_without_text_is_dropped(notes):
    build()
    path = notes / "notes" / "b" / "fox.txt"
    path.write_text("***")
    assert build() == IndexingResult(0, 1, 0, 3, 0)
    assert len(passages("index")) == 5
    (notes / "notes" / "blank.txt").write_text(" ")
    assert build("index", "text:notes/**.txt") == IndexingResult(1, 0, 0, 3, 0)
    assert build("index", "text:notes/**.txt") == IndexingResult(0, 0, 0, 4, 0)
    assert len(passages("index")) == 5


def test_an_index_may_become_empty(notes):
    build()
    for name in ("b/fox.txt", "c/sea.txt"):
        (notes / "notes" / name).unlink()
    (notes / "notes" / "c" / "sea.txt").mkdir()  # no longer a file
    (notes / "notes" / "d" / "tea.txt").write_text("***")
    assert build() == IndexingResult(0, 1, 2, 3, 0)
    for by in METHODS:
        assert not Searcher(SearchIndex("index"), LetterModel().query).results("tea", 3, by)
    (notes / "notes" / "d" / "more.txt").write_text("Tea again.")
    assert build() == IndexingResult(1, 0, 0, 1, 1)
    assert [each.text for each in passages("index")] == ["Tea again."]


def test_files_that_repeat_texts_of_others_are_read_together(notes):
    """`squad` skips a text of an earlier file, and would lose it with that file."""

    def write(name: str, *contexts: str) -> None:
        paragraphs = [{"context": text, "qas": []} for text in contexts]
        content = {"data": [{"title": "t", "paragraphs": paragraphs}]}
        (notes / name).write_text(json.dumps(content))

    write("a.json", "A shared text.", "Another one.")
    write("b.json", "A shared text.")
    assert build(corpus="squad:*.json").passages == 2
    write("a.json", "Another one.")
    with pytest.raises(InputError, match=r"--corpus=squad:\*.json, which is read as a whole"):
        build(corpus="squad:*.json")


def test_the_files_of_a_zip_are_those_of_the_zip(notes):
    def write(text: str) -> None:
        with zipfile.ZipFile(notes / "notes" / "more.zip", "w") as archive:
            archive.writestr("deep/er.txt", text)
            archive.writestr("../../up.txt", text.replace("An", "No"))

    write("An emu runs.")
    build(corpus="files:notes")
    write("An okapi runs.")
    assert build(corpus="files:notes").changed_files == 1
    found = [each for each in passages("index") if "runs" in each.text]
    assert [each.text for each in found] == ["No okapi runs.", "An okapi runs."]
    assert found[1].source.endswith("more.zip/deep/er.txt")
    (notes / "notes" / "more.zip").unlink()
    assert build(corpus="files:notes").removed_files == 1
    assert not [each for each in passages("index") if "runs" in each.text]


def test_what_is_no_text(notes):
    (notes / "empty").mkdir()
    with pytest.raises(InputNotFoundError, match="--corpus: the folder 'empty' has no files"):
        build(corpus="files:empty")
    (notes / "empty" / "blank.txt").write_text(" \n***\n")
    with pytest.raises(InputError, match="--corpus must contain text. Received: 'files:empty'"):
        build(corpus="files:empty")
    assert not list(pathlib.Path().glob("index*"))
    (notes / "index").mkdir()
    (notes / "index" / "mine").touch()
    with pytest.raises(InputError, match="--output must name a new or empty folder"):
        build()


def test_sources_without_files_are_indexed_as_a_whole(notes, monkeypatch):
    assert build(corpus="python_docs:json").passages > 3
    assert {passage.source for passage in passages("index")} == {"json"}
    assert build(corpus="python_docs:json").new_files == 0
    with pytest.raises(
        InputError, match="has --corpus=python_docs:json,bisect, which is read as a"
    ):
        build(corpus="python_docs:json,bisect")
    build()
    real = IndexedFile.of
    monkeypatch.setattr(IndexedFile, "of", lambda path: real(path)._replace(sha256="other"))
    with pytest.raises(InputError, match="--corpus=python_docs:json, which is read as a whole"):
        build(corpus="python_docs:json")


@pytest.mark.parametrize("name", [*CONTENTS, "part.json", "../index.json"])
@pytest.mark.parametrize("change", ["byte", "end", "missing"])
def test_damage_is_named(notes, name, change):
    build()
    path = notes / "index" / "part-0000" / name
    content = bytearray(path.read_bytes())
    if change == "missing":
        path.unlink()
    elif change == "end":
        path.write_bytes(content[:-3])
    else:
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    with pytest.raises(InputError, match="^--index"):
        SearchIndex("index")


def test_a_missing_part_is_named(notes):
    build("index", "text:notes/b/*.txt")
    build()
    (notes / "index" / "part-0000").rename(notes / "elsewhere")
    with pytest.raises(InputError, match="'index' must be as it was written. Received: no part-0"):
        SearchIndex("index")


def test_an_index_of_another_version_is_not_called_damaged(notes):
    build()
    path = notes / "index" / SETTINGS
    values = json.loads(path.read_text()) | {"schema": 2}
    path.write_text(json.dumps(part_files.with_digest(values)))
    with pytest.raises(InputError, match=r"another version: it has schema 2, .* Build a new one"):
        SearchIndex("index")


def test_a_vector_that_is_no_number(notes):
    class Broken(LetterModel):
        def passages(self, texts: list[str]) -> np.ndarray:
            return np.full((len(texts), 26), np.nan)

    with pytest.raises(InputError, match="--model: the vector of text .* finite numbers"):
        build(model=Broken())


def test_a_ranker_sorts_the_first_passages_anew(notes):
    """By their length, the longest first; of as many as are asked for, but at least 50."""
    build()
    asked = []

    def longest(query: str, texts: list[str]) -> np.ndarray:
        asked.append((query, len(texts)))
        return np.array([len(text) for text in texts], np.float32)

    plain = Searcher(SearchIndex("index"), LetterModel().query)
    searcher = Searcher(SearchIndex("index"), LetterModel().query, longest)
    lengths = [len(text.text) for text in passages("index")]
    for by in METHODS:
        rows = [row for row, _ in plain.ranking("tea", 8, by)]
        rows.sort(key=lambda row: -lengths[row])
        ranking = searcher.ranking("tea", 2, by)
        assert ranking == [(row, lengths[row]) for row in rows[:2]]
    assert searcher.ranking("zebra", 2, "words") == []
    assert asked == [("tea", 8), ("tea", 8), ("tea", 2)]


def test_a_name_that_is_not_utf_8_is_refused_first(notes):
    with open(b"notes/b/caf\xe9.txt", "w") as file:
        file.write("A text.")
    model = LetterModel()
    with pytest.raises(
        InputError, match="--corpus must be a path whose name is UTF-8. Received: b'"
    ):
        build(model=model)
    assert not model.calls
