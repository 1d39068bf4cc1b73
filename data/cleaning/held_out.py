"""Word 8-grams of evaluation files, which training texts should not have."""

import os
from collections.abc import Sequence

import numpy as np

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files import paths
from data.cleaning.ngrams import ngram_hashes, word_hashes
from data.corpora.dataset_texts import texts_in

SIZE = 8
_FLAG = "--held_out"


class HeldOut:
    """The word 8-grams of files: 8 bytes each in memory.

    The texts of a file are those of `data.corpora.dataset_texts`.

    Args:
      patterns: globs of the files.

    Raises:
      InputNotFoundError: a glob matches nothing.
      InputError: a file cannot be read, or no text has 8 words.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        hashes: list[np.ndarray] = [np.zeros(0, np.uint64)]
        for pattern in patterns:
            if not (files := paths.files_matching(pattern, _FLAG)):
                folder = os.path.isdir(pattern)
                remedy = f"Name its files, as in '{pattern}/*'" if folder else "Check the path"
                raise InputNotFoundError(f"{_FLAG}: no file matches {pattern!r}. {remedy}.")
            for path in files:
                parts = [ngram_hashes(word_hashes(text), SIZE) for text in texts_in(path, _FLAG)]
                hashes.append(np.unique(np.concatenate([hashes[0], *parts])))
        self._hashes: np.ndarray = np.unique(np.concatenate(hashes))
        if not len(self._hashes):
            raise InputError(
                f"{_FLAG} must name files with texts of at least {SIZE} words. Received: "
                f"{', '.join(patterns)}."
            )

    def __len__(self) -> int:
        return len(self._hashes)

    def overlaps(self, text: str) -> bool:
        """Return True if a text shares a run of 8 words with the files."""
        hashes = ngram_hashes(word_hashes(text), SIZE)
        places = np.minimum(np.searchsorted(self._hashes, hashes), len(self._hashes) - 1)
        return bool((self._hashes[places] == hashes).any())
