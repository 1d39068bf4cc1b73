"""A user's table is read exactly, and what does not fit is named by file and row."""

import dataclasses
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.regressor.model import RegressorSettings
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.tables.own_tables import named
from finetuning.datasets.text_classification import TextClassification
from finetuning.datasets.text_regression import TextRegression

TASK = TextClassification()
DEV = "text\tlabel\nx\ta\n"


def write(folder: pathlib.Path, **files: str) -> Source:
    """Files by name, `train_tsv` for train.tsv."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    return Source(str(folder))


def test_labels_come_from_the_training_part_sorted(tmp_path, capsys):
    rows = 'label\tid\ttext\nb\t1\tHe said "so\na\t2\tcafé, d\'accord\nb \t3\t"y\tz"\n'
    data = TASK.read(write(tmp_path, train_tsv=rows, dev_tsv=DEV))
    assert (data.task.labels, data.task.pair) == (("a", "b"), False)
    assert data.train == [  # quotes quote where a text begins with one; labels are stripped
        TextExample('He said "so', None, 1),
        TextExample("café, d'accord", None, 0),
        TextExample("y\tz", None, 1),
    ]
    assert data.dev == {"dev": [TextExample("x", None, 0)]}
    assert capsys.readouterr().out == (
        "train: 3 examples: a 1 (33.3%), b 2 (66.7%)\ndev: 1 examples: a 1 (100.0%), b 0 (0.0%)\n"
        "note: no dev example has the label b. In macro_f1, its F1 counts as 0 if a prediction "
        "names it, and otherwise not at all.\n"
    )


@pytest.mark.parametrize(
    ("task", "train"),
    [
        (TASK, {"train_tsv": "text\tlabel\nx\t10\nx\tb\nx\t2\nx\t-1\nx\t1.5\n"}),
        (DATASETS["multi_label"], {"train_csv": 'text,label\nx,"10,b"\nx,"2,-1,1.5"\n'}),
        (DATASETS["token_classification"], {"train_conll": "v 10\nw b\nx 2\ny -1\nz 1.5\n"}),
    ],
)
def test_integers_are_sorted_by_value(tmp_path, task, train):
    source = write(tmp_path, **train, **{key.replace("train", "dev"): train[key] for key in train})
    assert task.read(source).task.labels == ("-1", "2", "10", "1.5", "b")


def test_pairs_in_files_of_several_formats(tmp_path):
    source = write(
        tmp_path,
        train_csv='text_a,text_b,label\n"a, a",b,1\nc,"d\nd",0\n',
        dev_jsonl='{"text_a": "e", "text_b": "f\\tg", "label": 1}\n',
        test_tsv="text_b\ttext_a\nh\ti\n",
        more_tsv="text_b\ttext_a\tlabel\nh\ti\t1\n",
    )
    data = TASK.read(source)
    assert (data.task.labels, data.task.pair) == (("0", "1"), True)
    assert data.train == [TextExample("a, a", "b", 1), TextExample("c", "d\nd", 0)]
    assert data.dev == {"dev": [TextExample("e", "f\tg", 1)]}
    assert TASK.read_part(source, "test", data.task) == [TextExample("i", "h", None)]
    assert TASK.read_part(source, "more", data.task) == [TextExample("i", "h", 1)]


def test_rows_to_predict_may_lack_their_label(tmp_path):
    source = write(
        tmp_path,
        test_csv="id,text,label\n1,a,\n2,b,no\n3,, \n",
        more_jsonl='{"text": "a", "label": null}\n{"text": "b"}\n{"text": "c", "label": ["no"]}\n',
    )
    task = ClassifierSettings(("no", "yes"))
    found = {part: TASK.read_part(source, part, task) for part in ("test", "more")}
    assert [(each.first, each.label) for each in found["test"]] == [
        ("a", None),
        ("b", 0),
        ("", None),
    ]
    assert [each.label for each in found["more"]] == [None, None, 0]
    regression = write(tmp_path, scores_csv="text,label\na,\nb,1.5\n")
    numbers = TextRegression().read_part(regression, "scores", RegressorSettings())
    assert [each.label for each in numbers] == [None, 1.5]


@pytest.mark.parametrize(
    ("train", "dev", "words"),
    [
        ("text\tclass\nx\ta\n", DEV, ("train.tsv:1", "label")),
        ("text\tlabel\nx\ta\textra\n", DEV, ("train.tsv:2", "3 columns", "2")),
        ("text\tlabel\nx\ta\n", DEV, ("train.tsv", "two labels")),
        ("text\tlabel\n", DEV, ("train.tsv", "no rows")),
        ("text\tlabel\nx\t0,1\ny\t1,0\n", DEV, ("train.tsv:2", "'0,1'", "--task=multi_label")),
        ("text\tlabel\nx\ta\n\tb\n", DEV, ("train.tsv:3", "empty")),
        ("text\ttext_a\tlabel\nx\ty\ta\n", DEV, ("train.tsv:1", "either text, or text_a")),
        ("text_a\tlabel\nx\ta\n", DEV, ("train.tsv:1", "text_b")),
        ("text\tlabel\nx\ta\ny\tb\n", "text\tlabel\nz\tc\n", ("dev.tsv:2", "'c'", "a, b")),
        ("text\tlabel\nx\ta\ny\tb\n", "text_a\ttext_b\tlabel\nz\tz\ta\n", ("dev.tsv:1", "text")),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, train: str, dev: str, words: tuple[str, ...]):
    with pytest.raises(InputError) as error:
        TASK.read(write(tmp_path, train_tsv=train, dev_tsv=dev))
    assert all(word in str(error.value) for word in words), error.value


VECTORS = [
    ("0,0,1", "1,0,0"),
    ("[0. 0. 1.]", "[1. 0. 0.]"),  # numpy's
    ("0.0,0.0,1.0", "1.0,0.0,0.0"),
    ("true,false,true", "False, False, True"),
    ("['0', '1']", "['1', '0']"),
    ("(0, 1)", "(1, 1)"),
    ("[0 0 1]", "[]"),
    ("tensor([0, 1, 1])", " np.array([1, 0, 0])"),
    ("{0,1,1}", "{1,0,0}"),
    ("0_1_1", "1_0_0"),
    ("0-1-1", "1-0-0"),
    ("0/1/1", "1/0/0"),
]


@pytest.mark.parametrize("labels", VECTORS)
def test_vectors_are_no_names(tmp_path, labels: tuple[str, str]):
    source = write(tmp_path, train_tsv="text\tlabel\n" + "".join(f"x\t{e}\n" for e in labels))
    for task in (TASK, DATASETS["multi_label"]):
        with pytest.raises(InputError, match=r"train.tsv:2: .* hold the names .*--task=multi_lab"):
            task.read(source)


@pytest.mark.parametrize(
    "labels",
    [
        ("0", "1"),
        ("0", "1", "10"),
        ("0.0", "1.0"),
        ("true", "false"),
        ("001", "010"),  # classes by number
        ("0,1", "1,0", "a"),
        ("0 1", "1 0 1"),
        ("1/0", "0/1"),
        ("[]", "()"),
    ],
)
def test_labels_that_are_no_vectors(tmp_path, labels: tuple[str, ...]):
    rows = "text\tlabel\n" + "".join(f"x\t{each}\n" for each in labels)
    data = TASK.read(write(tmp_path, train_tsv=rows, dev_tsv=rows))
    assert data.task.labels == tuple(sorted(labels))


@pytest.mark.parametrize("unit", ["a", "a.", " a", "1a"])
def test_a_cell_of_a_million_characters(unit: str):  # in quadratic time: hours
    row = ("train.tsv:2", ["x", unit * (1_000_000 // len(unit))])
    assert list(named([row], "label")) == [row]


@pytest.mark.parametrize("task", [TASK, DATASETS["multi_label"]])
def test_labels_that_differ_in_case_are_noted(task, tmp_path, capsys):
    rows = "text\tlabel\na\tgood\nb\tGood \nc\tbad\n"
    data = task.read(write(tmp_path, train_tsv=rows, dev_tsv=rows))
    assert data.task.labels == ("Good", "bad", "good")
    assert "only in case are different labels: Good, good. If" in capsys.readouterr().out


def test_labels_that_look_the_same_are_the_same(tmp_path):
    """Composed or not, and with a mark of direction, as Excel writes it."""
    rows = [("a", "für"), ("b", "fu\u0308r"), ("c", "\u200fموجب"), ("d", "موجب\u200f ")]
    content = "text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows)
    data = TASK.read(write(tmp_path, train_tsv=content, dev_tsv=content))
    assert data.task.labels == ("für", "موجب")
    assert [example.label for example in data.train] == [0, 0, 1, 1]


def test_a_list_is_no_label(tmp_path):
    source = write(tmp_path, train_jsonl='{"text": "x", "label": [0, 0, 1]}\n')
    with pytest.raises(
        InputError, match=r"train.jsonl:1: `label` must be text\. .*\[0, 0, 1\]\. W"
    ):
        TASK.read(source)
    with pytest.raises(InputError, match="names of labels are for --task=multi_label"):
        TASK.read(source)


@pytest.mark.parametrize("names", [("review",), ("question", "answer")])
def test_columns_with_names_of_their_own(tmp_path, names: tuple[str, ...]):
    header = "\t".join(["text", *names, "stars"])
    cells = "\t".join(["another", *names])
    source = write(
        tmp_path,
        train_tsv=f"{header}\n{cells}\ta\n{cells}\tb\n",
        dev_tsv=f"{header}\n{cells}\ta\n",
        test_tsv="\t".join(names) + "\n" + "\t".join(names[::-1]) + "\n",
    )
    source = dataclasses.replace(source, reading=Reading(names, "stars"))
    data = TASK.read(source)
    assert (data.task.labels, data.task.pair) == (("a", "b"), len(names) == 2)
    assert data.train == [TextExample(*names, label=0), TextExample(*names, label=1)]
    assert data.dev == {"dev": [TextExample(*names, label=0)]}
    assert TASK.read_part(source, "test", data.task) == [TextExample(*names[::-1])]


def test_columns_that_do_not_exist_are_named_beside_those_that_do(tmp_path):
    source = write(tmp_path, train_tsv="review\tstars\nx\ta\n")
    for reading, missing in (
        (Reading(), "text, label"),
        (Reading(("reviews",)), "reviews, label"),
        (Reading(("review",), "Stars"), "Stars"),
    ):
        with pytest.raises(InputError) as error:
            TASK.read(dataclasses.replace(source, reading=reading))
        assert "train.tsv:1" in str(error.value)
        assert (
            f"Received: ['review', 'stars']; missing or repeated: {missing}. Rename the columns "
            "(or add a header, if the file has none), or train with --text_column and "
            "--label_column."
        ) in str(error.value)


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"train\.tsv or train\.csv or train\.jsonl"):
        TASK.read(Source(str(tmp_path)))


def test_without_a_dev_part_it_is_said_how_to_make_one(tmp_path):
    source = write(tmp_path, train_tsv="text\tlabel\nx\ta\ny\tb\n")
    with pytest.raises(InputNotFoundError, match=r"dev\.tsv .* finetuning.train with --dev_frac"):
        TASK.read(source)


def test_scores_and_predictions_have_the_labels_names(tmp_path):
    predictions = [
        {"label": label, "probabilities": {"no": 0.5, "yes": 0.5}} for label in ("yes", "no")
    ]
    examples = [TextExample("a", None, 1), TextExample("b", None, 1)]
    # Of `no` nothing is right; of `yes` precision 1, recall 1/2.
    assert TASK.score(predictions, examples) == pytest.approx(
        {"accuracy": 1 / 2, "macro_f1": (0 + 2 / 3) / 2}
    )
    # Without a prediction of `no`, it does not count.
    assert TASK.score(predictions[:1], examples[:1]) == {"accuracy": 1.0, "macro_f1": 1.0}
    TASK.write_submission(str(tmp_path / "out.tsv"), predictions, examples)
    assert (tmp_path / "out.tsv").read_text() == "index\tprediction\n0\tyes\n1\tno\n"
