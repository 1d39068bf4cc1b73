"""Alignment of pieces with the characters of the text that they stand for.

A text is normalized before it is split into pieces: spaces collapse, ligatures and accented letters
become several characters, accents vanish. Under any rules, each character of the text becomes a
fixed number of characters other than spaces, called solid characters. Each piece is a range of
solid characters, and each solid character has one origin in the text.
"""

import dataclasses
import re
from collections.abc import Sequence
from itertools import chain

import numpy as np

from albert_tf.text.normalization import normalize, python_class
from albert_tf.text.sentencepiece_model import WORD_MARK, SentencePiece
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.wordpiece import CONTINUES, WordPiece, characters, split_words
from albert_tf.text.words import codes_of

_SPACE = ord(" ")
_TEXTS_AT_ONCE = 1024  # to bound the memory


@dataclasses.dataclass(frozen=True)
class Pieces:
    """The pieces of N texts, concatenated.

    Attributes:
      ids: int32 [P], the ids of `Tokenizer.encode_batch`.
      counts: int32 [N], the number of pieces of each text.
      first, last: int32 [P], the first and the last character of a piece, counted in its text. For
        a piece that is only a space, `last` is usually `first` - 1.
      reach: int32 [P], the last character before the next piece. It includes characters that the
        vocabulary drops, such as combining accents, and trailing spaces.
    """

    ids: np.ndarray
    counts: np.ndarray
    first: np.ndarray
    last: np.ndarray
    reach: np.ndarray


def align(texts: Sequence[str], tokenizer: Tokenizer) -> Pieces:
    """Split texts into pieces and align the pieces with the characters of the texts."""
    begins = range(0, len(texts), _TEXTS_AT_ONCE) or range(1)
    parts = [_align(texts[begin : begin + _TEXTS_AT_ONCE], tokenizer) for begin in begins]
    columns = zip(*(vars(part).values() for part in parts), strict=True)
    return Pieces(*(np.concatenate(column) for column in columns))


def _align(texts: Sequence[str], tokenizer: Tokenizer) -> Pieces:
    cut = _wordpieces if isinstance(tokenizer.vocabulary, WordPiece) else _sentencepieces
    ids, counts, begin, end = cut(texts, tokenizer)
    origins, reaches, bases = _origins(texts, tokenizer)
    row: np.ndarray = np.repeat(np.arange(len(texts)), counts)
    base, length = bases[row], np.array([len(text) for text in texts], np.int64)[row]
    first = np.minimum(origins[begin] - base, length)
    is_solid = end > begin
    before = np.where(begin > 0, origins[begin - 1] - base, -1)
    # A space may lie inside the characters that one character became.
    last_of_space = np.maximum(first - 1, before)
    last = np.where(is_solid, origins[end - 1] - base, last_of_space)
    reach = np.where(is_solid, np.minimum(reaches[end - 1] - base, length - 1), last_of_space)
    return Pieces(ids, counts, *(values.astype(np.int32) for values in (first, last, reach)))


