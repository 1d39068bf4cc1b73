"""Tests that the encoder computes what Model Garden's ALBERT does, in every mode of execution."""

import functools
import types

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder

NAMES = ("sequence_output", "pooled_output")


@pytest.fixture(scope="module")
def encoder(tiny) -> AlbertEncoder:
    tf_keras.utils.set_random_seed(3)
    return with_noise(AlbertEncoder(tiny).create_weights())


def with_noise(encoder: AlbertEncoder) -> AlbertEncoder:
    rng = np.random.default_rng(0)
    for variable in encoder.variables:  # biases and LayerNorms start at 0 and 1 and hide mistakes
        variable.assign_add(rng.normal(0, 0.1, variable.shape).astype(np.float32))
    return encoder


def close(left: dict, right: dict, atol: float) -> None:
    for name in NAMES:
        np.testing.assert_allclose(left[name], right[name], atol=atol, err_msg=name)


def official_twin(encoder: AlbertEncoder) -> tf_keras.Model:
    """Model Garden's encoder with the same weights."""
    from benchmarks.systems.tf_models_official import encoder_like

    twin = encoder_like(encoder.config)
    embeddings, (attention,), (ffn,) = (
        encoder.embeddings,
        encoder.stack.attentions,
        encoder.stack.feed_forwards,
    )
    block = "transformer/"
    values = {
        "word_embeddings/embeddings": embeddings.word_embeddings,
        "position_embedding/embeddings": embeddings.position_embeddings,
        "type_embeddings/embeddings": embeddings.type_embeddings,
        "embeddings/layer_norm": embeddings.layer_norm,
        "embedding_projection": embeddings.projection,
        block + "self_attention/query": attention.query,
        block + "self_attention/key": attention.key,
        block + "self_attention/value": attention.value,
        block + "self_attention/attention_output": attention.output_dense,
        block + "self_attention_layer_norm": attention.layer_norm,
        block + "intermediate": ffn.intermediate,
        block + "output": ffn.output_dense,
        block + "output_layer_norm": ffn.layer_norm,
        "pooler_transform": encoder.pooler,
    }
    for variable in twin.variables:
        name = variable.name.removesuffix(":0")
        owner, _, last = name.rpartition("/")
        source = values[name] if name in values else getattr(values[owner], last)
        variable.assign(tf.reshape(source, variable.shape))
    return twin


@pytest.mark.parametrize("padded", [(), (0, 5, 11)])
def test_parity_with_model_garden(encoder, fake_inputs, padded):
    twin = official_twin(encoder)
    inputs = fake_inputs(3, 12, padded)
    ours, theirs = encoder(inputs), twin(inputs)
    close(ours, theirs, atol=2e-5)
    assert np.std(ours["sequence_output"]) > 0.1
    for mine, other in zip(ours["encoder_outputs"], theirs["encoder_outputs"], strict=True):
        np.testing.assert_allclose(mine, other, atol=2e-5)


def test_shapes_and_dtypes(encoder, fake_inputs):
    outputs = encoder(fake_inputs(2, 7))
    assert set(outputs) == {*NAMES, "encoder_outputs"}
    assert outputs["sequence_output"].shape == (2, 7, 32)
    assert outputs["pooled_output"].shape == (2, 32)
    assert [x.shape for x in outputs["encoder_outputs"]] == [(2, 7, 32)] * 3
    np.testing.assert_array_equal(outputs["encoder_outputs"][-1], outputs["sequence_output"])


@pytest.mark.slow  # the next one takes one layer through the same
def test_eager_graph_and_xla_agree(encoder, fake_inputs):
    inputs = fake_inputs(2, 12, (0, 4))
    eager = encoder(inputs)
    close(tf.function(encoder)(inputs), eager, atol=1e-5)
    close(tf.function(encoder, jit_compile=True)(inputs), eager, atol=1e-5)
    pooled = tf.function(functools.partial(encoder, pooled_only=True), jit_compile=True)(inputs)
    np.testing.assert_allclose(pooled["pooled_output"], eager["pooled_output"], atol=1e-5)


