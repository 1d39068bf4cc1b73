"""Each set of kernels computes what the plain operations do: losses and gradients of every block.

All sets run on a CPU here; those for a program of XLA are compiled by it.
"""

import functools
import itertools
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import FFNS, NORMS, POSITIONS, AlbertConfig, sharing_plan
from albert_tf.models.kernels import packing, tracing_for
from albert_tf.models.kernels.choice import LOOPED, TRAINING, choose
from albert_tf.models.kernels.cpu import CpuKernels
from albert_tf.models.kernels.fused import FusedKernels
from albert_tf.models.kernels.interface import PLAIN, Kernels
from albert_tf.models.kernels.tpu import TpuKernels
from albert_tf.models.pretrainer import AlbertPretrainer

CONFIG = AlbertConfig(
    vocab_size=300,
    embedding_size=16,
    hidden_size=32,
    num_layers=2,
    num_heads=4,
    intermediate_size=64,
    max_positions=24,
    initializer_range=0.2,
)
BATCH, LENGTH, SLOTS = 4, 24, 5
DROPOUT = {"hidden_dropout": 0.1, "attention_dropout": 0.1}
BLOCKS = {
    "-".join(block): dict(zip(("norm", "positions", "ffn"), block, strict=True))
    for block in itertools.product(NORMS, POSITIONS, FFNS)
}
VARIANTS = BLOCKS | {
    "dropout": DROPOUT,
    "relu, own weights": {"activation": "relu", "sharing": "none"},
    "recomputed": DROPOUT | {"rematerialize": True, "rematerialize_chunks": 2},
}
SETS = ("CPU", "XLA", "TPU")
QUICK = ("post-learned-plain-CPU", "pre-rotary-gated-CPU", "post-learned-plain-TPU")
IDS = [f"{variant}-{kernels}" for variant in VARIANTS for kernels in SETS]


def batch() -> tuple[dict[str, tf.Tensor], dict[str, tf.Tensor]]:
    """Inputs with padding, and labels with an empty slot."""
    rng = np.random.default_rng(0)
    lengths = rng.integers(12, LENGTH + 1, (BATCH, 1))
    inputs = {
        "input_word_ids": rng.integers(5, 300, (BATCH, LENGTH)),
        "input_mask": np.arange(LENGTH) < lengths,
        "input_type_ids": rng.integers(0, 2, (BATCH, LENGTH)),
        "masked_lm_positions": rng.integers(0, 12, (BATCH, SLOTS)),
    }
    labels = {
        "masked_lm_ids": tf.constant(rng.integers(5, 300, (BATCH, SLOTS)), tf.int32),
        "masked_lm_weights": tf.constant([[1.0] * (SLOTS - 1) + [0.0]] * BATCH),
    }
    return {name: tf.constant(value, tf.int32) for name, value in inputs.items()}, labels


@functools.cache
def program(kernels: str, variant: str, policy: str) -> Callable[[int], list[np.ndarray]]:
    """(a seed) -> the sums of the masked LM, and the gradients of both losses."""
    config = CONFIG.replace(**VARIANTS[variant])
    model = AlbertPretrainer(config, dtype=policy).create_weights()
    inputs, labels = batch()
    name = "plain" if kernels == "plain" else "auto"

    @tf.function(jit_compile=kernels in ("XLA", "TPU"), autograph=False)
    def run(key: tf.Tensor) -> list[tf.Tensor]:
        with tracing_for(kernels if kernels in TRAINING else ""):
            with tf.GradientTape() as tape:
                outputs = model(inputs, training=True, dropout_key=key, labels=labels, kernels=name)
                loss = outputs["mlm_sums"][0] + tf.reduce_sum(outputs["pair_logits"][:, 0])
            gradients = tape.gradient(loss, model.trainable_variables)
            return [outputs["mlm_sums"], *map(tf.convert_to_tensor, gradients)]

    def of_seed(seed: int) -> list[np.ndarray]:
        tf_keras.utils.set_random_seed(seed)
        model.set_weights(AlbertPretrainer(config).create_weights().get_weights())
        return [value.numpy() for value in run(tf.constant([seed + 3, 4]))]

    return of_seed


