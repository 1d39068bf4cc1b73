"""Run one system of `benchmarks.passages`: index files of passages, or answer queries in them.

python -m benchmarks.passages_worker SYSTEM ACTION MODEL FOLDER CORES
"""

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

from benchmarks.step_worker import peak_rss_mb
from benchmarks.workers import System, answer_requests

_WHOLE = 10**6  # words of a passage, so that a line is one
_TOP, _INDEX = 10, "index"


def ours(action: str, model: str, folder: str) -> Callable[[str], dict[str, Any]]:
    """Return what adds a file to the index of examples.search, or answers a query from it."""
    from finetuning.searching.indexing import CorpusToIndex, update_index
    from finetuning.searching.search_index import SearchIndex
    from finetuning.searching.search_model import SearchModel
    from finetuning.searching.searcher import BOTH, VECTORS, Searcher

    path, embedder = os.path.join(folder, "ours"), SearchModel(model)
    if action == _INDEX:
        embedder.passages(["a text"] * 32)

        def index(file: str) -> dict[str, Any]:
            update_index(path, CorpusToIndex(f"jsonl:{file}"), _WHOLE, lambda: embedder)
            return {}

        return index
    searcher = Searcher(SearchIndex(path), embedder.query)

    def ask(query: str) -> dict[str, Any]:
        return {
            "passages": len(searcher.index),
            "query_ms": _timed(lambda: searcher.ranking(query, _TOP, VECTORS)),
            "both_ms": _timed(lambda: searcher.ranking(query, _TOP, BOTH)),
        }

    ask("a text")
    return ask


def peer(action: str, model: str, folder: str) -> Callable[[str], dict[str, Any]]:
    """Return what stores a file's vectors by sentence-transformers, or searches in all of them."""
    import numpy as np
    import torch
    from sentence_transformers import SentenceTransformer, util

    network = SentenceTransformer(model, device="cpu")
    network.encode(["a text"] * 32)
    if action == _INDEX:

        def index(file: str) -> dict[str, Any]:
            with open(file, encoding="utf-8") as lines:
                texts = [json.loads(line)["text"] for line in lines]
            np.save(f"{file}.peer.npy", network.encode(texts, show_progress_bar=False))
            return {}

        return index
    files = sorted(name for name in os.listdir(folder) if name.endswith(".peer.npy"))
    parts = [np.load(os.path.join(folder, name), mmap_mode="r") for name in files]
    vectors = torch.from_numpy(np.concatenate(parts))

    def ask(query: str) -> dict[str, Any]:
        def search() -> None:
            vector = network.encode(query, show_progress_bar=False, convert_to_tensor=True)
            # Vectors of length 1 need no cosine, as the library's documentation says.
            util.semantic_search(vector, vectors, score_function=util.dot_score, top_k=_TOP)

        return {"passages": len(vectors), "query_ms": _timed(search)}

    ask("a text")
    return ask


def _timed(run: Callable[[], object]) -> float:
    begin = time.perf_counter()
    run()
    return 1000 * (time.perf_counter() - begin)


def main(name: str, action: str, model: str, folder: str, cores: str) -> None:
    """Load the system and answer requests of one file or query, with the memory that it took."""

    def load() -> System:
        run = {"ours": ours, "peer": peer}[name](action, model, folder)
        return System(lambda texts: run(texts[0]) | {"memory_mb": peak_rss_mb()})

    answer_requests(load, int(cores))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
