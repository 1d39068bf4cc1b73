"""Splitting of documents into keyed pairs of segments, in one process or several."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Iterator

import numpy as np

from albert_tf.runtime import keyed_random
from albert_tf.text.tokenizer import Tokenizer
from data.building.batch_tokenizer import encode_flat
from data.building.pair_labels import paired, swapped
from data.building.segments import Pairs, reference_pairs, segment_pairs, split_long_sentences
from data.building.sequences import Sequences, take_ranges
from data.building.workers import Sizes, map_in_order
from data.corpora.corpus import Document, digest_of, split_of
from data.records.manifest import Counts
from data.records.schema import ids_dtype
from data.records.sketch import Sketch, merged, sketch_of

SPECIAL_PIECES = 3  # [CLS] A [SEP] B [SEP]

Batch = list[tuple[int, Document]]  # documents with their numbers in the corpus


@dataclasses.dataclass(frozen=True)
class Tally:
    """The documents and bytes read, and counts and a sketch of the documents in the split.

    `unknown_characters` are those that no piece of the vocabulary contains.
    """

    documents: int = 0
    text_bytes: int = 0
    counts: Counts = Counts()
    unknown_characters: dict[str, int] = dataclasses.field(default_factory=dict)
    sketch: Sketch = ()

    def __add__(self, other: "Tally") -> "Tally":
        return Tally(
            self.documents + other.documents,
            self.text_bytes + other.text_bytes,
            self.counts + other.counts,
            dict(Counter(self.unknown_characters) + Counter(other.unknown_characters)),
            merged(self.sketch, other.sketch),
        )


@dataclasses.dataclass(frozen=True)
class Cutter:
    """Function that splits numbered documents into pairs.

    Without `quirks`, the pairs of a document depend only on the fields and on the document itself.
    The cutter also finds the sentences and selects the documents of the split, so that this slow
    work runs in the workers and not in the process that reads the corpus.

    Attributes:
      tokenizer: the tokenizer of the pieces.
      seq_length: maximum number of pieces of a sequence, special pieces included.
      dupe_factor: passes over a document, each with different segments.
      seed: seed of all random choices.
      labeled: give every pair a second segment and a label, and swap half of the pairs.
      quirks: behave like Google's tool (`segments.reference_pairs`), with random partners from the
        same batch.
      split: `train` or `heldout`, as in `corpus.split_of`, or `all`.
      heldout_fraction: share of documents in the `heldout` split.
    """

    tokenizer: Tokenizer
    seq_length: int
    dupe_factor: int
    seed: int
    labeled: bool = False
    quirks: bool = False
    split: str = "all"
    heldout_fraction: float = 0.0

    def cut(self, batch: Batch) -> tuple[Sequences, Tally]:
        """Return the pairs of the documents, and the tally."""
        kept_batch = [(number, document) for number, document in batch if self._is_kept(document)]
        pairs, tally = self._cut_kept(kept_batch) if kept_batch else (Sequences.read(b""), Tally())
        text_bytes = sum(_sizes(document.text)[0] for _, document in batch)
        sketch = sketch_of(digest_of(document) for _, document in kept_batch)
        return pairs, dataclasses.replace(
            tally, documents=len(batch), text_bytes=text_bytes, sketch=sketch
        )

    def _is_kept(self, document: Document) -> bool:
        if not document.sentences:
            return False
        return self.split == "all" or self.split == split_of(document, self.heldout_fraction)

    def _cut_kept(self, batch: Batch) -> tuple[Sequences, Tally]:
        texts = [sentence for _, document in batch for sentence in document.sentences]
        text_bytes, replaced = _sizes("".join(texts))
        ids, ends = encode_flat(self.tokenizer, texts)
        ends = np.append(0, ends)
        bounds = ends[np.append(True, ends[1:] > ends[:-1])]  # drops sentences without pieces
        documents = ends[np.cumsum([0, *(len(document.sentences) for _, document in batch)])]
        numbers = np.array([number for number, _ in batch])
        parted = bounds
        if not self.quirks:
            parted = split_long_sentences(
                bounds, ids, self.tokenizer.is_word_start, self._max_pieces
            )
        passes = [
            self._cut_pass(ids, parted, documents, numbers, pass_number)
            for pass_number in range(self.dupe_factor)
        ]
        pairs = Pairs(*map(np.concatenate, zip(*passes, strict=True)))
        num_pieces = int(pairs.first_length.sum() + pairs.second_length.sum())
        sizes = np.diff(np.searchsorted(bounds, documents))
        unknown = np.flatnonzero(ids == self.tokenizer.special.unk)
        with_unknown = np.unique(np.searchsorted(ends, unknown, side="right")) - 1
        counts = Counts(
            documents=len(batch),
            single_sentence_documents=int(np.count_nonzero(sizes == 1)),
            sentences=len(texts),
            sequences=len(pairs.keys),
            sequences_without_pair=int(np.count_nonzero(pairs.second_length == 0)),
            sequences_of_label_1=int(pairs.label.sum()),
            pieces=num_pieces,
            pieces_lost=int(pairs.lost.sum()),
            text_bytes=text_bytes,
            replaced_characters=replaced,
            unknown_pieces=self.dupe_factor * len(unknown),
        )
        characters = self.tokenizer.unknown_characters([texts[i] for i in with_unknown])
        sequences = _sequences(pairs, ids.astype(ids_dtype(self.tokenizer.vocab_size)), numbers)
        return sequences, Tally(counts=counts, unknown_characters=dict(characters))

    def _cut_pass(
        self,
        ids: np.ndarray,
        bounds: np.ndarray,
        documents: np.ndarray,
        numbers: np.ndarray,
        pass_number: int,
    ) -> Pairs:
        """Return the pairs of one pass over the documents.

        The draws are keyed by document number, so that the worker makes no difference.
        """
        keys = keyed_random.bits(
            keyed_random.stream_key(self.seed, keyed_random.SEGMENTS, pass_number), numbers
        )
        if self.quirks:
            return reference_pairs(bounds, documents, keys, self._max_pieces)
        pairs = segment_pairs(bounds, documents, keys, self._max_pieces)
        return swapped(paired(pairs, ids, self.tokenizer.is_word_start)) if self.labeled else pairs

    @property
    def _max_pieces(self) -> int:
        """Maximum number of pieces of a pair, without the special pieces."""
        return self.seq_length - SPECIAL_PIECES


def _sizes(text: str) -> tuple[int, int]:
    """Return the bytes of a text, and the number of replacement characters in it."""
    return (len(text), 0) if text.isascii() else (len(text.encode()), text.count("\ufffd"))


def _sequences(pairs: Pairs, ids: np.ndarray, numbers: np.ndarray) -> Sequences:
    begins = np.stack([pairs.first, pairs.second], axis=1).ravel()
    lengths = np.stack([pairs.first_length, pairs.second_length], axis=1).ravel()
    return Sequences(
        keys=pairs.keys,
        documents=numbers[pairs.document],
        labels=pairs.label.astype(np.uint8),
        first=pairs.first_length.astype(np.int32),
        second=pairs.second_length.astype(np.int32),
        pieces=take_ranges(ids, begins, lengths),
    )


def cut_all(
    cutter: Cutter,
    documents: Iterable[tuple[int, Document]],
    num_workers: int,
    batch_characters: int = Sizes.batch_characters,
) -> Iterator[tuple[Sequences, Tally]]:
    """Yield the pairs and the tally of each batch of documents, in order and in bounded memory."""
    batches = _batches(documents, 2 if cutter.quirks else 1, batch_characters)
    yield from map_in_order(cutter.cut, batches, num_workers)


def _batches(
    documents: Iterable[tuple[int, Document]], at_least: int, characters: int
) -> Iterator[Batch]:
    batch, size = [], 0
    for number, document in documents:
        batch.append((number, document))
        size += len(document.text)
        if size >= characters and len(batch) >= at_least:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch
