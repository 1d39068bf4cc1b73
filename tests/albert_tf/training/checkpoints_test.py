"""A run's checkpoints: which are kept, which are read, and that they can be moved."""

import errno
import os
import pathlib

import pytest
import tensorflow as tf

from albert_tf.models.checkpoints import latest_in
from albert_tf.runtime.errors import MachineError
from albert_tf.runtime.files import outputs
from albert_tf.training.checkpoints import Checkpoints


def saved(folder: pathlib.Path, keep: int = 1) -> tuple[tf.Variable, Checkpoints]:
    variable = tf.Variable(0)
    state = tf.train.Checkpoint(variable=variable)
    return variable, Checkpoints(state, str(folder), str(folder), keep)


def names(folder: pathlib.Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.index"))


def test_saving_leaves_the_latest_and_the_requested_checkpoints(tmp_path: pathlib.Path):
    variable, checkpoints = saved(tmp_path)
    for step, also_keep in ((4, None), (6, 4)):
        variable.assign(step)
        checkpoints.save(step, also_keep)
    assert names(tmp_path) == ["ckpt-4", "ckpt-6"]
    assert (checkpoints.restore(until=5), int(variable)) == (4, 4)
    assert checkpoints.restore(until=3) is None
    checkpoints.save(5)  # 6 is of a past that training has left
    assert names(tmp_path) == ["ckpt-5"]
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-5")


@pytest.mark.parametrize("name", ["a [1]", "b*", "c?", "d\\e", "ü n", "~", "x:2,y"])
def test_the_folder_may_have_any_name(tmp_path: pathlib.Path, name: str):
    """TensorFlow reads a path as a glob, and one like `a [1]` does not match itself."""
    (tmp_path / "a 1").mkdir()  # it matches `a 1`
    folder = tmp_path / name / "of run" / name
    variable, checkpoints = saved(folder, keep=2)
    for step in (1, 2, 3):
        variable.assign(step)
        checkpoints.save(step)
    assert names(folder) == ["ckpt-2", "ckpt-3"]
    assert latest_in(str(folder)) == str(folder / "ckpt-3")
    again, checkpoints = saved(folder)
    assert (checkpoints.restore(), int(again)) == (3, 3)
    (folder / "ckpt-3.index").unlink()
    assert latest_in(str(folder)) is None
    assert (checkpoints.restore(), int(again)) == (2, 2)


def test_a_torn_later_checkpoint_does_not_displace_a_new_one(tmp_path: pathlib.Path):
    variable, checkpoints = saved(tmp_path)
    for step in (8, 12):
        checkpoints.save(step, also_keep=8)
    (tmp_path / "ckpt-12.index").write_bytes(b"torn")
    assert checkpoints.restore() == 8
    variable.assign(10)
    checkpoints.save(10, also_keep=8)
    assert names(tmp_path) == ["ckpt-10", "ckpt-8"]
    assert (checkpoints.restore(), int(variable)) == (10, 10)


def test_the_file_that_names_the_latest_can_be_written_anew(tmp_path: pathlib.Path):
    variable, checkpoints = saved(tmp_path, keep=2)
    for step in (2, 4):
        variable.assign(step)
        checkpoints.save(step)
    (tmp_path / "checkpoint").write_bytes(b"")  # a power cut
    again, checkpoints = saved(tmp_path, keep=2)
    assert latest_in(str(tmp_path)) == str(tmp_path / "ckpt-4")
    assert (checkpoints.restore(), int(again)) == (4, 4)


def test_a_checkpoint_is_on_the_disk_before_earlier_ones_are_removed(
    tmp_path: pathlib.Path, monkeypatch
):
    _, checkpoints = saved(tmp_path, keep=1)
    checkpoints.save(1)
    found = []
    monkeypatch.setattr(outputs, "sync_all", lambda folder: found.append(names(tmp_path)))
    checkpoints.save(2)
    assert found == [["ckpt-1", "ckpt-2"]] and names(tmp_path) == ["ckpt-2"]


def test_only_the_checkpoint_of_the_step_is_dropped(tmp_path: pathlib.Path):
    """Not those of 10 and 100 with that of 1."""
    variable, checkpoints = saved(tmp_path, keep=2)
    for step in (1, 10, 100):
        variable.assign(step)
        checkpoints.save(step)
    assert names(tmp_path) == ["ckpt-10", "ckpt-100"]
    again, checkpoints = saved(tmp_path)
    assert (checkpoints.restore(), int(again)) == (100, 100)
    assert (checkpoints.restore(until=99), int(again)) == (10, 10)


def test_a_kill_while_one_is_dropped_leaves_none_without_its_data(
    tmp_path: pathlib.Path, monkeypatch
):
    """Its index goes first, since a checkpoint is there if that is."""
    _, checkpoints = saved(tmp_path, keep=2)
    checkpoints.save(1)
    checkpoints.save(2)
    remove = os.remove

    def killed(path: str) -> None:
        remove(path)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "remove", killed)
    with pytest.raises(KeyboardInterrupt):
        checkpoints.drop(lambda step: step == 1)
    assert names(tmp_path) == ["ckpt-2"] and len([*tmp_path.glob("ckpt-1.*")]) == 1
    assert checkpoints.restore(until=1) is None


