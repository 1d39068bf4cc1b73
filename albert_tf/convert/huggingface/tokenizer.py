"""The tokenizer files in a folder of Hugging Face's transformers."""

import dataclasses
import os
import sys
from collections.abc import Mapping
from typing import Any

from albert_tf.convert.huggingface import fast_tokenizer, fast_tokenizer_writer
from albert_tf.runtime.errors import InputError, reading, shortened
from albert_tf.runtime.files import outputs
from albert_tf.text.normalization import Normalization
from albert_tf.text.sentencepiece_model import MODEL_FILE
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.wordpiece import VOCABULARY_FILE

# The ALBERT tokenizer of transformers 5 returns no token types unless its file lists them. Without
# them, a model would treat the second text of a pair as part of the first.
_INPUTS = ["input_ids", "token_type_ids", "attention_mask"]
# Their slow ALBERT tokenizer always replaces `` and '' with " and ignores this key of ours.
_UNIFY_QUOTES = "albert_tf_unify_quotes"
RULES_FILE, _ADDED_FILE = "tokenizer_config.json", "added_tokens.json"


def read(path: str) -> Tokenizer | None:
    """Read the tokenizer of a folder from its vocabulary, or else from its tokenizer.json.

    Return None if there is none.

    Raises:
      InputError: the tokenizer has rules that ours does not support.
    """
    files = [os.path.join(path, name) for name in (MODEL_FILE, VOCABULARY_FILE)]
    file = next(filter(os.path.isfile, files), None)
    if file is None:
        fast = os.path.join(path, fast_tokenizer.FILE)
        return fast_tokenizer.read(fast) if os.path.isfile(fast) else None
    rules: dict[str, Any] = {}
    if os.path.isfile(os.path.join(path, RULES_FILE)):
        rules = outputs.read_json(os.path.join(path, RULES_FILE))

    def switch(key: str, default: bool) -> bool:
        value = default if rules.get(key) is None else rules[key]
        if not isinstance(value, bool):
            raise InputError(
                f"{os.path.join(path, RULES_FILE)!r}: `{key}` must be true or false. Received: "
                f"{shortened(value)}."
            )
        return value

    if not switch("remove_space", True):
        raise InputError(f"{path!r}: a tokenizer with `remove_space` false is not supported.")
    if rules.get("truncation_side", "right") != "right":
        print(
            f"note: {path!r}: of texts that are too long, its model read the end "
            "(`truncation_side`), and ours reads the beginning.",
            file=sys.stderr,
        )
    lowercase = switch("do_lower_case", True)
    if file == files[0]:
        strips = not switch("keep_accents", False)
    else:  # BERT strips accents if it lowercases, unless its file says otherwise
        if not switch("tokenize_chinese_chars", True):
            raise InputError(
                f"{path!r}: a tokenizer with `tokenize_chinese_chars` false is not supported."
            )
        strips = switch("strip_accents", lowercase)
    unifies = switch(_UNIFY_QUOTES, file == files[0])
    normalization = Normalization(lowercase, strips, unify_quotes=unifies)
    with reading(file), open(file, "rb") as stream:
        tokenizer = Tokenizer(stream.read(), normalization, source=f"{file!r}")
    _require_no_added_tokens(path, rules, tokenizer.vocab_size)
    return tokenizer


def _require_no_added_tokens(path: str, rules: Mapping[str, Any], vocab_size: int) -> None:
    """Check that no token was added to the vocabulary, as `add_tokens` does.

    Raises:
      InputError: one was, or a list of them is damaged.
    """
    files = [os.path.join(path, name) for name in (_ADDED_FILE, fast_tokenizer.FILE)]
    lists, fast = (outputs.read_json(file) if os.path.isfile(file) else {} for file in files)
    try:
        added = {number: token for token, number in lists.items()}
        added |= rules.get("added_tokens_decoder") or {}
        added |= {token["id"]: token for token in fast.get("added_tokens") or ()}
        more = {int(number): token for number, token in added.items() if int(number) >= vocab_size}
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path!r}: its added tokens must have numbers ({error}).") from None
    if more:
        token = more[min(more)]
        name = token.get("content") if isinstance(token, Mapping) else token
        raise InputError(
            f"{path!r}: tokens that were added to the vocabulary are not supported. Received: "
            f"{name!r}, the first of {len(more)}. Convert the model that it was trained from."
        )


def write(tokenizer: Tokenizer, folder: str, max_length: int) -> None:
    """Write the vocabulary and the rules that AutoTokenizer needs.

    `max_length` is the number of pieces to which it truncates on request.
    """
    with open(os.path.join(folder, tokenizer.vocabulary.file), "wb") as file:
        file.write(tokenizer.model)
    special = dataclasses.asdict(tokenizer.special)
    pieces = {f"{name}_token": tokenizer.id_to_piece(i) for name, i in special.items()}
    rules = tokenizer.normalization
    if is_sentencepiece(tokenizer):
        accents = {"keep_accents": not rules.strip_accents, "remove_space": True}
        # Their AlbertTokenizer would replace the normalizer of tokenizer.json by its own.
        kind = {"tokenizer_class": "PreTrainedTokenizerFast"} | accents
        kind |= {"bos_token": pieces["cls_token"], "eos_token": pieces["sep_token"]}
    else:
        kind = {"tokenizer_class": "BertTokenizer", "strip_accents": rules.strip_accents}
    values = pieces | kind | {"do_lower_case": rules.lowercase, "model_input_names": _INPUTS}
    values |= {_UNIFY_QUOTES: rules.unify_quotes, "model_max_length": max_length}
    outputs.write_json(os.path.join(folder, RULES_FILE), values)
    if is_sentencepiece(tokenizer):
        path = os.path.join(folder, fast_tokenizer.FILE)
        outputs.write_json(path, fast_tokenizer_writer.to_json(tokenizer))


def is_sentencepiece(tokenizer: Tokenizer) -> bool:
    """Return True for a sentencepiece vocabulary, False for WordPiece."""
    return tokenizer.vocabulary.file == MODEL_FILE
