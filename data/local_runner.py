"""A build on this machine: text is cut and spilled by shard, then shards are sorted and written.

What is done stays in a folder beside the output until the build is complete: after a full disk, a
power cut or Ctrl-C the same command continues.
"""

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from albert_tf import outputs, settings
from albert_tf.errors import InputError
from albert_tf.progress import Progress
from data.corpora import Document
from data.cutter import Cutter, cut_all, map_batches
from data.records import Counts, shard_name
from data.shuffle import Layout, ShardWriter, Spill, spill_path

SUFFIX = ".unfinished"
BATCHES_PER_MARK = 32  # about 64 MB of text: what a rerun may have to cut again
SHARDS_PER_WORKER = 12  # for fewer, importing TensorFlow costs a process more than it saves
_IDENTITY, _MARK = "build.json", "mark.json"


@dataclasses.dataclass(frozen=True)
class _Mark:
    """How far the first pass came: the spilled files hold this, and perhaps more behind it."""

    counts: Counts
    sizes: tuple[int, ...] = ()  # bytes of each shard's spill
    records: tuple[int, ...] = ()
    is_complete: bool = False


@contextlib.contextmanager
def workplace(output: str, identity: str) -> Iterator[str]:
    """Yields a folder beside `output` that outlives an interruption, not a success or a mistake.

    What another build (another `identity`) left there is removed.

    Raises:
      InputError: the folder's name is taken by something else.
    """
    folder = os.path.realpath(output) + SUFFIX
    mine = os.path.join(folder, _IDENTITY)
    if os.path.lexists(folder) and not os.path.isfile(mine):
        raise InputError(
            f"--output needs the name {folder!r} while it is written, and what has that name was "
            "not made by this command: move it or name another folder."
        )
    if os.path.isfile(mine) and _read(mine) != identity:
        shutil.rmtree(folder)
    os.makedirs(folder, exist_ok=True)
    outputs.write_json(mine, identity)
    try:
        yield folder
    except InputError:
        shutil.rmtree(folder)
        raise
    shutil.rmtree(folder)


def run(
    work: str,
    cutter: Cutter,
    layout: Layout,
    documents: Iterable[tuple[int, Document]],
    num_shards: int,
    num_workers: int,
) -> tuple[tuple[int, ...], Counts]:
    """Fills `work` with all shards; returns how many records they have, and what was counted."""
    mark = _spill(work, cutter, documents, num_shards, num_workers)
    missing = [s for s in range(num_shards) if not os.path.exists(_shard_path(work, s, num_shards))]
    writer = ShardWriter(work, num_shards, layout)
    workers = min(num_workers, 1 + len(missing) // SHARDS_PER_WORKER)
    with Progress("shards", num_shards, num_shards - len(missing)) as progress:
        for shard in map_batches(writer, missing, workers):
            os.remove(spill_path(work, shard))
            progress.advance(1)
    return mark.records, mark.counts


def move_shards(work: str, folder: str, num_shards: int) -> None:
    """Moves the shards of a complete run into their place."""
    for shard in range(num_shards):
        os.replace(_shard_path(work, shard, num_shards), _shard_path(folder, shard, num_shards))


def _spill(
    work: str,
    cutter: Cutter,
    documents: Iterable[tuple[int, Document]],
    num_shards: int,
    num_workers: int,
) -> _Mark:
    mark = _read_mark(work, num_shards)
    if mark.is_complete:
        return mark
    counts, done = mark.counts, mark.counts.documents
    spill = Spill(work, mark.sizes, mark.records)
    with spill, Progress("documents", done=done) as progress:
        results = cut_all(cutter, islice(documents, done, None), num_workers)
        for number, (sequences, counted) in enumerate(results, start=1):
            spill.add(sequences)
            counts += counted
            if number % BATCHES_PER_MARK == 0:
                _write_mark(work, spill, counts, is_complete=False)
            progress.advance(counted.documents)
        return _write_mark(work, spill, counts, is_complete=True)


def _write_mark(work: str, spill: Spill, counts: Counts, is_complete: bool) -> _Mark:
    mark = _Mark(counts, tuple(spill.sync()), tuple(spill.records.tolist()), is_complete)
    outputs.write_json(os.path.join(work, _MARK), settings.to_dict(mark))
    return mark


def _read_mark(work: str, num_shards: int) -> _Mark:
    path = os.path.join(work, _MARK)
    if os.path.isfile(path):
        return settings.from_dict(_Mark, _read(path))
    return _Mark(Counts(), (0,) * num_shards, (0,) * num_shards)


def _read(path: str) -> Any:
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def _shard_path(folder: str, shard: int, num_shards: int) -> str:
    return os.path.join(folder, shard_name(shard, num_shards))
