"""Tests of the Python tokenizer: it gives the published ids, and by which rules."""

import gzip
import json
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.text.normalization import normalize
from albert_tf.text.tokenizer import Normalization, Tokenizer, load_tokenizer

ODD = ["", " ", "\0", "a\0b", "\ud800", "a\udfffb", "\ufeff", "\x85", "\t\r\n", "️", "🤗" * 9, "▁"]
TEXTS = [
    "the [MASK] sat on the [SEP] <pad> <unk> [CLS]",
    "In 2009, they paid 1,000, or 3.0, each.",
    "UNwantéd naïve ß ﬁ Ⅳ",
    "two  spaces\nand\ta tab ",
    "``quoted'' text",
    "한국어 中文、 ΣΑΣ.",
]


@pytest.fixture(scope="module")
def tiny(comma_tokenizer: Tokenizer) -> Tokenizer:
    return comma_tokenizer


@pytest.fixture(scope="module")
def published(shared_data) -> Tokenizer:
    return load_tokenizer(shared_data / "vocab" / "albert_en_30k" / "spiece.model")


def reference(shared_data) -> list[dict]:
    with gzip.open(shared_data / "reference" / "sentencepiece_ids.jsonl.gz", "rt") as lines:
        return [json.loads(line) for line in lines]


def expected(shared_data) -> dict:
    return json.loads((shared_data / "reference" / "tokenizer_expected.json").read_text())


def test_every_reference_text_gets_the_reference_ids(shared_data, published):
    cases = reference(shared_data)
    assert len(cases) == 1322
    texts = [case["text"] for case in cases]
    assert normalize(texts, published.normalization) == [case["norm"] for case in cases]
    assert published.encode_batch(texts) == [case["pieces_ids"] for case in cases]


def test_published_examples(shared_data, published):
    facts = expected(shared_data)
    assert published.vocab_size == facts["hf_vocab"]["size"]
    assert published.id_to_piece(29999) == facts["hf_vocab"]["last"]
    integration = facts["hf_integration_albert_base_v2"]
    for text, ids in zip(integration["sequences"], integration["input_ids"], strict=True):
        special = published.special
        wanted = [i for i in ids if i != special.pad]
        assert [special.cls, *published.encode(text), special.sep] == wanted
    keep = Tokenizer(published.model, Normalization(strip_accents=False, unify_quotes=True))
    for case in facts["hf_full_tokenizer_keep_accents"]["cases"]:
        assert keep.pieces(case["text"]) == case["pieces"]
        if "ids" in case:
            assert keep.encode(case["text"]) == case["ids"]
    raw = Tokenizer(published.model, Normalization(False, False, False))
    keras_hub = facts["keras_hub_albert_base_en_uncased"]
    assert raw.encode(keras_hub["text"]) == keras_hub["ids"]
    words = load_tokenizer(shared_data / facts["keras_hub_test_vocab"]["vocab"])
    for case in facts["keras_hub_test_vocab"]["cases"]:
        assert words.encode(case["text"]) == case["ids"]


class OnePiece:
    """A model that cuts nothing: the whole text is `piece` the first time, then the real model."""

    def __init__(self, processor, piece: str) -> None:
        self.processor, self.queue = processor, [[piece]]

    def EncodeAsPieces(self, text: str) -> list[str]:  # noqa: N802 (sentencepiece's name)
        return self.queue.pop() if self.queue else self.processor.EncodeAsPieces(text)


@pytest.mark.parametrize("name", ["tiny", "published"])
def test_the_digit_comma_table_equals_model_gardens_rule_on_every_piece(name, request):
    official = pytest.importorskip("official.nlp.tools.tokenization")
    tokenizer = request.getfixturevalue(name)
    processor = tokenizer.vocabulary.processor
    for i in range(tokenizer.vocab_size):
        piece = tokenizer.id_to_piece(i)
        wanted = official.encode_pieces(OnePiece(processor, piece), "any")
        ids = tuple(processor.piece_to_id(p) for p in wanted)
        assert tokenizer.replacements.get(i, (i,)) == ids, piece
    assert tokenizer.replacements


def test_equals_model_gardens_tools(tiny):
    official = pytest.importorskip("official.nlp.tools.tokenization")
    texts = [text for text in TEXTS + ODD if not any("\ud800" <= c <= "\udfff" for c in text)]
    for text in texts:
        normal = official.preprocess_text(text, lower=True)
        assert normalize([text], tiny.normalization) == [normal]
        assert tiny.pieces(text) == official.encode_pieces(tiny.vocabulary.processor, normal)
        assert tiny.encode(text) == official.encode_ids(tiny.vocabulary.processor, normal)


