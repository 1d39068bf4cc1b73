"""Tests that a model's call chooses its operations once, and that all its parts use them."""

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models import configured_model
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.kernels import KERNELS
from albert_tf.models.kernels.choice import choose
from albert_tf.models.kernels.interface import Kernels
from albert_tf.models.pretrainer import AlbertPretrainer


class Counted(Kernels):
    """Plain operations that count products and losses."""

    def __init__(self) -> None:
        self.products = self.losses = 0

    def affine(self, *args):
        self.products += 1
        return super().affine(*args)

    def linear_cross_entropy(self, *args):
        self.losses += 1
        return super().linear_cross_entropy(*args)


@pytest.fixture
def counted(monkeypatch) -> tuple[Counted, list]:
    """The operations of every call, and the arguments with which they were chosen."""
    ops, chosen = Counted(), []

    def instead(training: bool, name: str, unroll: bool) -> Kernels:
        chosen.append((bool(training), name, unroll))  # Keras may pass None for False
        return ops

    monkeypatch.setattr(configured_model, "choose", instead)
    return ops, chosen


def test_the_first_call_of_a_new_model_chooses_once_for_all_parts(tiny: AlbertConfig, counted):
    ops, chosen = counted
    ids = np.ones([2, 4], np.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    labels = {"masked_lm_ids": ids[:, :1], "masked_lm_weights": ids[:, :1]}
    pretrainer = AlbertPretrainer(tiny)
    pretrainer(
        inputs | {"masked_lm_positions": ids[:, :1]}, training=True, labels=labels, kernels="plain"
    )
    assert chosen == [(True, "plain", True)]
    # The projection of the embeddings; in a layer queries with keys and values, output, and two.
    assert (ops.products, ops.losses) == (1 + 4 * tiny.num_layers, 1)
    AlbertEncoder(tiny)(inputs)
    assert chosen == [(True, "plain", True), (False, "auto", True)]
    assert ops.products == 2 * (1 + 4 * tiny.num_layers)


def test_a_new_model_has_all_its_variables_before_it_computes(tiny: AlbertConfig):
    built, created = (AlbertPretrainer(tiny) for _ in range(2))
    built.build(None)
    created.create_weights()
    shapes = [[(v.name.split("/", 1)[1], v.shape) for v in created.variables]]
    shapes += [[(v.name, v.shape) for v in built.variables]]
    assert shapes[0] == shapes[1]


def test_an_unknown_name_is_refused():
    with pytest.raises(ValueError, match=rf"one of {', '.join(KERNELS)}. Received: 'fast'"):
        choose(True, "fast")


def test_the_encoder_alone_can_be_saved_by_keras(tiny: AlbertConfig, tmp_path):
    encoder = AlbertPretrainer(tiny).create_weights().encoder
    encoder.save(str(tmp_path / "saved_model"))
    ids = tf.ones([1, 3], tf.int32)
    inputs = {"input_word_ids": ids, "input_mask": ids, "input_type_ids": 0 * ids}
    loaded = tf.saved_model.load(str(tmp_path / "saved_model"))
    served = loaded.signatures["serving_default"](**inputs)
    np.testing.assert_allclose(
        served["pooled_output"], encoder(inputs)["pooled_output"], rtol=1e-5, atol=1e-6
    )
