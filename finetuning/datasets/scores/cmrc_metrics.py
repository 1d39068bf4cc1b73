"""Comparison of Chinese answers as in CMRC 2018's public scorer (`cmrc2018_evaluate.py`, v6).

Answers are compared in lower case, without the punctuation of `_PUNCTUATION`. For F1, each Chinese
character is one unit, the text between Chinese characters is split into words, and the overlap of
two answers is their longest common run of units. The scorer splits words with `nltk.word_tokenize`.
`words` follows nltk 3.9.1 in everything that occurs in Chinese text: it splits all 3,243 runs in
the answers and contexts of XQuAD zh as nltk's word tokenizer does. It does not split sentences (a
full stop inside a run stays with its word), words such as "cannot", or single quotes before a word.
"""

import difflib
import re
from collections.abc import Sequence

_PUNCTUATION = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
_CHARACTER = re.compile("([\u4e00-\u9fa5])")
_KANA = re.compile("[\u3041-\u3096\u30a1-\u30fa]")
_LETTERS = re.compile(r"[A-Za-z]+|[^\W\d_]")  # a Latin word counts as one letter

_OPENING = re.compile(r'(?:^|(?<=[ (\[{<]))"')
_MARK = re.compile(
    r"[][(){}<>;@#$%&?!«»‘„]|\.{2,}"  # anywhere
    r"|,(?!\d)"  # 1,000 is one word
    r"|(?<!\.)\.(?=[])}>'»\s]*$)"  # only at the end: 3.5 is one word
)
_ENDING = re.compile(r"(?<=[^\s'])(?:n't|'(?:s|m|d|ll|re|ve)?)(?=\s|$)")


def is_chinese(text: str) -> bool:
    """Return True if more than half of the text's letters are Chinese.

    A Latin word counts as one letter. A text is Japanese if it has a tenth as many kana.
    """
    characters = len(_CHARACTER.findall(text))
    if 10 * len(_KANA.findall(text)) > characters:
        return False
    return characters > 0 and 2 * characters > len(_LETTERS.findall(text))


def plain(text: str) -> str:
    """Return the normalized text, which must be equal for an exact match."""
    return text.lower().strip().translate(_PUNCTUATION)


def units(text: str) -> list[str]:
    """Return the characters and words that F1 counts."""
    tokens: list[str] = []
    for i, part in enumerate(_CHARACTER.split(plain(text))):
        tokens += [part] if i % 2 else words(part)
    return tokens


def words(text: str) -> list[str]:
    """Return the words and punctuation marks of a lower-case text without Chinese characters."""
    text = _OPENING.sub(" `` ", text).replace('"', " '' ")
    return _ENDING.sub(r" \g<0>", _MARK.sub(r" \g<0> ", text)).split()


def longest_run(prediction: Sequence[str], reference: Sequence[str]) -> int:
    """Return the length of the longest common run of units."""
    matcher = difflib.SequenceMatcher(None, prediction, reference, autojunk=False)
    return matcher.find_longest_match().size
