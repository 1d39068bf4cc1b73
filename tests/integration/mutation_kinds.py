"""The kinds of files that commands read, and for each the commands that read all of it."""

import functools
import random
from collections.abc import Callable
from typing import NamedTuple
from unittest import mock

import tensorflow as tf

from albert_tf import info
from albert_tf.convert import __main__ as convert
from albert_tf.tasks.predictor import load_predictor
from albert_tf.text.graph_tokenizer import GraphTokenizer
from albert_tf.text.tokenizer import load_tokenizer
from data import build, import_records, show_records
from examples import search
from finetuning import learning_curve, predict, table
from finetuning import train as finetune
from finetuning.reporting import part_scores
from pretraining import evaluate, sweep
from pretraining import train as pretrain
from pretraining.sweeping import results
from pretraining.sweeping.calls import CommandError
from tests.integration.mutants import (
    Change,
    any_bytes,
    compressed,
    json_line,
    json_tree,
    record_content,
    tensor_header,
    zip_member,
)
from tests.integration.mutation_world import (
    COMPRESSED,
    CORPORA,
    DATASETS,
    INPUTS,
    MEMBER,
    RESUMED,
    SEARCH,
    TEXT,
    sweep_options,
    table_options,
)
from tests.pretraining.loop.stub_step import StubStep


class Place(NamedTuple):
    """Folders: the intact files, a copy of one of their folders with the mutant, an empty one."""

    world: str
    damaged: str
    empty: str


Command = Callable[[Place], object]


def converting(kind: str) -> Command:
    """Return the command that converts a folder of a kind, such as "google:"."""
    return lambda at: convert.main(
        convert.ConvertOptions(f"{kind}{at.damaged}", f"{at.empty}/new", dry_run=True)
    )


def converting_export(at: Place) -> None:
    """Convert an exported encoder, which has no heads."""
    path, out = f"{at.damaged}/1", f"{at.empty}/new"
    convert.main(
        convert.ConvertOptions(path, out, allow_missing="mlm_head,pair_head", dry_run=True)
    )


def printing(at: Place) -> None:
    """Print the sizes of a model."""
    info.main(info.InfoOptions(config=at.damaged))


def building(at: Place) -> None:
    """Tokenize a text."""
    corpus, out = f"text:{at.world}/text.txt", f"{at.empty}/new"
    build.build(build.BuildOptions(corpus, at.damaged, out, 16, num_workers=1))


def tokenizing(at: Place) -> None:
    """Check that both faces of an accepted tokenizer read a text as the same words."""
    tokenizer = load_tokenizer(at.damaged)
    here = tokenizer.encode_batch(TEXT.splitlines())
    graph = GraphTokenizer(tokenizer)(tf.constant(TEXT.splitlines())).to_list()
    for ours, theirs in zip(here, graph, strict=True):  # of equal segmentations, each takes one
        assert tokenizer.decode(ours) == tokenizer.decode(theirs), (ours, theirs)


def reading_corpus(kind: str, file: str) -> Command:
    """Return the command that builds records from a corpus."""

    def command(at: Place) -> None:
        corpus, out = f"{kind}:{at.damaged}/{file}", f"{at.empty}/new"
        build.build(build.BuildOptions(corpus, f"{at.world}/bare", out, 16, num_workers=1))

    return command


def showing(at: Place) -> None:
    """Read records."""
    show_records.show_records(show_records.ShowRecordsOptions(at.damaged))


def importing(at: Place) -> None:
    """Import the records as those of another project."""
    files, tokenizer = f"{at.damaged}/{SHARD}", f"{at.world}/bare"
    import_records.import_records(
        import_records.ImportOptions(files, tokenizer, f"{at.empty}/new", dry_run=True)
    )


def pretraining(at: Place) -> None:
    """Check records, and plan a run on them."""
    pretrain.main(
        pretrain.TrainOptions(at.damaged, f"{at.empty}/new", "smoke", device="cpu", dry_run=True)
    )


def resuming(dry_run: bool) -> Command:
    """Return the command that resumes a pretraining run, which ended before its result."""
    return lambda at: pretrain.main(
        pretrain.TrainOptions(
            f"{at.world}/compact", at.damaged, "smoke", device="cpu", set=RESUMED, dry_run=dry_run
        ),
        make_step=StubStep,
    )


def evaluating(at: Place) -> None:
    """Check a pretraining run, and plan its evaluation."""
    data, out = f"{at.world}/compact", f"{at.empty}/new.json"
    options = evaluate.EvaluateOptions(at.damaged, data, output=out, device="cpu", dry_run=True)
    evaluate.main(options)


