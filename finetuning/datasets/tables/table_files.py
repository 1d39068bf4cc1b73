"""Tables of examples: .tsv, .csv, .jsonl and .json, plain or compressed, and .parquet.

TSV and CSV are quoted as csv.writer does. The TSV files of benchmarks such as GLUE are not: in
them, only tabs separate cells and quotes are text. Semicolons separate the cells of a .csv whose
header has no comma, as Excel writes it in many languages, and a first line `sep=;` may name another
separator. In JSON lines and lists, each item is an object whose keys are the columns.
"""

import csv
import dataclasses
import functools
import itertools
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from albert_tf.runtime.errors import InputError, listed
from albert_tf.runtime.files.compression import format_of
from albert_tf.runtime.files.outputs import new_text
from albert_tf.runtime.files.text_files import csv_separator, lines_of
from finetuning.datasets.tables import json_files, prodigy
from finetuning.datasets.tables.json_files import as_text, object_rows, only_item

Records = Iterator[tuple[int, list[Any]]]  # line number from 1, cells
Rows = Iterator[tuple[str, list[Any]]]  # `file:line`, cells: texts, but for unchecked columns
_OTHER = {".tsv": (",", ".csv"), ".csv": ("\t", ".tsv")}  # what a file may be by mistake
_ID = "id"  # the column
_FIRST_ROWS = 5  # from which quoting is inferred


@dataclasses.dataclass(frozen=True)
class Table:
    """An open table.

    Attributes:
      path: the file.
      columns: the column names, in the order of the cells.
      records: the rows below the header, without blank lines: line number from 1, or the path of
        the row's own file, and cells.
      quotes_are_text: True if the cells are not quoted.
      remedy: a sentence for messages about missing columns.
      ids: the cells of the column `id`, if there is one, of the rows that were read.
    """

    path: str
    columns: tuple[str, ...]
    records: Iterator[tuple[int | str, list[Any]]]
    quotes_are_text: bool = False
    remedy: str = ""
    ids: list[Any] = dataclasses.field(default_factory=list)

    def select(
        self,
        names: Sequence[str],
        skip_short: bool = False,
        allow_empty: bool = False,
        unchecked: Sequence[str] = (),
        lists_of_one: Sequence[str] = (),
        may_lack: Sequence[str] = (),
    ) -> Rows:
        """Yield `file:line` and the cells of the named columns for each row.

        Args:
          names: the columns.
          skip_short: skip rows with too few cells, and print their number.
          allow_empty: accept empty cells.
          unchecked: the columns whose cells may be empty and, in objects, of any type.
          lists_of_one: the columns in which a list of one is its item.
          may_lack: the columns whose cells may be empty or, in objects, null or missing: then "".

        Raises:
          InputError: a column is missing or repeated, a row has more or fewer cells than columns, a
            cell is empty or not text, or there are no rows.
        """
        self.require(names)
        indices = [self.columns.index(name) for name in names]
        id_column = self.columns.index(_ID) if self.columns.count(_ID) == 1 else None
        count, short = 0, []
        for line, cells in self.records:
            if skip_short and len(cells) < len(self.columns):
                short.append(line)
                continue
            location = line if isinstance(line, str) else f"{self.path}:{line}"
            self._require_whole(cells, location)
            chosen = [
                cells[index]
                if name in unchecked
                else as_text(only_item(cells[index]) if name in lists_of_one else cells[index])
                for name, index in zip(names, indices, strict=True)
            ]
            for place, name in enumerate(names):
                if name in may_lack and not chosen[place]:
                    chosen[place] = ""
                elif name not in unchecked:
                    self._check(chosen[place], name, location, allow_empty)
            count += 1
            if id_column is not None:
                self.ids.append(cells[id_column])
            yield location, chosen
        if not count:
            raise InputError(f"{self.path} has no rows below its header.")
        if short:
            print(
                f"{self.path}: {len(short)} rows with too few columns skipped, the first at line "
                f"{short[0]}."
            )

    def _require_whole(self, cells: Sequence[Any], location: str) -> None:
        """Check that a row has as many cells as there are columns."""
        if len(cells) == len(self.columns):
            return
        remedy = "replace tabs and line breaks inside texts with spaces"
        if not self.quotes_are_text:
            remedy = "put texts with tabs, commas or line breaks in quotes"
        if format_of(self.path) == ".csv" and len(self.columns) == 1:
            remedy += ", or, if Excel wrote the file with semicolons, begin it with sep=;"
        if len(cells) < len(self.columns):
            remedy = f"add what is missing, or {remedy}"
        raise InputError(
            f"{location}: {len(cells)} columns instead of {len(self.columns)}: {remedy}."
        )

    def require(self, names: Sequence[str]) -> None:
        """Check that exactly one column has each name.

        Raises:
          InputError: a column is missing or repeated.
        """
        if wrong := [name for name in names if self.columns.count(name) != 1]:
            remedy = self.remedy and f" {self.remedy}"
            if self.quotes_are_text and all(map(_is_quoted, self.columns)):
                remedy = f" Quotes are text in this file. {_WITHOUT_QUOTES}"
            separator, extension = _OTHER.get(format_of(self.path), ("", ""))
            if separator and len(self.columns) == 1 and separator in self.columns[0]:
                remedy = f" Its cells seem to be separated by {separator!r}: name it {extension}."
            header = "first object" if format_of(self.path) in json_files.FORMATS else "header"
            raise InputError(
                f"{self.path}:1: the {header} must name {' and '.join(names)}, each exactly once. "
                f"Received: {list(self.columns)}; missing or repeated: {', '.join(wrong)}.{remedy}"
            )

    def _check(self, cell: Any, name: str, location: str, allow_empty: bool) -> None:
        if cell is None:
            raise InputError(
                f"{location}: the key `{name}` is missing, or its value is null. Add it, "
                "or remove the row."
            )
        if not isinstance(cell, str):
            raise InputError(
                f"{location}: `{name}` must be text. Received: {cell!r}. Write one text, "
                "or remove the row. Lists of the names of labels are for --task=multi_label."
            )
        if not allow_empty and not cell.strip():
            raise InputError(f"{location}: `{name}` is empty. Fill it in, or remove the row.")


