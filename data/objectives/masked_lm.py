"""Masked LM: predict the pieces at masked positions (paper section 4.1)."""

import dataclasses

import tensorflow as tf

from albert_tf.models.head import MLM_HEAD, Head
from albert_tf.runtime import keyed_random
from data.objectives.masking import MaskingConfig, Vocabulary, mask_batch
from data.objectives.objective import Objective


@dataclasses.dataclass(frozen=True)
class MaskedLm(Objective):
    """The objective of every run.

    Attributes:
      masking: how pieces are masked; without effect on records that are already masked.
    """

    name = "masked_lm"
    labels, weights = "masked_lm_ids", "masked_lm_weights"
    STREAMS = (keyed_random.NGRAM, keyed_random.TILE, keyed_random.REPLACE, keyed_random.PIECE)

    masking: MaskingConfig = MaskingConfig()

    @property
    def head(self) -> Head:
        """The tied decoder at the masked positions."""
        return MLM_HEAD

    def draw(
        self,
        ids: tf.Tensor,
        word_starts: tf.Tensor,
        maskable: tf.Tensor,
        segment_starts: tf.Tensor,
        keys: dict[int, tf.Tensor],
        vocabulary: Vocabulary,
        rate: tf.Tensor | None = None,
    ) -> dict[str, tf.Tensor]:
        """Return `mask_batch` of the arguments; `keys` are those of STREAMS."""
        return mask_batch(
            ids, word_starts, maskable, segment_starts, keys, self.masking, vocabulary, rate
        )
