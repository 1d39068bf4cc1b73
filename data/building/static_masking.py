"""Masked n-gram LM targets drawn once, when records are written: whole batches in NumPy.

The paper's masking (section 4.1): n-grams of whole words, p(n) ~ 1/n up to `max_ngram`, until a
budget of pieces is used; 80 % of the chosen pieces become [MASK], 10 % a random piece, 10 % stay.

All sequences of a batch choose their next n-gram at the same time, as few steps as a sequence has
n-grams. An n-gram's length is drawn, then its place among all where it touches the segment, so that
every word is as likely to be chosen as any other. One that overlaps another is placed again; the
last is shortened to fit. What then is missing is filled word by word.

Draws depend on the sequence's own key alone.
"""

import dataclasses

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.runtime.arrays import ragged_ranges
from data.building.sequences import Sequences

MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
_EXTRA_STEPS = 16  # n-grams placed in vain, beyond two a piece of the budget
# The counters of a sequence's draws: steps from 0, then what is drawn once or for each piece.
_FILL, _REPLACE = 2**20, 2**24


@dataclasses.dataclass(frozen=True)
class StaticMasking:
    """How pieces are masked.

    rate: share of a sequence's pieces, special ones counted, that are predicted.
    max_ngram: longest run of words masked together. max_predictions: slots, P.
    quirks: as Google's tool: n-grams begin at a word of the sequence and may span [SEP], each try
      draws its length anew, and random pieces may be special ones.
    """

    rate: float
    max_ngram: int
    max_predictions: int
    mask_id: int
    special_ids: tuple[int, ...]
    vocab_size: int
    quirks: bool = False


def choose(sequences: Sequences, is_word_start: np.ndarray, config: StaticMasking) -> np.ndarray:
    """int64 [M]: the places in `pieces` of those to predict, whole words within each budget.

    Many sequences at once: a step for few costs nearly as much. is_word_start: bool [V]. A
    segment's first piece begins a word in any case; with quirks only the first segment's does.
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
    """What stands in the text for the pieces `chosen`, int [M] their places in `pieces`.

    rows: int [M], the sequence of each. Returns int64 [M]: 80 % [MASK], 10 % random, 10 % as it is.
    """
    draws = keyed_random.bits(sequences.keys[rows], _REPLACE + chosen - _begins(sequences)[rows])
    choice, piece_draws = keyed_random.below(draws, 2**32), draws << np.uint64(32)
    if config.quirks:
        piece = keyed_random.below(piece_draws, config.vocab_size)
    else:
        piece = keyed_random.below(piece_draws, config.vocab_size - len(config.special_ids))
        for special in sorted(config.special_ids):  # number of an ordinary piece -> its id
            piece += piece >= special
    is_random = choice < round((MASKED_SHARE + RANDOM_SHARE) * 2**32)
    kept_or_random = np.where(is_random, piece, sequences.pieces[chosen])
    return np.where(choice < round(MASKED_SHARE * 2**32), config.mask_id, kept_or_random)


def _begins(sequences: Sequences) -> np.ndarray:
    return np.cumsum(sequences.lengths) - sequences.lengths


def _ngram_lengths(draws: np.ndarray, max_ngram: int) -> np.ndarray:
    """uint64 draws -> int64 lengths n in 1..max_ngram with p(n) ~ 1/n, by their high bits."""
    shares = np.cumsum([1 / n for n in range(1, max_ngram + 1)])
    lengths: np.ndarray = np.ones(len(draws), np.int64)
    for share in shares[:-1] / shares[-1]:
        lengths += draws >= np.uint64(round(share * 2**64))
    return lengths


@dataclasses.dataclass(frozen=True)
class _Words:
    """The W words of N sequences, numbered through, and which of them are chosen.

    Behind the last stand some more, so that a look at the next few words needs no care.
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
        """First word and length of an n-gram somewhere in each row, by the high bits of `draws`.

        Within one segment, at any place where it covers a word of it; or, `from_words`, beginning
        at any word and ending with the row.
        """
        first, last = self.begin[rows], self.begin[rows + 1]
        if from_words:
            begin = first + keyed_random.below(draws, last - first)
            return begin, np.minimum(n, last - begin)
        middle = self.middle[rows]
        before: np.ndarray = n - 1
        in_first = middle - first + before  # places in the first segment
        in_second = (last - middle + before) * (last > middle)
        position = keyed_random.below(draws, in_first + in_second)
        is_first = position < in_first
        low, high = np.where(is_first, first, middle), np.where(is_first, middle, last)
        begin = first + position - before * (2 - is_first)  # both segments stick out in front
        end = np.minimum(begin + n, high)
        begin = np.maximum(begin, low)
        return begin, end - begin

    def take(
        self, begin: np.ndarray, length: np.ndarray, missing: np.ndarray, max_ngram: int
    ) -> np.ndarray:
        """Takes each n-gram, shortened to what is missing, if it overlaps no other.

        Returns the pieces taken, int64, 0 where none are.
        """
        words = begin + np.arange(max_ngram + 1)[:, None]  # [max_ngram + 1, rows]
        edges = self.first_piece[words]
        sizes = edges[1:] - edges[:1]  # pieces of the first 1, 2, ... words
        is_in = (np.arange(max_ngram)[:, None] < length) & (sizes <= missing)
        is_in &= ~np.any(self.is_taken[words[:-1]] & is_in, axis=0)
        self.is_taken[words[:-1][is_in]] = True
        return np.max(sizes * is_in, axis=0)

    def fill(self, row: int, missing: int, key: np.ndarray) -> None:
        """Takes words of one row in random order, each that fits."""
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
