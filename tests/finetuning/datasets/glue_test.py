"""GLUE in its own layouts: small files of each, the real files, and the readers of others."""

import collections
import gzip
import pathlib

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.regressor.model import RegressorSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.datasets.glue import GLUE
from finetuning.training.config import FinetuneConfig

MNLI = (
    "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
    "sentence1_parse\tsentence2_parse\tsentence1\tsentence2"
)
MNLI_DEV = f"{MNLI}\tlabel1\tlabel2\tgold_label"
MNLI_ROW = '0\t1\t1n\tfiction\t( a )\t( b )\t(ROOT a)\t(ROOT b)\tA "premise\tA hypothesis'
STS_B = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2"
STS_B_ROW = "0\tmain-news\theadlines\t2013\t0\tnone\tnone\tOne.\tTwo."
PAIR = TextExample("A first.", "A second.", 1)
# task -> (file -> content), part -> what is read.
LAYOUTS = {
    "cola": (
        {
            "train": 'gj04\t0\t*\tA first.\ngj04\t1\t\tA "second\n',
            "test": "index\tsentence\n0\tA.\n",
        },
        {
            "train": [TextExample("A first.", None, 0), TextExample('A "second', None, 1)],
            "test": [TextExample("A.")],
        },
    ),
    "sst-2": (
        {"dev": "sentence\tlabel\nA first. \t1\n", "test": "index\tsentence\n0\tA.\n"},
        {"dev": [TextExample("A first. ", None, 1)], "test": [TextExample("A.")]},
    ),
    "mrpc": (
        {
            "train": "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n"
            "1\t7\t8\tA first.\tA second.\r\n",
            "test": "index\t#1 ID\t#2 ID\t#1 String\t#2 String\n0\t7\t8\tA.\tB.\n",
        },
        {"train": [PAIR], "test": [TextExample("A.", "B.")]},
    ),
    "sts-b": (
        {"dev": f"{STS_B}\tscore\n{STS_B_ROW}\t3.250\n", "test": f"{STS_B}\n{STS_B_ROW}\n"},
        {"dev": [TextExample("One.", "Two.", 3.25)], "test": [TextExample("One.", "Two.")]},
    ),
    "qqp": (
        {
            "train": "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n"
            "1\t1\t2\tA first.\tA second.\t1\n2\t3\t4\tbroken\n3\t5\t6\tWhat?\t\t0\n",
            "test": "id\tquestion1\tquestion2\n0\tA.\tB.\n",
        },
        {"train": [PAIR, TextExample("What?", "", 0)], "test": [TextExample("A.", "B.")]},
    ),
    "mnli": (
        {
            "train": f"{MNLI}\tlabel1\tgold_label\n{MNLI_ROW}\tentailment\tneutral\n",
            "dev_matched": f"{MNLI_DEV}\n{MNLI_ROW}\tx\tx\tentailment\n",
            "dev_mismatched": f"{MNLI_DEV}\n{MNLI_ROW}\tx\tx\tcontradiction\n",
            "test_mismatched": f"{MNLI}\n{MNLI_ROW}\n",
            "test_matched": f"{MNLI}\n{MNLI_ROW}\n",
        },
        {
            "train": [TextExample('A "premise', "A hypothesis", 2)],
            "dev": [TextExample('A "premise', "A hypothesis", 1)],
            "dev_mismatched": [TextExample('A "premise', "A hypothesis", 0)],
            "test": [TextExample('A "premise', "A hypothesis")],
        },
    ),
    "qnli": (
        {
            "dev": "index\tquestion\tsentence\tlabel\n0\tA first.\tA second.\tnot_entailment\n",
            "test": "index\tquestion\tsentence\n0\tA.\tB.\n",
        },
        {"dev": [PAIR], "test": [TextExample("A.", "B.")]},
    ),
    "rte": (
        {"dev": "index\tsentence1\tsentence2\tlabel\n0\tA first.\tA second.\tnot_entailment\n"},
        {"dev": [PAIR]},
    ),
    "wnli": (
        {"dev": "index\tsentence1\tsentence2\tlabel\n0\tA first.\tA second.\t1\n"},
        {"dev": [PAIR]},
    ),
    "ax": (
        {
            "diagnostic": "index\tsentence1\tsentence2\n0\tA.\tB.\n",
            "diagnostic-full": "Lexical Semantics\tPredicate-Argument Structure\tLogic\tKnowledge\t"
            "Domain\tPremise\tHypothesis\tLabel\n"
            "Negation\t\t\t\tNews\tA first.\tA second.\tentailment\n",
        },
        {"test": [TextExample("A.", "B.")], "dev": [PAIR]},
    ),
}


