"""Masked n-gram LM targets drawn in the graph, a pure function of (seed, epoch, record).

This is the paper's masking (section 4.1): n-grams of whole words, with p(n) ~ 1/n up to
`max_ngram`. Of the chosen pieces, 80 % become [MASK], 10 % become a random piece, and 10 % stay.

The words of a sequence are tiled with n-grams whose lengths are drawn from p(n), and the tiles get
a random order. The words are taken in that order, each one if it still fits into the budget of
pieces. So n-grams never overlap, and only those at the end of the budget can be incomplete. The
budget is used exactly, unless every remaining word is longer than the rest of the budget. All words
are about equally likely to be masked. (Measured: in sequences of 16 pieces, the first word of a
segment has probability 0.19, where the mean is 0.15; from 64 pieces on, at most 0.01 above the
mean. In sequences of 124 pieces, words of one piece, which always fit, have 0.18, and words of
three pieces have 0.14.)

For speed, words are numbered and nothing is sorted. A histogram of the random order shows up to
which priority all words fit. Then the rows with an unused rest take one word after the other.
"""

import dataclasses
import functools
from typing import Annotated

import numpy as np
import tensorflow as tf

from albert_tf.runtime import keyed_random
from albert_tf.runtime.bounds import POSITIVE, Bounded, at_least, at_most, between
from albert_tf.runtime.errors import ConfigError
from data.objectives.row_ops import BLOCK, histogram, running_sum, take
from data.records.schema import MASKED_SHARE, MAX_SEQ_LENGTH, RANDOM_SHARE

_TILING_WORDS = 2**19  # words of all tilings together: 963 tilings at length 512, 3,276 at 128
_BUCKET_BITS = 7
_LAST = tf.int32.max


@dataclasses.dataclass(frozen=True)
class MaskingConfig(Bounded):
    """Options of masking.

    Attributes:
      rate: share of a sequence's pieces, special pieces included, to predict.
      max_ngram: maximum number of words masked together; 1 masks single words.
      max_predictions: prediction slots, P; 0 means round(rate * seq_length), of the larger rate.
      whole_words: mask whole words; otherwise each piece counts as a word, as in BERT's first
        masking.
      first_rate: that share at the first step of training, from where it changes linearly to `rate`
        at the end of the learning-rate schedule (arXiv 2305.15096); 0 means `rate`. Held-out
        records are always masked at `rate`.
    """

    KEY = "`masking.{}`"

    rate: Annotated[float, between("(0, 1)")] = 0.15
    max_ngram: Annotated[int, POSITIVE, at_most(MAX_SEQ_LENGTH)] = 3
    max_predictions: Annotated[int, at_least(0, "where 0 means round(rate * seq_length)")] = 0
    whole_words: bool = True
    first_rate: Annotated[float, between("[0, 1)")] = 0.0

    def slots(self, seq_length: int) -> int:
        """Return P, the number of prediction slots of a sequence of `seq_length` pieces.

        Raises:
          ConfigError: P is more than `seq_length`, or `seq_length` is more than MAX_SEQ_LENGTH.
        """
        if seq_length > MAX_SEQ_LENGTH:
            raise ConfigError(
                f"masking supports sequences of at most {MAX_SEQ_LENGTH} pieces. "
                f"Received: {seq_length}."
            )
        if self.max_predictions > seq_length:
            raise ConfigError(
                f"`masking.max_predictions` must be at most the sequence length, {seq_length}. "
                f"Received: {self.max_predictions}."
            )
        largest = max(1, round(max(self.rate, self.first_rate) * seq_length))
        if self.first_rate and 0 < self.max_predictions < largest:
            raise ConfigError(
                "`masking.max_predictions` must be at least the number of predictions at the "
                f"larger of `masking.rate` and `masking.first_rate`, {largest} of {seq_length}, or "
                f"0 for that number. Received: {self.max_predictions}."
            )
        return self.max_predictions or largest

    def rate_at(self, step: tf.Tensor, schedule_steps: int) -> tf.Tensor:
        """Return the rate at a step of a schedule, float32."""
        if not self.first_rate:
            return tf.constant(self.rate)
        assert schedule_steps, "a rate that changes needs the length of its schedule"
        done = tf.minimum(1.0, tf.cast(step, tf.float32) / schedule_steps)
        return self.first_rate + (self.rate - self.first_rate) * done


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """The properties of a vocabulary that masking needs."""

    size: int
    mask_id: int
    special_ids: tuple[int, ...]


