"""The note on pieces that are unknown to a vocabulary."""

import dataclasses
import unicodedata
from collections import Counter
from collections.abc import Iterable, Mapping

import numpy as np

from albert_tf.text.tokenizer import Tokenizer

NOTE_THRESHOLD = 0.01  # share of unknown pieces above which the note is due
_NUM_NAMED = 5


@dataclasses.dataclass(frozen=True)
class UnknownPieces:
    """Counts of the unknown pieces of some texts, which add up over the parts of a file.

    Attributes:
      unknown: the number of unknown pieces.
      pieces: the number of all pieces, without special ones.
      characters: the unknown characters, with their numbers.
    """

    unknown: int = 0
    pieces: int = 0
    characters: Mapping[str, int] = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, ids: np.ndarray, texts: Iterable[str], tokenizer: Tokenizer) -> "UnknownPieces":
        """Count the pieces in `ids`, except [CLS] and [SEP], and the characters of `texts`."""
        special = tokenizer.special
        unknown = int(np.count_nonzero(ids == special.unk))
        pieces = int(np.count_nonzero((ids != special.cls) & (ids != special.sep)))
        return cls(unknown, pieces, tokenizer.unknown_characters(list(texts)) if unknown else {})

    def __add__(self, other: "UnknownPieces") -> "UnknownPieces":
        return UnknownPieces(
            self.unknown + other.unknown,
            self.pieces + other.pieces,
            Counter(self.characters) + Counter(other.characters),
        )

    def note(self, chosen: str) -> str | None:
        """Return a note for the user if too many pieces are unknown, else None.

        `chosen` is the setting with which the user chose the vocabulary, such as a flag.
        """
        if self.unknown <= NOTE_THRESHOLD * self.pieces:
            return None
        return (
            f"{self.unknown / self.pieces:.1%} of the pieces are unknown to the vocabulary"
            f"{self._named()}. Check that {chosen} is for such text."
        )

    def _named(self) -> str:
        most = Counter(self.characters).most_common(_NUM_NAMED)
        names = [f"{count:,} of {_name(char)}" for char, count in most]
        if others := len(self.characters) - len(most):
            names.append(f"and {others:,} other characters")
        return f": {', '.join(names)}" if names else ""


def _name(char: str) -> str:
    code = f"U+{ord(char):04X}"
    if unicodedata.category(char)[0] in "CMZ":  # controls, marks that combine, spaces
        return code
    return char if char.isascii() else f"{char} ({code})"
