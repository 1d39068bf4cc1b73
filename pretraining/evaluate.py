"""Evaluate a pretrained model on held-out records: MLM, SOP and NSP (paper sections 4.2.1, 4.6).

The model is a run with any objective, or a converted checkpoint. The pair head is evaluated on both
SOP and NSP pairs, regardless of its training objective. A probe, a logistic regression on the
frozen mean-pooled outputs, measures for any model how well its outputs predict both. The same
regression on nothing but the lengths of the two segments shows what these give away. Each accuracy
is printed with its standard error over documents, beside chance. Masks and pairs are the same in
every evaluation. Of the masked pieces, about 80 % are hidden by [MASK], 10 % replaced and 10 %
visible, which makes them easy; each of these three has a row of its own. In sequences of more than
128 pieces, the hidden ones also have a row for each range of positions: 0-127, 128-255, 256-511.

    python -m pretraining.evaluate --run_dir=runs/first --data=artifacts/heldout

--trained_only leaves out the probe and the pairs of other objectives.

--minimal_pairs, instead of --data or in addition, evaluates which of two sentences the model finds
more likely: it prints the share of pairs whose grammatical sentence has the higher
pseudo-log-likelihood, by phenomenon. Chance is 50 %, and a tie counts as wrong. The sentence is
scored with one piece masked at a time, and again with the rest of the piece's word masked too. The
files are BLiMP's .jsonl, plain or compressed: each line is a pair, such as {"sentence_good":
"It is.", "sentence_bad": "It are.", "linguistics_term": "agreement", "UID": "to_be"}. The last two
keys, its phenomenon and its paradigm, may be left out.

    python -m pretraining.evaluate --run_dir=runs/first --minimal_pairs=blimp/data
"""

import dataclasses
import itertools
import os
from collections.abc import Callable
from typing import Annotated, Any

from albert_tf.models.checkpoints import latest_checkpoint, load_config, note_unfinished
from albert_tf.models.pretrainer import load_pretrainer, require_heads
from albert_tf.runtime import commands, devices, pretrained, settings
from albert_tf.runtime.bounds import POSITIVE
from albert_tf.runtime.cores import num_cores
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.report_text import percent_with_error
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import tokenizer_of_model
from albert_tf.training.progress import Progress
from albert_tf.training.step import num_parts
from data.objectives.registry import OBJECTIVES
from data.pipeline.batches import Records
from data.records import locations
from data.records.manifest import COMPACT, tokenizer_of
from pretraining.evaluation import minimal_pairs
from pretraining.evaluation.heldout import check_records, note_overlap
from pretraining.evaluation.intrinsic import Evaluator
from pretraining.evaluation.minimal_pairs import evaluate_minimal_pairs, read_minimal_pairs
from pretraining.evaluation.piece_kinds import KINDS
from pretraining.loop.config import PretrainConfig

# Of the rows of each objective of pairs: the kind of their metric and the prefix of their key.
PAIR_ROWS = {
    "pair head": ("accuracy", ""),
    "probe": ("probe", "probe_"),
    "lengths alone": ("lengths", "lengths_"),
}
SETTABLE = ("masking.", "objective.pair=")
_BATCH = 32


