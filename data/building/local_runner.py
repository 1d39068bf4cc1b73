"""The local runner: pass one spills pairs to shards, and pass two sorts and writes each shard.

All files are in the folder that becomes the output. After a full disk, a power cut or Ctrl-C, the
same command resumes from them.
"""

import dataclasses
import os
from collections.abc import Iterable
from itertools import islice

from albert_tf.runtime import settings
from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress
from data.building.cutter import Cutter, Tally, cut_all
from data.building.shuffle import Layout, ShardWriter, Spill, spill_path
from data.building.workers import DEFAULT_SIZES, Sizes, map_in_order
from data.corpora.corpus import Document
from data.records.manifest import shard_name

MAX_MARKS = 200
SHARDS_PER_WORKER = 4  # for fewer, starting a process costs more than it saves
_MARK = outputs.MARK + ".json"


@dataclasses.dataclass(frozen=True)
class _Mark:
    """Progress of the first pass; the spill files hold at least this much."""

    tally: Tally
    sizes: tuple[int, ...] = ()  # bytes of each shard's spill
    records: tuple[int, ...] = ()
    is_complete: bool = False


def run(
    folder: str,
    cutter: Cutter,
    layout: Layout,
    documents: Iterable[tuple[int, Document]],
    text_bytes: int,
    num_shards: int,
    num_workers: int,
    sizes: Sizes = DEFAULT_SIZES,
    progress_of: type[Progress] = Progress,
) -> tuple[tuple[int, ...], Tally]:
    """Write all shards to `folder`, and return their numbers of records and the tally.

    `text_bytes` is the approximate size of the documents, used to estimate the remaining time.
    """
    mark = _read_mark(folder, num_shards)
    if mark.tally.documents:
        print(f"resuming after {mark.tally.documents:,} documents")
    if not mark.is_complete:
        mark = _spill(folder, mark, cutter, documents, text_bytes, num_workers, sizes, progress_of)
    paths = [os.path.join(folder, shard_name(shard, num_shards)) for shard in range(num_shards)]
    missing = [shard for shard, path in enumerate(paths) if not os.path.exists(path)]
    writer = ShardWriter(folder, num_shards, layout)
    workers = min(num_workers, 1 + len(missing) // SHARDS_PER_WORKER)
    with progress_of("shards", num_shards, num_shards - len(missing)) as progress:
        for shard in map_in_order(writer, missing, workers):
            os.remove(spill_path(folder, shard))
            progress.advance(1)
    return mark.records, mark.tally


def _spill(
    folder: str,
    mark: _Mark,
    cutter: Cutter,
    documents: Iterable[tuple[int, Document]],
    text_bytes: int,
    num_workers: int,
    sizes: Sizes,
    progress_of: type[Progress],
) -> _Mark:
    tally, spill = mark.tally, Spill(folder, mark.sizes, mark.records)
    # A mark flushes each shard's file to the disk, so a build has at most about MAX_MARKS.
    least = -(-text_bytes // (sizes.batch_characters * MAX_MARKS))
    batches_per_mark = max(sizes.batches_per_mark, least)
    with spill, progress_of("bytes of text", text_bytes, tally.text_bytes) as progress:
        rest = islice(documents, tally.documents, None)
        results = cut_all(cutter, rest, num_workers, sizes.batch_characters)
        for number, (sequences, counted) in enumerate(results, start=1):
            spill.add(sequences)
            tally += counted
            if number % batches_per_mark == 0:
                _write_mark(folder, spill, tally, is_complete=False)
            progress.advance(tally.text_bytes - progress.done, f"{tally.documents:,} documents")
        return _write_mark(folder, spill, tally, is_complete=True)


def _write_mark(folder: str, spill: Spill, tally: Tally, is_complete: bool) -> _Mark:
    mark = _Mark(tally, tuple(spill.sync()), tuple(spill.records.tolist()), is_complete)
    outputs.write_json(os.path.join(folder, _MARK), settings.to_dict(mark))
    return mark


def _read_mark(folder: str, num_shards: int) -> _Mark:
    try:
        return settings.from_dict(_Mark, outputs.read_json(os.path.join(folder, _MARK)))
    except (FileNotFoundError, ValueError):  # missing or truncated: start over
        return _Mark(Tally(), (0,) * num_shards, (0,) * num_shards)
