"""Time raw-text classifiers, ours and the peers', request by request, interleaved.

    python -m benchmarks.serving --tokenizer=artifacts/tokenizer --rounds=20

Each system is an exported classifier of --preset's shape with random weights, in its own process on
--cores cores: `ours` in Python, `ours-c-api` through TensorFlow's C API, `ours-bf16`,
`tf-models-official` (its tokenizer, packer and encoder as a SavedModel, which pads to
--seq_length), `hf-torch` (transformers, which pads to the longest text), and our ONNX export in
`onnx-runtime`, `openvino` and `openvino-bf16`. The last three take ids, padded to the longest text;
making these is not timed.

The output is one JSON line about the machine and one per system and load. `p50_ms` is wall-clock
time; 20 or more rounds add `p95_ms`, 100 or more `p99_ms`. `texts_per_s` is all texts over the
wall-clock time of all measured rounds. `cpu_ms` is the median CPU time, and `ratios` are `cpu_ms`
over that of each other peer and of `before`. Six or more rounds add `of_before`, the median of the
ratios of `ours` to `before`, round by round, between the ends of its 95 % interval.

The loads are 1 or 32 texts of 10 pieces, 1 or 32 texts of --seq_length, and `mixed`, 24 texts of 10
pieces and 8 of --seq_length. `alone_difference` is the largest difference between a probability in
the mixed batch and that of its text alone. --before is the checkout of another version, whose
`ours` is measured as `before`. A system that is not installed, or computes in bfloat16
on a CPU without AVX512-BF16 and AMX, gets a line with `absent`; one that fails ends the benchmark.
"""

import contextlib
import dataclasses
import itertools
import json
import os
import statistics
import tempfile
from typing import Annotated

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.devices import has_bfloat16_products
from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import WORD_MARK, Tokenizer, load_tokenizer
from benchmarks import workers
from benchmarks.workers import Worker

OURS = ("ours", "ours-c-api", "ours-bf16")
PEERS = ("tf-models-official", "hf-torch", "onnx-runtime", "openvino", "openvino-bf16")
SYSTEMS = (*OURS, *PEERS)
BEFORE = "before"
SHORT = 10  # pieces of a short text


@dataclasses.dataclass(frozen=True)
class ServingOptions(commands.CommandOptions):
    """The command line of `benchmarks.serving`."""

    tokenizer: str = commands.option("a SentencePiece model, or a folder with one", path=True)
    preset: str = commands.option("the encoder's shape", "albert-base-v2")
    seq_length: int = commands.option("pieces of the longest text", 128)
    systems: str = commands.option("systems, comma-separated", ",".join(SYSTEMS))
    loads: str = commands.option(
        "loads, comma-separated, such as 'mixed,1 x 10'; by default all", ""
    )
    cores: Annotated[int, POSITIVE] = commands.option("cores that each system may use", 1)
    rounds: Annotated[int, POSITIVE] = commands.option(
        "measured requests per load, after one warm-up", 20
    )
    before: str | None = commands.option(
        "checkout of another version, measured as well", None, path=True
    )
    dry_run: bool = commands.option("check the options and print what would be measured", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.names if name not in (*SYSTEMS, BEFORE)]:
            raise InputError(
                f"--systems must be among {', '.join(SYSTEMS)}. Received: {unknown[0]!r}."
            )
        workers.check_checkout(self.before)

    @property
    def names(self) -> list[str]:
        """The names of the systems."""
        names = [name for name in self.systems.split(",") if name]
        return [*names, BEFORE] if self.before else names


def make_loads(tokenizer: Tokenizer, seq_length: int) -> dict[str, list[str]]:
    """Return the requests: name -> texts."""
    short, full = make_text(tokenizer, SHORT), make_text(tokenizer, seq_length)
    return {
        "1 x 10": [short],
        f"1 x {seq_length}": [full],
        "32 x 10": [short] * 32,
        f"32 x {seq_length}": [full] * 32,
        "mixed": ([short] * 3 + [full]) * 8,
    }


def make_text(tokenizer: Tokenizer, pieces: int) -> str:
    """Return a text of `pieces` pieces, [CLS] and [SEP] included.

    Each of its words is one piece.
    """
    known = (tokenizer.id_to_piece(i) for i in range(tokenizer.vocab_size))
    words = filter(str.isalpha, (piece.removeprefix(WORD_MARK) for piece in known))
    single = (word for word in words if len(tokenizer.encode(f"{word} {word}")) == 2)
    text = " ".join(itertools.islice(itertools.cycle(itertools.islice(single, 500)), pieces - 2))
    assert len(tokenizer.encode(text)) == pieces - 2
    return text


