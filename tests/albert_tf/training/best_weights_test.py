"""The best weights: which they are, when they go, and that a restart decides alike."""

import math
import pathlib

import pytest
import tensorflow as tf

from albert_tf.training.best_weights import BestWeights

EVALUATIONS = {2: 3.0, 4: math.nan, 6: 2.0, 8: 2.0, 10: 4.0, 12: 4.0}
ROWS = [{"step": step, "m": value} for step, value in EVALUATIONS.items()]


def best_weights(folder: pathlib.Path, lower: bool) -> tuple[tf.Variable, BestWeights]:
    variable, path = tf.Variable(0), str(folder)
    checkpoint = tf.train.Checkpoint(variable=variable)
    return variable, BestWeights(checkpoint, path, path, "m", lower, patience=2)


def kept(folder: pathlib.Path) -> list[str]:
    return sorted(path.stem for path in folder.glob("*.index"))


@pytest.mark.parametrize(
    ("lower", "is_best", "exhausted"), [(True, {2, 6}, {10, 12}), (False, {2, 10}, {6, 8})]
)
def test_the_first_of_equal_best_values_is_saved_until_patience_ends(
    tmp_path: pathlib.Path, lower: bool, is_best: set, exhausted: set
):
    """The first of equals; NaN is never better."""
    variable, best = best_weights(tmp_path, lower)
    found, ended = set(), set()
    for step, value in EVALUATIONS.items():
        variable.assign(step)
        found |= {step} if best.add(step, value) else set()
        ended |= {step} if best.is_exhausted else set()
    assert (found, ended) == (is_best, exhausted)
    best.drop_older()
    assert kept(tmp_path) == [f"ckpt-{max(is_best)}"]
    best.restore()
    assert int(variable) == max(is_best)


def test_rewinding_drops_later_weights_and_repeats_the_decisions(tmp_path: pathlib.Path):
    """To step 4: what was kept at 6 goes, what was the best at 2 is there."""
    variable, best = best_weights(tmp_path, lower=True)
    for step, value in list(EVALUATIONS.items())[:3]:
        variable.assign(step)
        best.add(step, value)
    assert kept(tmp_path) == ["ckpt-2", "ckpt-6"]
    variable, best = best_weights(tmp_path, lower=True)
    best.rewind(ROWS, 4)
    assert (best.value, best.step, best.stale, kept(tmp_path)) == (3.0, 2, 1, ["ckpt-2"])
    best.restore()
    assert int(variable) == 2


def test_nan_is_never_the_best_value(tmp_path: pathlib.Path):
    _, best = best_weights(tmp_path, lower=True)
    assert not best.add(1, math.nan) and (best.value, best.step, best.stale) == (None, 0, 1)
    best.rewind([{"step": 1, "m": math.nan}], 1)
    assert (best.value, best.step, best.stale) == (None, 0, 1)


def test_of_equal_values_the_lower_loss_or_the_later_step_is_best(tmp_path: pathlib.Path):
    """The lower loss wins; without losses, the later one. Neither prolongs the patience of 3."""
    losses = {2: 0.5, 4: 0.6, 6: 0.4, 8: 0.4}
    for name, known, wanted in (("losses", losses, [2, 6]), ("none", {}, [2, 4, 6, 8])):
        folder = tmp_path / name
        variable = tf.Variable(0)
        checkpoint = tf.train.Checkpoint(variable=variable)
        best = BestWeights(checkpoint, str(folder), str(folder), "m", False, 3, loss="l")
        assert [step for step in losses if best.add(step, 1.0, known.get(step))] == wanted
        assert best.stale == 3 and best.is_exhausted
        rows = [{"step": s, "m": 1.0} | ({"l": known[s]} if known else {}) for s in losses]
        best.rewind(rows, 8)
        assert (best.step, best.stale) == (wanted[-1], 3)
        assert best.add(10, 2.0, 9.0) and best.stale == 0
