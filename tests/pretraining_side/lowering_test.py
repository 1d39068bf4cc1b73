"""Proves that a step lowers to static shapes, and that its size does not grow with depth."""

import json
import os
import subprocess
import sys

import pytest

from albert_tf.config import AlbertConfig
from pretraining.config import PretrainConfig
from pretraining.lowering import lower_step


def module(**changes) -> str:
    model = AlbertConfig(
        vocab_size=50, embedding_size=8, hidden_size=16, num_heads=2, intermediate_size=32,
        max_positions=16, hidden_dropout=0.1, attention_dropout=0.1, **changes,
    )  # fmt: skip
    config = PretrainConfig(model=model, precision="mixed_bfloat16")
    return lower_step(config, batch_size=4, seq_length=16, num_predictions=3)


def test_the_program_does_not_grow_with_depth():
    saving = [module(num_layers=layers, rematerialize=True) for layers in (2, 8)]
    plain = [module(num_layers=layers) for layers in (2, 4)]
    # Each layer's output is read from the buffer, which takes a line or two; nothing else is new.
    assert len(saving[1]) < 1.1 * len(saving[0])
    assert len(plain[1]) > 1.3 * len(plain[0])
    for text in (*saving, *plain):
        assert "tensor<?" not in text  # dynamic shapes
        assert "callback" not in text


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "temporaries_mb", "code_mb"), [
    # The goals: what a prototype needed; tf-models-official 470 and 131, and 18,600.
    (("--set=rematerialize=true",), 82, 40),
    (("--preset=albert-xxlarge-v2", "--batch=16", "--seq_length=512", "--num_predictions=77",
      "--precision=mixed_bfloat16", "--set=rematerialize=true", "--set=rematerialize_chunks=2"),
     5400, 40),
    (("--preset=albert-xxlarge-v2", "--batch=72", "--seq_length=512", "--num_predictions=77",
      "--precision=mixed_bfloat16", "--set=rematerialize=true", "--set=rematerialize_chunks=9"),
     11_900, 40),
])  # fmt: skip
def test_memory_on_a_tpu(arguments, temporaries_mb, code_mb):
    pytest.importorskip("libtpu", reason="libtpu is absent: requirements-slow.txt")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.memory", *arguments],
        capture_output=True, text=True, check=False, env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    line = json.loads(done.stdout)
    assert line["temporaries_mb"] <= temporaries_mb
    assert line["code_mb"] <= code_mb
