"""Print the latency, size and score of your fine-tuned run on this machine, in each runtime.

    python -m benchmarks.latency --run_dir=runs/reviews --data_dir=reviews

The run is a classifier (single-label or multi-label) or a regressor, of texts or of pairs. It is
exported to a temporary folder in each format, and each system answers in a process of its own, in
turn with the others: the SavedModel in float32 and bfloat16, ONNX Runtime in float32 and int8,
OpenVINO in float32 and bfloat16, LiteRT in float32 and int8, the SavedModel with only --depths
layers and, for a classifier whose layers share one block, its early exit. All get plain texts: for
the runtimes that take ids, our tokenizer makes them in Python, and this is timed too.

There is a table for each load: 1 or 32 texts of 10 pieces, of a quarter of task.seq_length and of
task.seq_length. `p50` and `p95` (20 or more rounds) are wall-clock times of a request, and MB is
the size of the model's files (a SavedModel's with the tokenizer). With --data_dir, there is also a
table for the dev examples, in requests of 32 as they come, and each system gets the score of its
own answers to them. How soon texts leave the early exit depends on the texts: only those times on
dev examples are typical.

--json prints a JSON line for each system and load instead. A system that is not installed, or that
computes in bfloat16 on a CPU without AVX512-BF16 and AMX, gets a line with `absent`; one that fails
ends the benchmark.
"""

import contextlib
import dataclasses
import importlib.util
import json
import os
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, NamedTuple

import numpy as np

from albert_tf.export import __main__ as export
from albert_tf.models.checkpoints import load_config
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.devices import has_bfloat16_products
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.report_text import markdown_table
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import task_of
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.training.progress import Progress
from benchmarks import workers
from benchmarks.serving import make_text
from finetuning.datasets import DATASETS, dataset_name, reading_of
from finetuning.datasets.dataset import source_of
from finetuning.datasets.scores.metrics import require_known
from finetuning.datasets.selection import read_part
from finetuning.kinds.registry import FINETUNING, kinds_with

KINDS_OF_RUN = kinds_with("depths")
_ANSWERS = ("probabilities", "score")  # what the signatures call them
BATCHES = (1, 32)


class Candidate(NamedTuple):
    """An export and what answers from it.

    Attributes:
      runtime: the name in `runtimes.RUNTIMES`, and perhaps a variant.
      options: the options of `albert_tf.export`.
      libraries: the packages that it needs besides those of this project.
      is_bfloat16: whether it computes in bfloat16.
    """

    runtime: tuple[str, ...]
    options: Mapping[str, Any] = {}
    libraries: tuple[str, ...] = ()
    is_bfloat16: bool = False

    def absence(self, cpu_flags: set[str] | None = None) -> str | None:
        """Return why it cannot answer here, or on a CPU with these flags; None if it can."""
        missing = [
            library for library in self.libraries if importlib.util.find_spec(library) is None
        ]
        if missing:
            return f"{missing[0]} is not installed"
        if self.is_bfloat16 and not has_bfloat16_products(cpu_flags):
            return "this CPU has no bfloat16 products"
        return None


_ONNX = {"format": "onnx"}
CANDIDATES = {
    "saved-model": Candidate(("saved_model",)),
    "saved-model-bf16": Candidate(
        ("saved_model",), {"precision": "mixed_bfloat16"}, is_bfloat16=True
    ),
    "onnx-runtime": Candidate(("onnx_runtime",), _ONNX, ("onnx", "onnxruntime")),
    "onnx-runtime-int8": Candidate(
        ("onnx_runtime",), _ONNX | {"quantization": "int8"}, ("onnx", "onnxruntime")
    ),
    "openvino": Candidate(("openvino", "f32"), _ONNX, ("onnx", "openvino")),
    "openvino-bf16": Candidate(("openvino", "bf16"), _ONNX, ("onnx", "openvino"), True),
    "litert": Candidate(("litert",), {"format": "litert"}),
    "litert-int8": Candidate(("litert",), {"format": "litert", "quantization": "int8"}),
}


@dataclasses.dataclass(frozen=True)
class LatencyOptions(commands.CommandOptions):
    """The command line of `benchmarks.latency`."""

    run_dir: str = commands.option("a fine-tuned classifier or regressor", path=True)
    data_dir: str | None = commands.option(
        "the folder of its dataset's files, for scores", None, path=True
    )
    task: str | None = commands.option("the dataset; by default the run's own", None)
    systems: str = commands.option("systems, comma-separated; by default all", "")
    depths: str = commands.option(
        "numbers of layers; those below the model's own are measured", "3,6,12"
    )
    patience: int = commands.option(
        "layers that must agree for the early exit of a classifier; 0: no early exit", 2
    )
    cores: Annotated[int, POSITIVE] = commands.option("cores that each system may use", 1)
    rounds: Annotated[int, POSITIVE] = commands.option(
        "measured requests per system and load, after one warm-up", 20
    )
    json: bool = commands.option("print JSON lines instead of tables", False)
    dry_run: bool = commands.option("check the options and print what would be measured", False)


