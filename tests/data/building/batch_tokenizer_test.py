"""Tests that flat batches hold the ids of `Tokenizer.encode`, exactly."""

import gzip
import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data.building.batch_tokenizer import encode_flat


def rows(tokenizer: Tokenizer, texts: list[str], **sizes: int) -> list[list[int]]:
    ids, ends = encode_flat(tokenizer, texts, **sizes)
    assert ids.dtype == np.int32 and len(ends) == len(texts)
    return [part.tolist() for part in np.split(ids, ends)[: len(texts)]]


@pytest.mark.parametrize("rules", [Normalization(), Normalization(False, False, True)])
@given(
    st.lists(st.text(st.sampled_from("abAB1,. \t\n\u00a0é\u0301`'\x00\x1f\ud800漢"), max_size=9))
)
@hypothesis_settings(deadline=None)
def test_any_text(tiny_tokenizer, rules, texts):
    tokenizer = Tokenizer(load_tokenizer(tiny_tokenizer).model, rules)
    assert rows(tokenizer, texts) == [tokenizer.encode(text) for text in texts]


@pytest.mark.parametrize("model", ["albert_en_30k/spiece.model", "albert_zh/vocab_chinese.txt"])
def test_the_reference_cases(shared_data, model):
    """1,322 texts in several languages, a hundred with the digit-comma rule; and WordPiece."""
    tokenizer = load_tokenizer(shared_data / "vocab" / model)
    with gzip.open(shared_data / "reference" / "sentencepiece_ids.jsonl.gz", "rt") as file:
        cases = [json.loads(line) for line in file]
    found = rows(tokenizer, [case["text"] for case in cases])
    if "spiece" in model:
        assert found == [case["pieces_ids"] for case in cases] and len(found) == 1322
    else:
        assert found == [tokenizer.encode(case["text"]) for case in cases]


def test_long_texts_are_encoded_in_parts(tiny_tokenizer):
    tokenizer = load_tokenizer(tiny_tokenizer)
    texts = ["ba de", "fi go ku " * 20, "", "la" * 60, "me"]
    whole = rows(tokenizer, texts)
    parts = rows(tokenizer, texts, max_characters=10)
    assert [parts[i] for i in (0, 1, 2, 4)] == [whole[i] for i in (0, 1, 2, 4)]  # cut at spaces
    assert tokenizer.decode(parts[3]).replace(" ", "") == "la" * 60
    assert rows(tokenizer, texts, max_characters=10, lines_per_call=2) == parts