def mask_batch(
    ids: tf.Tensor,
    word_starts: tf.Tensor,
    maskable: tf.Tensor,
    segment_starts: tf.Tensor,
    keys: dict[int, tf.Tensor],
    config: MaskingConfig,
    vocabulary: Vocabulary,
    rate: tf.Tensor | None = None,
) -> dict[str, tf.Tensor]:
    """Choose and mask pieces.

    Args:
      ids: int32 [B, S], S at most MAX_SEQ_LENGTH.
      word_starts: bool [B, S]; the first piece of each segment always counts as one.
      maskable: bool [B, S], True for pieces that are neither special nor padding.
      segment_starts: bool [B, S], True for the first piece of a segment. A row has at most two, and
        no word or n-gram crosses them.
      keys: uint64 [B, 1] for each of the streams NGRAM, TILE, REPLACE and PIECE.
      config: the masking options.
      vocabulary: the vocabulary of `ids`.
      rate: float32 [B], the share of pieces to predict in each row; by default `config.rate`.

    Returns:
      `input_word_ids` int32 [B, S], `masked_lm_positions` int32 [B, P] ascending, padded with 0,
      `masked_lm_ids` int32 [B, P], `masked_lm_weights` float32 [B, P], 1 for real slots.
    """
    length = ids.shape[1]
    slots = config.slots(length)
    if not config.whole_words:
        word_starts = tf.ones_like(word_starts)
    word, sizes = _words(word_starts, maskable, segment_starts, config.max_ngram)
    order = _random_order(keys, tf.shape(sizes)[1], length, config.max_ngram)
    budget = _budget(sizes, segment_starts, config.rate if rate is None else rate[:, None], slots)
    bits = _number_bits(length, config.max_ngram)
    is_chosen = take(_choose(order, sizes, budget, bits), word)
    slot = tf.broadcast_to(tf.range(1, slots + 1), [tf.shape(ids)[0], slots])
    positions = tf.searchsorted(running_sum(is_chosen), slot)  # [B, P], S or more where unused
    real = positions < length
    positions = tf.where(real, positions, 0)
    targets = tf.where(real, take(ids, positions), 0)
    change = tf.where(real, _replacements(targets, keys, vocabulary) - targets, 0)
    return {
        "input_word_ids": ids + histogram(positions, length, change),
        "masked_lm_positions": positions,
        "masked_lm_ids": targets,
        "masked_lm_weights": tf.cast(real, tf.float32),
    }


