"""Vocabularies that extend another one: every old piece keeps its id, and new pieces follow."""

import math
from collections.abc import Mapping

import numpy as np
import sentencepiece

from albert_tf.text.sentencepiece_model import (
    WORD_MARK,
    SentencePiece,
    bytes_field,
    float_field,
    integer_field,
)
from albert_tf.text.tokenizer import Tokenizer

_UNKNOWN = -1000.0  # score of an unknown character: less than that of any word
_MARGIN = 0.1  # by which a new piece beats its parts


def add_pieces(model: bytes, scores: Mapping[str, float]) -> bytes:
    """Return a sentencepiece model with further pieces, whose ids follow the old ones in order."""
    size = len(sentencepiece.SentencePieceProcessor(model_proto=model)) + len(scores)
    added = b"".join(
        bytes_field(1, bytes_field(1, piece.encode()) + float_field(2, score))
        for piece, score in scores.items()
    )
    merged = model + added + bytes_field(2, integer_field(4, size))  # the trainer's vocab_size
    return bytes(sentencepiece.SentencePieceProcessor(model_proto=merged).serialized_model_proto())


def best_split(text: str, scores: Mapping[str, float]) -> tuple[float, list[str]]:
    """Return the pieces of a text with the highest sum of scores, and the sum.

    Each character that is no piece is returned by itself.
    """
    best: list[tuple[float, int]] = [(0.0, 0)]  # of each beginning: its sum, where its last begins
    for end in range(1, len(text) + 1):
        choices = [
            (best[begin][0] + scores[piece], begin)
            for begin in range(end)
            if (piece := text[begin:end]) in scores
        ]
        best.append(max([*choices, (best[end - 1][0] + _UNKNOWN, end - 1)]))
    pieces, end = [], len(text)
    while end:
        pieces.append(text[best[end][1] : end])
        end = best[end][1]
    return best[-1][0], pieces[::-1]


def why_no_extension(old: Tokenizer, new: Tokenizer) -> str:
    """Return the first reason why `new` does not extend `old`; empty if it does."""
    for tokenizer in (old, new):
        if not isinstance(tokenizer.vocabulary, SentencePiece):
            return "only a sentencepiece model can be extended"
    if new.normalization != old.normalization:
        return "its options of normalization differ"
    pieces = old.vocabulary.pieces, new.vocabulary.pieces
    for i, (before, after) in enumerate(zip(*pieces, strict=False)):
        if before != after:
            return f"its piece {i:,} is {after!r}, not {before!r}"
    if new.vocab_size <= old.vocab_size:
        return f"it has {new.vocab_size:,} pieces, not more than {old.vocab_size:,}"
    return ""


def origins(old: Tokenizer, new: Tokenizer) -> list[list[list[int]]]:
    """Return the old ids that stand for each part of each piece that `new` adds to `old`.

    The parts are the pieces into which the old vocabulary splits it. For a character that is
    unknown there, all pieces of a single character stand.
    """
    assert isinstance(old.vocabulary, SentencePiece)
    scores = old.vocabulary.scores
    ids = {piece: i for i, piece in enumerate(old.vocabulary.pieces)}
    single = [ids[piece] for piece in scores if len(piece) == 1 and piece != WORD_MARK]
    return [
        [[ids[part]] if part in scores else single for part in best_split(piece, scores)[1]]
        for piece in new.vocabulary.pieces[old.vocab_size :]
    ]


def distinct_scores(
    uses: Mapping[str, int], total: int, old: Mapping[str, float]
) -> dict[str, float]:
    """Return scores with which new pieces are used.

    A piece gets the logarithm of its share of all pieces, as in training, but more than the best
    sum of its parts. All scores are inside the range of the old ones, so that neither unknown
    characters nor user-defined pieces change their scores, and each is unique: programs choose
    differently between segmentations of equal score.

    Args:
      uses: the new pieces, with their numbers in a text.
      total: the number of all pieces of the text.
      old: the scores of the old pieces.
    """
    low, high = np.float32(min(old.values())), np.float32(max(old.values()))
    known, taken = dict(old), set(old.values())
    for piece in sorted(uses, key=lambda piece: (len(piece), piece)):
        wanted = max(math.log(max(uses[piece], 1) / total), best_split(piece, known)[0] + _MARGIN)
        score = np.clip(np.float32(wanted), low, high)
        while float(score) in taken:
            score = np.nextafter(score, (low + high) / 2)
        known[piece] = float(score)
        taken.add(float(score))
    return {piece: known[piece] for piece in uses}
