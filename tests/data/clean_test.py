"""The command that cleans a corpus: what each step removes, the report, and bad input."""

import json
import os
import pathlib
import unicodedata

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.clean import clean
from data.cleaning.options import CleanOptions
from data.cleaning.repeated_lines import RepeatedLines
from data.corpora.corpus import read_documents


def write(folder: pathlib.Path, texts: list[str], name: str = "a.jsonl") -> str:
    folder.mkdir(parents=True, exist_ok=True)
    rows = "".join(json.dumps({"text": text}) + "\n" for text in texts)
    (folder / name).write_text(rows, encoding="utf-8")
    return f"jsonl:{folder}/{name}"


def cleaned(tmp_path, texts: list[str], shard_bytes: int = 2**20, **options) -> list[str]:
    corpus = write(tmp_path / "in", texts)
    out = str(tmp_path / "out")
    clean(CleanOptions(corpus, out, **options), shard_bytes)
    return [document.text for document in read_documents(f"jsonl:{out}/*.jsonl")]


def report(tmp_path) -> str:
    return (tmp_path / "out" / "report.md").read_text(encoding="utf-8")


def test_exact_duplicates(tmp_path, capsys):
    texts = ["One is here.", "Two is not.", "One  is here.", "Tree.", "Two is not."]
    assert cleaned(tmp_path, texts, duplicates="exact") == [texts[0], texts[1], texts[3]]
    said = report(tmp_path)
    assert "| read | 5 documents | 52 |" in said and "| kept | 3 documents | 28 |" in said
    assert "| exact duplicates | 2 dropped | 24 |" in said
    assert f"| `{tmp_path}/in/a.jsonl` | One is here. | {tmp_path}/in/a.jsonl: One is" in said
    assert f"{tmp_path}/out: 3 of 5 documents" in capsys.readouterr().out
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "clean-00000.jsonl",
        "report.md",
    ]


def test_the_same_bytes_in_files_of_any_size(tmp_path):
    texts = [f"Text {i % 7} is here." for i in range(40)]
    one = cleaned(tmp_path / "a", texts, duplicates="exact")
    two = cleaned(tmp_path / "b", texts, shard_bytes=100, duplicates="exact")
    assert one == two == texts[:7]
    names = sorted(path.name for path in (tmp_path / "b" / "out").glob("*.jsonl"))
    assert names == [f"clean-{i:05}.jsonl" for i in range(len(names))] and len(names) > 1
    rows = [json.loads(line) for line in open(tmp_path / "a" / "out" / "clean-00000.jsonl")]
    assert rows[0] == {"text": texts[0], "source": f"{tmp_path}/a/in/a.jsonl"}


def test_lines_of_many_documents(tmp_path):
    texts = [f"  Home | About\nText {i} is here.\n\nCopyright" for i in range(5)]
    texts += ["Home | About\nHome | About\nLast one.", "Copyright", "Five.\nOnly five times."]
    found = cleaned(tmp_path, texts, repeated_lines=6)
    assert found == [f"Text {i} is here.\n" for i in range(5)] + ["Last one.", texts[-1]]
    said = report(tmp_path)
    assert "| lines of many documents | 13 removed |" in said  # 5 x 2, 2 and 1
    assert said.count("| Home \\| About |") == 1  # as an example
    assert "| nothing left of the document | 1 dropped |" in said
    assert cleaned(tmp_path / "b", texts, repeated_lines=7) == texts


def test_lines_that_share_a_cell_are_counted_apart():
    repeated = RepeatedLines(2, cells=1)
    texts = ["a\nb", "a\nc", "d", "d\nd"]
    repeated.estimate(texts)
    repeated.count(texts)
    assert repeated.removed_from("a\nb\n\n d \nc") == ("b\n\nc", ["a", " d "])
    assert repeated.removed_from("b") == ("b", [])


