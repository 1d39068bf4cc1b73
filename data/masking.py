"""Masked n-gram LM targets, drawn in the graph, a pure function of (seed, epoch, record).

The paper's masking (section 4.1): n-grams of whole words, p(n) ~ 1/n up to `max_ngram`; of the
chosen pieces 80 % become [MASK], 10 % a random piece, 10 % stay.

The words of a sequence are tiled by n-grams with lengths drawn from p(n); the tiles get a random
order; the words are taken in that order, each if it still fits into the budget of pieces. So
n-grams never overlap; only the last one taken can be incomplete; the budget is used exactly, unless
every word that is left is longer than what is missing; and every word is about as likely to be
masked as any other. (Measured: a segment's first word, which always begins a tile, has 0.18 in
sequences of 16 pieces, but no more than others from 64 pieces on. Words of one piece, which always
fit, have 0.18 and words of three 0.14 in sequences of 124.)

How it is vectorised: the pieces are sorted by (tile, position); those of the leading words that fit
are the first ones by rank; what is then missing is filled word by word.
"""

import dataclasses

import tensorflow as tf

from albert_tf.errors import ConfigError
from data import keyed

MASKED_SHARE, RANDOM_SHARE = 0.8, 0.1
_LAST = tf.int64.max


@dataclasses.dataclass(frozen=True)
class MaskingConfig:
    """How pieces are masked.

    rate: share of a sequence's pieces, special ones counted, that are predicted.
    max_ngram: longest run of words masked together; 1 masks single words.
    max_predictions: slots for predictions, P; 0 means round(rate * seq_length).
    """

    rate: float = 0.15
    max_ngram: int = 3
    max_predictions: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.rate < 1:
            raise ConfigError(f"`masking.rate` must lie between 0 and 1. Received: {self.rate}.")
        if self.max_ngram < 1:
            raise ConfigError(f"`masking.max_ngram` must be positive. Received: {self.max_ngram}.")
        if self.max_predictions < 0:
            raise ConfigError(
                "`masking.max_predictions` must be positive, or 0 for round(rate * seq_length). "
                f"Received: {self.max_predictions}."
            )

    def slots(self, seq_length: int) -> int:
        """P: prediction slots of a sequence of `seq_length`; ConfigError where they are more."""
        if self.max_predictions > seq_length:
            raise ConfigError(
                f"`masking.max_predictions` must be at most the sequence length, {seq_length}. "
                f"Received: {self.max_predictions}."
            )
        return self.max_predictions or max(1, round(self.rate * seq_length))


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    """What masking needs to know of a vocabulary."""

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
) -> dict[str, tf.Tensor]:
    """Chooses and masks pieces.

    Args:
      ids: int32 [B, S].
      word_starts: bool [B, S]; the first piece of each segment counts as one in any case.
      maskable: bool [B, S]: neither special nor padding.
      segment_starts: bool [B, S]: first piece of a segment; no word or n-gram crosses it.
      keys: uint64 [B, 1] for each of the streams NGRAM, TILE, REPLACE and PIECE.

    Returns:
      `input_word_ids` int32 [B, S], `masked_lm_positions` int32 [B, P] ascending, padded with 0,
      `masked_lm_ids` int32 [B, P], `masked_lm_weights` float32 [B, P], 1 for real slots.
    """
    length = ids.shape[1]
    slots = config.slots(length)
    starts = maskable & (word_starts | segment_starts)
    order, position = _random_order(starts, maskable, segment_starts, keys, config)
    budget = _budget(maskable, segment_starts, config.rate, slots)
    picked = _pick_whole_words(order < _LAST, position, starts, maskable, budget)
    positions = tf.where(picked, position, length)  # [B, S], by rank
    positions = -tf.math.top_k(-positions, slots).values  # [B, P], ascending, S where unused
    real = positions < length
    positions = tf.where(real, positions, 0)
    targets = tf.where(real, tf.gather(ids, positions, batch_dims=1), 0)
    # Unused slots write back what is there: [CLS] at position 0, which is never masked.
    written = tf.where(real, _replacements(targets, keys, vocabulary), ids[:, :1])
    rows = tf.broadcast_to(tf.range(tf.shape(ids)[0])[:, None], tf.shape(positions))
    return {
        "input_word_ids": tf.tensor_scatter_nd_update(
            ids, tf.stack([rows, positions], axis=-1), written
        ),
        "masked_lm_positions": positions,
        "masked_lm_ids": targets,
        "masked_lm_weights": tf.cast(real, tf.float32),
    }


