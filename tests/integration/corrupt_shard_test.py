"""A shard that is damaged while a run trains on it: named, or with --skip_corrupt counted."""

import dataclasses
import glob
import os
import pathlib
import re
import shutil

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from pretraining import train
from pretraining.loop.training_log import TrainingLog

# An epoch of the records has about 75 steps of 16: the second one meets the damage.
VALUES = (
    "loop.steps=100",
    "loop.steps_per_loop=10",
    "loop.checkpoint_every=10",
    "model.num_layers=1",
    "model.max_positions=32",
)


def damage(shard: str) -> None:
    """Turns the bits of a byte two thirds into the file."""
    with open(shard, "r+b") as file:
        file.seek(os.path.getsize(shard) * 2 // 3)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 0xFF]))


@pytest.mark.slow
def test_a_shard_is_damaged_in_mid_run(
    tiny_records: str, tmp_path: pathlib.Path, monkeypatch, capfd
):
    records, run = str(tmp_path / "records"), RunDir(str(tmp_path / "run"))
    shutil.copytree(tiny_records, records)
    (shard,) = glob.glob(f"{records}/*.tfrecord")
    options = train.TrainOptions(records, run.path, "smoke", device="cpu", set=VALUES)
    written = TrainingLog.write

    def write_and_damage(self: TrainingLog, step: int, *rest: object) -> None:
        written(self, step, *rest)
        if step == 20:
            damage(shard)

    with monkeypatch.context() as patched:
        patched.setattr(TrainingLog, "write", write_and_damage)
        with pytest.raises(InputError, match=rf"{shard}' is damaged at record \d+ of"):
            train.main(options)
    last = run.metrics()[-1]["step"]
    assert 20 <= last < 100 and not run.is_complete

    train.main(dataclasses.replace(options, skip_corrupt=True))
    assert [row["step"] for row in run.metrics()] == list(range(10, 101, 10))
    printed = capfd.readouterr()
    assert f"continuing at step {last}" in printed.out
    lost, total = re.findall(r"is damaged: (\d+) of (\d+) records cannot be read", printed.err)[0]
    # Of records of about the same length, those behind two thirds.
    assert 0.2 < int(lost) / int(total) < 0.5
