"""What loaded models that are functions of texts share: pickles, exports, batches by length."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
import tensorflow as tf
import tf_keras

from albert_tf.graph.buckets import CHUNK, run_in_buckets
from albert_tf.graph.signatures import IDS
from albert_tf.models.checkpoints import damaged_export, readable, weights_fingerprint
from albert_tf.models.encoder import INPUTS
from albert_tf.runtime import devices, pretrained
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.forks import require_unforked
from albert_tf.tasks.features import Sequences
from albert_tf.training.progress import Progress

MANY = 1000  # texts, from which progress is shown
_CHUNK_ON_CPU = 2048  # positions computed at once; more take no less time there, but more memory


class Reloadable:
    """A loaded model that is pickled as its path and a fingerprint of its weights.

    Unpickling raises an `InputError` if the weights at the path are no longer the same. Copies,
    also deep ones, are the same object, as those of Python's functions are.

    Args:
      path: where the model was loaded from; kept as an absolute path or the name of an included
        model.
      options: the other arguments of the subclass.
    """

    def __init__(self, path: str, *options: Any) -> None:
        self._path, self._options = pretrained.name_of(path), options
        self._fingerprint = weights_fingerprint(pretrained.locate(path))

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what loads it again, for other processes."""
        return _reload, (type(self), self._fingerprint, self._path, *self._options)

    def __copy__(self) -> Self:
        """Return the object itself."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return the object itself, so that sklearn.clone does not load the model again."""
        return self


def _reload(kind: type[Reloadable], fingerprint: str, path: str, *options: Any) -> Reloadable:
    loaded = kind(path, *options)
    if loaded._fingerprint != fingerprint:
        raise InputError(
            f"{path!r} must hold the weights that were loaded before pickling, but they have been "
            "replaced. Load the model again, and write new weights to a new folder."
        )
    return loaded


def load_export(path: str) -> Any:
    """Return the SavedModel at `path`, with the operations that exports need.

    Raises:
      InputError: it is damaged, or the process was forked after a model was loaded.
    """
    require_unforked()
    import tensorflow_text  # noqa: F401  registers the operations of exports

    with readable(path) as folder:
        try:
            return tf.saved_model.load(folder)
        except Exception as error:  # a damaged file can raise any type
            raise damaged_export(path, error) from None


def bucketed(
    model: tf_keras.Model, seq_length: int, shape: Sequence[int]
) -> Callable[[Sequences], tf.Tensor]:
    """Return a function from B sequences to the model's outputs, float32 [B, *shape].

    It computes in the buckets of lengths that exports have, so that a text's output does not depend
    on the others, and at most `graph.buckets.CHUNK` positions at once, or 2,048 on a CPU.

    Args:
      model: inputs -> [B, *shape].
      seq_length: the maximum length of a sequence.
      shape: the shape of a sequence's output.
    """

    @tf.function(input_signature=[IDS[name] for name in INPUTS], autograph=False)
    def outputs(*ids: tf.Tensor) -> tf.Tensor:
        inputs = dict(zip(INPUTS, ids, strict=True))

        def run(rows: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
            parts = {name: tf.gather(values[:, :width], rows) for name, values in inputs.items()}
            return {"outputs": model(parts)}

        lengths = tf.reduce_sum(inputs["input_mask"], axis=1)
        zeros = tf.zeros([tf.size(lengths), *shape])
        chunk = _CHUNK_ON_CPU if devices.kind() == "CPU" else CHUNK
        return run_in_buckets(lengths, run, {"outputs": zeros}, seq_length, chunk)["outputs"]

    def compute(sequences: Sequences) -> tf.Tensor:
        inputs = sequences.arrays(seq_length)
        return outputs(*(inputs[name] for name in INPUTS))

    return compute


def in_batches(
    compute: Callable[[list[str]], np.ndarray],
    texts: Sequence[str],
    batch_size: int,
    show_progress: bool | None = False,
) -> np.ndarray:
    """Return the results for texts, at least one, in their order; a batch has similar lengths.

    Args:
      compute: a list of texts -> [n, ...].
      texts: the texts.
      batch_size: the number of texts that are handed to `compute` together.
      show_progress: show the progress. None: for more than `MANY` texts.

    Raises:
      InputError: the process was forked after a model was loaded.
    """
    require_unforked()
    shows = len(texts) > MANY if show_progress is None else show_progress
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    results: Any = None
    with Progress("texts", len(texts)) if shows else contextlib.nullcontext() as progress:
        for begin in range(0, len(texts), batch_size):
            rows = order[begin : begin + batch_size]
            part = compute([texts[row] for row in rows])
            if results is None:  # one array of all: parts would take the memory twice
                results = np.empty([len(texts), *part.shape[1:]], part.dtype)
            results[rows] = part
            if progress:
                progress.advance(len(rows))
    return results