def _random_order(
    starts: tf.Tensor,
    maskable: tf.Tensor,
    segment_starts: tf.Tensor,
    keys: dict[int, tf.Tensor],
    config: MaskingConfig,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Pieces by random order of their n-grams: sort keys int64 [B, S], positions int32 [B, S]."""
    length = starts.shape[1]
    word = tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1  # [B, S], number of the piece's word
    draws = keyed.graph_bits(keys[keyed.NGRAM], tf.range(length, dtype=tf.int64)[None])
    ends = tf.cumsum(_ngram_lengths(draws, config.max_ngram), axis=1)  # [B, S], words up to tile k
    tile = tf.searchsorted(ends, word, side="right")  # [B, S], number of the piece's tile
    # A tile that crosses from one segment into the next becomes two.
    tile = 2 * tile + tf.cumsum(tf.cast(segment_starts, tf.int32), axis=1)
    draws = keyed.graph_bits(keys[keyed.TILE], tf.cast(tile, tf.int64))
    # The tile's priority in the high bits, the piece's position in the low 16.
    priority = tf.cast(tf.bitwise.right_shift(draws, tf.constant(17, tf.uint64)), tf.int64)
    order = priority * 2**16 + tf.range(length, dtype=tf.int64)
    order = tf.sort(tf.where(maskable, order, _LAST), axis=1)
    return order, tf.where(order < _LAST, tf.cast(order % 2**16, tf.int32), 0)


def _ngram_lengths(draws: tf.Tensor, max_ngram: int) -> tf.Tensor:
    """uint64 draws -> int32 lengths n in 1..max_ngram with p(n) ~ 1/n."""
    weights = [1 / n for n in range(1, max_ngram + 1)]
    unit = tf.cast(tf.bitwise.right_shift(draws, tf.constant(32, tf.uint64)), tf.int64)
    lengths = tf.ones_like(unit, tf.int32)
    for n in range(1, max_ngram):
        threshold = round(sum(weights[:n]) / sum(weights) * 2**32)
        lengths += tf.cast(unit >= threshold, tf.int32)
    return lengths


def _budget(maskable: tf.Tensor, segment_starts: tf.Tensor, rate: float, slots: int) -> tf.Tensor:
    """int32 [B, 1]: min(P, max(1, round(rate * pieces))), special pieces counted."""
    ordinary = tf.reduce_sum(tf.cast(maskable, tf.float32), axis=1, keepdims=True)
    segments = tf.reduce_sum(tf.cast(segment_starts, tf.float32), axis=1, keepdims=True)
    budget = tf.cast(tf.round(rate * (ordinary + segments + 1)), tf.int32)
    return tf.clip_by_value(budget, 1, slots)


def _pick_whole_words(
    usable: tf.Tensor,
    position: tf.Tensor,
    starts: tf.Tensor,
    maskable: tf.Tensor,
    budget: tf.Tensor,
) -> tf.Tensor:
    """bool [B, S] by rank: the first `budget` pieces, by whole words, then later words that fit."""
    length = starts.shape[1]
    rank = tf.range(length)[None]
    # A word's pieces follow each other in the order, so its last rank follows from any of them.
    last_rank = rank + tf.gather(_pieces_left_in_word(starts, maskable), position, batch_dims=1)
    picked = usable & (last_rank < budget)
    first = usable & tf.gather(starts, position, batch_dims=1)
    size = tf.where(first, last_rank - rank + 1, length + 1)  # [B, S], at words' first pieces

    def missing(picked: tf.Tensor) -> tf.Tensor:
        return budget - tf.reduce_sum(tf.cast(picked, tf.int32), axis=1, keepdims=True)

    def fits(picked: tf.Tensor) -> tf.Tensor:
        return ~picked & (size <= missing(picked))

    def add_first_fit(picked: tf.Tensor) -> tuple[tf.Tensor]:
        fit = fits(picked)
        begin = tf.argmax(fit, axis=1, output_type=tf.int32)[:, None]  # the first True
        end = begin + tf.gather(size, begin, batch_dims=1)
        is_any = tf.reduce_any(fit, axis=1, keepdims=True)
        return (picked | (is_any & (rank >= begin) & (rank < end)),)

    return tf.while_loop(lambda picked: tf.reduce_any(fits(picked)), add_first_fit, (picked,))[0]


def _pieces_left_in_word(starts: tf.Tensor, maskable: tf.Tensor) -> tf.Tensor:
    """int32 [B, S]: how many pieces of its word follow each piece; 0 where not maskable."""
    batch, length = tf.shape(starts)[0], starts.shape[1]
    word = tf.maximum(tf.cumsum(tf.cast(starts, tf.int32), axis=1) - 1, 0)
    word += tf.range(batch)[:, None] * length  # numbered through the batch
    flat = tf.reshape(word, [-1])
    place = tf.tile(tf.range(length), [batch])

    def of_word(values: tf.Tensor) -> tf.Tensor:
        sums = tf.math.unsorted_segment_sum(values, flat, batch * length)
        return tf.gather(sums, flat)

    size = of_word(tf.reshape(tf.cast(maskable, tf.int32), [-1]))
    begin = of_word(tf.where(tf.reshape(starts, [-1]), place, 0))
    left = tf.reshape(begin + size - 1 - place, [batch, length])
    return tf.where(maskable, left, 0)


def _replacements(
    targets: tf.Tensor, keys: dict[int, tf.Tensor], vocabulary: Vocabulary
) -> tf.Tensor:
    """int32 [B, P]: [MASK] for 80 %, a random ordinary piece for 10 %, no change for 10 %."""
    slot = tf.range(targets.shape[1], dtype=tf.int64)[None]
    draws = keyed.graph_bits(keys[keyed.REPLACE], slot)
    unit = tf.cast(tf.bitwise.right_shift(draws, tf.constant(32, tf.uint64)), tf.int64)
    ordinary = vocabulary.size - len(vocabulary.special_ids)
    piece = keyed.graph_below(keyed.graph_bits(keys[keyed.PIECE], slot), ordinary)
    for special in sorted(vocabulary.special_ids):  # number of an ordinary piece -> its id
        piece += tf.cast(piece >= special, tf.int32)
    random_or_same = tf.where(unit < round((MASKED_SHARE + RANDOM_SHARE) * 2**32), piece, targets)
    return tf.where(unit < round(MASKED_SHARE * 2**32), vocabulary.mask_id, random_or_same)
