"""Lines that were rejected in Prodigy are left out, and those of other files are not."""

import json

import pytest

from albert_tf.runtime.errors import InputError
from finetuning.datasets.task import Reading, Source
from finetuning.datasets.text_classification import TextClassification
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
        (["accept", "reject", "why?"], ["0", "1", "2"]),  # not Prodigy's
        (["", "reject"], ["0", "1"]),
        (["yes", "no"], ["0", "1"]),
    ],
)
def test_what_was_rejected_is_left_out(tmp_path, capsys, extension, answers, kept):
    data = TASK.read(table(tmp_path, extension, answers))
    assert [example.first for example in data.train] == kept
    rejected = len(answers) - len(kept)
    first = answers.index("reject") + (2 if extension == "csv" else 1) if rejected else None
    note = (
        f"{rejected} lines of Prodigy whose `answer` is reject or ignore are left out, the first "
        f"at line {first}.\n"
    )
    assert capsys.readouterr().err.count(note) == (2 if rejected else 0)  # train and dev


@pytest.mark.parametrize("extension", ["csv", "jsonl"])
def test_a_file_without_accepted_lines(tmp_path, extension):
    with pytest.raises(
        InputError, match=r"train.* must hold lines that were accepted\. Received: 2 lines of Prod"
    ):
        TASK.read(table(tmp_path, extension, ["reject", "ignore"]))


def test_the_answer_is_the_label(tmp_path):
    source = table(tmp_path, "csv", ["accept", "reject"])
    data = TASK.read(Source(source.data_dir, reading=Reading(label_column="answer")))
    assert data.task.labels == ("accept", "reject")