EIGHT = "the quick brown fox jumps over the lazy"


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("eval.txt", f"Once upon a time\n{EIGHT}\ndog."),
        ("eval.csv", f'text,label\n"Now {EIGHT} dog",1\n'),
        ("eval.jsonl", json.dumps({"a": [{"b": EIGHT.upper()}], "n": 1})),
        ("eval.ndjson", json.dumps({"a": f"é\n{EIGHT}"})),
        ("eval.json", json.dumps({"data": [{"context": f"So {EIGHT}, dog"}]}, indent=1)),
        ("eval.conll", "\n".join(f"{word} O" for word in EIGHT.split()) + "\n\nfox O\n"),
        ("eval.conllu", "# text\n" + "\n".join(f"1\t{word}\tX" for word in EIGHT.split())),
    ],
)
def test_paragraphs_of_evaluation_files(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    paragraph = "He said: the QUICK, brown fox jumps -- over the lazy one."
    texts = [
        f"First.\n\n{paragraph}\n\nLast.",
        paragraph,
        "The quick brown fox jumps over a lazy dog.",  # seven words in a row
        "First.\n\n \nLast.",
    ]
    found = cleaned(tmp_path, texts, held_out=(f"{tmp_path}/eval.*",))
    assert found == ["First.\n\nLast.", texts[2], texts[3]]
    said = report(tmp_path)
    assert "| paragraphs with held-out text | 2 removed |" in said


def test_words_and_letters(tmp_path):
    texts = ["one two three", "one two", "one two three four five", "1 2 3 a", "漢字漢字"]
    assert cleaned(tmp_path, texts, min_words=3, max_words=4) == [texts[0], texts[3], texts[4]]
    said = report(tmp_path)
    assert "| fewer than 3 words | 1 dropped |" in said
    assert "| more than 4 words | 1 dropped |" in said
    assert cleaned(tmp_path / "b", texts, min_letters=0.5) == [*texts[:3], texts[4]]
    assert "| less than 50% letters | 1 dropped |" in report(tmp_path / "b")
    hindi = ["हिन्दी में लिखा हुआ एक साधारण वाक्य जो किसी कहानी का हिस्सा है।"]  # a third is marks
    assert cleaned(tmp_path / "c", hindi, min_letters=0.9) == hindi


def test_accents_may_be_written_in_two_ways(tmp_path):
    text = "Le café près de la rivière était fermé à cause de la fête du village."
    apart = unicodedata.normalize("NFD", text)
    (tmp_path / "eval.txt").write_text(text)
    assert cleaned(tmp_path, ["A text.", apart], held_out=(f"{tmp_path}/eval.txt",)) == ["A text."]
    both = cleaned(tmp_path / "b", [text, apart], duplicates="near")
    assert both == [text]


def test_a_name_that_is_not_utf_8(tmp_path):
    (tmp_path / "in").mkdir()
    with open(os.fsencode(tmp_path) + b"/in/caf\xe9.txt", "w") as file:
        file.write("One text.\n\nAnother text.\n\nOne text.")
    clean(CleanOptions(f"text:{tmp_path}/in/*", str(tmp_path / "out"), duplicates="exact"))
    assert "caf?.txt" in report(tmp_path)
    rows = (tmp_path / "out" / "clean-00000.jsonl").read_text().splitlines()
    assert [json.loads(row)["text"] for row in rows] == ["One text.", "Another text."]


def test_languages(tmp_path):
    pytest.importorskip("py3langid")
    english = "The old tram left the yard at noon, and a man sat near the door."
    german = "Die alte Bahn verließ den Hof am Mittag, und ein Mann saß an der Tür."
    french = "Le vieux tramway a quitté le dépôt à midi, et un homme était assis."
    texts = [english, german, french]
    assert cleaned(tmp_path, texts, languages="en,de") == [english, german]
    assert "| another language than en,de | 1 dropped |" in report(tmp_path)
    with pytest.raises(InputError, match="--languages: unknown language `xq`"):
        cleaned(tmp_path / "b", texts, languages="en,xq")


def test_near_duplicates(tmp_path):
    pytest.importorskip("rensa")
    words = [f"word{i}" for i in range(200)]
    texts = [" ".join(words), "Another text is here.", " ".join([*words, "and more"])]
    assert cleaned(tmp_path, texts, duplicates="near") == texts[:2]
    assert "## near duplicates" in report(tmp_path)
    assert not list((tmp_path / "out").glob(".*"))


def test_sentences_of_their_own_stay_apart(tmp_path):
    (tmp_path / "a.txt").write_text("one of a\ntwo of b\n\nother\n")
    out = str(tmp_path / "out")
    clean(CleanOptions(f"sentences:{tmp_path}/a.txt", out, min_words=1))
    found = [document.sentences for document in read_documents(f"jsonl:{out}/*.jsonl")]
    assert found == [("one of a", "two of b"), ("other",)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, r"pass at least one of --duplicates, --repeated_lines, .*, --held_out\."),
        ({"min_words": 5, "max_words": 4}, "--max_words must not be below --min_words"),
        ({"duplicates": "exact", "similarity": 0.9}, "--similarity is only for --duplicates=near"),
        ({"duplicates": "near", "similarity": 0.4}, r"--similarity must be in \[0.5, 1\]"),
        ({"duplicates": "all"}, "--duplicates must be one of keep, exact, near"),
        ({"min_letters": 2.0}, "--min_letters must be in"),
        ({"min_words": 99}, "nothing is left of .* fewer than 99 words: 2"),
        ({"held_out": ("short.txt",)}, "must name files with texts of at least 8 words"),
        ({"held_out": ("none*",)}, r"--held_out: no file matches 'none\*'"),
    ],
)
def test_refused_options_leave_nothing(tmp_path, monkeypatch, options, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "short.txt").write_text("seven words are not enough for that")
    with pytest.raises(InputError, match=message):
        cleaned(tmp_path, ["One.", "Two."], **options)
    assert not (tmp_path / "out").exists() and not list(tmp_path.glob("out*"))


def test_an_output_that_exists_is_refused_before_the_work_begins(tmp_path):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("mine")
    with pytest.raises(InputError, match="--output must name a new or empty folder"):
        clean(CleanOptions("jsonl:none", str(tmp_path / "out"), min_words=1))
    with pytest.raises(InputNotFoundError, match="no file matches"):
        clean(CleanOptions("jsonl:none*", str(tmp_path / "new"), min_words=1))


def test_a_dry_run_writes_nothing(tmp_path, capsys):
    corpus = write(tmp_path / "in", ["One."])
    clean(CleanOptions(corpus, str(tmp_path / "out"), min_words=1, dry_run=True))
    assert json.loads(capsys.readouterr().out)["min_words"] == 1
    assert not (tmp_path / "out").exists()
