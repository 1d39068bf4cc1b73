"""Sketches of sets of documents, from which the share of one set in another is estimated.

A sketch holds the smallest hashes of a set (a bottom-k sketch; Broder, "On the resemblance and
containment of documents", 1997): the whole set if it is small, otherwise a uniform sample.
"""

import base64
import hashlib
import itertools
import math
from collections.abc import Iterable
from typing import Any, NamedTuple

SIZE = 2**14  # of 2 % held out from a large corpus, about 330 documents are compared
_BYTES = 5  # of a hash: a document is taken for another once in 10^5, beside ten million others
_NUM_HASHES = 2 ** (8 * _BYTES)

Sketch = tuple[int, ...]  # ascending


class Share(NamedTuple):
    """The estimated share of a set that is in another.

    Attributes:
      value: the share.
      error: its standard error, 0 if all documents of the set were compared.
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
    hashes = (hashlib.blake2b(digest, digest_size=_BYTES).digest() for digest in digests)
    return _smallest(int.from_bytes(value) for value in hashes)


def size_of(sketch: Sketch) -> int:
    """Return the number of different documents: estimated if the sketch is full, else exact."""
    if len(sketch) < SIZE:
        return len(sketch)
    return round((SIZE - 1) * _NUM_HASHES / sketch[-1])


def merged(one: Sketch, other: Sketch) -> Sketch:
    """Return the sketch of the union of two sets."""
    return _smallest((*one, *other))


def _smallest(hashes: Iterable[int]) -> Sketch:
    return tuple(dict.fromkeys(sorted(hashes)))[:SIZE]


def share_in(part: Sketch, whole: Sketch) -> Share | None:
    """Return the share of the documents of `part` in `whole`, None if none can be compared.

    Up to the smaller of the two largest hashes, both sketches are complete. So the documents of
    `part` up to there are a uniform sample of it, of which it is known whether `whole` has them. A
    sketch of fewer than SIZE documents is complete everywhere.
    """
    limit = min(
        (sketch[-1] for sketch in (part, whole) if len(sketch) == SIZE), default=_NUM_HASHES
    )
    sample = [number for number in part if number <= limit]
    if not sample:
        return None
    value = len(set(sample) & set(whole)) / len(sample)
    sampled = len(sample) / len(part) if len(part) < SIZE else limit / _NUM_HASHES
    error = math.sqrt(value * (1 - value) * (1 - sampled) / len(sample))
    return Share(value, error, len(sample))


def to_text(sketch: Sketch) -> str:
    """Return a sketch as one string, for JSON."""
    return base64.b64encode(b"".join(number.to_bytes(_BYTES) for number in sketch)).decode()


def from_text(text: Any) -> Sketch:
    """Return the sketch that a string from `to_text` holds; an empty one for anything else."""
    try:
        content = base64.b64decode(text, validate=True)
    except (TypeError, ValueError):
        return ()
    hashes = [content[i : i + _BYTES] for i in range(0, len(content), _BYTES)]
    is_sketch = len(content) % _BYTES == 0 and all(a < b for a, b in itertools.pairwise(hashes))
    return tuple(map(int.from_bytes, hashes)) if is_sketch else ()
