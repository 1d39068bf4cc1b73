"""Documents that are copies of an earlier one, exactly or nearly.

Near copies are found by MinHash. A document is a set of runs of 5 words. Signatures of 128 numbers
agree in about the share of places that two sets have in common (Jaccard), and pairs that agree in
all 4 numbers of one of 32 bands are compared. So a pair of similarity s is compared with the
probability 1 - (1 - s^4)^32: 0.873 at 0.5, 0.99999 at 0.75.
"""

import array
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from albert_tf.runtime import extras
from data.cleaning.ngrams import ngram_hashes, word_hashes
from data.cleaning.report import EXAMPLES

SIGNATURE, BANDS = 128, 32
_ROWS = SIGNATURE // BANDS
_WORDS = 5
_SEED = 1
_NEIGHBORS = 8  # of a bucket, each document is compared with the last ones and the first one
_PAIRS_AT_ONCE = 2**16


class Copy(NamedTuple):
    """The number of the document that another one repeats, and how: the words of the report."""

    original: int
    kind: str


class Duplicates:
    """Finds the copies among documents, which are added in order.

    Memory: 8 bytes a document, and while near copies are looked for, about 150 more and 20 for each
    similar pair, of which a document with many copies has up to 9 in each band. The signatures of
    near copies are in a file, 512 bytes a document.

    Args:
      path: a new file for signatures.
      similarity: the share of common runs of 5 words from which on a document is a copy; None finds
        exact copies only, but for white space.
    """

    def __init__(self, path: str, similarity: float | None) -> None:
        self._path, self._similarity = path, similarity
        self._digests = array.array("Q")
        if similarity is not None:
            self._minhash = extras.load("rensa", "clean", "--duplicates=near").RMinHash
            self._file = open(path, "wb")

    def add(self, text: str) -> None:
        """Add a document."""
        content = " ".join(text.split()).encode("utf-8", "replace")
        digest = int.from_bytes(hashlib.blake2b(content, digest_size=8).digest())
        self._digests.append(digest)
        if self._similarity is not None:
            words = word_hashes(text)
            runs = np.unique(ngram_hashes(words, max(1, min(_WORDS, len(words)))))
            if not len(runs):  # without words, it has no near copies
                runs = np.array([digest], np.uint64)
            matrix = self._minhash.digest_matrix_from_flat_token_hashes(
                runs, [0, len(runs)], SIGNATURE, _SEED
            )
            self._file.write(np.array(matrix.to_rows(), np.uint32).tobytes())

    def copies(self) -> dict[int, Copy]:
        """Return the documents that repeat an earlier one, in order."""
        exact = self._exact()
        copies = {number: Copy(first, "exact duplicates") for number, first in exact.items()}
        for number, first in self._near(exact).items():
            copies[number] = Copy(first, "near duplicates")
        return dict(sorted(copies.items()))

    def _exact(self) -> dict[int, int]:
        """Return each exact copy and the first document that it equals."""
        _, first, inverse = np.unique(self._digests, return_index=True, return_inverse=True)
        original = first[inverse]
        copies = np.flatnonzero(original != np.arange(len(original)))
        return dict(zip(copies.tolist(), original[copies].tolist(), strict=True))

    def _near(self, exact: Mapping[int, int]) -> dict[int, int]:
        """Return each near copy and an earlier document that is none; exact copies are left out."""
        if self._similarity is None:
            return {}
        self._file.close()
        if not len(self._digests):
            return {}
        signatures = np.memmap(self._path, np.uint32, "r").reshape(-1, SIGNATURE)
        is_copy: np.ndarray = np.zeros(len(signatures), bool)
        is_copy[list(exact)] = True
        numbers = np.flatnonzero(~is_copy)
        pairs: np.ndarray = np.zeros(0, np.uint64)
        for band in range(BANDS):
            columns = slice(band * _ROWS, (band + 1) * _ROWS)
            band_pairs = list(self._similar(signatures, numbers, columns))
            pairs = np.concatenate([pairs, *band_pairs])
            pairs.sort()  # np.unique would take 75 bytes a pair
            is_repeated: np.ndarray = np.zeros(len(pairs), bool)
            is_repeated[1:] = pairs[1:] == pairs[:-1]
            pairs = pairs[~is_repeated]
        copies: dict[int, int] = {}
        for pair in map(int, pairs):  # in order, so that earlier ones are decided
            later, earlier = pair >> 32, pair & 0xFFFFFFFF
            if later not in copies and earlier not in copies:
                copies[later] = earlier
        return copies

    def _similar(
        self, signatures: np.ndarray, numbers: np.ndarray, columns: slice
    ) -> Iterator[np.ndarray]:
        """Yield the pairs of one band that are similar enough, 2^32 later + earlier, uint64 [N]."""
        band: np.ndarray = signatures[numbers, columns].T.astype(np.uint64)  # [4, N]
        keys = ngram_hashes(band, _ROWS)[0]
        order: np.ndarray = np.argsort(keys, kind="stable")
        # The place of the first document of each bucket.
        first: Any = np.searchsorted(keys[order], keys[order])
        places: np.ndarray = np.arange(len(order))
        for other in (*(places - lag for lag in range(1, _NEIGHBORS + 1)), first):
            later = places[(other >= first) & (other < places)]
            pairs = numbers[np.stack([order[later], order[other[later]]], axis=1)]
            for begin in range(0, len(pairs), _PAIRS_AT_ONCE):
                part = pairs[begin : begin + _PAIRS_AT_ONCE]
                agreement = (signatures[part[:, 0]] == signatures[part[:, 1]]).mean(axis=1)
                later, earlier = part[agreement >= self._similarity].T.astype(np.uint64)
                yield later << np.uint64(32) | earlier


def first_of_each_kind(copies: Mapping[int, Copy], count: int = EXAMPLES) -> list[Copy]:
    """Return the first `count` copies of each kind."""
    kinds: dict[str, list[Copy]] = {}
    for copy in copies.values():
        kinds.setdefault(copy.kind, []).append(copy)
    return [copy for same_kind in kinds.values() for copy in same_kind[:count]]
