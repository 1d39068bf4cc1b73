"""A sentencepiece model as ALBERT needs it: readable, and with the special pieces."""

import dataclasses

import sentencepiece

from albert_tf.errors import InputError

MODEL_FILE = "spiece.model"
SPECIAL_PIECES = {"pad": "<pad>", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


@dataclasses.dataclass(frozen=True)
class SpecialIds:
    """Ids of the pieces that text never produces, and of the unknown piece."""

    pad: int
    unk: int
    cls: int
    sep: int
    mask: int


def read_model(model: bytes, source: str) -> sentencepiece.SentencePieceProcessor:
    """Parses a model's bytes; InputError, naming `source`, when they are none."""
    processor = sentencepiece.SentencePieceProcessor()
    try:
        readable = bool(model) and processor.load_from_serialized_proto(model)
    except RuntimeError:
        readable = False
    if not readable:
        raise InputError(
            f"a tokenizer must be a sentencepiece model, and {source} is none. Give the "
            f"{MODEL_FILE} of a checkpoint, or train one with `python -m data.train_tokenizer`."
        )
    return processor


def special_ids(processor: sentencepiece.SentencePieceProcessor, source: str) -> SpecialIds:
    """Looks the special pieces up; InputError, naming `source`, when one is missing."""
    ids = {name: processor.piece_to_id(piece) for name, piece in SPECIAL_PIECES.items()}
    missing = [p for name, p in SPECIAL_PIECES.items() if processor.id_to_piece(ids[name]) != p]
    if missing:
        raise InputError(
            f"a vocabulary must hold the pieces {', '.join(SPECIAL_PIECES.values())}; {source} "
            f"lacks {', '.join(missing)}. Train one with `python -m data.train_tokenizer`."
        )
    return SpecialIds(unk=processor.unk_id(), **ids)
