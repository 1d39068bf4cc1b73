"""Reading of tokenizer.json, the format of Hugging Face's library `tokenizers`.

It becomes the sentencepiece model that it was made from, piece for piece. `tokenizers` itself does
not always give the ids of that model: transformers 5 splits a text at listed marks such as `"`
before anything else, and has no rule for numbers with a comma.
"""

import base64
import json
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import sentencepiece

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.text.normalization import Normalization
from albert_tf.text.sentencepiece_model import (
    MODEL_FILE,
    WORD_MARK,
    bytes_field,
    float_field,
    integer_field,
)
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.typography import DOUBLE_PRIMES

FILE = "tokenizer.json"
# Their normalizer's steps in the order of ours; a step that is a pair is a Replace.
_QUOTES = [("``", '"'), ("''", '"')]
_STRIPS_ACCENTS = "StripAccents"
_ACCENTS = ["NFKD", _STRIPS_ACCENTS]
_FIRST_MARK = r"[\x{300}"  # how the pattern of our own step begins; its end depends on Unicode
_LOWERCASE, _COMPOSED = ["Lowercase"], ["NFC", "Precompiled"]
_CHARSMAP = ["Precompiled"]
_PRIMES = [[(pair, '"')] for pair in DOUBLE_PRIMES]  # also in the map of characters
_SPACES = [(" {2,}", " "), (" {2,}", WORD_MARK)]  # like Strip, part of every sentencepiece model
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4  # sentencepiece's types of pieces
LOWERED = 100  # what transformers subtracts from the scores of pieces such as "▁2010,"
_MALFORMED = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError, struct.error)


class _UnsupportedError(ValueError):
    """A part of the file that a sentencepiece model cannot express."""


def read(file: str) -> Tokenizer:
    """Read a Unigram model with its scores and its map of characters.

    Raises:
      InputError: the file holds another model, or rules that ours does not have.
    """
    values = outputs.read_json(file)
    try:
        normalization, charsmap = _normalizer(values["normalizer"])
        _check_splitting(values["pre_tokenizer"])
        model = _sentencepiece(values["model"], values["added_tokens"], charsmap)
        if '"NFC"' in json.dumps(values["normalizer"]) and not composes(model):
            raise _UnsupportedError("its normalizer has NFC and its map of characters has not")
    except _MALFORMED as error:
        reason = f"{error}" if isinstance(error, _UnsupportedError) else "its form is unknown"
        raise InputError(
            f"{file!r} cannot be read exactly: {reason}. Add the {MODEL_FILE} or vocab.txt of the "
            f"model that it was trained from, or remove {FILE} to convert without a tokenizer."
        ) from None
    return Tokenizer(model, normalization, source=f"{file!r}")


def composes(model: bytes) -> bool:
    """Return True if the map of a sentencepiece model composes characters, such as Hangul.

    Precompiled, which has the same map, reads one visible character at a time and does not.
    """
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    return "\uac00" in processor.normalize("\u1100\u1161")


def _normalizer(spec: Mapping[str, Any]) -> tuple[Normalization, bytes]:
    """Return our rules, and sentencepiece's compiled map of characters (empty for none)."""
    parts = spec["normalizers"] if spec["type"] == "Sequence" else [spec]
    steps = [_step(part) for part in parts]
    rules = [step for step in steps if step not in (*_SPACES, "Strip")]
    expected: list[Any] = []
    last = _COMPOSED if "NFC" in rules else _CHARSMAP
    groups: tuple[list[Any], ...] = (_QUOTES, _ACCENTS, _LOWERCASE, *_PRIMES, last)
    for group in groups:
        expected += group if group[0] in rules else []
    if rules != expected:
        raise _UnsupportedError(f"its normalizer has the steps {', '.join(map(str, steps))}")
    (charsmap,) = [p["precompiled_charsmap"] for p in parts if p["type"] == "Precompiled"] or [""]
    return (
        Normalization("Lowercase" in rules, "NFKD" in rules, unify_quotes=_QUOTES[0] in rules),
        base64.b64decode(charsmap),
    )


def _step(part: Mapping[str, Any]) -> Any:
    if part["type"] != "Replace":
        return part["type"]
    (pattern,) = part["pattern"].values()
    if pattern.startswith(_FIRST_MARK) and not part["content"]:
        return _STRIPS_ACCENTS
    return pattern, part["content"]


def _check_splitting(spec: Mapping[str, Any]) -> None:
    """Check that words are split as in sentencepiece: at spaces, each with a mark before it."""
    parts = spec["pretokenizers"] if spec["type"] == "Sequence" else [spec]
    *before, last = parts
    has_prefix = last.get("prepend_scheme", "always" if last.get("add_prefix_space") else "never")
    if (
        any(part["type"] != "WhitespaceSplit" for part in before)
        or last["type"] != "Metaspace"
        or last["replacement"] != WORD_MARK
        or has_prefix == "never"
    ):
        raise _UnsupportedError(f"its pre_tokenizer is {', '.join(p['type'] for p in parts)}")


def _sentencepiece(
    model: Mapping[str, Any], added_tokens: Sequence[Mapping[str, Any]], charsmap: bytes
) -> bytes:
    """Return the bytes of a sentencepiece model, a Protocol Buffers message."""
    if model["type"] != "Unigram" or model.get("byte_fallback"):
        bytes_too = " with bytes" if model.get("byte_fallback") else ""
        raise _UnsupportedError(f"its model must be Unigram and is {model['type']}{bytes_too}")
    vocabulary = model["vocab"]
    control = {token["id"] for token in added_tokens if token["special"]}
    for token in added_tokens:
        if token["id"] >= len(vocabulary) or vocabulary[token["id"]][0] != token["content"]:
            raise _UnsupportedError(f"its token {token['content']!r} was added to the vocabulary")
    encoded = bytearray()
    for i, (piece, score) in enumerate(vocabulary):
        kind = _NORMAL if score else _USER_DEFINED  # no trained piece has the score 0
        kind = _UNKNOWN if i == model["unk_id"] else _CONTROL if i in control else kind
        score += LOWERED if score <= -LOWERED else 0
        fields = bytes_field(1, piece.encode()) + float_field(2, score) + integer_field(3, kind)
        encoded += bytes_field(1, fields)
    # model_type UNIGRAM and unk_id; the name of the map, and the map.
    trainer = integer_field(3, 1) + integer_field(40, model["unk_id"])
    normalizer = bytes_field(1, b"nmt_nfkc" if charsmap else b"identity") + bytes_field(2, charsmap)
    return bytes(encoded + bytes_field(2, trainer) + bytes_field(3, normalizer))
