"""A run's log: TensorBoard shows the rows of metrics.jsonl, and only those."""

import collections
import os
import pathlib

import pytest
import tensorflow as tf

from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.metrics_log import MetricsLog, writable_run


def shown(run: RunDir) -> dict[str, list[tuple[int, float]]]:
    """The points of each curve in TensorBoard, in the order of the files."""
    points = collections.defaultdict(list)
    for path in sorted(pathlib.Path(run.tensorboard_path).glob("events.*")):
        for event in tf.compat.v1.train.summary_iterator(str(path)):
            for value in event.summary.value:
                number = float(tf.make_ndarray(value.tensor))
                points[value.tag].append((event.step, pytest.approx(number)))
    return dict(points)


def row(step: int, loss: float) -> dict[str, float]:
    return {"step": step, "loss/mlm": loss}


@pytest.mark.parametrize("name", ["run", "a [1]"])  # the second is a pattern for others
def test_tensorboard_shows_a_step_that_is_repeated_once(tmp_path: pathlib.Path, name: str):
    """A run that resumed at 20 drops what it had logged later, and logs it anew."""
    run = RunDir(str(tmp_path / name))
    os.makedirs(run.path)
    with MetricsLog(run) as log:
        log.rewind(0)
        for step, loss in ((10, 6.0), (20, 5.0), (30, 4.0)):
            log.add(row(step, loss))
    assert shown(run) == {"loss/mlm": [(10, 6.0), (20, 5.0), (30, 4.0)]}
    with MetricsLog(run) as log:
        log.rewind(20)
        log.add(row(30, 4.5) | {"lr": 1e-3})
        log.rewind(30)  # as at a step that is not finite
        log.add(row(40, 3.5))
    assert shown(run) == {
        "loss/mlm": [(10, 6.0), (20, 5.0), (30, 4.5), (40, 3.5)],
        "lr": [(30, 1e-3)],
    }
    assert run.metrics() == [row(10, 6.0), row(20, 5.0), row(30, 4.5) | {"lr": 1e-3}, row(40, 3.5)]


def test_workers_other_than_the_chief_write_elsewhere(tmp_path: pathlib.Path):
    run = RunDir(str(tmp_path / "run"))
    assert writable_run(run, is_chief=True) is run
    other = writable_run(run, is_chief=False)
    assert os.path.isdir(other.path) and not other.path.startswith(str(tmp_path))
    assert os.listdir(tmp_path) == []
