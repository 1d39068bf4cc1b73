"""A corpus's train and held-out parts, by the content of each document."""

import hashlib

from data.corpora.corpus import Document


def split_of(document: Document, heldout_fraction: float) -> str:
    """`heldout` for about `heldout_fraction` of all documents, else `train`.

    By the text alone: copies of a document fall on the same side, in every corpus and build.
    """
    digest = hashlib.blake2b("\n".join(document.sentences).encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest) < heldout_fraction * 2**64 else "train"
