"""Tests of what starts a command, and of the Pythons that are refused."""

import pathlib
import subprocess
import sys
import tomllib

import pytest

from albert_tf.runtime import programs

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["python", "-m", "data.build", "--help"], True),
        (["python", "-m", "albert_tf", "data.build"], True),
        (["/usr/bin/python3", "/home/me/env/bin/albert-tf", "data.build"], True),
        (["python", "-u", "-m", "data.build"], True),
        (["python", "-W", "ignore", "-Xdev", "-m", "pretraining.train"], True),
        (["python", "-m", "database.build"], False),
        (["python", "-m"], False),
        (["python", "-c", "import albert_tf"], False),
        (["python", "data/build.py"], False),
        (["python"], False),
    ],
)
def test_commands_are_recognized_by_their_arguments(monkeypatch, argv, expected):
    monkeypatch.setattr(sys, "orig_argv", argv)
    assert programs.is_command() == expected


@pytest.mark.parametrize(
    ("argv", "expected"),
    [(["-m", "--data=x"], True), (["/bin/albert-tf"], True), (["train.py"], False), ([""], False)],
)
def test_a_command_of_a_python_that_does_not_know_its_arguments(monkeypatch, argv, expected):
    """Python 3.9 has no orig_argv, and -m in place of the module while its package is imported."""
    monkeypatch.delattr(sys, "orig_argv")
    monkeypatch.setattr(sys, "argv", argv)
    assert programs.is_command() == expected


OTHER = """
import sys
sys.version_info, sys.orig_argv = ({}, {}, 0), ["python", "-m", {!r}]
import albert_tf
"""


@pytest.mark.parametrize("minor", [10, 14])
@pytest.mark.parametrize("module", ["data.build", "pytest"])
def test_another_python_is_refused_with_one_line(module, minor):
    """A command ends; in another process, the import fails."""
    code = OTHER.format(3, minor, module)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    error = "" if module == "data.build" else "ImportError: "
    wanted = f"{error}albert_tf needs Python 3.11, 3.12 or 3.13. Received: "
    lines = done.stderr.splitlines()
    assert done.returncode == (1 if error else 2) and lines[-1].startswith(wanted)
    assert error or len(lines) == 1
    assert "python.org/downloads" in lines[-1]


def test_the_versions_are_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["requires-python"] == ">=3.11,<3.14"
    assert "VERSIONS = 3.13 3.12 3.11\n" in (ROOT / "Makefile").read_text(encoding="utf-8")
    assert "(3, 11) <= sys.version_info[:2] <= (3, 13)" in (
        ROOT / "albert_tf" / "__init__.py"
    ).read_text(encoding="utf-8")
