"""Tests of the sample of sentences."""

from data.corpora.corpus import Document
from data.vocabulary import sampling


def test_text_without_spaces_takes_bounded_time(capsys, monkeypatch):
    monkeypatch.setattr(sampling, "_MAX_UNBROKEN_PARTS", 5)
    documents = [Document("abcdefgh" * 1000, "a"), Document("A few words.", "a")]  # 20 parts of 400
    assert sampling.sample(documents, 100, 0) == ["A few words.", *["abcdefgh" * 50] * 5]
    assert capsys.readouterr().out.endswith(
        "read 21 sentences from 2 documents, used 6\n"
        "note: 20 parts of 400 characters have no space; used 5 of them.\n"
    )
