"""Sketches of sets of documents, which tell how many of one set are in another.

A sketch holds the smallest hashes of a set (a bottom-k sketch; Broder, "On the resemblance and
containment of documents", 1997): the whole set if it is small, otherwise a uniform sample.
"""

import hashlib
import math
import re
from collections.abc import Iterable
from typing import Any, NamedTuple

from albert_tf.runtime.errors import InputError, shortened

SIZE = 1024
_DIGITS = 16  # of a hash

Sketch = tuple[int, ...]  # ascending


class Share(NamedTuple):
    """The estimated share of a set that is in another.

    Attributes:
      value: the share.
      error: its standard error; 0 if no document had to be left out of the comparison.
      compared: the number of documents of the set that were compared.
    """

    value: float
    error: float
    compared: int


def sketch_of(digests: Iterable[bytes]) -> Sketch:
    """Return the sketch of documents with these digests.

    They are hashed again, because the digest also decides on a document's split: the smallest
    digests are all held out.
    """
    hashes = (hashlib.blake2b(digest, digest_size=_DIGITS // 2).digest() for digest in digests)
    return _smallest(int.from_bytes(each) for each in hashes)


def merged(one: Sketch, other: Sketch) -> Sketch:
    """Return the sketch of the union of two sets."""
    return _smallest((*one, *other))


def _smallest(hashes: Iterable[int]) -> Sketch:
    return tuple(sorted(set(hashes))[:SIZE])


def share_in(part: Sketch, whole: Sketch) -> Share | None:
    """Return the share of the documents of `part` in `whole`, None if none can be compared.

    Up to the smaller of the two largest hashes, both sketches are complete. So the documents of
    `part` up to there are a uniform sample of it, of which it is known whether `whole` has them. A
    sketch of fewer than SIZE documents is complete everywhere.
    """
    limit = min((sketch[-1] for sketch in (part, whole) if len(sketch) == SIZE), default=2**64)
    sample = [each for each in part if each <= limit]
    if not sample:
        return None
    value = len(set(sample) & set(whole)) / len(sample)
    is_all = len(sample) == len(part) < SIZE
    error = 0.0 if is_all else math.sqrt(value * (1 - value) / len(sample))
    return Share(value, error, len(sample))


def to_text(sketch: Sketch) -> str:
    """Return a sketch as one string, for JSON: 16 hex digits for each hash."""
    return "".join(f"{each:0{_DIGITS}x}" for each in sketch)


def from_text(text: Any) -> Sketch:
    """Return the sketch that a string from `to_text` holds.

    Raises:
      InputError: it is no such string.
    """
    if not isinstance(text, str) or not re.fullmatch(rf"([0-9a-f]{{{_DIGITS}}})*", text):
        raise InputError(
            f"a sketch of documents must be {_DIGITS} hex digits for each. Received: "
            f"{shortened(text)}. Restore the file."
        )
    return tuple(int(text[i : i + _DIGITS], 16) for i in range(0, len(text), _DIGITS))
