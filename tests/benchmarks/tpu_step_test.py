"""The rival's step lowers as ours does, with as many weights."""

import pytest

from albert_tf.models.config import AlbertConfig, head_param_counts
from benchmarks.tpu_step import OfficialPretrainer
from pretraining.loop.config import PretrainConfig
from pretraining.tpu.lowering import argument_bytes, lower_step


@pytest.mark.slow
def test_the_same_weights_slots_and_batch():
    model = AlbertConfig(
        vocab_size=50,
        embedding_size=8,
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        intermediate_size=32,
        max_positions=16,
    )
    config = PretrainConfig(model=model, precision="mixed_bfloat16")
    text = lower_step(config, 4, 16, 3, make_model=OfficialPretrainer)
    parameters = model.param_count() + sum(head_param_counts(model).values())
    # Three features of [4, 16], three of [4, 3], two of [4]; the counter and the learning rate.
    batch = 4 * (3 * 4 * 16 + 3 * 4 * 3 + 2 * 4)
    assert argument_bytes(text) == batch + 3 * 4 * parameters + 8 + 4
    assert "tensor<?" not in text
