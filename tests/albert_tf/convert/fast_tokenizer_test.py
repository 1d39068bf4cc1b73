"""A folder that has only tokenizer.json gets the vocabulary that the file was made from."""

import base64
import gzip
import json
import pathlib

import pytest
import sentencepiece

from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.runtime.errors import InputError
from albert_tf.text.normalization import Normalization
from albert_tf.text.sentencepiece_model import fields_of
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

TEXTS = [
    "In 2009, they paid 1,000, or 3.0, each.",
    "UNwantéd naïve ß ﬁ Ⅳ",
    "``quoted'' text — and “more”",
    "  two  spaces\nand\ta tab ",
    "한국어 中文、 ΣΑΣ. 🤗🤗",
    "the [MASK] <pad> (a-b) £3",
]


def fast(tokenizer: Tokenizer) -> dict:
    """The file as transformers converts it from a spiece.model (`AlbertConverter`)."""
    model, rules = tokenizer.vocabulary.processor, tokenizer.normalization
    (spec,) = [value for field, value in fields_of(tokenizer.model) if field == 3]
    charsmap = b"".join(value for field, value in fields_of(spec) if field == 2)
    steps: list[dict] = []
    if rules.unify_quotes:
        for quotes in ("``", "''"):
            steps.append({"type": "Replace", "pattern": {"String": quotes}, "content": '"'})
    if rules.strip_accents:
        steps += [{"type": "NFKD"}, {"type": "StripAccents"}]
    if rules.lowercase:
        steps.append({"type": "Lowercase"})
    steps.append(
        {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    )
    steps.append({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": " "})
    vocabulary = [
        (
            piece,
            model.get_score(i) - 100 * (len(piece) > 1 and piece[-2].isdigit() * piece[-1] == ","),
        )
        for i, piece in enumerate(tokenizer.vocabulary.pieces)
    ]
    added = [
        {"id": i, "content": tokenizer.id_to_piece(i), "special": True}
        for i in vars(tokenizer.special).values()
    ]
    added += [
        {"id": i, "content": piece, "special": False}  # transformers 5 lists those of sentencepiece
        for i, (piece, score) in enumerate(vocabulary)
        if not score and not model.is_control(i) and not model.is_unknown(i)
    ]
    return {
        "added_tokens": added,
        "normalizer": {"type": "Sequence", "normalizers": steps},
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [
                {"type": "WhitespaceSplit"},
                {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "always"},
            ],
        },
        "model": {"type": "Unigram", "unk_id": tokenizer.special.unk, "vocab": vocabulary},
    }


def written(values: object, folder: pathlib.Path) -> str:
    (folder / "tokenizer.json").write_text(json.dumps(values))
    return str(folder)


def must_equal(read: Tokenizer, tokenizer: Tokenizer, texts: list[str]) -> None:
    assert read.normalization == tokenizer.normalization
    assert read.vocabulary.pieces == tokenizer.vocabulary.pieces
    ours, theirs = (each.vocabulary.processor for each in (read, tokenizer))
    for i in range(tokenizer.vocab_size):
        assert ours.get_score(i) == theirs.get_score(i)
        assert ours.is_control(i) == theirs.is_control(i)
        assert ours.is_unknown(i) == theirs.is_unknown(i)
    assert read.encode_batch(texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize(
    "rules", [Normalization(), Normalization(False, False, True), Normalization(True, False)]
)
def test_the_model_comes_back(comma_tokenizer: Tokenizer, rules: Normalization, tmp_path):
    tokenizer = Tokenizer(comma_tokenizer.model, rules)
    read = huggingface_tokenizer.read(written(fast(tokenizer), tmp_path))
    must_equal(read, tokenizer, TEXTS)


def test_the_published_model_comes_back(shared_data, tmp_path):
    tokenizer = load_tokenizer(shared_data / "vocab" / "albert_en_30k" / "spiece.model")
    read = huggingface_tokenizer.read(written(fast(tokenizer), tmp_path))
    with gzip.open(shared_data / "reference" / "sentencepiece_ids.jsonl.gz", "rt") as lines:
        texts = [json.loads(line)["text"] for line in lines]
    must_equal(read, tokenizer, [*TEXTS, *texts])


def test_a_model_without_a_map_keeps_characters(comma_tokenizer: Tokenizer, tmp_path):
    values = fast(comma_tokenizer)
    values["normalizer"] = {"type": "Lowercase"}
    read = huggingface_tokenizer.read(written(values, tmp_path))
    assert read.normalization == Normalization(True, False)
    (spec,) = [value for field, value in fields_of(read.model) if field == 3]
    normalizer = sentencepiece.SentencePieceNormalizer(model_proto=read.model)
    assert dict(fields_of(spec))[1] == b"identity" and normalizer.normalize("ﬁ Ⅳ") == "▁ﬁ▁Ⅳ"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"model": {"type": "BPE", "vocab": {}}}, "must be Unigram and is BPE"),
        ({"model": {"type": "Unigram", "byte_fallback": True}}, "is Unigram with bytes"),
        ({"added_tokens": [3]}, "its form is unknown"),
        ({"model": None}, "its form is unknown"),
        ({"model": {"type": "Unigram", "vocab": [], "unk_id": -1}, "added_tokens": []}, "its form"),
        ({"normalizer": {"type": "NFC"}}, "its normalizer has the steps NFC"),
        ({"normalizer": None}, "its form is unknown"),
        ({"pre_tokenizer": {"type": "ByteLevel"}}, "its pre_tokenizer is ByteLevel"),
        (
            {"added_tokens": [{"id": 9999, "content": "<x>", "special": True}]},
            "'<x>' was added to the vocabulary",
        ),
    ],
)
def test_a_file_that_is_no_sentencepiece_model_is_refused(
    comma_tokenizer: Tokenizer, change: dict, reason: str, tmp_path
):
    folder = written(fast(comma_tokenizer) | change, tmp_path)
    with pytest.raises(InputError, match=f"cannot be read exactly: .*{reason}.*Add the spiece.mo"):
        huggingface_tokenizer.read(folder)
