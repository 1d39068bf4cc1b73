"""Facts of a corpus that decide how to train on it, and what they recommend."""

import array
import dataclasses
import itertools
import math
import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from albert_tf.models.config import AlbertConfig, param_counts
from albert_tf.runtime.cores import num_cores
from albert_tf.runtime.report_text import markdown_table
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.words import word_count
from data.corpora.corpus import Document, digest_of

INCLUDED = "albert-mini-en"
_SAMPLE = 500  # documents from which pieces are counted
_SAMPLE_CHARACTERS = 2000  # of each
# The included model has seen 1.6 billion pieces, most of its text 12 to 17 times.
_PIECES_OF_INCLUDED, _PASSES = 1.6e9, 10
_STEPS_OF_ADAPT = 600  # of the experiment `adapt`, which were measured; a larger text is read once
# Of the included vocabulary. Technical English (the documentation of Linux) has 1.8 pieces a word
# and 0.6 % unknown ones, German novels have 2.9 and 1.3 %.
_MOST_PIECES_A_WORD, MOST_UNKNOWN = 2.2, 0.01
_SHARE_OF_PEAK = 0.5  # of products of matrices, in a training step on a CPU
_MASKED = 0.15
_LONG_DOCUMENT = 20_000  # words
_SEQUENCES, _FULL = 64, 0.9  # of a batch of albert-mini; the share of a sequence that is text


class Sampled(NamedTuple):
    """The pieces of a sample of texts.

    Attributes:
      pieces_a_word: of the text's own vocabulary; for words, see `word_count`.
      unknown: the share of pieces that are unknown to it.
      suits_included: True if the included model's vocabulary fits the text.
      characters: the number of different ones, each of which a vocabulary has.
    """

    pieces_a_word: float
    unknown: float
    suits_included: bool
    characters: int = 0

    @classmethod
    def of(cls, texts: Sequence[str], tokenizer: Tokenizer) -> "Sampled":
        """Count the pieces of some texts."""
        included, lacking = _pieces(texts, load_tokenizer(INCLUDED))
        is_suited = included <= _MOST_PIECES_A_WORD and lacking <= MOST_UNKNOWN
        return cls(*_pieces(texts, tokenizer), is_suited, len(set().union(*texts)))


@dataclasses.dataclass(frozen=True)
class Facts:
    """What is known of a corpus.

    Attributes:
      documents: their number, without copies of others.
      copies: the number of documents that repeat another one.
      words: their number, see `word_count`.
      sampled: what a sample of its texts shows.
      longest: the words of the longest document, and its source; None if unknown.
    """

    documents: int
    copies: int
    words: int
    sampled: Sampled
    longest: tuple[int, str] | None = None

    @property
    def pieces(self) -> int:
        """The pieces of the whole text."""
        return round(self.words * self.sampled.pieces_a_word)

    def table(self) -> str:
        """Return the facts in Markdown."""
        rows = {
            "documents": f"{self.documents:,}",
            "copies of other documents": f"{self.copies:,}",
            "words": f"{self.words:,}",
            "words a document": f"{self.words / max(1, self.documents + self.copies):,.0f}",
        }
        if self.longest:
            rows["longest document"] = f"{self.longest[0]:,} words, in {self.longest[1]}"
        rows |= {
            "pieces a word": f"{self.sampled.pieces_a_word:.2f}",
            "unknown pieces": f"{self.sampled.unknown:.2%}",
        }
        text = markdown_table(("", ""), rows.items())
        if self.words > _LONG_DOCUMENT * (self.documents + self.copies):
            text += (
                "\n\nnote: documents this long are rare. If each is a file of several, such as the "
                "chapters of a book, set --document_boundary."
            )
        return text

    def recommendation(self, flops_per_s: float, seq_length: int = 128) -> str:
        """Return which vocabulary and model to train, how long, and how many hours that takes.

        Args:
          flops_per_s: what the machine computes when it multiplies matrices.
          seq_length: the length of the records.
        """
        batch = _SEQUENCES * _FULL * seq_length
        adapts = self.sampled.suits_included and _PASSES * self.pieces < _PIECES_OF_INCLUDED
        steps = max(100, int(round(_PASSES * self.pieces / batch, -2)))
        if adapts:
            steps = max(min(steps, _STEPS_OF_ADAPT), int(round(self.pieces / batch, -2)))
        seen = steps * batch
        hours = seen * training_flops(seq_length) / (_SHARE_OF_PEAK * flops_per_s * 3600)
        passes = seen / max(1, self.pieces)
        took = (
            f"{passes:,.{0 if passes >= 10 else 1}f} passes over the text, about {hours:,.1f} "
            "hours on this machine's CPU if it does nothing else"
        )
        if adapts:
            return (
                f"Recommended: pretraining.adapt --seq_length={seq_length} "
                f"--steps={steps}, which continues {INCLUDED} (--new_pieces=N adds words to its "
                f"vocabulary): {took}. {INCLUDED} has seen 1.6 billion pieces; a new model would "
                f"see {_PASSES * self.pieces / 1e6:,.0f} million in {_PASSES} passes."
            )
        size = vocabulary_size(self.words)
        size = max(size, math.ceil(1.2 * self.sampled.characters / 100) * 100)
        warmup, decay = steps // 36, steps // 5  # as in the recipe
        return (
            f"Recommended: --vocab_size={size}, --seq_length={seq_length}, "
            f"--experiment=albert-mini --set loop.steps={steps} --set "
            f"optimizer.warmup_steps={warmup} --set optimizer.decay_steps={decay}: {took}. "
            f"{INCLUDED} has 16,000 pieces for 62 million words, the paper 30,000 for 3 billion."
        )


