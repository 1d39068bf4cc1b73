"""Documents of sentences -> pairs of consecutive segments, vectorised over a batch of documents.

The chunk that begins at sentence s of a document is a pure function of (key of the document, s):
its draws are taken for all sentences at once, and following the chunks is then one look-up each.

Text is a flat array of pieces; `bounds`, strictly increasing, are the places in it where sentences
begin and end, and `documents` those where documents do.
"""

import array
from typing import NamedTuple

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.text.truncation import truncated_lengths

SHORT_PROBABILITY = 0.1  # BERT section A.2: some shorter sequences, as fine-tuning will see
# A sentence that overshoots begins the next chunk if this share of the target is reached without
# it. Else it is taken, and the pair is cut to fit (as BERT's rule always does).
SUFFICIENT_FILL = 0.8
_WINDOW = 2**16  # pieces of a long sentence that are looked at together

# What is drawn for a chunk, each by a number of its own.
_TARGET, _CUT, _ODD, _FIRST_FRONT, _SECOND_FRONT, _ORDER, _SWAP, _PARTNER, _START = range(9)


class Pairs(NamedTuple):
    """N pairs of segments, as places in the flat pieces; all int64 [N] but the keys.

    A `second_length` of 0: no second segment, a pair is impossible.
    """

    first: np.ndarray  # where the first segment begins
    first_length: np.ndarray
    second: np.ndarray
    second_length: np.ndarray
    label: np.ndarray  # 0 in order, 1 swapped or random
    document: np.ndarray  # number of the document in the batch
    lost: np.ndarray  # pieces cut to make the pair fit
    keys: np.ndarray  # uint64 [N], the pair's own random key


def segment_pairs(
    bounds: np.ndarray, documents: np.ndarray, keys: np.ndarray, max_pieces: int
) -> Pairs:
    """Cuts documents into chunks of at most `max_pieces` and each chunk into two segments in order.

    A chunk takes sentences until it holds its target of pieces and at least two sentences; the
    target is `max_pieces`, or for one chunk in ten uniform in [2, max_pieces]. The cut between the
    segments falls between two sentences. A last sentence that stands alone becomes a first segment
    without a second: it trains the masked LM and has no order to predict.

    Args:
      bounds: int64 [n + 1]. documents: int64 [D + 1]. keys: uint64 [D].
    """
    sentences = _Sentences.of(bounds, documents, keys)
    short = (
        keyed_random.below(keyed_random.bits(sentences.keys, _TARGET), 2**32)
        < SHORT_PROBABILITY * 2**32
    )
    lengths: np.ndarray = (
        keyed_random.below(_derive_keys(sentences.keys, _TARGET), max_pieces - 1) + 2
    )
    target = np.where(short, lengths, max_pieces)
    start, stop = sentences.chunks(_stops(sentences, target, max_pieces))
    key, count = sentences.keys[start], stop - start
    cut = start + 1 + keyed_random.below(keyed_random.bits(key, _CUT), np.maximum(count - 1, 1))
    first, middle, end = bounds[start], bounds[np.minimum(cut, stop)], bounds[stop]
    # At random, or the place of [SEP] would tell which segment came first in the text.
    odd = keyed_random.below(keyed_random.bits(key, _ODD), 2)
    label = np.zeros_like(start)
    return _truncate(
        (first, middle - first, middle, end - middle),
        label,
        sentences.document[start],
        key,
        max_pieces,
        odd,
    )


def reference_pairs(
    bounds: np.ndarray, documents: np.ndarray, keys: np.ndarray, max_pieces: int
) -> Pairs:
    """The pairs of Google's create_pretraining_data.py, with what is odd about them.

    The shorter target is drawn once for a document. A chunk of one sentence is a label 1 with a
    random document of the batch as partner, from a random sentence on. Half of the other chunks are
    swapped here, before the pair is cut to fit. Sentences of any length are taken whole.
    """
    sentences = _Sentences.of(bounds, documents, keys)
    short = keyed_random.below(keyed_random.bits(keys, _TARGET), 2**32) < SHORT_PROBABILITY * 2**32
    drawn = np.where(
        short, keyed_random.below(_derive_keys(keys, _TARGET), max_pieces - 1) + 2, max_pieces
    )
    target = drawn[sentences.document]
    reach = bounds.searchsorted(bounds[:-1] + target)
    start, stop = sentences.chunks(np.minimum(reach, sentences.document_end))
    key, count = sentences.keys[start], stop - start
    is_single = count == 1
    cut = np.where(
        is_single,
        stop,
        start + 1 + keyed_random.below(keyed_random.bits(key, _CUT), np.maximum(count - 1, 1)),
    )
    a, b, end = bounds[start], bounds[cut], bounds[stop]
    min_pieces = np.maximum(target[start] - (b - a), 1)
    other, other_end = _random_partner(sentences, start, key, min_pieces)
    b_length = np.where(is_single, other_end - other, end - b)
    b, a_length = np.where(is_single, other, b), b - a
    swap = ~is_single & (keyed_random.below(keyed_random.bits(key, _SWAP), 2) == 1)
    ordered = (a, a_length, b, b_length)
    swapped = (b, b_length, a, a_length)
    ranges = tuple(np.where(swap, y, x) for x, y in zip(ordered, swapped, strict=True))
    label = (is_single | swap).astype(np.int64)
    return _truncate(ranges, label, sentences.document[start], key, max_pieces, np.ones_like(start))


