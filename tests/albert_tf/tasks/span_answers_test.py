"""Tests of answers, n-best lists, null scores and ensembles by hand; gold answers on files."""

import math

import numpy as np
import pytest

from albert_tf.tasks.spans.answers import average_spans, decode_spans
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import SpanFeatures, featurize_spans
from albert_tf.tasks.spans.model import SpanSettings
from albert_tf.text.tokenizer import Normalization, Tokenizer, load_tokenizer
from finetuning.datasets.spans.squad_reader import questions_of

PIECES = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghijklmnopqrstuvwxyz"]
TOKENIZER = Tokenizer("\n".join(PIECES).encode(), Normalization())
TASK = SpanSettings(seq_length=10, doc_stride=3, max_answer_length=3, n_best=3)
# Windows of five pieces at 0, 3 and 6 of ten, behind [CLS] z y [SEP]; see span_features_test.
EXAMPLES = [
    SpanExample("z y", "a b c d e f g h i j", "one"),
    SpanExample("z y", "Á  b", "two"),
]


def features() -> SpanFeatures:
    return featurize_spans(EXAMPLES, TOKENIZER, TASK)


def outputs(*windows: list[tuple[int, int, float]], **rest) -> dict[str, np.ndarray]:
    """Four windows' candidates as (start, end, score)."""
    table = np.array(windows)
    return {
        "start": table[..., 0].astype(np.int32),
        "end": table[..., 1].astype(np.int32),
        "score": table[..., 2].astype(np.float32),
    } | {name: np.array(value, np.float32) for name, value in rest.items()}


BY_HAND = outputs(
    # [CLS]; "b c"; longer than three; from end to start; the same "b c" behind it
    [(0, 0, -0.1), (5, 6, -2.0), (4, 7, -0.1), (6, 5, -0.1), (5, 6, -3.0)],
    # "d" counts in the first window; question; "e"; [SEP]; "f g h"
    [(4, 4, -0.1), (1, 5, -0.1), (5, 5, -1.0), (8, 9, -0.1), (6, 8, -3.0)],
    # nothing that is possible
    [(0, 0, -0.1), (7, 9, -0.1), (4, 4, -0.1), (7, 8, -math.inf), (7, 8, -2e30)],
    # "Á  b", "Á", [SEP], padding and impossible
    [(4, 5, -0.5), (4, 4, -0.7), (6, 6, -0.1), (8, 8, -0.1), (5, 5, -1e30)],
)


def test_answers_by_hand():
    one, two = decode_spans(BY_HAND, features(), EXAMPLES, TASK)
    assert [each["text"] for each in one["n_best"]] == ["e", "b c", "f g h"]
    assert [each["start"] for each in one["n_best"]] == [8, 2, 10]
    assert [each["logit"] for each in one["n_best"]] == [-1, -2, -3]
    total = math.exp(-1) + math.exp(-2) + math.exp(-3)
    shares = [math.exp(-1) / total, math.exp(-2) / total, math.exp(-3) / total]
    assert [each["probability"] for each in one["n_best"]] == pytest.approx(shares)
    assert (one["answer"], one["start"]) == ("e", 8) and one["score"] == pytest.approx(shares[0])
    assert (two["answer"], two["start"]) == ("Á  b", 0)
    assert [each["text"] for each in two["n_best"]] == ["Á  b", "Á"]


@pytest.mark.parametrize("mark", ["\u200b", "\ufeff", "\u200e", "\u00a0\u200b"])
def test_invisible_characters_around_an_answer(small_tokenizer, mark: str):
    """Training and decoding agree: the answer is found, and predicted without the characters."""
    context = f"his sister{mark} Ann{mark} ran"
    start = context.index("Ann")
    questions = [SpanExample("who?", context, answers=((start, "Ann"),))]
    for tokenizer in (small_tokenizer, TOKENIZER):
        made = featurize_spans(questions, tokenizer, SpanSettings(seq_length=64, query_length=8))
        assert made.undecodable == made.lost == ()
        first, last = (int(made.targets[f"{name}_position"][0]) for name in ("start", "end"))
        (answer,) = decode_spans(outputs([(first, last, -1.0)]), made, questions, SpanSettings())
        assert (answer["answer"], answer["start"]) == ("Ann", start)


def test_the_n_best_are_cut():
    task = SpanSettings(seq_length=10, doc_stride=3, max_answer_length=3, n_best=1)
    one, _ = decode_spans(BY_HAND, features(), EXAMPLES, task)
    assert [each["text"] for each in one["n_best"]] == ["e"] and one["score"] == 1.0


