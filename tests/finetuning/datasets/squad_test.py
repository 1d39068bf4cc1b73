"""Tests of SQuAD's files, scores and submissions: against official evaluators, on real files."""

import gzip
import json
import pathlib

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.model import SpanSettings
from finetuning.datasets.dataset import Source
from finetuning.datasets.scores.squad_metrics import best_threshold, score_answer
from finetuning.datasets.spans.squad import SQUAD

ONE, TWO = SQUAD["squad1"], SQUAD["squad2"]


def question(name: str, answers: list = (), **rest) -> dict:
    answers = [{"answer_start": start, "text": text} for start, text in answers]
    return {"id": name, "question": f"What is {name}?", "answers": answers} | rest


def content(*questions: dict, context: str = "Anna sah Bert.") -> dict:
    return {
        "version": "x",
        "data": [{"paragraphs": [{"context": context, "qas": list(questions)}]}],
    }


GOOD = content(question("q1", [(0, "Anna")]), question("q2", [(9, "Bert"), (0, "Anna")]))


def write(folder: pathlib.Path, train: object, dev: object = GOOD, version: str = "1.1") -> Source:
    (folder / f"train-v{version}.json").write_text(json.dumps(train), encoding="utf-8")
    (folder / "dev.json.gz").write_bytes(gzip.compress(json.dumps(dev).encode()))
    return Source(str(folder))


def test_a_folder_in_squad_s_layout(tmp_path, capsys):
    data = ONE.read(write(tmp_path, GOOD))
    assert (
        data.train
        == data.dev["dev"]
        == [
            SpanExample("What is q1?", "Anna sah Bert.", "q1", ((0, "Anna"),)),
            SpanExample("What is q2?", "Anna sah Bert.", "q2", ((9, "Bert"), (0, "Anna"))),
        ]
    )
    assert not data.task.answerable and data.task.kind == "span"
    assert "train-v1.1.json: 2 questions\n" in capsys.readouterr().out


def test_questions_without_an_answer(tmp_path):
    none = question("q3", [], is_impossible=True, plausible_answers=[{"text": "Bert"}])
    data = TWO.read(
        write(tmp_path, content(*GOOD["data"][0]["paragraphs"][0]["qas"], none), version="2.0")
    )
    assert data.task.answerable
    assert data.train[2] == SpanExample("What is q3?", "Anna sah Bert.", "q3", (), True)


def test_an_answer_out_of_place_is_left_out_of_training_and_counted(tmp_path, capsys):
    wrong = content(
        question("q1", [(0, "Anna")]), question("q2", [(8, "Bert")]), question("q3", [(-1, ".")])
    )
    data = ONE.read(write(tmp_path, wrong, wrong))
    assert [example.id for example in data.train] == ["q1"]
    assert [example.id for example in data.dev["dev"]] == ["q1", "q2", "q3"]
    assert "3 questions, 2 dropped" in (said := capsys.readouterr().out) and "'q2'" in said


@pytest.mark.parametrize(
    ("train", "words"),
    [
        (content(question("q1", [(1, "Anna")])), ("'q1'", "answer_start", "train-v1.1.json")),
        (content(question("q1")), ("'q1'", "must have an answer")),
        (content(question("q1", is_impossible=True)), ("'q1'", "--task=squad2")),
        (
            content(question("q1", [(0, "Anna")]), question("q1", [(0, "Anna")])),
            ("2 questions with id 'q1'",),
        ),
        (
            content(question("q1", [(0, "Anna")]), context=" "),
            ("paragraphs[0]", "`context` is empty"),
        ),
        (content(question("q1", [(0, "Anna")], question="")), ("`question` is empty", "qas[0]")),
        (content(question("q1", [("0", "Anna")])), ("qas[0]", "'0'")),
        (content(question("q1", is_impossible="false")), ("`is_impossible` 'false'", "qas[0]")),
        (content({"id": "q1"}), ("data[0].paragraphs[0].qas[0]", "no `question`")),
        ({"data": [{"title": "x"}]}, ("no `paragraphs` at data[0]",)),
        ({"data": [{"paragraphs": ["x"]}]}, ("'x' at data[0].paragraphs[0]",)),
        ({"title": "x"}, ("no `data` at the top", "SQuAD's layout")),
        ({"data": []}, ("no questions",)),
    ],
)
def test_files_that_do_not_fit_are_named(tmp_path, train, words):
    with pytest.raises(InputError) as error:
        ONE.read(write(tmp_path, train))
    assert all(word in str(error.value) for word in words), error.value
    assert "\n" not in str(error.value)


