"""Filling blanks, in Python and as a SavedModel: text with [MASK] in, predicted pieces out."""

import os
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
import tensorflow as tf

from albert_tf.graph.buckets import run_in_buckets
from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Outputs
from albert_tf.graph.signatures import untracked
from albert_tf.models.pretrainer import AlbertPretrainer, load_pretrainer
from albert_tf.runtime.arguments import list_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.forks import require_unforked
from albert_tf.tasks.kind import Export, ExportSettings
from albert_tf.tasks.text_functions import Reloadable
from albert_tf.text.graph_tokenizer import WHITE_SPACE, GraphTokenizer, strings
from albert_tf.text.ragged import mask_rows, row_of, slice_rows
from albert_tf.text.tokenizer import WORD_MARK, Tokenizer, load_tokenizer

MASK = "[MASK]"
_MAX_CELLS = 2**22  # of an output [B, M, K], which are about 40 bytes each in all outputs
_MAX_TEXTS = 1024  # that are handed to the graph together in Python
_CHUNK = 2048  # positions at once: each may be a mask with a logit for every piece


class FillMaskModule(tf.Module):
    """A module that predicts the piece at each [MASK] of a text.

    Input: `text` string [B], with any number of `[MASK]` in each. A mask stands for a whole word or
    its beginning. Punctuation may follow it; letters that follow it without a space are usually
    read as a separate word. If a text exceeds the model's maximum length, the model sees a window
    around the first mask.
    Outputs: `pieces` string [B, M, K], best first, and `probabilities` float32 [B, M, K]. K is
    `top_k`, and M is the largest number of predicted masks in a text of the batch; masks outside
    the window are not predicted. Texts with fewer masks are filled up with "" and 0.

    Args:
      pretrainer: the trained model with its MLM head.
      tokenizer: the model's tokenizer.
      top_k: the number of pieces predicted for each mask.
    """

    def __init__(self, pretrainer: AlbertPretrainer, tokenizer: Tokenizer, top_k: int = 5) -> None:
        super().__init__(name="fill_mask")
        self._predict, self._weights = untracked(pretrainer), pretrainer.variables
        self._max_pieces = pretrainer.config.max_positions - 2  # without [CLS] and [SEP]
        self._tokenizer = GraphTokenizer(tokenizer)
        pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        self._pieces = tf.constant(pieces)
        self._space = pieces.index(WORD_MARK) if WORD_MARK in pieces else -1
        self._special = tokenizer.special
        self._top_k = top_k

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """Return `pieces` and `probabilities` for strings [B]."""
        ids = self._ids(text)  # [B, (pieces)]
        masks = mask_rows(
            tf.ragged.range(ids.row_lengths()), tf.equal(ids.values, self._special.mask)
        )
        begin = self._window_begin(ids, masks)  # [B]
        window = slice_rows(
            ids, ids.row_starts() + begin, tf.minimum(ids.row_lengths(), self._max_pieces)
        )
        window_masks = masks.with_values(masks.values - tf.gather(begin, row_of(masks)))
        # Masks inside the window: [B, (M)].
        predicted = mask_rows(window_masks, window_masks.values < self._max_pieces)
        count = tf.cast(predicted.row_lengths(), tf.int32)
        most = tf.reduce_max(tf.concat([[0], count], 0))
        cells = tf.size(count, tf.int64) * tf.cast(most, tf.int64) * self._top_k
        message = (
            f"`text`: the number of texts times the largest number of {MASK} of a text times "
            f"{self._top_k} must be at most {_MAX_CELLS}. Pass fewer texts."
        )
        check = tf.debugging.assert_less_equal(cells, tf.constant(_MAX_CELLS, tf.int64), message)
        with tf.control_dependencies([check]):
            predicted = tf.identity(predicted)
        positions = tf.cast(predicted.to_tensor(-1) + 1, tf.int32)  # after [CLS]; [B, M]
        positions = tf.pad(positions, [[0, 0], [0, 1]])  # one more, so that there is at least one

        def run(rows: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
            features = self._tokenizer.pack([tf.gather(window, rows)], width)
            max_masks = tf.maximum(tf.reduce_max(tf.gather(count, rows)), 1)  # less than `width`
            features["masked_lm_positions"] = tf.gather(positions, rows)[:, :max_masks]
            # A padded table has more rows than there are pieces.
            logits = self._predict(features)["mlm_logits"][..., : len(self._pieces)]
            best, ids = tf.math.top_k(tf.nn.softmax(logits), self._top_k)
            missing = [[0, 0], [0, tf.shape(positions)[1] - max_masks], [0, 0]]
            return {"probabilities": tf.pad(best, missing), "ids": tf.pad(ids, missing)}

        lengths = tf.cast(window.row_lengths(), tf.int32) + 2
        empty = tf.zeros(tf.concat([tf.shape(positions), [self._top_k]], 0))
        best = run_in_buckets(
            lengths,
            run,
            {"probabilities": empty, "ids": tf.cast(empty, tf.int32)},
            self._max_pieces + 2,
            _CHUNK,
        )
        best = {name: value[:, :-1] for name, value in best.items()}
        real = tf.sequence_mask(count, tf.shape(positions)[1] - 1)[:, :, tf.newaxis]
        return {
            "pieces": tf.where(real, tf.gather(self._pieces, best["ids"]), ""),
            "probabilities": tf.where(real, best["probabilities"], 0.0),
        }

    def signatures(self) -> dict[str, object]:
        """Return `serving_default`."""
        return {"serving_default": self.serve}

    def _ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Tokenize with masks, without [CLS] and [SEP]: string [B] -> int32 [B, (pieces)]."""
        parts = tf.strings.split(text, MASK)  # [B, (parts)]
        ids = self._tokenizer(parts.values)  # [parts of all, (pieces)]
        # The tokenizer puts a space before each part. Drop it from text glued to a mask: "[MASK].".
        after_mask = tf.ragged.range(parts.row_lengths()).values > 0  # [parts of all]
        has_space = tf.strings.regex_full_match(parts.values, f"{WHITE_SPACE}(?s:.*)")
        row = row_of(ids)
        is_first = tf.equal(tf.range(tf.size(row, tf.int64)), tf.gather(ids.row_starts(), row))
        follows_mask = tf.gather(after_mask & ~has_space, row)
        ids = mask_rows(ids, ~(is_first & follows_mask & tf.equal(ids.values, self._space)))
        # Put a mask before each part, then drop the one before a text's first part.
        masks = tf.fill([ids.nrows(), 1], self._special.mask)
        return parts.with_values(tf.concat([masks, ids], axis=1)).merge_dims(1, 2)[:, 1:]

    def _window_begin(self, ids: tf.RaggedTensor, masks: tf.RaggedTensor) -> tf.Tensor:
        """Return the start of each text's window, int64 [B]; 0 for a text that fits."""
        last = tf.maximum(ids.row_lengths() - self._max_pieces, 0)
        first = tf.math.unsorted_segment_min(masks.values, row_of(masks), tf.size(last))
        return tf.minimum(tf.maximum(first - self._max_pieces // 2, 0), last)


class FillMaskExport(Export):
    """Filling blanks with the pretrained model."""

    name = "fill_mask"
    has_tokens = False
    needs_pretraining_heads = True

    def load(self, path: str, unroll: bool = True) -> AlbertPretrainer:
        """Load the pretrainer, whose layers are always unrolled."""
        return load_pretrainer(path)

    def module(
        self, model: AlbertPretrainer, tokenizer: Tokenizer, values: ExportSettings
    ) -> FillMaskModule:
        """Return the module to save."""
        return FillMaskModule(model, tokenizer)

    def onnx_inputs(self) -> Mapping[str, Sequence[str]]:
        """Return the shapes of the inputs, with `masked_lm_positions` [B, P]."""
        return {**super().onnx_inputs(), "masked_lm_positions": ("B", "P")}

    def onnx_outputs(
        self, encoder: EncoderGraph, model: AlbertPretrainer, values: ExportSettings
    ) -> Outputs:
        """Add `mlm_logits`, float32 [B, P, V]."""
        graph, head, vocab = encoder.graph, model.mlm_head, encoder.config.vocab_size
        positions = graph.axes("Unsqueeze", graph.index("masked_lm_positions"), 2)
        positions = graph.op("Cast", positions, to=7)  # int64
        hidden = encoder.sequence_output()
        rows = graph.op("GatherND", hidden, positions, batch_dims=1)  # [B, P, H]
        x = encoder.activation(encoder.affine(rows, "mlm_head/transform", head.transform))
        x = encoder.layer_norm(x, "mlm_head/layer_norm", head.layer_norm)
        table = encoder.encoder.embeddings.word_embeddings.numpy()
        logits = graph.product(x, "embeddings/word_embeddings", table, transposed=True)
        logits = graph.op("Add", logits, graph.weight("mlm_head/bias", head.bias.numpy()))
        return {"mlm_logits": (logits, np.float32, ["B", "P", vocab])}


class FillMask(Reloadable):
    """A pretrained model, ready to fill blanks; see `load_fill_mask`."""

    def __init__(self, path: str, top_k: int = 5) -> None:
        model, tokenizer = load_pretrainer(path), load_tokenizer(path)
        if not isinstance(top_k, int | np.integer) or not 1 <= top_k <= tokenizer.vocab_size:
            raise InputError(
                f"top_k must be between 1 and {tokenizer.vocab_size:,}, the number of pieces. "
                f"Received: {top_k}."
            )
        super().__init__(path, top_k)
        self._model, self._tokenizer, self._top_k = model, tokenizer, top_k
        self._module = FillMaskModule(model, tokenizer, top_k)

    def __call__(self, texts: Iterable[str | bytes]) -> list[list[list[tuple[str, float]]]]:
        """Return, for each text and each [MASK] in it, pieces with probabilities, best first.

        A piece that begins with U+2581 begins a word. Of a text that is too long for the model, it
        sees a window around the first mask; masks outside the window have an empty list.

        Args:
          texts: any number of strings, or of bytes in UTF-8, with a mask in at least one.

        Raises:
          InputError: `texts` is a single string or a table, or contains other values than strings
            and bytes, or no text has a mask.
        """
        given = list_of((str, bytes), texts, "texts must be a list of strings.")
        decoded = [t.decode(errors="replace") if isinstance(t, bytes) else t for t in given]
        counts = [text.count(MASK) for text in decoded]
        if decoded and not any(counts):
            raise InputError(
                f"texts must have blanks, written as {MASK}. Received: {decoded[0][:80]!r}."
            )
        require_unforked()
        most = min(max(counts, default=1), self._model.config.max_positions)
        size = max(1, min(_MAX_TEXTS, _MAX_CELLS // (most * self._top_k)))
        parts = (decoded[begin : begin + size] for begin in range(0, len(decoded), size))
        return [answer for part in parts for answer in self._answers(part)]

    def _answers(self, texts: Sequence[str]) -> list[list[list[tuple[str, float]]]]:
        outputs = self._serve(strings(texts))
        pieces, probabilities = (outputs[name].numpy() for name in ("pieces", "probabilities"))
        answers = []
        for text, *row in zip(texts, pieces, probabilities, strict=True):
            count = text.count(MASK)
            masks: list[list[tuple[str, float]]] = [
                [(piece.decode(), float(p)) for piece, p in zip(*mask, strict=True) if piece]
                for mask in zip(*(values[:count] for values in row), strict=True)
            ]
            answers.append([*masks, *([] for _ in range(count - len(masks)))])
        return answers

    def _serve(self, texts: tf.Tensor) -> dict[str, tf.Tensor]:
        module = self._module  # a name of its own: another thread may replace it meanwhile
        try:
            return module.serve(texts)
        except tf.errors.NotFoundError:  # `clear_session` and `set_seed` free the vocabulary
            self._module = module = FillMaskModule(self._model, self._tokenizer, self._top_k)
            return module.serve(texts)


def load_fill_mask(path: str | os.PathLike[str], top_k: int = 5) -> FillMask:
    """Load a pretrained model to fill blanks.

    >>> fill = albert_tf.load_fill_mask("albert-mini-en")
    >>> ((pieces,),) = fill(["The ship sailed across the [MASK]."])
    >>> [piece for piece, probability in pieces][:3]
    ['▁sea', '▁river', '▁ship']

    The answer is a list of masks for each text, and for each mask `top_k` pairs of a piece and its
    probability, best first.

    Args:
      path: a pretraining run, a converted folder or the name of an included model.
      top_k: the number of pieces predicted for each mask.

    Raises:
      InputNotFoundError: there is no model or no vocabulary at `path`.
      InputError: `path` is an export or a fine-tuned run, which cannot fill blanks, or `top_k` is
        out of range.
    """
    return FillMask(os.fspath(path), top_k)
