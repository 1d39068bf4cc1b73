"""Alignment of pieces with the characters of the text, inside a TensorFlow graph.

This is the graph version of `albert_tf.text.alignment`, which defines solid characters. Shapes: B
texts with P pieces and C characters in total.
"""

from typing import NamedTuple

import tensorflow as tf

from albert_tf.text.graph_tokenizer import GraphTokenizer, SentencePieceOps, WordPieceOps
from albert_tf.text.normalization import re2_class
from albert_tf.text.ragged import row_of
from albert_tf.text.sentencepiece_model import WORD_MARK
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.wordpiece import CONTINUES, characters
from albert_tf.text.words import invisible_bounds


class AlignedPieces(NamedTuple):
    """The pieces of texts and the characters of the texts.

    Attributes:
      ids: int32 [B, (pieces)], the ids of `GraphTokenizer`.
      first, last, reach: int32 [P], counted in the piece's own text; see `alignment.Pieces`.
      codes: int32 [B, (characters)], Unicode code points, with U+FFFD for invalid UTF-8.
    """

    ids: tf.RaggedTensor
    first: tf.Tensor
    last: tf.Tensor
    reach: tf.Tensor
    codes: tf.RaggedTensor


def visible_ranges(
    codes: tf.Tensor, begin: tf.Tensor, end: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Strip invisible characters from ranges of code points.

    Return which of the ranges [begin, end), int32 [N], have a visible one, bool [N], and those
    without invisible ones at their ends, int32 [K] each.
    """
    is_visible = tf.searchsorted(invisible_bounds(), codes, side="right") % 2 == 0
    visible = tf.cast(tf.where(is_visible)[:, 0], tf.int32)
    visible_before = tf.concat([[0], tf.cumsum(tf.cast(is_visible, tf.int32))], 0)
    first, limit = tf.gather(visible_before, begin), tf.gather(visible_before, end)
    kept = limit > first
    first, limit = tf.boolean_mask(first, kept), tf.boolean_mask(limit, kept)
    return kept, tf.gather(visible, first), tf.gather(visible, limit - 1) + 1


class GraphAligner(tf.Module):
    """The version of `alignment.align` for graphs and SavedModels.

    Args:
      tokenizer: the Python tokenizer.
      graph: the graph tokenizer of the same vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer, graph: GraphTokenizer) -> None:
        super().__init__(name="graph_aligner")
        self._graph, self._unknown = graph, tokenizer.special.unk
        self._quotes = _second_quotes(graph) if tokenizer.normalization.unify_quotes else None
        pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        with tf.init_scope():
            self._lengths = tf.constant([len(_solid_text(piece, graph)) for piece in pieces])

    def __call__(self, texts: tf.Tensor) -> AlignedPieces:
        """Return the aligned pieces of texts, string [B]."""
        codes = tf.strings.unicode_decode(texts, "UTF-8", errors="replace")
        ids, begin, end = self._cut(texts)
        # The number of solid characters up to each character, with one extra after the last.
        solid_until = tf.cumsum(tf.concat([self._solid_lengths(texts, codes), [1]], 0))  # [C + 1]
        before = tf.concat([[0], solid_until], 0)
        row, bounds = row_of(ids), tf.cast(codes.row_splits, tf.int32)
        base, limit = tf.gather(bounds, row), tf.gather(bounds, row + 1)
        # Count within each text, so that a text cannot shift the pieces of its neighbors.
        text_begin, text_end = tf.gather(before, base), tf.gather(before, limit)
        begin, end = (tf.minimum(text_begin + count, text_end) for count in (begin, end))

        def origin(solid: tf.Tensor) -> tf.Tensor:
            return tf.searchsorted(solid_until, solid, side="right")

        is_solid = end > begin
        first = tf.minimum(origin(begin), limit)
        final = origin(tf.maximum(end - 1, 0))
        reach = tf.minimum(origin(tf.gather(solid_until, final)), limit) - 1
        # A space may lie inside the characters that one character became.
        last_of_space = tf.maximum(first - 1, tf.where(begin > text_begin, origin(begin - 1), -1))
        last, reach = (tf.where(is_solid, value, last_of_space) for value in (final, reach))
        return AlignedPieces(ids, first - base, last - base, reach - base, codes)

    def _solid_lengths(self, texts: tf.Tensor, codes: tf.RaggedTensor) -> tf.Tensor:
        """Return the number of solid characters that each character becomes, int32 [C]."""
        if self._quotes is not None:  # count the second of a pair of quotes as a space
            texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
            texts = tf.strings.regex_replace(texts, self._quotes, r"\1\2 ")
            codes = tf.strings.unicode_decode(texts, "UTF-8")
        alphabet, index = tf.unique(codes.values)
        single_characters = tf.strings.unicode_encode(alphabet[:, tf.newaxis], "UTF-8")
        ops = self._graph.ops
        if isinstance(ops, WordPieceOps):
            solid = tf.strings.reduce_join(ops.words(single_characters), axis=1)
        else:
            solid = tf.strings.regex_replace(ops.normalize(single_characters), " ", "")
        return tf.gather(tf.strings.length(solid, "UTF8_CHAR"), index)

    def _cut(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Return ids [B, (pieces)] and their ranges [begin, end) of solid characters, int32 [P]."""
        ops = self._graph.ops
        cut = self._wordpieces if isinstance(ops, WordPieceOps) else self._sentencepieces
        ids, begin, end = cut(texts, ops)
        splits = tf.reshape(ids.row_splits, [tf.shape(texts)[0] + 1])
        return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False), begin, end

    def _sentencepieces(
        self, texts: tf.Tensor, ops: SentencePieceOps
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        normal = ops.normalize(texts)
        short, is_kept = ops.shorten(normal)
        ids, begin, end = ops.processor.tokenize_with_offsets(short)
        # The number of solid characters before each character of `normal` and before its end; then
        # only for the characters that `short` keeps; then for each byte of those.
        codes = tf.strings.unicode_decode(normal, "UTF-8").values
        before = tf.concat([[0], tf.cumsum(tf.cast(codes != ord(" "), tf.int32))], 0)
        before = tf.boolean_mask(before, tf.concat([is_kept, [True]], 0))
        flat = tf.cast(tf.io.decode_raw(tf.strings.reduce_join(short), tf.uint8), tf.int32)
        begins = tf.not_equal(tf.bitwise.bitwise_and(flat, 0xC0), 0x80)  # not a continuation byte
        before = tf.gather(before, tf.concat([[0], tf.cumsum(tf.cast(begins, tf.int32))], 0))
        base = tf.gather(tf.cumsum(tf.strings.length(short), exclusive=True), row_of(ids))
        text_begin = tf.gather(before, base)
        begin, end = (
            tf.gather(before, base + tf.cast(offsets.values, tf.int32)) - text_begin
            for offsets in (begin, end)
        )
        new = ops.replace(ids)
        return (ids, begin, end) if new is None else self._replaced(new, begin, end)

    def _replaced(
        self, new: tf.RaggedTensor, begin: tf.Tensor, end: tf.Tensor
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Divide the range of each replaced piece between the new pieces, by their lengths."""
        ids = new.values  # [P, (new)]
        old, starts, limits = row_of(ids), ids.row_starts(), ids.row_limits()
        lengths_before = tf.cumsum(tf.gather(self._lengths, ids.values), exclusive=True)
        inner = lengths_before - tf.gather(lengths_before, tf.gather(starts, old))
        end = tf.gather(end, old)
        begin = tf.minimum(tf.gather(begin, old) + inner, end)
        is_last = tf.equal(tf.range(tf.size(old, tf.int64)) + 1, tf.gather(limits, old))
        return new.merge_dims(1, 2), begin, tf.where(is_last, end, tf.roll(begin, -1, 0))

    def _wordpieces(
        self, texts: tf.Tensor, ops: WordPieceOps
    ) -> tuple[tf.RaggedTensor, tf.Tensor, tf.Tensor]:
        """Return ids and ranges: a piece is as long as its text, an unknown piece as its word."""
        words = ops.words(texts)
        cut = ops.cut(words)  # [B, (words), (pieces)]
        of_words = tf.gather(tf.strings.length(words.values, "UTF8_CHAR"), row_of(cut.values))
        ids = cut.merge_dims(1, 2)
        is_unknown = tf.equal(ids.values, self._unknown)
        lengths = tf.where(is_unknown, of_words, tf.gather(self._lengths, ids.values))
        before = tf.cumsum(lengths, exclusive=True)
        begin = before - tf.gather(before, tf.gather(ids.row_starts(), row_of(ids)))
        return ids, begin, begin + lengths


def byte_bounds(texts: tf.Tensor) -> tf.RaggedTensor:
    """Return the first byte of each character and the text's end: int32 [B, (characters + 1)]."""
    _, begins = tf.strings.unicode_decode_with_offsets(texts, "UTF-8", errors="replace")
    ends = tf.strings.length(texts)[:, tf.newaxis]
    return tf.concat([tf.cast(begins, tf.int32), ends], axis=1)


def _solid_text(piece: str, graph: GraphTokenizer) -> str:
    if isinstance(graph.ops, WordPieceOps):
        return piece.removeprefix(CONTINUES)
    return piece.replace(WORD_MARK, "")


def _second_quotes(graph: GraphTokenizer) -> str:
    """Return a pattern (RE2) of two quotes that become one; all but the second is in a group."""
    is_wordpiece = isinstance(graph.ops, WordPieceOps)
    between = f"[{re2_class(characters()['dropped'])}]*" if is_wordpiece else ""
    return f"(`{between})`|('{between})'"
