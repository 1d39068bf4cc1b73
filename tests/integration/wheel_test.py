"""Proofs of the wheel in empty environments, which an installation downloads."""

import pathlib
import re
import subprocess
import sys
import venv
import zipfile

import pytest

from albert_tf.runtime import pretrained

ROOT = pathlib.Path(__file__).resolve().parents[2]
NAME = "albert-mini-en"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The wheel of the current commit, which is tagged v0.9.0."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    asked = [*pip, "download", "--quiet", "--no-deps", f"--dest={folder}/tqdm", "tqdm"]
    if subprocess.run(asked, capture_output=True, check=False).returncode:
        pytest.skip("no package index answers")
    clone = folder / "clone"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
    subprocess.run(["git", "-C", str(clone), "tag", "v0.9.0"], check=True)
    build = [*pip, "wheel", "--quiet", "--no-deps", f"--wheel-dir={folder}", str(clone)]
    subprocess.run(build, check=True)
    (found,) = folder.glob("*.whl")
    return found


@pytest.mark.slow
def test_it_holds_all_and_hides_no_module(wheel: pathlib.Path):
    assert wheel.name == "albert_tf-0.9.0-py3-none-any.whl"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {re.split("[/-]", name)[0] for name in names} == {"albert_tf"}
    wanted = {path for path in pathlib.Path(pretrained.FOLDER).rglob("*") if path.is_file()}
    assert {path.relative_to(ROOT).as_posix() for path in wanted} <= names
    for package in ("data", "pretraining", "finetuning"):
        for path in [*(ROOT / package).rglob("*.py"), *(ROOT / package).rglob("*.html")]:
            assert f"albert_tf/_programs/{path.relative_to(ROOT).as_posix()}" in names


USE = f"""
import sys
import albert_tf
fill = albert_tf.load_fill_mask({NAME!r})
print(fill(["She opened the [MASK] and walked into the house."])[0][0][0][0])
embed = albert_tf.load_embedder("albert-mini-en-embed")
flood, rain, dog = embed(["The river flooded.", "Rain put streets under water.", "A dog runs."])
print(flood.shape, flood @ rain > 0.2 + flood @ dog)
print(albert_tf.load_encoder(sys.argv[1]).config.hidden_size, albert_tf.__version__)
"""


@pytest.mark.slow
def test_without_extras_it_fills_a_blank_embeds_and_loads_an_export(
    wheel: pathlib.Path, exports: pathlib.Path, tmp_path: pathlib.Path
):
    venv.create(tmp_path / "env", with_pip=True)
    python = str(tmp_path / "env" / "bin" / "python")
    uv = pathlib.Path(sys.executable).with_name("uv")
    pip = [uv, "pip", "install", "--python", python]
    pip = pip if uv.exists() else [python, "-m", "pip", "install"]
    subprocess.run([*pip, "--quiet", wheel], check=True)
    done = subprocess.run(
        [python, "-I", "-c", USE, str(exports / "encoder" / "1")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "▁door\n(384,) True\n32 0.9.0\n", done.stderr[-3000:]


@pytest.mark.slow
def test_with_train_it_goes_from_text_to_an_export_that_answers(wheel: pathlib.Path):
    journey = [ROOT / ".ci" / "journey", sys.executable, wheel]
    done = subprocess.run(journey, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert done.stdout.splitlines()[-1].startswith("journey: done")


def test_the_version_of_a_build_without_a_tag_names_its_commit(tmp_path):
    if not (ROOT / ".git").exists():
        pytest.skip("not in a git checkout")
    git = ["git", "-C", str(tmp_path)]
    clone = ["git", "clone", "--quiet", "--depth=1", "--no-tags", ROOT.as_uri(), str(tmp_path)]
    subprocess.run(clone, check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True)

    def version() -> str:
        command = [sys.executable, "setup.py", "--version"]
        done = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True, check=True)
        return done.stdout.split()[-1]

    assert re.fullmatch(rf"[\d.]+\+g{commit.stdout[:8]}", version())
    with open(tmp_path / "README.md", "a") as file:
        file.write("\n")
    assert version().endswith(f"{commit.stdout[:8]}.changed")
    subprocess.run([*git, "checkout", "--quiet", "."], check=True)
    for tag in ("v0.9.0", "v0.10.0", "v0.10.0rc1"):
        subprocess.run([*git, "tag", tag], check=True)
    assert version() == "0.10.0"
