"""Span models (SQuAD) as SavedModels: question and context in, answer and its position out."""

import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.signatures import IDS, Answer, checked_inputs, require_same_size, signature
from albert_tf.graph.windows import GraphWindows
from albert_tf.models.encoder import INPUTS
from albert_tf.tasks.spans.graph_answers import best_spans, candidate_spans
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.windowed_module import WindowedModule
from albert_tf.text.ragged import slice_rows

_MIN_POSITIONS = 3  # [CLS] and two [SEP]


class SpanModule(WindowedModule):
    """A module that answers questions with spans of their contexts, like the Python `Predictor`.

    Shapes: B questions, W windows of S positions, K candidates of a window.

    Signatures:
      serving_default: `question`, `context` string [B] -> `answer` string [B], "" for no answer;
        `start`, `end` int32 [B], the answer's characters [start, end) in the context, -1 for no
        answer; `score` float32 [B], its probability among the n best; and, if the task is
        `answerable`, `null_score` float32 [B], the logit of there being no answer. Each malformed
        UTF-8 sequence counts as one U+FFFD and is returned as U+FFFD.
      tokens: the encoder's inputs, int32 [W, S] -> `start`, `end` int32 [W, K], `score` float32
        [W, K] and, if `answerable`, `null` float32 [W]: the outputs of `SpanModel`.
    """

    _task: SpanSettings

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        ids = [IDS[name] for name in INPUTS]
        return {
            "serving_default": signature(self.serve, texts),
            "tokens": signature(self._tokens, ids),
        }

    def serve(self, question: tf.Tensor, context: tf.Tensor) -> Answer:
        """Return the answers to questions [B] about contexts [B]."""
        question, context = require_same_size({"question": question, "context": context})
        context, pieces, sizes = self._read(context)
        questions = self._question_ids(question)
        before = tf.cast(questions.row_lengths(), tf.int32) + 2  # [CLS] and [SEP]
        windows = self._cut("context", sizes, before)
        outputs = self._outputs(questions, pieces.ids, windows)
        spans = candidate_spans(outputs, windows, pieces, self._task)
        count = tf.size(context)
        begin, end, score = best_spans(spans, pieces.codes.values, count, self._task.n_best)
        has_answer, null = end > begin, {}
        if self._task.answerable:
            lowest = tf.math.unsorted_segment_min(outputs["null"], windows.example, count)
            has_answer &= lowest <= self._task.null_threshold
            null = {"null_score": lowest}
        start = begin - tf.cast(pieces.codes.row_starts(), tf.int32)
        start, length = (tf.where(has_answer, value, 0) for value in (start, end - begin))
        return {
            "answer": tf.strings.substr(context, start, length, unit="UTF8_CHAR"),
            "start": tf.where(has_answer, start, -1),
            "end": tf.where(has_answer, start + length, -1),
            "score": tf.where(has_answer, score, 0.0),
        } | null

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self._predict(checked_inputs(ids, self._max_positions, _MIN_POSITIONS))

    def _question_ids(self, question: tf.Tensor) -> tf.RaggedTensor:
        """Return the truncated pieces of each question: int32 [B, (pieces)]."""
        ids = self._tokenizer(question)
        lengths = tf.minimum(ids.row_lengths(), self._task.max_question_pieces)
        return slice_rows(ids, ids.row_starts(), lengths)

    def _outputs(
        self, questions: tf.RaggedTensor, contexts: tf.RaggedTensor, windows: GraphWindows
    ) -> Answer:
        """Return the model's outputs for each window."""
        task = self._task
        begin = tf.gather(contexts.row_starts(), windows.example)
        begin += tf.cast(windows.offset, tf.int64)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            length = tf.cast(tf.gather(windows.length, rows), tf.int64)
            context = slice_rows(contexts, tf.gather(begin, rows), length)
            question = tf.gather(questions, tf.gather(windows.example, rows))
            return self._predict(self._tokenizer.pack([question, context], width))

        size = [tf.size(begin), task.num_spans]
        empty = {"start": tf.zeros(size, tf.int32), "end": tf.zeros(size, tf.int32)}
        empty |= {"score": tf.zeros(size)}
        empty |= {"null": tf.zeros(size[:1])} if task.answerable else {}
        lengths = windows.before + windows.length + 1
        return run_in_buckets(lengths, run, empty, task.seq_length)