@dataclasses.dataclass(frozen=True)
class EvaluateOptions(commands.CommandOptions):
    """The command line of `pretraining.evaluate`."""

    run_dir: str = commands.option("the run or converted checkpoint to evaluate", path=True)
    data: str = commands.option("held-out records, a folder made by data.build", "", path=True)
    minimal_pairs: str = commands.option(
        "a folder of minimal pairs in BLiMP's format, .jsonl, plain or compressed", "", path=True
    )
    tokenizer: str | None = commands.option(
        "with --minimal_pairs: the vocabulary, if --run_dir has none",
        None,
        path=True,
        needs="minimal_pairs",
    )
    batch_size: Annotated[int | None, POSITIVE] = commands.option(
        f"with --data: sequences in a batch, over all replicas; by default the least multiple of "
        f"their number from {_BATCH}",
        None,
        needs="data",
    )
    trained_only: bool = commands.option(
        "with --data: masked LM and the pairs of the training objective alone, which is faster",
        False,
        needs="data",
    )
    device: str = commands.option("as for pretraining.train", "auto")
    tpu: str | None = commands.option("as for pretraining.train", None)
    output: str | None = commands.option(
        "the JSON file for the metrics; by default, for a run, a file in its evaluations/",
        None,
        path=True,
    )
    dry_run: bool = commands.option("check the options and the folders without evaluating", False)
    set: tuple[str, ...] = commands.option(
        "masking.KEY=value, to compare models trained with different masks; objective.pair=NAME, "
        "the training objective of a converted checkpoint (by default the paper's)",
        (),
        needs="data",
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        if not (self.data or self.minimal_pairs):
            raise InputError("pass --data, --minimal_pairs or both.")


def main(options: EvaluateOptions, make_strategy: Callable[..., Any] = devices.strategy) -> None:
    """Evaluate the model, print the metrics and write them to --output or the run's folder."""
    parts = num_parts(options.batch_size or _BATCH, num_cores())
    devices.divide_cores(options.device, parts)
    run = RunDir(pretrained.locate(options.run_dir))
    records = Records.open(options.data) if options.data else None
    pairs = read_minimal_pairs(options.minimal_pairs) if options.minimal_pairs else []
    require_heads(run.path)
    shape = load_config(run.path)
    config = config_of(run, records, options.set) if records else None
    tokenizer = tokenizer_of_model(run.path, options.tokenizer, shape.vocab_size) if pairs else None
    is_run = "records" in run.config()
    if options.output:
        outputs.require_file(options.output, "--output")
    elif is_run:
        outputs.require_folder(run.path, "--run_dir")
    strategy = make_strategy(options.device, options.tpu)
    if options.dry_run:
        asked = (
            [f"{records.manifest.num_records:,} sequences from {options.data}"] if records else []
        )
        asked += [f"{len(pairs):,} minimal pairs from {options.minimal_pairs}"] if pairs else []
        print(f"{run.path} ({shape.param_count():,} parameters) on {' and '.join(asked)}")
        return
    note_unfinished(run.path)
    checkpoint = os.path.basename(latest_checkpoint(run.path))  # a run may save others meanwhile
    with strategy.scope():
        model = load_pretrainer(run.path)
    results: dict[str, dict[str, Any]] = {}

    def keep(source: str, figures: dict[str, Any]) -> None:
        results[source] = figures | {"checkpoint": checkpoint}
        if devices.is_chief(strategy):  # only one of several workers prints and writes
            print(f"{options.run_dir} on {source}:{_report(figures)}", flush=True)
            _write(results, run if is_run else None, options.output)

    if records and config:
        with records.damage_as_input_error():
            pieces, replicas = tokenizer_of(options.data), strategy.num_replicas_in_sync
            evaluator = Evaluator(
                model,
                records,
                config,
                options.batch_size or -(-_BATCH // replicas) * replicas,
                trained_only=options.trained_only,
                strategy=strategy,
                tokenizer=pieces,
            )
            with Progress("sequences", evaluator.num_sequences) as progress:
                figures = evaluator.run(progress.advance)
        figures["data"] = locations.absolute(options.data)
        figures["records"] = records.manifest.identity()
        figures |= {"trained_only": True} if options.trained_only else {}
        if records.manifest.layout == COMPACT:
            figures["masking"] = settings.to_dict(config.masking)
        keep(options.data, figures)
    if tokenizer:
        figures = evaluate_minimal_pairs(model, tokenizer, pairs, strategy)
        source = os.path.abspath(options.minimal_pairs)
        keep(options.minimal_pairs, figures | {"minimal_pairs": source})


def _report(figures: dict[str, Any]) -> str:
    if "minimal_pairs" in figures:
        return f"\n{minimal_pairs.report(figures)}"
    return f" {report(figures)}"


def _write(results: dict[str, dict[str, Any]], run: RunDir | None, output: str | None) -> None:
    """Write all metrics to --output, or a file per data set to the run's evaluations/."""
    if output:
        merged: dict[str, Any] = {}
        for figures in results.values():  # minimal pairs go under a key if there are others
            merged |= {"minimal_pairs": figures} if merged else figures
        outputs.write_json(output, merged)
    elif run:
        for source, figures in results.items():
            name = os.path.basename(os.path.abspath(source))
            name = f"minimal_pairs-{name}" if "minimal_pairs" in figures else name
            name += "-trained_only" * ("trained_only" in figures)
            outputs.write_json(_path_for(run, name, source), figures)


def _path_for(run: RunDir, name: str, source: str) -> str:
    """Return where the figures of a data set go: not over those of another one of its name."""
    path, folder = run.evaluation_path(name), os.path.dirname(os.path.abspath(source))
    while os.path.isfile(path) and os.path.dirname(folder) != folder:
        known = outputs.read_json(path, allow_nan=True)
        other = known.get("minimal_pairs", known.get("data"))
        if not isinstance(other, str) or locations.absolute(other) == locations.absolute(source):
            break
        name, folder = f"{os.path.basename(folder)}-{name}", os.path.dirname(folder)
        path = run.evaluation_path(name)
    return path


def config_of(run: RunDir, records: Records, assignments: tuple[str, ...] = ()) -> PretrainConfig:
    """Return the configuration of a run or converted checkpoint with which to evaluate.

    Print a note if the run was trained on documents of the records.

    Raises:
      InputError: the folder is neither of these, an assignment is not allowed here, the records
        were made by another tokenizer, or they are too long for the model.
    """
    require_heads(run.path)
    values, model = run.config(), load_config(run.path)
    _check_identities(run, values.get("records", []))
    is_run = "records" in values
    names = [field.name for field in dataclasses.fields(PretrainConfig)]  # without the records
    known = {name: values[name] for name in names if name in values}
    config = settings.from_dict(PretrainConfig, known | {"model": settings.to_dict(model)})
    sketches = values.get("records_sketches")
    every = itertools.chain(sketches if isinstance(sketches, list) else (), itertools.repeat(""))
    for trained_on, its_sketch in zip(values.get("records", ()), every, strict=False):
        note_overlap(trained_on, its_sketch, records)
    for assignment in assignments:
        if not assignment.startswith(SETTABLE[:1] if is_run else SETTABLE):
            raise InputError(
                "--set accepts only masking.KEY=value and, for a converted checkpoint, "
                f"objective.pair=NAME. Received: {assignment!r}."
            )
    check_records(run, config.model, records)
    if records.manifest.layout != COMPACT and any(a.startswith("masking.") for a in assignments):
        raise InputError(
            "--set masking.KEY requires records of the compact layout, because those of "
            f"{records.folder} are already masked. Leave it out."
        )
    return settings.override(config, assignments)


def _check_identities(run: RunDir, identities: Any) -> None:
    """Check the section `records` of a run's config.json, which its manifests' identities are.

    Raises:
      InputError: it has another form.
    """
    for identity in identities if isinstance(identities, list) else [identities]:
        build = identity.get("build") if isinstance(identity, dict) else None
        if not isinstance(build, dict) or "split" not in build or "corpus" not in identity:
            raise InputError(
                f"{run.config_path!r}: `records` must describe the records as pretraining.train "
                f"does. Received: {shortened(identity)}. Restore the file."
            )


def report(result: dict[str, Any]) -> str:
    """Return the metrics as a readable table."""
    lines = [f"trained with {result['trained_with']}; MLM loss {result['loss/mlm']:.3f}"]
    if "bits_per_character/mlm" in result:
        lines[0] += f", {result['bits_per_character/mlm']:.3f} bits per masked character"
    if masking := result.get("masking"):
        unit = "words" if masking["whole_words"] else "pieces"
        longest = masking["max_ngram"]
        lines[0] += f"; masks: {masking['rate']:.0%} of the pieces, " + (
            f"n-grams of up to {longest} {unit}" if longest > 1 else f"single {unit}"
        )
    lines.append(f"{'':<24}  {'accuracy':^16}  {'chance':>6}  {'count':>11}")
    rows = {"masked pieces": ("accuracy/mlm", "mlm", "mlm")}
    rows |= {
        f"{name.upper()}, {row}": (f"{kind}/{name}", prefix + name, name)
        for row, (kind, prefix) in PAIR_ROWS.items()
        for name in OBJECTIVES
    }
    for label, (metric, key, task) in rows.items():
        if metric not in result:
            continue
        chance = f"{result[f'baseline/{task}']:.1%}"
        error, count = result[f"standard_error/{key}"], result[f"count/{key}"]
        verdict = result.get(f"verdict/{key}", "chance: always the most frequent piece")
        lines.append(_row(label, result[metric], error, chance, count, verdict))
        if key == "mlm":
            kinds = [metric[:-5] for metric in result if metric.endswith("/loss")]
            kinds.sort(key=lambda kind: KINDS.index(kind.split()[0]))  # ranges after `hidden`
            lines += [_row_of_kind(kind, result) for kind in kinds]
    notes = list(result["notes"])
    of_head = {n: result[f"accuracy/{n}"] for n in OBJECTIVES if f"accuracy/{n}" in result}
    if len(of_head) > 1 and len(set(of_head.values())) == 1:
        notes.append(
            f"the pair head is right equally often on {' and '.join(map(str.upper, of_head))} "
            "pairs. Their labels are the same, so this is what a head does that gives every pair "
            "the same answer."
        )
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def _row(label: str, share: float, error: float, chance: str, count: float, remark: str) -> str:
    shown = percent_with_error(share, error, count)
    return f"{label:<24}  {shown}  {chance:>6}  {count:11,.0f}  {remark}"


def _row_of_kind(kind: str, result: dict[str, Any]) -> str:
    """Return the row of the masked pieces of a kind."""
    share, error, count, loss = (
        result[f"{kind}/{name}"] for name in ("accuracy", "standard_error", "count", "loss")
    )
    remark = f"loss {loss:.3f}"
    if f"{kind}/bits_per_character" in result:
        remark += f", {result[f'{kind}/bits_per_character']:.3f} bits per character"
    return _row(f"  {kind}", share, error, "", count, remark)


if __name__ == "__main__":
    commands.run(main, EvaluateOptions, __doc__)