def write(folder: pathlib.Path, files: dict[str, str]) -> Source:
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / f"{name}.tsv").write_text(content, encoding="utf-8", newline="")
    return Source(str(folder))


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts(tmp_path, name):
    files, parts = LAYOUTS[name]
    task = GLUE[name]
    write(tmp_path / task.name, files)
    for folder in (tmp_path, tmp_path / task.name):
        for part, expected in parts.items():
            assert task.read_part(Source(str(folder)), part, task.section) == expected
    assert set(LAYOUTS) == set(GLUE) <= set(DATASETS)


def test_mnli_has_two_dev_parts_and_the_matched_one_chooses(tmp_path):
    data = GLUE["mnli"].read(write(tmp_path / "MNLI", LAYOUTS["mnli"][0]))
    assert {name: [each.label for each in part] for name, part in data.dev.items()} == {
        "matched": [1],
        "mismatched": [0],
    }
    assert next(iter(data.dev)) == "matched"
    assert (data.task.kind, data.task.pair) == ("classifier", True)
    assert data.task.labels == ("contradiction", "entailment", "neutral")


def test_short_rows_of_qqp_are_counted_but_not_in_its_test(tmp_path, capsys):
    files = {**LAYOUTS["qqp"][0], "test": "id\tquestion1\tquestion2\n0\tA.\tB.\n1\tC.\n"}
    source = write(tmp_path, files)
    GLUE["qqp"].read_part(source, "train", GLUE["qqp"].section)
    assert (
        "train.tsv: 1 rows with too few columns skipped, the first at line 3."
        in capsys.readouterr().out
    )
    with pytest.raises(InputError, match=r"test\.tsv:3"):  # every row wants its prediction
        GLUE["qqp"].read_part(source, "test", GLUE["qqp"].section)


BAD = {
    "unknown label": (
        "rte",
        "index\tsentence1\tsentence2\tlabel\n0\tA\tB\tmaybe\n",
        ["train.tsv:2", "'maybe'", "entailment, not_entailment"],
    ),
    "no number": ("sts-b", f"{STS_B}\tscore\n{STS_B_ROW}\thigh\n", ["train.tsv:2", "0 to 5"]),
    "no score": ("sts-b", f"{STS_B}\tscore\n{STS_B_ROW}\t5.1\n", ["train.tsv:2", "0 to 5", "5.1"]),
    "not a number": ("sts-b", f"{STS_B}\tscore\n{STS_B_ROW}\tnan\n", ["train.tsv:2", "nan"]),
    "missing column": ("wnli", "index\tsentence1\tlabel\n0\tA\t1\n", ["train.tsv:1", "sentence2"]),
    "no labels": ("rte", "index\tsentence1\tsentence2\n0\tA\tB\n", ["train.tsv:1", "label"]),
    "a tab too many": ("cola", "gj04\t1\t\tA\tB\n", ["train.tsv:1", "5 columns", "4", "tabs"]),
    "empty text": ("cola", "gj04\t1\t\tA\ngj04\t1\t\t\n", ["train.tsv:2", "`sentence` is empty"]),
    "empty file": ("sst-2", "", ["train.tsv is empty"]),
}


@pytest.mark.parametrize("case", BAD)
def test_rows_that_do_not_fit_are_named(tmp_path, case):
    name, content, words = BAD[case]
    with pytest.raises(InputError) as error:
        GLUE[name].read(write(tmp_path, {"train": content}))
    assert all(word in str(error.value) for word in words), error.value


def test_missing_files_are_named(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"--data_dir: no file train\.tsv .*\.gz"):
        GLUE["rte"].read(Source(str(tmp_path)))


COUNTS = {
    "cola": (8551, 1043, 1063),
    "sst-2": (67349, 872, 1821),
    "rte": (2490, 277, 3000),
    "wnli": (635, 71, 146),
    "sts-b": (5749, 1500, 1379),
}


