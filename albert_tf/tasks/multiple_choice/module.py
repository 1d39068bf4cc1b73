"""Multiple-choice models as SavedModels: question, context and options in, choice out."""

import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.signatures import (
    Answer,
    checked_inputs,
    require_same_size,
    signature,
    untracked,
)
from albert_tf.graph.windows import equal_parts, pool
from albert_tf.models.encoder import INPUTS
from albert_tf.models.layers.common import shape_of
from albert_tf.tasks.multiple_choice.model import ABSENT, MultipleChoiceModel, option_letter
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.ragged import row_of, slice_rows
from albert_tf.text.tokenizer import Tokenizer

_BLANK = "_"
_LETTERS = 26 + 26 * 26  # A to ZZ: more than the options of any question
_MAX_FILLED_BYTES = 2**20  # bytes of all options of a question, each in every blank


class MultipleChoiceModule(tf.Module):
    """A module that chooses among the options of questions (RACE).

    The inputs are laid out as by `featurize_choices`. A context may be empty. N is the number of
    options, from 2.

    Signatures:
      serving_default: `question`, `context` string [B], `options` string [B, N].
      padded: the same for questions with different numbers of options, `num_options` int32 [B],
        each from 2 to M. `options` is string [B, M]; of each row only the first `num_options`
        count.
      tokens: the encoder's inputs, int32 [B, N, S]; a row whose `input_mask` is 0 is no option.
    Outputs: `choice` int32 [B], counted from 0; `label` string [B], the same as a letter from A;
    and `probabilities` float32 [B, N] or [B, M], 0 where there is no option.
    """

    def __init__(self, model: MultipleChoiceModel, tokenizer: Tokenizer) -> None:
        super().__init__(name="multiple_choice")
        self._predict, self._weights, self._task = untracked(model), model.variables, model.task
        self._tokenizer = GraphTokenizer(tokenizer)
        self._max_positions = model.encoder.config.max_positions
        self._letters = tf.constant([option_letter(i) for i in range(_LETTERS)])

    def signatures(self) -> dict[str, object]:
        """Return the signatures that the class describes."""
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        texts.append(tf.TensorSpec([None, None], tf.string, "options"))
        num_options = tf.TensorSpec([None], tf.int32, "num_options")
        ids = [tf.TensorSpec([None, None, None], tf.int32, name) for name in INPUTS]
        return {
            "serving_default": signature(self.serve, texts),
            "padded": signature(self._padded, [*texts, num_options]),
            "tokens": signature(self._tokens, ids),
        }

    def serve(self, question: tf.Tensor, context: tf.Tensor, options: tf.Tensor) -> Answer:
        """Return the choices for strings [B], [B] and [B, N]."""
        count = tf.shape(options)[1]
        message = f"`options` must have from 2 to {_LETTERS} columns."
        check = tf.debugging.Assert((count >= 2) & (count <= _LETTERS), [message, count])
        with tf.control_dependencies([check]):
            options = tf.identity(options)
        return self._answer(self._logits(question, context, options))

    def _padded(
        self, question: tf.Tensor, context: tf.Tensor, options: tf.Tensor, num_options: tf.Tensor
    ) -> Answer:
        named = {"question": question, "context": context, "options": options}
        named["num_options"] = num_options
        question, context, options, num_options = require_same_size(named)
        most = tf.shape(options)[1]
        message = (
            "`num_options` must be from 2 to the number of columns of `options`, which must have "
            f"at most {_LETTERS}."
        )
        is_valid = tf.reduce_all((num_options >= 2) & (num_options <= most)) & (most <= _LETTERS)
        check = tf.debugging.Assert(is_valid, [message])
        with tf.control_dependencies([check]):
            is_option = tf.sequence_mask(num_options, most)  # [B, M]
        options = tf.where(is_option, options, "")
        return self._answer(self._logits(question, context, options, is_option))

    def _logits(
        self,
        question: tf.Tensor,
        context: tf.Tensor,
        options: tf.Tensor,
        is_option: tf.Tensor | None = None,
    ) -> tf.Tensor:
        """Return the logits [B, N] of strings [B], [B] and [B, N], `ABSENT` without an option."""
        texts = {"question": question, "context": context, "options": options}
        question, context, options = require_same_size(texts)
        count = shape_of(options)[1]
        max_pieces = self._task.seq_length - 3  # [CLS] and two [SEP]
        second = self._tokenizer(fill_blanks(question, options))[:, -self._task.max_qa_pieces :]
        question_lengths = tf.cast(second.row_lengths(), tf.int32)  # [B N]
        first = self._tokenizer(context)
        sizes, longest = first.row_lengths(), tf.reduce_max(_by_unit(question_lengths, count), 1)
        unit, begin, end = tf.range(tf.size(sizes)), tf.zeros_like(sizes), sizes  # [W]
        if self._task.long_texts != "cut":
            limit = tf.cast(max_pieces - longest, tf.int64)
            unit, begin, end = equal_parts("context", sizes, limit)

        # A row for each window and option, [W N], each of which the model scores alone.
        window = tf.repeat(tf.range(tf.size(unit)), count)
        number = tf.tile(tf.range(count), [tf.size(unit)])
        option = tf.gather(unit, window) * count + number
        available = max_pieces - tf.gather(question_lengths, option)
        size = tf.minimum(tf.cast(tf.gather(end - begin, window), tf.int32), available)
        start = tf.gather(first.row_starts(), tf.gather(unit, window)) + tf.gather(begin, window)

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            contexts = slice_rows(
                first, tf.gather(start, rows), tf.cast(tf.gather(size, rows), tf.int64)
            )
            questions = tf.gather(second, tf.gather(option, rows))
            inputs = self._tokenizer.pack([contexts, questions], width)
            alone = {name: value[:, tf.newaxis] for name, value in inputs.items()}  # [n, 1, width]
            return {"logits": self._predict(alone)[:, 0]}

        lengths = size + tf.gather(question_lengths, option) + 3
        empty = {"logits": tf.zeros(tf.shape(lengths))}
        logits = run_in_buckets(lengths, run, empty, self._task.seq_length)["logits"]
        logits = _by_unit(logits, count)  # [W, N]
        if is_option is not None:
            logits = tf.where(tf.gather(is_option, unit), logits, ABSENT)
        if self._task.long_texts == "cut":
            return logits
        pooled = pool(tf.nn.softmax(logits), unit, tf.size(sizes), self._task.long_texts)
        return tf.math.log(pooled)

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self._answer(self._predict(checked_inputs(ids, self._max_positions)))

    def _answer(self, logits: tf.Tensor) -> Answer:
        choice = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            "choice": choice,
            "label": tf.gather(self._letters, choice),
            "probabilities": tf.nn.softmax(logits),
        }