def test_no_file_and_no_json(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"train-v1.1.json or train.json"):
        ONE.read(Source(str(tmp_path)))
    source = write(tmp_path, GOOD)
    (tmp_path / "dev.json.gz").write_bytes(gzip.compress(b"{"))
    with pytest.raises(InputError, match=r"dev.json.gz must be JSON"):
        ONE.read(source)


def test_another_part_may_have_no_answers(tmp_path):
    (tmp_path / "test.json").write_text(json.dumps(content(question("q1"))))
    (example,) = TWO.read_part(Source(str(tmp_path)), "test", SpanSettings(answerable=True))
    assert example.answers == () and not example.is_impossible
    with pytest.raises(InputError, match=r"'q1'"):
        TWO.score([{"answer": "", "null_score": 0.0, "n_best": []}], [example])


def test_a_part_of_1_1_has_an_answer_to_every_question(tmp_path):
    (tmp_path / "test.json").write_text(json.dumps(content(question("q1", is_impossible=True))))
    with pytest.raises(InputError, match=r"'q1'.*must not be set for --task=squad1"):
        ONE.read_part(Source(str(tmp_path)), "test", SpanSettings())


def test_a_prepared_tfds(tmp_path):
    tfds = pytest.importorskip("tensorflow_datasets")
    import tensorflow as tf

    rows = {
        "id": ["q1", "q2"],
        "context": ["Der Bär.", "Anna."],
        "question": ["Wer?", "Who?"],
        "is_impossible": [False, True],
    }
    features = {key: tfds.features.Text() for key in ("id", "context", "question")}
    features["is_impossible"] = np.bool_
    features["answers"] = tfds.features.Sequence(
        {"text": tfds.features.Text(), "answer_start": np.int32}
    )
    answers = {
        "text": tf.ragged.constant([["Bär"], []], tf.string),
        "answer_start": tf.ragged.constant([[4], []], tf.int32),
    }
    rows = tf.data.Dataset.from_tensor_slices(rows | {"answers": answers})
    rows = rows.map(lambda row: row | {"answers": {k: v for k, v in row["answers"].items()}})
    tfds.dataset_builders.store_as_tfds_dataset(
        name="squad",
        version="3.0.0",
        config="v2.0",
        data_dir=str(tmp_path),
        features=tfds.features.FeaturesDict(features),
        split_datasets={"train": rows, "validation": rows},
    )
    data = TWO.read(Source(str(tmp_path), tfds=True))
    assert (
        data.train
        == data.dev["dev"]
        == [
            SpanExample("Wer?", "Der Bär.", "q1", ((4, "Bär"),)),
            SpanExample("Who?", "Anna.", "q2", (), True),
        ]
    )
    with pytest.raises(InputNotFoundError, match=r"tfds build squad/v1.1"):
        ONE.read(Source(str(tmp_path), tfds=True))


