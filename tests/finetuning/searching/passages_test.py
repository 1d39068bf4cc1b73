"""Passages: whole sentences, nothing lost, and the places that an editor shows."""

import json

import pytest

from data.corpora.corpus import NumberedCorpus
from data.corpora.readers import Document
from finetuning.searching.passages import Passage, passages_of, spans_of


def read(corpus: str, boundary: str = "blank_line", max_words: int = 5) -> list[Passage]:
    numbered = NumberedCorpus(corpus, boundary, "strict", None)
    documents = (document for _, document in numbered.documents(numbered.parts()))
    return list(passages_of(documents, max_words))


def test_whole_sentences_as_many_as_fit():
    text = "One two. Three four\nfive. Six. Seven eight nine ten eleven twelve. End."
    sentences = Document(text, "a").sentences
    found = [text[begin:end] for begin, end in spans_of(text, sentences, 5)]
    assert found == [
        "One two. Three four\nfive.",
        "Six.",
        "Seven eight nine ten eleven",
        "twelve. End.",
    ]


def test_characters_of_scripts_without_spaces_are_words():
    """A Thai vowel sign stays with its consonant: seven characters, of which two are signs."""
    text = "ที่นี่ มี"
    found = [text[begin:end] for begin, end in spans_of(text, [text], 2)]
    assert found == ["ที่นี่", "มี"]


def test_a_heading_stays_with_what_follows():
    long = "A long sentence of eight words is here."
    text = f"One two three four.\n\nA heading\n\nFive six seven.\n\nLast\n\n{long}"
    sentences = Document(text, "a").sentences
    found = [text[begin:end].split("\n\n") for begin, end in spans_of(text, sentences, 8)]
    assert found == [
        ["One two three four."],
        ["A heading", "Five six seven.", "Last"],  # with it, the next passage would be too long
        [long],
    ]


@pytest.mark.parametrize(
    "text",
    [
        "One. Two!\n\n* * *\n\n  Three is here.\t\nNo end",
        "你好。今天天气很好,我们去公园吧。再见。" * 3,
        "Mixed 漢字 text. かな。 End",
        "x" * 1000 + ". " + "y" * 350 + " A sentence.",
        "Half \ud800 pair. \x00\x1c Control.",
        "***",
        " \n",
    ],
)
def test_nothing_is_lost(text):
    def compact(text: str) -> str:
        return "".join(text.replace("\x00", " ").split())

    document = Document(text, "a")
    found = list(passages_of([document], 4))
    if not document.sentences:
        assert not found
        return
    assert compact("".join(passage.text for passage in found)) == compact(text)
    assert all(text.startswith(p.text, p.character) for p in found)
    assert all(len(p.text) <= 4 * 101 for p in found)


def test_real_text_is_covered(shared_data):
    path = shared_data / "corpus_en_more" / "turing-way-000.jsonl.gz"
    numbered = NumberedCorpus(f"jsonl:{path}", "blank_line", "strict", None)
    documents = [document for _, document in numbered.documents(numbered.parts())][:100]
    for document in documents:
        found = list(passages_of([document], 64))
        if document.sentences:
            words = [word for passage in found for word in passage.text.split()]
            assert words == document.text.split()
            assert max(len(passage.text.split()) for passage in found) <= 64


def test_lines_of_a_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(
        "\n \nOne two three\nfour five. Six seven.\n\n\nEight\nnine. Ten is here now.\n"
    )
    assert [(p.text, p.document, p.line, p.character) for p in read(f"text:{path}", "file")] == [
        ("One two three\nfour five.", 1, 3, 2),
        ("Six seven.\n\n\nEight\nnine.", 1, 4, 27),
        ("Ten is here now.", 1, 8, 52),
    ]
    assert [(p.text, p.document, p.line) for p in read(f"text:{path}")] == [
        ("One two three\nfour five.", 1, 3),
        ("Six seven.", 1, 4),
        ("Eight\nnine.", 2, 7),
        ("Ten is here now.", 2, 8),
    ]
    for boundary in ("file", "blank_line"):
        lines = path.read_text().split("\n")
        for passage in read(f"text:{path}", boundary):
            first = passage.text.split("\n")[0]
            assert first in lines[passage.line - 1]


def test_lines_of_records(tmp_path):
    path = tmp_path / "a.jsonl"
    rows = [{"text": "One.\n\nTwo."}, {"text": " "}, {"text": "Three four five six. Seven."}]
    path.write_text("\n\n".join(json.dumps(row) for row in rows))
    found = [(p.text, p.document, p.line) for p in read(f"jsonl:{path}", max_words=4)]
    assert found == [("One.\n\nTwo.", 1, 1), ("Three four five six.", 2, 5), ("Seven.", 2, 5)]


def test_numbers_of_documents_start_anew_in_each_source(tmp_path):
    for name in ("a.md", "b.md"):
        (tmp_path / name).write_text("# Title\n\nSome text.")
    found = read(f"markdown:{tmp_path}/*.md")
    assert [(p.document, p.line) for p in found] == [(1, 0), (1, 0)]
    assert [p.source[-4:] for p in found] == ["a.md", "b.md"]
