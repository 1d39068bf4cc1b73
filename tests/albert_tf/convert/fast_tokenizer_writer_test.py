"""Tests that tokenizer.json, as we write it, holds the whole vocabulary."""

import io
import json
import unicodedata

import pytest
import sentencepiece
import tokenizers

from albert_tf.convert.huggingface import fast_tokenizer_writer
from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.typography import PUNCTUATION, fold_punctuation
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


@pytest.mark.parametrize("accents", [True, False])
def test_marks_that_are_no_accents_stay(accents, tmp_path):
    """Vowel signs, and what makes an emoji of a character; accents are dropped."""
    included = load_tokenizer("albert-mini-en")
    tokenizer = Tokenizer(included.model, Normalization(strip_accents=accents))
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 64)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("I \u2764\ufe0f it", "1\ufe0f\u20e3 first", "हिन्दी भाषा", "na\u00efve e\u0301 ok"):
        assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)


@pytest.mark.parametrize("accents", [True, False])
def test_decomposed_characters_become_one(accents, tmp_path):
    """NFKD divides the syllables of Korean; the map of a sentencepiece model joins them again."""
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["대한민국 서울", "학교에 갔습니다", "ca phê sữa đá மொழி"] * 20),
        model_writer=stream,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        vocab_size=60,
        hard_vocab_limit=False,
        minloglevel=2,
        **SPECIAL,
    )
    tokenizer = Tokenizer(stream.getvalue(), Normalization(strip_accents=accents))
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 64)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    for text in ("대한민국 학교", "மொழி", "sữa đá phê"):
        for form in ("NFC", "NFD"):
            written = unicodedata.normalize(form, text)
            ids = theirs.encode(written, add_special_tokens=False).ids
            assert ids == tokenizer.encode(written)
    assert tokenizer.special.unk not in tokenizer.encode("대한민국")
    for name in ("spiece.model", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    assert huggingface_tokenizer.read(str(tmp_path)).encode(text) == tokenizer.encode(text)
    file = tmp_path / "tokenizer.json"
    values = json.loads(file.read_text(encoding="utf-8"))
    values["normalizer"]["normalizers"] = [{"type": "NFC"}]
    file.write_text(json.dumps(values), encoding="utf-8")
    with pytest.raises(InputError, match="has the steps NFC"):
        huggingface_tokenizer.read(str(tmp_path))


SPECIAL = {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1}


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ({"model_type": "bpe"}, "model_type=1. Received: 2"),
        ({"model_type": "char"}, "model_type=1. Received: 4"),
        ({"byte_fallback": True, "vocab_size": 300}, "byte_fallback=0. Received: 1"),
        ({"treat_whitespace_as_suffix": True}, "treat_whitespace_as_suffix=0. Received: 1"),
        ({"add_dummy_prefix": False}, "add_dummy_prefix=1. Received: 0"),
        ({"remove_extra_whitespaces": False}, "remove_extra_whitespaces=1. Received: 0"),
        ({"normalization_rule_name": "identity"}, None),  # no map of characters
    ],
)
def test_other_models_than_the_format_has(option, message, tmp_path):
    values = {"vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2} | SPECIAL | option
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a quick fox jumps", "the lazy dogs sleep"] * 20),
        model_writer=stream,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        **values,
    )
    tokenizer = Tokenizer(stream.getvalue())
    if message:
        with pytest.raises(InputError, match=message):
            fast_tokenizer_writer.require_writable(tokenizer)
        return
    fast_tokenizer_writer.require_writable(tokenizer)
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 64)
    theirs = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    text = "the quick dog"
    assert theirs.encode(text, add_special_tokens=False).ids == tokenizer.encode(text)
    assert fold_punctuation(tokenizer.model) != tokenizer.model


def test_only_special_pieces_are_listed_as_tokens(comma_tokenizer, tmp_path):
    """transformers cuts words at each listed token."""
    huggingface_tokenizer.write(comma_tokenizer, str(tmp_path), 64)
    values = json.loads((tmp_path / "tokenizer.json").read_text(encoding="utf-8"))
    tokens = [(token["content"], token["special"]) for token in values["added_tokens"]]
    assert tokens == [(p, True) for p in ("<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]")]
