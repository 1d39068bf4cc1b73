"""Tests of the command `albert-tf`: the list, suggestions, and the layout of a wheel."""

import pathlib
import re
import subprocess
import sys

import pytest

from albert_tf import __main__ as launcher
from albert_tf.runtime import programs

ROOT = pathlib.Path(__file__).resolve().parents[2]
URL = "file:///tmp/albert_tf-0.2.0-py3-none-any.whl"


def run(cwd: pathlib.Path, *argv: str) -> tuple[int, str, str]:
    """Run Python with the tests' packages and the folder `site` beside `cwd`, if there is one."""
    env = {"PYTHONPATH": str(cwd.parent / "site"), "PATH": ""}
    done = subprocess.run(
        [sys.executable, *argv], cwd=cwd, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def user_folder(tmp_path: pathlib.Path) -> pathlib.Path:
    """A folder with the user's own `data`, beside `site`, which is laid out like a wheel."""
    site = tmp_path / "site"
    (site / "albert_tf" / "_programs").mkdir(parents=True)
    for path in (ROOT / "albert_tf").iterdir():
        (site / "albert_tf" / path.name).symlink_to(path)
    for name in ("data", "pretraining", "finetuning"):
        (site / "albert_tf" / "_programs" / name).symlink_to(ROOT / name)
    info = site / "albert_tf-0.2.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: albert_tf\nVersion: 0.2.0\n")
    (info / "direct_url.json").write_text(f'{{"url": "{URL}"}}')
    folder = tmp_path / "user"
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "__init__.py").write_text("raise SystemExit('the data of another project')")
    return folder


def test_the_list_has_all_commands_with_one_line_each(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["albert-tf"])
    assert launcher.main() == 0
    first, _, *lines = capsys.readouterr().out.splitlines()
    assert first == "python -m albert_tf COMMAND [flags]    (COMMAND --help lists the flags)"
    assert [line.split()[0] for line in lines] == list(launcher.COMMANDS)
    assert all(re.fullmatch(r"  \S+ +[A-Z].*\.", line) for line in lines), lines
    commands = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for package in programs.PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if 'if __name__ == "__main__":\n    run(' in path.read_text(encoding="utf-8")
        or 'if __name__ == "__main__":\n    commands.run(' in path.read_text(encoding="utf-8")
    }
    assert {name.removeprefix("albert_tf.") for name in commands} == set(launcher.COMMANDS)


def test_an_unknown_command_suggests_the_nearest(capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["albert-tf", "data.biuld", "--help"])
    assert launcher.main() == 2
    assert capsys.readouterr().err == (
        "albert-tf: error: unknown command `data.biuld`. Did you mean data.build or data.pairs or "
        "data.clean?\n"
    )
    monkeypatch.setattr(sys, "argv", ["albert-tf", "train"])
    assert launcher.main() == 2
    assert capsys.readouterr().err == (
        "albert-tf: error: unknown command `train`. Did you mean pretraining.train or "
        "finetuning.train?\n"
    )


def test_in_a_checkout_it_runs_the_same_command():
    code, out, err = run(ROOT, "-m", "albert_tf", "data.build", "--help")
    assert (code, err) == (0, "")
    assert out == run(ROOT, "-m", "data.build", "--help")[1]
    assert out.startswith("python -m data.build [flags]")


def test_an_installed_command_runs_beside_the_users_own_data(user_folder):
    """Its help and its messages name the commands that work there."""
    code, out, err = run(user_folder, "-m", "albert_tf", "data.build", "--help")
    assert (code, err) == (0, "")
    assert out.startswith("albert-tf data.build [flags]") and "python -m" not in out
    (user_folder / "bad.model").write_text("bad")
    flags = ["--corpus=python_docs:email", "--tokenizer=bad.model", "--output=records"]
    code, out, err = run(user_folder, "-m", "albert_tf", "data.build", *flags)
    assert (code, out) == (2, "")
    assert err.endswith("or train a model with `albert-tf data.train_tokenizer`.\n")
    assert run(user_folder, "-c", "import data")[2] == "the data of another project\n"


def test_a_missing_package_names_the_extra(user_folder):
    """A bare installation has no google_crc32c, with which records are written."""
    (user_folder.parent / "site" / "google_crc32c.py").write_text(
        "raise ModuleNotFoundError('absent', name='google_crc32c')"
    )
    assert run(user_folder, "-m", "albert_tf", "data.build", "--help") == (
        2,
        "",
        "albert-tf: error: data.build needs the package google_crc32c. Run pip install "
        f"'albert_tf[train] @ {URL}'.\n",
    )


def test_the_version_is_that_of_the_wheel(user_folder):
    assert run(user_folder, "-c", "import albert_tf; print(albert_tf.__version__)")[1] == "0.2.0\n"


WRITE = """
import pickle
from albert_tf.runtime import programs
programs.add_to_path()
from data.cleaning.ngrams import num_words
print(pickle.dumps(programs.Portable(num_words, text="one two")).hex())
"""
READ = """
import pickle, sys
print("data" in sys.modules, pickle.loads(bytes.fromhex(sys.argv[1]))())
"""


def test_functions_find_their_program_in_another_process(user_folder):
    """As in Beam's workers, which know albert_tf alone."""
    code, content, err = run(user_folder, "-c", WRITE)
    assert (code, err) == (0, "")
    assert run(user_folder, "-c", READ, content.strip()) == (0, "False 2\n", "")
