"""Graphs that are not needed any more leave the memory, with their variables."""

import gc
import weakref

import pytest
import tensorflow as tf
from tensorflow.python.framework import ops

from albert_tf.training.graph_memory import graphs_forgotten


@tf.custom_gradient
def doubled(x: tf.Tensor):
    return 2 * x, lambda upstream: 2 * upstream


def traced(variable: tf.Variable) -> weakref.ref:
    """Trace a gradient of `variable`; return a reference to the graph."""

    @tf.function
    def gradient():
        with tf.GradientTape() as tape:
            loss = doubled(variable) * variable
        return tape.gradient(loss, variable)

    assert gradient() == 12  # of 2 x^2 at 3
    return weakref.ref(gradient.get_concrete_function().graph)


@pytest.mark.parametrize("forgets", [True, False])
def test_a_graph_with_a_custom_gradient(forgets: bool):
    before = set(ops.gradient_registry._registry)
    variable = tf.Variable(3.0)
    if forgets:
        with graphs_forgotten():
            graph = traced(variable)
    else:
        graph = traced(variable)
    gc.collect()
    assert (graph() is None) == forgets  # if this fails, TensorFlow forgets them itself
    assert (set(ops.gradient_registry._registry) == before) == forgets


def test_gradients_from_elsewhere_stay():
    @tf.custom_gradient
    def earlier(x: tf.Tensor):
        return x, lambda upstream: 5 * upstream

    function = tf.function(earlier).get_concrete_function(tf.TensorSpec([], tf.float32))
    with graphs_forgotten():
        tf.RegisterGradient("OfAModuleImportedHere")(lambda op, upstream: upstream)
    ops.gradient_registry.lookup("OfAModuleImportedHere")
    x = tf.constant(1.0)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = function(x)
    assert tape.gradient(y, x) == 5
