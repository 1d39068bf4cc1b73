"""Text to ids inside a TensorFlow graph: the graph version of `tokenizer.Tokenizer`.

Shapes: B texts, S `seq_length`, (pieces) ragged.
"""

from collections.abc import Sequence

import numpy as np
import tensorflow as tf
import tensorflow_text

from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import (
    COMPOSED_MARKS,
    SURROGATES,
    Normalization,
    combining_ranges,
    re2_class,
)
from albert_tf.text.tokenizer import SpecialIds, Tokenizer
from albert_tf.text.truncation import truncated_lengths_in_graph
from albert_tf.text.unknown_characters import LONG, shorten
from albert_tf.text.wordpiece import CONTINUES, MAX_WORD, SPECIAL_PIECES, WordPiece, characters

# The white space of str.split(), as an RE2 class.
WHITE_SPACE = (
    r"[\t-\r\x1c-\x20\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}"
    r"\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]+"
)
# tf.strings.lower truncates a string at NUL, so U+FFFF replaces NUL. U+FFFF is not a character
# either, so no vocabulary contains it, and both become the unknown piece.
_LOCALIZED = {letter: letter.lower() for letter in "I\u0130J\u012e\u00cc\u00cd\u0128"}
_NUL, _NO_CHARACTER = r"\x00", "\uffff"


def strings(texts: Sequence[str]) -> tf.Tensor:
    """Return texts as a tensor, string [B]; lone surrogates become U+FFFD, as in ids."""
    return tf.constant([SURROGATES.sub("\ufffd", text) for text in texts], tf.string)


class GraphTokenizer(tf.Module):
    """A tokenizer from strings to ragged ids, for graph mode, tf.data and SavedModels.

    The rules are those of the Python tokenizer, after invalid UTF-8 is replaced by U+FFFD. The
    graph contains the bytes of the model: a SavedModel needs tensorflow and tensorflow_text, but no
    file.

    The ids are those of the Python tokenizer, except for two differences in tensorflow_text. Its
    release of sentencepiece may choose another of several segmentations of equal score, and its
    Unicode tables are from another version of Unicode (159 code points differ; 60 for WordPiece).

    TensorFlow frees the model together with this object. Code that keeps only the resource then
    fails with "SentencepieceResource does not exist" (keras-hub issue 1573). A function, a dataset
    or a module that refers to this object keeps it alive, until a program calls `clear_session` or
    sets a seed of TensorFlow, which frees every resource. What is in a SavedModel stays.

    Args:
      tokenizer: the Python tokenizer.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="graph_tokenizer")
        self.special: SpecialIds = tokenizer.special
        self.vocab_size = tokenizer.vocab_size
        is_wordpiece = isinstance(tokenizer.vocabulary, WordPiece)
        with tf.init_scope():  # the resource must not belong to a function being traced
            self.ops = (WordPieceOps if is_wordpiece else SentencePieceOps)(tokenizer)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text without special pieces: string [B] -> int32 [B, (pieces)]."""
        texts = tf.convert_to_tensor(texts)
        ids = self.ops(texts)
        # The ops do not set the static number of rows; the reshape does.
        splits = tf.reshape(ids.row_splits, [tf.shape(texts)[0] + 1])
        return tf.RaggedTensor.from_row_splits(ids.values, splits, validate=False)

    def pack(
        self, segments: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor
    ) -> dict[str, tf.Tensor]:
        """Pack segments into the model's inputs: see `pack_segments`."""
        return pack_segments(segments, seq_length, self.special)