class Dev(NamedTuple):
    """The dev examples, and what their scores need."""

    name: str
    examples: Sequence[Any]
    section: TaskSettings
    tokenizer: Tokenizer

    @property
    def metric(self) -> str:
        """The name of the score."""
        return DATASETS[self.name].metrics[0]

    def requests(self) -> list[list[Any]]:
        """Return the texts, or [first, second] of pairs, in requests of 32."""
        texts = [[e.first, e.second] if self.section.pair else e.first for e in self.examples]
        size = BATCHES[-1]
        return [texts[begin : begin + size] for begin in range(0, len(texts), size)]

    def score(self, values: Sequence[Any]) -> float:
        """Return the score of the probabilities [N, C] or scores [N] of a system."""
        kind, predicted = KINDS[self.section.kind], np.array(values, np.float64)
        with np.errstate(divide="ignore"):  # of a probability of 0
            outputs = FINETUNING[self.section.kind].outputs_of(dict.fromkeys(_ANSWERS, predicted))
        features = kind.featurize(self.examples, self.tokenizer, self.section)
        answers = kind.decode(outputs, features, self.examples, self.section)
        return DATASETS[self.name].score(answers, self.examples)[self.metric]


def main(options: LatencyOptions) -> None:
    """Measure and print the tables or the lines."""
    workers.check_cores(options.cores)
    section = _section(options.run_dir)
    config = load_config(options.run_dir)
    candidates = _chosen(options, candidates_of(options, section, config))
    tokenizer = load_tokenizer(options.run_dir)
    dev = _dev(options, section, tokenizer) if options.data_dir else None
    loads = make_loads(tokenizer, section.seq_length, section.pair)
    if options.dry_run:
        print(json.dumps({"systems": list(candidates), "loads": list(loads)}))
        return
    machine = {"cpu": workers.cpu(), "cores": options.cores, "run": options.run_dir}
    lines = list(measure(options, candidates, loads, dev))
    if options.json:
        print("\n".join(json.dumps(line) for line in [machine, *lines]))
    else:
        print(f"{options.run_dir} on {machine['cpu']}, {options.cores} of its cores")
        print(tables(lines, dev.metric if dev else None))


def candidates_of(
    options: LatencyOptions, section: TaskSettings, config: AlbertConfig
) -> dict[str, Candidate]:
    """Return `CANDIDATES` and, as far as the model allows, fewer layers and the early exit."""
    given = settings.parse("--depths", tuple[int, ...], options.depths)
    depths = [depth for depth in given if depth < config.num_layers]
    changes: dict[str, Any] = {"depths": ",".join(map(str, depths))} if depths else {}
    signatures = [f"depth_{depth}" for depth in depths]
    leaves_early = section.leaves_early and config.has_one_block
    leaves_early &= "patience" in KINDS[section.kind].options
    if leaves_early and 0 < options.patience < config.num_layers - 1:
        changes, signatures = changes | {"patience": options.patience}, [*signatures, "early_exit"]
    return CANDIDATES | {
        name.replace("_", "-"): Candidate(("saved_model", name), changes) for name in signatures
    }


