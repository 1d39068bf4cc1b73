"""The arguments of each kind for the conformance suite."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.ranking.examples import RankingExample
from albert_tf.tasks.ranking.model import RankingSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.heads import NEVER
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import TokenSettings
from tests.kinds.toy_kind import OrdinalSettings

TEXTS = ("the value of an object", "a list, or none", "it")


def close(name: str, found: np.ndarray, wanted: np.ndarray, every: Mapping[str, Any]) -> None:
    """Assert that outputs are equal, up to float32's rounding."""
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5, err_msg=name)


@dataclasses.dataclass(frozen=True)
class Case:
    """What the suite needs of a kind.

    Attributes:
      name: the name of the kind.
      settings: the settings of its models.
      examples: at least three examples with answers.
      unlabeled: (text) -> an example without an answer.
      json_line: the object of --input for the first of `texts`.
      of_prediction: a prediction -> what a SavedModel also returns.
      of_served: a row of a SavedModel's outputs -> the same.
      compare: asserts that an output of another format is that of the signature `tokens`.
      texts: texts for `unlabeled`.
      more: further examples with answers, which need not fit a SavedModel's inputs.
      of_mean: the prediction of an ensemble of a model and itself -> that of the model.
    """

    name: str
    settings: TaskSettings
    examples: Sequence[Any]
    unlabeled: Callable[[str], Any]
    json_line: Mapping[str, Any]
    of_prediction: Callable[[Mapping[str, Any]], Any]
    of_served: Callable[[Mapping[str, Any]], Any]
    compare: Callable[..., None] = close
    texts: Sequence[str] = TEXTS
    more: Sequence[Any] = ()
    of_mean: Callable[[Mapping[str, Any]], Any] = dict


def listed(values: Any) -> list:
    """A list of Python's numbers or texts."""
    return [
        each.decode() if isinstance(each, bytes) else each for each in np.asarray(values).tolist()
    ]


def spans_of_served(row: Mapping[str, Any]) -> list:
    count = int((row["start"] >= 0).sum())
    columns = [listed(row[name])[:count] for name in ("label", "text", "start", "end", "score")]
    return [list(each) for each in zip(*columns, strict=True)]


def possible(name: str, found: np.ndarray, wanted: np.ndarray, every: Mapping[str, Any]) -> None:
    """Which of the spans come first that may be no answer is open."""
    rows = every["score"] > NEVER if name in ("start", "end") else slice(None)
    close(name, found[rows], wanted[rows], every)


def classifier(**changes: Any) -> Case:
    labels = ("no", "yes", "maybe")
    pair = changes.get("pair", False)
    second = "another text" if pair else None
    return Case(
        "classifier",
        ClassifierSettings(labels, seq_length=32, **changes),
        [TextExample(text, second, number) for number, text in enumerate(TEXTS)],
        lambda text: TextExample(text, second),
        {"text_a": TEXTS[0], "text_b": second} if pair else {"text": TEXTS[0]},
        lambda answer: [answer["label"], answer["score"], [*answer["probabilities"].values()]],
        lambda row: [row["label"].decode(), float(row["score"]), listed(row["probabilities"])],
    )


def span(**changes: Any) -> Case:
    context = "It was the value of the object that they wanted."
    return Case(
        "span",
        SpanSettings(seq_length=32, doc_stride=8, n_best=5, max_answer_length=6, **changes),
        [SpanExample(text, context, answers=((11, "value"),)) for text in TEXTS],
        lambda text: SpanExample(text, context),
        {"question": TEXTS[0], "context": context},
        lambda answer: [answer["answer"], -1 if answer["start"] is None else answer["start"]],
        lambda row: [row["answer"].decode(), int(row["start"])],
        possible,
    )


