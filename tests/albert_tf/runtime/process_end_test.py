"""The end of a command: its status, its exit handlers and output, and what is not freed."""

import os
import pathlib
import signal
import subprocess
import sys

import pytest

import albert_tf

PROGRAM = """
import atexit, dataclasses, os, signal, sys
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError

class Left:
    def __del__(self, write=os.write):
        write(1, b"freed ")

left = Left()

@dataclasses.dataclass(frozen=True)
class Options:
    how: str = commands.option("how it ends")

def program(options):
    atexit.register(print, "handled", end=" ")
    kept = Left()
    print("printed", end=" ")
    if options.how == "mistake":
        raise InputError("no")
    if options.how == "bug":
        raise KeyError("bug")
    if options.how == "text":
        sys.exit("a message")
    if options.how == "signal":
        signal.raise_signal(signal.SIGTERM)
    return int(options.how)

commands.run(program, Options, "Doc.")
"""


def test_a_handler_that_was_replaced_below_python_is_installed_again():
    code = (
        "import ctypes, signal, sys\n"
        "from albert_tf.runtime.process_end import handlers_kept\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "with handlers_kept():\n"
        "    ignore = ctypes.c_void_p(1)  # SIG_IGN\n"
        "    ctypes.CDLL(None).signal(ctypes.c_int(signal.SIGTERM), ignore)\n"
        "    signal.raise_signal(signal.SIGTERM)\n"
        "signal.raise_signal(signal.SIGTERM)\n"
    )
    root = os.path.dirname(albert_tf.__path__[0])
    done = subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": root})
    assert done.returncode == 7


@pytest.mark.parametrize(
    ("package", "how", "status", "printed"),
    [
        ("data", "0", 0, "printed freed handled "),
        ("data", "3", 3, "printed freed handled "),
        ("data", "mistake", 2, "printed handled "),
        ("data", "text", 1, "printed handled "),
        ("data", "bug", 1, "printed handled "),
        ("data", "signal", 128 + signal.SIGTERM, "printed handled "),
        ("other", "0", 0, "printed freed handled freed "),  # no command of this project
    ],
)
def test_a_command_frees_nothing_at_its_end(
    tmp_path: pathlib.Path, package: str, how: str, status: int, printed: str
):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").touch()
    (tmp_path / package / "ends.py").write_text(PROGRAM)
    root = os.path.dirname(albert_tf.__path__[0])
    done = subprocess.run(
        [sys.executable, "-u", "-m", f"{package}.ends", f"--how={how}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}:{root}"},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (status, printed), done.stderr
    assert ("Traceback" in done.stderr) == (how == "bug")


def test_the_list_of_commands_ends_quietly_if_its_reader_has_left():
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-m", "albert_tf"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")
