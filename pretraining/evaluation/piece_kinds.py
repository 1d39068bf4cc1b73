"""Kinds of predicted pieces: what the input shows in their place, and where they are."""

import itertools
from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

# Predicted pieces that are [MASK], another piece, or themselves in the input. As in BERT, about 80,
# 10 and 10 % of them.
KINDS = ("hidden", "replaced", "visible")
FIRST_RANGE = 128  # positions; each further range of positions ends at twice the last one's end


def position_ranges(seq_length: int) -> dict[str, tuple[int, int]]:
    """Return the name of each range of positions, and where it begins and ends.

    >>> position_ranges(512)
    {'hidden 0-127': (0, 128), 'hidden 128-255': (128, 256), 'hidden 256-511': (256, 512)}

    There are none up to 128 pieces.
    """
    ends = [FIRST_RANGE]
    while ends[-1] < seq_length:
        ends.append(min(2 * ends[-1], seq_length))
    pairs = list(itertools.pairwise([0, *ends])) if len(ends) > 1 else []
    return {f"hidden {begin}-{end - 1}": (begin, end) for begin, end in pairs}


def kinds_of(
    mask_id: int, ranges: Sequence[tuple[int, int]]
) -> Callable[[Mapping[str, tf.Tensor]], tf.Tensor]:
    """Return a function from a batch to what each real prediction slot is, float32 [B, P, K].

    The last axis has a 1 for its kind, in the order of KINDS, and one for its range of positions if
    it is hidden. It is zero for unused slots.
    """

    def kinds(batch: Mapping[str, tf.Tensor]) -> tf.Tensor:
        targets, positions = batch["masked_lm_ids"], batch["masked_lm_positions"]
        shown = tf.gather(batch["input_word_ids"], positions, batch_dims=1)
        hidden, visible = shown == mask_id, shown == targets
        within = [hidden & (begin <= positions) & (positions < end) for begin, end in ranges]
        which = tf.stack([hidden, ~(hidden | visible), visible, *within], -1)
        return tf.cast(which, tf.float32) * batch["masked_lm_weights"][:, :, None]

    return kinds
