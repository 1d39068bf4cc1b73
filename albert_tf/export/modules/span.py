"""Questions about contexts (SQuAD) as a SavedModel: strings in, the answer and its place out."""

import tensorflow as tf

from albert_tf.export.modules.buckets import in_buckets
from albert_tf.export.modules.span_ops import GraphWindows, best, cut, possible
from albert_tf.export.modules.text_module import IDS, Answer, checked, same_size
from albert_tf.export.signatures import signature, untracked
from albert_tf.models.encoder import INPUTS
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.spans.model import SpanModel
from albert_tf.text.graph_aligner import GraphAligner
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.ragged import part
from albert_tf.text.tokenizer import Tokenizer

MAX_WINDOWS = 4096  # of a context
_LEAST = 3  # positions: [CLS] and two [SEP]


class SpanModule(tf.Module):
    """Answers questions by parts of their contexts, as the Python `Predictor` does.

    Shapes: B questions, W windows of S positions, K candidates of a window.

    Signatures:
      serving_default: `question`, `context` string [B] -> `answer` string [B], "" where there is
        none; `start`, `end` int32 [B], the characters [start, end) of the context that it is, -1
        where there is none; `score` float32 [B], its probability among the n best; where the task
        is answerable `null_score` float32 [B], the logit of there being no answer. Bytes that are
        no UTF-8 count, and come back, as U+FFFD each.
      tokens: the encoder's inputs, int32 [W, S] -> `start`, `end` int32 [W, K], `score` float32
        [W, K] and perhaps `null` float32 [W]: the outputs of `SpanModel`.

    Args:
      tokenizer: of the model.
      max_windows: of one context, at most; InvalidArgument where it needs more.

    Raises:
      InputError: `max_windows` is not positive.
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
        self._max_windows, self._longest = max_windows, model.encoder.config.max_positions

    def signatures(self) -> dict[str, object]:
        """See the class."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        ids = [IDS[name] for name in INPUTS]
        return {
            "serving_default": signature(self.serve, texts),
            "tokens": signature(self._tokens, ids),
        }

    def serve(self, question: tf.Tensor, context: tf.Tensor) -> Answer:
        """The answers to strings [B] about strings [B]."""
        question, context = same_size({"question": question, "context": context})
        context = tf.strings.unicode_transcode(context, "UTF-8", "UTF-8", errors="replace")
        asked, pieces = self._asked(question), self._align(context)
        sizes, asks = (tf.cast(each.row_lengths(), tf.int32) for each in (pieces.ids, asked))
        windows = cut(sizes, asks, self._task, self._max_windows)
        outputs = self._outputs(asked, pieces.ids, windows)
        spans = possible(outputs, windows, pieces, self._task)
        count = tf.size(context)
        begin, end, score = best(spans, pieces.codes.values, count, self._task.n_best)
        answered, null = end > begin, {}
        if self._task.answerable:
            lowest = tf.math.unsorted_segment_min(outputs["null"], windows.example, count)
            answered &= lowest <= self._task.null_threshold
            null = {"null_score": lowest}
        start = begin - tf.cast(pieces.codes.row_starts(), tf.int32)
        start, length = (tf.where(answered, place, 0) for place in (start, end - begin))
        return {
            "answer": tf.strings.substr(context, start, length, unit="UTF8_CHAR"),
            "start": tf.where(answered, start, -1),
            "end": tf.where(answered, start + length, -1),
            "score": tf.where(answered, score, 0.0),
        } | null

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self._predict(checked(ids, self._longest, _LEAST))

    def _asked(self, question: tf.Tensor) -> tf.RaggedTensor:
        """The pieces of each question that are read: int32 [B, (pieces)]."""
        longest = min(self._task.query_length, (self._task.seq_length - 3) // 2)
        ids = self._tokenizer(question)
        return part(ids, ids.row_starts(), tf.minimum(ids.row_lengths(), longest))

    def _outputs(
        self, asked: tf.RaggedTensor, contexts: tf.RaggedTensor, windows: GraphWindows
    ) -> Answer:
        """What the model says of each window."""
        task = self._task
        begin = tf.gather(contexts.row_starts(), windows.example)
        begin += tf.cast(windows.offset, tf.int64)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            length = tf.cast(tf.gather(windows.length, rows), tf.int64)
            read = part(contexts, tf.gather(begin, rows), length)
            question = tf.gather(asked, tf.gather(windows.example, rows))
            return self._predict(self._tokenizer.pack([question, read], width))

        size = [tf.size(begin), task.beam**2 if task.answerable else task.n_best]
        empty = {"start": tf.zeros(size, tf.int32), "end": tf.zeros(size, tf.int32)}
        empty |= {"score": tf.zeros(size)}
        empty |= {"null": tf.zeros(size[:1])} if task.answerable else {}
        lengths = windows.before + windows.length + 1
        return in_buckets(lengths, run, empty, task.seq_length)
