"""A note on labels that may be several labels with a mark between them, such as joy|love."""

import collections
import re
from collections.abc import Iterable, Mapping, Sequence

_MARKS = re.compile(r"[\W_]+")


def note_separator(rows: Sequence[tuple[str, Sequence[str]]], flags: str = "") -> None:
    """Print a note if labels may be several ones, with the mark that joins most of them.

    Most parts of such a label are labels themselves, at least one of them, or parts of another
    label. If no row has several labels although the task allows it, half of the parts are enough.

    Args:
      rows: `file:line` and the labels of each row.
      flags: those to pass with --label_separator; empty if the task allows several labels.
    """
    counts = collections.Counter(label for _, labels in rows for label in labels)
    lenient = not flags and all(len(labels) < 2 for _, labels in rows)
    by_mark = {
        mark: joined
        for mark, divided in _divided(counts).items()
        if (joined := _joined(divided, counts, is_blank=not mark.strip(), lenient=lenient))
    }
    if not by_mark:
        return
    number = {mark: sum(counts[label] for label in joined) for mark, joined in by_mark.items()}
    mark = max(by_mark, key=lambda candidate: (number[candidate], len(candidate)))
    location, label = next(
        (place, label) for place, labels in rows for label in labels if label in by_mark[mark]
    )
    print(
        f"note: {location}: {label!r} is read as one label, and {number[mark]:,} rows have such a "
        f"label with {mark!r}. If it separates labels, pass {flags}--label_separator='{mark}'."
    )


def _divided(labels: Iterable[str]) -> dict[str, dict[str, list[str]]]:
    """Return the parts of each label that a mark divides, by mark and label."""
    parts_by_mark: dict[str, dict[str, list[str]]] = {}
    for label in labels:
        runs = () if _is_number(label) else _MARKS.findall(label)
        for mark in dict.fromkeys(text.strip() or " " for run in runs for text in (run, *run)):
            parts = [part.strip() for part in label.split(mark) if part.strip()]
            if len(parts) > 1:
                parts_by_mark.setdefault(mark, {})[label] = parts
    return parts_by_mark


def _joined(
    divided: Mapping[str, Sequence[str]], labels: Iterable[str], is_blank: bool, lenient: bool
) -> set[str]:
    """Return the labels that may be several; words between blanks must be labels to count."""
    occurrences = collections.Counter(part for parts in divided.values() for part in set(parts))
    joined = set()
    for label, parts in divided.items():
        are_labels = sum(part in labels for part in parts)
        known = sum(part in labels or (occurrences[part] > 1 and not is_blank) for part in parts)
        if 2 * known >= len(parts) if lenient else are_labels and 2 * known > len(parts):
            joined.add(label)
    return joined


def _is_number(label: str) -> bool:
    try:
        float(label)
    except ValueError:
        return False
    return True
