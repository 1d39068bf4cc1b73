"""Lines of Prodigy, whose key `answer` says what the annotator did."""

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from albert_tf.runtime.errors import InputError

KEY = "answer"
_REJECTED = ("reject", "ignore")
_ANSWERS = ("accept", *_REJECTED)
Row = TypeVar("Row", bound=tuple[Any, ...])


def require_first(path: str, line: int, record: Mapping[str, Any]) -> None:
    """Check an object of a file whose first object has no answer.

    Raises:
      InputError: the object was rejected or ignored in Prodigy.
    """
    if _verdict(answer := record.get(KEY)) in _REJECTED:
        raise InputError(
            f"{path}:{line}: the first object must have the key `{KEY}` too. Received: {answer!r} "
            "here, as in lines of Prodigy. Add it there, or rename the key."
        )


def _verdict(answer: Any) -> str:
    return str(answer or "").strip().lower()


def accepted(path: str, rows: Iterable[Row], answer: Callable[[Row], Any]) -> Iterator[Row]:
    """Yield the rows that were not rejected or ignored in Prodigy, and print the others' number.

    In a file of Prodigy, the first row has an answer, and all answers are accept, reject or ignore.
    All rows of other files are yielded, with a note if one has such an answer.

    Args:
      path: the file.
      rows: its rows, which begin with the line's number.
      answer: returns the answer in a row; None if it has none.

    Raises:
      InputError: all rows were rejected or ignored.
    """
    rows = list(rows)
    answers = [_verdict(answer(row)) for row in rows]
    rejected = [row for row, verdict in zip(rows, answers, strict=True) if verdict in _REJECTED]
    others = [verdict for verdict in answers if verdict not in (*_ANSWERS, "")]
    if not rejected or others or answers[0] not in _ANSWERS:
        if rejected:
            why = f"others have {others[0]!r}" if others else "the first row has none"
            print(
                f"note: {path}: {len(rejected):,} rows have the `{KEY}` reject or ignore, as lines "
                f"of Prodigy do, but {why}, so all rows are kept.",
                file=sys.stderr,
            )
        yield from rows
        return
    what = f"{len(rejected):,} lines of Prodigy whose `{KEY}` is reject or ignore"
    if len(rejected) == len(rows):
        raise InputError(
            f"{path} must hold lines that were accepted. Received: {what}, and no others. Add "
            "accepted ones."
        )
    print(
        f"note: {path}: {what} are left out, the first at line {rejected[0][0]}.", file=sys.stderr
    )
    yield from (row for row, verdict in zip(rows, answers, strict=True) if verdict not in _REJECTED)
