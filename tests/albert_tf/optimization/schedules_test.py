"""Tests of the learning rate step by step, with the drop at the end of the warm-up."""

import pytest
import tensorflow as tf

from albert_tf.optimization import LinearWarmupLinearDecay
from albert_tf.runtime.errors import ConfigError

# peak 2, warm-up 4 steps, length 10: 2 * step / 4, then 2 * (1 - step / 10).
TABLE = {0: 0.0, 1: 0.5, 2: 1.0, 3: 1.5, 4: 1.2, 5: 1.0, 9: 0.2, 10: 0.0, 11: 0.0, 1000: 0.0}


@pytest.mark.parametrize(("step", "rate"), TABLE.items())
def test_table(step, rate):
    schedule = LinearWarmupLinearDecay(2.0, warmup_steps=4, decay_steps=10)
    for value in (step, tf.constant(step, tf.int64)):
        assert float(schedule(value)) == pytest.approx(rate, abs=1e-6)


def test_the_paper_s_rates():
    schedule = LinearWarmupLinearDecay(0.00176, warmup_steps=3125, decay_steps=125_000)
    rates = [float(schedule(step)) for step in (3124, 3125, 62_500)]
    assert rates == pytest.approx([0.00176 * 3124 / 3125, 0.00176 * 0.975, 0.00088], rel=1e-5)


def test_no_warmup_and_only_warmup():
    assert float(LinearWarmupLinearDecay(3.0, 0, 4)(0)) == 3.0
    only = LinearWarmupLinearDecay(3.0, 4, 4)
    assert [float(only(step)) for step in (0, 2, 3, 4)] == [0.0, 1.5, 2.25, 0.0]


def test_a_constant_rate_that_falls_at_the_end():
    schedule = LinearWarmupLinearDecay(2.0, warmup_steps=2, decay_steps=10, constant_steps=6)
    rates = [float(schedule(step)) for step in (1, 2, 5, 6, 7, 9, 10)]
    assert rates == pytest.approx([1.0, 2.0, 2.0, 2.0, 1.5, 0.5, 0.0])
    with pytest.raises(ConfigError, match="constant_steps=10, decay_steps=10"):
        LinearWarmupLinearDecay(2.0, 2, 10, 10)


def test_round_trip():
    schedule = LinearWarmupLinearDecay(2.0, 4, 10, 6)
    again = LinearWarmupLinearDecay.from_config(schedule.get_config())
    assert again.get_config() == schedule.get_config()


@pytest.mark.parametrize(("warmup", "decay"), [(11, 10), (-1, 10), (0, 0)])
def test_errors(warmup, decay):
    with pytest.raises(ConfigError, match=f"warmup_steps={warmup}, decay_steps={decay}"):
        LinearWarmupLinearDecay(1.0, warmup, decay)
