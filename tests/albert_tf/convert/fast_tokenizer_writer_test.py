"""Tests that tokenizer.json, as we write it, holds the whole vocabulary."""

import json

import pytest

from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer
from albert_tf.text.typography import PUNCTUATION
from tests.albert_tf.convert.fast_tokenizer_test import TEXTS, must_equal


@pytest.mark.parametrize(
    "rules", [Normalization(), Normalization(False, False, True), Normalization(True, False)]
)
def test_the_vocabulary_comes_back_from_the_file_alone(comma_tokenizer, rules, tmp_path):
    """With its rules for typographic punctuation; some pieces end in a digit and a comma."""
    tokenizer = Tokenizer(comma_tokenizer.model, rules)
    assert tokenizer.replacements
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 64)
    for name in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    read = huggingface_tokenizer.read(str(tmp_path))
    must_equal(read, tokenizer, [*TEXTS, *"".join(PUNCTUATION.values())])


def test_only_special_pieces_are_listed_as_tokens(comma_tokenizer, tmp_path):
    """transformers cuts words at each listed token."""
    huggingface_tokenizer.write(comma_tokenizer, str(tmp_path), 64)
    values = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [(token["content"], token["special"]) for token in values["added_tokens"]]
    assert tokens == [(p, True) for p in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]
