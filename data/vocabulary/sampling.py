"""The sample of sentences from which a vocabulary is trained."""

import random
from collections.abc import Iterable, Iterator
from itertools import chain

from albert_tf.training.progress import Progress
from data.corpora.corpus import Document

# sentencepiece skips sentences above 4192 bytes; decomposed Hangul has 9 bytes for a character.
_PART_CHARACTERS = 400
# sentencepiece takes each part for a word, of whose characters each takes 20 bytes and 10 us.
_MAX_UNBROKEN_PARTS = 10_000


def sample(documents: Iterable[Document], size: int, seed: int) -> list[str]:
    """Return a uniform sample of at most `size` sentences (reservoir sampling), and print its size.

    Long sentences are split, and each part counts as a sentence. Splitting between words does not
    change the training, which uses words. Of parts without a space, at most `_MAX_UNBROKEN_PARTS`
    are used.
    """
    broken, unbroken = _Reservoir(size, seed), _Reservoir(_MAX_UNBROKEN_PARTS, seed)
    num_documents = 0
    with Progress("sentences") as progress:
        for num_documents, document in enumerate(documents, start=1):  # noqa: B007
            for sentence in chain.from_iterable(map(_parts, document.sentences)):
                is_unbroken = len(sentence) == _PART_CHARACTERS and " " not in sentence
                (unbroken if is_unbroken else broken).add(sentence)
            progress.advance(len(document.sentences))
    sentences, num_sentences = broken.items + unbroken.items, broken.count + unbroken.count
    used = f", used {len(sentences):,}" if len(sentences) < num_sentences else ""
    print(f"read {num_sentences:,} sentences from {num_documents:,} documents{used}")
    if unbroken.count > len(unbroken.items):
        print(
            f"note: {unbroken.count:,} parts of {_PART_CHARACTERS} characters have no space; used "
            f"{len(unbroken.items):,} of them."
        )
    return sentences


class _Reservoir:
    """A uniform sample of at most `size` of the items that are added."""

    def __init__(self, size: int, seed: int) -> None:
        self.items: list[str] = []
        self.count, self._size, self._random = 0, size, random.Random(seed)

    def add(self, item: str) -> None:
        self.count += 1
        if len(self.items) < self._size:
            self.items.append(item)
        elif (slot := self._random.randrange(self.count)) < self._size:
            self.items[slot] = item


def _parts(sentence: str) -> Iterator[str]:
    """Yield the sentence in parts that sentencepiece accepts, split at spaces where possible."""
    begin = 0
    while len(sentence) - begin > _PART_CHARACTERS:
        space = sentence.rfind(" ", begin + 1, begin + _PART_CHARACTERS)
        end = begin + _PART_CHARACTERS if space < 0 else space
        yield sentence[begin:end]
        begin = end
    yield sentence[begin:]


def released(items: list[str]) -> Iterator[str]:
    """Yield the items in order and remove them, so that no copy stays beside sentencepiece's."""
    items.reverse()
    while items:
        yield items.pop()