def main(options: ServingOptions) -> None:
    """Measure and print the lines."""
    longest = AlbertConfig.from_preset(options.preset).max_positions
    if not SHORT <= options.seq_length <= longest:
        raise InputError(
            f"--seq_length must be between {SHORT} and {longest} for --preset={options.preset}. "
            f"Received: {options.seq_length}."
        )
    workers.check_cores(options.cores)
    all_loads = make_loads(load_tokenizer(options.tokenizer), options.seq_length)
    chosen = [name for name in options.loads.split(",") if name] or list(all_loads)
    if unknown := [name for name in chosen if name not in all_loads]:
        raise InputError(f"--loads must be among {', '.join(all_loads)}. Received: {unknown[0]!r}.")
    requests = {name: all_loads[name] for name in chosen}
    if options.dry_run:
        print(json.dumps({"systems": options.names, "loads": list(requests)}))
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        print(json.dumps({"cpu": workers.cpu(), "cores": options.cores, "preset": options.preset}))
        present = _start_installed(options, folder, running)
        for load, texts in requests.items():
            answers: dict[str, list[dict]] = {name: [] for name in present}
            for _ in range(1 + options.rounds):
                for name, worker in present.items():
                    answers[name].append(worker.request(texts))
            for name in present:
                print(json.dumps(_line(name, load, len(texts), answers)), flush=True)
        for name, worker in present.items():
            line = {
                "system": name,
                "alone_difference": _alone_difference(worker, all_loads["mixed"]),
            }
            print(json.dumps(line))


def start(name: str, options: ServingOptions, folder: str) -> Worker:
    """Start a system, which exports to `folder`."""
    system, tree = ("ours", options.before) if name == BEFORE else (name, None)
    tokenizer = os.path.abspath(options.tokenizer)
    model = (options.preset, tokenizer, options.seq_length)
    arguments = [system, *model, folder, options.cores]
    return Worker(name, "benchmarks.serving_worker", arguments, tree)


def _start_installed(
    options: ServingOptions, folder: str, running: contextlib.ExitStack
) -> dict[str, Worker]:
    """Start the installed systems, which `running` ends; print the lines of the others."""
    present = {}
    for name in options.names:
        if name.endswith("-bf16") and not has_bfloat16_products():
            print(json.dumps({"system": name, "absent": "this CPU has no bfloat16 products"}))
            continue
        worker = start(name, options, os.path.join(folder, name))
        running.callback(worker.end)
        if "absent" in worker.ready:
            print(json.dumps({"system": name} | worker.ready))
        else:
            present[name] = worker
    return present


def _alone_difference(worker: Worker, texts: list[str]) -> float:
    """Return the largest difference between the probabilities in a batch and of each text alone.

    The first four texts of the batch repeat.
    """
    alone = [worker.request([text])["values"][0] for text in texts[:4]]
    return max(
        abs(together - by_itself)
        for row, values in enumerate(worker.request(texts)["values"])
        for together, by_itself in zip(values, alone[row % 4], strict=True)
    )


def _line(name: str, load: str, count: int, answers: dict[str, list[dict]]) -> dict:
    """Return the line of a system; the first of its answers is the warm-up."""
    wall = [answer["wall_ms"] for answer in answers[name][1:]]
    times = {system: [row["cpu_ms"] for row in rows[1:]] for system, rows in answers.items()}
    cpu = {system: statistics.median(values) for system, values in times.items()}
    peers = [peer for peer in (*PEERS, BEFORE) if peer in answers and peer != name]
    is_compared = name == "ours" and BEFORE in times
    return (
        {"system": name, "load": load}
        | workers.percentiles(wall)
        | workers.throughput(count * len(wall), wall)
        | {"cpu_ms": round(cpu[name], 2)}
        | {"ratios": {peer: round(cpu[name] / cpu[peer], 3) for peer in peers}}
        | (workers.paired_ratio(times[name], times[BEFORE]) if is_compared else {})
    )


if __name__ == "__main__":
    commands.run(main, ServingOptions, __doc__)
