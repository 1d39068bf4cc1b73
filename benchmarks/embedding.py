"""Time the embedding of texts on one core, ours and that of a published ONNX model, interleaved.

    python -m benchmarks.embedding --texts=sentences.txt --model=albert-mini-en-embed \
        --onnx=all-MiniLM-L6-v2

All take plain texts, sorted by length in batches of 32, in float32. `embedder` is
`albert_tf.load_embedder`, `saved-model` and `onnx-runtime` are exports of the same model, the
latter with the tokenizer in Python, and `peer` is --onnx with the library `tokenizers`, the mean
over the pieces and normalization. They share a process and a core, one thread each, and take turns.
The JSON line of a system has `texts_per_s`, the median over the rounds, `mean_pieces` without
padding, and `of_peer`: the median of the rounds' ratios to the peer's rate between the ends of its
95 % interval, from six rounds.
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
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import tensorflow as tf

import albert_tf
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.embedding.embedder import Embedder
from albert_tf.tasks.embedding.kind import Embedding
from benchmarks import workers
from benchmarks.runtimes import Ids, onnx_session

if TYPE_CHECKING:
    from tokenizers import Tokenizer

BATCH = 32
System = Callable[[Sequence[str]], np.ndarray]


@dataclasses.dataclass(frozen=True)
class EmbeddingBenchmarkOptions(commands.CommandOptions):
    """The command line of `benchmarks.embedding`."""

    texts: str = commands.option("a file with a text per line", path=True)
    model: str = commands.option("what albert_tf.load_embedder takes", "albert-mini-en-embed")
    onnx: str | None = commands.option(
        "a folder with model.onnx, which returns hidden states, and tokenizer.json", None, path=True
    )
    count: Annotated[int, POSITIVE] = commands.option("texts of a round, the first of --texts", 640)
    rounds: Annotated[int, POSITIVE] = commands.option("rounds, after one to warm up", 20)
    dry_run: bool = commands.option("check the options and read the texts", False)


def main(options: EmbeddingBenchmarkOptions) -> None:
    """Measure and print the lines."""
    with open(options.texts, encoding="utf-8") as file:
        texts = [line.strip() for line in file if line.strip()][: options.count]
    if not texts:
        raise InputError(f"--texts={options.texts} has no text.")
    if options.onnx and not os.path.exists(path := os.path.join(options.onnx, "model.onnx")):
        raise InputNotFoundError(f"--onnx: there is no file {path}.")
    if options.dry_run:
        print(f"{len(texts):,} texts")
        return
    use_one_core()
    texts.sort(key=len)
    batches = [texts[i : i + BATCH] for i in range(0, len(texts), BATCH)]
    with tempfile.TemporaryDirectory() as folder:
        systems, pieces = _systems(options, folder, texts)
        rates: dict[str, list[float]] = {name: [] for name in systems}
        vectors = {
            name: np.concatenate([*map(embed, batches)]) for name, embed in systems.items()
        }  # which warms up, too
        for _ in range(options.rounds):
            for name, embed in systems.items():
                begin = time.perf_counter()
                for batch in batches:
                    embed(batch)
                rates[name].append(len(texts) / (time.perf_counter() - begin))
    print(json.dumps({"cpu": workers.cpu(), "texts": len(texts), "batch": BATCH}))
    for name, values in rates.items():
        line: dict[str, Any] = {
            "system": name,
            "texts_per_s": round(statistics.median(values), 1),
            "mean_pieces": round(pieces["peer" if name == "peer" else "ours"], 1),
        }
        if name == "peer":
            line["length_of_vectors"] = round(
                float(np.linalg.norm(vectors[name], axis=1).mean()), 4
            )
        else:
            differs = np.abs(vectors[name] - vectors["embedder"]).max()
            line["differs_from_embedder"] = float(f"{differs:.1e}")
            if "peer" in rates:
                ratio = workers.paired_ratio(values, rates["peer"])
                line |= {"of_peer": ratio["of_before"]} if ratio else {}
        print(json.dumps(line), flush=True)


def use_one_core() -> None:
    """Restrict this process to a core, and TensorFlow, which must not have begun, to a thread."""
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:1])
    tf.config.threading.set_intra_op_parallelism_threads(1)
    tf.config.threading.set_inter_op_parallelism_threads(1)


def _systems(
    options: EmbeddingBenchmarkOptions, folder: str, texts: Sequence[str]
) -> tuple[dict[str, System], dict[str, float]]:
    """Return the systems, and the mean numbers of pieces of a text, special ones included."""
    for format in ("saved_model", "onnx"):
        with contextlib.redirect_stdout(sys.stderr):
            export(
                ExportOptions(options.model, f"{folder}/{format}", Embedding.name, format=format)
            )
    embedder = albert_tf.load_embedder(options.model)
    ids, session = Ids.of(f"{folder}/onnx/1"), onnx_session(f"{folder}/onnx/1", 1)
    systems: dict[str, System] = {
        "embedder": _call(embedder),
        "saved-model": _call(albert_tf.load_embedder(f"{folder}/saved_model/1")),
        "onnx-runtime": lambda batch: session.run(["embedding"], ids(batch))[0],
    }
    pieces = {"ours": float(ids(texts)["input_mask"].sum(axis=1).mean())}
    if options.onnx:
        from tokenizers import Tokenizer

        tokenizer = Tokenizer.from_file(os.path.join(options.onnx, "tokenizer.json"))
        tokenizer.enable_padding()  # to the longest of the batch
        encoded = tokenizer.encode_batch(list(texts))
        pieces["peer"] = float(np.mean([sum(text.attention_mask) for text in encoded]))
        systems["peer"] = peer(tokenizer, options.onnx)
    return systems, pieces


def _call(embedder: Embedder) -> System:
    return lambda batch: embedder(batch, batch_size=BATCH, show_progress_bar=False)


def peer(tokenizer: "Tokenizer", folder: str) -> System:
    """Return a model of hidden states as an embedder: the normalized mean over the pieces."""
    session = onnx_session(folder, 1)
    names = [value.name for value in session.get_inputs()]

    def embed(batch: Sequence[str]) -> np.ndarray:
        texts = tokenizer.encode_batch(list(batch))
        inputs = {
            "input_ids": np.array([text.ids for text in texts], np.int64),
            "attention_mask": np.array([text.attention_mask for text in texts], np.int64),
            "token_type_ids": np.array([text.type_ids for text in texts], np.int64),
        }
        hidden = session.run(None, {name: inputs[name] for name in names})[0]
        mask = inputs["attention_mask"][:, :, None].astype(np.float32)
        means = (hidden * mask).sum(axis=1) / mask.sum(axis=1)
        return means / np.linalg.norm(means, axis=1, keepdims=True)

    return embed


if __name__ == "__main__":
    commands.run(main, EmbeddingBenchmarkOptions, __doc__)
