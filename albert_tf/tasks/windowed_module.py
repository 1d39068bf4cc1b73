"""The base class of exported modules that read a text in windows that overlap."""

from typing import cast

import tensorflow as tf

from albert_tf.graph.signatures import untracked
from albert_tf.graph.windows import MAX_WINDOWS, GraphWindows, cut_windows
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.task_model import TaskModel
from albert_tf.tasks.task_settings import WindowSettings
from albert_tf.text.graph_aligner import AlignedPieces, GraphAligner
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.tokenizer import Tokenizer


class WindowedModule(tf.Module):
    """A module of a fine-tuned model whose settings are `WindowSettings`.

    Args:
      model: the fine-tuned model.
      tokenizer: the model's tokenizer.
      max_windows: maximum windows for one text; longer texts raise InvalidArgumentError.

    Raises:
      InputError: `max_windows` is not positive.
    """

    _task: WindowSettings

    def __init__(
        self, model: TaskModel, tokenizer: Tokenizer, max_windows: int = MAX_WINDOWS
    ) -> None:
        super().__init__(name=model.task.kind)
        if max_windows < 1:
            raise InputError(f"`max_windows` must be at least 1. Received: {max_windows}.")
        self._predict, self._weights = untracked(model), model.variables
        self._task = cast(WindowSettings, model.task)
        self._tokenizer = GraphTokenizer(tokenizer)
        self._align = GraphAligner(tokenizer, self._tokenizer)
        self._max_windows, self._max_positions = max_windows, model.encoder.config.max_positions

    def _read(self, text: tf.Tensor) -> tuple[tf.Tensor, AlignedPieces, tf.Tensor]:
        """Return the texts [B] as valid UTF-8, their pieces, and how many each has, int32 [B]."""
        text = tf.strings.unicode_transcode(text, "UTF-8", "UTF-8", errors="replace")
        pieces = self._align(text)
        return text, pieces, tf.cast(pieces.ids.row_lengths(), tf.int32)

    def _cut(self, name: str, sizes: tf.Tensor, before: tf.Tensor) -> GraphWindows:
        """Return the windows over texts of `sizes` pieces, `before` of which precede each text."""
        task = self._task
        return cut_windows(name, sizes, before, task.seq_length, task.doc_stride, self._max_windows)