@pytest.fixture(params=["xquad.en", "xquad.de", "squad2_subset_a"])  # zh: see cmrc_test
def real(request, shared_data) -> tuple:
    """The task, the official content, its examples, and answers of every quality."""
    task = TWO if "squad2" in request.param else ONE
    source = Source(str(shared_data / "squad"))
    examples = task.read_part(source, request.param, SpanSettings(answerable=task is TWO))
    with gzip.open(shared_data / "squad" / f"{request.param}.json.gz") as file:
        dataset = json.load(file)["data"]
    rng = np.random.default_rng(0)
    predictions = []
    for example in examples:
        words = example.context.split()
        start = int(rng.integers(len(words)))
        gold = example.answers[0][1] if example.answers else ""
        # Right, cut, with more around it, of other case and marks, elsewhere, only marks, nothing.
        text = [
            gold,
            gold[: len(gold) // 2],
            f"in the {gold} a",
            f"The {gold.upper()}!",
            " ".join(words[start : start + 3]),
            "the -",
            "",
        ][int(rng.integers(7))]
        null = float(rng.normal(-1.0 if example.answers else 1.0))
        best = [{"text": text}] if text else []
        answer = "" if null > 0 and task is TWO else text
        predictions.append({"answer": answer, "null_score": null, "n_best": best})
    return task, dataset, examples, predictions


def test_scores_are_the_official_evaluators(real):
    from official.nlp.tools import squad_evaluate_v1_1, squad_evaluate_v2_0

    task, dataset, examples, predictions = real
    answers = {e.id: p["answer"] for e, p in zip(examples, predictions, strict=True)}
    scores = task.score(predictions, examples)
    if task is ONE:
        official = squad_evaluate_v1_1.evaluate(dataset, answers)
        assert scores == pytest.approx(
            {"f1": official["final_f1"], "exact_match": official["exact_match"]}, rel=1e-12
        )
        return
    official = squad_evaluate_v2_0.evaluate(dataset, answers)
    names = {
        "f1": "f1",
        "exact_match": "exact",
        "has_answer_f1": "HasAns_f1",
        "has_answer_exact_match": "HasAns_exact",
        "no_answer_f1": "NoAns_f1",
        "no_answer_exact_match": "NoAns_exact",
    }
    for name, theirs in names.items():
        assert scores.pop(name) == pytest.approx(official[theirs] / 100, rel=1e-12)
    texts = {
        e.id: p["n_best"][0]["text"] if p["n_best"] else ""
        for e, p in zip(examples, predictions, strict=True)
    }
    nulls = {e.id: p["null_score"] for e, p in zip(examples, predictions, strict=True)}
    official = squad_evaluate_v2_0.evaluate(dataset, texts, nulls)
    assert scores == pytest.approx(
        {
            "best_f1": official["final_f1"] / 100,
            "exact_match_at_best_f1": exact_at(official["final_f1_thresh"], dataset, texts, nulls),
            "best_exact_match": official["final_exact"] / 100,
            "best_threshold": official["final_f1_thresh"],
        },
        rel=1e-12,
    )


def exact_at(threshold: float, dataset: list, texts: dict, nulls: dict) -> float:
    """The official evaluator's exact match where null scores above the threshold mean ""."""
    from official.nlp.tools import squad_evaluate_v2_0

    answers = {name: "" if nulls[name] > threshold else text for name, text in texts.items()}
    return squad_evaluate_v2_0.evaluate(dataset, answers)["exact"] / 100


@pytest.mark.parametrize("decimals", [0, 1, 3, 9])
@pytest.mark.parametrize("shift", [-9.0, -4.0])
def test_the_best_f1_is_the_official_evaluator_s_with_its_ties(shared_data, decimals, shift):
    """Few different null scores, which tell well or hardly which questions have an answer."""
    from official.nlp.tools import squad_evaluate_v2_0

    examples = TWO.read_part(
        Source(str(shared_data / "squad")), "squad2_subset_a", SpanSettings(answerable=True)
    )[:700]
    rng = np.random.default_rng(decimals)
    texts, nulls = {}, {}
    for example in examples:
        words = example.context.split()
        start = int(rng.integers(len(words)))
        other = " ".join(words[start : start + 3])
        gold = example.answers[0][1] if example.answers else other
        texts[example.id] = (gold, f"in {gold} or", other, "")[rng.integers(4)]
        side = shift if example.answers else -shift
        nulls[example.id] = round(float(rng.normal(side / 9)), decimals)
    dataset = [
        {
            "paragraphs": [
                {
                    "qas": [
                        {"id": e.id, "answers": [{"text": text} for _, text in e.answers]}
                        for e in examples
                    ]
                }
            ]
        }
    ]
    official = squad_evaluate_v2_0.evaluate(dataset, texts, nulls)
    predictions = [
        {
            "answer": "",
            "null_score": nulls[e.id],
            "n_best": [{"text": texts[e.id]}] if texts[e.id] else [],
        }
        for e in examples
    ]
    scores = TWO.score(predictions, examples)
    assert scores["best_f1"] == pytest.approx(official["final_f1"] / 100, rel=1e-12)
    assert scores["best_f1"] > np.mean([not example.answers for example in examples])
    assert scores["best_threshold"] == official["final_f1_thresh"]
    assert scores["best_exact_match"] == pytest.approx(official["final_exact"] / 100, rel=1e-12)
    exact = exact_at(official["final_f1_thresh"], dataset, texts, nulls)
    assert scores["exact_match_at_best_f1"] == pytest.approx(exact, rel=1e-12)


def test_gold_answers_score_one(real):
    task, _, examples, _ = real
    gold = [e.answers[0][1] if e.answers else "" for e in examples]
    predictions = [
        {"answer": text, "n_best": [{"text": text}] if text else [], "null_score": float(not text)}
        for text in gold
    ]
    scores = task.score(predictions, examples)
    assert scores.pop("best_threshold", 0.0) == 0.0
    assert set(scores.values()) == {1.0}


@pytest.mark.parametrize(
    ("text", "answers", "answerable", "wanted"),
    [
        ("the Cat!", ["a cat"], False, (1, 1)),
        ("black cat", ["cat", "black dog ran"], False, (0, 2 / 3)),
        ("", ["cat"], False, (0, 0)),
        ("the", ["a"], False, (1, 0)),  # 1.1: no common word
        ("the", ["a"], True, (1, 1)),  # 2.0: an annotation without a word counts as none
        ("", [], True, (1, 1)),
        ("cat", [], True, (0, 0)),
    ],
)
def test_scores_by_hand(text, answers, answerable, wanted):
    example = SpanExample("?", "The black cat.", answers=tuple((0, each) for each in answers))
    assert score_answer(text, example, answerable) == pytest.approx(wanted)


@pytest.mark.parametrize(
    ("nulls", "best", "threshold"),
    [
        ([1.0, 2.0, 3.0, 4.0], 0.75, 2.0),  # answer the first two of: right, right, none, wrong
        ([1.0, 2.0, 2.0, 4.0], 0.75, 2.0),  # the second counts, the third behind it does not
        ([1.0, 2.0, 3.0, 2.5], 0.75, 2.0),  # 2.5 would be as good
        ([5.0, 6.0, 1.0, 2.0], 0.5, 6.0),
    ],
)
def test_the_best_threshold_by_hand(nulls, best, threshold):
    scores, has_answer = np.array([1.0, 1.0, 0.0, 0.0]), np.array([True, True, False, True])
    found = best_threshold(scores, np.zeros(4, bool), np.array(nulls), has_answer)
    assert found == (best, threshold)


def test_never_answering_may_be_best():
    """Neither question has an answer: 0, as the official evaluator says, or what answers none."""
    none = np.zeros(2, bool)
    assert best_threshold(np.zeros(2), none, np.array([3.0, 4.0]), none) == (1.0, 0.0)
    assert best_threshold(np.zeros(2), none, np.array([-3.0, 4.0]), none) == (1.0, -4.0)


def test_submissions(tmp_path):
    examples = [SpanExample("?", "c", "q1"), SpanExample("?", "c", "q2")]
    predictions = [
        {"answer": "ä", "n_best": [{"text": "ä"}], "null_score": -1.0},
        {"answer": "", "n_best": [], "null_score": 1.5},
    ]
    path = tmp_path / "predictions.json"
    TWO.write_submission(str(path), predictions, examples)
    read = {file.name: json.loads(file.read_text()) for file in tmp_path.iterdir()}
    assert read == {
        "predictions.json": {"q1": "ä", "q2": ""},
        "predictions_nbest.json": {"q1": [{"text": "ä"}], "q2": []},
        "predictions_null_odds.json": {"q1": -1.0, "q2": 1.5},
    }
    (tmp_path / "one").mkdir()
    ONE.write_submission(str(tmp_path / "one" / "p.json"), predictions, examples)
    assert {p.name for p in (tmp_path / "one").iterdir()} == {"p.json", "p_nbest.json"}
