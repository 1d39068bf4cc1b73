"""The log of a training run: its figures by hand, the FLOPs of a step, and what is profiled."""

import contextlib
import os
import pathlib
from collections.abc import Iterator

import pytest
import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.run_dir import RunDir
from data.records.manifest import Counts, Manifest
from pretraining.loop.config import resolve
from pretraining.loop.recipes import SMOKE
from pretraining.loop.train_step import make_optimizer
from pretraining.loop.training_log import TrainingLog, step_flops

MANIFEST = Manifest(
    1, "compact", 128, 8000, (0, 1, 2, 3, 4), "tokenizer", "corpus", (10,), Counts(), "{}"
)
CONFIG = resolve(SMOKE, [], MANIFEST)  # batches of 16, a rate of 0.01 after 10 steps
SUMS = {
    **{"mlm_loss": 60.0, "mlm_correct": 5.0, "mlm_count": 20.0},
    **{"pair_loss": 6.0, "pair_correct": 4.0, "pair_count": 8.0},
}


class FakeRuntime:
    """Devices of a known or unknown peak, which note what is profiled."""

    def __init__(self, peak: float | None = None) -> None:
        self.peak, self.profiles = peak, []

    def peak_flops(self, precision: str) -> float | None:
        assert precision == CONFIG.precision
        return self.peak

    @contextlib.contextmanager
    def profiled(self, path: str) -> Iterator[None]:
        self.profiles.append(path)
        yield


def log_of(folder: pathlib.Path, runtime: FakeRuntime, steps: int = 0) -> TrainingLog:
    """The log of a run that is after so many steps."""
    run, optimizer = RunDir(str(folder / "run")), make_optimizer(CONFIG)
    os.makedirs(run.path)
    weight = tf.Variable([1.0])
    for _ in range(steps):
        optimizer.apply_gradients([(tf.constant([1.0]), weight)])
    return TrainingLog(run, CONFIG, MANIFEST, optimizer, runtime)


def test_the_figures_of_a_row(tmp_path: pathlib.Path):
    """Ten steps in two seconds, of which two were skipped: they have no gradient's norm.

    The rate is that of the last step, number 5 of a warm-up of 10.
    """
    flops = step_flops(CONFIG.model, 16, 128, 19)  # 15 % of 128 pieces are predicted
    with log_of(tmp_path, FakeRuntime(10 * flops), steps=6) as log:
        log.rewind(0)
        sums = SUMS | {"grad_norm": 4.0, "skipped": 2.0}
        log.write(20, 10, sums, 2.0, {"heldout/loss/mlm": 3.5})
    (row,) = RunDir(str(tmp_path / "run")).metrics()
    assert row == pytest.approx(
        {
            "step": 20,
            **{"loss/mlm": 3.0, "accuracy/mlm": 0.25, "loss/pair": 0.75, "accuracy/pair": 0.5},
            **{"lr": 0.005, "grad_norm": 0.5, "skipped": 2},
            **{"sequences_per_s": 5 * 16, "tokens_per_s": 5 * 16 * 128, "step_ms": 200},
            "flops_utilisation": 0.5,
            "heldout/loss/mlm": 3.5,
        }
    )


def test_a_row_of_skipped_steps_on_unknown_devices(tmp_path: pathlib.Path):
    """Without losses, which no step had."""
    with log_of(tmp_path, FakeRuntime()) as log:
        log.rewind(0)
        log.write(2, 2, dict.fromkeys(SUMS, 0.0) | {"grad_norm": 0.0, "skipped": 2.0}, 1.0, {})
    (row,) = RunDir(str(tmp_path / "run")).metrics()
    assert (row["grad_norm"], row["skipped"]) == (0, 2)
    assert not {"loss/mlm", "accuracy/pair", "flops_utilisation"} & row.keys()


@pytest.mark.parametrize(("embedding_size", "others"), [(1, 8 + 24 + 8), (2, 48 + 8)])
def test_flops_of_a_step_are_those_of_the_products(embedding_size: int, others: int):
    """By hand: H = 2 in one head, an inner width of 3, 4 positions, 2 of which are predicted.

    A layer has for each position query, key and value 3 x 2 x 2, output 2 x 2, feed-forward
    2 x 2 x 3, and 2 x 4 x 2 of logits and context. Beside the layers are the projection of the
    embeddings 4 x E x 2, unless E is H, then for each prediction 2 x E + E x 10, and the pooler
    with its two classes 2 x 2 + 2 x 2. A multiply-add is two, and backwards there are two products
    for each.
    """
    sizes = {"hidden_size": 2, "num_heads": 1, "intermediate_size": 3, "max_positions": 4}
    sizes |= {"vocab_size": 10, "embedding_size": embedding_size, "num_layers": 3}
    config = AlbertConfig(**sizes)
    products = 3 * 4 * (12 + 4 + 12 + 16) + others
    assert step_flops(config, 5, 4, 2) == 3 * 5 * 2 * products


@pytest.mark.parametrize("is_enabled", [True, False])
def test_the_second_loop_is_profiled(tmp_path: pathlib.Path, is_enabled: bool):
    """The first one compiles."""
    runtime = FakeRuntime()
    log, after = log_of(tmp_path, runtime), []
    for _ in range(3):
        with log.profiled(is_enabled):
            after.append(len(runtime.profiles))
    assert after == ([0, 1, 1] if is_enabled else [0, 0, 0])
    run = RunDir(str(tmp_path / "run"))
    assert runtime.profiles == [run.tensorboard_path] * is_enabled