def _by_unit(values: tf.Tensor, count: int | tf.Tensor) -> tf.Tensor:
    return tf.reshape(values, [-1, count])


def fill_blanks(question: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """Apply `tasks.multiple_choice.features.fill_blanks` to strings [B] and [B, N]: string [B N].

    Raises:
      InvalidArgumentError: more than `_MAX_FILLED_BYTES` bytes would be filled into a question.
    """
    # Bytes that are not UTF-8 on their own may be a character beside others.
    question, options = (
        tf.strings.unicode_transcode(strings, "UTF-8", "UTF-8", errors="replace")
        for strings in (question, options)
    )
    blanks = tf.strings.regex_replace(question, f"{_BLANK}+", _BLANK)
    count, parts = tf.shape(options)[1], tf.strings.split(blanks, _BLANK)
    sizes = tf.reduce_sum(tf.cast(tf.strings.length(options), tf.int64), axis=1)
    message = (
        "`question`: the number and total length of its options times its number of blanks must be "
        f"at most {_MAX_FILLED_BYTES} bytes."
    )
    check = tf.debugging.assert_less_equal(
        (sizes + tf.cast(count, tf.int64)) * (parts.row_lengths() - 1),
        tf.constant(_MAX_FILLED_BYTES, tf.int64),
        message,
    )
    with tf.control_dependencies([check]):
        parts = tf.gather(parts, tf.repeat(tf.range(tf.size(question)), count))
    number, row = tf.ragged.range(parts.row_lengths()), row_of(parts)
    last = parts.row_lengths() - 1
    between = tf.gather(tf.reshape(options, [-1]), row)
    is_last = tf.equal(number.values, tf.gather(last, row))
    blank = tf.strings.unsorted_segment_join(
        parts.values + tf.where(is_last, "", between), row, tf.size(last)
    )
    appended = tf.repeat(question, count) + " " + tf.reshape(options, [-1])
    return tf.where(last > 0, blank, appended)