@pytest.mark.parametrize("name", COUNTS)
def test_real_files(shared_data, name):
    task, source = GLUE[name], Source(str(shared_data / "glue"))
    data = task.read(source)
    test = task.read_part(source, "test", data.task)
    assert (len(data.train), len(data.dev["dev"]), len(test)) == COUNTS[name]
    assert {example.label for example in test} == {None}
    balance = collections.Counter(example.label for example in data.dev["dev"])
    if name == "rte":
        assert balance == {0: 146, 1: 131}
    if name == "cola":
        assert balance == {1: 721, 0: 322}
    assert all((example.second is None) is not data.task.pair for example in data.train)


def test_scores():
    cola = [{"label": label, "probabilities": {"0": 0.5, "1": 0.5}} for label in "1101"]
    examples = [TextExample("", None, label) for label in (1, 1, 0, 0)]
    assert GLUE["cola"].score(cola, examples) == pytest.approx(
        {"mcc": (2 * 1 - 1 * 0) / (3 * 2 * 2 * 1) ** 0.5, "accuracy": 3 / 4}
    )
    assert GLUE["mrpc"].score(cola, examples) == pytest.approx({"accuracy": 3 / 4, "f1": 4 / 5})
    scores = [{"score": score} for score in (9.0, 3.0, 2.0, 1.0)]
    gold = [TextExample("", "", score) for score in (4.0, 3.0, 2.0, 1.0)]
    assert GLUE["sts-b"].score(scores, gold) == pytest.approx(
        {"pearson": 12.5 / (5 * 38.75) ** 0.5, "spearman": 1.0}
    )
    assert {name: next(iter(task.metrics)) for name, task in GLUE.items()} == {
        **dict.fromkeys(GLUE, "accuracy"),
        "cola": "mcc",
        "ax": "mcc",
        "sts-b": "pearson",
    }


def test_submissions(tmp_path):
    path = tmp_path / "out.tsv"
    GLUE["rte"].write_submission(
        str(path), [{"label": "not_entailment"}, {"label": "entailment"}], []
    )
    assert path.read_text() == "index\tprediction\n0\tnot_entailment\n1\tentailment\n"
    GLUE["sts-b"].write_submission(str(path), [{"score": s} for s in (-0.2, 2.34567, 5.4)], [])
    assert path.read_text() == "index\tprediction\n0\t0.000\n1\t2.346\n2\t5.000\n"


def test_recipes_are_settings():
    encoder = AlbertConfig.from_preset("albert-base-v2")
    for name, task in GLUE.items():
        values = [f"{key}={value}" for key, value in task.recipe.items()]
        config = settings.override(
            FinetuneConfig(encoder, ClassifierSettings(labels=("a", "b"))), values
        )
        assert (config.task.seq_length == 512) is bool(values) is (name != "ax")
    qqp = settings.override(
        FinetuneConfig(encoder, RegressorSettings()),
        [f"{key}={value}" for key, value in GLUE["qqp"].recipe.items()],
    )
    assert (qqp.model.hidden_dropout, qqp.model.attention_dropout, qqp.task.dropout) == (0.1,) * 3
    assert (qqp.training.learning_rate, qqp.training.batch_size) == (5e-5, 128)
    assert (qqp.training.steps, qqp.training.warmup_steps) == (14000, 1000)


def test_recipes_train_about_ten_passes_where_the_paper_does():
    # Table 14's steps, times its batch, by the rows of the released training parts.
    rows = {"cola": 8551, "sts-b": 5749, "sst-2": 67349, "qnli": 104743}
    for name, count in rows.items():
        recipe = GLUE[name].recipe
        passes = recipe["training.steps"] * recipe["training.batch_size"] / count
        assert passes == pytest.approx(10, abs=0.15)
        assert recipe["training.warmup_steps"] / recipe["training.steps"] == pytest.approx(
            0.06, abs=0.001
        )