def _origins(
    texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the origins and reaches of the solid characters, and the starts of the texts.

    The reach of a solid character is the last character before the next origin. All three are
    counted over the texts, joined with one character between them. Origins and reaches have one
    extra entry, for pieces that begin after the last solid character.
    """
    joined = "\n".join(texts)
    counts: np.ndarray = np.append(_solid_lengths(joined, tokenizer), np.uint8(1))
    origins = np.flatnonzero(counts)
    times = counts[origins]
    reaches: np.ndarray = np.append(origins[1:], len(joined) + 1) - 1
    bases = np.cumsum([0, *(len(text) + 1 for text in texts)])[:-1]
    return np.repeat(origins, times), np.repeat(reaches, times), bases


def _solid_lengths(joined: str, tokenizer: Tokenizer) -> np.ndarray:
    """Return the number of solid characters that each character becomes."""
    alphabet = sorted(set(joined))
    rules, quotes = tokenizer.normalization, "``|''"
    if isinstance(tokenizer.vocabulary, WordPiece):
        lengths = [sum(map(len, words)) for words in split_words(alphabet, rules)]
        between = f"[{python_class(characters()['dropped'])}]*"
        quotes = f"`{between}`|'{between}'"
    else:
        lengths = [len(text.replace(" ", "")) for text in normalize(alphabet, rules)]
    table: np.ndarray = np.zeros(ord(alphabet[-1]) + 1 if alphabet else 1, np.uint8)
    table[[ord(char) for char in alphabet]] = lengths
    counts = table[codes_of(joined)]
    if rules.unify_quotes:  # a pair of quotes becomes one character
        counts[[match.end() - 1 for match in re.finditer(quotes, joined)]] = 0
    return counts


def _sentencepieces(
    texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return ids, their number per text, and their begins and ends in solid characters."""
    assert isinstance(tokenizer.vocabulary, SentencePiece)
    normal = normalize(texts, tokenizer.normalization)
    rows = tokenizer.vocabulary.processor.encode_as_offset_mapping(normal)
    solid = np.cumsum(np.append(False, codes_of("".join(normal)) != _SPACE))
    counts = np.array([len(row["ids"]) for row in rows], np.int64)
    ids = np.fromiter(chain.from_iterable(row["ids"] for row in rows), np.int32, counts.sum())
    flat = chain.from_iterable(pair for row in rows for pair in row["offsets"])
    offsets = np.fromiter(flat, np.int64, 2 * counts.sum()).reshape(-1, 2)
    bases = np.cumsum([0, *map(len, normal)])[:-1]
    begin, end = solid[offsets + np.repeat(bases, counts)[:, None]].T
    return _split_digit_commas(ids, counts, begin, end, tokenizer)


def _split_digit_commas(
    ids: np.ndarray, counts: np.ndarray, begin: np.ndarray, end: np.ndarray, tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Replace each piece that ends in a digit and a comma by those of the number and the comma."""
    replaced = np.flatnonzero(np.isin(ids, list(tokenizer.replacements)))
    if not len(replaced):
        return ids, counts, begin, end
    parts = [tokenizer.replacements[i] for i in ids[replaced].tolist()]
    times: np.ndarray = np.ones(len(ids), np.int64)
    times[replaced] = [len(new) for new in parts]
    row: np.ndarray = np.repeat(np.repeat(np.arange(len(counts)), counts), times)
    ids, begin, end = (np.repeat(values, times) for values in (ids, begin, end))
    starts = replaced + np.cumsum(np.append(0, times[replaced] - 1))[:-1]
    for start, new in zip(starts.tolist(), parts, strict=True):
        stop = start + len(new)
        ids[start:stop] = new
        lengths = [len(tokenizer.id_to_piece(i).replace(WORD_MARK, "")) for i in new]
        inner = np.minimum(begin[start] + np.cumsum(lengths[:-1]), end[start])
        begin[start + 1 : stop] = end[start : stop - 1] = inner
    return ids, np.bincount(row, minlength=len(counts)), begin, end


def _wordpieces(
    texts: Sequence[str], tokenizer: Tokenizer
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Return the same as `_sentencepieces`.

    A piece is as long as its text, and an unknown piece is as long as its word.
    """
    lengths = [len(piece.removeprefix(CONTINUES)) for piece in tokenizer.vocabulary.pieces]
    batch = tokenizer.encode_batch(texts)
    words = chain.from_iterable(split_words(texts, tokenizer.normalization))
    ids = list(chain.from_iterable(batch))
    ends, end, word_end = [0], 0, 0
    for i in ids:
        if end == word_end:
            word_end += len(next(words))
        end = word_end if i == tokenizer.special.unk else end + lengths[i]
        ends.append(end)
    counts = np.array([len(row) for row in batch], np.int64)
    bounds = np.array(ends, np.int64)
    return np.array(ids, np.int32), counts, bounds[:-1], bounds[1:]