def open_table(
    path: str,
    header: Sequence[str] = (),
    quotes_are_text: bool = False,
    optional: Sequence[str] = (),
    keeps_rejected: Callable[[Sequence[str]], bool] = lambda columns: False,
    not_later: Callable[[str], bool] = lambda column: False,
) -> Table:
    """Return a table, whose rows are checked when they are read.

    Rows that were rejected in Prodigy are left out (see `prodigy.accepted`), and so are those that
    repeat the header line, as in files that were appended to each other.

    Args:
      path: the file.
      header: the columns of a file without a header line.
      quotes_are_text: only tabs separate cells, whatever the file's extension.
      optional: in objects, columns that exist even if the first one lacks them.
      keeps_rejected: (the columns) -> True to keep the rows that were rejected in Prodigy.
      not_later: (a key) -> True if the first object must have it if a later one does; other keys
        that it lacks do not count.

    Raises:
      InputError: the file is empty or cannot be read.
    """
    read = _unquoted if quotes_are_text else _READERS[format_of(path)]
    if read is _objects:
        read = functools.partial(_objects, optional=optional, not_later=not_later)
    records = read(path)
    if not header:
        _, header = next(records, (0, ()))
        if (
            format_of(path) not in json_files.FORMATS and len(header) > 1
        ):  # a single word may be a text
            records = _without_headers(path, list(header), records)
    if not header:
        raise InputError(f"{path} is empty: its first line must name the columns.")
    columns = tuple(header)
    if prodigy.KEY in columns and not keeps_rejected(columns):
        column = columns.index(prodigy.KEY)
        records = prodigy.accepted(path, records, lambda row: next(iter(row[1][column:]), None))
    return Table(path, columns, records, quotes_are_text)


def _without_headers(path: str, header: list[str], records: Records) -> Records:
    repeated = []
    for line, cells in records:
        if [cells[0].removeprefix("\ufeff"), *cells[1:]] == header:
            repeated.append(f"{line:,}")
        else:
            yield line, cells
    if repeated:
        print(
            f"note: {path}: lines that repeat the header are left out: {listed(repeated)}.",
            file=sys.stderr,
        )


