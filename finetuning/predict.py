"""Asks a fine-tuned run: answers for a file of examples, or for stdin.

    python -m finetuning.predict --run_dir=runs/base-cola --input=texts.txt
    cat pairs.tsv | python -m finetuning.predict --run_dir=runs/mnli --format=tsv
    python -m finetuning.predict --run_dir=runs/base-cola --data_dir=glue/CoLA --part=test \\
        --submission=CoLA.tsv

A line of --input is an example: a text; for pairs two texts with a tab between them; or, for any
task, a JSON object with the keys text, or text_a and text_b, or question and context, or question,
context and options. An answer is a line of --output in the same order, a JSON object, or with
--format=tsv its values with tabs between them.
--part reads a part of the run's own data set instead, in its layout, and --submission writes the
file that its leaderboard takes (of SQuAD a folder of three).
"""

import contextlib
import dataclasses
import itertools
import json
import sys
from collections.abc import Iterator, Sequence
from typing import IO, Any

from albert_tf import cli, outputs
from albert_tf.errors import InputError, InputNotFoundError
from albert_tf.runs import RunDir
from albert_tf.tasks.examples import ChoiceExample, SpanExample, TextExample
from albert_tf.tasks.predictor import Predictor, load_predictor
from finetuning.task import Prediction, Source
from finetuning.tasks import TASKS

CHUNK = 1024  # examples that are in memory together


@dataclasses.dataclass(frozen=True)
class PredictOptions:
    """The command line of `finetuning.predict`."""

    run_dir: str = cli.option("the fine-tuned run")
    input: str = cli.option("a file of examples, - for stdin", "-")
    output: str = cli.option("a file for the answers, - for stdout", "-")
    format: str = cli.option("of the answers: jsonl or tsv", "jsonl")
    data_dir: str | None = cli.option("with --part: the files of the run's data set", None)
    tfds: bool = cli.option("with --part: the data set's prepared TFDS", False)
    part: str | None = cli.option("a part of the run's data set, such as test", None)
    submission: str | None = cli.option("with --part: the leaderboard's file", None)
    batch_size: int = cli.option("examples at a time", 32)
    dry_run: bool = cli.option("load the run, check everything and answer nothing", False)


def main(options: PredictOptions) -> None:
    """Answers what `options` describe."""
    if options.format not in ("jsonl", "tsv"):
        raise InputError(f"--format must be jsonl or tsv. Received: {options.format!r}.")
    if options.batch_size < 1:
        raise InputError(f"--batch_size must be positive. Received: {options.batch_size}.")
    if options.submission and not options.part:
        raise InputError("--submission goes with --part: the leaderboard numbers its examples.")
    predictor = load_predictor(options.run_dir)
    if options.part:
        _of_part(options, predictor)
        return
    with _opened(options.input) as source:
        if options.dry_run:
            print(f"{options.run_dir}: {predictor.task}")
            return
        with _output(options.output) as out:
            lines = enumerate(source, start=1)
            while chunk := list(itertools.islice(lines, CHUNK)):
                examples = [_example(line, predictor.task, options.input, n) for n, line in chunk]
                answers = predictor(examples, options.batch_size)
                _write(out, answers, options.format)


def _of_part(options: PredictOptions, predictor: Predictor) -> None:
    name = RunDir(options.run_dir).config()["name"]
    task = TASKS[name]
    source = Source(options.data_dir, options.tfds)
    examples = task.read_part(source, str(options.part), predictor.task)
    if options.dry_run:
        print(f"{options.run_dir}: {len(examples):,} examples of {name}'s {options.part}")
        return
    answers = predictor(examples, options.batch_size)
    if options.submission:
        task.write_submission(options.submission, answers, examples)
        print(f"{options.submission}: {len(answers):,} answers of {options.run_dir}")
        return
    with _output(options.output) as out:
        _write(out, answers, options.format)


@contextlib.contextmanager
def _opened(path: str) -> Iterator[IO[str]]:
    if path == "-":
        yield sys.stdin
        return
    try:
        with open(path, encoding="utf-8") as file:
            yield file
    except FileNotFoundError:
        raise InputNotFoundError(f"--input: no file {path!r}.") from None
    except UnicodeDecodeError as error:
        raise InputError(f"--input={path} must be UTF-8: {error}. Convert the file.") from None


@contextlib.contextmanager
def _output(path: str) -> Iterator[IO[str]]:
    if path == "-":
        yield sys.stdout
        return
    with outputs.new_file(path) as partial, open(partial, "w", encoding="utf-8") as file:
        yield file


def _write(out: IO[str], answers: Sequence[Prediction], format: str) -> None:
    for answer in answers:
        if format == "jsonl":
            out.write(json.dumps(answer, ensure_ascii=False) + "\n")
        else:
            out.write("\t".join(_cell(value) for value in answer.values()) + "\n")
    out.flush()


def _cell(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text.replace("\t", " ").replace("\n", " ")


def _example(line: str, task: Any, path: str, number: int) -> Any:
    """The example in a line; InputError, which names it, where there is none."""
    line = line.rstrip("\r\n")
    if line.startswith("{"):
        try:
            return _from_json(json.loads(line), task)
        except (ValueError, KeyError, TypeError) as error:
            problem = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"--input={path}:{number}: {problem}. {_wanted(task)}") from None
    cells = line.split("\t")
    if task.kind in ("classifier", "regressor") and len(cells) == 1 + task.pair:
        return TextExample(cells[0], cells[1] if task.pair else None)
    raise InputError(f"--input={path}:{number}: {_wanted(task)} Received: {line[:80]!r}.")


def _from_json(row: dict[str, Any], task: Any) -> Any:
    if task.kind == "span":
        return SpanExample(str(row["question"]), str(row["context"]), str(row.get("id", "")))
    if task.kind == "multiple_choice":
        options = tuple(map(str, row["options"]))
        return ChoiceExample(str(row["question"]), str(row["context"]), options)
    if task.pair:
        return TextExample(str(row["text_a"]), str(row["text_b"]))
    return TextExample(str(row["text"]))


def _wanted(task: Any) -> str:
    """What a line of the run's kind holds."""
    if task.kind == "span":
        return "A line must be a JSON object with question and context."
    if task.kind == "multiple_choice":
        return "A line must be a JSON object with question, context and options."
    if task.pair:
        return "A line must be two texts with a tab between them, or a JSON object."
    return "A line must be a text without tabs, or a JSON object with the key text."


if __name__ == "__main__":
    cli.run(main, PredictOptions, __doc__)
