"""Multiple choice in fine-tuning."""

import collections
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings, option_letter
from finetuning.datasets.dataset import Data, Dataset, Prediction
from finetuning.datasets.scores.calibration import Confidences
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import FinetuningKind, text_of
from finetuning.kinds.standard_errors import errors_of_means


class MultipleChoice(FinetuningKind[MultipleChoiceSettings]):
    """Which of several options answers a question."""

    kind = KINDS["multiple_choice"]
    hub_task = "multiple-choice"
    has_one_answer = has_temperature = True

    def expected_line(self, task: MultipleChoiceSettings) -> str:
        """Return a description of a valid line."""
        return "A line must be a JSON object with question, options and, if any, context."

    def of_json(
        self, row: Mapping[str, Any], task: MultipleChoiceSettings, columns: Sequence[str]
    ) -> ChoiceExample:
        """Return the example in an object with question, options and, if any, context."""
        question = text_of(row, "question")
        context = text_of(row, "context") if row.get("context") is not None else ""
        options = row.get("options")
        if "options" not in row:
            raise ValueError("the key `options` is missing")
        if not isinstance(options, list) or len(options) < 2:
            raise ValueError("options must be a list of at least two texts")
        texts = tuple(text_of({"option": option}, "option") for option in options)
        return ChoiceExample(question, context, texts)

    def constant_answer(self, data: Data[MultipleChoiceSettings]) -> tuple[str, Prediction]:
        """Return the most frequent option."""
        (most, _), *_ = collections.Counter(example.label for example in data.train).most_common(1)
        words = f"always option {option_letter(int(most))}, the most frequent in training"
        return words, {"choice": most}

    def confidences(
        self, predictions: Sequence[Prediction], examples: Sequence[ChoiceExample]
    ) -> Confidences:
        """Return the probability of each chosen option."""
        pairs = zip(predictions, examples, strict=True)
        probabilities = [max(p["probabilities"]) for p in predictions]
        return Confidences(
            np.array(probabilities), np.array([p["choice"] == e.label for p, e in pairs])
        )

    def standard_errors(
        self,
        dataset: Dataset,
        predictions: Sequence[Prediction],
        examples: Sequence[ChoiceExample],
        baseline: Sequence[Prediction] | None = None,
    ) -> dict[str, float]:
        """Return the standard errors of means over questions, with the contexts as clusters.

        Without one, a question with its options is alone: "Which is true?" may be asked again.
        """
        return errors_of_means(
            *(dataset, predictions, examples, baseline),
            cluster_of=lambda each: each.context or (each.question, *each.options),
        )

    def card_sections(
        self,
        task: MultipleChoiceSettings,
        predictions: Sequence[Prediction],
        examples: Sequence[ChoiceExample],
    ) -> list[str]:
        """Return mistakes."""
        return mistakes.worst(
            [
                mistakes.Row(
                    example.question,
                    example.options[example.label or 0],
                    example.options[prediction["choice"]],
                    max(prediction["probabilities"]),
                )
                for prediction, example in zip(predictions, examples, strict=True)
            ]
        )
