"""Index passages and answer queries beside sentence-transformers, in turns.

    python -m benchmarks.passages --corpus=jsonl:'books/*.jsonl.gz' --peer=all-MiniLM-L6-v2

Each system is a process of its own. They take turns: first they index one tenth of the passages
after another; then, in new processes, they find the ten best of all passages for each query, which
is the beginning of a passage. `ours` is the index of examples.search, with the words of the
passages; `peer` is sentence-transformers, which encodes passages and query, and compares them by
`semantic_search`.

Each system has a JSON line. `index_s` is the time of indexing, from the files of the passages,
without that of loading the model. `query_ms` is the median time of a query by vectors, from its
text; `both_ms`, of ours only, is that by words and vectors. `index_mb` and `query_mb` are the peak
memory of the processes. `of_peer` is the median of the ratios to the peer, tenth by tenth and query
by query, between the ends of its 95 % interval.
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
from albert_tf.runtime.errors import InputError, InputNotFoundError
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
    queries: Annotated[int, at_least(6, "for an interval")] = commands.option("queries", 50)
    cores: Annotated[int, POSITIVE] = commands.option("cores of each system", 2)
    dry_run: bool = commands.option("read the passages only", False)


def main(options: PassagesOptions) -> None:
    """Measure and print the lines.

    Raises:
      InputNotFoundError: there is no folder --peer.
      InputError: the corpus has fewer passages, or sentence-transformers is not installed.
    """
    workers.check_cores(options.cores)
    if not os.path.isdir(options.peer):
        raise InputNotFoundError(f"--peer={options.peer}: no folder has this name.")
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
        assert asking[system][0]["values"]["passages"] == len(texts)
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
    running: dict[str, Worker] = {}
    try:
        for system in SYSTEMS:
            arguments = system, action, models[system], folder, options.cores
            running[system] = Worker(system, _MODULE, arguments)
        if reason := running["peer"].ready.get("absent"):
            raise InputError(
                f"--peer={options.peer} needs sentence-transformers. Received: {reason}. Run pip "
                "install sentence-transformers."
            )
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
