"""Tests of token classification: windows, tags and spans against hand-made ones."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from hypothesis import given, settings
from hypothesis import strategies as st

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.probabilities import average_softmax
from albert_tf.tasks.tokens.entities import decode_tokens
from albert_tf.tasks.tokens.examples import TokenExample
from albert_tf.tasks.tokens.features import featurize_tokens, words_per_window
from albert_tf.tasks.tokens.model import IGNORED, TokenClassifier, TokenCrossEntropy, TokenSettings
from tests.albert_tf.tasks.span_features_test import TOKENIZER
from tests.albert_tf.text.alignment_test import PARTS, wordpiece

TASK = TokenSettings(("place", "person"), seq_length=8, doc_stride=3)
WORDS = TokenSettings(("noun", "verb"), scheme="words", seq_length=8, doc_stride=3)
NONE, B_PLACE, I_PLACE, B_PERSON, I_PERSON = range(5)


def logits_of(features, tags, task) -> np.ndarray:
    """Logits that make each word's tag the likeliest: 10, the others 0."""
    logits = np.zeros([len(features), task.seq_length, len(task.tags)], np.float32)
    logits[features.word_window, features.word_position, tags] = 10
    return logits


def decoded(text, tags, task=TASK, tokens=None):
    examples = [TokenExample(text, tokens)]
    features = featurize_tokens(examples, TOKENIZER, task)
    (prediction,) = decode_tokens(logits_of(features, tags, task), features, examples, task)
    spans = [(e["text"], e["label"], e["start"], e["end"]) for e in prediction["entities"]]
    return spans, prediction


def test_names_of_tags():
    assert TASK.tags == ("O", "B-place", "I-place", "B-person", "I-person")
    assert WORDS.tags == ("noun", "verb")
    for labels in ((), ("a", "a")):
        with pytest.raises(ConfigError, match="one or more different names"):
            TokenSettings(labels)
    for labels in ((0, 1), "ab", np.array([0, 1])):
        with pytest.raises(ConfigError, match="must be a tuple of strings. Received: .*map.str"):
            TokenSettings(labels)


def test_windows_and_tags_by_hand():
    """Nine pieces in windows of six: at 0 and 3. Pieces 0 to 4 count in the first, with the rule of
    `Windows`: piece 4 has one to its right there and one to its left in the second."""
    example = TokenExample("a b c d e f g h i", None, ((2, 5, "place"), (6, 7, "place")))
    features = featurize_tokens([example, TokenExample("", None, ())], TOKENIZER, TASK)
    inputs, targets = features.batch(np.arange(3), 8)
    assert inputs["input_word_ids"].numpy().tolist() == [
        [2, 5, 6, 7, 8, 9, 10, 3],
        [2, 8, 9, 10, 11, 12, 13, 3],
        [2, 3, 0, 0, 0, 0, 0, 0],
    ]
    assert not inputs["input_type_ids"].numpy().any()
    none = [IGNORED] * 8
    assert targets["label"].numpy().tolist() == [
        [IGNORED, NONE, B_PLACE, I_PLACE, B_PLACE, NONE, IGNORED, IGNORED],
        [IGNORED, IGNORED, IGNORED, NONE, NONE, NONE, NONE, IGNORED],
        none,
    ]
    assert features.example.tolist() == [0, 0, 1] and features.inexact == 0
    assert words_per_window(features) == 3.0  # nine words in three windows
    of_teacher = np.where(targets["label"][:, :, None] == IGNORED, np.nan, [0.5, 2.0])
    features = dataclasses.replace(features, targets={"label": of_teacher})
    assert words_per_window(features) == 3.0
    assert features.word_first.tolist() == list(range(0, 18, 2))
    assert features.word_end.tolist() == list(range(1, 18, 2))
    assert "label" not in featurize_tokens([TokenExample("a")], TOKENIZER, TASK).targets


def test_words_are_letters_and_other_characters_stand_alone():
    text = "  cafés, U.S.\u3000\n中文 e\u0301a "
    features = featurize_tokens([TokenExample(text)], wordpiece(), TASK)
    spans = zip(features.word_first.tolist(), features.word_end.tolist(), strict=True)
    words = [text[begin:end] for begin, end in spans]
    assert words == ["cafés", ",", "U", ".", "S", ".", "中", "文", "e\u0301a"]


@pytest.mark.parametrize(
    ("tokens", "wrong"),
    [
        (("Ann", "met", "Bo", "."), "'Ann' after character 0"),
        (((0, 3), (4, 99)), r"\(4, 99\) after character 3"),
        (((-5, 3), (4, 7)), r"\(-5, 3\) after character 0"),
        (((8, 10), (0, 3)), r"\(0, 3\) after character 10"),
        (((0, 3), (2, 7)), r"\(2, 7\) after character 3"),
        (((0, 3), (7, 4)), r"\(7, 4\) after"),
        (((0, 3), (4, 7.5)), r"\(4, 7.5\) after"),
        (((0, 3, "PER"),), r"\(0, 3, 'PER'\) after"),
        ((0, 3), "0 after"),
    ],
)
def test_tokens_that_are_no_spans_of_the_text_are_refused(tokens, wrong):
    examples = [TokenExample("a"), TokenExample("Ann met Bo.", tokens)]
    with pytest.raises(InputError, match=f"`tokens` must .* example 1, of 11 characters: {wrong}"):
        featurize_tokens(examples, TOKENIZER, TASK)


