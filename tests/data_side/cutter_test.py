"""Proves that workers end with the build, and that cuts have a random stream of their own."""

import os
import pathlib
import signal
import subprocess
import sys

from albert_tf.tokenization import load_tokenizer
from data import cutter
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


def test_a_pair_has_a_key_of_its_own(tiny_tokenizer):
    """In every pass and document; the same whatever stands beside the document."""
    documents = [(number, Document(("Ba de fi.", "Go ku."), "")) for number in range(50)]
    dupes = cutter.Cutter(load_tokenizer(tiny_tokenizer), 16, dupe_factor=12, seed=0)
    together, counts = dupes.cut(documents)
    assert len(set(together.keys.tolist())) == len(together) == counts.sequences >= 12 * 50
    alone = [key for one in documents for key in dupes.cut([one])[0].keys.tolist()]
    assert sorted(alone) == sorted(together.keys.tolist())


def test_a_long_line_is_cut_into_parts_and_nothing_is_lost(tiny_tokenizer):
    """Longer than what the library gets at once, with and without spaces."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    one = cutter.Cutter(tokenizer, 64, dupe_factor=1, seed=0)
    for text in ("ba de " * 50_000, "bade" * 60_000):
        pairs, counts = one.cut([(0, Document((text.strip(),), ""))])
        assert counts.pieces_lost == 0 and (pairs.lengths <= 61).all()
        assert tokenizer.decode(pairs.pieces.tolist()).replace(" ", "") == text.replace(" ", "")
