"""The heads that find an answer's first and last piece.

B windows of S positions, H hidden units, P starts, K candidates. `allowed` bool [B, S] tells where
an answer may begin and end. All of it is computed in float32.
"""

from typing import Any

import tensorflow as tf
import tf_keras

from albert_tf.models.layers import common
from albert_tf.models.layers.configured import Float32Layer
from albert_tf.tasks.task_model import head_dense

NEVER = -1e30  # a logit, or log probability, of what is not allowed


@tf_keras.saving.register_keras_serializable("albert_tf")
class IndependentHead(Float32Layer):
    """SQuAD 1.1: one dense layer, start and end each for itself (BERT section 4.2).

    The score of a span is the logit of its start plus that of its end, not normalised in its
    window: so are the spans of several windows compared (google-research/bert, `run_squad.py`;
    google-research/albert, `run_squad_v1.py`).

    Args:
      max_length: pieces of an answer at most.
      n_best: how many candidates of a window there are, K.
    """

    def __init__(self, max_length: int, n_best: int, name: str = "head", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.max_length, self.n_best = max_length, n_best
        self.dense = head_dense(2, "dense")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"max_length": self.max_length, "n_best": self.n_best}

    def logits(self, hidden: tf.Tensor, allowed: tf.Tensor) -> dict[str, tf.Tensor]:
        """float32 [B, S] of start and end, from hidden [B, S, H]."""
        start, end = tf.unstack(self.dense(hidden), axis=-1)
        return {
            "start_position": mask_disallowed(start, allowed),
            "end_position": mask_disallowed(end, allowed),
        }

    def call(self, hidden: tf.Tensor, allowed: tf.Tensor) -> dict[str, tf.Tensor]:
        """The K likeliest spans of 1 to `max_length` pieces: `start`, `end`, `score` [B, K]."""
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
    """SQuAD 2.0: the end depends on the start, and a third part says whether there is an answer.

    google-research/albert `run_squad_v2`, whose names the layers have. A window's candidates are
    the `beam` likeliest ends of each of the `beam` likeliest starts; the score of a span is the log
    probability in its window, of start and end together.

    Args:
      beam: see above; K is its square.
      dropout: in the answerability part.
    """

    def __init__(self, beam: int, dropout: float, name: str = "head", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.beam, self.dropout = beam, dropout
        self.start_logits = head_dense(1, "start_logits")
        self.end_logits = EndLogits(name="end_logits")
        self.answer_class = AnswerClass(dropout, name="answer_class")

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"beam": self.beam, "dropout": self.dropout}

    def logits(
        self,
        hidden: tf.Tensor,
        allowed: tf.Tensor,
        start_position: tf.Tensor | None,
        key: common.DropoutKey | None,
    ) -> dict[str, tf.Tensor]:
        """float32 [B, S] of start and of end behind the known start [B]; [B] of unanswerable.

        Without `start_position`, as when Keras traces a model to save it, behind the likeliest.
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
        """`start`, `end`, `score` [B, K], and `null` [B]: the logit of being unanswerable."""
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
    """concat(hidden, hidden at the start) -> dense, tanh -> LayerNorm -> dense.

    Inputs: hidden [B, S, H], starts int [B, P]. Output: [B, P, S]. The first dense layer is applied
    to both parts of the concatenation apart, so that each position is projected once, not P times.
    """

    def build(self, input_shape: tf.TensorShape) -> None:
        width = input_shape[-1]
        self.dense_0 = head_dense(width, "dense_0")
        self.layer_norm = common.layer_norm(1e-12, "LayerNorm")
        self.dense_1 = head_dense(1, "dense_1")
        self.dense_0.build([None, 2 * width])
        super().build(input_shape)

    def call(self, hidden: tf.Tensor, starts: tf.Tensor) -> tf.Tensor:
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
    """concat(sum of softmax(start) hidden, hidden of [CLS]) -> dense, tanh -> dropout -> dense.

    Inputs: hidden [B, S, H], start logits [B, S]. Output: [B], high where there is no answer.
    """

    def __init__(self, dropout: float, name: str = "answer_class", **kwargs: Any) -> None:
        super().__init__(name=name, **kwargs)
        self.dropout = dropout

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"dropout": self.dropout}

    def build(self, input_shape: tf.TensorShape) -> None:
        self.dense_0 = head_dense(input_shape[-1], "dense_0", activation="tanh")
        self.dense_1 = head_dense(1, "dense_1", use_bias=False)
        super().build(input_shape)

    def call(
        self, hidden: tf.Tensor, start: tf.Tensor, key: common.DropoutKey | None = None
    ) -> tf.Tensor:
        summary = tf.linalg.matvec(hidden, tf.nn.softmax(start), transpose_a=True)  # [B, H]
        x = self.dense_0(tf.concat([summary, hidden[:, 0]], -1))
        return self.dense_1(common.dropout(x, self.dropout, key))[:, 0]


def mask_disallowed(logits: tf.Tensor, allowed: tf.Tensor) -> tf.Tensor:
    """The logits where an answer may be, `NEVER` elsewhere."""
    return tf.where(allowed, logits, NEVER)


def top_k(scores: tf.Tensor, count: int) -> tuple[tf.Tensor, tf.Tensor]:
    """The highest of the last axis and their places; of fewer than `count`, -inf at the last."""
    last = tf.shape(scores)[-1] - 1
    paddings = [[0, 0]] * (scores.shape.rank - 1) + [[0, count]]
    padded = tf.pad(scores, paddings, constant_values=float("-inf"))
    values, indices = tf.math.top_k(padded, count)
    return values, tf.minimum(indices, last)
