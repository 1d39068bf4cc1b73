"""Tests that workers end with the build, and that a build whose workers end says so."""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile

import pytest

from albert_tf.runtime.errors import MachineError
from data.building.workers import map_in_order

ROOT = pathlib.Path(__file__).resolve().parents[3]
SCRIPT = """
import sys, time
from albert_tf.text.tokenizer import load_tokenizer
from data.building import cutter
from data.corpora.corpus import Document

def documents():
    for number in range(9):
        yield number, Document("Ba de fi. Go ku.", "")
    time.sleep(600)

if __name__ == "__main__":
    mine = cutter.Cutter(load_tokenizer(sys.argv[1]), 16, 1, 0)
    for _ in cutter.cut_all(mine, documents(), 2, batch_characters=1):
        print("cut", flush=True)
"""


def test_workers_of_a_killed_build_end(tiny_tokenizer, tmp_path):
    """They have its standard output open as well: it ends when the last of them has."""
    (tmp_path / "script.py").write_text(SCRIPT)
    process = subprocess.Popen(
        [sys.executable, "script.py", tiny_tokenizer],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,  # so that whatever is left can be found
    )
    try:
        assert process.stdout.readline() == "cut\n"
        process.kill()
        process.communicate(timeout=30)
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass


def test_a_worker_that_is_killed_is_told():
    assert list(map_in_order(abs, range(-20, 0), 2)) == list(range(20, 0, -1))
    with pytest.raises(MachineError, match="worker was killed.*fewer --num_workers.*resumes"):
        list(map_in_order(os._exit, range(1, 20), 2))


def test_the_temporary_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    with pytest.raises(MachineError, match="no temporary file can be written in .*/none': No such"):
        list(map_in_order(abs, range(20), 2))


def test_ctrl_c_is_left_to_the_parent():
    """Workers print no traceback, and what waits for them is not computed."""
    done = map_in_order(interrupted, range(20), 2)
    assert next(done) == 0
    done.close()


def interrupted(item: int) -> int:
    signal.raise_signal(signal.SIGINT)
    return item


class Fatal:
    """Ends the process that unpickles it."""

    def __reduce__(self) -> tuple:
        return os._exit, (1,)

    def __call__(self, item: object) -> object:
        return item


def test_a_worker_that_is_killed_while_it_starts_is_told():
    with pytest.raises(MachineError, match=r"ended while it started\. Either memory ran out"):
        list(map_in_order(Fatal(), range(20), 2))


def test_a_script_without_a_guard_is_told(tmp_path):
    """Its workers would run it again and end, before they have read a vocabulary's megabyte."""
    (tmp_path / "script.py").write_text(
        "import functools, operator\n"
        "from data.building.workers import map_in_order\n"
        "list(map_in_order(functools.partial(operator.contains, 'a' * 2**20), 'ab', 2))\n"
    )
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    error = "albert_tf.runtime.errors.MachineError: "
    messages = [line for line in done.stderr.splitlines() if line.startswith(error)]
    assert '__name__ == "__main__"' in messages[-1]
