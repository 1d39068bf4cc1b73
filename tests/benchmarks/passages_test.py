"""`benchmarks.passages`: both systems index and answer in processes of their own, and mistakes."""

import json
import pathlib

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from benchmarks.passages import PassagesOptions, main

# A stand-in for the package, whose vectors count letters.
_PACKAGE = """
import numpy as np


class SentenceTransformer:
    def __init__(self, path, device):
        assert device == "cpu"

    def encode(self, texts, show_progress_bar=True, convert_to_tensor=False):
        if isinstance(texts, str):
            return self.encode([texts])[0]
        return np.array([[text.count(letter) for letter in "aeiou"] for text in texts], np.float32)


class util:
    dot_score = "dot"

    @staticmethod
    def semantic_search(query, vectors, score_function, top_k):
        assert vectors.shape == (20, 5) and score_function == "dot"
        return np.argsort(-vectors @ query)[:top_k]
"""
_TORCH = "import numpy as np\nfrom_numpy, cat = np.asarray, np.concatenate\n"


@pytest.fixture
def corpus(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "corpus.jsonl"
    words = ("pear", "apple", "saw", "file", "plum")
    lines = [{"text": f"The {words[n % 5]} is number {n}."} for n in range(24)]
    path.write_text("\n".join(map(json.dumps, lines)))
    return f"jsonl:{path}"


@pytest.mark.slow
def test_lines(pretrained, corpus, tmp_path, monkeypatch, capsys):
    (tmp_path / "packages").mkdir()
    (tmp_path / "packages" / "sentence_transformers.py").write_text(_PACKAGE)
    (tmp_path / "packages" / "torch.py").write_text(_TORCH)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packages"))
    main(PassagesOptions(corpus, str(tmp_path), pretrained, passages=20, queries=6, cores=1))
    about, ours, peer = map(json.loads, capsys.readouterr().out.splitlines())
    assert (about["passages"], about["mean_words"]) == (20, 5.0)
    assert [ours["system"], peer["system"]] == ["ours", "peer"]
    for line in (ours, peer):
        assert line["query_ms"] > 0 and line["index_s"] < 60
        assert 20 < line["index_mb"] < 8_000 and 20 < line["query_mb"] < 8_000
    assert ours["index_mb"] > peer["index_mb"]  # which has loaded no TensorFlow
    assert {name: len(ratio) for name, ratio in ours["of_peer"].items()} == {"index": 3, "query": 3}
    assert ours["both_ms"] > 0 and "both_ms" not in peer


def test_mistakes(pretrained, corpus, tmp_path, monkeypatch, capsys):
    peer = str(tmp_path)
    main(PassagesOptions(corpus, peer, pretrained, passages=24, dry_run=True))
    assert json.loads(capsys.readouterr().out)["passages"] == 24
    with pytest.raises(InputError, match="must have --passages=25. Received: 24. Name more files"):
        main(PassagesOptions(corpus, peer, pretrained, passages=25))
    with pytest.raises(InputNotFoundError, match="--peer=.*none: no folder"):
        main(PassagesOptions(corpus, str(tmp_path / "none"), pretrained))
    (tmp_path / "sentence_transformers.py").write_text("raise ImportError('no such package')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    with pytest.raises(
        InputError, match="needs sentence-transformers. Received: [Nn]o .*pip install"
    ):
        main(PassagesOptions(corpus, peer, pretrained, passages=20))
