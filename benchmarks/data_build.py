"""Time builds from text to records, next to the tokenizer library's own rate, in CPU time.

    python -m benchmarks.data_build --corpus=sentences:corpus.txt --tokenizer=spiece.model

The output is one JSON line per layout and length: `mb_per_s` of text, `sequences_per_s` and
`share_of_limit`. That share is the time that sentencepiece takes for the same normalized sentences,
in lists of 2,000 with garbage collection off, over the time of the build. The library is timed
before and after each build, and the share is the median of the builds' own `shares`, so that a busy
machine slows both sides alike. `stages` splits the build's seconds. All of it runs in one process
on one core; imports are not counted.

With --num_workers the line has `parent_cpu_s`, `workers_cpu_s` (with their imports) and `wall_s`
instead: workers over parent is about the number of workers that one parent can keep busy. --peer
also times `official.nlp.data.create_pretraining_data` on `--peer_bytes` of the text, with the same
vocabulary and n-grams of words, and adds `times_peer`, a ratio of bytes per second. --memory builds
in a separate process and prints `peak_rss_mb`.
"""

import contextlib
import dataclasses
import functools
import gc
import itertools
import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from albert_tf.runtime.commands import option, run
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import normalize
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data import build as building
from data.building import cutter, local_runner, reference_layout, shuffle
from data.building.sequences import Sequences
from data.corpora import corpus

LINES = 2000
# The functions of each stage. A call from one stage into another counts for the other.
STAGES: dict[str, list[tuple[Any, str]]] = {
    "split": [(cutter.Cutter, "_is_kept")],
    "tokenize": [(cutter, "encode_flat")],
    "segment": [(cutter.Cutter, "_cut_pass")],
    "assemble": [(cutter, "_sequences"), (shuffle.Spill, "add"), (Sequences, "take")],
    "mask": [(reference_layout, "choose"), (reference_layout, "replace")],
    "encode": [
        (reference_layout.ReferenceLayout, "features"),
        (reference_layout, "encode_examples"),
        (building.CompactLayout, "encode"),
    ],
    "write": [(shuffle.ShardWriter, "__call__")],
}


@dataclasses.dataclass(frozen=True)
class DataBuildOptions:
    """The command line of `benchmarks.data_build`."""

    corpus: str = option("as in data.build", path=True)
    tokenizer: str = option("as in data.build", path=True)
    document_boundary: str = option("as in data.build", "blank_line")
    layouts: str = option("layouts, comma-separated", "reference,compact")
    seq_lengths: str = option("pieces per sequence, comma-separated", "128,512")
    dupe_factor: int = option("passes over the corpus", 1)
    num_workers: int = option("if above 1, time that many processes instead of stages", 1)
    rounds: int = option("measured builds per line, after one warm-up", 3)
    peer: bool = option("time Model Garden's tool as well", False)
    peer_bytes: int = option("bytes of text for that tool", 2_000_000)
    memory: bool = option("measure peak memory instead, once, in a separate process", False)
    dry_run: bool = option("check the options and print what would be measured", False)

    def cases(self) -> list[building.BuildOptions]:
        """Return the builds to time."""
        return [
            building.BuildOptions(
                corpus=self.corpus,
                tokenizer=self.tokenizer,
                output="",
                document_boundary=self.document_boundary,
                layout=layout,
                seq_length=int(length),
                dupe_factor=self.dupe_factor,
                num_workers=self.num_workers,
            )
            for layout in self.layouts.split(",")
            for length in self.seq_lengths.split(",")
        ]


class StageClock:
    """CPU seconds per stage, each without its calls into other stages."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(["read", *STAGES], 0.0)
        self._stack = ["read"]
        self._since = time.process_time()

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Count the time of the block for `name`."""
        self._switch(lambda: self._stack.append(name))
        try:
            yield
        finally:
            self._switch(self._stack.pop)

    def stop(self) -> None:
        """Count the time until now."""
        self._switch(lambda: None)

    def wrap(self, name: str, function: Callable) -> Callable:
        """Return `function`, with its time counted for `name`."""

        @functools.wraps(function)
        def timed(*args: object, **kwargs: object) -> object:
            with self.stage(name):
                return function(*args, **kwargs)

        return timed

    def _switch(self, change: Callable[[], object]) -> None:
        now = time.process_time()
        self.seconds[self._stack[-1]] += now - self._since
        self._since = now
        change()


def data_build(options: DataBuildOptions) -> None:
    """Measure and print the lines."""
    cases = options.cases()
    if options.dry_run:
        print(json.dumps([dataclasses.asdict(case) for case in cases], indent=1))
        return
    if options.memory:
        for case in cases:
            print(json.dumps(_memory(case)), flush=True)
        return
    tokenizer = load_tokenizer(options.tokenizer)
    if tokenizer.vocabulary.processor is None:
        raise InputError(
            f"--tokenizer must be a sentencepiece model. Received: {options.tokenizer!r}."
        )
    time_case = _time_case if options.num_workers == 1 else _time_workers
    for case in cases:
        print(json.dumps(time_case(case, tokenizer, options)), flush=True)


