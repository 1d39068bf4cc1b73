"""The options of `data.clean`."""

import dataclasses
from typing import Annotated, Any

from albert_tf.runtime import commands
from albert_tf.runtime.bounds import NOT_NEGATIVE, between, one_of
from albert_tf.runtime.errors import InputError
from data.corpora.options import CorpusOptions

EXACT, NEAR = "exact", "near"
_STEPS = ("duplicates", "repeated_lines", "min_words", "max_words", "min_letters", "languages")


@dataclasses.dataclass(frozen=True)
class CleanOptions(CorpusOptions):
    """The command line of `data.clean`.

    Raises:
      InputError: no step is asked for.
    """

    output: str = commands.option("folder to create", path=True)
    duplicates: Annotated[str, one_of("keep", EXACT, NEAR)] = commands.option(
        "documents that repeat an earlier one: keep; exact = drop if equal but for white space; "
        "near = drop if also nearly equal (extra clean)",
        "keep",
    )
    similarity: Annotated[float, between("[0.5, 1]")] = commands.option(
        "share of common runs of 5 words from which on a document is a near duplicate",
        0.8,
        only_for={"duplicates": [NEAR]},
    )
    repeated_lines: Annotated[int, NOT_NEGATIVE] = commands.option(
        "remove the lines that at least so many documents have; 0 = none", 0
    )
    held_out: tuple[str, ...] = commands.option(
        "glob of evaluation files; remove paragraphs that share 8 words in a row with them; may be "
        "repeated",
        (),
        path=True,
    )
    min_words: Annotated[int, NOT_NEGATIVE] = commands.option("drop documents with fewer words", 0)
    max_words: Annotated[int, NOT_NEGATIVE] = commands.option(
        "drop documents with more words; 0 = no limit", 0
    )
    min_letters: Annotated[float, between("[0, 1]")] = commands.option(
        "drop documents in which a smaller share of the characters are letters", 0.0
    )
    languages: str = commands.option(
        "drop documents in other languages than these, such as en,de (extra clean)", ""
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        defaults: Any = CleanOptions
        steps = (*_STEPS, "held_out")
        if all(getattr(self, name) == getattr(defaults, name) for name in steps):
            raise InputError(
                "nothing is removed that is not asked for: pass at least one of "
                f"{', '.join(f'--{name}' for name in steps)}."
            )
        if 0 < self.max_words < self.min_words:
            raise InputError(
                "--max_words must not be below --min_words. Received: "
                f"{self.max_words}, {self.min_words}."
            )
