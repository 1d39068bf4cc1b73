"""Tests of pseudo-log-likelihoods against one mask at a time, and of what counts as right."""

import gzip
import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from pretraining.evaluation import minimal_pairs
from pretraining.evaluation.minimal_pairs import (
    MinimalPair,
    Scorer,
    evaluate_minimal_pairs,
    read_minimal_pairs,
    report,
)


@pytest.fixture(scope="module")
def tokenizer(tiny_tokenizer: str) -> Tokenizer:
    return load_tokenizer(tiny_tokenizer)


@pytest.fixture(scope="module")
def model(tokenizer: Tokenizer) -> AlbertPretrainer:
    tf_keras.utils.set_random_seed(3)
    return AlbertPretrainer(
        AlbertConfig(
            vocab_size=tokenizer.vocab_size,
            embedding_size=8,
            hidden_size=16,
            num_layers=2,
            num_heads=2,
            intermediate_size=32,
            max_positions=24,
            initializer_range=0.5,
        )
    ).create_weights()


def one_at_a_time(
    model: AlbertPretrainer, tokenizer: Tokenizer, ids: list[int], rest_of_word: bool
) -> float:
    special, total = tokenizer.special, 0.0
    for target in range(len(ids)):
        masked = list(ids)
        masked[target] = special.mask
        later = target + 1
        while rest_of_word and later < len(ids) and not tokenizer.is_word_start[ids[later]]:
            masked[later] = special.mask
            later += 1
        words = tf.constant([[special.cls, *masked, special.sep]])
        inputs = {"input_word_ids": words, "input_mask": tf.ones_like(words)}
        inputs |= {"input_type_ids": tf.zeros_like(words)}
        logits = model(inputs | {"masked_lm_positions": tf.constant([[target + 1]])})["mlm_logits"][
            0, 0
        ]
        total += float(tf.nn.log_softmax(logits)[ids[target]])
    return total


@pytest.mark.slow_parameters("1")
@pytest.mark.parametrize("cores", [1, 2])
def test_scores_are_those_of_one_mask_at_a_time(model, tokenizer, cores, monkeypatch):
    """In several batches, the last of them not full, and one sentence of a length at a time."""
    monkeypatch.setattr(minimal_pairs, "MASKED_COPIES", 1)
    texts = ["the function returns a tensor", "unbelievably", "a", "The tensors return nothing."]
    texts += [" ".join(reversed(text.split())) for text in texts]
    sentences = [tuple(ids) for ids in tokenizer.encode_batch(texts)]
    starts = [tokenizer.is_word_start[list(ids)] for ids in sentences]
    assert any((~each).any() for each in starts)  # words of several pieces
    assert len(set(map(len, sentences))) < len(set(sentences))
    scores = Scorer(model, tokenizer, cores, positions_per_batch=20)(sentences)
    for ids in sentences:
        expected = [one_at_a_time(model, tokenizer, list(ids), rest) for rest in (False, True)]
        np.testing.assert_allclose(scores[ids], expected, rtol=1e-4)


class Frequencies(AlbertPretrainer):
    """Gives every piece a fixed logit, whatever stands around it."""

    def call(self, inputs, **kwargs):
        shape = [tf.shape(inputs["input_word_ids"])[0], 1, 1]
        return {"mlm_logits": tf.tile(self.logits[None, None], shape)}


@pytest.fixture
def frequencies(model, tokenizer) -> Frequencies:
    frequencies = Frequencies(model.config)
    frequencies.logits = tf.constant(np.arange(tokenizer.vocab_size, dtype=np.float32) / 50)
    return frequencies