@pytest.mark.slow
def test_dropout_agrees_in_eager_graph_and_xla(encoder, fake_inputs):
    # One layer: XLA for CPUs takes long over random numbers.
    config = encoder.config.replace(num_layers=1, hidden_dropout=0.2, attention_dropout=0.2)
    dropping = with_noise(AlbertEncoder(config).create_weights())
    inputs = fake_inputs(2, 12, (0, 4))

    def call(key):
        return dropping(inputs, training=True, dropout_key=key)

    key = tf.constant([5, 7])
    eager = call(key)
    close(tf.function(call)(key), eager, atol=1e-4)
    close(tf.function(call, jit_compile=True)(key), eager, atol=1e-4)
    assert np.abs(call(tf.constant([5, 8]))["pooled_output"] - eager["pooled_output"]).max() > 0.1
    calm = [dropping(inputs, dropout_key=key)["pooled_output"] for key in (key, None)]
    np.testing.assert_array_equal(*calm)  # not training
    drawn = [dropping(inputs, training=True)["pooled_output"].numpy() for _ in range(2)]
    assert np.abs(drawn[0] - drawn[1]).max() > 0.1


def test_one_function_serves_every_length(encoder, fake_inputs):
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
    function = tf.function(encoder, input_signature=[specs])
    for batch, length in ((1, 1), (3, 9), (2, 40)):
        inputs = fake_inputs(batch, length)
        close(function(inputs), encoder(inputs), atol=1e-5)
    assert function.experimental_get_tracing_count() == 1


def test_more_padding_gives_the_same_outputs(encoder, fake_inputs):
    inputs = fake_inputs(2, 20, (12, 15))
    cut = {name: value[:, :8] for name, value in inputs.items()}
    whole, short = encoder(inputs), encoder(cut)
    for row, count in enumerate((8, 5)):
        np.testing.assert_allclose(
            whole["sequence_output"][row, :count], short["sequence_output"][row, :count], atol=1e-5
        )
    np.testing.assert_allclose(whole["pooled_output"], short["pooled_output"], atol=1e-5)


@pytest.mark.parametrize("unroll", [True, False])
def test_pooled_only(tiny, fake_inputs, unroll):
    encoder = with_noise(AlbertEncoder(tiny, unroll).create_weights())
    inputs = fake_inputs(3, 9, (5,))
    for options in ({}, {"num_layers": 1}, {"training": True, "dropout_key": tf.constant([1, 2])}):
        found = encoder(inputs, pooled_only=True, **options)
        wanted = encoder(inputs, **options)["pooled_output"]
        np.testing.assert_allclose(found.pop("pooled_output"), wanted, atol=1e-5)
        assert not found


def test_too_long_a_sequence_names_both_numbers(encoder, fake_inputs):
    with pytest.raises(ValueError, match="41 pieces, max_positions=40"):
        encoder(fake_inputs(1, 41))


