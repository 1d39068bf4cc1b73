"""Lines that were rejected in Prodigy are left out, and those of other files are not."""

import json

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets.choices.multiple_choice import MultipleChoiceTable
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.multi_label import MultiLabel
from finetuning.datasets.text_classification import TextClassification
from finetuning.datasets.tokens.token_classification import TokenClassification
from tests.finetuning.datasets.text_classification_test import write

TASK = TextClassification()


def table(folder, extension: str, answers: list) -> Source:
    """Texts and labels that are numbers, with an answer each."""
    rows = [{"text": str(i), "label": str(i), "answer": each} for i, each in enumerate(answers)]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    if extension == "csv":
        content = "".join(f"{','.join(map(str, row.values()))}\n" for row in rows)
        content = "text,label,answer\n" + content
    return write(folder, **{f"train_{extension}": content, f"dev_{extension}": content})


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
@pytest.mark.parametrize(
    ("answers", "kept"),
    [
        (["accept", "reject", "accept", "ignore"], ["0", "2"]),
        (["reject", "", "accept"], ["1", "2"]),
        ([" Accept", "REJECT", "accept", "ignore "], ["0", "2"]),
        (["accept", "reject", "why?"], ["0", "1", "2"]),  # not Prodigy's
        (["", "reject"], ["0", "1"]),
        (["yes", "no"], ["0", "1"]),
    ],
)
def test_rejected_lines_are_left_out(tmp_path, capsys, extension, answers, kept):
    data = TASK.read(table(tmp_path, extension, answers))
    assert [example.first for example in data.train] == kept
    rejected = len(answers) - len(kept)
    plain = [each.strip().lower() for each in answers]
    first = plain.index("reject") + (2 if extension == "csv" else 1) if rejected else None
    note = (
        f"{rejected} lines of Prodigy whose `answer` is reject or ignore are left out, the first "
        f"at line {first}.\n"
    )
    printed = capsys.readouterr().err
    assert printed.count(note) == (2 if rejected else 0)  # train and dev
    kept_note = "1 rows have the `answer` reject or ignore, as lines of Prodigy do, but "
    assert printed.count(kept_note) == (2 if "reject" in plain and not rejected else 0)


def test_a_part_to_predict_keeps_its_rows(tmp_path):
    """Unless it has labels: then rejected rows are none."""
    source, rows = write(tmp_path), "a,accept\nb,reject\nc,accept\n"
    (tmp_path / "test.csv").write_text(f"text,answer\n{rows}")
    task = ClassifierSettings(("x", "y"))
    assert [each.first for each in TASK.read_part(source, "test", task)] == ["a", "b", "c"]
    several = MultiLabelSettings(("x",))
    assert len(MultiLabel().read_part(source, "test", several)) == 3
    (tmp_path / "test.csv").write_text("text,label,answer\na,x,accept\nb,y,reject\n")
    assert [each.first for each in TASK.read_part(source, "test", task)] == ["a"]


def test_questions_to_predict_keep_their_rows_and_ids(tmp_path):
    rows = [
        {"question": "Who?", "options": ["x", "y"], "id": i, "answer": answer}
        for i, answer in enumerate(("accept", "reject"))
    ]
    (tmp_path / "test.jsonl").write_text("\n".join(map(json.dumps, rows)))
    source, task = Source(str(tmp_path)), MultipleChoiceSettings()
    examples = MultipleChoiceTable().read_part(source, "test", task)
    assert [example.id for example in examples] == [0, 1]


def test_tokens_to_predict_keep_their_rows(tmp_path):
    source, task = write(tmp_path), TokenSettings(labels=("P",))
    rows = [{"text": t, "id": t * 2, "answer": a} for t, a in (("a", "accept"), ("b", "reject"))]
    for spans, kept in (({}, ["a", "b"]), ({"spans": []}, ["a"])):
        lines = [json.dumps(row | spans) for row in rows]
        (tmp_path / "test.jsonl").write_text("\n".join(lines))
        examples = TokenClassification().read_part(source, "test", task)
        assert [example.text for example in examples] == kept
        assert [example.id for example in examples] == [text * 2 for text in kept]


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_a_file_without_accepted_lines(tmp_path, extension):
    with pytest.raises(
        InputError, match=r"train.* must hold lines that were accepted\. Received: 2 lines of Prod"
    ):
        TASK.read(table(tmp_path, extension, ["reject", "ignore"]))


@pytest.mark.parametrize("answer", ["reject", "IGNORE"])
def test_a_first_line_without_the_key(tmp_path, answer):
    """The first object names the columns: a rejected line must not be trained on unseen."""
    rows = '{"text": "a", "label": "x"}\n{"text": "b", "label": "y", "answer": "%s"}\n'
    with pytest.raises(InputError, match=f"jsonl:2: the first object must have .*{answer}"):
        TASK.read(write(tmp_path, train_jsonl=rows % answer))


def test_the_answer_is_the_label(tmp_path):
    source = table(tmp_path, "csv", ["accept", "reject"])
    data = TASK.read(Source(source.data_dir, reading=Reading(label_column="answer")))
    assert data.task.labels == ("accept", "reject")