def comparing(at: Place) -> None:
    """Read minimal pairs, and plan their evaluation."""
    run, out = f"{at.world}/run", f"{at.empty}/new.json"
    evaluate.main(
        evaluate.EvaluateOptions(
            run, minimal_pairs=at.damaged, output=out, device="cpu", dry_run=True
        )
    )


def sweeping(at: Place) -> None:
    """Read a finished sweep, whose commands all fail."""

    def fail(*flags: str) -> None:
        raise CommandError("it is not run here")

    sweep.main(sweep_options(at.world, at.damaged), fail)


def sweeping_without_plot(at: Place) -> None:
    """Read a finished sweep as `sweeping` does, but draw nothing, because that takes long."""
    with mock.patch.object(results, "plot_errors"):
        sweeping(at)


def tabulating(at: Place) -> None:
    """Read a finished table, whose commands all do nothing; its weights are those of the world."""
    with mock.patch.object(
        part_scores, "load_predictor", lambda path: _loaded(f"{at.world}/{RESULTS}")
    ):
        table.main(table_options(at.world, "text_classification", at.damaged), lambda command: 0)


def comparing_speeds(at: Place) -> None:
    """Plan a table whose speeds are relative to those of a pretraining run."""
    task, out = "text_classification", f"{at.empty}/new"
    table.main(table_options(at.world, task, out, baseline=at.damaged, dry_run=True))


def drawing(at: Place) -> None:
    """Read the scores of a table."""
    learning_curve.main(
        learning_curve.LearningCurveOptions((at.damaged,), f"{at.empty}/new.png", dry_run=True)
    )


def searching(at: Place) -> None:
    """Search in an index."""
    search.main(search.SearchOptions("ask", index=at.damaged, query="a line of text", by="words"))


def predicting(at: Place) -> None:
    """Load a fine-tuned run."""
    out = f"{at.empty}/new"
    predict.main(predict.PredictOptions(at.damaged, f"{at.world}/text.txt", out, dry_run=True))


_loaded = functools.cache(load_predictor)  # of the intact runs


def predicting_lines(task: str) -> Command:
    """Return the command that predicts the lines of a file."""

    def command(at: Place) -> None:
        run, lines = f"{at.world}/{task}_run", f"{at.damaged}/{task}.jsonl"
        predict.main(predict.PredictOptions(run, lines, f"{at.empty}/new"), load=_loaded)

    return command


def part_of(task: str, part: str) -> Command:
    """Return the command that reads a part of a dataset for a run."""

    def command(at: Place) -> None:
        run = f"{at.world}/{task}_run"
        options = predict.PredictOptions(run, data_dir=at.damaged, part=part, dry_run=True)
        predict.main(options, load=_loaded)

    return command


def reading(task: str) -> tuple[Command, ...]:
    """Return the commands that read the training part of a dataset."""

    def planned(at: Place) -> None:
        table.main(table_options(at.world, task, f"{at.empty}/new", at.damaged, dry_run=True))

    def whole(at: Place) -> None:
        given = ("task.seq_length=32",)
        out, init = f"{at.empty}/new", f"{at.world}/run"
        finetune.main(
            finetune.FinetuneOptions(
                task, out, at.damaged, init=init, device="cpu", dry_run=True, set=given
            )
        )

    has_run = task in DATASETS and DATASETS[task].section
    first = part_of(task, "train") if has_run else planned
    second = first if task == "embedding" else planned  # pairs have no answers to score
    return *(first, second) * 12, whole


class Kind(NamedTuple):
    """Files, the commands that read them in turn, and a change that keeps their outer form.

    `file` is a glob; a mutant damages one of its files.
    """

    file: str
    commands: tuple[Command, ...]
    change: Change = any_bytes


def _in_front(content: bytes, rng: random.Random) -> bytes:
    """Change only the pieces of a sentencepiece model, which precede the map of characters."""
    return any_bytes(content[:3000], rng) + content[3000:]


