"""Writing of tokenizer.json, the format of Hugging Face's library `tokenizers`.

Without the file, transformers converts spiece.model and cuts words at the vocabulary's user-defined
pieces, such as the hyphen, so that ids differ from ours.
"""

import base64
import dataclasses
from typing import Any

from albert_tf.convert.huggingface.fast_tokenizer import LOWERED
from albert_tf.text.sentencepiece_model import WORD_MARK, SentencePiece
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.typography import compiled_rules, folded_primes

_METASPACE = {
    "type": "Metaspace",
    "replacement": WORD_MARK,
    "prepend_scheme": "always",
    "split": True,
}


def to_json(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return the content of the file for a sentencepiece vocabulary.

    Instead of the digit-comma rule, pieces such as "▁2010," have low scores, as in transformers.
    """
    assert isinstance(tokenizer.vocabulary, SentencePiece)
    scores = tokenizer.vocabulary.processor.get_score(list(range(tokenizer.vocab_size)))
    for i in tokenizer.replacements:
        scores[i] -= LOWERED
    special = sorted(dataclasses.astuple(tokenizer.special))
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [_added_token(i, tokenizer.id_to_piece(i)) for i in special],
        "normalizer": {"type": "Sequence", "normalizers": _normalizers(tokenizer)},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "WhitespaceSplit"}, _METASPACE],
        },
        "post_processor": _post_processor(tokenizer),
        "decoder": _METASPACE,
        "model": {
            "type": "Unigram",
            "unk_id": tokenizer.special.unk,
            "vocab": [list(pair) for pair in zip(tokenizer.vocabulary.pieces, scores, strict=True)],
            "byte_fallback": False,
        },
    }


def _added_token(i: int, content: str) -> dict[str, Any]:
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    return {"id": i, "content": content, **flags, "special": True}


def _normalizers(tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Return the rules of `Normalization`, then the model's own."""
    rules = tokenizer.normalization
    normalizers: list[dict[str, Any]] = []
    if rules.unify_quotes:
        normalizers += map(_double_quote, ("``", "''"))
    if rules.strip_accents:
        normalizers += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if rules.lowercase:
        normalizers.append({"type": "Lowercase"})
    # Precompiled reads one visible character at a time, so it never sees a pair.
    normalizers += map(_double_quote, folded_primes(tokenizer.model))
    if compiled := compiled_rules(tokenizer.model):
        text = base64.b64encode(compiled).decode()
        normalizers.append({"type": "Precompiled", "precompiled_charsmap": text})
    return normalizers


def _double_quote(pair: str) -> dict[str, Any]:
    return {"type": "Replace", "pattern": {"String": pair}, "content": '"'}


def _post_processor(tokenizer: Tokenizer) -> dict[str, Any]:
    """Return [CLS] A [SEP] and [CLS] A [SEP] B [SEP], with the types 0 and 1."""
    ids = {name: getattr(tokenizer.special, name) for name in ("cls", "sep")}
    pieces = {name: tokenizer.id_to_piece(i) for name, i in ids.items()}

    def special(name: str, segment: int) -> dict[str, Any]:
        return {"SpecialToken": {"id": pieces[name], "type_id": segment}}

    def text(name: str, segment: int) -> dict[str, Any]:
        return {"Sequence": {"id": name, "type_id": segment}}

    single = [special("cls", 0), text("A", 0), special("sep", 0)]
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", 1), special("sep", 1)],
        "special_tokens": {
            pieces[name]: {"id": pieces[name], "ids": [i], "tokens": [pieces[name]]}
            for name, i in ids.items()
        },
    }
