"""Proves that workers end with the build, and that cuts have a random stream of their own."""

import os
import pathlib
import random
import signal
import subprocess
import sys

from albert_tf.tokenization import load_tokenizer
from data import cutter, keyed
from data.corpora import Document

ROOT = pathlib.Path(__file__).resolve().parents[2]
SCRIPT = """
import sys, time
from albert_tf.tokenization import load_tokenizer
from data import cutter
from data.corpora import Document

def documents():
    for number in range(9):
        yield number, Document(("Ba de fi.", "Go ku."), "")
    time.sleep(600)

if __name__ == "__main__":
    cutter.BATCH_CHARACTERS = 1
    mine = cutter.Cutter(load_tokenizer(sys.argv[1]), 16, 1, 0)
    for _ in cutter.cut_all(mine, documents(), 2):
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


def test_segments_have_a_stream_of_their_own(tiny_tokenizer, monkeypatch):
    seeds = []
    monkeypatch.setattr(
        cutter.random, "Random", lambda seed, real=random.Random: seeds.append(seed) or real(seed)
    )
    document = Document(("Ba de fi.", "Go ku."), "")
    dupes = cutter.Cutter(load_tokenizer(tiny_tokenizer), 16, dupe_factor=12, seed=0)
    dupes.cut([(number, document) for number in range(50)])
    others = {keyed.stream_key(0, s, e) for s in range(1, keyed.SEGMENTS) for e in range(50)}
    assert len(set(seeds)) == len(seeds) == 12 * 50
    assert not others & set(seeds)