def halved(answer: Mapping[str, Any]) -> dict[str, Any]:
    """The vector of one of two equal models, whose vectors stand side by side."""
    vector = np.array(answer["embedding"])
    return {"embedding": (vector[: len(vector) // 2] * np.sqrt(2)).tolist()}


def embedding(**changes: Any) -> Case:
    """Texts with a teacher's vectors."""
    task = EmbeddingSettings(
        **{"seq_length": 32, "projection": 4, "loss": "teacher_cosine"} | changes
    )
    return Case(
        "embedding",
        task,
        [TextExample(text, label=(number, 1, 0, -1)) for number, text in enumerate(TEXTS)],
        TextExample,
        {"text": TEXTS[0]},
        lambda answer: answer["embedding"],
        lambda row: listed(row["embedding"]),
        of_mean=halved,
    )


def ranking(**changes: Any) -> Case:
    """Queries with two candidates and, as `more`, one with three."""
    others = ("a list", "the value of it")
    return Case(
        "ranking",
        RankingSettings(**{"seq_length": 32, "largest_grade": 2.0} | changes),
        [
            RankingExample(text, others, (number % 2, 1 - number % 2))
            for number, text in enumerate(TEXTS)
        ],
        lambda text: RankingExample(text, ("a list", text)),
        {"query": TEXTS[0], "candidates": ["a list", {"text": TEXTS[0], "label": 1}]},
        lambda answer: [answer["scores"], answer["ranking"]],
        lambda row: [listed(row["scores"]), listed(row["ranking"])],
        more=[RankingExample("how many", ("one", "two", "three"), (2, 0, 1))],
    )


CASES = {
    "classifier": classifier(),
    "classifier of pairs": classifier(pair=True),
    "classifier of long texts": classifier(long_texts="max"),
    "classifier by contrast": classifier(pooling="mean", loss="contrastive"),
    "multi_label": Case(
        "multi_label",
        MultiLabelSettings(("no", "yes", "maybe"), (0.25, 0.5, 0.75), seq_length=32),
        [TextExample(text, label=(0, 2)[:number]) for number, text in enumerate(TEXTS)],
        TextExample,
        {"text": TEXTS[0]},
        lambda answer: [answer["labels"], [*answer["probabilities"].values()]],
        lambda row: [[x for x in listed(row["labels"]) if x], listed(row["probabilities"])],
    ),
    "regressor": Case(
        "regressor",
        RegressorSettings(center=2.0, scale=4.0, seq_length=32),
        [TextExample(text, label=float(number)) for number, text in enumerate(TEXTS)],
        TextExample,
        {"text": TEXTS[0]},
        lambda answer: answer["score"],
        lambda row: float(row["score"]),
    ),
    "multiple_choice": Case(
        "multiple_choice",
        MultipleChoiceSettings(seq_length=40, num_choices=2, qa_length=16),
        [ChoiceExample(text, "the context", ("a list", "a value"), 1) for text in TEXTS],
        lambda text: ChoiceExample(text, "the context", ("a list", text)),
        {"question": TEXTS[0], "context": "the context", "options": ["a list", TEXTS[0]]},
        lambda answer: [answer["choice"], answer["label"], answer["probabilities"]],
        lambda row: [int(row["choice"]), row["label"].decode(), listed(row["probabilities"])],
        more=[ChoiceExample("how many", "", ("one", "two", "three"), 2)],
    ),
    "span": span(),
    "span that may be none": span(answerable=True, beam=3),
    "token_classifier": Case(
        "token_classifier",
        TokenSettings(("place", "person"), seq_length=32, doc_stride=8),
        [TokenExample(text, entities=((0, 2, "place"),)) for text in TEXTS],
        TokenExample,
        {"text": TEXTS[0]},
        lambda answer: [
            [each[name] for name in ("label", "text", "start", "end", "score")]
            for each in answer["entities"]
        ],
        spans_of_served,
    ),
    "embedding": embedding(),
    "embedding with prompts": embedding(pooling="cls", query_prompt="it ", projection=0),
    "ranking": ranking(),
    "ranking of single candidates": ranking(loss="pointwise", num_candidates=2),
    "toy": Case(
        "ordinal",
        OrdinalSettings(seq_length=32, levels=4),
        [TextExample(text, label=float(number)) for number, text in enumerate(TEXTS)],
        TextExample,
        {"text": TEXTS[0]},
        lambda answer: answer["above"],
        lambda row: listed(row["above"]),
    ),
}
# A case of each kind; the others are tried in the slow suite.
FAST = {each.name: name for name, each in reversed(CASES.items())}.values()
