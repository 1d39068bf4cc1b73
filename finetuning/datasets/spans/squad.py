"""SQuAD 1.1 and 2.0, and other datasets in their layout or in that of CMRC 2018."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import without_suffix
from albert_tf.runtime.files.outputs import write_json
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from finetuning.datasets.dataset import (
    Data,
    Dataset,
    Prediction,
    Source,
    paper_settings,
    require_section,
)
from finetuning.datasets.scores.metrics import require_known
from finetuning.datasets.scores.squad_metrics import AT_BEST_THRESHOLD, best_threshold, score_answer
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.spans.squad_reader import (
    drop_misplaced,
    read_part,
    require_answers,
    require_version,
)

SCORES = ("f1", "exact_match")


@dataclasses.dataclass(frozen=True)
class SquadTask(Dataset[SpanSettings]):
    """A version of SQuAD.

    `--data_dir` holds train-v1.1.json and dev-v1.1.json, or train.json and dev.json, plain or
    compressed, in SQuAD's or in CMRC's layout (`squad_reader`).

    Attributes:
      version: "1.1", or "2.0", whose questions may have no answer.
      recipe: the paper's settings.
      metrics: the names of the main metrics.
      columns: those of `finetuning.table`; as in the paper, at the best threshold of the dev part.
    """

    version: str
    recipe: Mapping[str, Any] = dataclasses.field()
    metrics: tuple[str, ...] = SCORES
    columns: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=lambda: {"": SCORES})

    kind = "span"
    has_tfds = True

    @property
    def _answerable(self) -> bool:
        return self.version == "2.0"

    def read(self, source: Source) -> Data:
        """Read the training and dev examples.

        Training examples are dropped, and counted in a printed note, if the answer is not at its
        `answer_start`, or in CMRC's layout if it is not in the context. Dev examples are kept,
        because the evaluators compare only texts.
        """
        location, every = self._read(source, "train")
        rest, dev = with_dev(source, every, {"dev": lambda: self._read(source, "dev")[1]})
        train = drop_misplaced(location, list(rest))
        if self._answerable and not any(example.is_impossible for example in train):
            print(f"{location}: every question has an answer; use --task=squad1 for such data")
        return Data(SpanSettings(answerable=self._answerable), limited(source, train), dev)

    def _read(self, source: Source, part: str) -> tuple[str, list[SpanExample]]:
        location, examples = read_part(source, part, self.version)
        require_answers(location, examples, self.version)
        return location, examples

    def read_part(self, source: Source, part: str, task: SpanSettings) -> list[SpanExample]:
        """Read the examples of a part, such as dev."""
        name = f"SQuAD {self.version}"
        require_section(name, task, kind=self.kind, answerable=self._answerable)
        location, examples = read_part(source, part, self.version, allow_empty=True)
        require_version(location, examples, self.version)
        return examples

    def score(
        self, predictions: Sequence[Prediction], examples: Sequence[SpanExample]
    ) -> dict[str, float]:
        """Return exact match and F1, in [0, 1], from the scorer of each example (`scorer_of`).

        `f1` and `exact_match` score the answers as given (for version 2.0, at
        `task.null_threshold`). Version 2.0 also has both scores for the questions with
        (`has_answer_*`) and without an answer (`no_answer_*`), and scores at thresholds chosen on
        these same examples:

        - `best_f1` at `best_threshold`, and `exact_match_at_best_f1` at the same threshold: the F1
          and EM that google-research/albert reports and uses to choose checkpoints. (Its script
          also leaves the question at the threshold, and any with a null score above 1, unanswered.)
        - `best_exact_match`, at a threshold of its own: the official evaluator's `best_exact`.
        """
        given = self._scores([prediction["answer"] for prediction in predictions], examples)
        scores = {"f1": given[:, 1].mean(), "exact_match": given[:, 0].mean()}
        if self._answerable:
            has_answer = np.array([bool(example.answers) for example in examples])
            for name, rows in (("has_answer", has_answer), ("no_answer", ~has_answer)):
                if rows.any():
                    scores[f"{name}_f1"] = given[rows, 1].mean()
                    scores[f"{name}_exact_match"] = given[rows, 0].mean()
            scores |= self._best(predictions, examples, has_answer)
        return {name: float(value) for name, value in scores.items()}

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[SpanExample]
    ) -> None:
        """Write the answers by id as JSON.

        The same folder receives NAME_nbest.json, and for version 2.0 NAME_null_odds.json.
        """
        ids = [example.id for example in examples]
        stem, _ = os.path.splitext(without_suffix(path))
        keys = {path: "answer", f"{stem}_nbest.json": "n_best"}
        if self._answerable:
            keys[f"{stem}_null_odds.json"] = "null_score"
        for file, key in keys.items():
            values = [prediction[key] for prediction in predictions]
            write_json(file, dict(zip(ids, values, strict=True)))

    def _scores(self, texts: Sequence[str], examples: Sequence[SpanExample]) -> np.ndarray:
        """Return exact match and F1 of each example, float [N, 2]."""
        require_known(examples)
        return np.array(
            [
                score_answer(text, example, self._answerable)
                for text, example in zip(texts, examples, strict=True)
            ]
        )

    def _best(
        self,
        predictions: Sequence[Prediction],
        examples: Sequence[SpanExample],
        has_answer: np.ndarray,
    ) -> dict[str, float]:
        texts = [
            prediction["n_best"][0]["text"] if prediction["n_best"] else ""
            for prediction in predictions
        ]
        nulls = np.array([prediction["null_score"] for prediction in predictions])
        is_empty = np.array([not text for text in texts])
        exact, f1 = self._scores(texts, examples).T
        best_f1, threshold = best_threshold(f1, is_empty, nulls, has_answer)
        best_exact, _ = best_threshold(exact, is_empty, nulls, has_answer)
        return {
            "best_f1": best_f1,
            "exact_match_at_best_f1": np.where(nulls > threshold, ~has_answer, exact).mean(),
            "best_exact_match": best_exact,
            "best_threshold": threshold,
        }


def hold_out(
    examples: Sequence[SpanExample], share: float
) -> tuple[list[SpanExample], list[SpanExample]]:
    """Return the remaining questions, and the held-out ones of every 1 / share-th context.

    Raises:
      InputError: a part would have no questions with an answer, or none without.
    """
    numbers: dict[str, int] = {}
    for example in examples:
        numbers.setdefault(example.context, len(numbers))
    parts: tuple[list[SpanExample], list[SpanExample]] = ([], [])
    for example in examples:
        number = numbers[example.context]
        parts[int((number + 1) * share) > int(number * share)].append(example)
    for part in parts:
        if len({example.is_impossible for example in part}) < 2:
            raise InputError(
                "`training.threshold_share` must leave questions with and without an answer in "
                f"both parts. Received: {share}, of {len(numbers):,} contexts."
            )
    return parts


SQUAD = {
    "squad1": SquadTask(
        "1.1",
        paper_settings(5e-5, 48, 3649, 365, evaluate_every=1000) | {"task.seq_length": 384},
    ),
    "squad2": SquadTask(
        "2.0",
        paper_settings(3e-5, 48, 8144, 814, evaluate_every=1000) | {"training.metric": "best_f1"},
        (*SCORES, *AT_BEST_THRESHOLD),
        {"": tuple(AT_BEST_THRESHOLD), ", own threshold": SCORES},
    ),
}
