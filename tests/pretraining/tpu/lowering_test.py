"""Tests that the step is one static program, and that its size does not grow with depth."""

import re

import pytest

from albert_tf.convert.bundle import weight_shapes
from albert_tf.models.config import AlbertConfig, head_param_counts
from albert_tf.training.jax_program import load_jax
from pretraining.loop.config import LoopConfig, PretrainConfig
from pretraining.pjrt.joined_step import JoinedStep, ShardedStep
from pretraining.tpu.lowering import lower_step

CONFIG = PretrainConfig(
    model=AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
        hidden_dropout=0.1,
        attention_dropout=0.1,
    ),
    precision="mixed_bfloat16",
)


def joined(parts: int = 1, **changes) -> JoinedStep:
    config = PretrainConfig(
        model=CONFIG.model.replace(**changes),
        loop=LoopConfig(accumulation_steps=parts),
        precision="mixed_bfloat16",
    )
    return lower_step(config, batch_size=4, seq_length=16, num_predictions=3)


def text_of(step: JoinedStep) -> str:
    """The program of two steps on this machine's device."""
    return ShardedStep(step, load_jax().devices("cpu")[:1]).lower(steps=2).as_text()


ALL_KINDS = {"rematerialize": True, "rematerialize_chunks": 2, "parts": 2}


@pytest.fixture(scope="module")
def steps() -> dict[str, JoinedStep]:
    return {"plain": joined(num_layers=1), "all kinds": joined(num_layers=2, **ALL_KINDS)}


@pytest.fixture(scope="module")
def texts(steps) -> dict[str, str]:
    return {name: text_of(step) for name, step in steps.items()}


@pytest.mark.slow
def test_the_program_does_not_grow_with_depth(texts):
    deeper = text_of(joined(num_layers=8, **ALL_KINDS))
    # Each layer's output is read from the buffer, which takes a line or two; nothing else is new.
    assert len(deeper) < 1.1 * len(texts["all kinds"])
    assert_static("deeper", deeper)


def test_shapes_are_static_and_the_host_is_not_asked(texts):
    for name, text in texts.items():
        assert_static(name, text)


def assert_static(name: str, text: str) -> None:
    operations = set(re.findall(r"\b(?:stablehlo|mhlo|chlo)\.\w+", text))
    assert "stablehlo.dot_general" in operations or "stablehlo.dot" in operations
    foreign = re.compile("dynamic(?!_slice|_update_slice)|custom_call|send|recv|feed|rng")
    assert not [op for op in operations if foreign.search(op)], name
    assert "tensor<?" not in text and "x?" not in text
    assert "callback" not in text


def test_counts_sums_and_every_gradient_are_summed_over_the_replicas(texts):
    for text in texts.values():
        assert text.count("stablehlo.all_reduce") == 2 + len(weight_shapes(CONFIG.model))


def test_the_update_is_in_place(steps, texts):
    model = CONFIG.model.replace(num_layers=1)
    parameters = model.param_count() + sum(head_param_counts(model).values())
    # Three features of [4, 16], three of [4, 3], two of [4]; the weights, m and v; the
    # optimizer's counter, int64, and its learning rate.
    batch = 4 * (3 * 4 * 16 + 3 * 4 * 3 + 2 * 4)
    for count in (1, 10):
        assert steps["plain"].argument_bytes(count) == count * batch + 3 * 4 * parameters + 8 + 4
    main = re.search(r"@main\((.*?)\) ->", texts["plain"])[1]
    # All but the batch is updated.
    assert main.count("tf.aliasing_output") == main.count("%arg") - 8 == len(steps["plain"].state)
