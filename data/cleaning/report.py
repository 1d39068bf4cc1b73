"""The report on what a cleaning removed."""

import dataclasses

from albert_tf.runtime.report_text import markdown_table, shortened

EXAMPLES = 3  # of each reason


@dataclasses.dataclass
class _Reason:
    count: int = 0
    characters: int = 0
    examples: list[tuple[str, str, str]] = dataclasses.field(default_factory=list)

    def add(self, text: str, source: str, original: str = "") -> None:
        self.count += 1
        self.characters += len(text)
        if len(self.examples) < EXAMPLES:
            text, original = shortened(text), shortened(original)
            if text not in (known for _, known, _ in self.examples):
                self.examples.append((f"`{source}`", text, original))


class Report:
    """Counts of what was read, removed and kept, with the first examples of each reason."""

    def __init__(self) -> None:
        self.read, self.kept = _Reason(), _Reason()
        self._removed: dict[str, _Reason] = {}
        self._dropped: dict[str, _Reason] = {}

    def remove(self, reason: str, text: str, source: str) -> None:
        """Count a part of a document."""
        self._removed.setdefault(reason, _Reason()).add(text, source)

    def drop(self, reason: str, text: str, source: str, original: str = "") -> None:
        """Count a document, which may repeat an `original`."""
        self._dropped.setdefault(reason, _Reason()).add(text, source, original)

    def line(self) -> str:
        """Return the counts of what was dropped."""
        return ", ".join(f"{name}: {reason.count:,}" for name, reason in self._dropped.items())

    def table(self) -> str:
        """Return the counts in Markdown."""
        rows = [
            ("read", f"{self.read.count:,} documents", f"{self.read.characters:,}"),
            *(
                (name, f"{reason.count:,} {unit}", f"{reason.characters:,}")
                for unit, reasons in (("removed", self._removed), ("dropped", self._dropped))
                for name, reason in reasons.items()
            ),
            ("kept", f"{self.kept.count:,} documents", f"{self.kept.characters:,}"),
        ]
        return markdown_table(("", "count", "characters"), rows)

    def markdown(self, title: str) -> str:
        """Return the counts, and the examples of each reason."""
        parts = [f"# {title}", self.table()]
        for name, reason in (self._removed | self._dropped).items():
            columns = 3 if any(original for _, _, original in reason.examples) else 2
            rows = [example[:columns] for example in reason.examples]
            header = ("source", "text", "repeats")[:columns]
            parts += [f"## {name}", markdown_table(header, rows, of_texts=True)]
        return "\n\n".join(parts) + "\n"
