r"""Write pairs of texts that belong together, from a corpus without labels, to train embeddings on.

    python -m data.pairs --corpus=text:'corpus/*.txt' --output=faq/train.jsonl

Each line of --output is an object with `text_a` and `text_b`, as `finetuning.train
--task=embedding` reads it. --kind=neighbors pairs a passage with the following one, crops two
random crops of the same part of a document, headings a heading with the passage below it. Sentences
that equal one in the files of --exclude, such as those of a test set, are dropped and counted.
"""

import collections
import dataclasses
import json
from collections.abc import Iterator
from typing import Annotated

from albert_tf.runtime import commands, keyed_random
from albert_tf.runtime.bounds import POSITIVE, at_least, between, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs, paths
from albert_tf.training.progress import Progress
from data.corpora.corpus import NumberedCorpus, has_boundary, read_documents
from data.corpora.dataset_texts import texts_in
from data.corpora.options import CorpusOptions
from data.corpora.passage_pairs import KINDS, comparable
from data.corpora.sentences import sentences_of


@dataclasses.dataclass(frozen=True)
class PairsOptions(CorpusOptions):
    """The command line of `data.pairs`."""

    output: str = commands.option(
        "the file of JSON lines to write, may end in .gz; - is stdout", path=True
    )
    kind: Annotated[str, one_of(*KINDS)] = commands.option(", ".join(KINDS), "neighbors")
    max_words: Annotated[int, at_least(2)] = commands.option("the most words of a passage", 64)
    min_words: Annotated[int, POSITIVE] = commands.option(
        "the fewest words of a passage or crop", 5
    )
    max_pairs: Annotated[int | None, POSITIVE] = commands.option("stop after as many", None)
    exclude: tuple[str, ...] = commands.option(
        "a file of texts or of a dataset, whose sentences are dropped; may be repeated",
        (),
        path=True,
    )
    seed: Annotated[int, between("[0, 2^31)")] = commands.option("the seed of crops", 0)


def main(options: PairsOptions) -> None:
    """Write the pairs that `options` describe.

    Raises:
      InputError: the corpus has none, a file cannot be read or written, or --output is one of
        those that are read.
    """
    outputs.require_file(options.output, "--output")
    files = [name for _, names in NumberedCorpus(*options.reading).parts() for name in names]
    inputs = {"--corpus": files, "--exclude": options.exclude}
    paths.require_other_file(options.output, "--output", inputs)
    excluded = {
        comparable(sentence)
        for path in options.exclude
        for text in texts_in(path, "--exclude")
        for line in text.split("\n")
        for sentence in (line, *sentences_of(line))
    } - {""}
    counts: collections.Counter[str] = collections.Counter()
    pairs = _pairs(options, excluded, counts)
    if options.dry_run:
        next(pairs, None)
        print(f"{options.corpus} can be read; {len(excluded):,} sentences and texts are excluded")
        return
    with outputs.new_text(options.output) as file:
        with Progress("pairs", options.max_pairs) as progress:
            for first, second in pairs:
                row = {"text_a": first, "text_b": second}
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                counts["pairs"] += 1
                progress.advance(1)
        if not counts["pairs"]:
            is_cut = has_boundary(options.corpus) and options.document_boundary == "blank_line"
            hint = ", or --document_boundary=file if a blank line ends no document" * is_cut
            raise InputError(
                f"--corpus={options.corpus} has no pairs of --kind={options.kind}. Pass another "
                f"kind, or a smaller --min_words{hint}."
            )
    outputs.say(
        options.output,
        f"{options.output}: {counts['pairs']:,} pairs of {counts['documents']:,} documents; "
        f"{counts['excluded']:,} sentences dropped that are in --exclude",
    )


def _pairs(
    options: PairsOptions, excluded: set[str], counts: collections.Counter[str]
) -> Iterator[tuple[str, str]]:
    documents = read_documents(*options.reading)
    written = 0
    for number, document in enumerate(documents):
        every = list(document.sentences)
        sentences = [
            sentence for sentence in every if not excluded or comparable(sentence) not in excluded
        ]
        counts["documents"] += 1
        counts["excluded"] += len(every) - len(sentences)
        key = keyed_random.stream_key(options.seed, keyed_random.CROPS, number)
        for pair in KINDS[options.kind](sentences, options.max_words, options.min_words, key):
            yield pair
            written += 1
            if written == options.max_pairs:
                return


if __name__ == "__main__":
    commands.run(main, PairsOptions, __doc__)
