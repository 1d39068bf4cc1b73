"""Tests of the benchmark of steps: its arithmetic, its batches, and one real run."""

import sys

import numpy as np
import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError
from benchmarks import step_time
from benchmarks.step_time import StepTimeOptions
from benchmarks.workloads import WORKLOADS, Workload, random_batch, step_flops

USAGE = ("benchmarks.step_time",)


def test_flops_by_hand():
    # B 1, S 2, P 1; H 4, F 8, E 3, V 10, one layer. Multiply-adds, forward:
    # q, k, v, output 4 x (2 x 4 x 4) = 128; feed-forward 2 x (2 x 4 x 8) = 128; scores and context
    # 2 x (2 x 2 x 4) = 32; projection 2 x 3 x 4 = 24; pooler 4 x 4 = 16; MLM 4 x 3 + 3 x 10 = 42;
    # pair 4 x 2 = 8. Each is two operations, and three products in a step.
    config = AlbertConfig(
        vocab_size=10,
        embedding_size=3,
        hidden_size=4,
        num_layers=1,
        num_heads=2,
        intermediate_size=8,
    )
    workload = Workload(config, batch_size=1, seq_length=2, predictions=1)
    assert step_flops(workload) == 3 * 2 * (128 + 128 + 32 + 24 + 16 + 42 + 8)


def test_bert_of_base_has_3_5_percent_more_arithmetic():
    workload = WORKLOADS["base128"]
    assert step_flops(workload.as_bert()) / step_flops(workload) == pytest.approx(1.034, abs=0.001)


@pytest.mark.parametrize("name", WORKLOADS)
def test_batches_are_what_a_reader_gives(name):
    workload = WORKLOADS[name]
    batch = random_batch(workload)
    positions = batch["masked_lm_positions"]
    assert positions.shape == (workload.batch_size, workload.predictions)
    assert (np.diff(positions, axis=1) > 0).all()
    assert positions.max() < workload.seq_length <= workload.model.max_positions
    assert batch["input_word_ids"].shape == (workload.batch_size, workload.seq_length)
    assert 5 <= batch["input_word_ids"].min()
    assert batch["input_word_ids"].max() < workload.model.vocab_size
    assert np.array_equal(random_batch(workload)["input_word_ids"], batch["input_word_ids"])


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--shape=huge", ["--shape", "base128", "'huge'"]),
        ("--precision=half", ["--precision", "mixed_bfloat16", "'half'"]),
        ("--systems=ours,theirs", ["--systems", "tf-models-official", "'theirs'"]),
        ("--rounds=0", ["--rounds", "positive", "0"]),
    ],
)
def test_bad_options_name_the_rule(flag, words):
    with pytest.raises(InputError) as error:
        commands.parse(StepTimeOptions, [*USAGE, flag], "", "")
    assert all(word in str(error.value) for word in words)


def test_set_changes_the_model_of_the_shape():
    options = commands.parse(
        StepTimeOptions, [*USAGE, "--shape=tiny", "--set=num_layers=3"], "", ""
    )
    assert options.workload.model == WORKLOADS["tiny"].model.replace(num_layers=3)


@pytest.mark.slow
def test_a_run_reports_ours_its_bert_and_an_absent_peer(monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", None)  # as where it is not installed
    options = StepTimeOptions("tiny", "hf-tf,ours,ours-bert", rounds=2, set=("num_layers=1",))
    ours, bert, absent = step_time.measure(options)
    assert [line["system"] for line in (ours, bert, absent)] == ["ours", "ours-bert", "hf-tf"]
    for line in (ours, bert):
        # Untrained: the loss is that of guessing among 1,000 pieces and 2 orders.
        assert line["first_loss"] == pytest.approx(np.log(1000) + np.log(2), abs=0.5)
        expected = line["gflop"] / line["matrix_limit_gflops"] / (line["ms"] / 1000)
        assert line["share_of_limit"] == pytest.approx(expected, rel=0.02, abs=1e-3)
        assert line["ratios"]["ours"] == pytest.approx(line["ms"] / ours["ms"], rel=0.01)
    assert "transformers" in absent["absent"]
