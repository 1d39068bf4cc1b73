"""Span models in fine-tuning."""

from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from finetuning.datasets.dataset import Data, Dataset, Prediction
from finetuning.datasets.scores.squad_metrics import AT_BEST_THRESHOLD, score_answer
from finetuning.datasets.spans import squad
from finetuning.kinds.cards import mistakes
from finetuning.kinds.kind import FinetuningKind, text_of
from finetuning.kinds.standard_errors import errors_of_means, scores_of_each
from finetuning.kinds.thresholds import Examples, Thresholds

_NONE = "(no answer)"


class NullThreshold(Thresholds[SpanSettings]):
    """The null score above which there is no answer."""

    key = flag = "null_threshold"
    help = (
        "SQuAD 2.0: null scores above it mean no answer; by default the run's task.null_threshold"
    )
    needs, examples = "questions that may have no answer (squad2)", "questions"
    best_value, at_best = "best_threshold", AT_BEST_THRESHOLD
    upper_bounds = (*at_best, "best_exact_match", best_value)

    hold_out = staticmethod(squad.hold_out)

    def best(
        self,
        predictions: Sequence[Prediction],
        examples: Examples,
        scores: Mapping[str, float],
        per_label: bool,
    ) -> float:
        """Return the threshold with the best F1."""
        return scores[self.best_value]

    def applied(self, predictions: Sequence[Prediction], task: SpanSettings) -> list[Prediction]:
        """Return the predictions at `task.null_threshold`."""
        return [answered(prediction, task.null_threshold) for prediction in predictions]

    def common(self, task: SpanSettings) -> SpanSettings:
        """Return the settings with the threshold 0."""
        return task.replace(null_threshold=0.0)

    def comparable(self, outputs: Any, task: SpanSettings) -> Any:
        """Return the outputs with null scores minus the threshold."""
        if not task.null_threshold:
            return outputs
        return outputs | {"null": outputs["null"] - task.null_threshold}


class Span(FinetuningKind[SpanSettings]):
    """The span of a context that answers a question (SQuAD)."""

    kind = KINDS["span"]
    hub_task = "question-answering"
    thresholds = NullThreshold()

    def expected_line(self, task: SpanSettings) -> str:
        """Return a description of a valid line."""
        return "A line must be a JSON object with question and context."

    def of_json(
        self, row: Mapping[str, Any], task: SpanSettings, columns: Sequence[str]
    ) -> SpanExample:
        """Return the example in an object with question and context."""
        return SpanExample(text_of(row, "question"), text_of(row, "context"))

    def constant_answer(self, data: Data[SpanSettings]) -> tuple[str, Prediction] | None:
        """Return no answer; None for SQuAD 1.1."""
        empty: Prediction = {"answer": "", "n_best": [], "null_score": 0.0}
        return ("no answer to any question", empty) if data.task.answerable else None

    def card_sections(
        self, task: SpanSettings, predictions: Sequence[Prediction], examples: Sequence[SpanExample]
    ) -> list[str]:
        """Return missed, invented and wrong answers."""
        pairs = zip(predictions, examples, strict=True)
        rows = [_compared(task, *pair) for pair in pairs]
        what = f"of {len(rows):,} answers do not match exactly"
        return mistakes.worst_of_kinds(rows, "question", what)

    def standard_errors(
        self,
        dataset: Dataset,
        predictions: Sequence[Prediction],
        examples: Sequence[SpanExample],
        baseline: Sequence[Prediction] | None = None,
    ) -> dict[str, float]:
        """Return the standard errors of means over questions, with the contexts as clusters."""
        return errors_of_means(dataset, predictions, examples, baseline, self._scores_of_each)

    def _scores_of_each(
        self, dataset: Dataset, predictions: Sequence[Prediction], examples: Sequence[SpanExample]
    ) -> list[dict[str, float]]:
        """Return the scores of each answer; the best threshold is that for all of them."""
        scores = scores_of_each(dataset, predictions, examples)
        if not set(dataset.metrics) & set(AT_BEST_THRESHOLD):
            return scores
        threshold = dataset.score(predictions, examples)[self.thresholds.best_value]
        answers = [answered(prediction, threshold) for prediction in predictions]
        best = scores_of_each(dataset, answers, examples)
        return [
            score | {name: at_best[other] for name, other in AT_BEST_THRESHOLD.items()}
            for score, at_best in zip(scores, best, strict=True)
        ]

    def has_thresholds(self, task: SpanSettings) -> bool:
        """Return True for SQuAD 2.0."""
        return task.answerable


def answered(prediction: Prediction, threshold: float) -> Prediction:
    """Return the prediction that another threshold on the null score would give."""
    is_answered = prediction["n_best"] and prediction["null_score"] <= threshold
    return {**prediction, "answer": prediction["n_best"][0]["text"] if is_answered else ""}


def _compared(task: SpanSettings, prediction: Prediction, example: SpanExample) -> mistakes.Row:
    texts, answer = [text for _, text in example.answers], prediction["answer"]
    exact, _ = score_answer(answer, example, task.answerable)
    right = answer if exact else texts[0] if texts else ""
    name = "wrong span" if answer and right else "invented answer" if answer else "missed answer"
    # Only mistakes of one kind are compared.
    rank = prediction["score"] if answer else prediction.get("null_score", 0.0)
    return mistakes.Row(example.question, right or _NONE, answer or _NONE, rank, name)
