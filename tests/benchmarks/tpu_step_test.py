"""The rival's step lowers as ours does, with as many weights."""

import json

import pytest

from albert_tf.models.config import AlbertConfig, head_param_counts
from albert_tf.runtime.errors import InputError
from benchmarks import tpu_step
from benchmarks.tpu_step import OfficialPretrainer
from pretraining.loop.config import PretrainConfig
from pretraining.tpu.lowering import lower_step
from pretraining.tpu_check import TpuCheckOptions


def test_a_dry_run_shows_a_plain_step(capsys):
    assert tpu_step.main(TpuCheckOptions(dry_run=True, batch=8, topology="v4")) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["batch"], shown["topology"]) == (8, "v4:2x2x1")
    assert shown["config"]["model"]["rematerialize"] is False


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"global_batch": 64}, "--global_batch must be omitted"),
        ({"set": ("model.rematerialize=true",)}, "`model.rematerialize` must be false"),
    ],
)
def test_recomputation_is_refused(values, message):
    with pytest.raises(InputError, match=message):
        tpu_step.main(TpuCheckOptions(dry_run=True, **values))


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
    step = lower_step(config, 4, 16, 3, make_model=OfficialPretrainer)
    parameters = model.param_count() + sum(head_param_counts(model).values())
    # Three features of [4, 16], three of [4, 3], two of [4]; the counter and the learning rate.
    batch = 4 * (3 * 4 * 16 + 3 * 4 * 3 + 2 * 4)
    assert step.argument_bytes(steps=1) == batch + 3 * 4 * parameters + 8 + 4
