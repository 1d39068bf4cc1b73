"""A sentencepiece model with ALBERT's special pieces and its digit-comma rule.

It is stored as a Protocol Buffer. Parsing concatenated messages merges them: repeated fields are
joined, and of other fields the last value remains. So a model is changed by appending fields, which
the functions at the end encode.
"""

import dataclasses
import functools
import struct
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import sentencepiece

from albert_tf.runtime import programs
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import Normalization, normalize
from albert_tf.text.words import in_ranges, word_bounds

MODEL_FILE = "spiece.model"
WORD_MARK = "▁"  # U+2581, sentencepiece's sign for a space
SPECIAL_PIECES = {"pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
# Characters other than letters that may continue a word: Google's list, which lacks the apostrophe.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """The ids of the unknown piece and of the pieces that text never produces."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def read_model(model: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    """Parse the bytes of a model.

    Raises:
      InputError: the bytes are not a model, or one of its pieces is not UTF-8; the message names
        `source`.
    """
    processor = sentencepiece.SentencePieceProcessor()
    try:
        readable = bool(model) and processor.load_from_serialized_proto(model)
    except RuntimeError:
        readable = False
    if not readable:
        raise InputError(
            f"a tokenizer must be a sentencepiece model or a WordPiece vocabulary. {source} is "
            f"neither. Pass the {MODEL_FILE} or vocab.txt of a checkpoint, or train a model with "
            f"`{programs.shown('python -m data.train_tokenizer')}`."
        )
    try:
        processor.id_to_piece(list(range(processor.get_piece_size())))
        processor.decode([processor.unk_id()])
    except UnicodeDecodeError as error:
        raise InputError(
            f"the pieces of a sentencepiece model must be UTF-8; {source} is damaged: {error}. "
            "Copy it again."
        ) from None
    return processor


def special_ids(processor: sentencepiece.SentencePieceProcessor, source: str) -> SpecialIds:
    """Look up the special pieces.

    Raises:
      InputError: a special piece is missing; the message names `source`.
    """
    ids = {name: processor.piece_to_id(piece) for name, piece in SPECIAL_PIECES.items()}
    missing = [p for name, p in SPECIAL_PIECES.items() if processor.id_to_piece(ids[name]) != p]
    if missing:
        raise InputError(
            f"a vocabulary must contain the pieces {', '.join(SPECIAL_PIECES.values())}; {source} "
            f"lacks {', '.join(missing)}. Train one with "
            f"`{programs.shown('python -m data.train_tokenizer')}`."
        )
    return SpecialIds(unk=processor.unk_id(), **ids)


class SentencePiece:
    """A sentencepiece model with ALBERT's special pieces and its digit-comma rule.

    The rule splits a piece that ends in a digit and a comma ("▁2010,") into the pieces of the
    number and a comma. It depends only on the piece, so it is a table from id to ids.
    """

    file = MODEL_FILE
    default_normalization = Normalization()

    def __init__(self, model: bytes, source: str) -> None:
        self.processor = read_model(model, source)
        self.special = special_ids(self.processor, source)
        size = self.processor.get_piece_size()
        self.pieces: list[str] = self.processor.id_to_piece(list(range(size)))
        self.replacements = {
            i: tuple(self.processor.piece_to_id(p) for p in self._split_digit_comma(piece))
            for i, piece in enumerate(self.pieces)
            if _ends_in_digit_comma(piece)
        }
        self._replaced = frozenset(self.replacements)

    @functools.cached_property
    def scores(self) -> dict[str, float]:
        """The pieces among which the model chooses by their scores, with these.

        So neither special nor user-defined pieces.
        """
        scores = self.processor.get_score(list(range(len(self.pieces))))
        chosen = dataclasses.astuple(self.special)
        pairs = enumerate(zip(self.pieces, scores, strict=True))
        return {piece: score for i, (piece, score) in pairs if score and i not in chosen}

    def encode_batch(
        self, texts: Sequence[str], rules: Normalization, num_threads: int
    ) -> list[list[int]]:
        """Return the ids of each text."""
        normal = normalize(texts, rules)
        batch: list[list[int]] = self.processor.encode(normal, num_threads=num_threads)
        clean = self._replaced.isdisjoint
        for row in [row for row, ids in enumerate(batch) if not clean(ids)]:
            batch[row] = [new for i in batch[row] for new in self.replacements.get(i, (i,))]
        return batch

    def cut(self, text: str, rules: Normalization) -> list[str]:
        """Return the pieces of a text; an unknown piece is returned as its text."""
        (normal,) = normalize([text], rules)
        pieces: list[str] = []
        for piece in self.processor.encode(normal, out_type=str):
            pieces.extend(
                self._split_digit_comma(piece) if _ends_in_digit_comma(piece) else [piece]
            )
        return pieces

    def normalized(self, texts: Sequence[str], rules: Normalization) -> str:
        """Return the characters that are split into pieces, those of all texts together."""
        return "".join(self.processor.normalize(normalize(texts, rules)))

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids."""
        text: str = self.processor.decode(list(ids))
        return text

    def starts_word(self, piece: str) -> bool:
        """Return True if a piece begins a word.

        A piece continues a word if it consists only of letters and Google's punctuation, is not a
        single punctuation mark and does not begin with ▁ or <. So each piece with a digit, with
        Korean or with a character of a script without spaces begins a word. In Google's code, only
        a-z and A-Z are letters.
        """
        if piece.startswith((WORD_MARK, "<")) or piece in _PUNCTUATION:
            return True
        return not all(map(_continues_word, piece))

    def num_characters(self, piece: str) -> int:
        """Return the number of characters that a piece stands for; its ▁ is a space."""
        return len(piece)

    def _split_digit_comma(self, piece: str) -> list[str]:
        """Apply the rule as Model Garden's tools and transformers' slow tokenizer define it."""
        number = self.processor.encode(piece[:-1].replace(WORD_MARK, ""), out_type=str)
        # The model adds a space before every text; a piece inside a word has none.
        if number and piece[0] != WORD_MARK and number[0][0] == WORD_MARK:
            number = number[1:] if number[0] == WORD_MARK else [number[0][1:], *number[1:]]
        return [*number, piece[-1]]


@functools.cache
def _continues_word(char: str) -> bool:
    if char in _PUNCTUATION or char.lower() in _LETTERS:
        return True
    category = unicodedata.category(char)
    return category[0] in "LM" and bool(in_ranges(np.array(ord(char)), word_bounds()))


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


@functools.lru_cache(2**12)
def varint(value: int) -> bytes:
    """Return the encoding of a non-negative integer; a ValueError for a negative one."""
    if value < 0:
        raise ValueError(value)
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def fields_of(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield the number and the value of each field of a message; floats as their bytes."""

    def number_at(place: int) -> tuple[int, int]:
        """Return the varint at a place, and where it ends."""
        end = next(end for end in range(place, len(message)) if message[end] < 0x80) + 1
        parts = enumerate(message[place:end])
        return sum((part & 0x7F) << (7 * i) for i, part in parts), end

    place = 0
    while place < len(message):
        key, place = number_at(place)
        if key & 7 == 0:
            value, place = number_at(place)
            yield key >> 3, value
            continue
        size = {1: 8, 5: 4}.get(key & 7, 0)
        if not size:
            size, place = number_at(place)
        yield key >> 3, message[place : place + size]
        place += size


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that holds bytes, a string or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def integer_field(number: int, value: int) -> bytes:
    """Return a field that holds an integer or an enum."""
    return varint(number << 3) + varint(value)


def float_field(number: int, value: float) -> bytes:
    """Return a field that holds a float of 32 bits."""
    return varint(number << 3 | 5) + struct.pack("<f", value)
