r"""Add hard negatives to pairs: texts that resemble the right answer, but belong to another text.

    python -m finetuning.mine --data_dir=faq --output=mined/train.jsonl
    python -m finetuning.mine --data_dir=faq --by=bm25,model --model=runs/faq \
        --output=mined/train.jsonl

The pairs are those that `finetuning.train --task=embedding` reads in --data_dir. The candidates are
all their second texts and negatives, in BEIR's layout all documents, and the texts of --candidates.
BM25, the cosine of --model, or both in turn rank them for each first text, which gets the best
--negatives of them. BM25 ranks only those that share a word with it. Candidates with the same words
as the first text, or as one of its second texts anywhere in the file, are left out.

With --model, candidates that may be right are left out too, whatever ranks them: those whose cosine
is above (1 - margin) times that of the second text, or the lowest of several (arXiv 2407.15831).

Each line of --output is an object with `text_a`, `text_b` and `negatives`: those that the pair had,
then the mined ones.
"""

import dataclasses
import json
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any

import numpy as np

import albert_tf
from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE, between, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs, paths
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.training.progress import Progress
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.embeddings.embedding_data import training_pairs
from finetuning.datasets.embeddings.hard_negatives import Pool, Scorer, hard_negatives, pool_of
from finetuning.datasets.tables.table_files import FORMATS, open_table
from finetuning.kinds.baselines.bm25 import bm25

_BM25, _MODEL = "bm25", "model"
_INPUTS = ("train.", "dev.", "test.", "corpus.", "queries.")  # files of a --data_dir


@dataclasses.dataclass(frozen=True)
class MineOptions(commands.CommandOptions):
    """The command line of `finetuning.mine`."""

    data_dir: str = commands.option("the folder of the training pairs", path=True)
    output: str = commands.option(
        "the file of JSON lines to write, may end in .gz; - is stdout", path=True
    )
    by: Annotated[str, one_of(_BM25, _MODEL, f"{_BM25},{_MODEL}")] = commands.option(
        "what ranks the candidates: bm25, model, or bm25,model in turn", _BM25
    )
    model: str | None = commands.option(
        "what albert_tf.load_embedder takes: ranks, and leaves out what is too near",
        None,
        path=True,
    )
    margin: Annotated[float, between("[0, 1)")] = commands.option(
        "with --model: 0.05 leaves out candidates above 95 % of the second text's cosine",
        0.05,
        needs="model",
    )
    negatives: Annotated[int, POSITIVE] = commands.option("how many to add to each pair", 5)
    candidates: str | None = commands.option(
        "a file of further candidates: a text on each line, or a table with the column text",
        None,
        path=True,
    )
    text_column: tuple[str, ...] = commands.option(
        "the columns of the first and the second text, as for finetuning.train", ()
    )
    batch_size: Annotated[int, POSITIVE] = commands.option(
        "texts per batch of --model", 256, needs="model"
    )
    dry_run: bool = commands.option("read the texts and load the model only", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if _MODEL in self.by and self.model is None:
            raise InputError(f"--by={self.by} needs a model. Pass --model, or --by={_BM25}.")


def main(options: MineOptions, load: Callable[[str], Any] = albert_tf.load_embedder) -> None:
    """Write the pairs with the negatives that `options` describe.

    Raises:
      InputError: there are no pairs without scores, no pair gets a negative, or a file or the model
        cannot be read.
    """
    _require_other_file(options)
    source = Source(options.data_dir, reading=Reading(options.text_column))
    pairs, documents = training_pairs(source)
    pool = pool_of(pairs, (*documents, *_further(options.candidates)))
    embedder = load(options.model) if options.model else None
    about = f"{len(pairs):,} pairs, {len(pool.candidates):,} candidates"
    if options.dry_run:
        print(f"{options.data_dir}: {about}")
        return
    scorers: dict[str, Scorer] = {}
    if _BM25 in options.by:
        scorers[_BM25] = _by_words(pool)
    if embedder is not None:
        scorers[_MODEL] = _by_cosine(embedder, pool, options)
    mined, near = _mined(options, pool, scorers)
    if not any(mined):
        raise InputError(
            f"--data_dir={options.data_dir} has no pair for which one of {len(pool.candidates):,} "
            "candidates is a negative. Pass more --candidates, or another --by or --margin."
        )
    with outputs.new_text(options.output) as file:
        for pair, query in zip(pairs, pool.query_of, strict=True):
            first, second, *given = pair.texts
            negatives = [*given, *(pool.candidates[row] for row in mined[query])]
            row = {"text_a": first, "text_b": second, "negatives": negatives}
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    full = sum(len(mined[query]) == options.negatives for query in pool.query_of)
    outputs.say(
        options.output,
        f"{options.output}: {about}; {full:,} pairs have {options.negatives} mined negatives",
    )
    if embedder is not None:
        outputs.say(
            options.output,
            f"{near / len(mined):,.1f} candidates for each first text were too near ({near:,})",
        )


def _require_other_file(options: MineOptions) -> None:
    outputs.require_file(options.output, "--output")
    folder, name = os.path.split(os.path.realpath(options.output))
    if folder == os.path.realpath(options.data_dir) and name.startswith(_INPUTS):
        raise InputError(
            f"--output must not be a part of --data_dir. Received: {options.output!r}. Name "
            "another file, or one in another folder."
        )
    inputs = {"--candidates": [options.candidates] if options.candidates else []}
    paths.require_other_file(options.output, "--output", inputs)


def _further(path: str | None) -> Iterator[str]:
    """Yield the texts of --candidates."""
    if path is None:
        return
    if format_of(path) in FORMATS:
        yield from (text for _, (text,) in open_table(path).select(("text",)))
        return
    texts = (text for _, line in lines_of(path, "--candidates") if (text := line.strip()))
    yield from texts


def _by_words(pool: Pool) -> Scorer:
    """Return the BM25 scores, minus infinity where no word is shared."""
    scores = bm25(pool.candidates)

    def word_scores(rows: slice) -> np.ndarray:
        values = scores(pool.queries[rows])
        return np.where(values > 0, values, -np.inf)

    return word_scores


def _by_cosine(embedder: Any, pool: Pool, options: MineOptions) -> Scorer:
    """Return the cosines, of texts with the prompts of the model.

    Raises:
      InputError: a vector is not of finite numbers.
    """
    given: dict[str, Any] = {"batch_size": options.batch_size}
    queries = embedder.encode_query(pool.queries, **given)
    candidates = embedder.encode_document(pool.candidates, **given)
    for texts, vectors in ((pool.queries, queries), (pool.candidates, candidates)):
        is_finite = np.isfinite(vectors).all(axis=1)
        if not is_finite.all():
            raise InputError(
                f"--model={options.model} must give vectors of finite numbers. Received: others, "
                f"for the text {texts[int(np.argmin(is_finite))][:80]!r}. Pass another model."
            )
    return lambda rows: queries[rows] @ candidates.T


def _mined(
    options: MineOptions, pool: Pool, scorers: dict[str, Scorer]
) -> tuple[Sequence[list[int]], int]:
    """Return the negatives of each query, and how often a candidate was too near."""
    judge = _MODEL if _MODEL in scorers else None
    negatives = hard_negatives(
        pool, scorers, options.by.split(","), options.negatives, judge, options.margin
    )
    mined, total = [], 0
    with Progress("texts", len(pool.queries)) as progress:
        for rows, near in negatives:
            mined.append(rows)
            total += near
            progress.advance(1)
    return mined, total


if __name__ == "__main__":
    commands.run(main, MineOptions, __doc__)
