"""What the tests of searches share: a model that counts letters, and a folder of notes."""

import pathlib
import string

import numpy as np
import pytest

from finetuning.searching.indexing import CorpusToIndex, IndexingResult, update_index

NOTES = {
    "b/fox.txt": "The quick fox jumps.\n\nA lazy dog sleeps in the sun. Nothing else happens here.",
    "c/sea.txt": "Ships sail on the sea. The wind is strong.\nSailors like the & <b>storms</b>.",
    "d/tea.txt": "Green tea needs water of 80 degrees. Black tea needs boiling water.",
}


class LetterModel:
    """A model whose vectors are the counts of letters, of length 1.

    Attributes:
      calls: the numbers of texts of each call.
      fails_at: the call that is interrupted, counted from 0.
    """

    name, width = "letters", 26

    def __init__(self, fingerprint: str = "a", fails_at: int = -1) -> None:
        self.fingerprint, self.fails_at = fingerprint, fails_at
        self.calls: list[int] = []

    def passages(self, texts: list[str]) -> np.ndarray:
        """Return the vectors [N, 26]."""
        if len(self.calls) == self.fails_at:
            raise KeyboardInterrupt
        self.calls.append(len(texts))
        return np.stack([self.query(text) for text in texts])

    def query(self, text: str) -> np.ndarray:
        """Return the vector of a query."""
        counts = np.array([text.lower().count(letter) for letter in string.ascii_lowercase], "f")
        return counts / max(1.0, float(np.linalg.norm(counts)))


@pytest.fixture
def notes(tmp_path: pathlib.Path, monkeypatch) -> pathlib.Path:
    """A folder with `notes/`, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    for name, text in NOTES.items():
        path = tmp_path / "notes" / name
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path


def build(
    path: str = "index",
    corpus: str = "text:notes/**/*.txt",
    model: LetterModel | None = None,
    max_words: int = 8,
    **options,
) -> IndexingResult:
    """Build or extend an index of the working directory."""
    return update_index(
        path, CorpusToIndex(corpus), max_words, lambda: model or LetterModel(), **options
    )