def test_too_long_a_sequence_of_unknown_length_fails_too(encoder, fake_inputs):
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.function(encoder, input_signature=[specs])(fake_inputs(1, 41))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"input_word_ids": [[5, 300]]}, "Received: 300, vocab_size=300"),
        ({"input_word_ids": [[5, -1]]}, "Received: -1, vocab_size=300"),
        ({"input_type_ids": [[0, 2]]}, "Received: 2, type_vocab_size=2"),
        ({"input_mask": [[1, 1, 1]]}, r"Received: \(1, 3\), input_word_ids: \(1, 2\)"),
        ({"input_mask": [1, 1]}, r"Received: \(2,\), input_word_ids: \(1, 2\)"),
        ({"input_word_ids": [5, 6]}, r"Received: shape \(2,\)"),
    ],
)
def test_bad_input_names_both_numbers(encoder, fake_inputs, change, message):
    inputs = fake_inputs(1, 2) | {name: np.array(value) for name, value in change.items()}
    with pytest.raises(ValueError, match=message):
        encoder(inputs)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda inputs: inputs["input_mask"], "must be a dict with.*input_mask.*Received: Eager"),
        (lambda inputs: {"input_word_ids": inputs["input_word_ids"]}, "Received: .'input_word_ids"),
        (lambda inputs: inputs | {"input_mask": np.ones([1, 2])}, "`input_mask`.*float"),
        (lambda inputs: inputs | {"input_mask": [[1, 1]]}, "`input_mask`.*list"),
        (lambda inputs: inputs | {"input_mask": tf.ragged.constant([[1]])}, "Ragged.*to_tensor"),
        (  # as an input of Keras 3
            lambda inputs: inputs | {"input_mask": types.SimpleNamespace(dtype="int32")},
            r"types\.SimpleNamespace.*tf_keras\.Input",
        ),
    ],
)
def test_other_inputs_than_a_dict_of_integers(encoder, fake_inputs, wrong, message):
    with pytest.raises(ValueError, match=message):
        encoder(wrong(fake_inputs(1, 2)))


def test_in_a_graph_the_lookup_refuses_foreign_ids(encoder, fake_inputs):
    inputs = fake_inputs(1, 2) | {"input_word_ids": np.array([[5, 300]], np.int32)}
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"300 is not in \[0, 300\)"):
        tf.function(encoder)(inputs)


def test_a_row_of_padding_is_finite(encoder, fake_inputs):
    for training in (False, True):
        outputs = encoder(fake_inputs(2, 6, (6, 0)), training=training)
        assert np.isfinite(outputs["sequence_output"]).all()


def test_bfloat16_policy(encoder, fake_inputs):
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        half = AlbertEncoder(encoder.config).create_weights()
    finally:
        tf_keras.mixed_precision.set_global_policy(before)
    half.set_weights(encoder.get_weights())
    inputs = fake_inputs(3, 12, (0, 5, 11))
    outputs = half(inputs)
    assert {variable.dtype for variable in half.variables} == {tf.float32}
    assert [outputs[name].dtype for name in NAMES] == [tf.float32, tf.float32]
    assert outputs["encoder_outputs"][0].dtype == tf.bfloat16
    difference = np.abs(outputs["sequence_output"] - encoder(inputs)["sequence_output"])
    assert 0 < difference.mean() < 0.02  # bfloat16 has 8 bits: 0.4 % of numbers around 1


@pytest.mark.slow
def test_fit_trains_every_weight(tiny, fake_inputs):
    config = tiny.replace(num_layers=1, hidden_dropout=0.1, attention_dropout=0.1)
    encoder = AlbertEncoder(config).create_weights()
    ids = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in INPUTS}
    model = tf_keras.Model(ids, tf_keras.layers.Dense(1)(encoder(ids)["pooled_output"]))
    model.compile("sgd", "mse")
    before = encoder.get_weights()
    model.fit(fake_inputs(8, 40), np.ones([8, 1]), verbose=0)
    for variable, old in zip(encoder.variables, before, strict=True):
        # Adding a number to every logit of a softmax changes nothing.
        assert variable.name.endswith("key/bias:0") or np.any(variable.numpy() != old), (
            variable.name
        )


@pytest.mark.parametrize("positions", ["learned", "rotary"])
def test_a_length_that_is_known_only_to_the_graph_is_checked(tiny, fake_inputs, positions):
    encoder = AlbertEncoder(tiny.replace(num_layers=1, positions=positions)).create_weights()
    specs = {name: tf.TensorSpec([None, None], tf.int32) for name in INPUTS}
    encode = tf.function(lambda x: encoder(x)["pooled_output"], input_signature=[specs])
    assert encode(fake_inputs(2, tiny.max_positions)).shape == [2, tiny.hidden_size]
    message = f"longer than `max_positions`, {tiny.max_positions}"
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        encode(fake_inputs(2, tiny.max_positions + 1))
