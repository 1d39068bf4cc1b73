"""Print a table of a fine-tuned run's score and cost at fewer layers.

    python -m finetuning.depth --run_dir=runs/sst-2 --data_dir=glue/SST-2 --depths=3,6 --patience=2

The command evaluates the dev examples at each depth. For a classifier whose layers share one block,
it also does so with early exit at each patience: a text leaves the encoder once that many
consecutive layers have left its label unchanged (not for multi-label runs). It times single texts
and batches of 32. A run fine-tuned with `--set task.exit_losses=true` scores better at small
depths. `albert_tf.export --depths=3,6 --patience=2` exports these variants.
"""

import dataclasses
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import numpy as np
import tensorflow as tf

from albert_tf.graph.buckets import widths_up_to
from albert_tf.graph.text_module import TextModule
from albert_tf.models.config import AlbertConfig, layer_flops
from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.report_text import markdown_table
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import load_predictor
from albert_tf.training.progress import Progress
from finetuning.datasets import DATASETS, dataset_name, reading_of
from finetuning.datasets.dataset import source_of
from finetuning.datasets.scores.metrics import require_known
from finetuning.datasets.selection import read_part
from finetuning.kinds.registry import FINETUNING, kinds_with
from finetuning.reporting import report
from finetuning.reporting.notes import notes_of

_BATCHES = (1, 32)
Classify = Callable[[Sequence[TextExample]], dict[str, np.ndarray]]


@dataclasses.dataclass(frozen=True)
class DepthOptions(commands.CommandOptions):
    """The command line of `finetuning.depth`."""

    run_dir: str = commands.option(
        f"a fine-tuned run of kind {' or '.join(kinds_with('depths'))}", path=True
    )
    data_dir: str | None = commands.option("the folder of its dataset's files", None, path=True)
    tfds: bool = commands.option("read the dataset prepared by TFDS; nothing is downloaded", False)
    task: str | None = commands.option("the dataset; by default the run's own", None)
    depths: str = commands.option("numbers of layers, such as 3,6,9; all by default", "")
    patience: str | None = commands.option(
        "layers that must agree for an early exit, such as 2,4; by default 2, for a model of at "
        "least 4 layers that share one block",
        None,
    )
    requests: Annotated[int, POSITIVE] = commands.option("timed requests per batch size", 50)
    dry_run: bool = commands.option("load the run and the dev examples, but measure nothing", False)


def main(options: DepthOptions) -> None:
    """Print the table of depths."""
    predictor = load_predictor(options.run_dir)
    kind = predictor.task.kind
    tuned, early = FINETUNING[kind], kinds_with("patience")
    if kind not in (allowed := kinds_with("depths")):
        raise InputError(
            f"--run_dir={options.run_dir} must be of kind {' or '.join(allowed)}. Received: a run "
            f"of kind {kind!r}."
        )
    if options.patience and kind not in early:
        raise InputError(
            f"--patience is for runs of kind {' or '.join(early)}, whose texts leave early once a "
            f"single label is stable. Received: {options.patience}, and a run of kind {kind!r}. "
            "Leave it out."
        )
    if predictor.task.long_texts != "cut":
        raise InputError(
            f"--run_dir={options.run_dir} must truncate long texts. Received: a run with "
            f"task.long_texts={predictor.task.long_texts}, which reads them in windows."
        )
    name = dataset_name(options.run_dir, options.task)
    dataset = DATASETS[name]
    config = predictor.model.encoder.config
    depths = _numbers("--depths", options.depths) or range(1, config.num_layers)
    given = options.patience
    if given is None and not (kind in early and predictor.task.leaves_early):
        given = ""
    patience = _patience(config, given)
    classifiers = _make_classifiers(
        predictor, [k for k in depths if k != config.num_layers], patience
    )
    source = source_of(dataset, options.data_dir, options.tfds, reading_of(options.run_dir, name))
    examples = read_part(dataset, source, "dev", predictor.task)
    require_known(examples)
    if options.dry_run:
        print(f"{options.run_dir}: {', '.join(classifiers)} on {len(examples):,} examples")
        return
    features = KINDS[kind].featurize(examples, predictor.tokenizer, predictor.task)
    for note in notes_of(features, examples, predictor.tokenizer, "the run"):
        print(note, file=sys.stderr)
    metric, seq_length = dataset.metrics[0], predictor.task.seq_length
    rows, times = [], _times(classifiers, examples, options.requests)
    for name, classify in classifiers.items():
        predictions = _classify_all(name, classify, examples)
        outputs = tuned.outputs_of(predictions)
        answers = KINDS[kind].decode(outputs, features, examples, predictor.task)
        score = dataset.score(answers, examples)[metric]
        error = tuned.standard_errors(dataset, answers, examples).get(metric)
        depth = predictions["depth"]
        at_all = name.startswith("patience") or not predictor.task.leaves_early
        flops = _flops(config, seq_length, features.unit_lengths, depth, at_all)
        costs = [f"{depth.mean():.1f}", f"{flops.mean() / 1e6:,.1f}"]
        latencies = [f"{times[name, size]:.2f}" for size in _BATCHES]
        rows.append((name, report.with_error(score, error), *costs, *latencies))
    columns = ("layers", "MFLOPs/text", "ms/text, batch 1", "ms/text, batch 32")
    header = (f"{len(examples):,} dev examples", metric, *columns)
    print(markdown_table(header, rows))


