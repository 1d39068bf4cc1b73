"""Multiple choice as a SavedModel: question, context and options in, the choice out."""

import tensorflow as tf

from albert_tf.encoder import INPUTS
from albert_tf.export.buckets import in_buckets
from albert_tf.export.signatures import signature, untracked
from albert_tf.export.text_module import Answer, same_size
from albert_tf.tasks.multiple_choice import MultipleChoice
from albert_tf.text_ops import GraphTokenizer
from albert_tf.tokenization import Tokenizer

_BLANK = "_"


class MultipleChoiceModule(tf.Module):
    """Chooses among the options of questions (RACE), as `featurize_choices` lays them out.

    Signatures, N the options of a question:
      serving_default: `question`, `context` string [B], `options` string [B, N].
      tokens: the encoder's inputs, int32 [B, N, S].
    Outputs: `choice` int32 [B] from 0 on, `label` string [B], its letter from A on, and
    `probabilities` float32 [B, N].
    """

    def __init__(self, model: MultipleChoice, tokenizer: Tokenizer) -> None:
        super().__init__(name="multiple_choice")
        self._predict, self._weights, self._task = untracked(model), model.variables, model.task
        self._tokenizer = GraphTokenizer(tokenizer)
        self._letters = tf.constant([chr(ord("A") + i) for i in range(model.task.num_choices)])

    def signatures(self) -> dict[str, object]:
        """See the class."""
        count = self._task.num_choices
        texts = [tf.TensorSpec([None], tf.string, name) for name in ("question", "context")]
        texts.append(tf.TensorSpec([None, count], tf.string, "options"))
        ids = [tf.TensorSpec([None, count, None], tf.int32, name) for name in INPUTS]
        return {
            "serving_default": signature(self.serve, texts),
            "tokens": signature(self._tokens, ids),
        }

    def serve(self, question: tf.Tensor, context: tf.Tensor, options: tf.Tensor) -> Answer:
        """The choices for strings [B], [B] and [B, N]."""
        given = {"question": question, "context": context, "options": options}
        question, context, options = same_size(given)
        count, room = self._task.num_choices, self._task.seq_length - 3  # [CLS] and two [SEP]
        second = self._tokenizer(filled(question, options))[:, -min(self._task.qa_length, room) :]
        asked = tf.cast(second.row_lengths(), tf.int32)  # [B N]
        first = self._tokenizer(context)
        read = tf.cast(tf.repeat(first.row_lengths(), count), tf.int32)
        lengths = tf.minimum(read, room - asked) + asked + 3

        def run(rows: tf.Tensor, width: tf.Tensor) -> Answer:
            each = tf.reshape(rows[:, tf.newaxis] * count + tf.range(count), [-1])  # [n N]
            own = tf.gather(first, tf.repeat(rows, count))
            at = tf.ragged.range(tf.cast(own.row_lengths(), tf.int32))
            own = tf.ragged.boolean_mask(own, at < (room - tf.gather(asked, each))[:, tf.newaxis])
            inputs = self._tokenizer.pack([own, tf.gather(second, each)], width)
            shape = [-1, count, width]
            return {"logits": self._predict({n: tf.reshape(v, shape) for n, v in inputs.items()})}

        widest = tf.reduce_max(tf.reshape(lengths, [-1, count]), axis=1)  # [B]
        empty = {"logits": tf.zeros([tf.size(widest), count])}
        return self._answer(in_buckets(widest, run, empty, self._task.seq_length)["logits"])

    def _tokens(self, *ids: tf.Tensor) -> Answer:
        return self._answer(self._predict(dict(zip(INPUTS, ids, strict=True))))

    def _answer(self, logits: tf.Tensor) -> Answer:
        choice = tf.argmax(logits, axis=1, output_type=tf.int32)
        return {
            "choice": choice,
            "label": tf.gather(self._letters, choice),
            "probabilities": tf.nn.softmax(logits),
        }


def filled(question: tf.Tensor, options: tf.Tensor) -> tf.Tensor:
    """`tasks.multiple_choice.fill` of strings [B] and [B, N]: string [B N]."""
    count = tf.shape(options)[1]
    parts = tf.gather(
        tf.strings.split(question, _BLANK), tf.repeat(tf.range(tf.size(question)), count)
    )
    number = tf.ragged.range(parts.row_lengths())
    last = parts.row_lengths() - 1
    between = tf.gather(tf.reshape(options, [-1]), parts.value_rowids())
    is_last = tf.equal(number.values, tf.gather(last, parts.value_rowids()))
    joined = parts.with_values(parts.values + tf.where(is_last, "", between))
    blank = tf.strings.reduce_join(joined, axis=1)
    behind = tf.repeat(question, count) + " " + tf.reshape(options, [-1])
    return tf.where(last > 0, blank, behind)