def test_a_batch_equals_its_texts_one_by_one(tiny):
    texts = (TEXTS + ODD) * 2
    assert tiny.encode_batch(texts) == [tiny.encode(text) for text in texts]
    assert tiny.encode_batch(texts, num_threads=2) == tiny.encode_batch(texts)
    assert tiny.encode_batch([]) == []


def test_text_never_makes_a_control_piece(tiny):
    s = tiny.special
    assert (s.pad, s.unk, s.cls, s.sep, s.mask) == (0, 1, 2, 3, 4)
    for ids in tiny.encode_batch(TEXTS + ODD):
        assert not {s.pad, s.cls, s.sep, s.mask} & set(ids)


def test_normalization_switches():
    text = ["``É'' İß"]
    assert normalize(text, Normalization()) == ["``e'' iß"]
    assert normalize(text, Normalization(unify_quotes=True)) == ['"e" iß']
    assert normalize(text, Normalization(lowercase=False)) == ["``E'' Iß"]
    assert normalize(text, Normalization(False, False)) == text
    assert normalize(["a\ud800b", "é\n\u0301", ""], Normalization()) == ["a\ufffdb", "e ", ""]
    for blanks in ("a  b", " a b", "a b ", "a\u3000b", "a\tb"):
        assert normalize([blanks], Normalization()) == ["a b"]


def test_decode_and_ids_out_of_range(tiny):
    ids = tiny.encode("The value of the statement is in 2009, or not.")
    assert tiny.decode(ids) == "the value of the statement is in 2009, or not."
    assert tiny.decode([tiny.special.cls, *np.array(ids), tiny.special.sep]) == tiny.decode(ids)
    for bad in (-1, tiny.vocab_size):
        with pytest.raises(InputError, match=rf"\[0, {tiny.vocab_size}\).*{bad}"):
            tiny.decode([bad])
        with pytest.raises(InputError, match=rf"\[0, {tiny.vocab_size}\).*{bad}"):
            tiny.id_to_piece(bad)


def test_word_starts(published):
    starts = published.is_word_start
    assert starts.dtype == bool and starts.shape == (30000,)
    by_piece = {published.id_to_piece(i): bool(starts[i]) for i in range(30000)}
    for piece in ("▁the", "▁", "<pad>", "<unk>", ".", ",", "(", "£", "'", "2000", "000"):
        assert by_piece[piece], piece
    for piece in ("ing", "s", "ed"):
        assert not by_piece[piece], piece


def test_a_piece_of_letters_alone_continues_a_word(tiny):
    """In Google's code only if they are a-z; words in scripts without spaces are characters."""
    starts = tiny.vocabulary.starts_word
    assert not any(map(starts, ("ння", "ück", "ών", "ात", "ية", "-é")))
    assert all(map(starts, ("▁ння", "東京", "한국", "ไทย", "2", "é2", "😀")))


def test_the_characters_of_pieces_are_those_of_the_text(published):
    """Counted by hand: "▁the" is a space and three letters."""
    text = "the unaffable cat sat"
    counts = [int(published.num_characters[i]) for i in published.encode(text)]
    assert sum(counts) == 1 + len(text) and counts[0] == 4
    assert published.num_characters[published.special.unk] == 1


def test_saved_tokenizer_is_the_same_tokenizer(tiny, tmp_path):
    rules = Normalization(lowercase=False, unify_quotes=True)
    cased = Tokenizer(tiny.model, rules, {"seed": 7})
    for nested in (".", "tokenizer", "assets.extra/tokenizer"):
        folder = tmp_path / nested.replace("/", "_").replace(".", "x")
        cased.save(folder / nested)
        files = sorted(path.name for path in (folder / nested).iterdir())
        assert files == ["albert_tokenizer.json", "spiece.model"]
        again = load_tokenizer(folder)
        assert (again.normalization, again.training) == (rules, {"seed": 7})
        assert again.fingerprint == cased.fingerprint != tiny.fingerprint
        assert load_tokenizer(folder / nested / "spiece.model").fingerprint == cased.fingerprint
    copy = pickle.loads(pickle.dumps(cased))
    assert copy.encode_batch(TEXTS) == cased.encode_batch(TEXTS)
    assert copy.fingerprint == cased.fingerprint


