"""Pieces that a text needs and a sentencepiece vocabulary lacks: characters, words, their parts."""

import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby, islice

import numpy as np

from albert_tf.text.extension import add_pieces, best_split, distinct_scores
from albert_tf.text.sentencepiece_model import WORD_MARK, SentencePiece
from albert_tf.text.tokenizer import Tokenizer
from data.vocabulary.shortening import Shortening

_AT_ONCE = 10_000  # sentences
# Of the wanted number, kept after each count of what is used; the last one counts what is left.
_SHARES = (1.1, 1.0, 1.0)


def count_words(sentences: Iterable[str], tokenizer: Tokenizer) -> Counter[str]:
    """Count the words, which white space divides, of sentences once normalized."""
    words: Counter[str] = Counter()
    stream = iter(sentences)
    while batch := list(islice(stream, _AT_ONCE)):
        text = tokenizer.vocabulary.normalized(batch, tokenizer.normalization)
        words.update(text.split(WORD_MARK))
    del words[""]
    return words


def count_pieces(words: Mapping[str, int], tokenizer: Tokenizer) -> np.ndarray:
    """Return how often each piece occurs in words with their numbers, int64 [V]."""
    ids = _encode(words, tokenizer)
    repeats = np.fromiter(map(len, ids), np.int64, len(ids))
    weights: np.ndarray = np.repeat(np.fromiter(words.values(), np.int64, len(words)), repeats)
    flat = np.fromiter((i for row in ids for i in row), np.int64, len(weights))
    counts = np.bincount(flat, weights, minlength=tokenizer.vocab_size)
    return counts.astype(np.int64)


def new_characters(
    words: Mapping[str, int], tokenizer: Tokenizer, min_count: int
) -> dict[str, int]:
    """Return the characters that are no piece and occur `min_count` times or more, most first.

    Without those that have no shape: controls, joiners, variation selectors, U+FFFD.
    """
    unknown = {c for word in words for c in word}.difference(tokenizer.vocabulary.pieces)
    counts: Counter[str] = Counter()
    for word, count in words.items():
        if not unknown.isdisjoint(word):
            for character in filter(_has_shape, unknown.intersection(word)):
                counts[character] += count * word.count(character)
    ranking = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return {character: count for character, count in ranking if count >= min_count}


def extended(tokenizer: Tokenizer, uses: Mapping[str, int], total: int) -> Tokenizer:
    """Return the vocabulary with new pieces, given with their numbers among `total` pieces."""
    assert isinstance(tokenizer.vocabulary, SentencePiece)
    scores = distinct_scores(uses, total, tokenizer.vocabulary.scores)
    return Tokenizer(add_pieces(tokenizer.model, scores), tokenizer.normalization)


def new_pieces(
    words: Mapping[str, int], tokenizer: Tokenizer, size: int, min_count: int
) -> dict[str, int]:
    """Return the `size` words and parts of words that shorten a text most, or fewer.

    Candidates are runs of adjacent pieces of a word, all of letters or all of digits. They are
    chosen greedily (`Shortening`). Of somewhat more than are wanted, the new vocabulary then uses
    some rarely, because others cover their text; these are dropped.

    Args:
      words: the words of the text with their numbers.
      tokenizer: the old vocabulary; a sentencepiece model.
      size: the number of pieces that are wanted.
      min_count: the number of uses in the text that a piece needs.

    Returns:
      The pieces with their numbers of uses, the most useful first.
    """
    known = frozenset(tokenizer.vocabulary.pieces)
    candidates = iter(Shortening(_runs(words, tokenizer), known, size, min_count))
    uses, total = dict[str, int](), int(count_pieces(words, tokenizer).sum())
    while more := dict(islice(candidates, round(_SHARES[0] * size) + 1 - len(uses))):
        uses |= more
        for share in _SHARES:
            useful = _useful(words, tokenizer, extended(tokenizer, uses, total), min_count)
            uses = dict(islice(useful, round(share * size)))
        if len(uses) == size:
            break
    return uses


def _useful(
    words: Mapping[str, int], old: Tokenizer, new: Tokenizer, min_count: int
) -> Iterator[tuple[str, int]]:
    """Yield the new pieces that are used `min_count` times or more, those first that save most.

    A piece saves, each time it is used, the pieces that would stand there without it, but one.
    """
    assert isinstance(new.vocabulary, SentencePiece)
    scores, saved = dict(new.vocabulary.scores), {}
    pieces, counts = new.vocabulary.pieces[old.vocab_size :], count_pieces(words, new)
    uses = dict(zip(pieces, counts[old.vocab_size :].tolist(), strict=True))
    for piece, count in uses.items():
        score = scores.pop(piece)
        saved[piece] = count * (len(best_split(piece, scores)[1]) - 1)
        scores[piece] = score
    for piece in sorted(uses, key=lambda piece: (-saved[piece], piece)):
        if uses[piece] >= min_count:
            yield piece, uses[piece]


def _encode(words: Iterable[str], tokenizer: Tokenizer) -> list[list[int]]:
    """Return the ids of words, without ALBERT's rule for numbers with a comma."""
    assert isinstance(tokenizer.vocabulary, SentencePiece)
    ids: list[list[int]] = tokenizer.vocabulary.processor.encode(list(words))
    return ids


def _runs(words: Mapping[str, int], tokenizer: Tokenizer) -> Counter[tuple[str, ...]]:
    """Count the runs of two or more adjacent pieces of one kind, letters or digits."""
    pieces, runs = tokenizer.vocabulary.pieces, Counter[tuple[str, ...]]()
    kinds = list(map(_kind, pieces))
    kinds[tokenizer.special.unk] = ""
    for row, count in zip(_encode(words, tokenizer), words.values(), strict=True):
        for run in _of_one_kind(row, kinds, pieces) if len(row) > 1 else ():
            runs[run] += count
    return runs


def _of_one_kind(row: list[int], kinds: list[str], pieces: list[str]) -> Iterator[tuple[str, ...]]:
    every = [kinds[i] for i in row]
    if pieces[row[0]] == WORD_MARK:
        every[0] = every[1]
    for kind, group in groupby(range(len(row)), every.__getitem__):
        places = list(group)
        if kind and len(places) > 1:
            yield tuple(pieces[row[place]] for place in places)


def _kind(piece: str) -> str:
    """Return the class of a piece's characters: `L`, letters and their marks, `N`, or none."""
    categories = {unicodedata.category(character)[0] for character in piece.lstrip(WORD_MARK)}
    return next((kind for kind in ("LM", "N") if categories and categories <= set(kind)), "")


def _has_shape(character: str) -> bool:
    return (
        unicodedata.category(character)[0] not in "CZ"
        and character not in ("\ufffd", "\u3164")
        and not unicodedata.name(character, "").startswith("VARIATION SELECTOR")
    )