@pytest.mark.parametrize("kind", [tuple, list, np.array])
def test_tokens_may_be_any_sequence(kind):
    spans = kind([(0, 1), (1, 1), (2, 3)])
    found, prediction = decoded("a b", [NONE, B_PLACE], tokens=spans)
    assert found == [("b", "place", 2, 3)] and prediction["tags"] == ["O", "O", "B-place"]


@pytest.mark.parametrize("kind", ["sentencepiece", "wordpiece"])
def test_words_have_no_invisible_ends(kind, small_tokenizer):
    """Marks of direction, spaces of no width and byte order marks before and after words."""
    tokenizer = small_tokenizer if kind == "sentencepiece" else wordpiece()
    marks = "\u200f", "\u200e", "\u200b", "\ufeff", "\xad"
    for text in (f"{a}the{b} {c}value{a} b" for a in marks for b in marks for c in ("", *marks)):
        features = featurize_tokens([TokenExample(text)], tokenizer, TASK)
        spans = zip(features.word_first.tolist(), features.word_end.tolist(), strict=True)
        assert [text[begin:end] for begin, end in spans] == ["the", "value", "b"], ascii(text)
    features = featurize_tokens([TokenExample("\u200b \ufeff")], tokenizer, TASK)
    assert len(features.word_first) == 0


def test_spans_that_are_not_whole_words():
    example = TokenExample("ab cd ef", None, ((1, 4, "place"), (4, 5, "person"), (6, 8, "person")))
    features = featurize_tokens([example], TOKENIZER, TASK)
    tags = features.targets["label"][features.word_window, features.word_position]
    # "b c" extends to both words, so that "d" has none of its own.
    assert tags.tolist() == [B_PLACE, I_PLACE, B_PERSON] and features.inexact == 2
    assert "2 labeled span(s) begin or end inside a word" in features.notes()[0]


def test_tokens_without_a_visible_character_are_counted():
    """Of spans of tokens: "a \u200b" cannot be predicted, nor can "\u200b" alone."""
    text, tokens = "a \u200b b \u200b c", ((0, 1), (2, 3), (4, 5), (6, 7), (8, 9))
    spans = (0, 3, "place"), (4, 5, "person"), (6, 7, "place"), (8, 9, "place")
    features = featurize_tokens([TokenExample(text, tokens, spans)], TOKENIZER, TASK)
    assert (features.unseen, features.inexact) == (2, 0)
    assert features.notes()[0].startswith("2 labeled span(s) contain a token without a visible")
    free = featurize_tokens([TokenExample("a b", ((0, 1), (2, 3)), ())], TOKENIZER, TASK)
    assert free.unseen == 0 and free.notes() == []


def test_decoding_by_hand():
    """As conlleval: I-X begins a span unless one of X precedes it; B-X always does."""
    tags = [B_PLACE, I_PLACE, I_PERSON, I_PERSON, B_PERSON, NONE]
    spans, prediction = decoded("a b c d e f", tags)
    assert spans == [("a b", "place", 0, 3), ("c d", "person", 4, 7), ("e", "person", 8, 9)]
    probability = np.exp(10) / (np.exp(10) + 4)  # five tags
    scores = [entity["score"] for entity in prediction["entities"]]
    np.testing.assert_allclose(scores, probability, rtol=1e-6)
    assert decoded("a b c", [NONE, NONE, NONE])[0] == [] and decoded("", [])[0] == []
    assert decoded("a b", [1, 0], WORDS)[0] == [("a", "verb", 0, 1), ("b", "noun", 2, 3)]


def test_tokens_have_the_tags_of_their_first_words():
    tokens = ((0, 4), (5, 6), (7, 9))
    # Words: a . b . | c | d e
    tags = [B_PLACE, NONE, NONE, B_PERSON, I_PLACE, NONE]
    spans, prediction = decoded("a.b. c de", tags, TASK, tokens)
    assert spans == [("a.b. c", "place", 0, 6)]
    assert prediction["tags"] == ["B-place", "I-place", "O"]
    # A token without a piece has the tag O, and ends the span before it.
    spans, prediction = decoded("a \u200b b", [B_PLACE, I_PLACE], TASK, ((0, 1), (2, 3), (4, 5)))
    assert prediction["tags"] == ["B-place", "O", "I-place"]
    assert [text for text, *_ in spans] == ["a", "b"]


