"""The options of commands that read a corpus."""

import dataclasses
from typing import Any

from albert_tf.runtime import commands
from data.corpora.corpus import KINDS


@dataclasses.dataclass(frozen=True)
class CorpusOptions(commands.CommandOptions):
    """A corpus and how to read it; a command adds its own options."""

    corpus: str = commands.option("the text to read, as KIND:WHERE. Kinds: " + KINDS, path=True)
    _: dataclasses.KW_ONLY
    document_boundary: str = commands.option(
        "what separates documents: blank_line, file or regex:RE, whose line is dropped",
        "blank_line",
    )
    errors: str = commands.option("on invalid UTF-8: strict = fail, replace = U+FFFD", "strict")
    data_dir: str | None = commands.option("data folder of TFDS", None, path=True)
    text_column: str = commands.option(
        "the key of the text in JSON lines, its column in parquet and Arrow files", "text"
    )
    dry_run: bool = commands.option("check the options, and that the files can be read", False)

    @property
    def reading(self) -> tuple[Any, ...]:
        """The arguments of `NumberedCorpus` and `read_documents`."""
        return (
            self.corpus,
            self.document_boundary,
            self.errors,
            self.data_dir,
            self.text_column,
        )
