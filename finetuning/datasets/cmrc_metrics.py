"""Answers in Chinese, as CMRC 2018's public scorer compares them (`cmrc2018_evaluate.py`, v6).

Lower case, without the punctuation of `_PUNCTUATION`. For F1, a Chinese character is a unit of its
own, what stands between two of them is cut into words, and two answers share their longest run of
units. The scorer cuts words with `nltk.word_tokenize`. `words` follows nltk 3.9.1 in what occurs in
Chinese text; all 3,243 runs of the answers and contexts of XQuAD zh are cut as by its word
tokenizer. It does not part sentences (a full stop inside a run stays with its word), words such as
"cannot", or single quotes before a word.
"""

import difflib
import re
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHARACTER = re.compile("([\u4e00-\u9fa5])")
_LETTERS = re.compile(r"[A-Za-z]+|[^\W\d_]")  # a Latin word counts as one

_OPENING = re.compile(r'(?:^|(?<=[ (\[{<]))"')
_MARK = re.compile(
    r"[][(){}<>;@#$%&?!«»‘„]|\.{2,}"  # wherever they stand
    r"|,(?!\d)"  # 1,000 is one word
    r"|(?<!\.)\.(?=[])}>'»\s]*$)"  # at the end: 3.5 is one word
)
_ENDING = re.compile(r"(?<=[^\s'])(?:n't|'(?:s|m|d|ll|re|ve)?)(?=\s|$)")


def is_chinese(text: str) -> bool:
    """Whether more than half of its letters, a Latin word counting as one, are Chinese."""
    characters = len(_CHARACTER.findall(text))
    return characters > 0 and 2 * characters > len(_LETTERS.findall(text))


def plain(text: str) -> str:
    """The text that must be equal for an exact match."""
    return text.lower().strip().translate(_PUNCTUATION)


def units(text: str) -> list[str]:
    """The characters and words that F1 counts."""
    found: list[str] = []
    for i, part in enumerate(_CHARACTER.split(plain(text))):
        found += [part] if i % 2 else words(part)
    return found


def words(text: str) -> list[str]:
    """The words and marks of a text without Chinese characters, in lower case."""
    text = _OPENING.sub(" `` ", text).replace('"', " '' ")
    return _ENDING.sub(r" \g<0>", _MARK.sub(r" \g<0> ", text)).split()


def longest_run(prediction: Sequence[str], reference: Sequence[str]) -> int:
    """The length of the longest run of units that both have."""
    matcher = difflib.SequenceMatcher(None, prediction, reference, autojunk=False)
    return matcher.find_longest_match().size
