"""Labeled pairs: every pair gets two segments, and half of the pairs are swapped."""

import numpy as np

from albert_tf.runtime import keyed_random
from data.building.segments import Pairs

_MIDDLE, _SWAP = 2**28, 2**29  # counters of draws, above those of `static_masking`


def paired(pairs: Pairs, ids: np.ndarray, is_word_start: np.ndarray) -> Pairs:
    """Return the pairs with a second segment for each, for records that need a label.

    A single sentence is split before the word nearest to its middle, or at the middle piece if it
    has only one word. If two words are equally near, the pair's key decides, so that the lengths do
    not reveal which half came first. (The text at the split does, so these pairs are easy.) A
    sentence of one piece is dropped.
    """
    single = np.flatnonzero(pairs.second_length == 0)
    begin, length = pairs.first[single], pairs.first_length[single]
    tie_break = keyed_random.below(keyed_random.bits(pairs.keys[single], _MIDDLE), 2)
    far = np.iinfo(np.int32).max
    words = np.concatenate([[-far], np.flatnonzero(is_word_start[ids]), [len(ids) + far]])
    nearest = words.searchsorted(begin + (length + 1) // 2)
    before, after = words[nearest - 1], words[nearest]
    # Twice the distance from the middle.
    to_before, to_after = 2 * (begin - before) + length, 2 * (after - begin) - length
    cut = np.where(to_after < to_before + tie_break, after, before)
    has_words = np.minimum(to_before, to_after) < length
    cut = np.where(has_words, cut, begin + (length + tie_break) // 2)
    first_length, second = pairs.first_length.copy(), pairs.second.copy()
    second_length = pairs.second_length.copy()
    first_length[single], second[single] = cut - begin, cut
    second_length[single] = begin + length - cut
    is_pair = (first_length > 0) & (second_length > 0)
    changed = pairs._replace(first_length=first_length, second=second, second_length=second_length)
    return Pairs(*(column[is_pair] for column in changed))


def swapped(pairs: Pairs) -> Pairs:
    """Return the pairs, half of them in reverse order with label 1."""
    swap = keyed_random.below(keyed_random.bits(pairs.keys, _SWAP), 2) == 1
    first, second = (pairs.first, pairs.first_length), (pairs.second, pairs.second_length)
    columns = (np.where(swap, y, x) for x, y in zip(first + second, second + first, strict=True))
    return pairs._replace(
        **dict(zip(Pairs._fields[:4], columns, strict=True)), label=swap.astype(np.int64)
    )