@pytest.mark.parametrize("name", COUNTS)
def test_the_model_gardens_examples_of_the_real_files(shared_data, tmp_path, monkeypatch, name):
    from official.nlp.data import classifier_data_lib
    from tensorflow_datasets.text.glue import Glue

    task, source = GLUE[name], Source(str(shared_data / "glue"))
    processor = {
        "cola": classifier_data_lib.ColaProcessor,
        "sst-2": classifier_data_lib.SstProcessor,
        "rte": classifier_data_lib.RteProcessor,
        "wnli": classifier_data_lib.WnliProcessor,
        "sts-b": classifier_data_lib.StsBProcessor,
    }[name]()
    builder = Glue(config=task.tfds, data_dir=str(tmp_path))
    label = builder.info.features["label"]

    class Rows:
        """What `tfds.load` would give of these files."""

        def __init__(self, split: str) -> None:
            self.part = split.replace("validation", "dev")
            path = shared_data / "glue" / task.name / f"{self.part}.tsv"
            content = path.read_bytes() if path.is_file() else gzip.open(f"{path}.gz").read()
            (tmp_path / "part.tsv").write_bytes(content)

        def as_numpy_iterator(self):
            for _, row in builder._generate_examples(tmp_path / "part.tsv", self.part):
                number = label.encode_example(row["label"]) if task.labels else row["label"]
                yield {**row, "label": number}

    monkeypatch.setattr(classifier_data_lib.tfds, "load", lambda name, split, try_gcs: Rows(split))
    for part in ("dev", "test") if name == "sst-2" else ("train", "dev", "test"):  # 67,349 rows
        ours = task.read_part(source, part, task.section)
        theirs = getattr(processor, f"get_{part}_examples")(None)
        assert [(each.first, each.second) for each in ours] == [
            (each.text_a, each.text_b) for each in theirs
        ]
        if part != "test":  # there they make a label up
            labels = [each.label for each in ours]
            expected = [
                task.labels.index(each.label) if task.labels else each.label for each in theirs
            ]
            assert labels == pytest.approx(expected, rel=1e-7)  # theirs are float32


def prepared(folder: pathlib.Path, name: str, features: dict, splits: dict[str, dict]) -> None:
    """A data set as TFDS leaves it."""
    import tensorflow as tf
    import tensorflow_datasets as tfds

    dataset, config = name.split("/")
    tfds.dataset_builders.store_as_tfds_dataset(
        name=dataset,
        config=config,
        version="2.0.0",
        data_dir=str(folder),
        features=tfds.features.FeaturesDict(features),
        split_datasets={k: tf.data.Dataset.from_tensor_slices(v) for k, v in splits.items()},
    )


def test_tfds(tmp_path):
    import numpy as np
    import tensorflow_datasets as tfds

    text = tfds.features.Text()
    three = tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"])
    pair = {"premise": text, "hypothesis": text, "label": three, "idx": np.int32}
    prepared(
        tmp_path,
        "glue/mnli",
        pair,
        {
            split: {
                "premise": ["p2", "p0", "p1"],
                "hypothesis": ["h2", "h0", "h1é"],
                "label": [2, 0, 1],
                "idx": np.array([2, 0, 1], np.int32),
            }
            for split in ("train", "validation_matched", "validation_mismatched")
        },
    )
    source = Source(str(tmp_path), tfds=True)
    data = GLUE["mnli"].read(source)
    assert data.train == [
        TextExample("p0", "h0", 1),
        TextExample("p1", "h1é", 2),
        TextExample("p2", "h2", 0),
    ]
    assert list(data.dev) == ["matched", "mismatched"]
    with pytest.raises(InputError, match=r"glue/mnli must have a split 'test_matched'"):
        GLUE["mnli"].read_part(source, "test", data.task)

    two = tfds.features.ClassLabel(names=["unacceptable", "acceptable"])
    prepared(
        tmp_path,
        "glue/cola",
        {"sentence": text, "label": two, "idx": np.int32},
        {
            "test": {"sentence": ["a"], "label": [-1], "idx": np.array([0], np.int32)},
            "validation": {"sentence": ["b"], "label": [1], "idx": np.array([0], np.int32)},
        },
    )
    section = GLUE["cola"].section
    assert GLUE["cola"].read_part(source, "test", section) == [TextExample("a")]
    assert GLUE["cola"].read_part(source, "dev", section) == [TextExample("b", None, 1)]
    with pytest.raises(InputNotFoundError, match="tfds build glue/rte --data_dir="):
        GLUE["rte"].read(source)
    with pytest.raises(InputError, match="--data_dir must be on this machine"):
        GLUE["rte"].read(Source("gs://bucket", tfds=True))