class SentencePieceOps(tf.Module):
    """The sentencepiece tokenizer of tensorflow_text, with the digit-comma rule as a gather."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="sentencepiece")
        self._normalization = tokenizer.normalization
        self.processor = tensorflow_text.SentencepieceTokenizer(
            model=tokenizer.model, out_type=tf.int32
        )
        self._new_ids = _replacement_table(tokenizer)

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text without special pieces: string [B] -> int32 [B, (pieces)]."""
        ids = self.processor.tokenize(self.shorten(self.normalize(texts))[0])
        new = self.replace(ids)
        return ids if new is None else new.merge_dims(1, 2)

    def normalize(self, texts: tf.Tensor) -> tf.Tensor:
        """Return the normalized texts: see `normalize_in_graph`."""
        return normalize_in_graph(texts, self._normalization)

    def shorten(self, normal: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        """Shorten normalized texts if any is long: see `unknown_characters.shorten`."""
        count = tf.reduce_sum(tf.strings.length(normal, "UTF8_CHAR"))
        return tf.cond(
            tf.reduce_any(tf.strings.length(normal) > LONG),
            lambda: shorten(normal, self.processor.tokenize),
            lambda: (normal, tf.ones([count], tf.bool)),
        )

    def replace(self, ids: tf.RaggedTensor) -> tf.RaggedTensor | None:
        """Apply the digit-comma rule, [B, (pieces)] -> [B, (pieces), (new)].

        Return None if the rule changes no piece of the vocabulary.
        """
        if self._new_ids is None:
            return None
        table = tf.RaggedTensor.from_row_splits(*self._new_ids, validate=False)  # [V, (new)]
        return tf.gather(table, ids)


class WordPieceOps(tf.Module):
    """BERT's words by regular expressions, split into pieces by tensorflow_text.

    The longest match of its FastWordpieceTokenizer takes linear time.

    Raises:
      InputError: tensorflow_text refuses the vocabulary.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        super().__init__(name="wordpiece")
        self._normalization = tokenizer.normalization
        try:
            self._pieces = tensorflow_text.FastWordpieceTokenizer(
                vocab=tokenizer.vocabulary.pieces,
                suffix_indicator=CONTINUES,
                max_bytes_per_word=4 * MAX_WORD,
                token_out_type=tf.int32,
                unknown_token=SPECIAL_PIECES["unk"],
                no_pretokenization=True,
            )
        except RuntimeError as error:
            raise InputError(
                f"the vocabulary has pieces that TensorFlow cannot use: {error}. Pass the "
                "intact file of the model."
            ) from None

    def __call__(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Return the ids of each text without special pieces: string [B] -> int32 [B, (pieces)]."""
        return self.cut(self.words(texts)).merge_dims(1, 2)

    def words(self, texts: tf.Tensor) -> tf.RaggedTensor:
        """Split texts, string [B], into words [B, (words)]."""
        return split_words_in_graph(texts, self._normalization)

    def cut(self, words: tf.RaggedTensor) -> tf.RaggedTensor:
        """Split words into ids [B, (words), (pieces)]; words longer than MAX_WORD are unknown."""
        is_long = tf.strings.length(words.values, "UTF8_CHAR") > MAX_WORD
        known = tf.where(is_long, _NO_CHARACTER, words.values)
        return self._pieces.tokenize(words.with_values(known))


def split_words_in_graph(texts: tf.Tensor, rules: Normalization) -> tf.RaggedTensor:
    """Run `wordpiece.split_words` as TensorFlow operations: string [B] -> [B, (words)]."""
    classes = {name: re2_class(ranges) for name, ranges in characters().items()}
    replace = tf.strings.regex_replace
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = replace(texts, f"[{classes['dropped']}]+", "")
    texts = replace(texts, f"[{classes['space']}]+", " ")
    if rules.unify_quotes:
        texts = replace(texts, "``|''", '"')
    if rules.lowercase:
        texts = lower_in_graph(texts)
    if rules.strip_accents:
        # NFD takes quadratic time for a run of marks. U+034F, a mark without a combining class,
        # divides long runs, and is dropped with the other marks.
        texts = replace(texts, r"\p{M}{30}", "\\0\u034f")
        texts = tensorflow_text.normalize_utf8(texts, "NFD")
        texts = replace(texts, f"[{classes['marks']}]+", "")
    texts = replace(texts, f"[{classes['alone']}]", r" \0 ")
    return tf.strings.split(texts)


def normalize_in_graph(texts: tf.Tensor, rules: Normalization) -> tf.Tensor:
    """Run `normalization.normalize` as TensorFlow operations: string [B] -> string [B]."""
    texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")
    texts = tf.strings.regex_replace(texts, _NUL, _NO_CHARACTER)
    texts = tf.strings.strip(tf.strings.regex_replace(texts, WHITE_SPACE, " "))
    if rules.unify_quotes:
        texts = tf.strings.regex_replace(texts, "``|''", '"')
    if rules.strip_accents:
        # NFKD takes quadratic time for a run of these, so they are dropped before it too.
        combining = f"[{re2_class(combining_ranges())}{COMPOSED_MARKS}]+"
        texts = tf.strings.regex_replace(texts, combining, "")
        texts = tensorflow_text.normalize_utf8(texts, "NFKD")
        texts = tf.strings.regex_replace(texts, combining, "")
    return lower_in_graph(texts) if rules.lowercase else texts


def lower_in_graph(texts: tf.Tensor) -> tf.Tensor:
    """Return texts in lower case, string [B], in every locale of the process.

    TensorFlow lowers some letters as Turkish or Lithuanian does, if LANG says so.
    """
    for upper, lower in _LOCALIZED.items():
        texts = tf.strings.regex_replace(texts, upper, lower)
    return tf.strings.lower(texts, encoding="utf-8")


def pack_segments(
    segments: Sequence[tf.RaggedTensor], seq_length: int | tf.Tensor, special: SpecialIds
) -> dict[str, tf.Tensor]:
    """Pack [CLS] A [SEP] or [CLS] A [SEP] B [SEP], truncated and padded to `seq_length`.

    If a pair is too long, the longer segment loses pieces at its end until both have the same
    length. Then both lose pieces in turn, B first, as in tensorflow_text's RoundRobinTrimmer.

    Args:
      segments: one or two int32 [B, (pieces)].
      seq_length: S, an int or a scalar tensor; at least the number of special pieces.
      special: the ids of the special pieces.

    Returns:
      `input_word_ids`, `input_mask` (1 = a piece), `input_type_ids` (1 = B and its [SEP]): int32
      [B, S], padded with the padding id, 0 and 0.

    Raises:
      InputError: there are no or more than two segments, or `seq_length` is an int that leaves no
        room for the special pieces.
    """
    if len(segments) not in (1, 2):
        raise InputError(
            f"`segments` must be one or two ragged tensors. Received: {len(segments)}."
        )
    num_special = len(segments) + 1
    if isinstance(seq_length, int) and seq_length < num_special:
        raise InputError(
            f"`seq_length` must be at least {num_special}, the number of special pieces. "
            f"Received: {seq_length}."
        )
    segments = [tf.cast(segment, tf.int32) for segment in segments]
    keep = _lengths(segments, tf.cast(seq_length, tf.int32) - num_special)
    positions = tf.range(tf.cast(seq_length, tf.int32))[tf.newaxis, :]  # [1, S]
    start = tf.ones_like(keep[0])  # [B, 1], the start of the next segment
    ids = tf.where(positions < start, special.cls, special.pad)  # [B, S]
    types = tf.zeros_like(ids)
    for number, (segment, length) in enumerate(zip(segments, keep, strict=True)):
        end = start + length
        column = positions - start
        ids = tf.where((column >= 0) & (column < length), _row_values(segment, column), ids)
        ids = tf.where(positions == end, special.sep, ids)
        types = tf.where((column >= 0) & (positions <= end), number, types)
        start = end + 1
    mask = tf.cast(positions < start, tf.int32)
    return {"input_word_ids": ids, "input_mask": mask, "input_type_ids": types}


def _lengths(segments: list[tf.RaggedTensor], budget: tf.Tensor) -> list[tf.Tensor]:
    """Return the number of pieces of each segment that fit, each int32 [B, 1]."""
    have = [tf.cast(s.row_lengths(), tf.int32)[:, tf.newaxis] for s in segments]
    if len(segments) == 1:
        return [tf.minimum(have[0], budget)]
    return list(truncated_lengths_in_graph(have[0], have[1], budget))


def _row_values(segment: tf.RaggedTensor, column: tf.Tensor) -> tf.Tensor:
    """Return row i's values at `column[i]`, [B, S]; arbitrary values outside the row."""
    values = tf.concat([segment.values, [0]], axis=0)  # so that there is at least one
    starts = tf.cast(segment.row_starts(), tf.int32)[:, tf.newaxis]
    return tf.gather(values, tf.clip_by_value(starts + column, 0, tf.size(values) - 1))


def _replacement_table(tokenizer: Tokenizer) -> tuple[tf.Tensor, tf.Tensor] | None:
    """Return the digit-comma rule for every id: values and row splits of int32 [V, (new)]."""
    if not tokenizer.replacements:
        return None
    rows = [tokenizer.replacements.get(i, (i,)) for i in range(tokenizer.vocab_size)]
    splits = np.cumsum([0] + [len(row) for row in rows], dtype=np.int64)
    return tf.constant(np.concatenate(rows), tf.int32), tf.constant(splits)