def _patience(config: AlbertConfig, given: str | None) -> tuple[int, ...]:
    """Return --patience, by default 2 if the model can leave early after two layers agree.

    Raises:
      InputError: a number is not positive.
    """
    if given is None:
        return (2,) if config.has_one_block and config.num_layers > 3 else ()
    numbers = _numbers("--patience", given)
    if any(number < 1 for number in numbers):
        raise InputError(f"--patience must be positive numbers. Received: {given}.")
    return numbers


def _numbers(flag: str, text: str) -> tuple[int, ...]:
    return settings.parse(flag, tuple[int, ...], text)


def _make_classifiers(
    predictor: Any, depths: Sequence[int], patience: Sequence[int]
) -> dict[str, Classify]:
    """Return a classifier for each depth and patience, by name.

    Each one calls a signature of an export: it takes examples and returns the signature's outputs
    and `depth` [B].
    """
    model, tokenizer, kind = predictor.model, predictor.tokenizer, KINDS[predictor.task.kind]
    module: Any = kind.module(model, tokenizer, ExportSettings(depths=tuple(depths)))
    signatures = module.signatures()
    classifiers = {
        f"depth {depth}": _make_classifier(module, signatures[f"depth_{depth}"], depth)
        for depth in depths
    }
    num_layers = model.encoder.config.num_layers
    classifiers[f"depth {num_layers}"] = _make_classifier(
        module, signatures["serving_default"], num_layers
    )
    for number in patience:
        early_exit: Any = kind.module(model, tokenizer, ExportSettings(patience=number))
        classifiers[f"patience {number}"] = _make_classifier(
            early_exit, early_exit.signatures()["early_exit"], None
        )
    return classifiers


def _make_classifier(module: TextModule, function: Any, depth: int | None) -> Classify:
    def classify(examples: Sequence[TextExample]) -> dict[str, np.ndarray]:
        texts = [[e.first for e in examples], [e.second or "" for e in examples]]
        outputs = function(*map(tf.constant, texts[: len(module.text_names)]))
        exit_depth = outputs["depth"].numpy() if depth is None else np.full(len(examples), depth)
        arrays = {name: value.numpy() for name, value in outputs.items() if name != "depth"}
        return arrays | {"depth": exit_depth}

    return classify


def _classify_all(
    name: str, classify: Classify, examples: Sequence[TextExample]
) -> dict[str, np.ndarray]:
    parts = []
    with Progress(name, len(examples)) as progress:
        for begin in range(0, len(examples), 32):
            parts.append(classify(examples[begin : begin + 32]))
            progress.advance(len(parts[-1]["depth"]))
    return {key: np.concatenate([part[key] for part in parts]) for key in parts[0]}


def _times(
    classifiers: dict[str, Classify], examples: Sequence[TextExample], requests: int
) -> dict[tuple[str, int], float]:
    """Return the median time of a text in ms (wall clock), by name and batch size.

    The classifiers take turns on each batch; two untimed rounds warm them up.
    """
    times: dict[tuple[str, int], list[float]] = {}
    for size in _BATCHES:
        for number in range(-2, requests):
            begin = number * size % max(1, len(examples) - size + 1)
            batch = examples[begin : begin + size]
            for name, classify in classifiers.items():
                start = time.perf_counter()
                classify(batch)
                if number >= 0:
                    text_ms = 1000 * (time.perf_counter() - start) / len(batch)
                    times.setdefault((name, size), []).append(text_ms)
    return {key: statistics.median(values) for key, values in times.items()}


def _flops(
    config: AlbertConfig,
    seq_length: int,
    lengths: np.ndarray,
    depth: np.ndarray,
    at_all_positions: bool,
) -> np.ndarray:
    """Return the FLOPs of each text's matrix products at its padded width.

    Pooler and head are not counted. The last layer is computed at all positions for early exit and
    for heads that read all of them, otherwise at the first one.
    """
    widths = np.array(widths_up_to(seq_length))
    width = widths[np.searchsorted(widths, lengths)].astype(np.float64)
    factorized = config.embedding_size if config.embedding_size != config.hidden_size else 0
    last = layer_flops(config, width, width if at_all_positions else 1.0)
    layers: np.ndarray = (depth - 1) * layer_flops(config, width, width) + last
    return 2 * width * factorized * config.hidden_size + layers


if __name__ == "__main__":
    commands.run(main, DepthOptions, __doc__)
