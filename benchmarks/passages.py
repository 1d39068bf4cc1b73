"""Index passages and answer queries beside sentence-transformers, in turns.

    python -m benchmarks.passages --corpus=jsonl:'books/*.jsonl.gz' --peer=all-MiniLM-L6-v2

`ours` is the index of examples.search, with the words of the passages, which is extended by each
tenth of them. `peer` is sentence-transformers: the vectors of `encode`, and `semantic_search` in
all of them. Each is a process of its own with the same passages, in turns for each tenth and then
for each query, the beginning of a passage. The processes that answer queries are new ones.

Each system has a JSON line: the seconds of indexing, without reading the corpus and loading the
model, the median milliseconds of a query from its text to ten passages, and the most memory of
either process. `query_ms` of ours is that by vectors, as of the peer; `both_ms` adds words. `ours`
also has `of_peer`, the ratio to the peer of the median tenth and query, between the ends of its
95 % interval.
"""

import dataclasses
import itertools
import json
import os
import statistics
import tempfile
from typing import Annotated, Any

import numpy as np

from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE, at_least
from albert_tf.runtime.errors import InputError
from benchmarks import workers
from benchmarks.workers import Worker
from finetuning.searching.indexing import CorpusToIndex
from finetuning.searching.passages import passages_of

SYSTEMS = ("ours", "peer")
_MODULE, _PARTS, _QUERY_WORDS = "benchmarks.passages_worker", 10, 8


@dataclasses.dataclass(frozen=True)
class PassagesOptions(commands.CommandOptions):
    """The command line of `benchmarks.passages`."""

    corpus: str = commands.option("the texts, as for examples.search", path=True)
    peer: str = commands.option("a folder of sentence-transformers", path=True)
    model: str = commands.option(
        "what albert_tf.load_embedder takes", "albert-mini-en-embed", path=True
    )
    passages: Annotated[int, at_least(_PARTS)] = commands.option("passages to index", 100_000)
    max_words: Annotated[int, at_least(2)] = commands.option("the most words of a passage", 64)
    queries: Annotated[int, POSITIVE] = commands.option("queries", 50)
    cores: Annotated[int, POSITIVE] = commands.option("cores of each system", 2)
    dry_run: bool = commands.option("read the passages only", False)


def main(options: PassagesOptions) -> None:
    """Measure and print the lines.

    Raises:
      InputError: the corpus has fewer passages, or sentence-transformers is not installed.
    """
    workers.check_cores(options.cores)
    texts = _passages(options)
    words = [len(text.split()) for text in texts]
    about = {"cpu": workers.cpu(), "passages": len(texts), "mean_words": round(np.mean(words), 1)}
    print(json.dumps(about), flush=True)
    if options.dry_run:
        return
    rows = np.linspace(0, len(texts) - 1, options.queries).astype(int)
    queries = [" ".join(texts[row].split()[:_QUERY_WORDS]) for row in rows.tolist()]
    with tempfile.TemporaryDirectory() as folder:
        parts = []
        for number, rows in enumerate(np.array_split(np.arange(len(texts)), _PARTS)):
            parts.append(os.path.join(folder, f"{number}.jsonl"))
            with open(parts[-1], "w", encoding="utf-8") as file:
                file.writelines(json.dumps({"text": texts[row]}) + "\n" for row in rows.tolist())
        indexing = _in_turns("index", options, folder, [[part] for part in parts])
        asking = _in_turns("ask", options, folder, [[query] for query in queries])
    for system in SYSTEMS:
        line: dict[str, Any] = {
            "system": system,
            "index_s": round(sum(answer["wall_ms"] for answer in indexing[system]) / 1000, 1),
            "query_ms": round(statistics.median(_query_ms(asking[system])), 2),
        }
        if system == "ours":
            both = [answer["values"]["both_ms"] for answer in asking[system]]
            line["both_ms"] = round(statistics.median(both), 2)
        for name, answers in (("index_mb", indexing), ("query_mb", asking)):
            line[name] = round(answers[system][-1]["values"]["memory_mb"])
        if system == "ours":
            line["of_peer"] = _ratios(indexing, asking)
        print(json.dumps(line), flush=True)


def _passages(options: PassagesOptions) -> list[str]:
    reader = CorpusToIndex(options.corpus).reader()
    documents = (document for _, document in reader.documents(reader.parts()))
    passages = passages_of(documents, options.max_words)
    texts = [
        " ".join(passage.text.split()) for passage in itertools.islice(passages, options.passages)
    ]
    if len(texts) < options.passages:
        raise InputError(
            f"--corpus={options.corpus} must have --passages={options.passages:,}. Received: "
            f"{len(texts):,}. Name more files, or ask for fewer."
        )
    return texts


def _in_turns(
    action: str, options: PassagesOptions, folder: str, requests: list[list[str]]
) -> dict[str, list[dict[str, Any]]]:
    """Return each system's answers to the requests, which each gets in turn."""
    models = {"ours": options.model, "peer": os.path.abspath(options.peer)}
    running = {
        system: Worker(system, _MODULE, (system, action, models[system], folder, options.cores))
        for system in SYSTEMS
    }
    try:
        for worker in running.values():
            if reason := worker.ready.get("absent"):
                raise InputError(f"--peer needs sentence-transformers. Received: {reason}.")
        answers: dict[str, list[dict[str, Any]]] = {system: [] for system in SYSTEMS}
        for round_number, request in enumerate(requests):
            for system in SYSTEMS if round_number % 2 else reversed(SYSTEMS):
                answers[system].append(running[system].request(request))
        return answers
    finally:
        for worker in running.values():
            worker.end()


def _query_ms(answers: list[dict[str, Any]]) -> list[float]:
    return [answer["values"]["query_ms"] for answer in answers]


def _ratios(indexing: dict[str, list[Any]], asking: dict[str, list[Any]]) -> dict[str, Any]:
    index_ms = [[answer["wall_ms"] for answer in indexing[system]] for system in SYSTEMS]
    query_ms = [_query_ms(asking[system]) for system in SYSTEMS]
    ratios = {"index": index_ms, "query": query_ms}
    return {name: workers.paired_ratio(*pair).get("of_before") for name, pair in ratios.items()}


if __name__ == "__main__":
    commands.run(main, PassagesOptions, __doc__)
