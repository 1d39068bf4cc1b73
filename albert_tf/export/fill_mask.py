"""Fill-mask as a SavedModel: text with [MASK] in, guesses out."""

import tensorflow as tf

from albert_tf.export.signatures import untracked
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.text_ops import GraphTokenizer
from albert_tf.tokenization import Tokenizer

MASK = "[MASK]"


class FillMaskModule(tf.Module):
    """Guesses the piece at each [MASK] of a text.

    Input: `text`, string [B], with any number of `[MASK]` in each; a mask stands for a word's
    beginning or a whole word, for the text after it is tokenized by itself. What does not fit into
    the model's longest sequence is cut off, with the masks in it.
    Outputs, M the most masks in a text of the batch: `pieces` string [B, M, K], best first;
    `probabilities` float32 [B, M, K]. Texts with fewer masks are filled up with "" and 0.
    """

    def __init__(self, pretrainer: AlbertPretrainer, tokenizer: Tokenizer, top_k: int = 5) -> None:
        super().__init__(name="fill_mask")
        self._predict, self._weights = untracked(pretrainer), pretrainer.variables
        self._max_positions = pretrainer.config.max_positions
        self._tokenizer = GraphTokenizer(tokenizer)
        pieces = [tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size)]
        self._pieces = tf.constant(pieces)
        self._special = tokenizer.special
        self._top_k = top_k

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def serve(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        """The signature."""
        features = self._features(text)
        positions = _positions(features["input_word_ids"], self._special.mask)  # [B, (M)]
        real = tf.ones_like(positions, tf.bool).to_tensor(False)  # [B, M]
        logits = self._predict(features | {"masked_lm_positions": positions.to_tensor(0)})
        probabilities = tf.nn.softmax(logits["mlm_logits"])  # [B, M, V]
        best, ids = tf.math.top_k(probabilities, self._top_k)
        return {
            "pieces": tf.where(real[:, :, None], tf.gather(self._pieces, ids), ""),
            "probabilities": tf.where(real[:, :, None], best, 0.0),
        }

    def signatures(self) -> dict[str, object]:
        """`serving_default`."""
        return {"serving_default": self.serve}

    def _features(self, text: tf.Tensor) -> dict[str, tf.Tensor]:
        parts = tf.strings.split(text, MASK)  # [B, (parts)]
        ids = self._tokenizer(parts.values)  # [parts of all, (pieces)]
        # A mask before each part, then none before a text's first.
        masks = tf.fill([ids.nrows(), 1], self._special.mask)
        ids = parts.with_values(tf.concat([masks, ids], axis=1)).merge_dims(1, 2)[:, 1:]
        longest = tf.cast(tf.reduce_max(ids.row_lengths()), tf.int32) + 2
        length = tf.minimum(longest, self._max_positions)
        return self._tokenizer.pack([ids], length)


def _positions(ids: tf.Tensor, mask_id: int) -> tf.RaggedTensor:
    """int32 [B, (M)]: where `mask_id` stands in each row."""
    at = tf.where(tf.equal(ids, mask_id))  # [all masks, 2]
    return tf.RaggedTensor.from_value_rowids(
        tf.cast(at[:, 1], tf.int32), at[:, 0], nrows=tf.shape(ids, tf.int64)[0]
    )