def _time_case(
    case: building.BuildOptions, tokenizer: Tokenizer, options: DataBuildOptions
) -> dict[str, object]:
    sentences = [s for _, document in _documents(case) for s in document.sentences]
    num_bytes = sum(len(sentence.encode()) for sentence in sentences)
    _build_once(case, tokenizer)  # warms caches
    limits, stages, sequences = [_library_seconds(tokenizer, sentences)], [], 0
    for _ in range(options.rounds):
        clock, sequences = _build_once(case, tokenizer)
        stages.append(clock.seconds)
        limits.append(_library_seconds(tokenizer, sentences))
    totals = [sum(seconds.values()) for seconds in stages]
    around = itertools.pairwise(limits)
    shares = [sum(pair) / 2 / total for pair, total in zip(around, totals, strict=True)]
    total, limit = statistics.median(totals), statistics.median(limits)
    line: dict[str, object] = {
        "layout": case.layout,
        "seq_length": case.seq_length,
        "dupe_factor": case.dupe_factor,
        "text_mb": round(num_bytes / 1e6, 2),
        "mb_per_s": round(num_bytes / 1e6 / total, 2),
        "sequences_per_s": round(sequences / total),
        "library_mb_per_s": round(num_bytes / 1e6 / limit, 2),
        "share_of_limit": round(statistics.median(shares), 3),
        "shares": [round(share, 3) for share in shares],
        "stages": {k: round(statistics.median(s[k] for s in stages), 3) for k in stages[0]},
    }
    if options.peer:
        rate = _peer_rate(case, options.peer_bytes)
        line |= {
            "peer_mb_per_s": round(rate / 1e6, 3),
            "times_peer": round(case.dupe_factor * num_bytes / total / rate, 1),
        }
    return line


def _time_workers(
    case: building.BuildOptions, tokenizer: Tokenizer, options: DataBuildOptions
) -> dict[str, object]:
    rounds = []
    for _ in range(1 + options.rounds):  # the first is not measured
        before = (time.process_time(), _children_s(), time.monotonic())
        with tempfile.TemporaryDirectory() as folder:
            _run(case, tokenizer, folder)
        after = (time.process_time(), _children_s(), time.monotonic())
        rounds.append([end - begin for begin, end in zip(before, after, strict=True)])
    names = ("parent_cpu_s", "workers_cpu_s", "wall_s")
    medians = map(statistics.median, zip(*rounds[1:], strict=True))
    return {
        "layout": case.layout,
        "seq_length": case.seq_length,
        "num_workers": case.num_workers,
        **{name: round(seconds, 3) for name, seconds in zip(names, medians, strict=True)},
    }


def _children_s() -> float:
    """Return the CPU seconds of the child processes that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _run(case: building.BuildOptions, tokenizer: Tokenizer, folder: str) -> int:
    """Write the shards into `folder`; return the number of records."""
    with mock.patch("builtins.print"):
        shards, _ = local_runner.run(
            folder,
            *building.make_stages(case, tokenizer),
            documents=_documents(case),
            text_bytes=corpus.corpus_bytes(case.corpus, case.data_dir),
            num_shards=building.num_shards(case),
            num_workers=case.num_workers,
        )
    return sum(shards)


def _documents(case: building.BuildOptions) -> Iterator[tuple[int, corpus.Document]]:
    corpus = building._corpus(case)
    return corpus.documents(corpus.parts())


def _library_seconds(tokenizer: Tokenizer, sentences: list[str]) -> float:
    batches = [
        normalize(sentences[begin : begin + LINES], tokenizer.normalization)
        for begin in range(0, len(sentences), LINES)
    ]
    processor: Any = tokenizer.vocabulary.processor
    gc.collect()
    gc.disable()
    begin = time.process_time()
    for batch in batches:
        processor.encode(batch, num_threads=1)
    seconds = time.process_time() - begin
    gc.enable()
    return seconds


def _build_once(case: building.BuildOptions, tokenizer: Tokenizer) -> tuple[StageClock, int]:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        clock = StageClock()
        for stage, targets in STAGES.items():
            for owner, name in targets:
                timed = clock.wrap(stage, getattr(owner, name))
                patches.enter_context(mock.patch.object(owner, name, timed))
        sequences = _run(case, tokenizer, folder)
        clock.stop()
        return clock, sequences


def _peer_rate(case: building.BuildOptions, num_bytes: int) -> float:
    """Return the bytes of text per second and pass of Model Garden's tool."""
    from official.nlp.data import create_pretraining_data as peer
    from official.nlp.tools import tokenization

    with tempfile.TemporaryDirectory() as folder:
        path, size = os.path.join(folder, "text.txt"), 0
        with open(path, "w", encoding="utf-8") as file:
            for _, document in _documents(case):
                text = "\n".join(document.sentences)
                file.write(text + "\n\n")
                size += len(text.encode())
                if size >= num_bytes:
                    break
        model = case.tokenizer
        model = os.path.join(model, "spiece.model") if os.path.isdir(model) else model
        begin = time.process_time()
        tokenizer = tokenization.FullSentencePieceTokenizer(model)
        slots = round(0.15 * case.seq_length)
        process_text = peer.get_processor_text_fn(True, True)
        instances = peer.create_training_instances(
            [path],
            tokenizer,
            process_text,
            case.seq_length,
            1,
            0.1,
            0.15,
            slots,
            random.Random(0),
            True,
            3,
        )
        peer.write_instance_to_example_files(
            instances, tokenizer, case.seq_length, slots, [path + ".tfrecord"], False, True
        )
        return size / (time.process_time() - begin)


_PEAK = """
import json, resource, sys
from data.build import BuildOptions, build
build(BuildOptions(**json.loads(sys.argv[1])))
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
"""


def _memory(case: building.BuildOptions) -> dict[str, object]:
    with tempfile.TemporaryDirectory() as folder:
        values = dataclasses.asdict(case) | {"output": os.path.join(folder, "out")}
        done = subprocess.run(
            [sys.executable, "-c", _PEAK, json.dumps(values)],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    return {
        "layout": case.layout,
        "seq_length": case.seq_length,
        "text_mb": round(corpus.corpus_bytes(case.corpus, case.data_dir) / 1e6, 2),
        "peak_rss_mb": round(float(done.stdout.split()[-1])),
    }


if __name__ == "__main__":
    run(data_build, DataBuildOptions, __doc__)
