"""Multiple choice of a user's own questions: `train` and `dev` as tables."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.compression import format_of
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings, option_letter
from finetuning.datasets.choices.choice_dataset import (
    ChoiceDataset,
    choice_example,
    index_of_answer,
    most_options,
)
from finetuning.datasets.dataset import Data, Source, require_section
from finetuning.datasets.selection import limited, with_dev
from finetuning.datasets.tables import json_files
from finetuning.datasets.tables.json_files import as_text
from finetuning.datasets.tables.own_tables import open_part, with_ids
from finetuning.datasets.tables.table_files import Table

LIST = "options"  # the column of all options, in JSON lines
_COLUMN = "option_"  # and a letter: the columns in other tables
_MOST_COLUMNS = 702  # option_a to option_zz


class MultipleChoiceTable(ChoiceDataset):
    """Questions (column `question`) with two or more options and the correct one (`label`).

    In JSON lines, `options` is a list. Other tables have a column for each option, `option_a`,
    `option_b` and so on; a question with fewer options leaves the last ones empty. The label is the
    letter of the correct option, A, B and so on, or its exact text. In JSON lines it may also be an
    integer, the index counted from 0. The column `context` may be missing, and its cells may be
    empty.

    `Source.reading` may name another column for the label. A part to predict, such as `test`, may
    have none.
    """

    options = ("text_column", "label_column")

    def read(self, source: Source) -> Data:
        """Read the training and dev examples, and print how many options the questions have."""
        train = _examples(source, "train")
        task = MultipleChoiceSettings(num_choices=most_options(train))
        rest, dev = with_dev(source, train, {"dev": lambda: _examples(source, "dev")})
        chosen = limited(source, rest)
        for part, examples in {"train": chosen, **dev}.items():
            counts = [len(example.options) for example in examples]
            print(
                f"{part}: {len(examples):,} questions with {min(counts)} to {max(counts)} options"
            )
        return Data(task, chosen, dev)

    def read_part(
        self, source: Source, part: str, task: MultipleChoiceSettings
    ) -> Sequence[ChoiceExample]:
        """Read the examples of the file named `part`."""
        require_section("multiple_choice", task, kind=self.kind)
        return _examples(source, part, to_predict=True)


def _examples(source: Source, part: str, to_predict: bool = False) -> Sequence[ChoiceExample]:
    """Return the questions of a part; one to predict may lack labels, and have empty questions."""
    if source.reading.text_column:
        raise InputError(
            "--text_column is not for --task=multiple_choice, whose columns are question, context "
            f"and those of the options. Received: {', '.join(source.reading.text_column)}. Rename "
            "the columns."
        )
    remedy = (
        "Rename the columns (for the options: option_a, option_b and so on; in JSON lines, a list "
        "`options`), or train with --label_column."
    )
    table = open_part(source, part, optional=("context",), to_predict=to_predict)
    table = dataclasses.replace(table, remedy=remedy)
    examples = list(_rows(table, source.reading.label_column, to_predict))
    return with_ids(examples, table) if to_predict else examples


def _rows(table: Table, label: str, to_predict: bool) -> Iterator[ChoiceExample]:
    """Yield the questions of a part."""
    has_label = label in table.columns or not to_predict
    known = [name for name in ("context",) if name in table.columns]
    columns = _option_columns(table)
    names = ["question", *known, *columns, *([label] if has_label else [])]
    for location, cells in table.select(names, allow_empty=to_predict, unchecked=names[1:]):
        row = dict(zip(names, cells, strict=True))
        context = _text(row.get("context"), "context", location)
        options = _options([row[name] for name in columns], location)
        example = choice_example(location, row["question"], context, options, None)
        answer = row.get(label)
        if type(answer) is not int:  # an index; True is none
            answer = _text(answer, label, location).strip()
        if answer == "":
            if has_label and not to_predict:
                raise InputError(f"{location}: `{label}` is empty. Fill it in, or remove the row.")
            yield example
            continue
        index = index_of_answer(answer, example.options, location)
        yield ChoiceExample(example.question, context, example.options, index)


def _option_columns(table: Table) -> list[str]:
    """Return the columns of the options, which are one list or several texts."""
    if format_of(table.path) in json_files.FORMATS:
        return [LIST]
    columns = [_COLUMN + option_letter(i).lower() for i in range(_MOST_COLUMNS)]
    option_columns = [name for name in columns if name in table.columns]
    return columns[: max(2, len(option_columns))]  # a gap among them is a missing column


def _options(cells: Sequence[Any], location: str) -> Sequence[Any]:
    """Return the options in the cells of a row."""
    if len(cells) == 1:
        (options,) = cells
        if not isinstance(options, list):
            raise InputError(
                f"{location}: `{LIST}` must be a list of texts. Received: {options!r}. Correct or "
                "remove the question."
            )
        return options
    count = max((i + 1 for i, cell in enumerate(cells) if cell.strip()), default=0)
    if empty := [option_letter(i).lower() for i in range(count) if not cells[i].strip()]:
        raise InputError(
            f"{location}: `{_COLUMN}{empty[0]}` is empty, but a later option is not. Fill it in, "
            "or move the later ones forward."
        )
    return cells[:count]


def _text(value: Any, name: str, location: str) -> str:
    """Return a text, which is empty if the value is missing."""
    value = as_text(value)
    if value is not None and not isinstance(value, str):
        raise InputError(
            f"{location}: `{name}` must be text. Received: {value!r}. Write one text, or remove "
            "the row."
        )
    return value or ""
