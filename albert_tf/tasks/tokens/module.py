"""Token classifiers as SavedModels: text in, labeled spans and their positions out."""

from typing import Any, NamedTuple

import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.signatures import IDS, Answer, checked_inputs, signature
from albert_tf.graph.windows import MAX_WINDOWS, GraphWindows
from albert_tf.models.encoder import INPUTS
from albert_tf.tasks.tokens.model import (
    OUTSIDE,
    TokenClassifier,
    TokenSettings,
    begins_entity,
    label_of,
)
from albert_tf.tasks.windowed_module import WindowedModule
from albert_tf.text.graph_aligner import AlignedPieces, visible_ranges
from albert_tf.text.ragged import row_of, slice_rows
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.words import word_bounds

_MAX_CELLS = 2**22  # of an output [B, E], which are 75 bytes each in all outputs


class Words(NamedTuple):
    """The words of all texts, U in number, or the labeled spans.

    Attributes:
      text: int32 [U], the text of each word.
      begin, end: int32 [U], its characters [begin, end), counted over all texts end to end.
      tag: int32 [U], its tag, or the label of a span.
      score: float32 [U], the probability of the tag.
    """

    text: tf.Tensor
    begin: tf.Tensor
    end: tf.Tensor
    tag: tf.Tensor
    score: tf.Tensor