def test_a_foreign_settings_file_is_not_ours_and_a_wrong_one_is_refused(tiny, tmp_path):
    tiny.save(tmp_path)
    (tmp_path / "tokenizer.json").write_text(json.dumps({"version": "1.0"}))  # Hugging Face's
    assert load_tokenizer(tmp_path).fingerprint == tiny.fingerprint
    settings = tmp_path / "albert_tokenizer.json"
    record = json.loads(settings.read_text())
    record["normalization"]["lowercase"] = False
    settings.write_text(json.dumps(record))
    with pytest.raises(InputError, match="fingerprint"):
        load_tokenizer(tmp_path)
    settings.write_text(json.dumps(record | {"format": "albert_tf.tokenizer/9"}))
    with pytest.raises(
        InputError, match=r"`format` must be albert_tf.tokenizer/1\. Received: 'alb"
    ):
        load_tokenizer(tmp_path)
    settings.write_text("{")
    with pytest.raises(InputError, match="tokenizer.json.*JSON"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("rules", "key"),
    [
        ({"do_lower_case": False}, "do_lower_case"),
        ({"do_lower_case": True, "keep_accents": True}, "keep_accents"),
        ({"strip_accents": False}, "strip_accents"),
        ({"do_lower_case": True, "keep_accents": False, "strip_accents": None}, None),
    ],
)
def test_the_rules_of_a_folder_of_transformers(tiny, tmp_path, rules, key):
    """A sentencepiece model without our settings lowercases and strips accents."""
    (tmp_path / "spiece.model").write_bytes(tiny.model)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(rules))
    if key is None:
        assert load_tokenizer(tmp_path).normalization == Normalization()
        return
    with pytest.raises(InputError, match=f"states `{key}` .*--from=huggingface:.* --to=NEW"):
        load_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"normalization": [1]}, "normalization` must be a section of keys. Received: [1]"),
        ({"normalization": {"lowercase": "yes"}}, "normalization.lowercase` must be of type bool"),
        ({"training": 5}, "training` must be of type dict. Received: 5"),
        ({"fingerprint": None}, "fingerprint` must be of type str. Received: None"),
        ({"special": {"pad": 0}}, "special.mask` must be stated"),
        ({"vocab_sizes": 3}, "unknown key"),
    ],
)
def test_settings_of_other_types_are_refused(tiny, tmp_path, changes, words):
    tiny.save(tmp_path)
    settings = tmp_path / "albert_tokenizer.json"
    settings.write_text(json.dumps(json.loads(settings.read_text()) | changes))
    with pytest.raises(InputError) as error:
        load_tokenizer(tmp_path)
    assert words in str(error.value) and str(settings) in str(error.value)


def test_a_piece_that_is_not_utf_8_is_refused(tiny):
    damaged = tiny.model.replace("▁the".encode(), "▁th".encode() + b"\xe9", 1)
    with pytest.raises(InputError, match="it is damaged: .*can't decode byte 0xe9"):
        Tokenizer(damaged, source="it")


def test_errors_name_the_path_the_rule_and_the_remedy(tmp_path):
    with pytest.raises(InputNotFoundError, match="nowhere.*working directory"):
        load_tokenizer(tmp_path / "nowhere")
    with pytest.raises(InputNotFoundError, match="no spiece.model or vocab.txt in folder"):
        load_tokenizer(tmp_path)
    for content in (b"", b"a\nb\n", bytes(range(256))):
        (tmp_path / "spiece.model").write_bytes(content)
        with pytest.raises(InputError, match="sentencepiece model.*spiece.model.*train_tokenizer"):
            load_tokenizer(tmp_path)


def test_a_model_without_the_special_pieces_is_refused(tmp_path):
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(["one two three four"] * 9),
        model_prefix=str(tmp_path / "m"),
        vocab_size=20,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    shutil.move(tmp_path / "m.model", tmp_path / "spiece.model")
    with pytest.raises(InputError, match=r"lacks <pad>, \[CLS\], \[SEP\], \[MASK\]"):
        load_tokenizer(tmp_path)


def test_the_module_does_not_import_tensorflow():
    code = "import sys, albert_tf.text.tokenizer; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_a_list_of_pieces_is_named(tmp_path):
    """What sentencepiece writes beside a model, as `m.vocab`."""
    (tmp_path / "m.vocab").write_text("<pad>\t0\n<unk>\t0\n▁the\t-3.2\n")
    with pytest.raises(InputError, match="m.vocab' must be a sent.*Pass the FILE.model that"):
        load_tokenizer(tmp_path / "m.vocab")


@pytest.mark.parametrize("text", [None, 5, b"a"])
def test_pieces_are_those_of_a_string(tiny, text):
    with pytest.raises(InputError, match=f"`text` must be a string. Received: {text!r}"):
        tiny.pieces(text)


def test_texts_come_in_a_list(tiny):
    texts = ["the cat", "a"]
    assert tiny.encode_batch(text for text in texts) == tiny.encode_batch(np.array(texts))
    for wrong, received in {
        "the cat": "'the cat'. Pass a list",
        (None,): "None as number 0",
        ("a", b"a"): "b'a' as number 1",
    }.items():
        with pytest.raises(InputError, match=f"must be a list of strings. Received: {received}"):
            tiny.encode_batch(wrong)
