"""Own questions with any number of options, and SWAG's; what does not fit is named by row."""

import json
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from finetuning.datasets import DATASETS
from finetuning.datasets.choices.multiple_choice import MultipleChoiceTable
from finetuning.datasets.dataset import Reading, Source
from tests.finetuning.datasets.text_classification_test import write

TASK = MultipleChoiceTable()
HEADER = "question,context,option_a,option_b,option_c,label\n"
TRAIN = HEADER + 'Which?,"A b, c.",x,y,z,B\nWhy?,,so,it is,,so\n'
DEV = "question,option_a,option_b,option_c,option_d,label\nHow?,1,2,3,four,D\n"


def lines(*rows: dict) -> str:
    return "\n".join(map(json.dumps, rows)) + "\n"


def test_columns_of_options(tmp_path, capsys):
    """The label is a letter or a text; the dev part has another number of options."""
    data = TASK.read(write(tmp_path, train_csv=TRAIN, dev_csv=DEV))
    assert data.train == [
        ChoiceExample("Which?", "A b, c.", ("x", "y", "z"), 1),
        ChoiceExample("Why?", "", ("so", "it is"), 0),
    ]
    assert data.dev == {"dev": [ChoiceExample("How?", "", ("1", "2", "3", "four"), 3)]}
    assert (data.task.kind, data.task.num_choices) == ("multiple_choice", 3)
    assert capsys.readouterr().out == (
        "train: 2 questions with 2 to 3 options\ndev: 1 questions with 4 to 4 options\n"
    )


def test_lists_of_options(tmp_path):
    """The context may be missing, in the first object too."""
    source = write(
        tmp_path,
        train_jsonl=lines(
            {"question": "Why?", "options": ["so", "not so"], "label": "A"},
            {"question": "How?", "options": ["a", "b", "c"], "label": "c", "context": "It."},
            {"context": None, "label": "not so ", "question": "Q", "options": ["", "not so"]},
        ),
        dev_tsv="label\toption_a\toption_b\tquestion\nA\tx\ty\t?\n",
        test_jsonl=lines({"question": "", "options": ["a", "b"]}),
    )
    data = TASK.read(source)
    assert data.train == [
        ChoiceExample("Why?", "", ("so", "not so"), 0),
        ChoiceExample("How?", "It.", ("a", "b", "c"), 2),
        ChoiceExample("Q", "", ("", "not so"), 1),
    ]
    assert data.dev["dev"] == [ChoiceExample("?", "", ("x", "y"), 0)]
    assert TASK.read_part(source, "test", data.task) == [ChoiceExample("", "", ("a", "b"))]
    assert TASK.read_part(source, "dev", data.task) == data.dev["dev"]


def test_integers_of_json_are_indices(tmp_path):
    """Also where an option is another number; in quotes and in tables they are texts."""
    row = {"question": "1 + 1", "context": 1815, "options": ["1", "2"]}
    labels = (0, 1, "1", "2", "B")
    source = write(
        tmp_path,
        train_jsonl=lines(*(row | {"label": label} for label in labels)),
        dev_csv="question,option_a,option_b,label\n1 + 1,1,2,1\n",
        test_jsonl=lines(row | {"label": None}, row | {"label": 1}),
    )
    data = TASK.read(source)
    assert [each.label for each in data.train] == [0, 1, 0, 1, 1]
    assert {each.context for each in data.train} == {"1815"}
    assert [each.label for each in data.dev["dev"]] == [0]
    assert [each.label for each in TASK.read_part(source, "test", data.task)] == [None, 1]


def test_another_column_of_labels(tmp_path):
    source = write(tmp_path, train_csv=TRAIN.replace("label", "key"), dev_csv=DEV)
    (tmp_path / "dev.csv").write_text(DEV.replace("label", "key"))
    data = TASK.read(Source(source.data_dir, reading=Reading(label_column="key")))
    assert [example.label for example in data.train] == [1, 0]
    with pytest.raises(InputError, match="--text_column is not for --task=multiple_choice"):
        TASK.read(Source(source.data_dir, reading=Reading(text_column=("question",))))


