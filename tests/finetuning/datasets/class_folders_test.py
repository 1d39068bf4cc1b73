"""Parts with a folder of texts for each class, as in aclImdb."""

import gzip
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError, MachineError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.selection import read_part

TASK = DATASETS["text_classification"]


def write(folder: pathlib.Path, part: str, **texts: str) -> Source:
    """Write a text to `part/class/1.txt` for each class."""
    for label, text in texts.items():
        (folder / part / label).mkdir(parents=True, exist_ok=True)
        (folder / part / label / "1.txt").write_text(text, encoding="utf-8")
    return Source(str(folder))


def test_the_folders_of_a_part_are_its_classes(tmp_path, capsys):
    write(tmp_path, "train", pos="good\n", neg="bad", unsup="unknown")
    (tmp_path / "train" / "pos" / "0.txt.gz").write_bytes(
        gzip.compress(b"\xef\xbb\xbfvery\r\ngood")
    )
    (tmp_path / "train" / "pos" / "._0.txt").write_bytes(b"\0")  # hidden
    (tmp_path / "train" / "urls_pos.txt").write_text("http://")
    source = write(tmp_path, "dev", pos="fine", neg="poor")
    data = TASK.read(source)
    assert data.task.labels == ("neg", "pos")
    assert data.train == [
        TextExample("bad", None, 0),
        TextExample("very\r\ngood", None, 1),
        TextExample("good", None, 1),
    ]
    assert data.dev == {"dev": [TextExample("poor", None, 0), TextExample("fine", None, 1)]}
    note = f"note: {tmp_path}/train/unsup: 1 texts without labels are left out.\n"
    assert capsys.readouterr().err == note
    assert [example.id for example in TASK.read_part(source, "dev", data.task)] == [
        "neg/1.txt",
        "pos/1.txt",
    ]


def test_a_class_that_cannot_be_read_is_an_error(tmp_path, break_folder):
    source = write(tmp_path, "train", pos="good", neg="bad", neutral="so so")
    break_folder(tmp_path / "train" / "neutral")
    with pytest.raises(MachineError, match="train/neutral/' cannot be read: Permission denied"):
        TASK.read(source)


def test_the_dev_part_is_taken_from_the_training_part(tmp_path):
    for number in range(10):
        write(tmp_path, f"{number}", pos=f"good {number}", neg=f"bad {number}")
        for label in ("pos", "neg"):
            (tmp_path / "train" / label).mkdir(parents=True, exist_ok=True)
            old = tmp_path / f"{number}" / label / "1.txt"
            old.rename(tmp_path / "train" / label / f"{number}.txt")
    source = Source(str(tmp_path), reading=Reading(dev_fraction=0.2))
    data = TASK.read(source)
    assert [example.label for example in data.dev["dev"]] == [0, 0, 1, 1]
    again = read_part(TASK, source, "dev", data.task)
    assert [example.first for example in again] == [example.first for example in data.dev["dev"]]


@pytest.mark.parametrize("name", ["validation", "valid", "val"])
def test_the_folder_of_the_dev_part_has_one_of_its_names(tmp_path, name):
    write(tmp_path, "train", pos="good", neg="bad")
    source = write(tmp_path, name, pos="fine", neg="poor")
    assert [example.first for example in TASK.read(source).dev["dev"]] == ["poor", "fine"]
    write(tmp_path, "dev", pos="fine", neg="poor")
    with pytest.raises(InputError, match=f"only one of {tmp_path}/dev and {tmp_path}/{name}: "):
        TASK.read(source)


def test_a_file_is_read_rather_than_folders(tmp_path):
    write(tmp_path, "train", pos="good", neg="bad")
    source = write(tmp_path, "dev", pos="fine", neg="poor")
    (tmp_path / "train.csv").write_text("text,label\nx,pos\ny,neg\n")
    assert [example.first for example in TASK.read(source).train] == ["x", "y"]


def test_a_single_folder_has_no_classes(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"no file train\.tsv"):
        TASK.read(write(tmp_path, "train", pos="good", unsup="unknown"))


def test_an_empty_file_can_only_be_predicted(tmp_path):
    source = write(tmp_path, "train", pos="good", neg=" \n")
    with pytest.raises(InputError, match=f"{tmp_path}/train/neg/1.txt is empty. Write"):
        TASK.read(source)
    task = ClassifierSettings(("neg", "pos"))
    assert [example.first for example in TASK.read_part(source, "train", task)] == ["", "good"]


def test_an_unknown_class_is_named_with_its_file(tmp_path):
    write(tmp_path, "train", pos="good", neg="bad")
    source = write(tmp_path, "dev", pos="fine", other="poor")
    with pytest.raises(InputError, match=f"{tmp_path}/dev/other/1.txt: label 'other' does not"):
        TASK.read(source)


def test_the_columns_have_fixed_names(tmp_path):
    source = write(tmp_path, "train", pos="good", neg="bad")
    source = Source(source.data_dir, reading=Reading(text_column=("review",)))
    with pytest.raises(InputError, match="must name review.*leave out --text_column and"):
        TASK.read(source)
