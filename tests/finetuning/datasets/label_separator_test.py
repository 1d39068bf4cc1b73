"""Labels with another mark between them are noted, and names with a mark inside are not."""

import pytest

from finetuning.datasets.multi_label import MultiLabel
from finetuning.datasets.text_classification import TextClassification
from tests.finetuning.datasets.text_classification_test import write


def noted(folder, capsys, task, labels) -> str:
    rows = "text\tlabel\n" + "".join(f"x\t{label}\n" for label in labels)
    task.read(write(folder, train_tsv=rows, dev_tsv=rows))
    lines = [each for each in capsys.readouterr().out.splitlines() if "is read as one" in each]
    assert len(lines) < 2
    return "".join(lines)


@pytest.mark.parametrize(
    ("labels", "mark"),
    [
        (("joy;love", "hate;joy"), ";"),
        (("joy|love", "hate | joy"), "|"),
        (("joy#love", "joy # hate"), "#"),
        (("joy/love", "joy/love"), "/"),  # joy occurs alone
        (("joy;love", "hate"), ";"),
        (("a+b", "b+c", "c+a"), "+"),  # none alone
        (("C#", "C#"), None),  # nothing follows the mark
        (("rock/pop", "hate/fear"), None),  # no part occurs twice
        (("joy;love", "hate;joy,joy"), None),  # a row has several, and love occurs once
        (("joy;love", "hate;joy,joy", "love"), ";"),
        (("1.5", "1", "5"), None),
    ],
)
def test_where_several_labels_are_allowed(tmp_path, capsys, labels, mark):
    note = noted(tmp_path, capsys, MultiLabel(), ("joy", "", *labels))
    assert bool(note) == (mark is not None)
    if mark:
        assert f"train.tsv:4: {labels[0]!r} is read as one label, and " in note
        assert (
            f"label with {mark!r}. If it separates labels, pass --label_separator='{mark}'." in note
        )


@pytest.mark.parametrize(
    "mark", ["#", "|", "||", "::", ">", "->", "~", "\\", "_", " - ", "、", ", "]
)
def test_marks_in_a_file_of_single_labels(tmp_path, capsys, mark: str):
    labels = ("neg", "pos", f"neg{mark}food", f"pos{mark}food")
    note = noted(tmp_path, capsys, TextClassification(), labels)
    assert note == (
        f"note: {tmp_path}/train.tsv:4: {labels[2]!r} is read as one label, and 2 rows have such a "
        f"label with {mark.strip()!r}. If it separates labels, pass --task=multi_label "
        f"--label_separator='{mark.strip()}'."
    )


@pytest.mark.parametrize(
    "labels",
    [
        ("entailment", "not_entailment"),
        ("very positive", "positive", "negative", "very negative"),
        ("card_arrival", "card_linking", "phone_linking"),
        ("sports/golf", "sports/chess", "sports"),
        ("0.5", "0", "5", "-1", "1"),
        ("C", "C++", "C#"),
        ("rock & roll", "rock"),
    ],
)
def test_names_with_marks(tmp_path, capsys, labels):
    assert noted(tmp_path, capsys, TextClassification(), labels) == ""


def test_blanks_between_labels(tmp_path, capsys):
    note = noted(tmp_path, capsys, TextClassification(), ("joy", "love", "joy love"))
    assert note.endswith("pass --task=multi_label --label_separator=' '.")
