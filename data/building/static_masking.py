"""Masked n-gram LM targets drawn once at build time, for whole batches in NumPy.

This is the paper's masking (section 4.1): n-grams of whole words, with p(n) ~ 1/n up to
`max_ngram`, are chosen until a budget of pieces is used. Of the chosen pieces, 80 % become [MASK],
10 % become a random piece, and 10 % stay.

All sequences of a batch choose their next n-gram in the same step, so that there are only about as
many steps as n-grams in a sequence. The length of an n-gram is drawn first, and then its position
among all positions at which it touches the segment, so that every word is equally likely to be
chosen. An n-gram that overlaps another is placed again; the last one is shortened to fit. The rest
of the budget is filled word by word.

The draws depend only on the key of the sequence.
"""

import dataclasses

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.text.ragged import ragged_ranges
from data.building.sequences import Sequences
from data.records.schema import MASKED_SHARE, RANDOM_SHARE

_EXTRA_STEPS = 16  # steps beyond two per prediction slot, for n-grams that do not fit
# Counters of a sequence's draws: from 0 for steps, from these for words and pieces.
_FILL, _REPLACE = 2**20, 2**24


@dataclasses.dataclass(frozen=True)
class StaticMasking:
    """Options of masking at build time.

    Attributes:
      rate: share of a sequence's pieces, special pieces included, to predict.
      max_ngram: maximum number of words masked together.
      max_predictions: prediction slots, P.
      mask_id: id of [MASK].
      special_ids: ids of all special pieces.
      vocab_size: number of pieces in the vocabulary, V.
      quirks: behave like Google's tool: n-grams begin at any word of the sequence and may span
        [SEP], each try draws a new length, and random pieces may be special ones.
    """

    rate: float
    max_ngram: int
    max_predictions: int
    mask_id: int
    special_ids: tuple[int, ...]
    vocab_size: int
    quirks: bool = False


def choose(sequences: Sequences, is_word_start: np.ndarray, config: StaticMasking) -> np.ndarray:
    """Return the indices in `pieces` of the pieces to predict, int64 [M].

    They are whole words within the budget of each sequence. Pass many sequences at once, because a
    step for a few costs nearly as much. `is_word_start` is bool [V]. The first piece of a segment
    always starts a word; with quirks, only the first segment's does.
    """
    words = _Words.of(sequences, is_word_start, config.max_ngram, joined=config.quirks)
    budget = np.rint(config.rate * (sequences.lengths + 3)).astype(np.int64)
    missing = np.clip(budget, 1, config.max_predictions)
    rows = np.arange(len(sequences))
    steps = 2 * config.max_predictions + _EXTRA_STEPS
    n = _ngram_lengths(keyed_random.bits(sequences.keys, steps), config.max_ngram)
    for step in range(steps):
        draws = keyed_random.bits(sequences.keys[rows], step)
        begin, length = words.draw_ngrams(rows, n, draws, config.quirks)
        taken = words.take(begin, length, missing[rows], config.max_ngram)
        missing[rows] -= taken
        redrawn = _ngram_lengths(draws << np.uint64(32), config.max_ngram)
        n = np.where((taken > 0) | config.quirks, redrawn, n)
        unfinished = np.flatnonzero(missing[rows])
        rows, n = rows[unfinished], n[unfinished]
        if not len(rows):
            break
    for row in rows.tolist():
        words.fill(row, int(missing[row]), sequences.keys[row : row + 1])
    taken = np.flatnonzero(words.is_taken)
    begin = words.first_piece[taken]
    return ragged_ranges(begin, words.first_piece[taken + 1] - begin)


def replace(
    sequences: Sequences, chosen: np.ndarray, rows: np.ndarray, config: StaticMasking
) -> np.ndarray:
    """Return the input ids for the chosen pieces, int64 [M]: 80 % [MASK], 10 % random, 10 % kept.

    Args:
      sequences: the sequences.
      chosen: int [M], indices in `pieces` of the chosen pieces.
      rows: int [M], the sequence of each chosen piece.
      config: the masking options.
    """
    draws = keyed_random.bits(sequences.keys[rows], _REPLACE + chosen - _begins(sequences)[rows])
    choice, piece_draws = keyed_random.below(draws, 2**32), draws << np.uint64(32)
    if config.quirks:
        piece = keyed_random.below(piece_draws, config.vocab_size)
    else:
        piece = keyed_random.below(piece_draws, config.vocab_size - len(config.special_ids))
        for special in sorted(config.special_ids):  # index among the ordinary pieces -> id
            piece += piece >= special
    is_random = choice < round((MASKED_SHARE + RANDOM_SHARE) * 2**32)
    kept_or_random = np.where(is_random, piece, sequences.pieces[chosen])
    return np.where(choice < round(MASKED_SHARE * 2**32), config.mask_id, kept_or_random)


