"""Shortening of long runs of characters unknown to a sentencepiece model, inside a graph.

A run of any length becomes one piece, but the time that tensorflow_text takes to join it is
quadratic in its length: half a minute for 300,000 characters.
"""

from collections.abc import Callable

import tensorflow as tf

from albert_tf.text.ragged import mask_rows

LONG = 4096  # bytes; texts up to this length do not change
_BLOCK, _MAX_SPAN = 64, 16  # characters; no piece or normalization rule spans more than _MAX_SPAN
_UNKNOWN_CHARACTER = "\U0010fffd"  # for private use: unknown to every model


def shorten(
    texts: tf.Tensor, tokenize: Callable[[tf.Tensor], tf.RaggedTensor]
) -> tuple[tf.Tensor, tf.Tensor]:
    """Return texts with the same pieces, in which each block inside a long run is one character.

    Args:
      texts: string [B], UTF-8, with C characters in total.
      tokenize: the tokenizer of the model, string [N] -> [N, (pieces)].

    Returns:
      The texts, string [B], and the mask of the characters that they keep, bool [C].
    """
    codes = tf.strings.unicode_decode(texts, "UTF-8")
    characters, count = codes.values, tf.size(codes.values, tf.int64)
    begin = tf.ragged.range(codes.row_starts(), codes.row_limits(), _BLOCK).values  # [N]
    end = tf.concat([begin[1:], [count]], 0)
    is_void = _inside_runs(characters, codes.row_starts(), begin, end, tokenize)
    sizes = end - begin
    is_void = tf.repeat(is_void, sizes)  # [C]
    is_kept = ~is_void | tf.equal(tf.range(count), tf.repeat(begin, sizes))
    codes = codes.with_values(tf.where(is_void, ord(_UNKNOWN_CHARACTER), characters))
    return tf.strings.unicode_encode(mask_rows(codes, is_kept), "UTF-8"), is_kept


def _inside_runs(
    characters: tf.Tensor,
    row_starts: tf.Tensor,
    begin: tf.Tensor,
    end: tf.Tensor,
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor],
) -> tf.Tensor:
    """Return the mask [N] of blocks [begin, end) that are unknown, as are both their neighbors.

    Neighbors are blocks of the same text. Tokenizing the blocks, instead of looking characters up
    in the model's alphabet, takes the model's own normalization into account: some characters
    vanish, some become others, alone or together with those that follow.
    """

    def text(limit: tf.Tensor) -> tf.Tensor:
        places = tf.ragged.range(begin, limit)
        return tf.strings.unicode_encode(
            places.with_values(tf.gather(characters, places.values)), "UTF-8"
        )

    block, further = text(end), text(tf.minimum(end + _MAX_SPAN, tf.size(characters, tf.int64)))
    among = tf.strings.join(
        [_UNKNOWN_CHARACTER, block, _UNKNOWN_CHARACTER, further, _UNKNOWN_CHARACTER]
    )
    pieces = tokenize(tf.concat([[_UNKNOWN_CHARACTER], among, block], 0)).row_lengths()
    # A model that encodes unknown characters as bytes never joins a block with its neighbors.
    joins = tf.equal(pieces[1 : tf.size(begin) + 1], pieces[0])
    is_some = pieces[tf.size(begin) + 1 :] > 0  # some of it does not vanish
    row = tf.where(joins, tf.searchsorted(row_starts, begin, side="right"), 0)  # counted from 1
    beside = tf.pad(row, [[1, 1]])
    return joins & is_some & tf.equal(beside[:-2], row) & tf.equal(beside[2:], row)
