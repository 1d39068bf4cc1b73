"""Tests that exported preprocessing keeps TF Hub's contract and gives the Python face's ids."""

import json
import subprocess
import sys

import pytest
import tensorflow as tf

from albert_tf.export.saved_model import save
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.pretrained.preprocessing import PreprocessingModule
from albert_tf.text.alignment import align
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

TEXTS = ["In 2009, or 1,000, of the VALUE.", "naïve", "", "one value of the statement " * 9]
NAMES = {"input_word_ids", "input_mask", "input_type_ids"}
SEQ_LENGTH = 16


@pytest.fixture(scope="module")
def tiny(comma_tokenizer: Tokenizer) -> Tokenizer:
    return comma_tokenizer


@pytest.fixture(scope="module")
def folder(tiny, tmp_path_factory) -> str:
    root = tmp_path_factory.mktemp("export")
    (root / "config.json").write_text("{}")
    path = str(root / "preprocessing" / "1")
    save(PreprocessingModule(tiny, SEQ_LENGTH), path, tiny, str(root / "config.json"))
    return path


@pytest.fixture(scope="module")
def loaded(folder):
    return tf.saved_model.load(folder)


def single(tokenizer: Tokenizer, text: str, seq_length: int) -> list[int]:
    ids = [2, *tokenizer.encode(text)[: seq_length - 2], 3]
    return ids + [0] * (seq_length - len(ids))


def test_one_call_and_its_signature(tiny, loaded):
    wanted = [single(tiny, text, SEQ_LENGTH) for text in TEXTS]
    signature = loaded.signatures["serving_default"]
    for packed in (loaded(tf.constant(TEXTS)), signature(text=tf.constant(TEXTS))):
        assert set(packed) == NAMES
        assert packed["input_word_ids"].numpy().tolist() == wanted
        assert packed["input_mask"].numpy().tolist() == [[int(i > 0) for i in r] for r in wanted]
        assert not packed["input_type_ids"].numpy().any()


def test_two_steps(tiny, loaded):
    ids = loaded.tokenize(tf.constant(TEXTS))
    assert ids.to_list() == tiny.encode_batch(TEXTS)
    for length in (8, tf.constant(8)):
        row = loaded.bert_pack_inputs([ids], seq_length=length)["input_word_ids"][0]
        assert row.numpy().tolist() == single(tiny, TEXTS[0], 8)
    assert loaded.bert_pack_inputs([ids])["input_mask"].shape == (len(TEXTS), SEQ_LENGTH)
    pair = loaded.bert_pack_inputs([ids, ids], seq_length=64)
    one = [*tiny.encode(TEXTS[0]), 3]
    assert pair["input_word_ids"][0].numpy().tolist()[: 1 + 2 * len(one)] == [2, *one, *one]
    assert pair["input_type_ids"][0].numpy().sum() == len(one)


def test_offsets_are_bytes_of_the_text(tiny, loaded):
    """By the Python face's characters, each as many bytes as it is in UTF-8."""
    texts = [*TEXTS, "Caf\u00e9 of  the \ufb01ne\n values\u200b", "\u00bd\u00bd in 2009,", " \t"]
    ids, starts, limits = loaded.tokenize_with_offsets(tf.constant(texts))
    assert ids.to_list() == loaded.tokenize(tf.constant(texts)).to_list()
    pieces, row = align(texts, tiny), 0
    for text, start, limit in zip(texts, starts.to_list(), limits.to_list(), strict=True):
        for begin, end in zip(start, limit, strict=True):
            assert begin == len(text[: pieces.first[row]].encode())
            assert end == len(text[: pieces.last[row] + 1].encode())
            row += 1
    assert row == len(pieces.ids)
    first = [TEXTS[0].encode()[a:b] for a, b in zip(starts[0], limits[0], strict=True)]
    assert b"".join(first) == TEXTS[0].replace(" ", "").encode()


def test_offsets_of_bytes_that_are_not_utf8(loaded):
    """Three bytes that are two U+FFFD, which sentencepiece leaves out: the next piece has them."""
    text = b"the \xff\xe2\x82 value value"
    ids, starts, limits = loaded.tokenize_with_offsets(tf.constant([b"\xff", text]))
    assert ids[1, 1] == ids[1, 2]
    assert starts[1].numpy().tolist() == [0, 4, 14]
    assert limits[1].numpy().tolist() == [3, 13, 19]


