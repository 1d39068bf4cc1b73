"""Time raw-text classifiers, ours and the peers', request by request, interleaved.

    python -m benchmarks.serving --tokenizer=artifacts/tokenizer --rounds=20

Each system is an exported classifier of --preset's shape with random weights, in its own process on
--cores cores: `ours` in Python, `ours-c-api` through TensorFlow's C API, `ours-bf16`,
`tf-models-official` (its tokenizer, packer and encoder as a SavedModel, which pads to --seq_length)
and `hf-torch` (transformers, which pads to the longest text).

The output is one JSON line per system and load. `p50_ms` is wall-clock time; 20 or more rounds add
`p95_ms`, 100 or more `p99_ms`. `texts_per_s` is all texts over the wall-clock time of all measured
rounds. `cpu_ms` is the median CPU time, and `ratio` is `cpu_ms` over that of tf-models-official.
The loads are 1 or 32 texts of 10 pieces, 1 or 32 texts of --seq_length, and `mixed`, 24 texts of 10
pieces and 8 of --seq_length. `alone_difference` is the largest difference between a probability in
the mixed batch and that of its text alone. A system that is not installed gets a line with
`absent`; one that fails ends the benchmark.
"""

import contextlib
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from typing import Annotated

from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import WORD_MARK, Tokenizer, load_tokenizer

SYSTEMS = ("ours", "ours-c-api", "ours-bf16", "tf-models-official", "hf-torch")
REFERENCE = "tf-models-official"
_WORKER = "benchmarks.serving_worker"
_PERCENTILES = ((50, 1), (95, 20), (99, 100))  # percentile, the rounds that it requires


@dataclasses.dataclass(frozen=True)
class ServingOptions(commands.CommandOptions):
    """The command line of `benchmarks.serving`."""

    tokenizer: str = commands.option("a SentencePiece model, or a folder with one")
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
    dry_run: bool = commands.option("check the options and print what would be measured", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if unknown := [name for name in self.names if name not in SYSTEMS]:
            raise InputError(
                f"--systems must be among {', '.join(SYSTEMS)}. Received: {unknown[0]!r}."
            )

    @property
    def names(self) -> list[str]:
        """The names of the systems."""
        return [name for name in self.systems.split(",") if name]


class Worker:
    """A system in its own process, which shares our standard error.

    Raises:
      ChildProcessError: the process ended, here or in `request`; its messages are on standard
        error.
    """

    def __init__(
        self, name: str, options: ServingOptions, folder: str, module: str = _WORKER
    ) -> None:
        self._name = name
        arguments = [name, options.preset, options.tokenizer, str(options.seq_length), folder]
        self._process = subprocess.Popen(
            [sys.executable, "-m", module, *arguments, str(options.cores)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"TF_CPP_MIN_LOG_LEVEL": "3"},
        )
        self.ready = self._read()

    def request(self, texts: list[str]) -> dict:
        """Send a request and return its answer: `wall_ms`, `cpu_ms`, `probabilities`."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):  # `_read` reports the end of the process
            self._process.stdin.write(json.dumps(texts) + "\n")
            self._process.stdin.flush()
        return self._read()

    def _read(self) -> dict:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith("\n"):
            status = self._process.wait()
            raise ChildProcessError(f"The system {self._name} ended with status {status}.")
        return json.loads(line)

    def end(self) -> None:
        """Close the process's input and wait for its end."""
        self._process.communicate()


def make_loads(tokenizer: Tokenizer, seq_length: int) -> dict[str, list[str]]:
    """Return the requests: name -> texts."""
    short, full = make_text(tokenizer, 10), make_text(tokenizer, seq_length)
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
    words = [piece[1:] for piece in known if piece.startswith(WORD_MARK) and piece[1:].isalpha()]
    single_piece_words = [word for word in words[:2000] if len(tokenizer.encode(word)) == 1]
    text = " ".join((single_piece_words * pieces)[: pieces - 2])
    assert len(tokenizer.encode(text)) == pieces - 2
    return text


def main(options: ServingOptions) -> None:
    """Measure and print the lines."""
    all_loads = make_loads(load_tokenizer(options.tokenizer), options.seq_length)
    chosen = [name for name in options.loads.split(",") if name] or list(all_loads)
    if unknown := [name for name in chosen if name not in all_loads]:
        raise InputError(f"--loads must be among {', '.join(all_loads)}. Received: {unknown[0]!r}.")
    requests = {name: all_loads[name] for name in chosen}
    if options.dry_run:
        print(json.dumps({"systems": options.names, "loads": list(requests)}))
        return
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
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


def _start_installed(
    options: ServingOptions, folder: str, running: contextlib.ExitStack
) -> dict[str, Worker]:
    """Start the installed systems, which `running` ends; print the lines of the others."""
    present = {}
    for name in options.names:
        worker = Worker(name, options, os.path.join(folder, name))
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
    alone = [worker.request([text])["probabilities"][0] for text in texts[:4]]
    return max(
        abs(together - by_itself)
        for row, values in enumerate(worker.request(texts)["probabilities"])
        for together, by_itself in zip(values, alone[row % 4], strict=True)
    )


def _line(name: str, load: str, count: int, answers: dict[str, list[dict]]) -> dict:
    wall = sorted(answer["wall_ms"] for answer in answers[name][1:])

    def cpu(system: str) -> float:
        return statistics.median(answer["cpu_ms"] for answer in answers[system][1:])

    percentiles = {
        f"p{percent}_ms": round(wall[-(-percent * len(wall) // 100) - 1], 2)
        for percent, rounds in _PERCENTILES
        if len(wall) >= rounds
    }
    line = (
        {"system": name, "load": load}
        | percentiles
        | {
            "texts_per_s": round(1000 * count * len(wall) / sum(wall), 1),
            "cpu_ms": round(cpu(name), 2),
        }
    )
    return line | ({"ratio": round(cpu(name) / cpu(REFERENCE), 3)} if REFERENCE in answers else {})


if __name__ == "__main__":
    commands.run(main, ServingOptions, __doc__)
