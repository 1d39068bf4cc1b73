"""Print sample records in readable form, and statistics of a folder's model inputs.

python -m data.show_records artifacts/records --num=3
"""

import dataclasses
import json
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import numpy as np

from albert_tf.runtime import commands, settings
from albert_tf.runtime.bounds import NOT_NEGATIVE
from albert_tf.runtime.errors import ConfigError
from albert_tf.text.tokenizer import Tokenizer
from data.corpora.glance import MOST_UNKNOWN, Facts, Sampled, measured_flops_per_s
from data.records import sketch
from data.records.manifest import Manifest, tokenizer_of

if TYPE_CHECKING:  # errors in options are reported without TensorFlow
    from data.objectives.pair_objective import PairObjective
    from data.pipeline.batches import Records

LEGEND = "{piece}: masked; {piece=}: predicted but unchanged; {piece>other}: replaced by another"
_BATCH = 256
Batch = dict[str, np.ndarray]


@dataclasses.dataclass(frozen=True)
class ShowRecordsOptions(commands.CommandOptions):
    """The command line of `data.show_records`."""

    data: str = commands.option("record folder; the flag name may be omitted", path=True)
    num: Annotated[int, NOT_NEGATIVE] = commands.option("records to print", 3)
    objective: str | None = commands.option(
        "a value of `objective.pair`; default: that of stored labels, else the paper's", None
    )
    sample: Annotated[int, NOT_NEGATIVE] = commands.option(
        "number of leading records in the statistics; 0 = all", 10_000
    )
    seed: int = commands.option("seed of masks and pairs", 0)
    dry_run: bool = commands.option("check the folder and print the options", False)


def show_records(options: ShowRecordsOptions) -> None:
    """Run the command.

    Raises:
      InputError: `options.data` is not a record folder, or its records do not support the
        objective.
    """
    from data.objectives.pair_objective import pair_of
    from data.objectives.registry import ObjectiveConfig
    from data.pipeline.batches import Records

    records = Records.open(options.data)
    objective = ObjectiveConfig(options.objective or pair_of(records.manifest)).of_pairs
    try:
        objective.check(records.manifest)
    except ConfigError:
        if options.objective:
            raise
        objective = ObjectiveConfig("none").of_pairs  # as for documents of one sentence
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return
    tokenizer = tokenizer_of(options.data)
    total = records.manifest.num_records
    count = min(max(options.sample or total, options.num), total)
    batches = _batches(records, objective, options.seed, count)
    print(LEGEND)
    print(objective.legend())
    with records.damage_as_input_error():
        printed = _printed(batches, options.num, tokenizer)
        numbers = statistics(printed, tokenizer, objective.num_classes)
    print(f"\n{numbers}\n\n{records.manifest.describe()}")
    if records.manifest.counts.documents:  # unknown of imported records
        first = next(_batches(records, objective, options.seed, min(_BATCH, total)))
        texts = _texts(first, tokenizer)
        facts = facts_of(records.manifest, Sampled.of(texts, tokenizer))
        advice = (
            "No recommendation: the text of unknown pieces is not in the records. "
            "data.train_tokenizer reads the corpus, and recommends what fits it."
        )
        if facts.sampled.unknown <= MOST_UNKNOWN:
            advice = facts.recommendation(measured_flops_per_s(), records.manifest.seq_length)
        print(f"\n{facts.table()}\n\n{advice}")


def facts_of(manifest: Manifest, sampled: Sampled) -> Facts:
    """Return the facts of the text of some records, for which words and copies are estimated."""
    counts, distinct = manifest.counts, sketch.size_of(sketch.from_text(manifest.sketch))
    copies = max(0, counts.documents - distinct) if distinct else 0
    if distinct >= sketch.SIZE and copies < 2 * counts.documents / sketch.SIZE**0.5:
        copies = 0  # fewer than two standard errors of the estimate
    copies_of_each = manifest.build_options.get("dupe_factor") or 1
    words = round(counts.pieces / copies_of_each / (sampled.pieces_a_word or 1))
    # The texts of `sampled` were made from pieces, of which none is unknown any more.
    unknown = counts.unknown_pieces / max(1, counts.pieces + counts.pieces_lost)
    sampled = sampled._replace(unknown=unknown)
    return Facts(counts.documents - copies, copies, words, sampled)


def _texts(batch: Batch, tokenizer: Tokenizer) -> list[str]:
    """Return the texts of the sequences in a batch."""
    lengths = batch["input_mask"].sum(axis=1)
    rows = zip(original_ids(batch), lengths, strict=True)
    return [tokenizer.decode(ids[:length]) for ids, length in rows]


def _printed(batches: Iterator[Batch], num: int, tokenizer: Tokenizer) -> Iterator[Batch]:
    """Yield the batches and print their first `num` records."""
    begin = 0
    for batch in batches:
        rows = len(batch["pair_label"])
        for row in range(min(num - begin, rows)):
            print(f"\nrecord {begin + row}: {_headline(batch, row)}")
            print(readable(batch, row, tokenizer))
        begin += rows
        yield batch


def _batches(
    records: "Records", objective: "PairObjective", seed: int, count: int
) -> Iterator[Batch]:
    """Yield batches of the first `count` records, without the padding of the last batch."""
    from data.objectives.masking import MaskingConfig
    from data.pipeline.batches import evaluation_batches
    from data.records.reference_reader import check_ranges

    manifest, classes = records.manifest, objective.num_classes
    batches = evaluation_batches(records, objective, MaskingConfig(), _BATCH, seed)
    for begin, batch in zip(range(0, count, _BATCH), batches.as_numpy_iterator(), strict=False):
        sizes = manifest.seq_length, manifest.vocab_size, classes
        check_ranges(batch, *sizes, repr(records.folder))
        yield {name: value[: count - begin] for name, value in batch.items()}


