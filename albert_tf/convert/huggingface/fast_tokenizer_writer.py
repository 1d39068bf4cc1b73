"""Writing of tokenizer.json, the format of Hugging Face's library `tokenizers`.

Without the file, transformers converts spiece.model and cuts words at the vocabulary's user-defined
pieces, such as the hyphen, so that ids differ from ours.
"""

import base64
import dataclasses
from typing import Any

from albert_tf.convert.huggingface.fast_tokenizer import LOWERED, composes
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import combining_ranges, re2_class
from albert_tf.text.sentencepiece_model import WORD_MARK, SentencePiece, fields_of
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.typography import compiled_rules, folded_primes

_METASPACE = {
    "type": "Metaspace",
    "replacement": WORD_MARK,
    "prepend_scheme": "always",
    "split": True,
}

# Message of a sentencepiece model -> field -> its name and the only value, which is also the
# default, that `to_json` can express. A model_type of 1 is Unigram.
_SPECS: dict[int, dict[int, tuple[str, int]]] = {
    2: {
        3: ("model_type", 1),
        24: ("treat_whitespace_as_suffix", 0),
        35: ("byte_fallback", 0),
    },
    3: {3: ("add_dummy_prefix", 1), 4: ("remove_extra_whitespaces", 1)},
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


def require_writable(tokenizer: Tokenizer) -> None:
    """Check that `to_json` can express a sentencepiece vocabulary.

    Raises:
      InputError: it is not a Unigram model, has byte fallback, or treats spaces in another way.
    """
    for spec, fields in _SPECS.items():
        values = {
            number: value
            for each, message in fields_of(tokenizer.model)
            if each == spec and isinstance(message, bytes)
            for number, value in fields_of(message)
        }
        for number, (name, needed) in fields.items():
            if (value := values.get(number, needed)) != needed:
                raise InputError(
                    f"Hugging Face's format needs a sentencepiece model with {name}={needed}. "
                    f"Received: {value!r}. Train another one, for example by data.train_tokenizer."
                )


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
        # Their StripAccents drops all marks, such as the vowel signs of Hindi.
        pattern = {"Regex": f"[{re2_class(combining_ranges())}]"}
        normalizers += [{"type": "NFKD"}, {"type": "Replace", "pattern": pattern, "content": ""}]
    if rules.lowercase:
        normalizers.append({"type": "Lowercase"})
    # Precompiled reads one visible character at a time, so it never sees a pair.
    normalizers += map(_double_quote, folded_primes(tokenizer.model))
    if composes(tokenizer.model):
        normalizers.append({"type": "NFC"})
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
