"""The folder of a task in a folder of several, or the folder itself."""

import pathlib

import pytest

from albert_tf.runtime.errors import InputNotFoundError
from finetuning.datasets.task_folders import task_folder


def test_a_task_s_folder(tmp_path: pathlib.Path):
    for name in ("RACE", "SQuAD", "Squad2"):
        (tmp_path / name).mkdir()
    found = {
        task: task_folder(str(tmp_path), task)
        for task in ("race", "race-middle", "race-high", "squad1", "squad2")
    }
    assert {task: pathlib.Path(path).name for task, path in found.items()} == {
        "race": "RACE",
        "race-middle": "RACE",
        "race-high": "RACE",
        "squad1": "SQuAD",
        "squad2": "Squad2",
    }


def test_the_only_task_s_files_may_be_in_the_folder_itself(tmp_path: pathlib.Path):
    folder = str(tmp_path)
    (tmp_path / "notes.txt").touch()
    words = "no folder cola in .* and no training part in that folder itself .*contains notes.txt"
    with pytest.raises(InputNotFoundError, match=words):
        task_folder(folder, "cola", is_only=True)
    (tmp_path / "train.tsv.gz").touch()
    assert task_folder(folder, "cola", is_only=True) == folder
    with pytest.raises(InputNotFoundError, match=r"no folder cola in '[^']*' \(working"):
        task_folder(folder, "cola")
    (tmp_path / "CoLA").mkdir()
    assert task_folder(folder, "cola", is_only=True) == str(tmp_path / "CoLA")


def test_a_folder_without_the_task_lists_a_few_names(tmp_path: pathlib.Path):
    for number in range(1007):
        (tmp_path / f"{number:04}.txt").touch()
    with pytest.raises(
        InputNotFoundError, match=r"contains 0000.txt, .*0004.txt and 1,002 more\.$"
    ):
        task_folder(str(tmp_path), "cola")
