"""Queries with candidates: lists and tables, what is refused, and the scores by hand."""

import dataclasses
import gzip
import json
import math

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.ranking.examples import RankingExample, TrainingQuery
from albert_tf.tasks.ranking.model import RankingSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.kinds.baselines.word_search import bm25
from finetuning.kinds.registry import FINETUNING

DATASET = DATASETS["ranking"]
TASK = RankingSettings()


def lists(*rows: tuple, **more) -> str:
    """JSON lines of (query, texts with their labels)."""
    return "".join(
        json.dumps(
            {"query": query, "candidates": [{"text": t, "label": g} for t, g in pairs], **more}
        )
        + "\n"
        for query, pairs in rows
    )


GOOD = lists(("Who?", [("Ann", 2), ("a hat", 0)]), ("Why?", [("So.", 1), ("No.", 0), ("é", 0)]))


@pytest.fixture
def read(tmp_path):
    """(content of train, its name, that of dev, reading) -> the data."""

    def read(train, name="train.jsonl", dev=GOOD, **reading):
        (tmp_path / name).write_text(train, encoding="utf-8")
        if dev:
            (tmp_path / "dev.jsonl").write_text(dev, encoding="utf-8")
        return DATASET.read(Source(str(tmp_path), reading=Reading(**reading)))

    return read


def test_lists(read, capsys):
    data = read(GOOD, dev=lists(("Who?", [("Ann", 1), ("é", 0.0)]), id=7))
    assert data.train == [
        TrainingQuery("Who?", ("Ann", "a hat"), (2, 0), location="train.jsonl:1"),
        TrainingQuery("Why?", ("So.", "No.", "é"), (1, 0, 0), location="train.jsonl:2"),
    ]
    wanted = RankingExample("Who?", ("Ann", "é"), (1, 0), "7", "dev.jsonl:1")
    assert data.dev == {"dev": [wanted]} and type(data.dev["dev"][0]) is RankingExample
    assert data.task == RankingSettings(largest_grade=2.0)
    assert data.recipe == {"training.batch_size": 8}
    out = capsys.readouterr().out
    assert "train: 2 queries with 2 to 3 candidates, of which 2 of 5 are relevant; 2 queries" in out


@pytest.mark.parametrize("column", ["candidate", "passage"])
def test_rows_of_a_query_belong_together(read, column):
    rows = ["Who?,Ann,2", "Why?,So.,1", "Who?,a hat,0", "Why?,No.,0", "Why?,é,0"]
    data = read("\n".join([f"query,{column},label", *rows]) + "\n", "train.csv")
    assert [(each.query, each.candidates, each.label) for each in data.train] == [
        ("Who?", ("Ann", "a hat"), (2, 0)),
        ("Why?", ("So.", "No.", "é"), (1, 0, 0)),
    ]
    assert [each.location for each in data.train] == ["train.csv:2", "train.csv:3"]


def test_columns_of_other_names(read):
    rows = [{"q": "Who?", "answer": "Ann", "grade": 3}, {"q": "Who?", "answer": "Bo", "grade": 0}]
    table = "\n".join(map(json.dumps, rows))
    columns = ("q", "answer")
    data = read(table, dev=table, text_column=columns, label_column="grade")
    assert data.train[0].candidates == ("Ann", "Bo") and data.train[0].label == (3, 0)
    listed = GOOD.replace("label", "grade")
    assert read(listed, dev=listed, label_column="grade").train[0].label == (2, 0)
    with pytest.raises(InputError, match="must name q and answer and grade"):
        read(listed, dev=listed, text_column=columns, label_column="grade")


@pytest.mark.parametrize(
    ("train", "message"),
    [
        (
            '{"query": "Who?", "candidates": []}',
            r"jsonl:1: `candidates` must be a list of at least",
        ),
        ('{"query": "Who?", "candidates": "Ann"}', "must be a list of at least one"),
        ('{"query": " ", "candidates": [{"text": "a", "label": 1}]}', "`query` is empty"),
        (lists(("Who?", [("Ann", "x")])), "jsonl:1: `label` must be a number from 0.* 'x'"),
        (lists(("Who?", [("Ann", -1)])), "`label` must be a number from 0.* Received: -1"),
        (lists(("Who?", [("Ann", None)])), "`label` must be a number from 0.* Received: None"),
        (lists(("Who?", [("Ann", [1])])), "`label` must be a number from 0"),
        (lists(("Who?", [(" ", 1)])), "each of `candidates` must have a `text`"),
        (lists(("Who?", [(3, 1)])), "each of `candidates` must have a `text`"),
        (lists(("Who?", [("Ann", 0), ("Bo", 0)])), "must have a relevant candidate"),
        ('{"question": "Who?"}', "must name query and candidate or passage"),
        ('{"query": "Who?", "candidate": "Ann", "label": -2}', "number from 0.* -2"),
        ('{"query": "Who?", "candidate": "Ann"}\n{"query": "a", "candidate": "b"}', "from 0.*None"),
        ('{"query": "Who?", "candidate": "", "label": 1}', "`candidate` is empty"),
        ('{"query": "Who?", "candidates": [}', "jsonl:1 must be JSON"),
    ],
)
def test_bad_input_is_named(read, train, message):
    with pytest.raises(InputError, match=message):
        read(train)