def make_loads(tokenizer: Tokenizer, seq_length: int, pair: bool) -> dict[str, list[Any]]:
    """Return the requests, such as "32 x 10" -> 32 texts of 10 pieces, or pairs."""

    def text(pieces: int) -> Any:
        if not pair:
            return make_text(tokenizer, pieces)
        first = (pieces - 3) // 2  # without the special pieces
        return [make_text(tokenizer, 2 + n) for n in (first, pieces - 3 - first)]

    short = min(10, seq_length)
    lengths = sorted({short, max(short, seq_length // 4), seq_length})
    texts = {length: text(length) for length in lengths}
    return {f"{n} x {length}": [texts[length]] * n for n in BATCHES for length in lengths}


def measure(
    options: LatencyOptions,
    candidates: Mapping[str, Candidate],
    loads: Mapping[str, Sequence[Any]],
    dev: Dev | None,
) -> Iterator[dict[str, Any]]:
    """Yield the lines of all systems and loads, then those of the absent systems."""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        present, absent, sizes = {}, {}, {}
        for name, candidate in candidates.items():
            if reason := candidate.absence():
                absent[name] = reason
                continue
            print(f"preparing {name}", file=sys.stderr)
            path = _export(options.run_dir, candidate.options, folder)
            runtime, *variant = candidate.runtime
            arguments = [runtime, path, options.cores, *variant]
            present[name] = workers.Worker(name, "benchmarks.runtimes", arguments)
            running.callback(present[name].end)
            sizes[name] = {"mb": round(_bytes(path) / 1e6, 1)}
        rounds = {load: [texts] * (1 + options.rounds) for load, texts in loads.items()}
        requests = rounds | ({"dev": dev.requests()} if dev else {})
        answers = _ask(present, requests)
    for name in present:
        if dev:
            values = [row for answer in answers["dev"][name] for row in answer["values"]]
            sizes[name] |= {dev.metric: round(dev.score(values), 4)}
    for load, by_system in answers.items():
        for name, replies in by_system.items():
            wall = [reply["wall_ms"] for reply in replies][load != "dev" :]  # after the warm-up
            count = sum(map(len, requests[load][load != "dev" :]))
            speed = workers.percentiles(wall) | workers.throughput(count, wall)
            yield {"system": name, "load": load} | speed | sizes[name]
    yield from ({"system": name, "absent": why} for name, why in absent.items())


def _ask(
    present: Mapping[str, workers.Worker], requests: Mapping[str, Sequence[Any]]
) -> dict[str, dict[str, list[dict[str, Any]]]]:
    """Return the answers of each load and system; the systems take turns."""
    total = len(present) * sum(map(len, requests.values()))
    answers: dict[str, dict[str, list[dict[str, Any]]]] = {}
    with Progress("requests", total) as progress:
        for load, texts in requests.items():
            answers[load] = {name: [] for name in present}
            for request in texts:
                for name, worker in present.items():
                    answers[load][name].append(worker.request(request))
                    progress.advance(1, load)
    return answers


def tables(lines: Sequence[Mapping[str, Any]], metric: str | None) -> str:
    """Return a Markdown table for each load, and the absent systems."""
    keys = ("p50_ms", "p95_ms", "texts_per_s", "mb", *([metric] if metric else []))
    titles = ("p50 ms", "p95 ms", "texts/s", "MB", *keys[4:])
    parts = []
    for load in dict.fromkeys(line["load"] for line in lines if "load" in line):
        rows = [
            (line["system"], *(str(line.get(key, "")) for key in keys))
            for line in lines
            if line.get("load") == load
        ]
        parts.append(markdown_table((load, *titles), rows))
    absent = [f"{line['system']}: {line['absent']}" for line in lines if "absent" in line]
    return "\n\n".join([*parts, *absent])


def _section(run_dir: str) -> TaskSettings:
    section = task_of(run_dir)
    if section.kind not in KINDS_OF_RUN:
        raise InputError(
            f"--run_dir={run_dir} must be of kind {', '.join(KINDS_OF_RUN)}. Received: a run of "
            f"kind {section.kind!r}."
        )
    if section.long_texts != "cut":
        raise InputError(
            f"--run_dir={run_dir} must truncate long texts, because the runtimes that take ids do "
            f"not read windows. Received: a run with task.long_texts={section.long_texts}."
        )
    return section


def _chosen(options: LatencyOptions, known: Mapping[str, Candidate]) -> dict[str, Candidate]:
    names = [name for name in options.systems.split(",") if name] or list(known)
    if unknown := [name for name in names if name not in known]:
        raise InputError(
            f"--systems must be among {', '.join(known)} for this run. Received: {unknown[0]!r}."
        )
    return {name: known[name] for name in names}


def _dev(options: LatencyOptions, section: TaskSettings, tokenizer: Tokenizer) -> Dev:
    name = dataset_name(options.run_dir, options.task)
    dataset = DATASETS[name]
    source = source_of(dataset, options.data_dir, False, reading_of(options.run_dir, name))
    examples = read_part(dataset, source, "dev", section)
    require_known(examples)
    return Dev(name, examples, section, tokenizer)


def _export(run_dir: str, changes: Mapping[str, Any], folder: str) -> str:
    """Return OUTPUT/VERSION of the export with these options, which is written once."""
    output = os.path.join(folder, _name(changes))
    path = os.path.join(output, "1")
    if not os.path.isdir(path):
        with contextlib.redirect_stdout(sys.stderr):
            export.main(export.ExportOptions(run_dir, output, **changes))
    return path


def _name(changes: Mapping[str, Any]) -> str:
    """Return a folder's name for an export with these options, without commas as in `depths`."""
    return "-".join(map(str, changes.values())).replace(",", "_") or "plain"


def _bytes(path: str) -> int:
    """Return the size of the model's files; the tokenizer beside them is not counted."""
    beside = ("assets.extra", "tokenizer", "config.json")
    return sum(
        os.path.getsize(os.path.join(folder, file))
        for folder, _, files in os.walk(path)
        for file in files
        if os.path.relpath(os.path.join(folder, file), path).split(os.sep)[0] not in beside
    )


if __name__ == "__main__":
    commands.run(main, LatencyOptions, __doc__)
