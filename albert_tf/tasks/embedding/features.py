"""Texts, pairs, contrasts and searches as sequences of an embedding."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.embedding.examples import SearchExample
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features, pack
from albert_tf.text.tokenizer import Tokenizer


def featurize_embeddings(
    examples: Sequence[TextExample], tokenizer: Tokenizer, task: EmbeddingSettings
) -> Features:
    """Return the features of examples.

    A unit has a sequence for each text of an example, and as many as the example with the most; the
    others have sequences without pieces. A search has one text per unit: the queries, then the
    documents of their corpus. The target `label` exists if the examples have what `task.loss`
    compares; see `targets_of`.

    Raises:
      InputError: two searches have different corpora, or only some examples are searches.
    """
    searches = [example for example in examples if isinstance(example, SearchExample)]
    if searches:
        return _of_search(searches, len(examples), tokenizer, task)
    rows = [_with_prompts(example, task) for example in examples]
    per_unit = max(map(len, rows), default=1)
    counts = np.array([len(row) for row in rows], np.int64)
    is_text = (np.arange(per_unit) < counts[:, None]).ravel()  # [N x per_unit]
    ids = _encoded([text for row in rows for text in row], tokenizer)
    sequences = pack(ids, None, task.seq_length, tokenizer.special).at_places(is_text)
    targets = targets_of(examples, task, per_unit)
    return Features(sequences, task.seq_length, targets, per_unit)


def _of_search(
    searches: Sequence[SearchExample], count: int, tokenizer: Tokenizer, task: EmbeddingSettings
) -> Features:
    if len(searches) < count or len({search.corpus for search in searches}) > 1:
        raise InputError("All queries of a search must have the same corpus. Pass them separately.")
    texts = [task.query_prompt + search.first for search in searches]
    texts += [task.passage_prompt + text for text in searches[0].corpus.texts]
    ids = _encoded(texts, tokenizer)
    sequences = pack(ids, None, task.seq_length, tokenizer.special)
    return Features(sequences, task.seq_length, unit_name="texts")


def _with_prompts(example: TextExample, task: EmbeddingSettings) -> list[str]:
    first, *others = example.texts
    if not others:
        return [first]
    return [task.query_prompt + first, *(task.passage_prompt + text for text in others)]


def _encoded(texts: Sequence[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the pieces of texts, of which each is encoded once."""
    distinct = list(dict.fromkeys(texts))
    known = dict(zip(distinct, tokenizer.encode_batch(distinct), strict=True))
    return [known[text] for text in texts]


def targets_of(
    examples: Sequence[TextExample], task: EmbeddingSettings, per_unit: int
) -> dict[str, np.ndarray]:
    """Return the target `label`, or none if the examples do not have what `task.loss` compares.

    It is the number of each text, int32 [N, per_unit], -1 for none, or [N] for `simcse`; the scores
    of pairs, float32 [N]; or the vectors of texts, [N, D].
    """
    labels = [example.label for example in examples]
    have_second = {example.second is not None for example in examples}
    are_known = None not in labels
    numbers: dict[str, int] = {}
    if task.loss == "in_batch" and have_second == {True} and not any(map(_is_number, labels)):
        text_numbers: np.ndarray = np.full([len(examples), per_unit], -1, np.int32)
        for row, example in enumerate(examples):
            for column, text in enumerate(example.texts):
                text_numbers[row, column] = numbers.setdefault(text, len(numbers))
        return {"label": text_numbers}
    if task.loss == "simcse" and have_second == {False}:
        texts = [numbers.setdefault(example.first, len(numbers)) for example in examples]
        return {"label": np.array(texts, np.int32)}
    if task.loss in ("cosine", "cosent") and have_second == {True} and are_known:
        return {"label": np.array(labels, np.float32)}
    if task.loss.startswith("teacher") and have_second == {False} and are_known:
        return {"label": np.stack([np.asarray(label) for label in labels])}
    return {}


def _is_number(label: Any) -> bool:
    return isinstance(label, int | float)
