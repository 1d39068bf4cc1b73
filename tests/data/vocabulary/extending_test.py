"""Tests of the extension as a whole: what it keeps, adds, says and refuses."""

import io

import pytest
import sentencepiece

from albert_tf.runtime.errors import InputError
from albert_tf.text.extension import why_no_extension
from data.vocabulary.extending import extend, require_extensible

TEXT = ["Photosynthesis of chloroplasts !home", "It’s photosynthetic", "😀 a chloroplast"] * 5


def test_characters_and_frequent_pieces_are_added(small_tokenizer):
    new, added = extend(small_tokenizer, TEXT, 3, 5, fold=True)
    assert why_no_extension(small_tokenizer, new) == ""
    assert new.vocab_size == 300 + 2 + 3
    assert new.vocabulary.pieces[300:302] == ["!", "😀"] == list(added.characters)
    assert (added.pieces, added.words, added.unknown_pieces) == (3, 45, (10, 0))
    before, after = added.text_pieces
    assert before == sum(map(len, small_tokenizer.encode_batch(TEXT)))
    assert after == sum(map(len, new.encode_batch(TEXT))) < before
    assert f"45 words; pieces a word: {before / 45:.3f} -> {after / 45:.3f}; " in added.report()


def test_characters_only(small_tokenizer):
    new, added = extend(small_tokenizer, TEXT, 0, 5, fold=True)
    assert new.vocabulary.pieces[300:] == ["!", "😀"] and added.pieces == 0
    text = "the value is returned"
    assert new.encode(text) == small_tokenizer.encode(text)
    same, added = extend(small_tokenizer, TEXT, 0, 6, fold=False)
    assert same is small_tokenizer and added.characters == ""


def test_a_text_that_is_too_small(small_tokenizer):
    with pytest.raises(InputError, match=r"--new_pieces must be at most \d+ for this text.*: 900"):
        extend(small_tokenizer, TEXT, 900, 5, fold=True)


def test_the_rules_of_typography_are_added_unless_told_not_to(plain_tokenizer):
    for fold in (True, False):
        new, _ = extend(plain_tokenizer, ["it’s"] * 3, 0, 3, fold=fold)
        assert (new.encode("it’s") == new.encode("it's")) == fold
        assert ("’" in new.vocabulary.pieces) != fold


@pytest.fixture
def plain_tokenizer():
    from albert_tf.text.tokenizer import Tokenizer
    from data.train_tokenizer import TrainTokenizerOptions, train_model

    options = TrainTokenizerOptions("", "", vocab_size=22, fold_punctuation=False)
    return Tokenizer(train_model(["it's a test of it's"] * 20, options))


@pytest.mark.parametrize("kind", ["bpe", "char"])
def test_other_models_are_refused(kind, tmp_path):
    stream = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["a few words of a few letters"] * 20),
        model_writer=stream,
        vocab_size=24,
        hard_vocab_limit=False,
        model_type=kind,
        pad_id=0,
        unk_id=1,
        bos_id=-1,
        eos_id=-1,
        control_symbols=["[CLS]", "[SEP]", "[MASK]"],
        minloglevel=2,
    )
    (tmp_path / "spiece.model").write_bytes(stream.getvalue())
    with pytest.raises(InputError, match="--extend must be a unigram model.*another type"):
        require_extensible(str(tmp_path))


def test_wordpiece_is_refused(tmp_path):
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na\n")
    with pytest.raises(InputError, match="--extend must be a sentencepiece model, because WordPi"):
        require_extensible(str(tmp_path / "vocab.txt"))
