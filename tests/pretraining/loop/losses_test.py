"""The losses are sums and counts of what can be worked out by hand."""

import math

import pytest
import tensorflow as tf

from data.objectives.masked_lm import MaskedLm
from data.objectives.registry import ObjectiveConfig
from pretraining.loop.losses import means, pretraining_sums

OBJECTIVES = (MaskedLm(), ObjectiveConfig().of_pairs)


def test_sums_by_hand():
    # Logits (ln 3, 0): probabilities 3/4 and 1/4.
    log3 = math.log(3.0)
    outputs = {
        "mlm_logits": tf.constant([[[log3, 0.0], [log3, 0.0]], [[0.0, log3], [log3, 0.0]]]),
        "pair_logits": tf.constant([[log3, 0.0], [log3, 0.0]]),
    }
    batch = {
        "masked_lm_ids": tf.constant([[0, 1], [1, 0]]),
        "masked_lm_weights": tf.constant([[1.0, 1.0], [1.0, 0.0]]),
        "pair_label": tf.constant([1, 0]),
        "pair_weight": tf.constant([1.0, 0.0]),
    }
    found = pretraining_sums(OBJECTIVES, outputs, batch)
    sums = {name: float(value) for name, value in found.items()}
    # MLM: two right answers of chance 3/4, a wrong one of chance 1/4, an empty slot.
    assert sums["mlm_loss"] == pytest.approx(2 * math.log(4 / 3) + math.log(4), rel=1e-6)
    assert (sums["mlm_correct"], sums["mlm_count"]) == (2.0, 3.0)
    assert sums["pair_loss"] == pytest.approx(math.log(4), rel=1e-6)
    assert (sums["pair_correct"], sums["pair_count"]) == (0.0, 1.0)
    assert means(OBJECTIVES, sums)["accuracy/mlm"] == pytest.approx(2 / 3)


def test_no_pairs_no_pair_columns():
    sums = dict.fromkeys(
        ("mlm_loss", "mlm_correct", "mlm_count", "pair_loss", "pair_correct", "pair_count"), 0.0
    )
    assert means(OBJECTIVES, sums | {"mlm_loss": 4.0, "mlm_count": 2.0}) == {
        "loss/mlm": 2.0,
        "accuracy/mlm": 0.0,
    }
