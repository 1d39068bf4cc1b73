"""Questions about contexts (SQuAD) as a SavedModel: strings in, the answer and its place out.

What `tasks.span_features` and `tasks.span_answers` do, inside a graph. Shapes: B questions, W
windows of all of them, K candidates of a window, P pieces and C characters of all contexts, N spans
that may be answers.
"""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from albert_tf.encoder import INPUTS
from albert_tf.errors import InputError
from albert_tf.export.buckets import in_buckets
from albert_tf.export.signatures import untracked
from albert_tf.export.text_module import IDS, Answer, same_size
from albert_tf.graph_alignment import GraphAligner, PlacedPieces, row_of
from albert_tf.tasks.span import SpanModel
from albert_tf.tasks.span_heads import NEVER
from albert_tf.text_ops import GraphTokenizer
from albert_tf.tokenization import Tokenizer

MAX_WINDOWS = 4096  # of a batch: a context of half a million pieces
_SPACES = np.array([chr(code).isspace() for code in range(0x3002)])  # none beyond
_BASE, _OF_ROW = 0x9E3779B97F4A7C15, 0xD1B54A32D192ED03  # odd, of no pattern


class SpanModule(tf.Module):
    """Answers questions by a part of their contexts, as the Python `Predictor` does.

    Signatures:
      serving_default: `question`, `context` string [B] -> `answer` string [B], "" where there is
        none; `start`, `end` int32 [B], its characters [start, end) of the context, -1 where there
        is none; `score` float32 [B], its probability among the n best; where the task is
        answerable `null_score` float32 [B], the logit of there being no answer. Bytes that are no
        UTF-8 count, and come back, as a U+FFFD each.
      tokens: the encoder's inputs, int32 [W, S] -> `start`, `end` int32 [W, K], `score` float32
        [W, K] and `null` float32 [W]: the outputs of `SpanModel`.

    Args:
      tokenizer: of the model.
      max_windows: a batch whose contexts need more is refused (InvalidArgument).
    """

    def __init__(
        self, model: SpanModel, tokenizer: Tokenizer, max_windows: int = MAX_WINDOWS
    ) -> None:
        super().__init__(name="span")
        if max_windows < 1:
            raise InputError(f"`max_windows` must be at least 1. Received: {max_windows}.")
        self._predict, self._weights, self._task = untracked(model), model.variables, model.task
        self._tokenizer = GraphTokenizer(tokenizer)
        self._align = GraphAligner(tokenizer, self._tokenizer)
        self._max_windows = max_windows

    def signatures(self) -> dict[str, object]:
        """See the class."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        return {
            "serving_default": tf.function(self.serve, input_signature=texts),
            "tokens": tf.function(self._tokens, input_signature=[IDS[name] for name in INPUTS]),
        }

    def serve(self, question: tf.Tensor, context: tf.Tensor) -> Answer:
        """The answers to strings [B] about strings [B]."""
        question, context = same_size({"question": question, "context": context})
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8", errors="replace")
        pieces, asked = self._align(context), self._asked(question)
        windows = self._windows(pieces, asked)
        outputs = self._outputs(windows, pieces, asked)
        spans = different(possible(outputs, windows, pieces, self._task), self._task.n_best)
        answer, count = _best(spans, tf.size(context))
        if self._task.answerable:
            null = tf.math.unsorted_segment_min(outputs["null"], windows.example, tf.size(context))
            answer["null_score"] = null
            count = tf.where(null <= self._task.null_threshold, count, 0)
        return _presented(answer, count > 0, context, pieces)

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self._predict(dict(zip(INPUTS, ids, strict=True)))

    def _asked(self, question: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of the questions that are read: int32 [B, (pieces)]."""
        longest = min(self._task.query_length, (self._task.seq_length - 3) // 2)
        ids = self._tokenizer(question)
        return _parts(ids.values, ids.row_starts(), tf.minimum(ids.row_lengths(), longest))

    def _windows(self, pieces: PlacedPieces, asked: tf.RaggedTensor) -> "GraphWindows":
        room = self._task.seq_length - 3 - tf.cast(asked.row_lengths(), tf.int32)
        sizes = tf.cast(pieces.ids.row_lengths(), tf.int32)
        count = number_of_windows(sizes, room, self._task.doc_stride)
        most = tf.debugging.assert_less_equal(
            tf.reduce_sum(count),
            self._max_windows,
            f"the contexts of a batch must fit in {self._max_windows} windows of "
            f"{self._task.seq_length} pieces, {self._task.doc_stride} apart: send fewer, or "
            "shorter ones.",
        )
        with tf.control_dependencies([most] if most is not None else []):
            return cut_in_graph(sizes, room, self._task.doc_stride, tf.identity(count))

    def _outputs(
        self, windows: "GraphWindows", pieces: PlacedPieces, asked: tf.RaggedTensor
    ) -> Answer:
        """What the model says of each window: `start`, `end`, `score` [W, K] and perhaps `null`."""
        task = self._task
        base = tf.gather(pieces.ids.row_starts(), windows.example)
        begin = base + tf.cast(windows.offset, tf.int64)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            length = tf.cast(tf.gather(windows.length, rows), tf.int64)
            read = _parts(pieces.ids.values, tf.gather(begin, rows), length)
            question = tf.gather(asked, tf.gather(windows.example, rows))
            return self._predict(self._tokenizer.pack([question, read], width))

        size = [tf.size(windows.example), task.beam**2 if task.answerable else task.n_best]
        empty = {"start": tf.zeros(size, tf.int32), "end": tf.zeros(size, tf.int32)}
        empty["score"] = tf.zeros(size)
        if task.answerable:
            empty["null"] = tf.zeros(size[:1])
        return in_buckets(windows.before + windows.length + 1, run, empty, task.seq_length)