class TokenClassifierModule(WindowedModule):
    """A module that finds labeled spans, like the Python `Predictor` in texts without tokens.

    Shapes: B texts, E spans of the text that has the most, W windows of S positions.

    Signatures:
      serving_default: `text` string [B] -> for the spans of each text, in order: `text`, `label`
        string [B, E], the span and its label, then ""; `start`, `end` int32 [B, E], its characters
        [start, end), then -1; `score` float32 [B, E], the mean probability of its words' tags, then
        0. Each malformed UTF-8 sequence counts as one U+FFFD and is returned as U+FFFD.
      tokens: the encoder's inputs, int32 [W, S] -> `probabilities` float32 [W, S, tags], in the
        order of `TokenSettings.tags`.
    """

    _task: TokenSettings

    def __init__(
        self, model: TokenClassifier, tokenizer: Tokenizer, max_windows: int = MAX_WINDOWS
    ) -> None:
        super().__init__(model, tokenizer, max_windows)
        self._labels = tf.constant(model.task.labels)
        self._word_bounds = tf.constant(word_bounds())

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        return {
            "serving_default": signature(self.serve, [tf.TensorSpec([None], tf.string, "text")]),
            "tokens": signature(self._tokens, [IDS[name] for name in INPUTS]),
        }

    def serve(self, text: tf.Tensor) -> Answer:
        """Return the spans of texts [B]."""
        _, pieces, sizes = self._read(text)
        windows = self._cut("text", sizes, tf.ones_like(sizes))  # [CLS] is before them
        tag, score = self._of_pieces(pieces.ids, windows)
        words = self._words(pieces, tag, score)
        return self._answer(labeled_spans(words, self._task), pieces.codes)

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        logits = self._predict(checked_inputs(ids, self._max_positions))
        return {"probabilities": tf.nn.softmax(logits)}

    def _of_pieces(
        self, ids: tf.RaggedTensor, windows: GraphWindows
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Return the tag, int32 [P], and its probability, float32 [P], of every piece."""
        begin = tf.gather(ids.row_starts(), windows.example) + tf.cast(windows.offset, tf.int64)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            length = tf.cast(tf.gather(windows.length, rows), tf.int64)
            batch = slice_rows(ids, tf.gather(begin, rows), length)
            rows_of = tf.nn.softmax(self._predict(self._tokenizer.pack([batch], width)))
            padding = [[0, 0], [0, self._task.seq_length - width]]
            return {
                "tag": tf.pad(tf.argmax(rows_of, axis=-1, output_type=tf.int32), padding),
                "score": tf.pad(tf.reduce_max(rows_of, axis=-1), padding),
            }

        size = [tf.size(begin), self._task.seq_length]
        empty = {"tag": tf.zeros(size, tf.int32), "score": tf.zeros(size)}
        outputs = run_in_buckets(windows.length + 2, run, empty, self._task.seq_length)
        # Each piece has one owner, and the owners of a text's pieces are in order.
        shift = 1 - windows.offset
        positions = tf.ragged.range(windows.owned_from + shift, windows.owned_to + shift)
        indices = tf.stack([row_of(positions), positions.values], axis=1)
        return tf.gather_nd(outputs["tag"], indices), tf.gather_nd(outputs["score"], indices)

    def _words(self, pieces: AlignedPieces, tag: tf.Tensor, score: tf.Tensor) -> Words:
        """Return the words; see `_words` of `tasks.tokens.features`."""
        codes, text = pieces.codes.values, row_of(pieces.ids)
        base = tf.gather(tf.cast(pieces.codes.row_starts(), tf.int32), text)
        solid = tf.cast(tf.where(pieces.last >= pieces.first)[:, 0], tf.int32)  # no spaces
        first, last = (tf.gather(base + offsets, solid) for offsets in (pieces.first, pieces.last))
        joins = tf.searchsorted(self._word_bounds, codes, side="right") % 2 == 1
        is_joined = tf.gather(joins, first) & tf.gather(joins, tf.maximum(first - 1, 0))
        is_joined &= tf.gather(pieces.first, solid) > 0
        word = tf.boolean_mask(solid, (first > tf.concat([[-1], last[:-1]], 0)) & ~is_joined)
        limits = tf.gather(tf.cast(pieces.ids.row_limits(), tf.int32), tf.gather(text, word))
        final = tf.minimum(tf.concat([word[1:], [tf.size(text)]], 0), limits) - 1
        begin, end = tf.gather(base + pieces.first, word), tf.gather(base + pieces.reach, final) + 1
        kept, begin, end = visible_ranges(codes, begin, end)
        word = tf.boolean_mask(word, kept)
        return Words(
            tf.gather(text, word), begin, end, tf.gather(tag, word), tf.gather(score, word)
        )

    def _answer(self, spans: Words, codes: tf.RaggedTensor) -> Answer:
        """Return the signature's outputs for the labeled spans of texts with these characters."""
        base = tf.gather(tf.cast(codes.row_starts(), tf.int32), spans.text)
        characters = tf.ragged.range(spans.begin, spans.end)
        characters = characters.with_values(tf.gather(codes.values, characters.values))
        splits = tf.searchsorted(spans.text, tf.range(tf.cast(codes.nrows(), tf.int32) + 1))
        most = tf.reduce_max(tf.concat([[0], splits[1:] - splits[:-1]], 0))
        cells = tf.cast(most, tf.int64) * codes.nrows()
        message = (
            f"`text`: the number of texts times the largest number of spans of a text must be at "
            f"most {_MAX_CELLS}. Pass fewer or shorter texts."
        )
        check = tf.debugging.assert_less_equal(cells, tf.constant(_MAX_CELLS, tf.int64), message)
        with tf.control_dependencies([check]):
            splits = tf.identity(splits)

        def by_text(values: tf.Tensor, padding: Any) -> tf.Tensor:  # [B, E]
            return tf.RaggedTensor.from_row_splits(values, splits, validate=False).to_tensor(
                padding
            )

        return {
            "text": by_text(tf.strings.unicode_encode(characters, "UTF-8"), ""),
            "label": by_text(tf.gather(self._labels, spans.tag), ""),
            "start": by_text(spans.begin - base, -1),
            "end": by_text(spans.end - base, -1),
            "score": by_text(spans.score, 0.0),
        }


def labeled_spans(words: Words, task: TokenSettings) -> Words:
    """Return the labeled spans of the words, as `tasks.tokens.entities` does in Python."""
    if task.scheme == "words":
        return words
    label = label_of(words.tag)
    has_before = tf.concat([[False], words.text[1:] == words.text[:-1]], 0)
    is_begin = begins_entity(words.tag, tf.where(has_before, tf.roll(words.tag, 1, 0), OUTSIDE))
    begin, inside = (tf.where(mask)[:, 0] for mask in (is_begin, label >= 0))
    span = tf.gather(tf.cumsum(tf.cast(is_begin, tf.int32)) - 1, inside)  # of each word in one
    count = tf.size(begin)
    score = tf.math.unsorted_segment_mean(tf.gather(words.score, inside), span, count)
    end = tf.math.unsorted_segment_max(tf.gather(words.end, inside), span, count)
    text, first, label = (tf.gather(values, begin) for values in (words.text, words.begin, label))
    return Words(text, first, end, label, score)