def test_only_a_likelier_good_sentence_counts(frequencies, tokenizer):
    """The later of two pieces is the likelier one here; a tie is wrong."""
    words = [text for i in range(5, 600) if tokenizer.encode(text := tokenizer.decode([i])) == [i]]
    low, high = words[0], words[-1]
    pairs = [
        MinimalPair(high, low, "one", "first"),
        MinimalPair(high, high, "one", "first"),
        MinimalPair(low, high, "two", "first"),
        MinimalPair(high, low, "three", "second"),
        MinimalPair(high, "a " * 30, "three", "second"),
        MinimalPair("", low, "three", "second"),
    ]
    result = evaluate_minimal_pairs(frequencies, tokenizer, pairs)
    assert (result["count"], result["skipped"]) == (4, 2)
    assert result["accuracy/pll"] == result["accuracy/pll_word"] == 0.5
    # Only the two pairs of `one` differ: sqrt(2 * 1/2 * 1/2) / 4.
    assert result["standard_error/pll"] == pytest.approx(0.5**0.5 / 4)
    shares = {name: figures["accuracy/pll"] for name, figures in result["paradigms"].items()}
    assert shares == {"one": 0.5, "two": 0.0, "three": 1.0}
    assert result["phenomena"]["first"]["count"] == 3
    shown = report(result)
    assert "the model's 22 pieces: 2." in shown and "50.00%" in shown and "±" not in shown
    enough = report(result | {"count": 30})
    assert enough.count("50.00% ± 17.68%") == 2 == enough.count("±")  # the row `all` alone
    assert {len(line) for line in enough.splitlines()[1:4]} == {len(enough.splitlines()[1])}
    frequencies.logits = tf.zeros([tokenizer.vocab_size])
    assert evaluate_minimal_pairs(frequencies, tokenizer, pairs[:1])["accuracy/pll"] == 0.0
    with pytest.raises(InputError, match="all 2 pairs have .* empty or longer than 22 pieces"):
        evaluate_minimal_pairs(frequencies, tokenizer, pairs[4:])


def test_files(tmp_path: pathlib.Path):
    record = {"sentence_good": "It is.", "sentence_bad": "It are."}
    unnamed = record | {"UID": None, "linguistics_term": None}  # as pandas writes what is missing
    (tmp_path / "plain.jsonl").write_text(json.dumps(unnamed) + "\n", encoding="utf-8")
    full = record | {"UID": "agreement_1", "linguistics_term": "agreement"}
    with gzip.open(tmp_path / "zipped.jsonl.gz", "wt", encoding="utf-8") as file:
        file.write(2 * (json.dumps(full) + "\n"))
    (tmp_path / "README.md").write_text("no pairs")
    pairs = read_minimal_pairs(str(tmp_path))
    assert pairs[0] == MinimalPair("It is.", "It are.", "plain", "plain")
    assert pairs[1] == pairs[2] == MinimalPair("It is.", "It are.", "agreement_1", "agreement")
    for line, problem in (
        ('{"sentence_good": "a"}', "sentence_bad"),
        ("[1", "be JSON"),
        ("[]", "JSON object"),
    ):
        (tmp_path / "plain.jsonl").write_text(json.dumps(record) + "\n\n" + line, encoding="utf-8")
        with pytest.raises(InputError, match=rf"plain\.jsonl:3 must .*{problem}"):
            read_minimal_pairs(str(tmp_path))
    (tmp_path / "plain.jsonl").write_bytes(b'{"sentence_good": "\xff"}')
    with pytest.raises(InputError, match=r"plain\.jsonl:1 must be UTF-8"):
        read_minimal_pairs(str(tmp_path))
    whole = (tmp_path / "zipped.jsonl.gz").read_bytes()
    (tmp_path / "plain.jsonl.gz").write_bytes(whole[:-9])
    (tmp_path / "plain.jsonl").unlink()
    with pytest.raises(InputError, match=r"plain\.jsonl\.gz must be a complete gzip file"):
        read_minimal_pairs(str(tmp_path))
    (tmp_path / "blank").mkdir()
    (tmp_path / "blank" / "a.jsonl").write_text("\n\n")
    with pytest.raises(InputError, match=r"blank: its 1 file\(s\) hold no pairs"):
        read_minimal_pairs(str(tmp_path / "blank"))
    for name, problem in (("README.md", "is not a folder"), ("empty", r"has no \.jsonl")):
        (tmp_path / "empty").mkdir(exist_ok=True)
        with pytest.raises(InputNotFoundError, match=problem):
            read_minimal_pairs(str(tmp_path / name))


def test_blimp_is_read_whole(shared_data: pathlib.Path):
    pairs = read_minimal_pairs(str(shared_data / "blimp"))
    assert len(pairs) == 67_000
    assert (len({p.paradigm for p in pairs}), len({p.phenomenon for p in pairs})) == (67, 13)
    # The README there: seven pairs are equal when lower-cased.
    assert sum(p.good.lower() == p.bad.lower() for p in pairs) == 7