@pytest.mark.parametrize("is_relative", [False, True])
def test_a_run_can_be_moved(tmp_path: pathlib.Path, monkeypatch, is_relative: bool):
    monkeypatch.chdir(tmp_path)
    _, checkpoints = saved(pathlib.Path("here") if is_relative else tmp_path / "here")
    for step in (1, 2, 3):
        checkpoints.save(step)
    (tmp_path / "here").rename(tmp_path / "there")
    latest = tf.train.latest_checkpoint(str(tmp_path / "there"))
    assert latest == str(tmp_path / "there" / "ckpt-3")


def test_restoring_names_a_checkpoint_that_a_kill_left_unnamed(tmp_path: pathlib.Path):
    """Readers of the run go by the file `checkpoint`, which is written last."""
    _, checkpoints = saved(tmp_path, keep=2)
    checkpoints.save(1)
    before = (tmp_path / "checkpoint").read_bytes()
    checkpoints.save(2)
    (tmp_path / "checkpoint").write_bytes(before)
    state, other = tf.train.Checkpoint(variable=tf.Variable(0)), tmp_path / "other"
    assert Checkpoints(state, str(tmp_path), str(other), keep=2).restore() == 2
    assert (tmp_path / "checkpoint").read_bytes() == before  # only the chief writes
    assert not (other / "checkpoint").exists()
    _, checkpoints = saved(tmp_path, keep=2)
    assert checkpoints.restore() == 2
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-2")
    assert checkpoints.restore(until=1) == 1
    assert tf.train.latest_checkpoint(str(tmp_path)) == str(tmp_path / "ckpt-1")


def test_nothing_is_left_of_a_checkpoint_that_could_not_be_written(tmp_path: pathlib.Path):
    _, checkpoints = saved(tmp_path, keep=2)
    checkpoints.save(1)
    (tmp_path / "checkpoint").unlink()
    (tmp_path / "checkpoint").mkdir()  # so that the last of its files cannot be written
    with pytest.raises(MachineError, match="checkpoint 2 could not be written"):
        checkpoints.save(2)
    assert names(tmp_path) == ["ckpt-1"] and not [*tmp_path.glob("ckpt-2*")]


def test_a_checkpoint_that_does_not_reach_the_disk_is_not_named(
    tmp_path: pathlib.Path, monkeypatch
):
    _, checkpoints = saved(tmp_path, keep=2)
    checkpoints.save(1)

    def full(folder: str) -> None:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(outputs, "sync_all", full)
    with pytest.raises(MachineError, match=r"2 could not be written \(Disk quota exceeded"):
        checkpoints.save(2)
    assert latest_in(str(tmp_path)) == str(tmp_path / "ckpt-1")
    assert not [*tmp_path.glob("ckpt-2*")]
