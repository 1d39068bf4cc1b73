"""Extension of a sentencepiece vocabulary by what a text needs."""

import dataclasses
from collections.abc import Iterable

from albert_tf.runtime.errors import InputError
from albert_tf.text.sentencepiece_model import SentencePiece
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.typography import fold_punctuation
from data.vocabulary.new_pieces import (
    count_pieces,
    count_words,
    extended,
    new_characters,
    new_pieces,
)


@dataclasses.dataclass(frozen=True)
class Added:
    """What an extension added, for the settings of the tokenizer.

    Attributes:
      characters: the new pieces of a single character, joined, the most frequent first.
      pieces: the number of other new pieces.
      words: the number of words of the text.
      text_pieces: the number of pieces of the text with the old and the new vocabulary.
      unknown_pieces: the same of unknown pieces.
    """

    characters: str
    pieces: int
    words: int
    text_pieces: tuple[int, int]
    unknown_pieces: tuple[int, int]

    def report(self) -> str:
        """Return what the extension gains on its text, for the terminal."""
        a_word = (f"{count / self.words:.3f}" for count in self.text_pieces)
        unknown = (
            f"{count / pieces:.3%}"
            for count, pieces in zip(self.unknown_pieces, self.text_pieces, strict=True)
        )
        return (
            f"{self.words:,} words; pieces a word: {' -> '.join(a_word)}; "
            f"unknown: {' -> '.join(unknown)} of the pieces"
        )


def require_extensible(path: str) -> Tokenizer:
    """Load the vocabulary of --extend.

    Raises:
      InputError: it is WordPiece, or a sentencepiece model of another type than unigram.
    """
    tokenizer = load_tokenizer(path)
    if not isinstance(tokenizer.vocabulary, SentencePiece):
        raise InputError(
            "--extend must be a sentencepiece model, because WordPiece cuts each word at its "
            "longest piece: a new piece would change the ids of old words wherever it begins one. "
            f"Received: {path!r}, a WordPiece vocabulary. Train a new one without --extend."
        )
    try:  # only unigram models have several segmentations
        tokenizer.vocabulary.processor.nbest_encode("a", nbest_size=2)
    except RuntimeError:
        raise InputError(
            "--extend must be a unigram model, whose pieces have scores. Received: "
            f"{path!r}, a sentencepiece model of another type. Train a new one without --extend."
        ) from None
    return tokenizer


def extend(
    old: Tokenizer, sentences: Iterable[str], size: int, min_count: int, fold: bool
) -> tuple[Tokenizer, Added]:
    """Return the vocabulary with what the sentences need, and what was added.

    Every old piece keeps its id. A text without a new piece and without an unknown one keeps its
    ids.

    Args:
      old: a sentencepiece model.
      sentences: the text.
      size: the number of new pieces besides characters.
      min_count: how often the text must contain a new piece or character.
      fold: add the rules for typographic punctuation first.

    Raises:
      InputError: the text has fewer than `size` pieces to add.
    """
    folded = Tokenizer(fold_punctuation(old.model), old.normalization) if fold else old
    words = count_words(sentences, folded)
    before = count_pieces(words, folded)
    characters = new_characters(words, folded, min_count)
    base = extended(folded, characters, int(before.sum())) if characters else folded
    pieces = new_pieces(words, base, size, min_count) if size else {}
    if len(pieces) < size:
        raise InputError(
            f"--new_pieces must be at most {len(pieces):,} for this text: no more words and parts "
            f"of words occur at least {min_count} times (--min_count) and shorten it. "
            f"Received: {size}. Choose that or less, or pass more text."
        )
    new = extended(base, pieces, int(count_pieces(words, base).sum())) if pieces else base
    after = count_pieces(words, new)
    unknown = old.special.unk
    return new, Added(
        "".join(characters),
        len(pieces),
        sum(words.values()),
        (int(before.sum()), int(after.sum())),
        (int(before[unknown]), int(after[unknown])),
    )
