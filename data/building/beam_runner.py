"""The Apache Beam runner: the same bytes as from the local runner, built on a cluster.

    files -> pairs of segments, grouped into shards by key -> each shard, sorted by key

Its pipeline consists of FlatMap, Map and GroupByKey alone, which every runner of Beam has. Beam
only moves the pairs from their file to their shard; all other functions are those of the local
runner. A worker holds a batch of documents while it splits them, and one shard while it writes.
Every worker must reach the corpus and the output folder under the same path.
"""

import contextlib
import dataclasses
import io
import operator
import os
import re
import shlex
import shutil
import tempfile
import traceback
import uuid
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from albert_tf.runtime import extras, settings
from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.programs import Portable
from data.building import endpoints
from data.building.cutter import Cutter, Tally, cut_all
from data.building.sequences import Sequences
from data.building.shuffle import Layout, ShardWriter, by_shard, spill_path
from data.corpora.corpus import NumberedCorpus, Part
from data.records.manifest import shard_name

if TYPE_CHECKING:
    import apache_beam as beam

_SUMMARY = "beam.json"
_EVERY_SHARD: Part = (-1, [])  # so that shards without pairs are written too
_USERS_MISTAKE = re.compile(
    r"albert_tf\.runtime\.errors\.\w+: (.+?)(?: \[while running '.*)?$", re.MULTILINE
)
_UNFINISHED = re.compile(r".*\.tfrecord\.[0-9a-f]{32}")
_NO_SPACE = "[Errno 28]"

Block = tuple[int, bytes]  # the number of pairs, and the output of `Sequences.write`
Counts = dict[str, Any]  # a `Tally`; workers decode values before they know this package


def require_beam(beam_args: str) -> "beam.options.pipeline_options.PipelineOptions":
    """Return Beam's pipeline options, parsed from its own flags.

    Raises:
      InputError: Apache Beam is not installed, or `beam_args` cannot be parsed.
    """
    try:
        from apache_beam.options.pipeline_options import PipelineOptions, TypeOptions
    except ImportError:
        raise InputError(extras.missing("apache_beam", "beam", "--runner=beam")) from None
    try:
        options = PipelineOptions(shlex.split(beam_args))
    except ValueError as error:
        raise InputError(
            f"--beam_args must be flags in shell syntax: {error}. Received: {beam_args!r}."
        ) from None
    options.view_as(TypeOptions).pipeline_type_check = False  # Beam does not support protocols
    return options


def run(
    folder: str,
    corpus: NumberedCorpus,
    cutter: Cutter,
    layout: Layout,
    num_shards: int,
    beam_args: str,
) -> tuple[tuple[int, ...], Tally]:
    """Write all shards to `folder`, and return their numbers of records and the tally.

    `beam_args` are Beam's own flags. Without a --runner among them, Beam runs in this process.
    """
    import apache_beam as beam

    options = require_beam(beam_args)
    runner = _runner(options)
    endpoints.require_answers(options)
    if corpus.data_dir:  # workers have a different working directory
        corpus = dataclasses.replace(corpus, data_dir=os.path.abspath(corpus.data_dir))
    parts = [*_with_absolute_paths(corpus.parts()), _EVERY_SHARD]
    cut = Portable(_cut, corpus=corpus, cutter=cutter, num_shards=num_shards)
    write = Portable(_write, folder=folder, num_shards=num_shards, layout=layout)
    with _raise_user_errors(), beam.Pipeline(runner, options) as pipeline:
        _ = (
            pipeline
            | "files" >> beam.Create(parts)
            | "to any worker" >> beam.GroupByKey()
            | "cut" >> beam.FlatMap(cut)
            | "by shard" >> beam.GroupByKey()
            | "write" >> beam.Map(write)
            | "of all" >> beam.GroupByKey()
            | "summarize" >> beam.Map(Portable(_summarize, folder=folder))
        )
    for name in os.listdir(folder):
        if _UNFINISHED.fullmatch(name):  # left by a killed worker
            os.remove(os.path.join(folder, name))
    return _read_summary(os.path.join(folder, _SUMMARY))


