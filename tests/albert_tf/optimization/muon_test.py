"""Muon: matrices by NumPy, and all else as AdamW has it."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW, Muon
from albert_tf.optimization.muon import orthogonal

RATE, DECAY, STEPS = 0.05, 0.1, 6
NAMES = ("encoder/stack/attention_0/query/kernel", "encoder/embeddings/word_embeddings")
NAMES += ("encoder/stack/attention_0/query/bias", "encoder/pooler/kernel")


def orthogonal_by_numpy(x: np.ndarray) -> np.ndarray:
    """The iteration on singular values alone: the matrix form leaves U and V as they are."""
    u, s, v = np.linalg.svd(x, full_matrices=False)
    s = s / np.linalg.norm(s)
    for _ in range(5):
        s = 3.4445 * s - 4.7750 * s**3 + 2.0315 * s**5
    return u * s @ v


@pytest.mark.parametrize("shape", [(6, 10), (10, 6), (8, 8), (1, 5)])
def test_singular_vectors_stay_and_values_are_about_one(shape):
    x = np.random.default_rng(0).normal(size=shape)
    found = orthogonal(tf.constant(x, tf.float32)).numpy()
    np.testing.assert_allclose(found, orthogonal_by_numpy(x), atol=2e-4)
    values = np.linalg.svd(found, compute_uv=False)
    assert values.min() > 0.6 and values.max() < 1.2
    assert not orthogonal(tf.zeros(shape)).numpy().any()


@pytest.mark.parametrize("jit_compile", [False, True])
def test_steps_against_numpy_and_adamw(jit_compile):
    rng = np.random.default_rng(1)
    values = [rng.normal(size=shape) for shape in ((4, 6), (5, 3), (6,), (4, 4))]
    gradients = [[rng.normal(size=value.shape) for value in values] for _ in range(STEPS)]
    weight, m = values[0].copy(), np.zeros_like(values[0])
    for gradient, *_ in gradients:
        m = 0.95 * m + gradient
        update = 0.2 * 6**0.5 * orthogonal_by_numpy(gradient + 0.95 * m)
        weight -= RATE * (update + DECAY * weight)
    found = []
    for kind in (Muon, AdamW):
        optimizer = kind(RATE, weight_decay_rate=DECAY)
        variables = [
            tf.Variable(value, name=name, dtype=tf.float32)
            for value, name in zip(values, NAMES, strict=True)
        ]
        optimizer.build(variables)

        @tf.function(jit_compile=jit_compile)
        def step(*tensors, optimizer=optimizer, variables=variables):
            optimizer.apply_gradients(zip(tensors, variables, strict=True))

        for of_step in gradients:
            step(*[tf.constant(gradient, tf.float32) for gradient in of_step])
        found.append([variable.numpy() for variable in variables])
    np.testing.assert_allclose(found[0][0], weight, atol=2e-3)
    for ours, theirs in zip(found[0][1:], found[1][1:], strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_the_matrices_are_those_of_the_layers(tiny):
    model, optimizer = AlbertPretrainer(tiny).create_weights(), Muon(1.0)
    chosen = [v.name.partition("/stack/")[2] for v in model.variables if not optimizer.has_v(v)]
    layers = [name.rpartition("/")[0] for name in chosen]
    assert len(layers) == len(set(layers)) and {name.rpartition("/")[2] for name in chosen} == {
        "kernel:0"
    }
    assert {name.partition("/")[2] for name in layers} == {
        *("query", "key", "value", "output", "intermediate")
    }
    optimizer.build(model.trainable_variables)
    assert sum(v is None for v in optimizer._v) == len(chosen)


def test_a_gradient_that_is_not_finite_changes_nothing():
    variable = tf.Variable(tf.ones([2, 3]), name=NAMES[0])
    optimizer = Muon(0.1)
    optimizer.apply_gradients([(tf.ones([2, 3]), variable)])
    before = variable.numpy(), optimizer._m[0].numpy()
    optimizer.apply_gradients([(tf.fill([2, 3], np.nan), variable)])
    np.testing.assert_array_equal(variable.numpy(), before[0])
    np.testing.assert_array_equal(optimizer._m[0].numpy(), before[1])


def test_an_excluded_matrix_does_not_decay():
    for exclude, wanted in ((["kernel"], 1.0), (["bias"], 0.9)):
        variable = tf.Variable(tf.ones([2, 3]), name=NAMES[0])
        optimizer = Muon(0.1, weight_decay_rate=1.0, exclude=exclude)
        optimizer.apply_gradients([(tf.zeros([2, 3]), variable)])
        np.testing.assert_allclose(variable, wanted, rtol=1e-6)


def test_round_trip_of_the_configuration():
    again = Muon.from_config(Muon(0.1, momentum=0.9, matrices="x").get_config())
    assert (again.momentum, again.matrices) == (0.9, "x")
