"""The embedder that ships with the package: its folder, what is near in it, its script."""

import gzip
import json
import os
import pathlib
import pickle
import subprocess
import sys

import numpy as np
import pytest

import albert_tf
from albert_tf.runtime import pretrained
from tests.albert_tf.shipped_model_test import FILES

NAME = "albert-mini-en-embed"
FOLDER = pathlib.Path(pretrained.FOLDER) / NAME
ROOT = pathlib.Path(__file__).resolve().parents[2]
# Each of two is nearer to the other than to any of the rest.
PAIRS = [
    ("The river flooded the town.", "Heavy rain put the streets under water."),
    ("How do I reset my password?", "I forgot my login and need a new one."),
    ("A dog is running across the grass.", "Two dogs play in the park."),
    ("The company reported higher profits.", "Earnings of the firm rose this quarter."),
    ("She plays the violin in an orchestra.", "He performs classical music on the piano."),
]


def test_the_folder_is_whole_and_small():
    files = [path for path in FOLDER.rglob("*") if path.is_file()]
    assert {path.relative_to(FOLDER).as_posix() for path in files} == FILES - {"training.json"}
    assert sum(path.stat().st_size for path in files) < 16_100_000


def test_the_card_has_a_header_for_hugging_face():
    head, card = (FOLDER / "README.md").read_text(encoding="utf-8").split("---\n")[1:3]
    assert {"language: en", "license: apache-2.0"} <= set(head.splitlines())
    config = albert_tf.AlbertConfig.from_preset(NAME)
    assert config == albert_tf.AlbertConfig.from_preset("albert-mini-en")
    assert f"{config.param_count():,} parameters" in card
    for word in ("all-MiniLM-L6-v2", "MS MARCO", "CC BY-SA", "Limits and bias", "make.sh", "BM25"):
        assert word in card


def test_a_pickle_has_the_name():
    """Not the folder, which is another one elsewhere."""
    assert NAME.encode() in (content := pickle.dumps(albert_tf.load_embedder(NAME)))
    assert str(FOLDER).encode() not in content


def test_texts_of_the_same_meaning_are_near(capsys):
    embed = albert_tf.load_embedder(NAME)
    assert "not trained" not in capsys.readouterr().err
    vectors = embed([text for pair in PAIRS for text in pair])
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    cosines = vectors @ vectors.T - 2 * np.eye(len(vectors))
    assert cosines.argmax(1).tolist() == [place ^ 1 for place in range(len(vectors))]


@pytest.mark.slow
def test_its_script_makes_a_model_from_text(tmp_path: pathlib.Path):
    """On the project's own documentation, with the shipped embedder as the teacher."""
    (tmp_path / "corpus").mkdir()
    pages = [path.read_text(encoding="utf-8") for path in sorted((ROOT / "docs").glob("*.md"))]
    with gzip.open(tmp_path / "corpus" / "docs.jsonl.gz", "wt", encoding="utf-8") as file:
        file.writelines(json.dumps({"text": page}) + "\n" for page in pages)
    dev = tmp_path / "dev.tsv"
    dev.write_text(
        "\n".join(["sentence1\tsentence2\tscore", *(f"a {i}\tb {i}\t{i}" for i in range(40))])
    )
    arguments = (tmp_path / "corpus", FOLDER, dev, tmp_path / "out")
    command = ["bash", str(FOLDER / "make.sh"), *map(str, arguments)]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    few = {"SENTENCES": "400", "PASSAGES": "80", "LONG_PASSAGES": "32", "EPOCHS": "1", "PATH": path}
    for _ in range(2):  # the second time, nothing is left to do
        done = subprocess.run(
            command, env=os.environ | few, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
    vectors = albert_tf.load_embedder(str(tmp_path / "out" / NAME))(["one", "two"])
    assert vectors.shape == (2, 384)
