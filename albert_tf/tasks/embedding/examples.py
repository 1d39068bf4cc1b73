"""Examples of embeddings besides `TextExample`, of which a run of this kind also takes these."""

import dataclasses
import hashlib
from collections.abc import Sequence
from typing import Any, Self

from albert_tf.tasks.examples import TextExample


@dataclasses.dataclass(frozen=True)
class ContrastExample(TextExample):
    """A text, a text that belongs to it (`second`), and texts that do not.

    Attributes:
      negatives: texts that resemble `second`, but do not belong to `first`.
    """

    negatives: tuple[str, ...] = ()

    @property
    def named_texts(self) -> tuple[tuple[str, str], ...]:
        """The texts."""
        return *super().named_texts, *(("negatives", text) for text in self.negatives)


class Corpus:
    """The documents of a search, which its queries share.

    Attributes:
      ids: the names of the documents.
      texts: the documents.
    """

    def __init__(self, ids: Sequence[str], texts: Sequence[str]) -> None:
        self.ids, self.texts = tuple(ids), tuple(texts)
        digest = hashlib.sha256(repr((self.ids, self.texts)).encode("utf-8", "surrogatepass"))
        self._fingerprint = digest.hexdigest()[:16]

    def __len__(self) -> int:
        return len(self.ids)

    def __repr__(self) -> str:
        return f"Corpus({len(self):,} documents, {self._fingerprint})"

    def __eq__(self, other: object) -> bool:
        return repr(self) == repr(other)

    def __hash__(self) -> int:
        return hash(self._fingerprint)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self  # as `dataclasses.astuple` makes one for each query


@dataclasses.dataclass(frozen=True)
class SearchExample(TextExample):
    """A query, `first`, for the documents of a corpus.

    Attributes:
      label: the id and the grade of each relevant document; None if unknown.
      id: the name of the query.
      itself: the id of the document that is the query itself, which its ranking leaves out; None
        if there is none.
      corpus: the documents; those of all examples that are passed together are the same.
    """

    label: tuple[tuple[str, float], ...] | None = None  # type: ignore[assignment]
    id: str = ""
    itself: str | None = None
    corpus: Corpus = Corpus((), ())
