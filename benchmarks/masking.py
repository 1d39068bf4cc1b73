"""Time dynamic masking on one core: alone in memory, and as part of reading.

    python -m benchmarks.masking --data=artifacts/records

The output is one JSON line per batch size and part: `masking` is `data.pipeline.masking` on batches
in memory; `read` is all of `data.pipeline.batches`: reading, parsing, the pair's layout and
masking. `cpu_us` is the median CPU time per sequence over the rounds, each of which measures all
lines in turn. `sequences_per_s_per_core` is its inverse. Without --data, records are built from the
docstrings of this Python installation, which takes some minutes.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated, Any
from unittest import mock

from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.commands import CommandOptions, option, run
from albert_tf.runtime.errors import InputError

if TYPE_CHECKING:
    from data.pipeline.batches import Records

VOCAB_SIZE = 8000  # of the tokenizer for docstrings
SEED = 0


@dataclasses.dataclass(frozen=True)
class MaskingOptions(CommandOptions):
    """The command line of `benchmarks.masking`."""

    data: str | None = option(
        "folder of records; by default, built from docstrings", None, path=True
    )
    seq_length: int = option("pieces per sequence of the records to build", 512)
    batch_sizes: str = option("batch sizes, comma-separated", "64,256,1024")
    rounds: Annotated[int, POSITIVE] = option("measurements per line", 15)
    sequences: Annotated[int, POSITIVE] = option("minimum sequences per measurement", 2048)
    dry_run: bool = option("check the options and print what would be measured", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        sizes = self.batch_sizes.split(",")
        if not all(size.isdecimal() and int(size) for size in sizes):
            raise InputError(
                "--batch_sizes must be positive integers, as in 64,256. "
                f"Received: {self.batch_sizes!r}."
            )


def masking(options: MaskingOptions) -> None:
    """Measure and print the lines."""
    if options.dry_run:
        print(json.dumps(dataclasses.asdict(options)))
        return
    import tensorflow as tf

    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    from data.pipeline.batches import Records

    with contextlib.ExitStack() as stack:
        folder = options.data or stack.enter_context(_docstring_records(options.seq_length))
        for line in measure(Records.open(folder), options):
            print(json.dumps(line), flush=True)


def measure(records: "Records", options: MaskingOptions) -> list[dict]:
    """Return the lines, measured in turn so that a busy machine slows all of them."""
    steps: dict[tuple[str, int], Callable[[], object]] = {}
    for size in map(int, options.batch_sizes.split(",")):
        steps["masking", size] = _masking_step(records, size)
        steps["read", size] = _read_step(records, size)
    times: dict[tuple[str, int], list[float]] = {key: [] for key in steps}
    for _ in range(options.rounds):
        for (part, size), step in steps.items():
            times[part, size].append(_cpu_seconds(step, -(-options.sequences // size)) / size)
    common = {"benchmark": "masking", "seq_length": records.manifest.seq_length}
    common |= {"rounds": options.rounds}
    return [
        common
        | {"part": part, "batch_size": size, "cpu_us": round(1e6 * seconds, 1)}
        | {"sequences_per_s_per_core": round(1 / seconds)}
        for (part, size), seconds in ((key, statistics.median(t)) for key, t in times.items())
    ]


def _cpu_seconds(step: Callable[[], object], count: int) -> float:
    """Return the mean CPU seconds of `count` steps, including the read-ahead for them.

    The process is idle before and after, so that the buffers are equally full.
    """
    _wait_until_idle()
    start = time.process_time()
    for _ in range(count):
        step()
    _wait_until_idle()
    return (time.process_time() - start) / count


def _wait_until_idle() -> None:
    """Wait until no background thread of this process is busy."""
    before = -1.0
    while (now := time.process_time()) - before > 1e-3:
        before = now
        time.sleep(0.02)


def _masking_step(records: "Records", size: int) -> Callable[[], object]:
    """Return a function that masks the same batch of records again."""
    import tensorflow as tf

    from data.pipeline import example_maker
    from data.pipeline.masking import MaskingConfig, mask_batch
    from data.pipeline.pair_objective import Objective

    captured: list[tuple] = []

    def capture(*arguments: Any) -> dict:
        captured.append(arguments)
        return mask_batch(*arguments)

    paths = [path for path, _ in records.shards()]
    raw = next(iter(tf.data.TFRecordDataset(paths).repeat().batch(size)))
    examples = example_maker.ExampleMaker(records.manifest, Objective(), MaskingConfig(), SEED)
    with mock.patch.object(example_maker, "mask_batch", capture):
        examples(raw, tf.range(size, dtype=tf.int64), tf.zeros([size], tf.int64))
    *tensors, config, vocabulary = captured[0]
    mask: Any = mask_batch
    traced = tf.function(lambda *args: mask(*args, config, vocabulary), autograph=False)
    traced(*tensors)
    return lambda: traced(*tensors)


def _read_step(records: "Records", size: int) -> Callable[[], object]:
    """Return a function that takes the next training batch."""
    import tensorflow as tf

    from data.pipeline.batches import Objective, training_batches
    from data.pipeline.masking import MaskingConfig

    batches = training_batches(records, Objective(), MaskingConfig(), size, SEED)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    iterator = iter(batches.with_options(options))
    return lambda: next(iterator)


@contextlib.contextmanager
def _docstring_records(seq_length: int) -> Iterator[str]:
    from data.build import BuildOptions, build
    from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer

    with tempfile.TemporaryDirectory() as folder:
        tokenizer, records = (os.path.join(folder, name) for name in ("tokenizer", "records"))
        train_tokenizer(
            TrainTokenizerOptions("python_docs", output=tokenizer, vocab_size=VOCAB_SIZE)
        )
        build(BuildOptions("python_docs", tokenizer, records, seq_length=seq_length))
        yield records


if __name__ == "__main__":
    run(masking, MaskingOptions, __doc__)
