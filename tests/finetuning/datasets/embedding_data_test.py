"""Texts, pairs, negatives, scored pairs, searches and a teacher's vectors from files."""

import dataclasses
import gzip
import json
import pathlib

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.embedding.examples import ContrastExample, SearchExample
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.embeddings.teacher_vectors import digest_of
from finetuning.datasets.selection import limited, read_part

EMBEDDING, STS = DATASETS["embedding"], DATASETS["sts"]
PAIRS_OF_TEXTS = DATASETS["pair_classification"]


def lines(*rows: dict) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def write(folder: pathlib.Path, **files: str) -> Source:
    """Writes files, of whose names `__` stands for a dot and `_of_` for a folder."""
    for name, content in files.items():
        path = folder / name.replace("_of_", "/").replace("__", ".")
        path.parent.mkdir(exist_ok=True)
        path.write_text(content, "utf-8")
    return Source(str(folder))


PAIRS = "query\tpassage\na\tb\nc\td\na\te\n"


@pytest.mark.parametrize(
    ("name", "content", "examples"),
    [
        ("train__tsv", "text\na\nb\n", [TextExample("a"), TextExample("b")]),
        ("train__csv", "anchor,positive\na,b\n", [ContrastExample("a", "b")]),
        (
            "train__tsv",
            "query\tpositive\tnegative_1\tnegative_2\na\tb\tc\td\ne\tf\t\tg\n",
            [
                ContrastExample("a", "b", negatives=("c", "d")),
                ContrastExample("e", "f", negatives=("g",)),
            ],
        ),
        (
            "train__jsonl",
            lines(
                {"text_a": "a", "text_b": "b"},
                {"text_a": "c", "text_b": "d", "negatives": ["e", "f", "g"]},
            ),
            [ContrastExample("a", "b"), ContrastExample("c", "d", negatives=("e", "f", "g"))],
        ),
        ("train__csv", "text_a,text_b,label\na,b,0.5\n", [TextExample("a", "b", 0.5)]),
        ("train__tsv", "sentence1\tscore\tsentence2\na\t5\tb\n", [TextExample("a", "b", 5.0)]),
    ],
)
def test_tables_of_texts_pairs_negatives_and_scores(tmp_path, name, content, examples):
    source = write(tmp_path, **{name: content})
    assert EMBEDDING.examples(source, "train") == examples


def test_parquet(tmp_path):
    parquet = pytest.importorskip("pyarrow.parquet")
    import pyarrow

    columns = {"query": ["a", "c"], "positive": ["b", "d"], "negatives": [["e", "f"], []]}
    parquet.write_table(pyarrow.table(columns), tmp_path / "train.parquet")
    found = EMBEDDING.examples(Source(str(tmp_path)), "train")
    assert found == [ContrastExample("a", "b", negatives=("e", "f")), ContrastExample("c", "d")]
    scored = {"text_a": ["a"], "text_b": ["b"], "score": [0.5]}
    parquet.write_table(pyarrow.table(scored), tmp_path / "train.parquet")
    assert EMBEDDING.examples(Source(str(tmp_path)), "train") == [TextExample("a", "b", 0.5)]


@pytest.mark.parametrize(
    ("content", "loss"),
    [
        ("text\na\nb\n", "simcse"),
        (PAIRS, "in_batch"),
        ("text_a\ttext_b\tscore\na\tb\t2\nc\td\t-1\n", "cosent"),
    ],
)
def test_the_loss_follows_from_the_data(tmp_path, content, loss):
    data = EMBEDDING.read(write(tmp_path, train__tsv=content, dev__tsv=PAIRS))
    assert data.task.loss == loss
    assert (data.recipe != {}) == (loss == "simcse")
    if loss == "cosent":
        assert (data.task.lowest_score, data.task.highest_score) == (-1.0, 2.0)


def test_a_dev_part_of_pairs_is_a_search(tmp_path):
    content = lines(
        {"query": "a", "positive": "b", "negatives": ["x"]},
        {"query": "c", "positive": "d"},
        {"query": "a", "positive": "e", "negatives": ["b"]},
    )
    data = EMBEDDING.read(write(tmp_path, train__tsv=PAIRS, dev__jsonl=content))
    first, second = data.dev["dev"]
    assert first.corpus is second.corpus and first.corpus.texts == ("b", "x", "d", "e")
    assert (first.first, first.label) == ("a", (("1", 1.0), ("4", 1.0)))
    assert (second.first, second.label) == ("c", (("3", 1.0),))
    predictions = [
        {"ranking": [["1", 0.9], ["2", 0.5], ["4", 0.1]]},
        {"ranking": [["2", 0.9], ["3", 0.5]]},
    ]
    scores = EMBEDDING.score(predictions, [first, second])
    assert scores["map"] == pytest.approx(((1 + 2 / 3) / 2 + 1 / 2) / 2)
    assert [EMBEDDING.answer(each) for each in predictions] == ["1", "2"]