def test_without_a_possible_span_the_answer_is_empty():
    nothing = outputs(*[[(0, 0, -0.1)]] * 4)
    for prediction in decode_spans(nothing, features(), EXAMPLES, TASK):
        assert prediction == {"answer": "", "score": 0.0, "start": None, "n_best": []}


@pytest.mark.parametrize(("threshold", "answer"), [(-1.1, ""), (-1.0, "e"), (3.0, "e")])
def test_a_null_score_above_the_threshold_empties_the_answer(threshold, answer):
    """It is the lowest of the windows: -1; the second example's 2 is above any of these but 3."""
    task = SpanSettings(10, 64, 3, 3, 3, answerable=True, null_threshold=threshold)
    made = BY_HAND | {"null": np.array([4, -1, 5, 2], np.float32)}
    one, two = decode_spans(made, features(), EXAMPLES, task)
    assert (one["answer"], one["null_score"], two["null_score"]) == (answer, -1.0, 2.0)
    assert one["n_best"][0]["text"] == "e" and (one["start"] is None) == (answer == "")
    assert two["answer"] == ("Á  b" if threshold == 3 else "")


def test_an_ensemble_by_hand():
    """(5, 6): -2 and -4 make -3; what one member proposes keeps its score; null scores: each
    member's lowest, then the mean."""
    first = outputs(*[[(5, 6, -2.0), (4, 4, -1.0)]] * 4, null=[1, -3, 0, 0])
    second = outputs(*[[(7, 7, -6.0), (5, 6, -4.0)]] * 4, null=[-5, 9, 0, 0])
    both = average_spans([first, second])
    assert both["start"].shape == both["score"].shape == (4, 4) and both["null"].shape == (4, 2)
    for row in range(4):
        spans = zip(*(both[name][row].tolist() for name in ("start", "end", "score")), strict=True)
        kept = {(start, end): score for start, end, score in spans if score > -1e29}
        assert kept == {(5, 6): -3.0, (4, 4): -1.0, (7, 7): -6.0}
    task = SpanSettings(10, 64, 3, 3, 3, answerable=True)
    one, _ = decode_spans(both, features(), EXAMPLES, task)
    assert one["null_score"] == (-3 + -5) / 2


def test_an_ensemble_of_one_is_that_one():
    alone = decode_spans(average_spans([BY_HAND]), features(), EXAMPLES, TASK)
    one, two = decode_spans(BY_HAND, features(), EXAMPLES, TASK)
    assert alone[1] == two and alone[0]["answer"] == one["answer"]


def cuts_a_word(example: SpanExample) -> bool:
    """Whether the annotation begins or ends inside a word or a number, as "2,70" of 2,700,000."""
    start, text = example.answers[0]
    around = example.context[max(start - 1, 0) : start], example.context[start + len(text) :][:1]
    return (around[0] + text[0]).isalnum() or (text[-1] + around[1]).isalnum()


@pytest.mark.parametrize(
    ("name", "vocabulary", "count", "windows"),
    [
        ("xquad.en", "albert_en_30k/spiece.model", 1190, 1241),
        ("xquad.de", "albert_en_30k/spiece.model", 1190, 1715),
        ("xquad.zh", "albert_zh/vocab_chinese.txt", 1190, 1380),
        ("squad2_subset_a", "albert_en_30k/spiece.model", 2828, 2894),
    ],
)
def test_gold_answers_come_back_letter_by_letter(shared_data, name, vocabulary, count, windows):
    """All of de and zh; but one of en and two of 2.0, whose annotation ends inside a word."""
    examples = list(questions_of(str(shared_data / "squad" / f"{name}.json.gz")))
    tokenizer = load_tokenizer(shared_data / "vocab" / vocabulary)
    task = SpanSettings(answerable="squad2" in name, max_answer_length=384)
    made = featurize_spans(examples, tokenizer, task)
    assert (len(examples), len(made), made.lost) == (count, windows, ())
    gold = {
        "start": made.targets["start_position"][:, None],
        "end": made.targets["end_position"][:, None],
        "score": np.zeros([len(made), 1], np.float32),
        "null": made.targets.get("is_impossible", np.zeros(1)) - 0.5,
    }
    predictions = decode_spans(gold, made, examples, task)
    wrong = [
        example
        for example, prediction in zip(examples, predictions, strict=True)
        if prediction["answer"] != (example.answers[0][1].strip() if example.answers else "")
    ]
    assert len(wrong) == {"xquad.en": 1, "squad2_subset_a": 2}.get(name, 0)
    assert all(map(cuts_a_word, wrong))
