r"""Predict examples from a file, stdin or a dataset with a fine-tuned run.

    python -m finetuning.predict --run_dir=runs/base-cola --input=texts.txt
    cat pairs.tsv | python -m finetuning.predict --run_dir=runs/mnli --format=tsv
    python -m finetuning.predict --run_dir=runs/base-cola --data_dir=glue/CoLA --part=test \
        --submission=CoLA.tsv

Each line of --input is one example: a text; for pairs, two texts separated by a tab; for rankings,
a query and its candidates separated by tabs; or, for any task, a JSON object with the keys text, or
text_a and text_b, or question and context, or question, options (a list) and perhaps context, or
query and candidates (a list). An empty text is an example too. A line that begins with {, or is a
list in brackets, or has only brackets, is not read as a text: put such a text in an object. A text
in quotes keeps them.

--output receives one line per example, in the same order: a JSON object, or with --format=tsv or
csv (the default for a file with that ending) its values separated by tabs or commas. For token
classification, these have a line per span: id, start, end, label, score and text, where id is the
example's index, counted from 0, if the examples have no ids. csv, and tsv of spans, have a header.
In tsv, tabs and line breaks in texts become spaces.

The `id` in a JSON object, of a question of SQuAD or in the column `id` of your own table is
repeated first in the prediction.

--part reads a part of the run's dataset instead, in the dataset's own layout, or of another dataset
with the same labels (--task=ax for a run of MNLI). Its texts may be empty too. Its scores are
printed if the answers are known. --submission writes the file that the leaderboard accepts. For
SQuAD that is NAME.json, with the n-best answers in NAME_nbest.json and, for version 2.0, the null
odds in NAME_null_odds.json.
"""

import collections
import contextlib
import dataclasses
import itertools
import os
import sys
from collections.abc import Callable, Iterator
from typing import Annotated, Any

from albert_tf.runtime import commands, pretrained
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs, paths
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import Predictor, load_predictor
from albert_tf.tasks.task_settings import TaskSettings
from albert_tf.text.unknown_pieces import UnknownPieces
from finetuning.datasets import DATASETS, dataset_name, reading_of
from finetuning.datasets.dataset import source_of
from finetuning.datasets.selection import read_part
from finetuning.kinds.input_lines import input_lines, read_line
from finetuning.kinds.registry import FINETUNING, THRESHOLDS
from finetuning.reporting.notes import notes_of, unknown_pieces
from finetuning.reporting.prediction_writer import FORMATS, PredictionWriter, format_of_output
from finetuning.reporting.report import scores_if_known

CHUNK = 1024  # examples in memory at a time


_ThresholdOptions: Any = dataclasses.make_dataclass(
    "_ThresholdOptions",
    [
        (flag, Annotated[float | None, threshold.bound], commands.option(threshold.help, None))
        for flag, threshold in THRESHOLDS.items()
    ],
    bases=(commands.CommandOptions,),
    frozen=True,
    kw_only=True,
)


@dataclasses.dataclass(frozen=True)
class PredictOptions(_ThresholdOptions):
    """The command line of `finetuning.predict`."""

    run_dir: str = commands.option("the fine-tuned run, or an included model", path=True)
    input: str = commands.option(
        "a file of examples, or - for stdin", "-", path=True, excludes="part"
    )
    output: str = commands.option("a file for the predictions, or - for stdout", "-", path=True)
    format: Annotated[str | None, one_of(*FORMATS)] = commands.option(
        "format of the predictions: jsonl, tsv or csv; by default that of --output's name", None
    )
    task: str | None = commands.option(
        "with --part: the dataset; by default the run's own", None, needs="part"
    )
    data_dir: str | None = commands.option(
        "with --part: the folder of the dataset's files", None, path=True, needs="part"
    )
    tfds: bool = commands.option(
        "with --part: read the dataset prepared by TFDS; nothing is downloaded", False, needs="part"
    )
    part: str | None = commands.option("a part of the dataset, such as test", None)
    submission: str | None = commands.option(
        "with --part: write the leaderboard's file here", None, path=True, needs="part"
    )
    batch_size: Annotated[int, POSITIVE] = commands.option("examples per batch", 32)
    dry_run: bool = commands.option("load the run and the part's examples only", False)


