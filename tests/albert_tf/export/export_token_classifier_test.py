"""Tests that the exported token classifier answers as the Python predictor, on any strings."""

import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from albert_tf import load_predictor
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.tokens.model import TokenClassifier, TokenSettings
from albert_tf.tasks.tokens.module import TokenClassifierModule
from albert_tf.text.tokenizer import Normalization, Tokenizer
from tests.albert_tf.export.export_span_test import HARD, traced
from tests.albert_tf.text.alignment_test import PARTS, wordpiece

TASK = TokenSettings(("place", "person"), seq_length=24, doc_stride=7)
WORDS = TokenSettings(("noun", "verb", "other"), scheme="words", seq_length=24, doc_stride=11)


@pytest.fixture(scope="module", params=["sentencepiece", "wordpiece"])
def both(request, tiny, small_tokenizer, tmp_path_factory):
    """A predictor of random weights and its export's signatures."""
    is_first = request.param == "sentencepiece"
    rules = Normalization(unify_quotes=True)
    tokenizer = Tokenizer(small_tokenizer.model, rules) if is_first else wordpiece(rules)
    task = TASK if is_first else WORDS
    config = tiny.replace(num_layers=1, vocab_size=tokenizer.vocab_size, max_positions=24)
    run = RunDir(str(tmp_path_factory.mktemp("tokens")))
    run.begin({"model": settings.to_dict(config), "task": settings.to_dict(task)}, tokenizer)
    tf_keras.utils.set_random_seed(7)
    model = TokenClassifier(AlbertEncoder(config), task).create_weights()
    model.head.kernel.assign(100.0 * model.head.kernel)  # or all tags are about as likely
    tf.train.Checkpoint(model=model).save(os.path.join(run.checkpoints_path, "ckpt"))
    predictor = load_predictor(run.path)
    return predictor, traced(TokenClassifierModule(predictor.model, tokenizer))


def served(signatures, texts) -> list[list[tuple]]:
    """The spans of each text, without padding."""
    outputs = signatures["serving_default"](text=tf.constant(texts, tf.string))
    names = ("label", "text", "start", "end", "score")
    rows = zip(*(outputs[name].numpy() for name in names), strict=True)
    return [
        [(a.decode(), b.decode(), *rest) for a, b, *rest in zip(*row, strict=True) if rest[0] >= 0]
        for row in rows
    ]


def differing(predictor, signatures, texts) -> int:
    count = 0
    wanted = predictor(texts)
    for text, found, prediction in zip(texts, served(signatures, texts), wanted, strict=True):
        spans = [tuple(entity.values()) for entity in prediction["entities"]]
        same = [each[:4] for each in found] == [each[:4] for each in spans]
        same = same and np.allclose(
            [each[4] for each in found], [each[4] for each in spans], atol=1e-4
        )
        assert all(text[start:end] == entity for _, entity, start, end, _ in found)
        count += not same
        if not same:
            print(ascii(text[:80]), found, spans)
    return count


def test_hard_strings(both):
    predictor, signatures = both
    assert differing(predictor, signatures, HARD) == 0
    labels = {label for row in served(signatures, HARD) for label, *_ in row}
    assert len(labels) > 1
    # More than one window, and an answer for each of its words under the scheme `words`.
    assert len(predictor.answer([HARD[-3]], 8)[1]) > 3


PART = st.sampled_from([part for part in PARTS if part != "\ud83d"])
TEXT = st.lists(PART, max_size=60).map("".join)


@pytest.mark.slow
@hypothesis_settings(max_examples=20, deadline=None)
@given(texts=st.lists(TEXT, min_size=1, max_size=16))
def test_any_strings(both, texts):
    # Pieces of equal score may be cut elsewhere by the other release of sentencepiece.
    is_wordpiece = both[0].task.scheme == "words"
    assert differing(*both, texts) <= (0 if is_wordpiece else 1)


def test_tokens_give_the_tags_probabilities(both, fake_inputs):
    inputs = {name: tf.constant(ids % 40) for name, ids in fake_inputs(3, 20, (0, 4, 11)).items()}
    predictor, signatures = both
    wanted = tf.nn.softmax(predictor.model(inputs))
    np.testing.assert_allclose(signatures["tokens"](**inputs)["probabilities"], wanted, atol=1e-5)


def test_limits(both):
    predictor, signatures = both
    many = "a " * 5000
    with pytest.raises(tf.errors.InvalidArgumentError, match="number of texts times the largest"):
        served(signatures, [many] + ["a"] * 30_000)
    module = TokenClassifierModule(predictor.model, predictor.tokenizer, max_windows=2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="`text`: each must fit in 2 windows"):
        module.serve(tf.constant([many]))
    with pytest.raises(InputError, match="max_windows.*at least 1.*0"):
        TokenClassifierModule(predictor.model, predictor.tokenizer, max_windows=0)
