"""README says what is true: its commands parse, and those of the journey run as written."""

import importlib
import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands
from data.corpora.corpus import KINDS, read_documents

ROOT = pathlib.Path(__file__).resolve().parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
JOURNEY = re.search(r"```bash\n(.*?)```", README, re.DOTALL)[1]
COMMANDS = [line for line in JOURNEY.splitlines() if line.startswith("python ")]
MAINS = {
    "data.train_tokenizer": "TrainTokenizerOptions",
    "data.build": "BuildOptions",
    "pretraining.train": "TrainOptions",
    "pretraining.evaluate": "EvaluateOptions",
    "albert_tf.export": "ExportOptions",
    "finetuning.train": "FinetuneOptions",
}


def options_of(module: str) -> type:
    name = "albert_tf.export.__main__" if module == "albert_tf.export" else module
    return getattr(importlib.import_module(name), MAINS[module])


@pytest.mark.parametrize("command", [c for c in COMMANDS if " -m " in c])
def test_every_flag_exists(command: str):
    words = shlex.split(command)
    module = words[2]
    assert isinstance(commands.parse(options_of(module), words[2:], "", module), options_of(module))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """What README supposes: some text under corpus/, and labelled reviews."""
    folder = tmp_path_factory.mktemp("reader")
    (folder / "corpus").mkdir()
    packages = "python_docs:email,logging,unittest,asyncio,json,argparse,collections,tkinter"
    documents = list(read_documents(packages))
    for part in range(2):
        text = "\n\n".join("\n".join(d.sentences) for d in documents[part::2])
        (folder / "corpus" / f"{part}.txt").write_text(text, encoding="utf-8")
    (folder / "reviews").mkdir()
    rows = "text\tlabel\n" + "good and kind\tyes\nbad and slow\tno\n" * 20
    for name in ("train.tsv", "dev.tsv"):
        (folder / "reviews" / name).write_text(rows, encoding="utf-8")
    for name in ("albert_tf", "data", "pretraining", "finetuning", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


def test_the_journey_runs_as_written(folder: pathlib.Path):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    for command in COMMANDS:
        words = [sys.executable, *shlex.split(command)[1:]]
        done = subprocess.run(
            words, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{command}\n{done.stderr[-1500:]}"
        assert "Traceback" not in done.stderr
    assert (folder / "export" / "reviews" / "1" / "saved_model.pb").is_file()
    for snippet in re.findall(r"```python\n(.*?)```", README, re.DOTALL):
        done = subprocess.run(
            [sys.executable, "-c", snippet],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, f"{snippet}\n{done.stderr[-1500:]}"


def test_the_table_of_other_text_is_true():
    rows = re.findall(r"^\| .* \| `(--corpus.*)` \|$", README, re.M)
    assert len(rows) == 10
    for row in rows:
        flags = shlex.split(row.replace("\\|", "|"))
        needed = ["--output=o", "--tokenizer=t"]
        options = commands.parse(options_of("data.build"), ["build", *flags, *needed], "", "")
        commands.parse(options_of("data.train_tokenizer"), ["train", *flags, needed[0]], "", "")
        assert options.corpus.partition(":")[0] in KINDS
        kind, _, expression = options.document_boundary.partition(":")
        assert kind in ("blank_line", "file", "regex")
        re.compile(expression)


def test_the_preset_table_is_true():
    rows = re.findall(r"^\| `albert-(\w+)-v1`.*\| ([\d,]+) \| ([\d,]+) .*\|$", README, re.M)
    assert len(rows) == 4
    for name, encoder, unshared in rows:
        config = AlbertConfig.from_preset(f"albert-{name}-v2")
        assert f"{config.param_count():,}" == encoder
        bert = config.replace(sharing="none", embedding_size=config.hidden_size)
        assert f"{bert.param_count():,}" == unshared