def test_a_query_among_the_answers_does_not_find_itself(tmp_path):
    """Unless a pair says that it is right."""
    pairs = [("a", "b"), ("b", "a"), ("c", "d"), ("d", "d"), ("d", "c")]
    content = lines(*({"query": query, "positive": text} for query, text in pairs))
    data = EMBEDDING.read(write(tmp_path, train__jsonl=content, dev__jsonl=content))
    dev = data.dev["dev"]
    ids = dict(zip(dev[0].corpus.texts, dev[0].corpus.ids, strict=True))
    assert [each.itself for each in dev] == [ids["a"], ids["b"], ids["c"], None]


def test_negatives_of_training_are_no_dev_texts(tmp_path, capsys):
    rows = [
        {"query": f"q{i}", "positive": f"p{i}", "negatives": [f"p{(i + 1) % 40}", "else"]}
        for i in range(40)
    ]
    source = write(tmp_path, train__jsonl=lines(*rows))
    data = EMBEDDING.read(dataclasses.replace(source, reading=Reading(dev_fraction=0.25)))
    answers = {f"p{each.first[1:]}" for each in data.dev["dev"]}
    negatives = [text for each in data.train for text in each.negatives]
    assert answers and not answers & set(negatives) and negatives.count("else") == len(data.train)
    dropped = 2 * len(data.train) - len(negatives)
    assert f"(of which {dropped} negatives are left out)" in capsys.readouterr().out


@pytest.mark.parametrize("columns", [("query", "positive"), ("text_a", "text_b", "score")])
def test_a_part_of_the_training_pairs_shares_no_text(tmp_path, columns):
    rows = [dict(zip(columns, (f"q{i // 2}", f"p{i}", i), strict=False)) for i in range(80)]
    source = write(tmp_path, train__jsonl=lines(*({k: str(v) for k, v in r.items()} for r in rows)))
    source = dataclasses.replace(source, reading=Reading(dev_fraction=0.25))
    task = STS if "score" in columns else EMBEDDING
    data = task.read(source)
    dev = data.dev["dev"]
    assert all(isinstance(each, SearchExample) == (task is EMBEDDING) for each in dev)
    count = len(dev) * 2 if task is EMBEDDING else len(dev)  # pairs of a query
    assert count + len(data.train) == 80 and 8 < count < 36
    assert not {each.first for each in dev} & {each.first for each in data.train}
    assert read_part(task, source, "dev", data.task) == dev


def test_similarity_in_the_columns_of_sts_b(tmp_path):
    content = 'index\tscore\tsentence1\tsentence2\n0\t0\t"a\tb\n1\t5\ta "b"\tc\n2\t2.5\td\te\n'
    data = STS.read(write(tmp_path, train__tsv=content, dev__tsv=content))
    (quoted, *_), dev = data.train, data.dev["dev"]
    assert quoted == TextExample('"a', "b", 0.0) and len(dev) == 3
    assert (data.task.lowest_score, data.task.highest_score) == (0.0, 5.0)
    scores = STS.score([{"score": x} for x in (0.1, 0.9, 0.5)], dev)
    assert scores == pytest.approx({"spearman": 1.0, "pearson": 1.0})


PLAIN = 'sentence1\tsentence2\tscore\na "b\t"c\t0\n"d"\te\t1\n'
QUOTED = 'text_a\ttext_b\tscore\n"a ""b"\t"""c"\t0\n"""d"""\te\t1\n'


@pytest.mark.parametrize("task", [EMBEDDING, STS, PAIRS_OF_TEXTS], ids=lambda task: task.name)
@pytest.mark.parametrize("content", [PLAIN, QUOTED])
def test_only_columns_of_glue_make_quotes_text(tmp_path, task, content):
    """Whatever reads the file, also `finetuning.mine` and `embed`, for which EMBEDDING reads."""
    source = write(tmp_path, train__tsv=content, dev__csv=content.replace("\t", ","))
    wanted = [TextExample('a "b', '"c', 0.0), TextExample('"d"', "e", 1.0)]
    assert task.examples(source, "train") == wanted
    if content == QUOTED:
        assert task.examples(source, "dev") == wanted


