"""Test collections in BEIR's layout: corpus.jsonl, queries.jsonl and qrels/PART.tsv."""

import os
from collections.abc import Iterator

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import SUFFIXES
from albert_tf.tasks.embedding.examples import Corpus, SearchExample
from finetuning.datasets.tables.json_files import object_rows
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tables.table_files import open_table

_CORPUS, _QUERIES = "corpus.jsonl", "queries.jsonl"


def has_part(folder: str, part: str) -> bool:
    """Return True if a folder has a corpus and judgements of a part."""
    return _exists(folder, _CORPUS) and _exists(os.path.join(folder, "qrels"), f"{part}.tsv")


def _exists(folder: str, name: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name + end)) for end in ("", *SUFFIXES))


def read_searches(folder: str, part: str) -> list[SearchExample]:
    """Return the queries of a part that have a relevant document; print the number of others.

    A document is its title, if it has one, and its text. One with the id and the text of a query
    is the query itself, as in ArguAna, and is left out of its ranking.

    Raises:
      InputNotFoundError: a file is missing.
      InputError: a line is invalid, an id is repeated or unknown, or no query is left.
    """
    documents = dict(_texts(find(folder, [_CORPUS])))
    queries = dict(_texts(find(folder, [_QUERIES])))
    corpus = Corpus(tuple(documents), tuple(documents.values()))
    path = find(os.path.join(folder, "qrels"), [f"{part}.tsv"])
    grades: dict[str, dict[str, float]] = {}
    table = open_table(path, quotes_are_text=True)
    for location, (query, document, score) in table.select(("query-id", "corpus-id", "score")):
        for name, known, file in ((query, queries, _QUERIES), (document, documents, _CORPUS)):
            if name not in known:
                raise InputError(
                    f"{location}: no line of {file} has the id {name!r}. Correct or remove the row."
                )
        judged, grade = grades.setdefault(query, {}), _grade(score, location)
        if judged.setdefault(document, grade) != grade:
            raise InputError(
                f"{location}: an earlier row has another `score` for the same query and document, "
                f"{judged[document]:g}. Received: {score}. Remove one of them."
            )
    searches = [
        SearchExample(
            queries[query],
            label=tuple(by_document.items()),
            id=query,
            itself=query if documents.get(query, "").endswith(queries[query]) else None,
            corpus=corpus,
        )
        for query, by_document in grades.items()
        if any(grade > 0 for grade in by_document.values())
    ]
    if not searches:
        raise InputError(f"{path} must have a query with a relevant document, of a score above 0.")
    if others := len(grades) - len(searches):
        print(f"{path}: {others:,} queries without a relevant document are left out.")
    return searches


def _texts(path: str) -> Iterator[tuple[str, str]]:
    """Yield the id and the text of each line, with its title before it."""
    seen: set[str] = set()
    for number, line, row in object_rows(path):
        values = row if isinstance(row, dict) else {}
        name, title, text = (values.get(key) or "" for key in ("_id", "title", "text"))
        whole = f"{title} {text}".strip() if isinstance(text, str) else ""
        if not (isinstance(name, str) and name and isinstance(title, str) and whole):
            raise InputError(
                f"{path}:{number} must be an object with an `_id` and a `text` that are texts and "
                f"not empty, and perhaps a `title`. Received: {line[:80]!r}."
            )
        if name in seen:
            raise InputError(
                f"{path}:{number}: an earlier line has the `_id` {name!r} too. Remove one of them."
            )
        seen.add(name)
        yield name, whole


def _grade(text: str, location: str) -> float:
    try:
        return float(int(text))
    except (ValueError, OverflowError):
        raise InputError(
            f"{location}: `score` must be a whole number. Received: {text!r}. Correct or remove "
            "the row."
        ) from None
