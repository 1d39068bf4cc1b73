"""Groups of near-duplicate texts, of which cross-validation must not divide any."""

import collections
import re
from collections.abc import Sequence

_WORD = re.compile(r"\w+")


def hosts(texts: Sequence[Sequence[str | None]]) -> list[str]:
    """Return the host of each text: the longest text that contains all its words in a row.

    Case, punctuation and white space do not matter. Texts with the same host are a group, such as
    copies, or a sentence and its phrases, which GLUE's SST-2 has. Only one host counts, because a
    short phrase occurs in unrelated texts; of equally long ones, it is the first in alphabetical
    order. A host is its own host. The order of the texts makes no difference.

    Args:
      texts: each a text, [A] or [A, None], or a pair of texts, [A, B].
    """
    keys = [_key(each) for each in texts]
    distinct = sorted(set(keys), key=lambda key: (-len(key), key))
    with_word: dict[str, list[str]] = collections.defaultdict(list)  # the longest text first
    for key in distinct:
        for word in set(key.split()):
            with_word[word].append(key)
    host_of = {}
    for key in distinct:
        # Every host contains the word that the fewest texts contain.
        candidates = min((with_word[word] for word in key.split()), key=len, default=[key])
        host_of[key] = next(each for each in candidates if key in each)
    return [host_of[key] for key in keys]


def _key(texts: Sequence[str | None]) -> str:
    """Return the words between blanks, and a line break between the two texts of a pair."""
    words = [_WORD.findall(text.lower()) or text.split() for text in texts if text]
    return "\n".join(f" {' '.join(each)} " for each in words)
