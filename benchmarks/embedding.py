r"""Time the embedding of texts on one core, ours beside an ONNX model, interleaved.

    python -m benchmarks.embedding --texts=sentences.txt --model=albert-mini-en-embed \
        --peer=all-MiniLM-L6-v2

All take plain texts, sorted by length in batches of 32, in float32. `embedder` is
`albert_tf.load_embedder`, `saved-model` and `onnx-runtime` are exports of the same model, the
latter with the tokenizer in Python, and `peer` is --peer with its own tokenizer in ONNX Runtime.
They share a process and a core, one thread each, and take turns.

Each system has a JSON line with `texts_per_s`, the median over the rounds. Ours also have
`differs_from_embedder`, the largest difference of a number in a vector, and `of_peer`, their rate
over that of the peer: the median over the rounds between the ends of its 95 % interval, for at
least six rounds. The first line has `mean_pieces`, ours, special pieces included.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

import albert_tf
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.text_files import lines_of
from benchmarks import workers
from benchmarks.runtimes import Ids, onnx_session
from finetuning.datasets.embeddings.onnx_teacher import OnnxTeacher, onnx_file

BATCH, _KIND = 32, "embedding"
System = Callable[[Sequence[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class EmbeddingBenchmarkOptions(commands.CommandOptions):
    """The command line of `benchmarks.embedding`."""

    texts: str = commands.option("a file with a text per line", path=True)
    model: str = commands.option(
        "a run of embeddings, an encoder or an included model", "albert-mini-en-embed"
    )
    peer: str | None = commands.option(
        "an ONNX model or its folder, as finetuning.embed takes it for a teacher", None, path=True
    )
    count: Annotated[int, POSITIVE] = commands.option("texts of a round, the first of --texts", 640)
    rounds: Annotated[int, POSITIVE] = commands.option("rounds, after one to warm up", 20)
    dry_run: bool = commands.option("check the options and read the texts", False)


def main(options: EmbeddingBenchmarkOptions) -> None:
    """Measure and print the lines, with one thread in each system but in TensorFlow.

    Raises:
      InputError: there is no text, or --peer cannot be run.
    """
    lines = [line.strip() for _, line in lines_of(options.texts, "--texts")]
    if not (texts := [line for line in lines if line][: options.count]):
        raise InputError(f"--texts={options.texts} has no text.")
    peer = None
    if options.peer:
        if not onnx_file(options.peer):
            raise InputNotFoundError(f"--peer={options.peer} must be or hold an ONNX model.")
        peer = OnnxTeacher(options.peer, threads=1)
    if options.dry_run:
        print(f"{len(texts):,} texts")
        return
    texts.sort(key=len)
    batches = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        for format in ("saved_model", "onnx"):
            with contextlib.redirect_stdout(sys.stderr):
                output = f"{folder}/{format}"
                export(ExportOptions(options.model, output, _KIND, format=format))
        ids = Ids.of(f"{folder}/onnx/1")
        systems = _ours(options.model, folder, ids)
        if peer:
            systems["peer"] = peer
        # Which warms up, too.
        vectors = {name: np.concatenate([*map(run, batches)]) for name, run in systems.items()}
        rates: dict[str, list[float]] = {name: [] for name in systems}
        for _ in range(options.rounds):
            for name, run in systems.items():
                begin = time.perf_counter()
                for batch in batches:
                    run(batch)
                rates[name].append(len(texts) / (time.perf_counter() - begin))
    pieces = round(float(ids(texts)["input_mask"].sum(axis=1).mean()), 1)
    about = {"cpu": workers.cpu(), "texts": len(texts), "batch": BATCH, "mean_pieces": pieces}
    print(json.dumps(about))
    for name, values in rates.items():
        line: dict[str, Any] = {"system": name, "texts_per_s": round(statistics.median(values), 1)}
        if name != "peer":
            differs = np.abs(vectors[name] - vectors["embedder"]).max()
            line["differs_from_embedder"] = float(f"{differs:.1e}")
            if peer and (ratio := workers.paired_ratio(values, rates["peer"])):
                line["of_peer"] = ratio["of_before"]
        print(json.dumps(line), flush=True)


def _ours(model: str, folder: str, ids: Ids) -> dict[str, System]:
    session = onnx_session(f"{folder}/onnx/1", 1)
    return {
        "embedder": _call(albert_tf.load_embedder(model)),
        "saved-model": _call(albert_tf.load_embedder(f"{folder}/saved_model/1")),
        "onnx-runtime": lambda batch: session.run([_KIND], ids(batch))[0],
    }


def _call(embedder: Callable) -> System:
    return lambda batch: embedder(batch, batch_size=BATCH, show_progress_bar=False)


def one_core(options: EmbeddingBenchmarkOptions) -> None:
    """Measure on one core, and with one thread in TensorFlow, which must not have begun."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)
    main(options)


if __name__ == "__main__":
    commands.run(one_core, EmbeddingBenchmarkOptions, __doc__)
