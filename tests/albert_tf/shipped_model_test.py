"""The model that ships with the package: its folder, what it has learned, its script."""

import gzip
import json
import os
import pathlib
import subprocess
import sys

import pytest

import albert_tf
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from pretraining.loop.recipes import EXPERIMENTS

NAME = "albert-mini-en"
FOLDER = pathlib.Path(pretrained.FOLDER) / NAME
ROOT = pathlib.Path(__file__).resolve().parents[2]
FILES = {
    "README.md",
    "checkpoints/checkpoint",
    "checkpoints/ckpt-1.data-00000-of-00001",
    "checkpoints/ckpt-1.index",
    "config.json",
    "make.sh",
    "tokenizer/albert_tokenizer.json",
    "tokenizer/spiece.model",
    "training.json",
}


def test_the_folder_is_whole_and_small():
    assert pretrained.names() == [NAME, f"{NAME}-embed"]
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert {path.relative_to(FOLDER).as_posix() for path in files} == FILES
    assert sum(path.stat().st_size for path in files) < 16_000_000


def test_it_is_the_experiment():
    config = albert_tf.AlbertConfig.from_preset(NAME)
    wanted = EXPERIMENTS["albert-mini"].model
    assert config == wanted.replace(vocab_size=config.vocab_size, max_positions=512)
    recorded = json.loads((FOLDER / "training.json").read_text())
    assert recorded["model"] == settings.to_dict(config)
    assert 3e6 < config.param_count() < 8e6


def test_the_card_has_a_header_for_hugging_face():
    head, card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---\n")[1:3]
    assert {"language: en", "license: apache-2.0"} <= set(head.splitlines())
    assert f"{albert_tf.AlbertConfig.from_preset(NAME).param_count():,} parameters" in card
    for word in ("CC BY-SA 3.0", "Rebecca West", "Limits and bias", "make.sh", "BLiMP"):
        assert word in card
    assert "@" not in card


# Each word was among the five best guesses when the model was added; ten allow for rounding.
BLANKS = {
    "She opened the [MASK] and walked into the house.": "door",
    "World War [MASK] began in 1939.": "ii",
    "The train arrived at the [MASK].": "station",
    "She is the author of several [MASK].": "books",
    "I would like a glass of [MASK].": "water",
    "The sun rises in the [MASK].": "sky",
}


def test_it_fills_blanks():
    answers = albert_tf.load_fill_mask(NAME, top_k=10)(list(BLANKS))
    for (text, word), masks in zip(BLANKS.items(), answers, strict=True):
        assert f"▁{word}" in [piece for piece, _ in masks[0]], (text, masks)


def test_it_knows_everyday_characters():
    tokenizer = load_tokenizer(str(FOLDER))
    ids = tokenizer.encode_batch(["so happy 😂 ❤", "that’s 5 € 😭 … ok"])
    assert not any(tokenizer.special.unk in row for row in ids)
    assert tokenizer.decode(ids[0]) == "so happy 😂 ❤"


@pytest.mark.slow
def test_its_script_makes_a_model_from_text(tmp_path: pathlib.Path):
    """On the project's own documentation, with a small vocabulary and two steps."""
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    for name in ("wiki-0", "books-0"):
        with gzip.open(corpus / f"{name}.jsonl.gz", "wt", encoding="utf-8") as file:
            for number in range(40):
                text = pages[number % len(pages)]
                file.write(json.dumps({"text": f"{name} {number}\n\n{text}"}) + "\n")
    everyday = tmp_path / "everyday.jsonl"
    everyday.write_text(f"{json.dumps({'text': 'so happy 😂 ' * 3})}\n")
    command = ["bash", str(FOLDER / "make.sh"), str(corpus), str(tmp_path / "out")]
    small = ("loop.steps=2", "loop.steps_per_loop=1", "loop.checkpoint_every=1")
    small += ("optimizer.warmup_steps=1", "optimizer.decay_steps=1", "loop.global_batch_size=8")
    small += ("model.hidden_size=64", "model.num_heads=2", "model.intermediate_size=64")
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    for _ in range(2):  # the second time, nothing is left to do
        done = subprocess.run(
            [*command, *(f"--set={value}" for value in small)],
            env=os.environ | {"VOCAB_SIZE": "600", "EVERYDAY": str(everyday), "PATH": path},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
    model = albert_tf.load_pretrainer(str(tmp_path / "out" / NAME))
    assert model.config.hidden_size == 64 and model.config.max_positions == 512
    tokenizer = load_tokenizer(str(tmp_path / "out" / NAME))
    assert tokenizer.special.unk not in tokenizer.encode_batch(["😂"])[0]
    assert RunDir(str(tmp_path / "out" / "run")).result()["step"] == 2