def vocabulary_size(words: int) -> int:
    """Return the number of pieces for a text, between those of two models that are known.

    A short text, whose vocabulary is bounded by what repeats in it, has one for 20 words.
    """
    if words < 160_000:
        return max(100, words // 2000 * 100)
    return next((size for most, size in ((2e7, 8000), (5e8, 16_000)) if words < most), 30_000)


def training_flops(seq_length: int) -> float:
    """Return the arithmetic of training for a piece of a sequence, in the included model."""
    config = AlbertConfig.from_preset(INCLUDED)
    layers = param_counts(config.replace(sharing="none", num_groups=1))
    products = layers["attention"] + layers["feed_forward"] + layers["projection"]
    scores = 2 * config.num_layers * seq_length * config.hidden_size
    head = config.embedding_size * (config.vocab_size + config.hidden_size)
    return 6 * (products + scores + _MASKED * head)


def measured_flops_per_s(size: int = 768, times: int = 10) -> float:
    """Return the arithmetic of products of float32 matrices on all of this machine's cores.

    It is that of a second in which nothing else runs, since the time is that of the processor.
    """
    one: np.ndarray = np.ones((size, size), np.float32)
    seconds = []
    for _ in range(times):
        start = time.process_time()
        _ = one @ one
        seconds.append(time.process_time() - start)
    return 2 * size**3 / min(seconds) * num_cores()


class Glance:
    """Collects the facts of a corpus while its documents are read: 8 bytes a document."""

    def __init__(self) -> None:
        self._digests = array.array("Q")
        self._words, self._longest = 0, (0, "")
        self._sample: list[str] = []
        self._stride = 1
        self._characters: set[str] = set()

    def watched(self, documents: Iterator[Document]) -> Iterator[Document]:
        """Yield the documents."""
        for number, document in enumerate(documents):
            yield document
            words = sum(map(word_count, document.sentences))
            self._words += words
            self._characters.update(*document.sentences)
            self._longest = max(self._longest, (words, document.source), key=lambda pair: pair[0])
            self._digests.append(int.from_bytes(digest_of(document)))
            if number % self._stride == 0:
                self._sample.append(" ".join(document.sentences)[:_SAMPLE_CHARACTERS])
            if len(self._sample) > 2 * _SAMPLE:
                self._sample, self._stride = self._sample[::2], 2 * self._stride

    def facts(self, tokenizer: Tokenizer) -> Facts:
        """Return the facts, with the pieces of a vocabulary."""
        documents = len(np.unique(np.array(self._digests)))
        copies = len(self._digests) - documents
        sampled = Sampled.of(self._sample, tokenizer)
        sampled = sampled._replace(characters=len(self._characters))
        return Facts(documents, copies, self._words, sampled, self._longest)


def _pieces(texts: Sequence[str], tokenizer: Tokenizer) -> tuple[float, float]:
    """Return the pieces of a word, and the share of unknown pieces."""
    ids = list(itertools.chain.from_iterable(tokenizer.encode_batch(list(texts))))
    words = sum(map(word_count, texts))
    return len(ids) / max(1, words), ids.count(tokenizer.special.unk) / max(1, len(ids))
