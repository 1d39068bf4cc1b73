"""Regressors in fine-tuning."""

import statistics
from collections.abc import Mapping, Sequence

import numpy as np
import tf_keras

from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import TextFeatures
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.regressor.model import RegressorSettings, SquaredError
from finetuning.datasets.dataset import Data, Prediction
from finetuning.kinds.baselines.regularization import Predict, Predictions
from finetuning.kinds.baselines.text_features import features_of
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import SQUARED_ERROR, TeacherOutput
from finetuning.kinds.text_kind import TextKind, shown


class Regressor(TextKind[RegressorSettings]):
    """A number for a text or a pair of texts."""

    has_baseline = True
    student_losses = (SQUARED_ERROR,)
    kind = KINDS["regressor"]

    def constant_answer(self, data: Data[RegressorSettings]) -> tuple[str, Prediction]:
        """Return the mean."""
        mean = statistics.fmean(example.label for example in data.train)
        words = f"always {mean:.4g}, the mean of the training labels"
        return f"{words}; a constant has no correlation, which counts as 0", {"score": mean}

    def card_sections(
        self,
        task: RegressorSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[TextExample],
    ) -> list[str]:
        """Return the predictions that are furthest from the labels."""
        return mistakes.worst(
            [
                mistakes.Row(
                    shown(example),
                    f"{example.label:.2f}",
                    f"{prediction['score']:.2f}",
                    abs(example.label - prediction["score"]),
                )
                for prediction, example in zip(predictions, examples, strict=True)
            ]
        )

    def label_names(self, task: RegressorSettings, label: float) -> float:
        """Return the number."""
        return label

    def taught_targets(
        self, features: TextFeatures, answers: Sequence[TeacherOutput], task: RegressorSettings
    ) -> np.ndarray:
        """Return the teacher's outputs, float32 [N]."""
        return super().taught_targets(features, answers, task)[:, 0]

    def taught_loss(
        self, task: RegressorSettings, loss: str, temperature: float
    ) -> tf_keras.losses.Loss:
        """Return the squared error, the only loss of a student."""
        return SquaredError(task.scale)

    def outputs_of(self, served: Mapping[str, np.ndarray]) -> np.ndarray:
        """Return the model's outputs from those of a signature."""
        return served["score"]

    def baseline(
        self, task: RegressorSettings, train: Sequence[TextExample], test: Sequence[TextExample]
    ) -> Predict:
        """Ridge regression on TF-IDF features."""
        from sklearn.linear_model import Ridge

        known, asked = features_of(train, test)
        labels = [example.label for example in train]

        def predict(strength: float) -> Predictions:
            scores = Ridge(strength).fit(known, labels).predict(asked)
            return [{"score": score} for score in scores.tolist()]

        return predict