def test_a_file_of_glue_that_seems_quoted_is_noted(tmp_path, capsys):
    content = 'sentence1\tsentence2\tscore\n"a"\t"b"\t0\n"c"\t"d"\t1\n'
    STS.examples(write(tmp_path, train__tsv=content), "train")
    assert "train.tsv:2: the texts begin and end with quotes" in capsys.readouterr().err


def test_a_dev_part_of_pairs_that_belong_together_or_not(tmp_path):
    content = "text_a\ttext_b\tlabel\na\tb\t1\nc\td\t0\ne\tf\t1.0\n"
    data = PAIRS_OF_TEXTS.read(write(tmp_path, train__tsv=PAIRS, dev__tsv=content))
    dev = data.dev["dev"]
    assert [each.label for each in dev] == [1, 0, 1] and data.task.loss == "in_batch"
    scores = PAIRS_OF_TEXTS.score([{"score": x} for x in (0.9, 0.7, 0.5)], dev)
    assert scores == pytest.approx(
        {
            "average_precision": (1 + 2 / 3) / 2,
            "best_f1": 2 / 3,
            "best_f1_threshold": 0.8,
            "best_accuracy": 2 / 3,
            "best_accuracy_threshold": 0.8,
        }
    )


QRELS = "query-id\tcorpus-id\tscore\n1\tx\t2\n1\ty\t0\n2\ty\t0\n"
BEIR = {
    "corpus__jsonl": lines(
        {"_id": "x", "title": "One", "text": "two"}, {"_id": "y", "text": "three"}
    ),
    "queries__jsonl": lines({"_id": "1", "text": "q"}, {"_id": "2", "text": "r"}),
}


class TestBeir:
    def test_dev_and_test_parts(self, tmp_path, capsys):
        source = write(
            tmp_path, train__tsv=PAIRS, qrels_of_dev__tsv=QRELS, qrels_of_test__tsv=QRELS, **BEIR
        )
        data = EMBEDDING.read(source)
        (search,) = data.dev["dev"]
        assert (search.id, search.first, search.label) == ("1", "q", (("x", 2.0), ("y", 0.0)))
        assert (search.corpus.ids, search.corpus.texts) == (("x", "y"), ("One two", "three"))
        assert "1 queries without a relevant document are left out" in capsys.readouterr().out
        assert EMBEDDING.read_part(source, "test", data.task) == [search]

    def test_a_query_that_is_a_document_does_not_find_itself(self, tmp_path):
        """As in ArguAna. Of ids alone, queries and documents may be numbered apart."""
        files = {
            "corpus__jsonl": lines(
                {"_id": "1", "title": "One", "text": "q"}, {"_id": "2", "text": "s"}
            ),
            "qrels_of_dev__tsv": "query-id\tcorpus-id\tscore\n1\t2\t1\n2\t2\t1\n",
        }
        searches = EMBEDDING.examples(write(tmp_path, **BEIR | files), "dev")
        assert [search.itself for search in searches] == ["1", None]

    def test_compressed_files_and_a_training_part(self, tmp_path):
        write(tmp_path, qrels_of_train__tsv=QRELS, qrels_of_dev__tsv=QRELS, **BEIR)
        for name in ("corpus.jsonl", "queries.jsonl", "qrels/dev.tsv"):
            path = tmp_path / name
            (tmp_path / f"{name}.gz").write_bytes(gzip.compress(path.read_bytes()))
            path.unlink()
        data = EMBEDDING.read(Source(str(tmp_path)))
        assert data.train == [ContrastExample("q", "One two")] and len(data.dev["dev"]) == 1

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"qrels_of_dev__tsv": QRELS + "3\tx\t1\n"}, "dev.tsv:5: no line of queries.* id '3'"),
            ({"qrels_of_dev__tsv": QRELS + "1\tz\t1\n"}, "dev.tsv:5: no line of corpus.* id 'z'"),
            ({"qrels_of_dev__tsv": QRELS + "1\tx\thigh\n"}, "dev.tsv:5: `score` .* 'high'"),
            ({"qrels_of_dev__tsv": QRELS + f"1\tx\t{10**400}\n"}, "dev.tsv:5: `score` .* '100"),
            ({"qrels_of_dev__tsv": QRELS + "1\tx\t1\n"}, "dev.tsv:5: an earlier .*, 2. .*: 1"),
            ({"qrels_of_dev__tsv": QRELS.replace("\t2", "\t0")}, "a query with a relevant"),
            ({"queries__jsonl": lines({"_id": 1, "text": "q"})}, "queries.jsonl:1 must be"),
            ({"corpus__jsonl": lines({"_id": "x", "text": " "})}, "corpus.jsonl:1 must be"),
            ({"corpus__jsonl": BEIR["corpus__jsonl"] * 2}, "corpus.jsonl:3: an earlier .* 'x'"),
        ],
    )
    def test_invalid_files_are_refused(self, tmp_path, changes, message):
        files = {"train__tsv": PAIRS, "qrels_of_dev__tsv": QRELS} | BEIR | changes
        with pytest.raises(InputError, match=message):
            EMBEDDING.read(write(tmp_path, **files))


