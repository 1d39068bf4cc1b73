"""The heads that predict the first and the last piece of an answer.

In shapes, B is windows, S positions, H hidden units, P starts and K candidates. `allowed` bool
[B, S] is True where an answer may begin or end. All computations are in float32.
"""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.models.layers.configured import Float32Layer
from albert_tf.tasks.task_model import head_dense

NEVER = -1e30  # the logit or log probability of a position that is not allowed


@tf_keras.saving.register_keras_serializable("albert_tf")
class IndependentHead(Float32Layer):
    """The SQuAD 1.1 head: one dense layer, with independent start and end (BERT section 4.2).

    The score of a span is the logit of its start plus that of its end. It is not normalized within
    its window, so that spans of several windows can be compared (google-research/bert,
    `run_squad.py`; google-research/albert, `run_squad_v1.py`).

    Args:
      max_length: the maximum pieces of an answer.
      n_best: K, the number of candidates per window.
    """

    def __init__(self, max_length: int, n_best: int, name: str = "head", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.max_length, self.n_best = max_length, n_best
        self.dense = head_dense(2, "dense")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"max_length": self.max_length, "n_best": self.n_best}

    def logits(self, hidden: tf.Tensor, allowed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the logits of start and end, float32 [B, S], from hidden [B, S, H]."""
        start, end = tf.unstack(self.dense(hidden), axis=-1)
        return {
            "start_position": mask_disallowed(start, allowed),
            "end_position": mask_disallowed(end, allowed),
        }

    def call(self, hidden: tf.Tensor, allowed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return the K likeliest spans, each of 1 to `max_length` pieces.

        They are `start`, `end` and `score`, all [B, K].
        """
        logits = self.logits(hidden, allowed)
        start, end = logits["start_position"], logits["end_position"]
        start = tf.concat([tf.fill([tf.shape(start)[0], 1], NEVER), start[:, 1:]], 1)  # not [CLS]
        length = tf.shape(end)[1]
        padded = tf.pad(end, [[0, 0], [0, self.max_length - 1]], constant_values=NEVER)
        ends = [padded[:, shift : shift + length] for shift in range(self.max_length)]
        scores = tf.expand_dims(start, 2) + tf.stack(ends, -1)  # [B, S, max_length]
        flat = tf.reshape(scores, [-1, length * self.max_length])
        score, index = top_k(flat, self.n_best)
        first = index // self.max_length
        return {"start": first, "end": first + index % self.max_length, "score": score}


@tf_keras.saving.register_keras_serializable("albert_tf")
class JointHead(Float32Layer):
    """The SQuAD 2.0 head: the end depends on the start, and a third part predicts answerability.

    This is the head of google-research/albert's `run_squad_v2`, whose layer names it has. The
    candidates of a window are the `beam` likeliest ends of each of the `beam` likeliest starts. The
    score of a span is the log probability of its start and end together, within its window.

    Args:
      beam: see above; K is its square.
      dropout: the rate in the answerability part.
    """

    def __init__(self, beam: int, dropout: float, name: str = "head", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.beam, self.dropout = beam, dropout
        self.start_logits = head_dense(1, "start_logits")
        self.end_logits = EndLogits(name="end_logits")
        self.answer_class = AnswerClass(dropout, name="answer_class")

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"beam": self.beam, "dropout": self.dropout}

    def logits(
        self,
        hidden: tf.Tensor,
        allowed: tf.Tensor,
        start_position: tf.Tensor | None,
        key: common.DropoutKey | None,
    ) -> dict[str, tf.Tensor]:
        """Return the logits of start and end, float32 [B, S], and of being unanswerable, [B].

        The end depends on the given `start_position` [B]. Without one, as when Keras traces a model
        to save it, the end depends on the likeliest start.
        """
        start = self._start(hidden, allowed)
        if start_position is None:
            start_position = tf.argmax(start, axis=-1, output_type=tf.int32)
        end = self.end_logits(hidden, start_position[:, None])[:, 0]
        return {
            "start_position": start,
            "end_position": mask_disallowed(end, allowed),
            "is_impossible": self.answer_class(hidden, start, key),
        }

    def call(self, hidden: tf.Tensor, allowed: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `start`, `end`, `score` [B, K] and `null` [B], the logit of no answer."""
        start = self._start(hidden, allowed)
        start_score, first = top_k(tf.nn.log_softmax(start), self.beam)  # [B, P]
        end = mask_disallowed(self.end_logits(hidden, first), allowed[:, None])  # [B, P, S]
        end_score, last = top_k(tf.nn.log_softmax(end), self.beam)  # [B, P, P]
        size = self.beam**2
        return {
            "start": tf.repeat(first, self.beam, axis=1),
            "end": tf.reshape(last, [-1, size]),
            "score": tf.reshape(start_score[:, :, None] + end_score, [-1, size]),
            "null": self.answer_class(hidden, start, None),
        }

    def _start(self, hidden: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
        return mask_disallowed(self.start_logits(hidden)[..., 0], allowed)


@tf_keras.saving.register_keras_serializable("albert_tf")
class EndLogits(Float32Layer):
    """The end's logits: concat(hidden, hidden at the start) -> dense, tanh -> LayerNorm -> dense.

    Inputs: hidden [B, S, H], starts int [B, P]. Output: [B, P, S]. The first dense layer is applied
    to each part of the concatenation separately, so that each position is projected once, not P
    times.
    """

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables."""
        width = input_shape[-1]
        self.dense_0 = head_dense(width, "dense_0")
        self.layer_norm = common.layer_norm(1e-12, "LayerNorm")
        self.dense_1 = head_dense(1, "dense_1")
        self.dense_0.build([None, 2 * width])
        super().build(input_shape)

    def call(self, hidden: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        hidden_kernel, start_kernel = tf.split(self.dense_0.kernel, 2)  # [H, H] each
        chosen = tf.gather(hidden, starts, batch_dims=1)  # [B, P, H]
        x = (
            tf.tensordot(hidden, hidden_kernel, 1)[:, None]
            + tf.tensordot(chosen, start_kernel, 1)[:, :, None]
        )
        x = self.layer_norm(tf.tanh(x + self.dense_0.bias))  # [B, P, S, H]
        return self.dense_1(x)[..., 0]


@tf_keras.saving.register_keras_serializable("albert_tf")
class AnswerClass(Float32Layer):
    """The logit of there being no answer, from hidden and the start's logits.

    It is concat(sum of softmax(start) hidden, hidden of [CLS]) -> dense, tanh -> dropout -> dense.

    Inputs: hidden [B, S, H], start logits [B, S]. Output: [B], high where there is no answer.
    """

    def __init__(self, dropout: float, name: str = "answer_class", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.dropout = dropout

    def get_config(self) -> dict[str, Any]:
        """Return the arguments of the constructor."""
        return super().get_config() | {"dropout": self.dropout}

    def build(self, input_shape: tf.TensorShape) -> None:
        """Create the variables."""
        self.dense_0 = head_dense(input_shape[-1], "dense_0", activation="tanh")
        self.dense_1 = head_dense(1, "dense_1", use_bias=False)
        super().build(input_shape)

    def call(
        self, hidden: tf.Tensor, start: tf.Tensor, key: common.DropoutKey | None = None
    ) -> tf.Tensor:
        """Apply the layer; see the class for shapes."""
        summary = tf.linalg.matvec(hidden, tf.nn.softmax(start), transpose_a=True)  # [B, H]
        x = self.dense_0(tf.concat([summary, hidden[:, 0]], -1))
        return self.dense_1(common.dropout(x, self.dropout, key))[:, 0]


def mask_disallowed(logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """Return the logits at allowed positions and `NEVER` elsewhere."""
    return tf.where(allowed, logits, NEVER)


def may_answer(
    start: Any, end: Any, score: Any, owned: tuple[Any, Any], limit: Any, max_length: int
) -> Any:
    """Return which candidates may be answers, bool [W, K], of arrays or of tensors.

    Args:
      start: the first pieces of K candidates of W windows, [W, K].
      end: their last pieces, [W, K].
      score: their scores, [W, K].
      owned: the first position where answers of a window may begin, and the one after the last,
        [W, 1] each: an answer that several windows contain belongs to one of them.
      limit: the position after the last piece of a window's context, [W, 1].
      max_length: the maximum pieces of an answer.
    """
    is_owned = (start >= owned[0]) & (start < owned[1])
    is_inside = (end >= start) & (end - start < max_length) & (end < limit)
    return is_owned & is_inside & (score > NEVER)


def top_k(scores: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Return the highest values of the last axis and their indices.

    If the axis has fewer than `count`, the missing ones are -inf at the last index.
    """
    last = tf.shape(scores)[-1] - 1
    paddings = [[0, 0]] * (scores.shape.rank - 1) + [[0, count]]
    padded = tf.pad(scores, paddings, constant_values=float("-inf"))
    values, indices = tf.math.top_k(padded, count)
    return values, tf.minimum(indices, last)