def _runner(options: Any) -> Any:
    from apache_beam.options.pipeline_options import StandardOptions
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    name = options.view_as(StandardOptions).runner
    if name == "dask" or (name or "").endswith(".DaskRunner"):
        return _dask_runner()
    # For the name DirectRunner, Beam would first try to download another runner.
    return FnApiRunner() if name in (None, "DirectRunner") else name


def _dask_runner() -> Any:
    """Return Beam's runner for Dask, whose module also declares its flags."""
    try:
        from apache_beam.runners.dask.dask_runner import DaskRunner
    except ImportError:
        raise InputError(
            "--runner=dask in --beam_args needs Dask: pip install 'apache-beam[dask]'."
        ) from None
    return DaskRunner()


def _with_absolute_paths(parts: Iterable[Part]) -> list[Part]:
    return [(number, [os.path.abspath(name) for name in files]) for number, files in parts]


def _cut(
    part: tuple[int, Iterable[Any]], corpus: NumberedCorpus, cutter: Cutter, num_shards: int
) -> Iterator[tuple[int, Block | Counts]]:
    """Yield the (shard, `Block`) pairs of a part, and its `Counts` under the key `num_shards`."""
    number, (files,) = part
    if (number, files) == _EVERY_SHARD:
        yield num_shards, settings.to_dict(Tally())
        yield from ((shard, (0, b"")) for shard in range(num_shards))
        return
    for sequences, tally in cut_all(cutter, corpus.documents([(number, files)]), num_workers=1):
        yield num_shards, settings.to_dict(tally)
        for shard, pairs in enumerate(by_shard(sequences, num_shards)):
            if len(pairs):
                yield shard, (len(pairs), _serialized(pairs))


def _serialized(pairs: Sequences) -> bytes:
    file = io.BytesIO()
    pairs.write(file)
    return file.getvalue()


def _write(
    group: tuple[int, Iterable[Any]], folder: str, num_shards: int, layout: Layout
) -> tuple[None, tuple[int, int | Counts]]:
    """Write the file of a shard, and return its number of records; add up the tallies."""
    key, values = group
    if key == num_shards:
        tallies = (settings.from_dict(Tally, value) for value in values)
        return None, (key, settings.to_dict(sum(tallies, Tally())))
    return None, (key, _write_shard(key, values, folder, num_shards, layout))


def _write_shard(
    shard: int, blocks: Iterable[Block], folder: str, num_shards: int, layout: Layout
) -> int:
    num_records = 0
    with tempfile.TemporaryDirectory() as scratch:
        with open(spill_path(scratch, shard), "wb") as spill:
            for count, content in blocks:
                num_records += count
                spill.write(content)
        ShardWriter(scratch, num_shards, layout)(shard)
        path = os.path.join(folder, shard_name(shard, num_shards))
        temporary = f"{path}.{uuid.uuid4().hex}"  # Beam may run a step twice at the same time
        try:
            shutil.copyfile(os.path.join(scratch, os.path.basename(path)), temporary)
            os.replace(temporary, path)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.remove(temporary)
    return num_records


def _summarize(results: tuple[None, Iterable[tuple[int, Any]]], folder: str) -> None:
    """Write the counts to a file for the command, because a pipeline does not return results."""
    *sizes, tally = (value for _, value in sorted(results[1], key=operator.itemgetter(0)))
    values = {"tally": tally, "sizes": sizes}
    outputs.write_json(os.path.join(folder, _SUMMARY), values)


def _read_summary(path: str) -> tuple[tuple[int, ...], Tally]:
    values = outputs.read_json(path)
    os.remove(path)
    return tuple(values["sizes"]), settings.from_dict(Tally, values["tally"])


@contextlib.contextmanager
def _raise_user_errors() -> Iterator[None]:
    """Convert Beam's errors to the InputError or MachineError for the user.

    Beam adds the name of the step to a worker's error, or turns the whole error into text.
    """
    try:
        yield
    except Exception as error:
        text = "".join(traceback.format_exception_only(error))
        if match := _USERS_MISTAKE.search(text):
            raise InputError(match[1]) from None
        if _NO_SPACE in text:
            raise MachineError(
                "the disk of --output or of a worker's temporary folder is full. Free some "
                "space, and run the same command again."
            ) from None
        raise