FROM_OURS, FROM_GOOGLE, FROM_HUGGINGFACE = map(converting, ("", "google:", "huggingface:"))
RUN, SHARD = (predicting, FROM_OURS, FROM_OURS), "records-00000-of-00001.tfrecord"
WEIGHTS = "text_classification_run/checkpoints"
SWEEP = (sweeping_without_plot,) * 9 + (sweeping,)
RESULTS = "table/run/text_classification"
JSON_LINES = {"jsonl": json_line, "squad": json_tree, "race": json_tree}
DATASET_CHANGES: dict[str, Change] = {
    "multi_label": json_line,
    "multiple_choice": json_line,
    "embedding": json_line,
    "ranking": json_line,
    "squad2": json_tree,
    "race": json_tree,
}
KINDS = {
    "config run": Kind("run/config.json", (FROM_OURS, printing), json_tree),
    **{
        f"config {task}": Kind(f"{task}_run/config.json", RUN, json_tree)
        for task in DATASETS
        if DATASETS[task].section
    },
    "config trained": Kind("trained/config.json", (evaluating, FROM_OURS), json_tree),
    "config google": Kind("google/albert_config.json", (FROM_GOOGLE,), json_tree),
    "config huggingface": Kind("huggingface/config.json", (FROM_HUGGINGFACE,), json_tree),
    "vocabulary tokenizer.json": Kind("fast/tokenizer.json", (FROM_HUGGINGFACE,), json_tree),
    "vocabulary albert_tokenizer.json": Kind(
        "run/tokenizer/albert_tokenizer.json", (FROM_OURS,), json_tree
    ),
    "vocabulary tokenizer_config.json": Kind(
        "huggingface/tokenizer_config.json", (FROM_HUGGINGFACE,), json_tree
    ),
    "vocabulary spiece.model": Kind("bare/spiece.model", (building, tokenizing), _in_front),
    "vocabulary vocab.txt": Kind("words/vocab.txt", (building, tokenizing)),
    "checkpoint index": Kind(f"{WEIGHTS}/ckpt-1.index", RUN),
    "checkpoint data": Kind(f"{WEIGHTS}/ckpt-1.data-00000-of-00001", RUN),
    "checkpoint state": Kind(f"{WEIGHTS}/checkpoint", RUN),
    "checkpoint google": Kind("google/model.ckpt-best.*", (FROM_GOOGLE,)),
    "weights safetensors": Kind(
        "huggingface/model.safetensors", (FROM_HUGGINGFACE,), tensor_header
    ),
    "weights exported": Kind("exported/1/**/*", (converting_export,)),
    "records manifest": Kind(
        "compact/manifest.json", (pretraining, showing, pretraining), json_tree
    ),
    "records compact": Kind(f"compact/{SHARD}", (pretraining,) * 9 + (showing,), record_content),
    "records reference": Kind(f"reference/{SHARD}", (importing,) * 9 + (showing,), record_content),
    **{
        f"dataset {task}": Kind(
            f"{task}/train/**/*" if task == "race" else f"{task}/train*",
            reading(task),
            DATASET_CHANGES.get(task, any_bytes),
        )
        for task in DATASETS
    },
    "dataset parquet": Kind("parquet/train.parquet", reading("text_classification")),
    "corpus parquet": Kind("corpora/table.parquet", (reading_corpus("parquet", "table.parquet"),)),
    "corpus arrow": Kind("corpora/table.arrow", (reading_corpus("arrow", "table.arrow"),)),
    **{
        f"search {file}": Kind(
            f"search/{file}",
            (part_of("embedding", "dev"),),
            any_bytes if file.endswith("tsv") else json_line,
        )
        for file in SEARCH
    },
    "vectors": Kind("taught/train.vectors/vectors.npy", (part_of("embedding", "train"),)),
    "vectors texts.json": Kind(
        "taught/train.vectors/texts.json", (part_of("embedding", "train"),), json_tree
    ),
    "index": Kind("index/**/*", (searching,)),
    "index json": Kind("index/**/*.json", (searching,), json_tree),
    "dataset entities": Kind("entities/train.jsonl", reading("token_classification"), json_line),
    **{
        f"input {task}": Kind(f"inputs/{task}.jsonl", (predicting_lines(task),), json_line)
        for task in INPUTS
    },
    **{
        f"corpus {kind}": Kind(
            f"corpora/{file}", (reading_corpus(kind, file),), JSON_LINES.get(kind, any_bytes)
        )
        for kind, (file, _) in CORPORA.items()
    },
    **{
        f"archive {suffix}": Kind(
            f"corpora/text.txt{suffix}",
            (reading_corpus("text", f"text.txt{suffix}"),),
            compressed(*functions),
        )
        for suffix, functions in COMPRESSED.items()
    },
    "archive .zip": Kind("corpora/texts.zip", (reading_corpus("text", "texts.zip"),), zip_member),
    "minimal pairs": Kind("pairs/a.jsonl", (comparing,), json_line),
    "metrics": Kind(
        "interrupted/metrics.jsonl", (resuming(True),) * 19 + (resuming(False),), json_line
    ),
    "sweep": Kind("sweep/sweep.json", SWEEP, json_tree),
    "result sweep": Kind(f"sweep/{MEMBER}/result.json", SWEEP, json_tree),
    "evaluation sweep": Kind(f"sweep/{MEMBER}/evaluations/sweep.json", SWEEP, json_tree),
    "result trained": Kind("trained/result.json", (comparing_speeds,), json_tree),
    "result table": Kind(f"{RESULTS}/result.json", (tabulating,), json_tree),
    "evaluation table": Kind(f"{RESULTS}/evaluations/train.json", (tabulating,), json_tree),
    "results.csv": Kind("table/results.csv", (drawing,)),
}
