"""Fill-mask as a SavedModel: text with [MASK] in, guesses out."""

import tensorflow as tf

from albert_tf.export.buckets import in_buckets
from albert_tf.export.signatures import untracked
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.text_ops import WHITE_SPACE, GraphTokenizer
from albert_tf.tokenization import WORD_MARK, Tokenizer

MASK = "[MASK]"
_CHUNK = 2048  # positions at once: each may be a mask, with as many logits as there are pieces


class FillMaskModule(tf.Module):
    """Guesses the piece at each [MASK] of a text.

    Input: `text`, string [B], with any number of `[MASK]` in each. A mask stands for a whole word
    or its beginning: punctuation may follow it, while letters that follow it without a space are
    mostly read as a word of their own. Of a text beyond the model's longest sequence the model sees
    a window with the first mask in its middle.
    Outputs, M the most masks in a text of the batch: `pieces` string [B, M, K], best first;
    `probabilities` float32 [B, M, K]. Masks outside the window, and those that a text has not, are
    "" and 0.
    """

    def __init__(self, pretrainer: AlbertPretrainer, tokenizer: Tokenizer, top_k: int = 5) -> None:
        super().__init__(name="fill_mask")
        self._predict, self._weights = untracked(pretrainer), pretrainer.variables
        self._room = pretrainer.config.max_positions - 2  # beside [CLS] and [SEP]
        self._tokenizer = GraphTokenizer(tokenizer)
        pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        self._pieces = tf.constant(pieces)
        self._space = pieces.index(WORD_MARK) if WORD_MARK in pieces else -1
        self._special = tokenizer.special
        self._top_k = top_k

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")], autograph=False)
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature."""
        ids = self._ids(text)  # [B, (pieces)]
        at = tf.ragged.range(tf.cast(ids.row_lengths(), tf.int32))  # [B, (pieces)]
        masks = tf.ragged.boolean_mask(at, tf.equal(ids, self._special.mask))  # [B, (M)]
        begin = self._window_begin(ids, masks)  # [B, 1]
        seen = tf.ragged.boolean_mask(ids, (at >= begin) & (at < begin + self._room))
        guessed = tf.ragged.boolean_mask(masks, masks < begin + self._room)  # the first of them
        positions = (guessed - begin + 1).to_tensor(0)  # after [CLS]; [B, (guessed)]
        positions = tf.pad(positions, [[0, 0], [0, 1]])  # one more: never none

        def run(rows: tf.Tensor, width: tf.Tensor) -> dict[str, tf.Tensor]:
            features = self._tokenizer.pack([tf.gather(seen, rows)], width)
            features["masked_lm_positions"] = tf.gather(positions, rows)
            best, ids = tf.math.top_k(
                tf.nn.softmax(self._predict(features)["mlm_logits"]), self._top_k
            )
            return {"probabilities": best, "ids": ids}

        lengths = tf.cast(seen.row_lengths(), tf.int32) + 2
        empty = tf.zeros(tf.concat([tf.shape(positions), [self._top_k]], 0))
        best = in_buckets(
            lengths,
            run,
            {"probabilities": empty, "ids": tf.cast(empty, tf.int32)},
            self._room + 2,
            _CHUNK,
        )
        best = {name: value[:, :-1] for name, value in best.items()}
        real = tf.ones_like(guessed, tf.bool).to_tensor(False)[:, :, tf.newaxis]
        missing = [[0, 0], [0, _longest(masks) - _longest(guessed)], [0, 0]]
        return {
            "pieces": tf.pad(
                tf.where(real, tf.gather(self._pieces, best["ids"]), ""),
                missing,
                constant_values="",
            ),
            "probabilities": tf.pad(tf.where(real, best["probabilities"], 0.0), missing),
        }

    def signatures(self) -> dict[str, object]:
        """`serving_default`."""
        return {"serving_default": self.serve}

    def _ids(self, text: tf.Tensor) -> tf.RaggedTensor:
        """Pieces and masks, without [CLS] and [SEP]: string [B] -> int32 [B, (pieces)]."""
        parts = tf.strings.split(text, MASK)  # [B, (parts)]
        ids = self._tokenizer(parts.values)  # [parts of all, (pieces)]
        # The tokenizer puts a space before each part. What is glued to a mask has none: "[MASK].".
        after_mask = tf.ragged.range(parts.row_lengths()).values > 0  # [parts of all]
        spaced = tf.strings.regex_full_match(parts.values, f"{WHITE_SPACE}(?s:.*)")
        is_first = tf.equal(tf.ragged.range(ids.row_lengths()), 0)
        added = is_first & tf.equal(ids, self._space) & (after_mask & ~spaced)[:, tf.newaxis]
        ids = tf.ragged.boolean_mask(ids, ~added)
        # A mask before each part, then none before a text's first.
        masks = tf.fill([ids.nrows(), 1], self._special.mask)
        return parts.with_values(tf.concat([masks, ids], axis=1)).merge_dims(1, 2)[:, 1:]

    def _window_begin(self, ids: tf.RaggedTensor, masks: tf.RaggedTensor) -> tf.Tensor:
        """Where each text's window begins, int32 [B, 1]; 0 for a text that fits."""
        last = tf.maximum(tf.cast(ids.row_lengths(), tf.int32) - self._room, 0)
        centred = tf.maximum(tf.reduce_min(masks, axis=1) - self._room // 2, 0)
        return tf.minimum(centred, last)[:, tf.newaxis]


def _longest(rows: tf.RaggedTensor) -> tf.Tensor:
    """The length of the longest row, int32; 0 where there is none."""
    return tf.cast(tf.maximum(tf.reduce_max(rows.row_lengths()), 0), tf.int32)