def test_words_of_pieces_are_packed_too(loaded):
    words = tf.ragged.constant([[[5, 6], [7]], [[8]]], dtype=tf.int32)  # [B, (words), (pieces)]
    packed = loaded.bert_pack_inputs([words], seq_length=6)["input_word_ids"]
    assert packed.numpy().tolist() == [[2, 5, 6, 7, 3, 0], [2, 8, 3, 0, 0, 0]]


def test_special_tokens(loaded):
    wanted = dict(
        vocab_size=400, padding_id=0, start_of_sequence_id=2, end_of_segment_id=3, mask_id=4
    )
    for function in (loaded.get_special_tokens_dict, loaded.tokenize.get_special_tokens_dict):
        assert {name: int(value) for name, value in function().items()} == wanted


def test_under_hub_keras_layers(tiny, folder, loaded):
    hub = pytest.importorskip("tensorflow_hub")
    tf_keras = pytest.importorskip("tf_keras")
    text_a, text_b = (tf_keras.Input([], dtype=tf.string) for _ in range(2))
    tokenize = hub.KerasLayer(loaded.tokenize)
    pack = hub.KerasLayer(loaded.bert_pack_inputs, arguments={"seq_length": SEQ_LENGTH})
    outputs = [pack([tokenize(text_a), tokenize(text_b)]), hub.KerasLayer(folder)(text_a)]
    assert {tuple(value.shape) for value in outputs[0].values()} == {(None, SEQ_LENGTH)}
    model = tf_keras.Model([text_a, text_b], outputs)
    pair, one = model([tf.constant(["a value"]), tf.constant(["2009,"])])
    first, second = tiny.encode("a value"), tiny.encode("2009,")
    ids = [2, *first, 3, *second, 3]
    assert pair["input_word_ids"].numpy().tolist() == [ids + [0] * (SEQ_LENGTH - len(ids))]
    assert one["input_word_ids"].numpy().tolist() == [single(tiny, "a value", SEQ_LENGTH)]


def test_the_folder_is_a_tokenizer_too(tiny, folder):
    assert load_tokenizer(folder).fingerprint == tiny.fingerprint


@pytest.mark.slow
def test_a_wordpiece_vocabulary(tmp_path):
    pieces = ["[UNK]", "[SEP]", "[CLS]", "value", "##s", "中", "国", ",", "[MASK]", "[PAD]"]
    tokenizer = Tokenizer("\n".join(pieces).encode())
    (tmp_path / "config.json").write_text("{}")
    save(
        PreprocessingModule(tokenizer, 8), str(tmp_path / "1"), tokenizer, tmp_path / "config.json"
    )
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    packed = loaded(tf.constant(["VALUES, 中国", "[MASK]"]))
    assert packed["input_word_ids"].numpy().tolist() == [
        [2, 3, 4, 7, 5, 6, 1, 9],
        [2, 0, 0, 0, 1, 9, 9, 9],
    ]
    assert packed["input_mask"].numpy().sum(axis=1).tolist() == [7, 5]
    ids, starts, limits = loaded.tokenize_with_offsets(tf.constant(["", "VALUES, \u4e2d\u56fd"]))
    assert ids.to_list() == [[], [3, 4, 7, 5, 6]]
    assert starts.to_list() == [[], [0, 5, 6, 8, 11]]
    assert limits.to_list() == [[], [5, 6, 7, 11, 14]]
    special = {name: int(value) for name, value in loaded.get_special_tokens_dict().items()}
    assert special == dict(
        vocab_size=10, padding_id=9, start_of_sequence_id=2, end_of_segment_id=1, mask_id=8
    )
    assert load_tokenizer(tmp_path / "1").fingerprint == tokenizer.fingerprint


@pytest.mark.slow  # it imports TensorFlow once more
def test_another_process_needs_no_code_of_ours(tiny, folder, tmp_path):
    code = (
        "import json, sys, tensorflow as tf, tensorflow_text\n"
        "model = tf.saved_model.load(sys.argv[1])\n"
        "print(json.dumps(model.tokenize(tf.constant(json.loads(sys.argv[2]))).to_list()))\n"
        "assert not any(name.startswith('albert_tf') for name in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder, json.dumps(TEXTS)],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    assert json.loads(done.stdout) == tiny.encode_batch(TEXTS)


def test_mistakes(tiny, folder):
    with pytest.raises(InputError, match="seq_length.*at least 5.*4"):
        PreprocessingModule(tiny, 4)
    with pytest.raises(InputError, match="must name a new or empty folder"):
        save(PreprocessingModule(tiny, SEQ_LENGTH), folder, tiny, "config.json")
