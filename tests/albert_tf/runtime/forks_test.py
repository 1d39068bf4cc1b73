"""Tests that a forked process gets an error instead of waiting for TensorFlow's threads."""

import os
import signal
import traceback
from collections.abc import Callable

import pytest

import albert_tf
from albert_tf.runtime.errors import InputError

MODEL = "albert-mini-en"
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="the system cannot fork")


def status_in_a_fork(function: Callable[[], object]) -> int:
    """The exit status of a forked process that runs a function: 0 if it raises nothing."""
    child = os.fork()
    if not child:
        signal.alarm(60)  # ends a process that waits
        try:
            function()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def refused(function: Callable[[], object]) -> Callable[[], None]:
    def check() -> None:
        with pytest.raises(InputError, match="after a fork.*in each worker.*spawn"):
            function()

    return check


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_calls_and_loads_after_a_fork_are_refused():
    fill = albert_tf.load_fill_mask(MODEL)
    encoder = albert_tf.load_encoder(MODEL)
    embedder = albert_tf.load_embedder("albert-mini-en-embed")
    ids = dict.fromkeys(["input_word_ids", "input_mask", "input_type_ids"], [[1]])
    for function in (
        lambda: fill(["a [MASK]"]),
        lambda: embedder(["a"]),
        lambda: encoder.call(ids),
        lambda: albert_tf.load_encoder(MODEL),
        lambda: albert_tf.load_embedder(MODEL),
    ):
        assert status_in_a_fork(refused(function)) == 0


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_tokenizer_goes_on():
    albert_tf.load_encoder(MODEL)
    tokenizer = albert_tf.load_tokenizer(MODEL)
    assert status_in_a_fork(lambda: tokenizer.encode_batch(["a b"])) == 0