def note_if_quoted(rows: Rows, num_texts: int) -> Rows:
    """Yield the rows of a file in which quotes are text.

    Print a note if the first rows look as if csv had quoted them.

    Args:
      rows: the rows.
      num_texts: the number of texts at the beginning of each row.
    """
    first = list(itertools.islice(rows, _FIRST_ROWS))
    if first and all(_is_quoted(text) for _, cells in first for text in cells[:num_texts]):
        print(
            f"{first[0][0]}: the texts begin and end with quotes, which are text in this file. "
            f"Remove those that csv added. {_WITHOUT_QUOTES}",
            file=sys.stderr,
        )
    yield from itertools.chain(first, rows)


_WITHOUT_QUOTES = "Write it without quotes, for example with csv.QUOTE_NONE."


def _is_quoted(text: str) -> bool:
    return len(text) > 1 and text[0] == text[-1] == '"'


def _unquoted(path: str) -> Records:
    for number, line in lines_of(path):
        if line := line.rstrip("\r\n"):
            yield number, line.split("\t")


def _tsv(path: str) -> Records:
    noted = False
    for number, cells in _quoted("\t", path, lines_of(path)):
        if not noted and any("\t" in cell and "\n" in cell for cell in cells):
            noted = True
            print(
                f"{path}:{number}: a text in quotes holds tabs and line breaks. If these quotes "
                "belong to the text, rewrite the file with csv.writer, which doubles them.",
                file=sys.stderr,
            )
        yield number, cells


def _csv(path: str) -> Records:
    """Yield the rows of a file whose first line may name the separator, as Excel's `sep=;`."""
    lines = lines_of(path)
    first = list(itertools.islice(lines, 1))
    separator, is_named = csv_separator("".join(line for _, line in first))
    rows = lines if is_named else itertools.chain(first, lines)
    yield from _quoted(separator, path, rows, 2 if is_named else 1)


def _quoted(
    delimiter: str, path: str, numbered: Iterator[tuple[int, str]], first: int = 1
) -> Records:
    """Yield the rows of numbered lines, of which `first` is the first number."""
    csv.field_size_limit(sys.maxsize)  # the default is 131,072 characters; contexts can be longer
    lines = (line for _, line in numbered)
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    before = first
    try:
        for cells in reader:
            if cells:
                yield first, cells
            first = reader.line_num + before
    except csv.Error as error:
        reason = str(error).replace("\t", "\\t")
        if "new-line character" in reason:
            raise InputError(
                f"{path}:{first}: some lines end in CR alone and others do not. Convert the line "
                "ends to LF, for example by saving the file again in an editor."
            ) from None
        raise InputError(
            f"{path}:{first} must be quoted by the rules of csv: {reason}. Put a text that begins "
            "with a quote or has line breaks in quotes, and double the quotes inside it, or write "
            "the file with csv.writer or pandas to_csv."
        ) from None


def _objects(
    path: str,
    optional: Sequence[str] = (),
    not_later: Callable[[str], bool] = lambda column: False,
) -> Records:
    """Yield the first object's keys and `optional` as the header, then each object's values."""
    columns: list[str] = []
    for number, line, record in object_rows(path):
        if not isinstance(record, dict):
            raise InputError(f"{path}:{number} must be a JSON object. Received: {line[:80]!r}.")
        if not columns:
            columns = list(dict.fromkeys((*record, *optional)))
            yield number, columns
        if later := [key for key in record if key not in columns and not_later(key)]:
            raise InputError(
                f"{path}:{number}: the first object must have the key `{later[0]}` too, because it "
                "names the columns. Add it there, with null if it has no value."
            )
        if prodigy.KEY not in columns:
            prodigy.require_first(path, number, record)
        yield number, [record.get(column) for column in columns]


_READERS: dict[str, Callable[[str], Records]] = {
    ".tsv": _tsv,
    ".csv": _csv,
    **dict.fromkeys(json_files.FORMATS, _objects),
}
FORMATS = tuple(_READERS)
PART_ENDS = (*FORMATS, *json_files.PART_ENDS[len(json_files.FORMATS) :])  # of a part's file


def write_predictions(path: str, predictions: Sequence[str]) -> None:
    """Write the leaderboards' table: a header, then each row's number from 0 and its prediction.

    Tabs separate the cells, in a file named .csv commas.
    """
    with new_text(path) as file:
        if format_of(path) == ".csv":
            writer = csv.writer(file, lineterminator="\n")
            writer.writerows([("index", "prediction"), *enumerate(predictions)])
            return
        file.write("index\tprediction\n")
        file.writelines(f"{index}\t{text}\n" for index, text in enumerate(predictions))
