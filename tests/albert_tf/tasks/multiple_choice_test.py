"""Tests of multiple choice: features by hand, and that the model compares the options."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.multiple_choice import (
    MultipleChoice,
    MultipleChoiceTask,
    decode_choices,
    featurize_choices,
    fill_blanks,
)

CONTEXT = "An iterator is an object that gives one item after the other."
EXAMPLES = [
    ChoiceExample("An _ gives items; _ is it.", CONTEXT, ("iterator", "integer", "error"), 0),
    ChoiceExample("What is given?", "A name.", ("an item after another", "none", ""), 1),
]
TASK = MultipleChoiceTask(seq_length=40, num_choices=3, qa_length=12, dropout=0.0)


def test_the_option_stands_in_the_blanks_or_behind():
    assert fill_blanks("An _ gives items; _ is it.", "x y") == "An x y gives items; x y is it."
    assert fill_blanks("Why?", "So.") == "Why? So."


@pytest.mark.parametrize("seq_length", [16, 17, 40, 64])
@pytest.mark.parametrize("qa_length", [1, 5, 100])
def test_features(small_tokenizer, seq_length, qa_length):
    task = MultipleChoiceTask(seq_length, 3, qa_length)
    features = featurize_choices(EXAMPLES, small_tokenizer, task)
    assert (len(features), features.per_unit, features.targets["label"].tolist()) == (2, 3, [0, 1])
    inputs, targets = features.batch(tf.constant([1, 0]), seq_length)
    assert targets["label"].numpy().tolist() == [1, 0]
    for unit, example in enumerate(EXAMPLES[::-1]):
        for choice, option in enumerate(example.options):
            answer = small_tokenizer.encode(fill_blanks(example.question, option))
            answer = answer[-min(qa_length, seq_length - 3) :]
            context = small_tokenizer.encode(example.context)[: seq_length - 3 - len(answer)]
            ids = [2, *context, 3, *answer, 3]
            padding = [0] * (seq_length - len(ids))
            row = {name: inputs[name][unit, choice].numpy().tolist() for name in INPUTS}
            assert row["input_word_ids"] == ids + padding
            assert row["input_mask"] == [1] * len(ids) + padding
            assert row["input_type_ids"] == (
                [0] * (len(context) + 2) + [1] * (len(answer) + 1) + padding
            )


@pytest.mark.parametrize(
    ("seq_length", "qa_length", "cut"),
    [(64, 100, 0), (16, 100, 2), (64, 5, 2), (64, 22, 1), (40, 100, 1)],
)
def test_questions_whose_context_or_answer_is_cut_are_counted(
    small_tokenizer, seq_length, qa_length, cut
):
    """A question counts once, whichever of its options there was no room for."""
    rows = [
        (len(small_tokenizer.encode(each.context)), len(small_tokenizer.encode(text)))
        for each in EXAMPLES
        for text in (fill_blanks(each.question, option) for option in each.options)
    ]
    features = featurize_choices(
        EXAMPLES, small_tokenizer, MultipleChoiceTask(seq_length, 3, qa_length)
    )
    is_cut = [
        question > min(qa_length, seq_length - 3)
        or context + min(question, qa_length) > seq_length - 3
        for context, question in rows
    ]
    assert features.cut == any(is_cut[:3]) + any(is_cut[3:]) == cut
    assert len(features.notes()) == bool(cut)


def test_a_question_of_other_options_is_refused(small_tokenizer):
    examples = [EXAMPLES[0], ChoiceExample("Why?", CONTEXT, ("a", "b"))]
    with pytest.raises(InputError, match=r"3 options.*example 1 \('Why\?'\): 2"):
        featurize_choices(examples, small_tokenizer, TASK)


def test_unknown_answers_are_no_targets(small_tokenizer):
    examples = [EXAMPLES[0], ChoiceExample("Why?", CONTEXT, ("a", "b", "c"))]
    assert featurize_choices(examples, small_tokenizer, TASK).targets == {}


@pytest.mark.parametrize("key", ["seq_length", "num_choices", "qa_length", "dropout"])
def test_impossible_settings_are_refused(key):
    with pytest.raises(ConfigError, match=f"`task.{key}`.*Received: -1"):
        MultipleChoiceTask(**{key: -1})


def test_each_option_is_scored_by_itself(tiny, small_tokenizer):
    tf_keras.utils.set_random_seed(0)
    model = MultipleChoice(AlbertEncoder(tiny), TASK).create_weights()
    inputs, _ = featurize_choices(EXAMPLES, small_tokenizer, TASK).batch(tf.constant([0, 1]))
    logits = model(inputs).numpy()
    assert logits.shape == (2, 3)
    kernel, bias = model.head.get_weights()
    for choice in range(3):
        pooled = model.encoder({name: inputs[name][:, choice] for name in INPUTS})["pooled_output"]
        expected = (pooled.numpy() @ kernel + bias)[:, 0]
        np.testing.assert_allclose(logits[:, choice], expected, atol=1e-5)
    turned = {name: tf.reverse(value, [1]) for name, value in inputs.items()}
    np.testing.assert_allclose(model(turned), logits[:, ::-1], atol=1e-5)


@pytest.mark.slow
def test_fit_learns_which_option_is_right(tiny, small_tokenizer):
    tf_keras.utils.set_random_seed(0)
    words = ("name", "list", "file")
    examples = [
        ChoiceExample("Which?", "It is here.", (*words[i:], *words[:i]), -i % 3) for i in range(3)
    ]
    inputs, targets = featurize_choices(examples, small_tokenizer, TASK).batch(tf.range(3))
    encoder = AlbertEncoder(dataclasses.replace(tiny, num_layers=1))
    model = MultipleChoice(encoder, TASK).create_weights()
    model.compile(tf_keras.optimizers.Adam(3e-3), model.training_losses(), metrics=["accuracy"])
    first = np.log(tf.nn.softmax(model(inputs)).numpy())
    history = model.fit(inputs, targets["label"], batch_size=3, epochs=10, verbose=0).history
    expected = -np.mean(first[range(3), targets["label"].numpy()])
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    # The right one is at every place once: blind to what an option says, a third is right.
    assert history["accuracy"][-1] == 1.0


def test_answers():
    logits = np.log([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    answers = decode_choices(logits + 7, None, EXAMPLES, TASK)
    assert [(each["choice"], each["label"]) for each in answers] == [(1, "B"), (0, "A")]
    np.testing.assert_allclose([each["probabilities"] for each in answers], np.exp(logits))
