"""A further kind as a user would add it: levels in order, such as stars, with cumulative logits."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.graph.signatures import Answer, untracked
from albert_tf.models.layers import common
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kind import ExportSettings, Kind
from albert_tf.tasks.probabilities import logit, sigmoid
from albert_tf.tasks.task_model import TaskModel, head_dense
from albert_tf.tasks.texts import TaskTextModule, TextSettings, featurize_texts
from albert_tf.text.tokenizer import Tokenizer
from finetuning.datasets.dataset import Data, Prediction, Source
from finetuning.datasets.text_regression import TextRegression
from finetuning.kinds.cards import mistakes
from finetuning.kinds.text_kind import TextKind


@dataclasses.dataclass(frozen=True)
class OrdinalSettings(TextSettings):
    HEAD = ("levels",)
    FROM_DATA = ("levels", "pair")

    levels: int = 3
    kind: str = "ordinal"


@tf_keras.saving.register_keras_serializable("tests")
class OrdinalModel(TaskModel):
    task_class = OrdinalSettings

    def new_head(self) -> tf_keras.layers.Layer:
        return head_dense(self.task.levels - 1, "head")

    def call(self, inputs: Mapping[str, tf.Tensor], training: bool = False) -> tf.Tensor:
        outputs, key = self.encode(inputs, training, pooled_only=True)
        return self.head(common.dropout(outputs["pooled_output"], self.task.dropout, key))

    def training_losses(self) -> tf_keras.losses.Loss:
        return OrdinalLoss()


@tf_keras.saving.register_keras_serializable("tests")
class OrdinalLoss(tf_keras.losses.Loss):
    """The mean binary cross-entropy of `label > k` for each k."""

    def call(self, y_true: tf.Tensor, y_pred: tf.Tensor) -> tf.Tensor:
        above = tf.reshape(tf.cast(y_true, tf.float32), [-1, 1]) > tf.range(
            tf.cast(tf.shape(y_pred)[1], tf.float32)
        )
        losses = tf.nn.sigmoid_cross_entropy_with_logits(tf.cast(above, tf.float32), y_pred)
        return tf.reduce_mean(losses, axis=-1)


class OrdinalModule(TaskTextModule):
    def __init__(self, model: OrdinalModel, tokenizer: Tokenizer) -> None:
        super().__init__(model, tokenizer, [model.task.levels - 1], ())
        self._head = untracked(model.head)

    def predict(self, inputs: Mapping[str, tf.Tensor], depth: int | None) -> tf.Tensor:
        return tf.nn.sigmoid(self._head(self.pooled_output(inputs, depth)))

    def answer(self, values: tf.Tensor) -> Answer:
        return {"above": values}


class Ordinal(Kind):
    name = "ordinal"
    settings, model, example, features = OrdinalSettings, OrdinalModel, TextExample, TextFeatures
    takes_strings = True

    def featurize(self, examples: Any, tokenizer: Tokenizer, task: OrdinalSettings) -> TextFeatures:
        return featurize_texts(examples, tokenizer, task)

    def decode(
        self, outputs: np.ndarray, features: TextFeatures, examples: Any, task: OrdinalSettings
    ) -> list[dict[str, Any]]:
        above = features.pooled(sigmoid(outputs), task.long_texts)
        return [{"level": int((row > 0.5).sum()), "above": row.tolist()} for row in above]

    def average(self, members: Sequence[np.ndarray]) -> np.ndarray:
        return logit(np.mean([sigmoid(each) for each in members], axis=0))

    def module(
        self, model: OrdinalModel, tokenizer: Tokenizer, values: ExportSettings
    ) -> OrdinalModule:
        return OrdinalModule(model, tokenizer)

    def onnx_outputs(
        self, encoder: EncoderGraph, model: OrdinalModel, values: ExportSettings
    ) -> Outputs:
        logits = encoder.affine(encoder.pooled(), "head", model.head)
        shape = ["B", model.task.levels - 1]
        return {"above": (encoder.graph.op("Sigmoid", logits), np.float32, shape)}


class FinetuningOrdinal(TextKind):
    kind = Ordinal()

    def constant_answer(self, data: Data) -> tuple[str, Prediction]:
        level = int(np.median([each.label for each in data.train]))
        return f"always level {level}, the median", {"level": level}

    def card_sections(self, task: Any, predictions: Any, examples: Any) -> list[str]:
        pairs = zip(predictions, examples, strict=True)
        rows = [
            mistakes.Row(example.first, str(int(example.label)), str(each["level"]), 0.0)
            for each, example in pairs
        ]
        return mistakes.worst(rows)

    def label_names(self, task: OrdinalSettings, label: float) -> int:
        return int(label)


class Stars(TextRegression):
    """Its dataset: texts with 0 to 3 stars, in files as of `text_regression`."""

    kind, metrics, options = "ordinal", ("accuracy",), ()

    def read(self, source: Source) -> Data:
        return dataclasses.replace(super().read(source), task=OrdinalSettings(levels=4))

    def number(self, prediction: Prediction) -> float:
        return prediction["level"]
