"""A run's configuration takes vocabulary and length from the records and refuses what differs."""

import pytest

from albert_tf.runtime.errors import ConfigError
from data.records.manifest import Counts, Manifest
from pretraining.loop.config import LoopConfig, resolve
from pretraining.loop.groups import experiment
from pretraining.loop.recipes import EXPERIMENTS, SMOKE

MANIFEST = Manifest(
    1, "compact", 128, 8000, (0, 1, 2, 3, 4), "tokenizer", "corpus", (10,), Counts(), "{}"
)


def test_records_decide_vocabulary_and_length():
    config = resolve(SMOKE, [], MANIFEST)
    assert (config.model.vocab_size, config.model.max_positions) == (8000, 128)
    assert config.schedule_steps == SMOKE.loop.steps
    longer = resolve(EXPERIMENTS["albert-base-v2"], [], MANIFEST)
    assert longer.model.max_positions == 512


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("model.vocab_size=30000", ("model.vocab_size", "30000", "8000")),
        ("model.max_positions=64", ("model.max_positions", "64", "128")),
        ("loop.steps=5", ("optimizer.warmup_steps", "10", "5")),
        ("loop.step=5", ("loop.step", "loop.steps")),
        ("objective.pair=sopp", ("objective.pair", "sop", "sopp")),
        ("masking.rate=1.5", ("masking.rate", "1.5")),
        ("masking.max_predictions=129", ("masking.max_predictions", "128", "129")),
        ("seed=4294967296", ("seed", "4294967296")),
        ("optimizer.decay_steps=31", ("optimizer.decay_steps", "10 and 31 of 40")),
        ("optimizer.name=sgd", ("optimizer.name", "lamb", "sgd")),
    ],
)
def test_refusals_name_key_and_values(assignment: str, words: tuple[str, ...]):
    with pytest.raises(ConfigError) as error:
        resolve(SMOKE, [assignment], MANIFEST)
    assert all(word in str(error.value) for word in words)


def test_the_rate_falls_at_the_end_alone():
    config = resolve(SMOKE, ["optimizer.decay_steps=30"], MANIFEST)
    assert (config.constant_steps, config.schedule_steps) == (10, 40)
    assert resolve(SMOKE, [], MANIFEST).constant_steps == 0  # from the beginning, as in the paper


@pytest.mark.parametrize(
    ("scaling", "rates"),
    [("none", (0.01, 0.01, 0.02)), ("sqrt", (0.02, 0.005, 0.04)), ("linear", (0.04, 0.0025, 0.08))],
)
def test_the_rate_follows_the_batch(scaling: str, rates: tuple[float, ...]):
    """Of four times and a quarter of the experiment's 16 sequences; a given rate is one for 16."""
    cases = (("64",), ("4",), ("64", "optimizer.learning_rate=0.02"))
    for (batch, *more), rate in zip(cases, rates, strict=True):
        chosen = [f"loop.global_batch_size={batch}", f"optimizer.batch_scaling={scaling}", *more]
        config = resolve(SMOKE, chosen, MANIFEST)
        assert config.optimizer.learning_rate == pytest.approx(rate)


def test_evaluations_that_would_never_come_are_refused():
    with pytest.raises(
        ConfigError, match="`evaluation.every` must not exceed `loop.steps`.* 50, 4"
    ):
        resolve(SMOKE, ["evaluation.every=50"], MANIFEST)


def test_values_that_belong_together_are_set_together():
    config = resolve(SMOKE, ["loop.steps_per_loop=8", "loop.checkpoint_every=16"], MANIFEST)
    assert (config.loop.steps_per_loop, config.loop.checkpoint_every) == (8, 16)


def test_checkpoints_fall_on_loop_ends():
    with pytest.raises(ConfigError, match="multiple"):
        LoopConfig(steps_per_loop=10, checkpoint_every=15)


def test_every_experiment_is_whole():
    for name in EXPERIMENTS:
        config = experiment(name)
        assert config.optimizer.warmup_steps <= config.schedule_steps, name
    base = experiment("albert-base-v2")
    assert base.model.param_count() == 11_683_584
    assert (base.optimizer.learning_rate, base.loop.global_batch_size) == (0.00176, 4096)


def test_unknown_experiment_names_a_near_one():
    with pytest.raises(ConfigError, match="albert-base-v2"):
        experiment("albert-base-v3")
