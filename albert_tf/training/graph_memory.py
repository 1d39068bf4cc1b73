"""The memory of traced graphs that are no longer needed."""

import contextlib
from collections.abc import Iterator

from tensorflow.python.framework import ops  # no public name


@contextlib.contextmanager
def graphs_forgotten() -> Iterator[None]:
    """Forget the graphs that are traced within the context, which must not be used afterwards.

    TensorFlow keeps the gradient of each `tf.custom_gradient` in a graph, by name and for ever, and
    with it the graph and all variables that it reads: the model and the optimizer's state.
    """
    gradients = ops.gradient_registry._registry
    known = set(gradients)
    try:
        yield
    finally:
        for name in gradients.keys() - known:
            if name.startswith("CustomGradient-"):  # others belong to modules imported meanwhile
                del gradients[name]
