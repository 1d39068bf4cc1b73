"""Tests that a step is the same on any number of cores."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.config import AlbertConfig
from albert_tf.models.kernels import packing
from albert_tf.models.pretrainer import AlbertPretrainer
from benchmarks.workloads import WORKLOADS, random_batch
from data.objectives.registry import ObjectiveConfig
from pretraining.loop import train_step
from pretraining.loop.config import LoopConfig, OptimizerConfig, PretrainConfig
from pretraining.loop.train_step import TrainStep, make_optimizer

WORKLOAD = dataclasses.replace(WORKLOADS["tiny"], batch_size=6)
ONE_LAYER = WORKLOAD.model.replace(num_layers=1)


@pytest.mark.parametrize(
    ("preset", "rows", "length", "at_most", "parts"),
    [
        ("albert-base-v2", 8, 128, 8, 2),  # 512 pieces a part
        ("albert-base-v2", 32, 512, 16, 16),
        ("albert-base-v2", 7, 512, 4, 1),  # 7 rows have no equal parts
        ("albert-base-v2", 6, 512, 4, 3),
        ("albert-xxlarge-v2", 32, 512, 16, 1),  # 8,904 pieces a part: a gradient has 0.9 GB
        ("albert-xxlarge-v2", 64, 512, 16, 2),
    ],
)
def test_how_many_parts(preset, rows, length, at_most, parts):
    model = AlbertConfig.from_preset(preset)
    assert train_step.parts_of_batch(model, rows, length, at_most) == parts
    chunked = model.replace(rematerialize=True, rematerialize_chunks=2)
    assert train_step.parts_of_batch(chunked, rows, length, at_most) == 1


def sums_and_gradients(
    model: AlbertPretrainer,
    cores: int,
    parts: int = 1,
    objective: ObjectiveConfig | None = None,
    smallest_part: int = 512,
    make_step: type[TrainStep] = TrainStep,
    lengths: tuple[int, ...] = (),
    kernels: str = "auto",
) -> list[np.ndarray]:
    loop = LoopConfig(accumulation_steps=parts, kernels=kernels)
    config = PretrainConfig(model=model.config, loop=loop, objective=objective or ObjectiveConfig())
    step = make_step(model, make_optimizer(config), config, cores, smallest_part)
    values = random_batch(WORKLOAD)
    if lengths:
        ends = np.array(lengths)[:, None]
        values["input_mask"] = (np.arange(WORKLOAD.seq_length) < ends).astype(np.int32)
        values["masked_lm_weights"] = (values["masked_lm_positions"] < ends).astype(np.float32)
    batch = {name: tf.constant(value) for name, value in values.items()}
    counts = tf.constant([18.0, 6.0])
    compute = tf.function(step._accumulated, autograph=False)
    sums, gradients = compute(batch, counts, tf.constant([5, 7]))
    return [each.numpy() for each in (sums, *gradients)]


@pytest.mark.parametrize(
    ("parts", "cores"),
    [
        (1, 3),
        *(
            pytest.param(parts, cores, marks=pytest.mark.slow)
            for parts, cores in [(1, 2), (1, 4), (2, 2), (2, 3), (2, 4)]
        ),
    ],
)
def test_any_number_of_cores_gives_the_same(parts, cores):
    """With dropout: a part's masks are its rows of the whole batch's. Four cores share 6 rows as 3
    do, and 3 rows too."""
    dropout = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
    model = AlbertPretrainer(ONE_LAYER.replace(**dropout)).create_weights()
    one = sums_and_gradients(model, 1, parts)
    largest = max(np.abs(each).max() for each in one[1:])
    divided = sums_and_gradients(model, cores, parts, smallest_part=1)
    for left, right in zip(divided, one, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5 * largest)


def test_parts_without_padding_give_the_same(monkeypatch):
    """Each part has its own number of real positions."""
    model, lengths = AlbertPretrainer(ONE_LAYER).create_weights(), (16, 9, 12, 5, 3, 7)
    padded = sums_and_gradients(model, 1, lengths=lengths)
    monkeypatch.setattr(packing, "SMALLEST", 0)
    of_mask, used = packing.Packing.of, []
    monkeypatch.setattr(packing.Packing, "of", lambda mask: used.append(1) or of_mask(mask))
    packed = sums_and_gradients(model, 3, smallest_part=1, lengths=lengths)
    assert used
    used.clear()
    plain = sums_and_gradients(model, 1, lengths=lengths, kernels="plain")
    assert not used
    largest = max(np.abs(each).max() for each in padded[1:])
    for left, middle, right in zip(packed, plain, padded, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5 * largest)
        np.testing.assert_allclose(middle, right, rtol=1e-4, atol=1e-5 * largest)


def test_small_batches_stay_whole():
    """6 rows of 16 pieces are less than two smallest parts."""
    rows = []

    class Noted(TrainStep):
        def _part(self, batch, *args):
            rows.append(batch["input_word_ids"].shape[0])
            return super()._part(batch, *args)

    model = AlbertPretrainer(ONE_LAYER).create_weights()
    assert len(sums_and_gradients(model, 8, make_step=Noted)) > 20
    assert rows == [6]


def test_accumulation_changes_no_gradient():
    """Without dropout, whose masks differ between parts."""
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    one, three = (sums_and_gradients(model, 1, parts) for parts in (1, 3))
    largest = max(np.abs(each).max() for each in one[1:])
    for left, right in zip(three, one, strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-4, atol=1e-5 * largest)


@tf.function(autograph=False)
def joined(step: TrainStep, batch: dict[str, tf.Tensor], replicas: int) -> dict[str, tf.Tensor]:
    """The step of so many replicas that all have this batch."""

    def all_reduce(values: object) -> object:
        return tf.nest.map_structure(lambda x: replicas * x, values)

    counts = all_reduce(tf.stack([tf.reduce_sum(batch[name]) for name in step.counted]))
    sums, gradients = step.gradients(batch, counts, tf.constant(0))
    return step.update(all_reduce(sums), all_reduce(gradients))


def test_two_replicas_with_the_same_batch_have_its_gradient():
    """Sums and counts are twice as large, so means and their gradients are the same."""
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    config, weights, results = PretrainConfig(model=model.config), model.get_weights(), []
    for is_twice in (False, True):
        model.set_weights(weights)
        optimizer = make_optimizer(config)
        optimizer.build(model.trainable_variables)
        step = TrainStep(model, optimizer, config)
        batch = {name: tf.constant(x) for name, x in random_batch(WORKLOAD).items()}
        results.append(joined(step, batch, 2 if is_twice else 1))
    one, two = results
    assert float(two["mlm_loss"]) == pytest.approx(2 * float(one["mlm_loss"]), rel=1e-6)
    assert float(two["grad_norm"]) == pytest.approx(float(one["grad_norm"]), rel=1e-5)


def test_a_step_that_is_not_finite_changes_nothing_but_the_number_of_steps():
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    config = PretrainConfig(model=model.config)
    optimizer = make_optimizer(config)
    optimizer.build(model.trainable_variables)
    step = tf.function(TrainStep(model, optimizer, config), autograph=False)
    batch = {name: tf.constant(value) for name, value in random_batch(WORKLOAD).items()}
    weights = batch["masked_lm_weights"]
    state = [*model.variables, *optimizer.variables]
    for factor, moved in ((1.0, True), (float("nan"), False)):
        before = [each.numpy() for each in state if each is not optimizer.iterations]
        results = step(batch | {"masked_lm_weights": weights * factor})
        after = [each.numpy() for each in state if each is not optimizer.iterations]
        assert moved == any(map(lambda a, b: (a != b).any(), before, after))
        assert float(results["skipped"]) == float(not moved)
        assert (float(results["mlm_loss"]) > 0) == (float(results["grad_norm"]) > 0) == moved
    assert int(optimizer.iterations) == 2


@pytest.mark.parametrize("value", [float("inf"), float("nan"), 1.0])
def test_a_loss_that_is_not_finite_skips_the_step_whatever_its_gradient(value: float):
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    config = PretrainConfig(model=model.config)
    optimizer = make_optimizer(config)
    optimizer.build(model.trainable_variables)
    step, before = TrainStep(model, optimizer, config), model.get_weights()
    optimizer.iterations.assign(1000)  # of the warm-up, whose first step has the rate 0
    sums = tf.constant([value] + [1.0] * (len(step.sums) - 1))
    results = step.update(sums, [tf.ones(variable.shape) for variable in step.variables])
    is_finite = value == 1.0
    assert (float(results["skipped"]), float(results["mlm_loss"])) == (not is_finite, is_finite)
    after = model.get_weights()
    assert any(map(lambda a, b: (a != b).any(), before, after)) == is_finite


@pytest.mark.parametrize(("norm", "clipped"), [(8.0, 0.5), (0.25, 0.25)])
def test_all_gradients_together_are_clipped(norm: float, clipped: float):
    """The first moment is a tenth of the gradient; the norm that is logged is that before."""
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    config = PretrainConfig(model=model.config, optimizer=OptimizerConfig(clip_norm=0.5))
    optimizer = make_optimizer(config)
    optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, config)
    ones = [tf.ones(variable.shape) for variable in step.variables]
    scale = norm / tf.linalg.global_norm(ones)
    results = step.update(tf.ones([len(step.sums)]), [scale * each for each in ones])
    assert float(results["grad_norm"]) == pytest.approx(norm, rel=1e-5)
    assert float(tf.linalg.global_norm(optimizer._m)) == pytest.approx(0.1 * clipped, rel=1e-4)


def test_the_weight_of_the_pair_loss_scales_its_gradient_alone():
    model = AlbertPretrainer(ONE_LAYER).create_weights()
    names = [variable.name for variable in model.trainable_variables]
    one, third = (
        dict(
            zip(
                names,
                sums_and_gradients(model, 1, 1, ObjectiveConfig(pair_weight=weight))[1:],
                strict=True,
            )
        )
        for weight in (1.0, 0.3)
    )
    for name in names:
        if "pair_head" in name or "pooler" in name:  # have no other gradient
            np.testing.assert_allclose(third[name], 0.3 * one[name], rtol=1e-4, atol=1e-7)
        elif "mlm_head" in name:
            np.testing.assert_allclose(third[name], one[name], rtol=1e-5, atol=1e-7)