@pytest.mark.parametrize(
    ("task", "train", "dev", "message"),
    [
        (EMBEDDING, "query\tpassage\na\t \n", PAIRS, "train.tsv:2: `passage` is empty"),
        (EMBEDDING, "a\tb\nc\td\n", PAIRS, "train.tsv:1: the header must name text, or one of"),
        (EMBEDDING, "text_a\ttext_b\tlabel\na\tb\tyes\n", PAIRS, "train.tsv:2: `label` .* 'yes'"),
        (EMBEDDING, "text_a\ttext_b\tlabel\na\tb\tnan\n", PAIRS, "train.tsv:2: `label` .* 'nan'"),
        (
            EMBEDDING,
            "text_a\ttext_b\tnegative\tscore\na\tb\tc\t1\n",
            PAIRS,
            "train.tsv:2: a row must not have both",
        ),
        (EMBEDDING, "text_a\ttext_b\tscore\na\tb\t1\nc\td\t1\n", PAIRS, "different scores.*only 1"),
        (EMBEDDING, PAIRS, "text\na\n", "a dev part must hold pairs, .*single texts"),
        (EMBEDDING, PAIRS, "text_a\ttext_b\tscore\na\tb\t1\n", "Pass --task=sts"),
        (STS, PAIRS, PAIRS, "pass --task=embedding"),
        (PAIRS_OF_TEXTS, PAIRS, PAIRS, "with the scores 0 and 1. Received: none"),
        (
            PAIRS_OF_TEXTS,
            PAIRS,
            "text_a\ttext_b\tscore\na\tb\t0\nc\td\t0.5\n",
            "Received: 0.5. Correct the scores, or pass --task=sts",
        ),
        (PAIRS_OF_TEXTS, PAIRS, "text_a\ttext_b\tscore\na\tb\t1\n", "Received: only 1"),
    ],
)
def test_tables_of_another_task_are_refused(tmp_path, task, train, dev, message):
    with pytest.raises(InputError, match=message):
        task.read(write(tmp_path, train__tsv=train, dev__tsv=dev))


@pytest.mark.parametrize(("value", "words"), [([3], "3"), (4, "4"), ({"x": 1}, "{'x': 1}")])
def test_negatives_that_are_no_texts(tmp_path, value, words):
    content = lines({"query": "a", "positive": "b", "negatives": value})
    message = f"train.jsonl:1: negatives must be texts .* Received: {words}"
    with pytest.raises(InputError, match=message):
        EMBEDDING.examples(write(tmp_path, train__jsonl=content), "train")


def test_a_column_of_scores_that_is_missing_is_named(tmp_path):
    """Otherwise pairs that are not alike would be trained as pairs that belong together."""
    source = write(tmp_path, train__csv="text_a,text_b,sim\na,b,0.1\nc,d,0.9\n", dev__csv=SCORED)
    with pytest.raises(InputError, match="column.*'?simm"):
        EMBEDDING.read(dataclasses.replace(source, reading=Reading(label_column="simm")))
    data = STS.read(dataclasses.replace(source, reading=Reading(label_column="sim")))
    assert [example.label for example in data.train] == [0.1, 0.9]


SCORED = "text_a,text_b,score\na,b,1\nc,d,2\n"


@pytest.mark.parametrize("dataset", [STS, PAIRS_OF_TEXTS])
def test_a_part_to_predict_may_have_no_scores_and_empty_texts(tmp_path, dataset):
    source = write(tmp_path, test__csv="text_a,text_b\na,\nc,d\n")
    task = EmbeddingSettings()
    examples = dataset.read_part(source, "test", task)
    assert [(each.first, each.second, each.label) for each in examples] == [
        ("a", "", None),
        ("c", "d", None),
    ]
    alone = write(tmp_path / "alone", test__jsonl=lines({"text": ""}, {"text": "b"}))
    assert [each.first for each in dataset.read_part(alone, "test", task)] == ["", "b"]


