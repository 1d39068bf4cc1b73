"""A call in another process: what comes back, and that nothing stays."""

import os
import signal
import subprocess
import sys
import time

import pytest

from albert_tf.runtime.errors import InputError
from pretraining.tpu.subprocess_call import call_in_subprocess


def test_the_result_comes_from_another_process():
    assert call_in_subprocess("counts", len, [1, 2, 3]) == 3
    assert call_in_subprocess("tells its number", os.getpid) != os.getpid()


def test_an_error_is_raised_here():
    with pytest.raises(ValueError, match="invalid literal"):
        call_in_subprocess("reads", int, "three")


def test_a_killed_process_is_told():
    with pytest.raises(InputError, match="the process that computes ended with status 9.*memory"):
        call_in_subprocess("computes", os._exit, 9)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_it_ends_with_its_parent(number: signal.Signals):
    """Ctrl-C comes to both, as a terminal sends it; the child says nothing of it."""
    waits = "import os, time; print(os.getpid(), flush=True); time.sleep(60)"
    code = (
        "from pretraining.tpu.subprocess_call import call_in_subprocess\n"
        f"if __name__ == '__main__':\n    call_in_subprocess('waits', exec, {waits!r})\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # In the background of a shell Ctrl-C is ignored, which a child inherits.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    child = int(parent.stdout.readline())
    (os.kill if number == signal.SIGKILL else os.killpg)(parent.pid, number)
    parent.wait(timeout=20)
    deadline = time.monotonic() + 20
    while is_alive(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not is_alive(child)
    if number == signal.SIGINT:
        assert parent.stderr.read().count("Traceback") == 1  # the parent's KeyboardInterrupt


def is_alive(process: int) -> bool:
    try:
        with open(f"/proc/{process}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
