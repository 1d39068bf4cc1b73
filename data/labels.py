"""Labels of pairs for records that carry them: every pair has two segments, half are swapped."""

import numpy as np

from data import keyed
from data.segments import SWAP, Pairs


def paired(pairs: Pairs, ids: np.ndarray, is_word_start: np.ndarray) -> Pairs:
    """The pairs with a second segment for each, for records that cannot be without a label.

    A sentence that stands alone is cut in its middle, before a word where there is one; one of a
    single piece is left out.
    """
    alone = np.flatnonzero(pairs.second_length == 0)
    begin, length = pairs.first[alone], pairs.first_length[alone]
    words: np.ndarray = np.append(np.flatnonzero(is_word_start[ids]), len(ids))
    middle = begin + (length + 1) // 2
    word = words[keyed.searchsorted(words, middle)]
    cut = np.where(word < begin + length, word, middle)
    first_length, second = pairs.first_length.copy(), pairs.second.copy()
    second_length = pairs.second_length.copy()
    first_length[alone], second[alone] = cut - begin, cut
    second_length[alone] = begin + length - cut
    kept = second_length > 0
    changed = pairs._replace(first_length=first_length, second=second, second_length=second_length)
    return Pairs(*(column[kept] for column in changed))


def swapped(pairs: Pairs) -> Pairs:
    """The pairs, half of them in the other order and with label 1."""
    swap = keyed.below(keyed.bits(pairs.keys, SWAP), 2) == 1
    first, second = (pairs.first, pairs.first_length), (pairs.second, pairs.second_length)
    columns = (np.where(swap, y, x) for x, y in zip(first + second, second + first, strict=True))
    return pairs._replace(
        **dict(zip(Pairs._fields[:4], columns, strict=True)), label=swap.astype(np.int64)
    )
