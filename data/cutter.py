"""Documents of text -> keyed records of pieces, in this process or in several."""

import dataclasses
import multiprocessing
import os
import random
import threading
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing import connection

import numpy as np

from albert_tf.tokenization import Tokenizer
from data import keyed
from data.corpora import Document
from data.records import Counts
from data.schema import ids_dtype
from data.segments import SegmentPair, segment_pairs
from data.shuffle import Keyed

SPECIAL_PIECES = 3  # [CLS] A [SEP] B [SEP]
BATCH_CHARACTERS = 500_000
TEXT_BYTES_PER_WORKER = 2 * 2**20  # for less text, starting a process costs more than it saves

Batch = list[tuple[int, Document]]  # documents with their numbers in the corpus


@dataclasses.dataclass(frozen=True)
class Cutter:
    """Cuts numbered documents into records: a pure function of the fields and of each document.

    dupe_factor: passes over a document, each with other segments.
    """

    tokenizer: Tokenizer
    seq_length: int
    dupe_factor: int
    seed: int

    def cut(self, batch: Batch) -> tuple[list[Keyed], Counts]:
        """The records of the documents, each with the key that orders it, and what was counted."""
        texts = [sentence for _, document in batch for sentence in document.sentences]
        encoded = iter(self.tokenizer.encode_batch(texts))
        records: list[Keyed] = []
        pairs: list[SegmentPair] = []
        single = 0
        max_pieces, is_word_start = self.seq_length - SPECIAL_PIECES, self.tokenizer.is_word_start
        for number, document in batch:
            sentences = [ids for ids in (next(encoded) for _ in document.sentences) if ids]
            single += len(sentences) == 1
            for turn in range(self.dupe_factor):
                # Seeded by the document's number: the same whichever worker has it.
                rng = random.Random(self._key(turn, number))
                for pair in segment_pairs(sentences, max_pieces, rng, is_word_start):
                    record = self._record(pair, number)
                    records.append(Keyed(rng.getrandbits(64), number, turn, record))
                    pairs.append(pair)
        counts = Counts(
            documents=len(batch),
            single_sentence_documents=single,
            sentences=len(texts),
            sequences=len(pairs),
            sequences_without_pair=sum(not pair.second for pair in pairs),
            pieces=sum(len(pair.first) + len(pair.second) for pair in pairs),
            pieces_lost=sum(pair.lost for pair in pairs),
            text_bytes=sum(len(text.encode()) for text in texts),
        )
        return records, counts

    def _key(self, turn: int, number: int) -> int:
        key = keyed.stream_key(self.seed, keyed.SEGMENTS, turn)
        return int(keyed.bits(key, np.array([number]))[0])

    def _record(self, pair: SegmentPair, number: int) -> dict[str, object]:
        pieces = np.array(pair.first + pair.second, ids_dtype(self.tokenizer.vocab_size))
        return {
            "pieces": pieces,
            "word_starts": np.packbits(self.tokenizer.is_word_start[pieces]),
            "first_length": len(pair.first),
            "document": number,
        }


def cut_all(
    cutter: Cutter, documents: Iterable[tuple[int, Document]], num_workers: int
) -> Iterator[tuple[list[Keyed], Counts]]:
    """What `cutter` makes of batch after batch of documents, in order and in bounded memory."""
    batches = _batches(documents)
    if num_workers == 1:
        yield from map(cutter.cut, batches)
        return
    context = multiprocessing.get_context("spawn")  # fork is unsafe beside TensorFlow's threads
    with ProcessPoolExecutor(num_workers, context, _start_worker, (cutter,)) as pool:
        pending: list[Future] = []
        for batch in batches:
            pending.append(pool.submit(_cut_in_worker, batch))
            if len(pending) > 2 * num_workers:  # bounds what waits in memory
                yield pending.pop(0).result()
        for future in pending:
            yield future.result()


def useful_workers(wanted: int, text_bytes: int) -> int:
    """Processes worth starting for so much text: at most `wanted`, where 0 is one per core."""
    return min(wanted or os.cpu_count() or 1, 1 + text_bytes // TEXT_BYTES_PER_WORKER)


def _batches(documents: Iterable[tuple[int, Document]]) -> Iterator[Batch]:
    batch, size = [], 0
    for number, document in documents:
        batch.append((number, document))
        size += sum(map(len, document.sentences))
        if size >= BATCH_CHARACTERS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


_cutter_of_worker: list[Cutter] = []


def _start_worker(cutter: Cutter) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _cutter_of_worker.append(cutter)


def _end_with_parent() -> None:
    """Ends this worker when the build is killed: it would wait for work for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    os._exit(1)


def _cut_in_worker(batch: Batch) -> tuple[list[Keyed], Counts]:
    return _cutter_of_worker[0].cut(batch)
