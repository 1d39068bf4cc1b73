"""Long runs of characters that a sentencepiece model does not know, cut short inside a graph.

A run of any length becomes one piece, but joining it takes tensorflow_text the square of its
length: half a minute for 300,000 characters.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.text.ragged import mask_rows

LONG = 4096  # bytes; texts up to here are left as they are
_BLOCK, _BEYOND = 64, 16  # characters; a piece, or what becomes another character, has no more
_STRANGER = "\U0010fffd"  # of private use: unknown to every model


def shorten(
    texts: tf.Tensor, tokenize: Callable[[tf.Tensor], tf.RaggedTensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Texts of the same pieces, where the blocks inside a long run are one character each.

    Args:
      texts: string [B], UTF-8; C characters in all.
      tokenize: the model's: string [N] -> [N, (pieces)].

    Returns:
      The texts, string [B], and which of the characters they still have, bool [C].
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    characters, count = codes.values, tf.size(codes.values, tf.int64)
    begin = tf.ragged.range(codes.row_starts(), codes.row_limits(), _BLOCK).values  # [N]
    end = tf.concat([begin[1:], [count]], 0)
    is_void = _inside_runs(characters, codes.row_starts(), begin, end, tokenize)
    sizes = end - begin
    is_void = tf.repeat(is_void, sizes)  # [C]
    is_kept = ~is_void | tf.equal(tf.range(count), tf.repeat(begin, sizes))
    codes = codes.with_values(tf.where(is_void, ord(_STRANGER), characters))
    return tf.strings.unicode_encode(mask_rows(codes, is_kept), "UTF-8"), is_kept


def _inside_runs(
    characters: tf.Tensor,
    row_starts: tf.Tensor,
    begin: tf.Tensor,
    end: tf.Tensor,
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor],
) -> tf.Tensor:
    """Which of the blocks [begin, end) are unknown as their neighbours of the same text are [N].

    Asking the model, rather than its alphabet, sees what it makes of characters before it looks
    them up: some vanish, some become others, alone or together with those that follow.
    """

    def text(limit: tf.Tensor) -> tf.Tensor:
        places = tf.ragged.range(begin, limit)
        return tf.strings.unicode_encode(
            places.with_values(tf.gather(characters, places.values)), "UTF-8"
        )

    block, further = text(end), text(tf.minimum(end + _BEYOND, tf.size(characters, tf.int64)))
    among = tf.strings.join([_STRANGER, block, _STRANGER, further, _STRANGER])
    pieces = tokenize(tf.concat([[_STRANGER], among, block], 0)).row_lengths()
    # Of a model that spells the unknown in bytes, no block is one piece with its neighbours.
    joins = tf.equal(pieces[1 : tf.size(begin) + 1], pieces[0])
    is_some = pieces[tf.size(begin) + 1 :] > 0  # not all of it vanishes
    row = tf.where(joins, tf.searchsorted(row_starts, begin, side="right"), 0)  # from 1 on
    beside = tf.pad(row, [[1, 1]])
    return joins & is_some & tf.equal(beside[:-2], row) & tf.equal(beside[2:], row)
