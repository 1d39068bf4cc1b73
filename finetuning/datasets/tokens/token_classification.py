"""Token classification of a user's own texts: CoNLL columns, JSON or parquet."""

import collections
import json
import sys
from collections.abc import Iterable, Iterator, Sequence

from albert_tf.runtime.errors import InputError, InputNotFoundError, listed
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.outputs import new_text
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets.dataset import (
    LABELS_SHOWN,
    Data,
    Dataset,
    Prediction,
    Source,
    require_section,
)
from finetuning.datasets.scores.entity_scores import score_entities
from finetuning.datasets.selection import InDocuments, limited, with_dev
from finetuning.datasets.tables import json_files
from finetuning.datasets.tables.other_layouts import require_known_files, require_not_brat
from finetuning.datasets.tables.own_tables import ordered_labels
from finetuning.datasets.tables.part_files import find
from finetuning.datasets.tokens import conll_tags, object_files, token_files


class TokenClassification(Dataset[TokenSettings]):
    """Named entities, parts of speech and other labels of words or spans.

    The labels are those of the training part, in the order of `ordered_labels`. A part to predict
    may have none.
    """

    kind: str = "token_classifier"
    metrics: tuple[str, ...] = ("f1",)
    options = ("text_column", "label_column", "column_separator", "offsets")

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print the frequency of each label."""
        if len(columns := source.reading.text_column) > 1:
            raise InputError(
                "--text_column must be given once for --task=token_classification. Received: "
                f"{', '.join(columns)}."
            )
        path = _path(source, "train")
        located, documents, scheme = _read(path, source)
        _require_labels(located)
        labels = ordered_labels(_labels(example for _, example in located))
        if not labels:
            raise InputError(
                f"{path} must hold labeled spans. Received: none. If the tags are in another "
                "column, pass --label_column."
            )
        scheme = "words" if scheme == "words" else "bio"
        task = TokenSettings(labels, scheme)
        train, dev = with_dev(
            source,
            InDocuments([example for _, example in located], documents),
            {"dev": lambda: self._part(source, "dev", task, is_labeled=True)},
        )
        train = limited(source, train)
        for part, examples in {"train": train, **dev}.items():
            print(f"{part}: {_counts(examples, task)}")
        return Data(task, train, dev)

    def read_part(self, source: Source, part: str, task: TokenSettings) -> list[TokenExample]:
        """Read the examples of the file named `part`."""
        require_section("token_classification", task, kind=self.kind)
        return self._part(source, part, task, allow_empty=True)

    score = staticmethod(score_entities)

    def write_submission(
        self, path: str, predictions: Sequence[Prediction], examples: Sequence[TokenExample]
    ) -> None:
        """Write CoNLL columns, token and tag; or JSON lines for texts without tokens."""
        with new_text(path) as file:
            for prediction, example in zip(predictions, examples, strict=True):
                if example.tokens is None:
                    row = {"text": example.text, "entities": prediction["entities"]}
                    file.write(json.dumps(row, ensure_ascii=False) + "\n")
                    continue
                for (start, end), tag in zip(example.tokens, prediction["tags"], strict=True):
                    file.write(f"{example.text[start:end]}\t{tag}\n")
                file.write("\n")

    def _part(
        self,
        source: Source,
        part: str,
        task: TokenSettings,
        allow_empty: bool = False,
        is_labeled: bool = False,
    ) -> list[TokenExample]:
        path = _path(source, part)
        located, documents, _ = _read(path, source, task, allow_empty)
        if is_labeled:
            _require_labels(located)
        return InDocuments([example for _, example in located], documents)


def _path(source: Source, part: str) -> str:
    folder = source.data_dir or ""
    try:
        path = find(folder, [part + end for end in (*token_files.CONLL, *json_files.PART_ENDS)])
    except InputNotFoundError:
        require_known_files(folder)
        raise
    require_not_brat(path)
    return path


def _read(
    path: str, source: Source, task: TokenSettings | None = None, allow_empty: bool = False
) -> tuple[list[tuple[str, TokenExample]], list[int], str]:
    """Return `file:line` and the example of each text, their documents, and the tags' scheme."""
    if format_of(path) not in json_files.FORMATS:
        sentences = token_files.read_conll(path, source.reading)
    elif object_files.has_tokens(
        rows := object_files.rows_of(path, source.reading, allow_empty), source.reading
    ):
        sentences = object_files.read_tokens(path, rows, source.reading, allow_empty)
    else:
        located = list(object_files.read_spans(path, rows, source.reading, allow_empty))
        for location, example in located:
            for _, _, label in example.entities or ():
                _require_known(label, task, location)
        return located, [0] * len(located), "spans"
    scheme = conll_tags.scheme_of(path, sentences)
    if task is not None and scheme != "prefixes":
        scheme = "words" if task.scheme == "words" else "io"
    if scheme == "io" and task is None:
        print(
            f"{path}: the tags have no prefixes, so O marks words outside of entities, and "
            "neighbors with the same tag are one entity."
        )
    if scheme == "prefixes":
        unbegun = [
            sentence.lines[i]
            for sentence in sentences
            for i in conll_tags.unbegun(sentence.tags or ())
        ]
        if unbegun:
            print(
                f"{path}:{unbegun[0]}: the first of {len(unbegun):,} tags I-X or E-X that begin an "
                "entity, because no entity of X precedes them; conlleval and seqeval read them so "
                "too. If your data is IOB2, correct them.",
                file=sys.stderr,
            )
    for sentence in sentences:
        for begin, _, label in conll_tags.spans_of(sentence.tags or (), scheme):
            _require_known(label, task, f"{path}:{sentence.lines[begin]}")
    located = [
        (f"{path}:{sentence.lines[0]}", conll_tags.example_of(sentence, scheme))
        for sentence in sentences
    ]
    return located, [sentence.document for sentence in sentences], scheme


def _require_known(label: str, task: TokenSettings | None, location: str) -> None:
    if task is not None and label not in task.labels:
        raise InputError(
            f"{location}: label {label!r} does not occur in the training part, which has "
            f"{listed(task.labels)}. Correct or remove it."
        )


def _require_labels(located: Sequence[tuple[str, TokenExample]]) -> None:
    for location, example in located:
        if example.entities is not None:
            continue
        if example.tokens is not None:
            raise InputError(
                f"{location}: every token of this part must have a tag. Received: one column. Add "
                "the tags, or pass --column_separator."
            )
        raise InputError(
            f"{location}: every text of this part must have a list of its spans, which may be "
            "empty, under `entities` or the key that --label_column names. Add it, or remove the "
            "line."
        )


def _counts(examples: Sequence[TokenExample], task: TokenSettings) -> str:
    counts = collections.Counter(_labels(examples))
    names = "words" if task.scheme == "words" else "entities"
    shares = [f"{label} {counts[label]:,}" for label in task.labels]
    return f"{len(examples):,} texts, {counts.total():,} {names}: {listed(shares, LABELS_SHOWN)}"


def _labels(examples: Iterable[TokenExample]) -> Iterator[str]:
    for example in examples:
        for _, _, label in example.entities or ():
            yield label