def main(
    options: PredictOptions,
    chunk_size: int = CHUNK,
    load: Callable[[str], Predictor] = load_predictor,
) -> None:
    """Write the predictions that `options` describe."""
    for flag in ("output", "submission"):
        if (path := getattr(options, flag)) not in (None, "-"):
            outputs.require_file(path, f"--{flag}")
    if not options.part:
        paths.require_other_file(options.output, "--output", {"--input": [options.input]})
    format = options.format or format_of_output(options.output)
    run_dir = options.run_dir
    if run_dir in pretrained.names() and not os.path.exists(run_dir):
        run_dir = pretrained.locate(run_dir)
    options = dataclasses.replace(options, format=format, run_dir=run_dir)
    if RunDir(options.run_dir).is_unfinished:
        print(f"{options.run_dir} has not ended: using its best weights so far", file=sys.stderr)
    predictor = load(options.run_dir)
    predictor.task = _with_thresholds(predictor.task, options)
    if options.part:
        _predict_part(options, predictor)
        return
    columns = reading_of(options.run_dir).text_column
    lines = input_lines(options.input, columns)
    if options.dry_run:
        values = ", ".join(f"{k}={shortened(v)}" for k, v in vars(predictor.task).items())
        print(f"{options.run_dir}: {values}")
        return
    count, totals, unknown = 0, collections.Counter[str](), UnknownPieces()
    replaces = os.path.isfile(options.output)
    with _output(options, predictor.task.kind) as writer:
        while chunk := list(itertools.islice(lines, chunk_size)):
            examples, ids = zip(
                *(read_line(line, predictor.task, options.input, n, columns) for n, line in chunk),
                strict=True,
            )
            answers, features = predictor.answer(examples, options.batch_size)
            writer.write(answers, [_known(name) for name in ids])
            count += len(examples)
            totals.update(features.totals())
            unknown += unknown_pieces(features, examples, predictor.tokenizer)
    for note in (*features.length_notes(totals), unknown.note("the run")) if count else ():
        if note:
            print(note, file=sys.stderr)
    _say_written(options, count, replaces)


def _say_written(options: PredictOptions, count: int, replaces: bool) -> None:
    if not outputs.is_stdout(options.output):
        note = ", in place of the file that was there" if replaces else ""
        print(f"{options.output}: {count:,} predictions of {options.run_dir}{note}")


def _with_thresholds(task: TaskSettings, options: PredictOptions) -> TaskSettings:
    """Return the task section with the thresholds that the options set."""
    kind = FINETUNING[task.kind]
    for flag, thresholds in THRESHOLDS.items():
        if (value := getattr(options, flag)) is None:
            continue
        if kind.thresholds is not thresholds or not kind.has_thresholds(task):
            raise InputError(
                f"--{flag} requires a run on {thresholds.needs}. Received: "
                f"--run_dir={options.run_dir}, a run of kind {task.kind!r}."
            )
        task = thresholds.at(task, value)
    return task


def _predict_part(options: PredictOptions, predictor: Predictor) -> None:
    name = dataset_name(options.run_dir, options.task)
    reading = reading_of(options.run_dir, name)
    dataset = DATASETS[name].with_reading(reading)
    source = source_of(dataset, options.data_dir, options.tfds, reading)
    examples = read_part(dataset, source, str(options.part), predictor.task)
    if options.dry_run:
        print(f"{options.run_dir}: {len(examples):,} examples in part {options.part} of {name}")
        return
    answers, features = predictor.answer(examples, options.batch_size)
    for note in notes_of(features, examples, predictor.tokenizer, "the run"):
        print(f"{name} {options.part}: {note}", file=sys.stderr)
    scores = scores_if_known(dataset, answers, examples)
    if options.submission:
        dataset.write_submission(options.submission, answers, examples)
        print(f"{options.submission}: {len(answers):,} predictions of {options.run_dir}")
    if options.output != "-" or not options.submission:
        replaces = os.path.isfile(options.output)
        with _output(options, dataset.kind) as writer:
            writer.write(answers, [_known(example.id) for example in examples])
        _say_written(options, len(answers), replaces)
    if scores:
        print(f"{name} {options.part}: {scores}", file=sys.stderr)


@contextlib.contextmanager
def _output(options: PredictOptions, kind: str) -> Iterator[PredictionWriter]:
    with outputs.new_text(options.output) as file:
        yield PredictionWriter(file, kind, str(options.format))


def _known(name: Any) -> Any:
    return None if name == "" else name


if __name__ == "__main__":
    commands.run(main, PredictOptions, __doc__)