@pytest.fixture(autouse=True)
def packed(monkeypatch):
    """Even a batch of 96 positions is packed on a CPU."""
    monkeypatch.setattr(packing, "SMALLEST", 0)


@pytest.mark.slow_parameters(*(each for each in IDS if each not in QUICK))  # XLA compiles slowly
@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_float32(variant, kernels):
    (sums, *gradients), (plain_sums, *plain) = (
        program(each, variant, "float32")(0) for each in (kernels, "plain")
    )
    np.testing.assert_allclose(sums, plain_sums, rtol=1e-5)
    scale = max(np.linalg.norm(gradient) for gradient in plain)
    for ours, wanted in zip(gradients, plain, strict=True):
        # A softmax ignores the key's bias, whose gradient is rounding alone.
        tolerance = 1e-5 * np.linalg.norm(wanted) + 1e-7 * scale
        assert np.linalg.norm(ours - wanted) <= tolerance


def flat(values: list[np.ndarray]) -> np.ndarray:
    return np.concatenate([value.ravel() for value in values])


@pytest.mark.slow
@pytest.mark.parametrize("kernels", SETS)
@pytest.mark.parametrize("variant", VARIANTS)
def test_bfloat16_is_as_exact_as_plain(variant, kernels):
    """Both differ from float32 by some 15 roundings in a row, of 2^-9 each, in two layers.

    The errors of single seeds vary by a factor of four either way, so they are squared and added.
    The ratio of the sums' roots is at most 1.5 but for ReLU on a TPU, where it was 1.57: its
    gradient jumps where a rounding changes the sign of its argument. Therefore its own errors are
    larger too, as 37 roundings' on one CPU with bfloat16 products.
    """
    errors, size = {"plain": 0.0, kernels: 0.0}, 0.0
    for seed in range(6):
        _, *exact = program("plain", variant, "float32")(seed)
        size += float(np.sum(flat(exact) ** 2))
        for name in errors:
            _, *gradients = program(name, variant, "mixed_bfloat16")(seed)
            errors[name] += float(np.sum((flat(gradients) - flat(exact)) ** 2))
    assert errors[kernels] <= 2**2 * errors["plain"]
    assert errors["plain"] < ((50 if "relu" in variant else 30) * 2**-9) ** 2 * size


@pytest.mark.slow_parameters(*(set(VARIANTS) - {"post-learned-plain", "pre-rotary-gated"}))
@pytest.mark.parametrize("variant", VARIANTS)
def test_outside_training_layers_in_a_loop(variant):
    """Layers with the same weights are one loop, with the outputs of the last layer."""
    config = CONFIG.replace(**VARIANTS[variant])
    plain, looped = (
        AlbertPretrainer(config, unroll=unroll).create_weights() for unroll in (True, False)
    )
    looped.set_weights(plain.get_weights())
    inputs, _ = batch()
    run = tf.function(looped, autograph=False).get_concrete_function(inputs)
    loops = [operation for operation in run.graph.get_operations() if "While" in operation.type]
    assert len(loops) == len(set(sharing_plan(config)))
    outputs, expected = run(inputs), plain(inputs)
    assert len(outputs["encoder_outputs"]) == 1
    for name in ("sequence_output", "mlm_logits", "pair_logits"):
        np.testing.assert_allclose(outputs[name], expected[name], rtol=1e-5, atol=1e-5)


def test_the_device_and_training_choose():
    """And the setting `plain` overrides both."""
    wanted_on = {"CPU": CpuKernels, "GPU": Kernels, "XLA": FusedKernels, "TPU": TpuKernels}
    assert wanted_on.keys() == TRAINING.keys()
    for kind, wanted in wanted_on.items():
        with tracing_for(kind):
            assert type(choose(training=True)) is wanted
            assert choose(training=False) is choose(training=True, name="plain") is PLAIN
            assert choose(training=False, unroll=False) is LOOPED
            assert type(choose(training=True, unroll=False)) is wanted


def test_no_set_has_operations_of_its_own():
    """A layer that runs on one device runs on all."""

    def operations(of: object) -> set[str]:
        return {n for n in dir(of) if not n.startswith("_") and callable(getattr(of, n))}

    for ops in (*TRAINING.values(), LOOPED):
        assert operations(ops) == operations(Kernels)