def question(**changes) -> str:
    fine = {"question": "Why?", "options": ["so", "not"], "label": "A"}
    return lines(fine, fine | changes)


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"train_csv": TRAIN + "Q,,x,,,A\n"}, ("train.csv:4", "at least two options", "'Q'")),
        ({"train_csv": TRAIN + "Q,,x,,z,A\n"}, ("train.csv:4", "`option_b` is empty", "later")),
        ({"train_csv": TRAIN + "Q,,x,y,,C\n"}, ("train.csv:4", "(A, B)", "'C'", "none of")),
        ({"train_csv": TRAIN + "Q,,x,y,,a\n"}, ("train.csv:4", "'a'")),
        ({"train_csv": TRAIN + "Q,,x,x,,x\n"}, ("train.csv:4", "'x'", "several of")),
        ({"train_csv": TRAIN + "Q,,B,A,,A\n"}, ("train.csv:4", "'A'", "several of")),
        ({"train_csv": TRAIN + "Q,,x,y,,\n"}, ("train.csv:4", "`label` is empty")),
        ({"train_csv": TRAIN + ",,x,y,,A\n"}, ("train.csv:4", "`question` is empty")),
        ({"train_csv": "question,option_a,label\nQ,x,A\n"}, ("train.csv:1", "option_b")),
        ({"train_csv": "question,option_a,option_c,label\nQ,x,y,A\n"}, ("train.csv:1", "option_b")),
        ({"train_csv": "question,option_a,option_b\nQ,x,y\n"}, ("train.csv:1", "label")),
        (
            {"train_csv": "question,option_1,option_2,label\nQ,x,y,A\n"},
            ("option_2", "for the options: option_a, option_b and so on"),
        ),
        ({"train_csv": HEADER}, ("train.csv", "no rows")),
        ({"train_csv": TRAIN, "dev_csv": DEV + "Q,x,,,,A\n"}, ("dev.csv:3", "two options")),
        ({"train_jsonl": question(options=["so"])}, ("train.jsonl:2", "two options", "['so']")),
        ({"train_jsonl": question(options=["so", 3])}, ("train.jsonl:2", "which are texts")),
        ({"train_jsonl": question(options="so")}, ("train.jsonl:2", "`options` must be a list")),
        ({"train_jsonl": question(options=None)}, ("train.jsonl:2", "`options` must be a list")),
        ({"train_jsonl": question(label=None)}, ("train.jsonl:2", "`label` is empty")),
        ({"train_jsonl": question(label="0")}, ("train.jsonl:2", "'0'", "write A for the first")),
        ({"train_csv": TRAIN + "Q,,x,y,,1\n"}, ("train.csv:4", "'1'", "write A for the first")),
        ({"train_jsonl": question(label=2)}, ("train.jsonl:2", "from 0 to 1", "Received: 2 ")),
        ({"train_jsonl": question(label=-1)}, ("train.jsonl:2", "Received: -1 ", "write null")),
        ({"train_jsonl": question(label=True)}, ("train.jsonl:2", "'true'")),
        ({"train_jsonl": question(label=1.0)}, ("train.jsonl:2", "'1.0'")),
        ({"train_jsonl": question(label=["A"])}, ("train.jsonl:2", "`label` must be text")),
        ({"train_jsonl": question(context=[1])}, ("train.jsonl:2", "`context` must be text")),
        ({"train_jsonl": question(question=7.5).replace("7.5", "[]")}, ("train.jsonl:2", "text")),
        ({"train_jsonl": lines({"question": "Q", "label": "A"})}, ("train.jsonl:1", "options")),
    ],
)
def test_rows_that_do_not_fit_are_named(tmp_path, files: dict, words: tuple[str, ...]):
    with pytest.raises(InputError) as error:
        TASK.read(write(tmp_path, **{"dev_csv": DEV} | files))
    assert all(word in str(error.value) for word in words), error.value


def test_questions_without_a_context_are_divided(tmp_path):
    """Into a training and a dev part; the same question is in one of them."""
    rows = "".join(f"Q{i // 2},x,y,{'AB'[i % 2]}\n" for i in range(200))
    source = write(tmp_path, train_csv="question,option_a,option_b,label\n" + rows)
    data = TASK.read(Source(source.data_dir, reading=Reading(dev_fraction=0.2)))
    train, dev = ({each.question for each in part} for part in (data.train, data.dev["dev"]))
    assert 8 < len(dev) < 32 and not train & dev


def test_scores_and_predictions(tmp_path):
    predictions = [{"choice": 0, "label": "A"}, {"choice": 26, "label": "AA"}]
    examples = [ChoiceExample("q", "", ("x", "y"), label) for label in (0, 1)]
    assert TASK.score(predictions, examples) == {"accuracy": 0.5}
    TASK.write_submission(str(tmp_path / "out.tsv"), predictions, examples)
    assert (tmp_path / "out.tsv").read_text() == "index\tprediction\n0\tA\n1\tAA\n"


SWAG = ",video-id,fold-ind,startphrase,sent1,sent2,gold-source,ending0,ending1,ending2,ending3"
ROW = '0,v,1,"A man, old, sits. He","A man, old, sits.",He,gold,stands.,runs.,eats.,sings.'
EXAMPLE = ("He", "A man, old, sits.", ("stands.", "runs.", "eats.", "sings."))


def swag(folder: pathlib.Path, label: str = "2", parts: tuple[str, ...] = ("train", "val")):
    for part in parts:
        (folder / f"{part}.csv").write_text(f"{SWAG},label\n{ROW},{label}\n")
    (folder / "test.csv").write_text(f"{SWAG}\n{ROW}\n")
    return Source(str(folder))


def test_swag(tmp_path: pathlib.Path):
    source, task = swag(tmp_path), DATASETS["swag"]
    data = task.read(source)
    assert data.train == data.dev["dev"] == [ChoiceExample(*EXAMPLE, 2)]
    assert data.task.num_choices == 4
    assert task.read_part(source, "test", data.task) == [ChoiceExample(*EXAMPLE)]
    assert task.read_part(source, "dev", data.task) == data.train
    assert task.score([{"choice": 2}], data.train) == {"accuracy": 1.0}
    with pytest.raises(InputError, match=r"train.csv:2: label must be 0, 1, 2 or 3. .* '4'"):
        task.read(swag(tmp_path, "4"))
    (tmp_path / "val.csv").unlink()
    with pytest.raises(InputNotFoundError, match=r"dev\.csv .*valid or val, "):
        task.read(swag(tmp_path, parts=("train",)))
