"""Measure searches by words, by vectors and by both: the scores of a test collection, and times.

    python -m benchmarks.search --data_dir=retrieval/cacm --model=albert-mini-en
    python -m benchmarks.search --index=notes.index

With --data_dir, a collection in BEIR's layout, each document is a passage, and a JSON line for each
method has the metrics of the test queries in percent. With --index, the line has the median time of
a query in milliseconds; the queries are beginnings of passages. `embedding` is the model's part of
it.
"""

import dataclasses
import json
import os
import resource
import tempfile
import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np

import albert_tf
from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.searching.indexing import CorpusToIndex, update_index
from finetuning.searching.search_index import SearchIndex
from finetuning.searching.search_model import SearchModel
from finetuning.searching.searcher import METHODS, Searcher

_WHOLE = 10**6  # words of a passage, so that a document is one
_DEPTH = 100  # documents of a ranking, all of which a ranker reads
_QUERY_WORDS = 8


@dataclasses.dataclass(frozen=True)
class SearchBenchmarkOptions(commands.CommandOptions):
    """The command line of `benchmarks.search`."""

    data_dir: str | None = commands.option("a collection in BEIR's layout", None, path=True)
    model: str | None = commands.option(
        "what albert_tf.load_embedder takes", None, path=True, needs="data_dir"
    )
    ranker: str | None = commands.option(
        "what albert_tf.load_ranker takes, to sort the first 100 documents anew",
        None,
        path=True,
        needs="data_dir",
    )
    index: str | None = commands.option("an index of examples.search", None, path=True)
    queries: Annotated[int, POSITIVE] = commands.option("queries for --index", 50)
    dry_run: bool = commands.option("read the collection or the index only", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if bool(self.model) + bool(self.index) != 1:
            raise InputError("Pass either --data_dir and --model, or --index.")


def main(options: SearchBenchmarkOptions) -> None:
    """Measure and print the lines."""
    if options.index:
        _measure_times(options)
    else:
        _measure_scores(options)


def _measure_scores(options: SearchBenchmarkOptions) -> None:
    data: Any = DATASETS["embedding"]
    examples = data.examples(Source(options.data_dir), "test")
    corpus = examples[0].corpus
    if options.dry_run:
        print(f"{len(examples):,} queries, {len(corpus):,} documents")
        return
    model = SearchModel(str(options.model))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "corpus.jsonl")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps({"text": text}) + "\n" for text in corpus.texts)
        index_path = os.path.join(folder, "index")
        update_index(index_path, CorpusToIndex(f"jsonl:{path}"), _WHOLE, lambda: model)
        index = SearchIndex(index_path)
        ids = [corpus.ids[index.passage(row).line - 1] for row in range(len(index))]
        searcher = Searcher(
            index, model.query, albert_tf.load_ranker(options.ranker) if options.ranker else None
        )
        for by in METHODS:
            rankings = []
            for query in examples:
                ranking = searcher.ranking(query.first, _DEPTH + 1, by)
                found = [[ids[row], score] for row, score in ranking if ids[row] != query.itself]
                rankings.append({"ranking": found[:_DEPTH]})
            scores = data.score(rankings, examples)
            percent = {name: round(100 * value, 1) for name, value in scores.items()}
            print(json.dumps({"benchmark": "search", "by": by} | percent), flush=True)


def _measure_times(options: SearchBenchmarkOptions) -> None:
    begin = time.perf_counter()
    index = SearchIndex(str(options.index))
    opened_s = time.perf_counter() - begin
    if options.dry_run:
        print(f"{len(index):,} passages")
        return
    model = SearchModel(index.settings.model)
    searcher = Searcher(index, model.query)
    rows = np.linspace(0, len(index) - 1, options.queries).astype(int)
    queries = [" ".join(index.passage(row).text.split()[:_QUERY_WORDS]) for row in rows.tolist()]
    times = {
        by: _median_ms(lambda query, by=by: searcher.ranking(query, 10, by), queries)
        for by in METHODS
    }
    times |= {"embedding": _median_ms(model.query, queries)}
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    about = {"passages": len(index), "opened_s": round(opened_s, 2), "memory_mb": round(memory)}
    print(json.dumps({"benchmark": "search", **about, "query_ms": times}))


def _median_ms(run: Callable[[str], object], queries: list[str]) -> float:
    run(queries[0])
    times = []
    for query in queries:
        begin = time.perf_counter()
        run(query)
        times.append(time.perf_counter() - begin)
    return round(1000 * float(np.median(times)), 1)


if __name__ == "__main__":
    commands.run(main, SearchBenchmarkOptions, __doc__)