def _headline(batch: Batch, row: int) -> str:
    second = int(batch["input_type_ids"][row].sum())
    length = int(batch["input_mask"][row].sum())
    label = int(batch["pair_label"][row]) if batch["pair_weight"][row] else "none"
    return f"label {label}, {length} pieces, {length - second} + {second}"


def readable(batch: Batch, row: int, tokenizer: Tokenizer) -> str:
    """Return the pieces of one sequence, one line per segment, with masked pieces marked."""
    seen, truth = batch["input_word_ids"][row].tolist(), original_ids(batch)[row].tolist()
    masked = _masked(batch)[row].tolist()
    lines: list[list[str]] = [[], []]
    for position in range(int(batch["input_mask"][row].sum())):
        piece = tokenizer.id_to_piece(truth[position])
        if masked[position] and seen[position] == tokenizer.special.mask:
            piece = f"{{{piece}}}"
        elif masked[position]:
            other = (
                "="
                if seen[position] == truth[position]
                else f">{tokenizer.id_to_piece(seen[position])}"
            )
            piece = f"{{{piece}{other}}}"
        lines[batch["input_type_ids"][row][position]].append(piece)
    return "\n".join(
        f"  {name}: {' '.join(line)}" for name, line in zip("AB", lines, strict=True) if line
    )


def original_ids(batch: Batch) -> np.ndarray:
    """Return the ids before masking, int32 [B, S]."""
    ids = batch["input_word_ids"].copy()
    row, slot = np.nonzero(batch["masked_lm_weights"])
    ids[row, batch["masked_lm_positions"][row, slot]] = batch["masked_lm_ids"][row, slot]
    return ids


def _masked(batch: Batch) -> np.ndarray:
    """Return True at positions to predict, bool [B, S]."""
    masked = np.zeros(batch["input_word_ids"].shape, bool)
    row, slot = np.nonzero(batch["masked_lm_weights"])
    masked[row, batch["masked_lm_positions"][row, slot]] = True
    return masked


def statistics(batches: Iterator[Batch], tokenizer: Tokenizer, num_classes: int = 2) -> str:
    """Return a Markdown table of statistics over the batches, whose labels have these classes."""
    lengths: list[np.ndarray] = []
    counts, runs = Counter[str](), Counter[int]()
    seq_length = 0
    for batch in batches:
        seq_length = batch["input_word_ids"].shape[1]
        lengths.append(batch["input_mask"].sum(axis=1))
        counts += _counts(batch, tokenizer, num_classes)
        runs += masked_runs(batch, tokenizer)
    length = np.concatenate(lengths)
    quantiles = " / ".join(f"{q:.0f}" for q in np.percentile(length, [5, 25, 50, 75, 95]))
    real, masked, pairs = int(length.sum()), counts["masked"], counts["pairs"]
    shares = [f"{runs[n] / max(1, runs.total()):.3f}" for n in (1, 2, 3)]
    rest = f"{sum(count for n, count in runs.items() if n > 3) / max(1, runs.total()):.3f}"
    rows = {
        "records": f"{len(length):,}",
        "mean length, with [CLS] and [SEP]": f"{length.mean():.1f} of {seq_length}",
        "length, 5 / 25 / 50 / 75 / 95 %": quantiles,
        "padding": f"{1 - real / (len(length) * seq_length):.4f}",
        "full sequences": f"{(length == seq_length).mean():.4f}",
        "masked, of all pieces": f"{masked / real:.4f}",
        "[MASK] / replaced / kept": " / ".join(
            f"{counts[kind] / max(1, masked):.4f}" for kind in ("hidden", "replaced", "kept")
        ),
        "runs of 1 / 2 / 3 / more masked words": " / ".join([*shares, rest]),
        **{
            f"label {number}, of pairs": f"{counts[f'label_{number}'] / max(1, pairs):.4f}"
            for number in range(1, num_classes)
        },
        "without a pair": f"{1 - pairs / len(length):.4f}",
    }
    return "\n".join(["| | |", "|---|---|", *(f"| {k} | {v} |" for k, v in rows.items())])


def _counts(batch: Batch, tokenizer: Tokenizer, num_classes: int) -> Counter[str]:
    seen, truth, masked = batch["input_word_ids"], original_ids(batch), _masked(batch)
    is_hidden, is_kept = seen == tokenizer.special.mask, seen == truth
    is_pair = batch["pair_weight"] > 0
    flags = {
        "masked": masked,
        "hidden": masked & is_hidden,
        "kept": masked & is_kept,
        "replaced": masked & ~is_hidden & ~is_kept,
        "pairs": is_pair,
    }
    for number in range(1, num_classes):
        flags[f"label_{number}"] = is_pair & (batch["pair_label"] == number)
    return Counter({name: int(flag.sum()) for name, flag in flags.items()})


def masked_runs(batch: Batch, tokenizer: Tokenizer) -> Counter[int]:
    """Count the runs of n masked words, for each n; adjacent n-grams form one run."""
    masked, ids = _masked(batch), original_ids(batch)
    special = tokenizer.special
    starts = tokenizer.is_word_start[ids]
    starts[:, 1:] |= np.isin(ids[:, :-1], [special.cls, special.sep])
    begins = masked.copy()  # True at the first piece of each run
    begins[:, 1:] &= ~masked[:, :-1]
    number = np.cumsum(begins.ravel())[masked.ravel()]
    words = np.bincount(number, weights=(starts | begins).ravel()[masked.ravel()])
    return Counter(words[1:].astype(int).tolist())


if __name__ == "__main__":
    commands.run(show_records, ShowRecordsOptions, __doc__, positional="data")
