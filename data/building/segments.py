"""Splitting of documents into pairs of consecutive segments, vectorized over a batch.

The chunk that begins at sentence s of a document is a pure function of (key of the document, s).
Draws for all sentences are made at once; going from a chunk to the next is then one lookup.

Text is a flat array of pieces. `bounds`, strictly increasing, contains the offsets at which
sentences begin and end, and `documents` those at which documents begin and end.
"""

import array
from typing import NamedTuple

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.text.truncation import truncated_lengths

SHORT_PROBABILITY = 0.1  # BERT, section A.2: some shorter sequences, as in fine-tuning
# If a chunk reaches this share of its target without the sentence that overshoots, that sentence
# begins the next chunk. Otherwise the chunk takes it and the pair is truncated, as always in BERT.
SUFFICIENT_FILL = 0.8
_WINDOW = 2**16  # pieces of a long sentence that are processed together

# Counters of the draws for a chunk, one per purpose.
_TARGET, _CUT, _ODD, _FIRST_FRONT, _SECOND_FRONT, _ORDER, _SWAP, _PARTNER, _START = range(9)


class Pairs(NamedTuple):
    """N pairs of segments, as ranges of the flat pieces; all int64 [N] except the keys.

    A `second_length` of 0 means that there is no second segment.
    """

    first: np.ndarray  # offset of the first segment
    first_length: np.ndarray
    second: np.ndarray  # offset of the second segment
    second_length: np.ndarray
    label: np.ndarray  # 0 in order, 1 swapped or random
    document: np.ndarray  # number of the document in the batch
    lost: np.ndarray  # number of pieces truncated to make the pair fit
    keys: np.ndarray  # uint64 [N], random key of the pair


def segment_pairs(
    bounds: np.ndarray,
    documents: np.ndarray,
    keys: np.ndarray,
    max_pieces: int,
    short_probability: float = SHORT_PROBABILITY,
) -> Pairs:
    """Split documents into chunks of at most `max_pieces`, and each chunk into two segments.

    A chunk takes sentences until it reaches its target number of pieces and has at least two
    sentences. The target is `max_pieces`, or, for one chunk in ten, uniform in [2, max_pieces]. The
    segments are in order, and the split falls between two sentences. If only one sentence is left
    at the end, it becomes a first segment without a second: it trains the masked LM but has no
    order to predict.

    Args:
      bounds: int64 [n + 1], the offsets of sentences.
      documents: int64 [D + 1], the offsets of documents.
      keys: uint64 [D], the keys of the documents.
      max_pieces: maximum number of pieces of a pair, without special pieces.
      short_probability: share of the chunks with a shorter target.
    """
    sentences = _Sentences.of(bounds, documents, keys)
    short = (
        keyed_random.below(keyed_random.bits(sentences.keys, _TARGET), 2**32)
        < short_probability * 2**32
    )
    lengths: np.ndarray = (
        keyed_random.below(_derive_keys(sentences.keys, _TARGET), max_pieces - 1) + 2
    )
    target = np.where(short, lengths, max_pieces)
    start, stop = sentences.chunks(_stops(sentences, target, max_pieces))
    key, count = sentences.keys[start], stop - start
    cut = start + 1 + keyed_random.below(keyed_random.bits(key, _CUT), np.maximum(count - 1, 1))
    first, middle, end = bounds[start], bounds[np.minimum(cut, stop)], bounds[stop]
    # Random, because otherwise the position of [SEP] would reveal which segment came first.
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
    bounds: np.ndarray,
    documents: np.ndarray,
    keys: np.ndarray,
    max_pieces: int,
    short_probability: float = SHORT_PROBABILITY,
) -> Pairs:
    """Return pairs like those of Google's create_pretraining_data.py, with its quirks.

    The shorter target is drawn once per document. A chunk of one sentence gets label 1, and its
    second segment comes from a random document of the batch, from a random sentence on. Half of the
    other chunks are swapped here, before the pair is truncated. Sentences are never split.
    """
    sentences = _Sentences.of(bounds, documents, keys)
    short = keyed_random.below(keyed_random.bits(keys, _TARGET), 2**32) < short_probability * 2**32
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
    """Return `bounds` with additional bounds inside each sentence longer than `max_pieces`.

    This is for text without sentence ends (Thai, logs). The parts count as sentences. They are at
    most a fifth of a sequence long, so that a chunk of them never overshoots and nothing is lost.
    They begin at the start of a word if possible; `is_word_start` is bool [V].
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
    begin: np.ndarray  # int64 [D + 1], the first sentence of each document
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
        """Return begin and end of each chunk; the chunk at sentence s ends before `stops[s]`."""
        next_start, starts, sentence = stops.tolist(), [], 0
        while sentence < len(next_start):
            starts.append(sentence)
            sentence = next_start[sentence]
        start = np.array(starts, np.int64)
        return start, stops[start]


def _stops(sentences: _Sentences, target: np.ndarray, max_pieces: int) -> np.ndarray:
    """Return the end (exclusive) of the chunk that begins at each sentence, int64 [n]."""
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
    """Return a range [begin, end) of pieces from another document, for each chunk.

    The range contains sentences until it has `min_pieces` pieces or the document ends.
    """
    begin, bounds = sentences.begin, sentences.bounds
    filled = np.flatnonzero(np.diff(begin))
    own_index = filled.searchsorted(sentences.document[start])
    step: np.ndarray = 1 + keyed_random.below(
        keyed_random.bits(key, _PARTNER), max(1, len(filled) - 1)
    )
    other = filled[(own_index + step) % len(filled)]  # its own document if there is no other
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
    """Truncate the pairs to `limit`, each piece from the front or the back with equal chance."""
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
    """Return the number of heads among `coins[i]` fair coins, int64."""
    heads = np.zeros_like(coins)
    word = 0
    while len(rows := np.flatnonzero(coins > 64 * word)):
        spare = 64 - np.minimum(coins[rows] - 64 * word, 64)
        draws = keyed_random.bits(keys[rows], word) >> spare.astype(np.uint64)
        heads[rows] += np.bitwise_count(draws)
        word += 1
    return heads


def _derive_keys(keys: np.ndarray, purpose: int) -> np.ndarray:
    """Return the keys of an independent stream of draws."""
    return keyed_random.bits(keyed_random.bits(keys, purpose), 0)
