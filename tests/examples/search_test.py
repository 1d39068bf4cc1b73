"""`examples.search`: the command from a folder to answers, with a model of random weights."""

import io
import json
import os
import pathlib
import shutil
import sys

import numpy as np
import pytest

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.models.checkpoints import load_config
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.ranking.model import RankingSettings
from examples import search
from examples.search import SearchOptions, main
from finetuning.searching.passages import Passage
from finetuning.searching.search_index import SearchIndex
from finetuning.searching.searcher import Result, Searcher, printable

NOTES = {
    "a.txt": "The quick fox jumps.\n\nA lazy dog sleeps in the sun.",
    "b.md": "# Tea\n\nGreen tea needs water of 80 degrees.",
    "c.jsonl": json.dumps({"text": "Ships sail on the sea."}),
    "d.html": "<html><body><p>" + "The winter was long and cold. " * 20 + "</p></body></html>",
}


def run(*arguments: str) -> None:
    main(commands.parse(SearchOptions, ["search", *arguments], "", "", "action"))


@pytest.fixture(scope="module")
def world(pretrained: str, tmp_path_factory) -> pathlib.Path:
    """A folder with `notes` and an index of it."""
    folder = tmp_path_factory.mktemp("search")
    (folder / "notes").mkdir()
    for name, text in NOTES.items():
        (folder / "notes" / name).write_text(text)
    run("index", f"--corpus=files:{folder}/notes", f"--model={pretrained}", f"--output={folder}/i")
    return folder


def test_answers_in_the_shell(world, capsys, monkeypatch):
    monkeypatch.chdir(world)
    run("ask", "--index=i", "--query=lazy DOG?", "--top_k=2")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("1. notes/a.txt:1  0.0")
    assert lines[1] == "   The quick fox jumps. A lazy dog sleeps in the sun."
    assert lines[2].startswith("2. notes/")
    run("ask", "--index=i", "--query=degrees", "--by=words")
    assert capsys.readouterr().out.startswith("1. notes/b.md  ")
    run("ask", "--index=i", "--query=zebra", "--by=words")
    assert capsys.readouterr().out == "No passage has any of these very words.\n"


def test_a_line_that_is_unknown_is_null(world):
    """Markdown's text is without its markup; the first line of a text file is known."""
    found = Searcher(SearchIndex(f"{world}/i"), None).results("degrees fox", 9, "words")
    lines = {os.path.basename(each["source"]): each["line"] for each in map(Result.as_json, found)}
    assert lines == {"b.md": None, "a.txt": 1}


def test_the_words_of_the_query_are_bold_on_a_terminal(world, capsys, monkeypatch):
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    run("ask", f"--index={world}/i", "--query=dog sun", "--by=words")
    assert "lazy \033[1mdog\033[0m sleeps in the \033[1msun\033[0m." in capsys.readouterr().out


def test_words_in_decomposed_characters_are_bold():
    text = "Un cafe\u0301 noir"
    result = Result(1, 0.0, Passage(text, "a", 1, 1, 0), text, [(3, 8)])
    assert [*search._lines(result, 80, True)] == ["   Un \033[1mcafe\u0301\033[0m noir"]


def test_what_a_passage_shows():
    """Control characters and those that reorder what follows are replaced, joiners are not."""
    assert printable("a\x1b\n\u202eb\u2066c") == "a\ufffd \ufffdb\ufffdc"
    assert printable("می\u200cخواهم \U0001f468\u200d\U0001f469 Donau\u00addampfer") == (
        "می\u200cخواهم \U0001f468\u200d\U0001f469 Donaudampfer"
    )
    assert Result(1, 0.0, Passage("", "/x\x1b[31m.txt", 1, 1, 0), "", []).place.endswith(
        "x\ufffd[31m.txt:1"
    )


@pytest.mark.parametrize(
    ("document", "line", "character", "place"),
    [
        (1, 7, 900, "a.md:7"),
        (3, 7, 900, "a.md:7"),
        (1, 0, 0, "a.md"),
        (1200, 0, 0, "a.md, document 1,200"),
        (1, 0, 1234, "a.md, character 1,234"),
        (2, 0, 5, "a.md, document 2, character 5"),
    ],
)
def test_where_a_passage_is(document: int, line: int, character: int, place: str):
    """At its line or, where text has no lines, in its document."""
    passage = Passage("text", "a.md", document, line, character)
    assert Result(1, 0.0, passage, "text", []).place == place


