"""Text of reports: tables in Markdown, and shares with their standard errors."""

import re
from collections.abc import Iterable, Sequence

MAX_CELL = 160  # characters of a shortened cell
MIN_EXAMPLES = 30  # examples that a standard error needs
_MARKUP = re.compile(
    r"[|`]"  # the end of a cell, and code
    r"|\\(?=[!-/:-@\[-`{-~])"  # an escape
    r"|&(?=#?\w+;)"  # an entity
    r"|<(?=[A-Za-z/!?])"  # HTML, and a link
    r"|\](?=\()"  # a link, and an image
    r"|[*~](?=\S)|(?<=\S)[*~]|(?<![^\W_])_|_(?![^\W_])"  # emphasis
)


def markdown_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], of_texts: bool = False
) -> str:
    """Return a table: the first column left-aligned, the others right-aligned.

    Those are left-aligned too if they hold texts.
    """
    rule = "---" if of_texts else "---:"
    lines = [header, ["---", *[rule] * (len(header) - 1)], *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def shortened(text: str) -> str:
    """Return a text as a `cell` of a table: one line, not too long."""
    text = " ".join(text.split())
    return cell(text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…")


def cell(text: str) -> str:
    """Escape Markdown and HTML in a text of one line, so that a cell shows it as it is."""
    return _MARKUP.sub(r"\\\g<0>", text)


def counted(count: int, name: str) -> str:
    """Return a count with a name, in the plural with an s unless it is one."""
    return f"{count:,} {name}{'' if count == 1 else 's'}"


def percent_with_error(share: float, error: float, count: float) -> str:
    """Return a share in percent with its standard error, in 16 characters.

    For fewer than `MIN_EXAMPLES` examples, and at 0 and 100 %, spaces replace the error: ± is read
    as the width of a normal distribution, which is then a poor approximation.
    """
    shown = f" ± {error:6.2%}" if count >= MIN_EXAMPLES and error else ""
    return f"{share:7.2%}{shown:9}"