def _begins(sequences: Sequences) -> np.ndarray:
    return np.cumsum(sequences.lengths) - sequences.lengths


def _ngram_lengths(draws: np.ndarray, max_ngram: int) -> np.ndarray:
    """Return lengths n in 1..max_ngram with p(n) ~ 1/n, int64, by the high bits of uint64 draws."""
    shares = np.cumsum([1 / n for n in range(1, max_ngram + 1)])
    lengths: np.ndarray = np.ones(len(draws), np.int64)
    for share in shares[:-1] / shares[-1]:
        lengths += draws >= np.uint64(round(share * 2**64))
    return lengths


@dataclasses.dataclass(frozen=True)
class _Words:
    """The W words of N sequences, numbered consecutively, and which of them are chosen.

    A margin of extra words follows the last one, so that reading the next few words is always safe.
    """

    first_piece: np.ndarray  # int64 [W + margin]
    begin: np.ndarray  # int64 [N + 1], the first word of each sequence
    middle: np.ndarray  # int64 [N], the first word of the second segment
    is_taken: np.ndarray  # bool [W + margin]

    @classmethod
    def of(
        cls, sequences: Sequences, is_word_start: np.ndarray, max_ngram: int, joined: bool
    ) -> "_Words":
        size = len(sequences.pieces)
        starts: np.ndarray = np.ones(size + max_ngram + 1, bool)
        starts[:size] = is_word_start.take(sequences.pieces)  # twice as fast as is_word_start[...]
        first: np.ndarray = _begins(sequences)
        second = first + sequences.first
        starts[first] = True
        if not joined:
            starts[second[sequences.second > 0]] = True
        first_piece = np.flatnonzero(starts)
        begin = np.asarray(first_piece.searchsorted(np.append(first, size)))
        middle = np.asarray(first_piece.searchsorted(second))
        return cls(first_piece, begin, middle, np.zeros(len(first_piece), bool))

    def draw_ngrams(
        self, rows: np.ndarray, n: np.ndarray, draws: np.ndarray, from_words: bool
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return first word and length of an n-gram in each row, by the high bits of `draws`.

        The n-gram is at any position where it covers a word of a segment, and is shortened to the
        segment. With `from_words`, it begins at any word of the row, and is shortened to the row.
        """
        first, last = self.begin[rows], self.begin[rows + 1]
        if from_words:
            begin = first + keyed_random.below(draws, last - first)
            return begin, np.minimum(n, last - begin)
        middle = self.middle[rows]
        before: np.ndarray = n - 1
        in_first = middle - first + before  # positions in the first segment
        in_second = (last - middle + before) * (last > middle)
        position = keyed_random.below(draws, in_first + in_second)
        is_first = position < in_first
        low, high = np.where(is_first, first, middle), np.where(is_first, middle, last)
        begin = first + position - before * (2 - is_first)  # positions start before each segment
        end = np.minimum(begin + n, high)
        begin = np.maximum(begin, low)
        return begin, end - begin

    def take(
        self, begin: np.ndarray, length: np.ndarray, missing: np.ndarray, max_ngram: int
    ) -> np.ndarray:
        """Take each n-gram, shortened to `missing` pieces, unless it overlaps another.

        Returns:
          The number of pieces taken for each n-gram, int64; 0 if it is not taken.
        """
        words = begin + np.arange(max_ngram + 1)[:, None]  # [max_ngram + 1, rows]
        edges = self.first_piece[words]
        sizes = edges[1:] - edges[:1]  # pieces of the first 1, 2, ... words
        is_in = (np.arange(max_ngram)[:, None] < length) & (sizes <= missing)
        is_in &= ~np.any(self.is_taken[words[:-1]] & is_in, axis=0)
        self.is_taken[words[:-1][is_in]] = True
        return np.max(sizes * is_in, axis=0)

    def fill(self, row: int, missing: int, key: np.ndarray) -> None:
        """Take words of one row in random order, each one that still fits."""
        words = np.arange(self.begin[row], self.begin[row + 1])
        words = words[~self.is_taken[words]]
        order = np.argsort(keyed_random.bits(key, _FILL + words - self.begin[row]), kind="stable")
        for word in words[order].tolist():
            size = int(self.first_piece[word + 1] - self.first_piece[word])
            if size <= missing:
                self.is_taken[word] = True
                missing -= size
            if not missing:
                return
