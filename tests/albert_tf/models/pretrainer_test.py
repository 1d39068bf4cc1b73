"""Tests of the two pretraining heads against NumPy, and that the MLM head's decoder is tied."""

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import head_param_counts
from albert_tf.models.pretrainer import AlbertPretrainer

POSITIONS = np.array([[0, 3, 3], [6, 1, 0]], np.int32)


@pytest.fixture(scope="module")
def pretrainer(tiny) -> AlbertPretrainer:
    tf_keras.utils.set_random_seed(4)
    model = AlbertPretrainer(tiny).create_weights()
    rng = np.random.default_rng(0)
    for variable in model.variables:
        variable.assign_add(rng.normal(0, 0.1, variable.shape).astype(np.float32))
    return model


@pytest.fixture(scope="module")
def inputs(fake_inputs) -> dict:
    return fake_inputs(2, 8, (0, 1)) | {"masked_lm_positions": POSITIONS}


def gelu(x: np.ndarray) -> np.ndarray:
    return x * 0.5 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def test_mlm_logits_by_numpy(pretrainer, inputs):
    outputs, head = pretrainer(inputs), pretrainer.mlm_head
    kernel, bias = head.transform.get_weights()
    gamma, beta = head.layer_norm.get_weights()
    table = pretrainer.encoder.embeddings.word_embeddings.numpy()
    assert outputs["mlm_logits"].shape == (2, 3, 300)
    for row, positions in enumerate(POSITIONS):
        x = gelu(outputs["sequence_output"].numpy()[row, positions] @ kernel + bias)
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-12)
        logits = (x * gamma + beta) @ table.T + head.bias.numpy()
        np.testing.assert_allclose(outputs["mlm_logits"][row], logits, atol=1e-4)


def test_labels_may_be_integers_of_numpy(pretrainer, inputs):
    labels = {
        "masked_lm_ids": POSITIONS + 5,
        "masked_lm_weights": np.ones(POSITIONS.shape, np.float32),
    }
    wide, narrow = (
        pretrainer(inputs, labels=labels | {"masked_lm_ids": labels["masked_lm_ids"].astype(kind)})
        for kind in (np.int64, np.int32)
    )
    tf.nest.map_structure(np.testing.assert_array_equal, wide["mlm_sums"], narrow["mlm_sums"])


def test_pair_logits_by_numpy(pretrainer, inputs):
    outputs = pretrainer(inputs)
    kernel, bias = pretrainer.pair_head.dense.get_weights()
    logits = outputs["pooled_output"].numpy() @ kernel + bias
    np.testing.assert_allclose(outputs["pair_logits"], logits, atol=1e-5)


def test_outputs_are_the_encoder_s_and_two_more(pretrainer, inputs):
    outputs = pretrainer(inputs)
    alone = pretrainer.encoder({name: inputs[name] for name in inputs if name[:5] == "input"})
    assert set(outputs) == {*alone, "mlm_logits", "pair_logits"}
    np.testing.assert_array_equal(outputs["pooled_output"], alone["pooled_output"])


@pytest.mark.parametrize(
    "changes", [{}, {"positions": "rotary", "norm": "pre", "ffn": "gated"}, {"sharing": "none"}]
)
def test_a_seed_draws_the_weights_of_the_encoder_then_those_of_the_heads(tiny, changes):
    tf_keras.utils.set_random_seed(7)
    model = AlbertPretrainer(tiny.replace(**changes)).create_weights()
    parts = (model.encoder, model.pair_head, model.mlm_head)
    drawn = [v for part in parts for v in part.variables if v.shape.rank == 2]
    tf_keras.utils.set_random_seed(7)
    for variable in drawn:
        values = tf_keras.initializers.TruncatedNormal()(variable.shape)  # but for the scale
        scale = np.std(variable) / np.std(values)
        np.testing.assert_allclose(variable, scale * values, rtol=1e-4, err_msg=variable.name)


def test_no_predictions_at_all(pretrainer, inputs):
    none = inputs | {"masked_lm_positions": np.zeros([2, 0], np.int32)}
    assert pretrainer(none)["mlm_logits"].shape == (2, 0, 300)


def test_the_decoder_is_the_word_table(pretrainer, inputs):
    unused = 299
    assert unused not in inputs["input_word_ids"]
    table = pretrainer.encoder.embeddings.word_embeddings
    with tf.GradientTape() as tape:
        logits = pretrainer(inputs)["mlm_logits"][..., unused]
    # Only the head can reach a row that no input looks up.
    gradient = tf.convert_to_tensor(tape.gradient(logits, table))
    assert np.abs(gradient[unused]).max() > 0
    assert len([v for v in pretrainer.variables if 300 in v.shape]) == 2  # table, output bias


def test_every_variable_learns_from_the_two_losses(pretrainer, inputs):
    with tf.GradientTape() as tape:
        outputs = pretrainer(inputs)
        loss = tf.reduce_logsumexp(outputs["mlm_logits"]) + outputs["pair_logits"][0, 0]
    gradients = tape.gradient(loss, pretrainer.trainable_variables)
    assert all(gradient is not None for gradient in gradients)


def test_parameter_count(pretrainer, tiny):
    heads = head_param_counts(tiny)
    assert heads == {"mlm_head": 32 * 16 + 16 + 2 * 16 + 300, "pair_head": 2 * 32 + 2}
    assert pretrainer.count_params() == tiny.param_count() + sum(heads.values())


def test_heads_under_bfloat16_give_float32(tiny, inputs):
    import tf_keras

    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        outputs = AlbertPretrainer(tiny).create_weights()(inputs)
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    assert outputs["mlm_logits"].dtype == outputs["pair_logits"].dtype == tf.float32
    assert np.isfinite(outputs["mlm_logits"]).all()