def test_other_sources_and_settings_are_refused(read, tmp_path):
    with pytest.raises(InputError, match="--text_column must be given twice"):
        read(GOOD, text_column=("query",))
    with pytest.raises(InputError, match="must have a query with both relevant.*2 queries without"):
        read(GOOD, dev=lists(("Who?", [("Ann", 1)]), ("Why?", [("So.", 0)])))
    with pytest.raises(InputError, match="requires a run with `task.kind` 'ranking'"):
        DATASET.read_part(Source(str(tmp_path)), "dev", DATASETS["sst-2"])


def test_a_dev_part_of_the_training_queries(read):
    """Lines of the same query are in one part."""
    rows = [(f"Who is {i % 20}?", [(f"Ann {i}", 1), ("Bo", 0)]) for i in range(60)]
    data = read(lists(*rows), dev="", dev_fraction=0.3)
    (dev,) = data.dev.values()
    assert len(dev) + len(data.train) == 60 and 0 < len(dev) < 30
    assert not {each.query for each in dev} & {each.query for each in data.train}
    assert {type(each) for each in dev} == {RankingExample}
    assert len(read(lists(*rows), dev="", dev_fraction=0.3, max_train_examples=5).train) == 5


def test_a_part_to_predict_may_lack_labels(tmp_path):
    rows = ['{"query": "Who?", "candidates": ["Ann", {"text": ""}]}', lists(("", [("a", 1)]))]
    (tmp_path / "test.jsonl").write_text("\n".join(rows))
    found = DATASET.read_part(Source(str(tmp_path)), "test", TASK)
    assert [(each.query, each.candidates, each.label) for each in found] == [
        ("Who?", ("Ann", ""), None),
        ("", ("a",), (1,)),
    ]
    with pytest.raises(InputError, match="Scores require the answer to every example"):
        DATASET.score([{"scores": [0, 1]}, {"scores": [0]}], found)
    (tmp_path / "test.jsonl").write_text(
        '{"query": "a", "candidates": ["b", {"text": "c", "label": 1}]}'
    )
    with pytest.raises(InputError, match="Received: 'a', whose candidate 1, 'b', has none. Add"):
        DATASET.read_part(Source(str(tmp_path)), "test", TASK)


SCORED = [
    RankingExample("a", ("x", "y", "z"), (0, 2, 1)),
    RankingExample("b", ("x", "y"), (1, 0)),
    RankingExample("only relevant ones", ("x", "y"), (1, 2)),
    RankingExample("none", ("x", "y"), (0, 0)),
]
ANSWERS = [{"scores": scores} for scores in ([3, 1, 2], [5, 5], [1, 2], [2, 1])]


def test_scores_by_hand():
    """Of the first query, z and y are at 2 and 3; in the second, the relevant one comes last."""
    ideal = 2 + 1 / math.log2(3)
    found = DATASET.score(ANSWERS, SCORED)
    assert found == pytest.approx(
        {
            "map": ((1 / 2 + 2 / 3) / 2 + 1 / 2) / 2,
            "mrr": (1 / 2 + 1 / 2) / 2,
            "ndcg_at_10": ((1 / math.log2(3) + 2 / 2) / ideal + 1 / math.log2(3)) / 2,
        }
    )
    assert [*found] == [*DATASET.metrics]
    assert DATASET.score(ANSWERS[:2], SCORED[:2]) == found  # the others are not scored


def test_errors_are_over_the_scored_queries():
    tuned = FINETUNING["ranking"]
    assert tuned.standard_errors(DATASET, ANSWERS, SCORED) == {}
    answers = [{"scores": [1, 0]}, {"scores": [0, 1]}, *ANSWERS[2:]] * 20
    examples = [SCORED[1], SCORED[1], *SCORED[2:]] * 20
    queries = [dataclasses.replace(each, query=str(row)) for row, each in enumerate(examples)]
    errors = tuned.standard_errors(DATASET, answers, queries)
    assert errors["map"] == errors["mrr"] == pytest.approx(0.25 / math.sqrt(39))  # of 1 and 1/2
    assert tuned.standard_errors(DATASET, answers, examples) == {}  # one query, again and again


def test_the_card_shows_the_worst_queries():
    answers = [
        {"scores": [], "ranking": ranking} for ranking in ([0, 2, 1], [0, 1], [1, 0], [0, 1])
    ]
    text = "\n".join(FINETUNING["ranking"].card_sections(TASK, answers, SCORED))
    assert "| a | z (place 2) | x |" in text and "| b |" not in text and "none" not in text


def test_answers_of_trec(shared_data):
    """The counts of the files, and BM25 with words as rare as in a query's own candidates.

    An independent implementation scores the former the same; the rarity in all is better.
    """
    source = Source(str(shared_data / "rerank" / "wang"))
    train, dev = (DATASET.examples(source, part) for part in ("train", "dev"))
    counts = [
        (len(p), sum(len(q.candidates) for q in p), sum(q.is_clean for q in p))
        for p in (train, dev)
    ]
    assert counts == [(93, 4718, 78), (81, 1148, 65)]
    with gzip.open(shared_data / "rerank" / "wang" / "train.jsonl.gz", "rt") as lines:
        assert json.loads(next(lines))["query"] == train[0].query
    alone = [{"scores": bm25(each.candidates)([each.query])[0]} for each in dev]
    assert DATASET.score(alone, dev)["map"] == pytest.approx(0.676, abs=0.001)
    found = DATASET.score(FINETUNING["ranking"].references(dev)["BM25"], dev)
    assert found["map"] == pytest.approx(0.711, abs=0.001)
