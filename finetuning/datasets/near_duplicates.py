"""Groups of near-duplicate texts, of which cross-validation must not divide any."""

import collections
import itertools
from collections.abc import Iterable, Sequence
from typing import Any

from albert_tf.text.words import words_of


def hosts(texts: Sequence[Sequence[str | None]]) -> list[str]:
    """Return the host of each text: the longest text in which all its words occur in a row.

    Texts with the same host are a group, such as copies, or a sentence and its phrases, which
    GLUE's SST-2 has. A text that no longer one contains is its own host. Of equally long hosts, the
    first in alphabetical order counts, and only that one, because a short phrase occurs in
    unrelated texts. Case, punctuation, white space and the order of the texts do not matter.

    Args:
      texts: each a text, [A] or [A, None], or a pair of texts, [A, B].

    Returns:
      The words of each host with a blank on both sides of each; between the texts of a pair, a line
      break.
    """
    keys = [_key(text) for text in texts]
    host_of = {
        key: next(host for host in possible if key in host)
        for key, possible in possible_hosts(keys).items()
    }
    return [host_of[key] for key in keys]


def possible_hosts(keys: Iterable[str]) -> dict[str, Sequence[str]]:
    """Return for each text the texts among which its host is, the longest first.

    They are those that have the rarest of its pairs of neighboring words.
    """
    distinct = sorted(set(keys), key=lambda key: (-len(key), key))
    counts = collections.Counter(ngram for key in distinct for ngram in _words_and_pairs(key))
    rarest = {
        key: min(_words_and_pairs(key), key=counts.__getitem__, default=key) for key in distinct
    }
    chosen = {ngram for ngram in rarest.values() if counts[ngram] > 1}
    holders: dict[Any, list[str]] = collections.defaultdict(list)
    for key in distinct:
        for ngram in chosen.intersection(_words_and_pairs(key)):
            holders[ngram].append(key)
    return {key: holders.get(ngram, [key]) for key, ngram in rarest.items()}


def _words_and_pairs(key: str) -> set[str | tuple[str, str]]:
    words = [word for word in key.split(" ") if word]
    return {*words, *itertools.pairwise(words)}


def _key(texts: Sequence[str | None]) -> str:
    """Return the words between blanks, and a line break between the two texts of a pair."""
    words = [words_of(text) or text.split() for text in texts if text]
    return "\n".join(f" {' '.join(part)} " for part in words)
