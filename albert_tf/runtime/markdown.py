"""Tables in Markdown."""

from collections.abc import Iterable, Sequence

MAX_CELL = 160  # characters of a shortened cell


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table: the first column left-aligned, the others right-aligned."""
    lines = [header, ["---", *["---:"] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shortened(text: str) -> str:
    """Return a text as a cell of a table: one line, not too long, without bars."""
    text = " ".join(text.split())
    return cell(text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…")


def cell(text: str) -> str:
    """Escape bars, which would start another cell."""
    return text.replace("|", "\\|")