def _words(
    word_starts: tf.Tensor, maskable: tf.Tensor, segment_starts: tf.Tensor, max_ngram: int
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return each piece's word number, int32 [B, S], and each word's size in pieces, int32 [B, W].

    Words are numbered in order. At the start of each segment, `max_ngram` numbers are skipped, so
    that no tile reaches from one segment into the next. Number 0, of size 0, is for pieces that are
    not maskable. S and W are padded to multiples of 32.
    """
    if short := -maskable.shape[1] % BLOCK:
        pad = functools.partial(tf.pad, paddings=[[0, 0], [0, short]])
        word_starts, maskable, segment_starts = map(pad, (word_starts, maskable, segment_starts))
    starts = maskable & (word_starts | segment_starts)
    steps = tf.cast(starts, tf.float32) + max_ngram * tf.cast(segment_starts, tf.float32)
    word = running_sum(steps) * tf.cast(maskable, tf.int32)
    width = (tf.reduce_max(word) // BLOCK + 1) * BLOCK
    sizes = histogram(word, width)
    return word, sizes * tf.cast(tf.range(width) > 0, tf.int32)


def _random_order(
    keys: dict[int, tf.Tensor], width: tf.Tensor, length: int, max_ngram: int
) -> tf.Tensor:
    """Return sort keys of words, int32 [B, W]: random by n-gram, in order within an n-gram."""
    table = tilings(max_ngram, _width(length, max_ngram))
    row = keyed_random.graph_below(
        keyed_random.graph_bits(keys[keyed_random.NGRAM], tf.zeros([], tf.int64)), len(table)
    )
    tile = tf.gather(table, row[:, 0])[:, :width]
    # The n-gram's priority in the high bits, the word's number in the low ones.
    bits = _number_bits(length, max_ngram)
    priority = keyed_random.graph_bits32(keys[keyed_random.TILE], tile)
    priority = tf.bitwise.right_shift(priority, tf.constant(bits + 1, tf.uint32))
    return tf.cast(priority, tf.int32) * 2**bits + tf.range(width)


@functools.lru_cache
def tilings(max_ngram: int, width: int) -> np.ndarray:
    """Return each word's tile in T tilings by n-grams with p(n) ~ 1/n, int32 [T, width].

    In each epoch, a record draws one of the T tilings and an order of its tiles. Drawing the tiles
    themselves anew would take a seventh more time.
    """
    chances = np.cumsum(1 / np.arange(1, max_ngram + 1))
    shape = (_TILING_WORDS // width, width)
    draws = keyed_random.bits(
        keyed_random.stream_key(0, keyed_random.NGRAM), np.arange(np.prod(shape))
    )
    unit = (draws >> np.uint64(11)).reshape(shape) / 2**53
    ends = np.cumsum(1 + np.searchsorted(chances / chances[-1], unit, side="right"), axis=1)
    is_start: np.ndarray = np.zeros((shape[0], width + 1), np.int32)
    np.put_along_axis(is_start, np.minimum(ends, width), 1, axis=1)
    return np.cumsum(is_start[:, :width], axis=1, dtype=np.int32)


def _width(length: int, max_ngram: int) -> int:
    """Return the maximum W, the number of word numbers that a sequence can need."""
    return -(-(length + 2 * max_ngram + 1) // BLOCK) * BLOCK


def _number_bits(length: int, max_ngram: int) -> int:
    return (_width(length, max_ngram) - 1).bit_length()


def _budget(
    sizes: tf.Tensor, segment_starts: tf.Tensor, rate: float | tf.Tensor, slots: int
) -> tf.Tensor:
    """Return min(P, max(1, round(rate * pieces))), special pieces included, int32 [B, 1]."""
    ordinary = tf.reduce_sum(sizes, axis=1, keepdims=True)
    segments = tf.reduce_sum(tf.cast(segment_starts, tf.int32), axis=1, keepdims=True)
    pieces = tf.cast(ordinary + segments + 1, tf.float32)
    return tf.clip_by_value(tf.cast(tf.round(rate * pieces), tf.int32), 1, slots)


def _choose(order: tf.Tensor, sizes: tf.Tensor, budget: tf.Tensor, bits: int) -> tf.Tensor:
    """Return True for the chosen words, bool [B, W]: in order, each one that still fits."""
    bucket = tf.bitwise.right_shift(order, 31 - _BUCKET_BITS)
    used = running_sum(histogram(bucket, 2**_BUCKET_BITS, sizes))  # up to the end of each bucket
    limit = tf.searchsorted(used, budget, side="right")  # [B, 1], the first that does not fit
    used = take(used, tf.maximum(limit - 1, 0)) * tf.cast(limit > 0, tf.int32)
    is_chosen = bucket < limit
    left_out = tf.cast(is_chosen | tf.equal(sizes, 0), tf.int32)
    added = _fill(tf.maximum(order, _LAST * left_out), sizes, budget - used, bits)
    is_chosen &= tf.range(tf.shape(order)[1]) > 0
    is_chosen = tf.tensor_scatter_nd_update(
        tf.reshape(is_chosen, [-1]), added[:, None], tf.ones_like(added, tf.bool)
    )
    return tf.reshape(is_chosen, tf.shape(order))


def _fill(order: tf.Tensor, sizes: tf.Tensor, missing: tf.Tensor, bits: int) -> tf.Tensor:
    """Take words in order, each one that still fits; return row * W + word number, int32 [N].

    `order`, int32 [B, W], is the largest int32 where there is no word to take. `missing`, int32
    [B, 1], is the rest of the budget in pieces.
    """
    width = tf.shape(order)[1]

    def take_next(
        rows: tf.Tensor,
        order: tf.Tensor,
        sizes: tf.Tensor,
        missing: tf.Tensor,
        last: tf.Tensor,
        taken: tf.Tensor,
    ) -> tuple[tf.Tensor, ...]:
        is_unfit = tf.cast((sizes > missing) | (order <= last), tf.int32)
        # tf.maximum, because tf.where takes ten times as long on random branches.
        first = tf.reduce_min(tf.maximum(order, _LAST * is_unfit), axis=1, keepdims=True)
        unfinished = tf.where(first[:, 0] < _LAST)[:, 0]  # rows in which a word fits
        rows, order, sizes, missing, first = (
            tf.gather(x, unfinished) for x in (rows, order, sizes, missing, first)
        )
        word = tf.bitwise.bitwise_and(first, 2**bits - 1)
        taken = tf.concat([taken, rows * width + word[:, 0]], axis=0)
        return rows, order, sizes, missing - take(sizes, word), first, taken

    rows = tf.range(tf.shape(order)[0])
    state = (rows, order, sizes, missing, tf.fill(tf.shape(missing), -1), rows[:0])
    shapes = tuple(tf.TensorShape([None] * len(x.shape)) for x in state)
    return tf.while_loop(lambda rows, *_: tf.size(rows) > 0, take_next, state, shapes)[-1]


def _replacements(
    targets: tf.Tensor, keys: dict[int, tf.Tensor], vocabulary: Vocabulary
) -> tf.Tensor:
    """Return the new ids, int32 [B, P]: 80 % [MASK], 10 % random ordinary pieces, 10 % kept."""
    slot = tf.range(targets.shape[1])
    ordinary = vocabulary.size - len(vocabulary.special_ids)
    piece = keyed_random.graph_below(
        keyed_random.graph_bits(keys[keyed_random.PIECE], tf.cast(slot, tf.int64)), ordinary
    )
    for special in sorted(vocabulary.special_ids):  # index among the ordinary pieces -> id
        piece += tf.cast(piece >= special, tf.int32)
    draws = keyed_random.graph_bits32(keys[keyed_random.REPLACE], slot)
    choice = tf.cast(draws, tf.int64)
    random_or_same = tf.where(choice < round((MASKED_SHARE + RANDOM_SHARE) * 2**32), piece, targets)
    return tf.where(choice < round(MASKED_SHARE * 2**32), vocabulary.mask_id, random_or_same)