@pytest.mark.parametrize("key", ["negative", "negative_2", "score", "label"])
def test_a_key_that_only_later_objects_have(tmp_path, key):
    """The columns are the keys of the first object, so the value would be lost."""
    first = {"query": "a", "positive": "b", "negative_1": "c"}
    content = lines(first, {"other": 1} | first, {key: "1"} | first)
    with pytest.raises(InputError, match=f"train.jsonl:3: the first object .* `{key}` too"):
        EMBEDDING.examples(write(tmp_path, train__jsonl=content), "train")


def test_a_list_in_a_cell_of_text(tmp_path):
    content = "query\tpassage\tnegatives\na\tb\tc\nd\te\t['f', 'g']\n"
    with pytest.raises(InputError, match="train.tsv:3: `negatives` must be a list. .*'f'.* a text"):
        EMBEDDING.examples(write(tmp_path, train__tsv=content), "train")


class TestVectors:
    """A teacher's vectors beside the training part."""

    def folder(self, path: pathlib.Path, vectors: np.ndarray, texts=("a", "b"), **changes) -> None:
        (path / "train.vectors").mkdir()
        np.save(path / "train.vectors" / "vectors.npy", vectors)
        count, width = vectors.shape
        values = {"sha256": digest_of(texts), "count": count, "width": width} | changes
        (path / "train.vectors" / "texts.json").write_text(json.dumps(values))

    def source(self, path: pathlib.Path) -> Source:
        return write(path, train__tsv="text\na\nb\n", dev__tsv=PAIRS)

    def test_they_are_the_labels(self, tmp_path):
        vectors = np.array([[1, 2, 3], [4, 5, 6]], np.float16)
        self.folder(tmp_path, vectors)
        source = self.source(tmp_path)
        data = EMBEDDING.read(source)
        assert (data.task.loss, data.task.projection) == ("teacher_cosine", 3)
        np.testing.assert_array_equal([np.asarray(each.label) for each in data.train], vectors)
        few = dataclasses.replace(source, reading=Reading(max_train_examples=1))
        assert len(limited(few, data.train)) == 1
        name = repr(data.train[0].label)  # by which cached features are found again
        assert name == repr(EMBEDDING.read(source).train[0].label)
        np.save(tmp_path / "train.vectors" / "vectors.npy", -vectors)
        assert name != repr(EMBEDDING.read(source).train[0].label)

    @pytest.mark.parametrize(
        ("vectors", "given", "message"),
        [
            ([[1.0], [2.0]], {"texts": ("a", "c")}, "Received: those of others, 2 beside 2 texts"),
            ([[1.0], [2.0], [3.0]], {}, "Received: those of others|must hold the vectors"),
            ([[1.0], [np.nan]], {}, "row 1, counted from 0, must be of finite numbers"),
            ([[1.0], [2.0]], {"width": 2}, r"must have the shape \(2, 2\)"),
        ],
    )
    def test_vectors_that_do_not_fit_are_refused(self, tmp_path, vectors, given, message):
        texts = ("a", "b", "c")[: len(vectors)]
        self.folder(tmp_path, np.array(vectors, np.float16), **{"texts": texts} | given)
        with pytest.raises(InputError, match=message):
            EMBEDDING.read(self.source(tmp_path))

    def test_pairs_have_none(self, tmp_path):
        self.folder(tmp_path, np.ones([2, 2], np.float16))
        with pytest.raises(InputError, match="must hold single texts"):
            EMBEDDING.read(write(tmp_path, train__tsv=PAIRS, dev__tsv=PAIRS))

    def test_files_that_are_missing_or_damaged(self, tmp_path):
        source = self.source(tmp_path)
        self.folder(tmp_path, np.ones([2, 2], np.float16))
        (tmp_path / "train.vectors" / "vectors.npy").write_bytes(b"no numpy")
        with pytest.raises(InputError, match="must be an array of numpy"):
            EMBEDDING.read(source)
        (tmp_path / "train.vectors" / "texts.json").unlink()
        with pytest.raises(InputNotFoundError, match="texts.json"):
            EMBEDDING.read(source)


def test_the_real_sts_b(shared_data):
    source = Source(str(shared_data / "glue" / "STS-B"))
    data = STS.read(source)
    assert (len(data.train), len(data.dev["dev"])) == (5749, 1500)
    assert (data.task.lowest_score, data.task.highest_score) == (0.0, 5.0)