def test_the_loss_by_hand():
    targets = np.array([[IGNORED, 0, 1, IGNORED, 5], [1, IGNORED, IGNORED, IGNORED, 5]])
    logits = np.random.default_rng(0).normal(size=[2, 4, 3]).astype(np.float32)
    losses = -np.log(np.exp(logits) / np.exp(logits).sum(axis=-1, keepdims=True))
    wanted = [(losses[0, 1, 0] + losses[0, 2, 1]) / 1.5, losses[1, 0, 1] / 1.5]
    loss = TokenCrossEntropy(words_per_window=1.5)
    found = loss.call(tf.constant(targets), tf.constant(logits))
    np.testing.assert_allclose(found, wanted, rtol=1e-6)
    none = loss.call(tf.fill([2, 4], IGNORED), tf.constant(logits))
    assert none.numpy().tolist() == [0.0, 0.0]
    again = TokenCrossEntropy.from_config(loss.get_config())
    np.testing.assert_array_equal(again.call(tf.constant(targets), tf.constant(logits)), found)


def test_predict_pads_batches_of_all_widths(tiny, tmp_path):
    tf_keras.utils.set_random_seed(1)
    task = TokenSettings(("x",), seq_length=40, doc_stride=20)
    model = TokenClassifier(AlbertEncoder(tiny), task).create_weights()
    examples = [TokenExample("a b c"), TokenExample("d " * 60)]
    features = featurize_tokens(examples, TOKENIZER, task)
    logits = predict(model, features, 1)
    assert logits.shape == (len(features), 40, 3) and not logits[0, 32:].any()
    alone = model(features.batch(np.arange(1))[0])
    np.testing.assert_allclose(logits[0, :5], alone[0, :5], rtol=1e-5, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = tf_keras.models.load_model(tmp_path / "model.keras")
    np.testing.assert_allclose(predict(loaded, features, 1), logits, rtol=1e-5, atol=1e-6)


def test_the_mean_of_members_is_of_their_probabilities():
    one, other = np.log([[[0.9, 0.1]]]), np.log([[[0.3, 0.7]]])
    np.testing.assert_allclose(np.exp(average_softmax([one, other])), [[[0.6, 0.4]]])


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.sampled_from(PARTS), max_size=30).map("".join), min_size=1, max_size=4),
    st.integers(3, 12),
    st.integers(1, 12),
    st.randoms(use_true_random=False),
)
def test_every_word_is_predicted_once_and_tags_survive(texts, seq_length, stride, random):
    """Whatever the text and the windows, spans of whole words come back from their own tags."""
    task = TokenSettings(("x", "y"), seq_length=seq_length, doc_stride=stride)
    tokenizer = wordpiece()
    bare = featurize_tokens([TokenExample(text) for text in texts], tokenizer, task)
    cells = set(zip(bare.word_window.tolist(), bare.word_position.tolist(), strict=True))
    assert len(cells) == len(bare.word_first)
    assert (bare.sequences.lengths <= seq_length).all()
    examples = []
    for row, text in enumerate(texts):
        words = np.flatnonzero(bare.word_example == row).tolist()
        spans, at = [], 0
        while at < len(words):
            size = random.randint(1, 3)
            group = words[at : at + size]
            if random.random() < 0.6:
                span = int(bare.word_first[group[0]]), int(bare.word_end[group[-1]])
                spans.append((*span, random.choice(task.labels)))
            at += size
        assert all(text[begin:end].strip() == text[begin:end] for begin, end, _ in spans)
        examples.append(TokenExample(text, None, tuple(spans)))
    features = featurize_tokens(examples, tokenizer, task)
    assert features.inexact == 0
    label = features.targets["label"]
    assert np.count_nonzero(label != IGNORED) == len(cells)
    tags = label[features.word_window, features.word_position]
    predictions = decode_tokens(logits_of(features, tags, task), features, examples, task)
    for prediction, example in zip(predictions, examples, strict=True):
        found = tuple((e["start"], e["end"], e["label"]) for e in prediction["entities"])
        assert found == example.entities


@pytest.mark.slow
def test_parts_of_a_batch_add_up_to_its_gradient(tiny):
    """Also where one part has many more words than the other."""
    examples = [
        TokenExample(text, None, ((0, 1, "place"),)) for text in ("a b c d e f", "b", "c", "d e")
    ]
    features = featurize_tokens(examples, TOKENIZER, TASK)
    weights = []
    for parts in (1, 2):
        tf_keras.utils.set_random_seed(5)
        task = dataclasses.replace(TASK, dropout=0.0)
        encoder = AlbertEncoder(tiny.replace(num_layers=1, vocab_size=40))
        model = TokenClassifier(encoder, task, accumulation_steps=parts).create_weights()
        model.compile(tf_keras.optimizers.SGD(1.0), model.training_losses())
        inputs, targets = features.batch(np.arange(4), 8)
        model.train_on_batch(inputs, targets["label"])
        weights.append(model.get_weights())
    for one, other in zip(*weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
