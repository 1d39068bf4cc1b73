"""RACE: English examinations for middle and high schools (Lai et al. 2017)."""

import dataclasses
import functools
import json
import os
from collections.abc import Iterator, Mapping
from typing import Any

from albert_tf.runtime.errors import InputError, InputNotFoundError, reading, shortened
from albert_tf.runtime.files.compression import format_of, without_suffix
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import lines_of
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from data.corpora.tfds_texts import tfds_rows
from finetuning.datasets.choices.choice_dataset import (
    ChoiceDataset,
    choice_example,
    index_of_letter,
    most_options,
)
from finetuning.datasets.dataset import Data, Source, paper_settings, require_section
from finetuning.datasets.selection import limited, with_dev

LEVELS = ("middle", "high")
MERGED = "all.txt"  # as google-research/albert reads it
KEYS = {"article": str, "questions": list, "options": list, "answers": list | None}


@dataclasses.dataclass(frozen=True)
class RaceTask(ChoiceDataset):
    """The examinations of some levels.

    `--data_dir` is the released folder RACE or its parent. It holds one passage per file, such as
    RACE/train/middle/1.txt, or all.txt in the same folder with one passage per line. The parts are
    train, dev and test; test_middle, test_high and so on are those of one level.
    """

    levels: tuple[str, ...] = LEVELS
    language = "en"
    has_tfds = True
    # The paper's settings. For v2 checkpoints, google-research/albert uses a learning rate of 1e-5
    # and no dropout in the encoder.
    recipe: Mapping[str, Any] = dataclasses.field(
        default_factory=lambda: paper_settings(2e-5, 32, 12000, 1000, 0.1)
    )

    def read(self, source: Source) -> Data:
        """Read the training and dev examples; with several levels, dev is `all` and each level."""
        train = self._read(source, "train")
        task = MultipleChoiceSettings(num_choices=most_options(train))
        parts = {
            level: functools.partial(self._read, source, f"dev_{level}") for level in self.levels
        }
        rest, dev = with_dev(source, train, parts)
        if len(dev) > 1:
            dev = {"all": [example for examples in dev.values() for example in examples], **dev}
        else:
            dev = {"dev": next(iter(dev.values()))}
        return Data(task, limited(source, rest), dev)

    def read_part(
        self, source: Source, part: str, task: MultipleChoiceSettings
    ) -> list[ChoiceExample]:
        """Read the examples of a part, such as test or test_high."""
        require_section("RACE", task, kind=self.kind)
        return self._read(source, part, allow_empty=True)

    def _read(self, source: Source, part: str, allow_empty: bool = False) -> list[ChoiceExample]:
        part, _, chosen = part.partition("_")
        read = _tfds_passages if source.tfds else _passages
        examples = [
            example
            for level in ((chosen,) if chosen else self.levels)
            for location, passage in read(source, part, level)
            for example in _examples(passage, location, allow_empty)
        ]
        if not examples:
            raise InputError(f"--data_dir: {part} of {', '.join(self.levels)} has no questions.")
        return examples


def _passages(source: Source, part: str, level: str) -> Iterator[tuple[str, Any]]:
    """Yield `file:line` and the parsed JSON of each passage."""
    folder = os.path.join(source.data_dir or "", part, level)
    if not os.path.isdir(folder):
        folder = os.path.join(source.data_dir or "", "RACE", part, level)
    if not os.path.isdir(folder):
        raise InputNotFoundError(
            f"--data_dir: no folder {part}/{level} in {source.data_dir!r} or its folder RACE "
            f"(working directory {os.getcwd()}). Pass the folder of the released archive."
        )
    with reading(folder):
        names = sorted(os.listdir(folder))
    names = [name for name in names if format_of(name) == ".txt"]
    names = [name for name in names if without_suffix(name) == MERGED][:1] or names
    if not names:
        raise InputNotFoundError(f"--data_dir: no .txt files in {folder!r}.")
    for path in (os.path.join(folder, name) for name in names):
        for line, text in lines_of(path):
            if text.strip():
                yield f"{path}:{line}", parse_json(text, f"{path}:{line}")


def _tfds_passages(source: Source, part: str, level: str) -> Iterator[tuple[str, Any]]:
    name = f"race/{level}"
    _, rows = tfds_rows(name, source.data_dir, part)
    for row in sorted(rows, key=lambda row: row["example_id"]):
        yield f"{name}:{part}:{row['example_id'].decode()}", _decoded(row)


def _decoded(value: Any) -> Any:
    """Return the bytes, arrays and ragged arrays of TFDS as texts and lists."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, dict):
        return {key: _decoded(item) for key, item in value.items()}
    if hasattr(value, "to_list"):
        value = value.to_list()
    return [_decoded(item) for item in value]


def _examples(passage: Any, location: str, allow_empty: bool) -> Iterator[ChoiceExample]:
    if not isinstance(passage, dict) or not all(
        isinstance(passage.get(key), kind) for key, kind in KEYS.items()
    ):
        raise InputError(
            f"{location} must be a passage of RACE, with article, questions, options and possibly "
            f"answers. Received: {json.dumps(passage)[:80]}. Download the archive again."
        )
    questions, options = passage["questions"], passage["options"]
    answers = passage.get("answers") or [None] * len(questions)
    if not len(questions) == len(options) == len(answers):
        raise InputError(
            f"{location} must have options and an answer for each of its {len(questions)} "
            f"questions. Received: options for {len(options)}, answers for {len(answers)}."
        )
    for number, question in enumerate(questions):
        if not isinstance(options[number], list):
            raise InputError(
                f"{location}: the options of question {number + 1} must be a list of texts. "
                f"Received: {shortened(options[number])}. Correct or remove the passage."
            )
        texts = (passage["article"], question, *options[number])
        is_empty = not (allow_empty or passage["article"].strip())
        if is_empty or not all(isinstance(text, str) for text in texts):
            raise InputError(
                f"{location}: the article must be a non-empty text, and question {number + 1} and "
                "its options must be texts. Correct or remove the passage."
            )
        place, letter = f"{location}: question {number + 1}", answers[number]
        label = None if letter is None else index_of_letter(letter, len(options[number]), place)
        yield choice_example(place, question, passage["article"], options[number], label)


RACE = {
    "race": RaceTask(),
    "race-middle": RaceTask(("middle",)),
    "race-high": RaceTask(("high",)),
}