def split_long_sentences(
    bounds: np.ndarray, ids: np.ndarray, is_word_start: np.ndarray, max_pieces: int
) -> np.ndarray:
    """`bounds` with more of them inside each sentence of more than `max_pieces`.

    Text without sentence ends (Thai, logs): its parts then count as sentences. They have a fifth
    of a sequence at most, so that a chunk of them never overshoots and nothing is lost, and begin
    with a word where there is one: `is_word_start`, bool [V].
    """
    max_length = max(1, int(max_pieces * (1 - SUFFICIENT_FILL) + 1e-9))
    cuts = array.array("q")
    for sentence in np.flatnonzero(np.diff(bounds) > max_pieces).tolist():
        position, last = int(bounds[sentence]), int(bounds[sentence + 1])
        while position + max_length < last:
            begin, end = position, min(last, position + max_length + _WINDOW)
            starts = is_word_start[ids[begin:end]]
            word = np.maximum.accumulate(np.where(starts, np.arange(end - begin), 0))
            while position + max_length < end:
                start = begin + word.item(position + max_length - begin)
                position = start if start > position else position + max_length
                cuts.append(position)
    return np.sort(np.concatenate([bounds, np.array(cuts, np.int64)]))


class _Sentences(NamedTuple):
    """The n sentences of a batch."""

    bounds: np.ndarray  # int64 [n + 1]
    begin: np.ndarray  # int64 [D + 1], the sentence with which each document begins
    document: np.ndarray  # int64 [n]
    document_end: np.ndarray  # int64 [n], one past the last sentence of its document
    keys: np.ndarray  # uint64 [n]

    @classmethod
    def of(cls, bounds: np.ndarray, documents: np.ndarray, keys: np.ndarray) -> "_Sentences":
        begin = np.asarray(bounds.searchsorted(documents))
        document: np.ndarray = np.repeat(np.arange(len(keys)), np.diff(begin))
        index = np.arange(len(bounds) - 1) - begin[document]
        sentence_keys = keyed_random.bits(keys[document], index)
        return cls(bounds, begin, document, begin[document + 1], sentence_keys)

    def chunks(self, stops: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The chunks, from the first sentence to the last, if that at s ends before `stops[s]`."""
        next_start, starts, sentence = stops.tolist(), [], 0
        while sentence < len(next_start):
            starts.append(sentence)
            sentence = next_start[sentence]
        start = np.array(starts, np.int64)
        return start, stops[start]


def _stops(sentences: _Sentences, target: np.ndarray, max_pieces: int) -> np.ndarray:
    """int64 [n]: one past the last sentence of the chunk that begins at each sentence."""
    bounds, start = sentences.bounds, np.arange(len(sentences.document))
    begin = bounds[:-1]
    reach = np.minimum(bounds.searchsorted(begin + target), sentences.document_end)
    overshoots = bounds[reach] - begin > max_pieces
    has_enough = (reach - start > 2) & (bounds[reach - 1] - begin >= SUFFICIENT_FILL * target)
    reach -= overshoots & has_enough
    return np.minimum(np.maximum(reach, start + 2), sentences.document_end)


def _random_partner(
    sentences: _Sentences, start: np.ndarray, key: np.ndarray, min_pieces: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Pieces [from, to) of another document: sentences until they are `min_pieces` or it ends."""
    begin, bounds = sentences.begin, sentences.bounds
    filled = np.flatnonzero(np.diff(begin))
    own_index = filled.searchsorted(sentences.document[start])
    step: np.ndarray = 1 + keyed_random.below(
        keyed_random.bits(key, _PARTNER), max(1, len(filled) - 1)
    )
    other = filled[(own_index + step) % len(filled)]  # the own one where there is no other
    size = begin[other + 1] - begin[other]
    sentence = begin[other] + keyed_random.below(keyed_random.bits(key, _START), size)
    stop = np.minimum(bounds.searchsorted(bounds[sentence] + min_pieces), begin[other + 1])
    return bounds[sentence], bounds[stop]


def _truncate(
    ranges: tuple[np.ndarray, ...],
    label: np.ndarray,
    document: np.ndarray,
    key: np.ndarray,
    limit: int,
    odd: np.ndarray,
) -> Pairs:
    """The pairs, cut to `limit`: each piece from the front or the back with equal chance."""
    first, first_length, second, second_length = ranges
    first_kept, second_kept = truncated_lengths(first_length, second_length, limit, odd)
    first_lost, second_lost = first_length - first_kept, second_length - second_kept
    return Pairs(
        first + _count_heads(_derive_keys(key, _FIRST_FRONT), first_lost),
        first_kept,
        second + _count_heads(_derive_keys(key, _SECOND_FRONT), second_lost),
        second_kept,
        label,
        document,
        first_lost + second_lost,
        keyed_random.bits(key, _ORDER),
    )


def _count_heads(keys: np.ndarray, coins: np.ndarray) -> np.ndarray:
    """int64: how many of so many fair coins show heads."""
    heads = np.zeros_like(coins)
    word = 0
    while len(rows := np.flatnonzero(coins > 64 * word)):
        spare = 64 - np.minimum(coins[rows] - 64 * word, 64)
        draws = keyed_random.bits(keys[rows], word) >> spare.astype(np.uint64)
        heads[rows] += np.bitwise_count(draws)
        word += 1
    return heads


def _derive_keys(keys: np.ndarray, purpose: int) -> np.ndarray:
    """Keys of a stream of draws of their own."""
    return keyed_random.bits(keyed_random.bits(keys, purpose), 0)