def test_a_ranker_sorts_anew(world, pretrained, small_tokenizer, tmp_path, capsys):
    """The scores are those of `load_ranker`, of all passages that the words found."""
    rng, task = np.random.default_rng(0), RankingSettings(seq_length=32)
    config = load_config(pretrained)
    shapes = head_shapes(config, task)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    ranker = str(tmp_path / "ranker")
    native.write(Bundle(config, head, small_tokenizer, task), ranker)
    run("ask", f"--index={world}/i", "--query=the", "--by=words", f"--ranker={ranker}")
    lines = [line for line in capsys.readouterr().out.splitlines() if line[0].isdigit()]
    shown = [float(line.split()[-1]) for line in lines]
    texts = [passage.text for passage in map(SearchIndex(f"{world}/i").passage, range(4))]
    scores = albert_tf.load_ranker(ranker)("the", [text for text in texts if "the" in text.lower()])
    assert len(shown) > 1 and shown == sorted(shown, reverse=True)
    assert set(shown) <= {round(float(score), 4) for score in scores}


def test_queries_of_a_pipe(world, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("fox\n\nsea\n"))
    run("ask", f"--index={world}/i", "--by=words", "--top_k=1")
    out = capsys.readouterr().out.splitlines()
    assert [line for line in out if line.startswith("#")] == ["# fox", "# sea"]
    assert "c.jsonl:1  " in out[4]
    stdin = io.TextIOWrapper(io.BytesIO(b"\xff\nsea\n"), "utf-8")
    monkeypatch.setattr(sys, "stdin", stdin)
    run("ask", f"--index={world}/i", "--by=words", "--top_k=1")
    out = capsys.readouterr().out
    assert "# \ufffd\nNo passage has any of these very words.\n# sea\n1. " in out


def test_an_index_is_brought_up_to_date(world, pretrained, tmp_path, capsys):
    for name in ("i", "notes"):
        shutil.copytree(world / name, tmp_path / name)
    new = f"--corpus=text:{tmp_path}/notes/*.txt", f"--output={tmp_path}/i"
    (tmp_path / "notes" / "new.txt").write_text("A zebra.")
    run("index", *new, f"--model={pretrained}", "--dry_run")
    assert "can be read; files: 2 new" in capsys.readouterr().out
    run("index", *new, f"--model={pretrained}")
    assert capsys.readouterr().out.endswith("/i: 2 new passages; files: 2 new; 6 files in all\n")
    run("ask", f"--index={tmp_path}/i", "--query=zebra", "--by=words")
    assert "new.txt:1  " in capsys.readouterr().out
    (tmp_path / "notes" / "last.txt").write_text("An okapi.")
    run("index", *new)
    assert capsys.readouterr().out.endswith("/i: 1 new passage; files: 1 new; 7 files in all\n")
    run("index", *new)
    assert capsys.readouterr().out.endswith(
        "/i: no file is new, changed or removed; 7 files in all\n"
    )
    (tmp_path / "notes" / "last.txt").unlink()
    (tmp_path / "notes" / "new.txt").write_text("A quagga.")
    run("index", *new, f"--model={pretrained}")
    assert capsys.readouterr().out.endswith(
        "/i: 1 new passage; files: 1 changed, 1 removed; 6 files in all\n"
    )


def test_an_interruption_says_what_to_do(world, tmp_path, capsys, monkeypatch):
    def interrupted(*arguments) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("examples.search.update_index", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run("index", f"--corpus=files:{world}/notes", f"--output={tmp_path}/i", "--model=m")
    assert "run the same command again to continue" in capsys.readouterr().err


def test_dry_runs(world, pretrained, capsys, tmp_path):
    options = f"--corpus=files:{world}/notes", f"--model={pretrained}", "--dry_run"
    run("index", *options, f"--output={tmp_path}/new")
    assert capsys.readouterr().out.endswith("can be read; files: 4 new\n")
    assert not (tmp_path / "new").exists()
    run("ask", f"--index={world}/i", "--dry_run")
    assert "passages" in capsys.readouterr().out


def test_another_model_is_refused(world):
    with pytest.raises(InputError, match="--model must be the model of the vectors in"):
        run("ask", f"--index={world}/i", "--model=albert-mini-en", "--query=a")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("index", "--corpus=text:*"), "--output is required for `index`"),
        (("ask",), "--index is required for `ask`"),
        (("find",), "--action must be one of index, ask. Received: 'find'"),
        (("ask", "--index=i", "--corpus=text:*"), "--corpus is only for --action=index"),
        (("ask", "--index=i", "--query=a", "--serve=0"), "--serve and --query exclude each other"),
        (("ask", "--index=i", "--top_k=0"), r"--top_k must be in \[1, 100\]"),
        (("ask", "--index=i", "--query= "), "The query must have text. Received: ' '"),
    ],
)
def test_mistakes(world, monkeypatch, arguments, message):
    monkeypatch.chdir(world)
    with pytest.raises(InputError, match=message):
        run(*arguments)


def test_no_index(world, monkeypatch):
    monkeypatch.chdir(world)
    with pytest.raises(InputNotFoundError, match="'notes', without index.json"):
        run("ask", "--index=notes", "--query=a")


def test_a_busy_port(world):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as busy:
        port = busy.getsockname()[1]
        with pytest.raises(InputError, match=f"--serve={port} must be a free port"):
            run("ask", f"--index={world}/i", "--by=words", f"--serve={port}")
