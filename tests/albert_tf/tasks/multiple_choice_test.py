"""Tests of multiple choice: features by hand, and that the model compares the options."""

import dataclasses
import warnings

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.features import featurize_choices, fill_blanks
from albert_tf.tasks.multiple_choice.model import (
    ABSENT,
    MultipleChoiceModel,
    MultipleChoiceSettings,
    option_letter,
)
from albert_tf.tasks.predictor import predict
from tests.albert_tf.tasks.span_features_test import TOKENIZER

CONTEXT = "An iterator is an object that gives one item after the other."
EXAMPLES = [
    ChoiceExample("An _ gives items; _ is it.", CONTEXT, ("iterator", "integer", "error"), 0),
    ChoiceExample("What is given?", "A name.", ("an item after another", "none", ""), 1),
]
KIND = KINDS["multiple_choice"]
TASK = MultipleChoiceSettings(seq_length=40, num_choices=3, qa_length=12, dropout=0.0)


def test_the_option_stands_in_the_blanks_or_behind():
    assert fill_blanks("An _ gives items; _ is it.", "x y") == "An x y gives items; x y is it."
    assert fill_blanks("Paris is the ____ of__ France.", "x") == "Paris is the x ofx France."
    assert fill_blanks("___", "a_b\\1") == "a_b\\1"
    assert fill_blanks("Why?", "So.") == "Why? So."


@pytest.mark.parametrize("seq_length", [16, 17, 40, 64])
@pytest.mark.parametrize("qa_length", [1, 5, 100])
def test_features(small_tokenizer, seq_length, qa_length):
    task = MultipleChoiceSettings(seq_length, 3, qa_length)
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
    [(64, 100, 0), (16, 100, 2), (64, 5, 2), (64, None, 1), (40, 100, 1)],
)
def test_questions_whose_context_or_answer_is_cut_are_counted(
    small_tokenizer, seq_length, qa_length, cut
):
    """A question counts once, whichever of its options there was no room for.

    A `qa_length` of None is that of the shorter question, of which the longer one is cut.
    """
    rows = [
        (len(small_tokenizer.encode(each.context)), len(small_tokenizer.encode(text)))
        for each in EXAMPLES
        for text in (fill_blanks(each.question, option) for option in each.options)
    ]
    qa_length = qa_length or min(max(n for _, n in rows[:3]), max(n for _, n in rows[3:]))
    features = featurize_choices(
        EXAMPLES, small_tokenizer, MultipleChoiceSettings(seq_length, 3, qa_length)
    )
    is_cut = [
        question > min(qa_length, seq_length - 3)
        or context + min(question, qa_length) > seq_length - 3
        for context, question in rows
    ]
    assert features.cut == any(is_cut[:3]) + any(is_cut[3:]) == cut
    limits = f"task.seq_length={seq_length} or task.qa_length={qa_length}"
    note = f"{cut} of 2 examples are longer than {limits} and are truncated"
    assert features.notes() == ([note] if cut else [])


@pytest.mark.parametrize("options", [(), ("a",), "yes", None, 5])
def test_a_question_without_a_choice_is_refused(small_tokenizer, options):
    examples = [EXAMPLES[0], ChoiceExample("Why?", CONTEXT, options)]
    received = len(options) if isinstance(options, tuple) else options
    message = rf"at least 2 options.*example 1 \('Why\?'\): {received}"
    with pytest.raises(InputError, match=message):
        featurize_choices(examples, small_tokenizer, TASK)
    assert examples[1].texts[:2] == ("Why?", CONTEXT)


def test_options_of_a_generator_are_refused(small_tokenizer):
    example = ChoiceExample("Why?", CONTEXT, (text for text in "ab"))
    assert example.texts == ("Why?", CONTEXT)
    with pytest.raises(InputError, match="at least 2 options.* <generator"):
        featurize_choices([example], small_tokenizer, TASK)


@pytest.mark.parametrize(
    ("label", "received"), [("A", "'A'"), (2, "2"), (-1, "-1"), (0.5, "0.5"), (True, "True")]
)
def test_a_label_that_is_no_option_is_refused(small_tokenizer, label, received):
    examples = [EXAMPLES[0], ChoiceExample("Why?", CONTEXT, ("a", "b"), label)]
    message = rf"`label` of example 1 must be .* integer in \[0, 2\). Received: {received}\."
    with pytest.raises(InputError, match=message):
        featurize_choices(examples, small_tokenizer, TASK)


MIXED = [  # of 3, 2 and 5 options; the last one has no context
    EXAMPLES[0],
    ChoiceExample("Why?", CONTEXT, ("So.", "It is an object."), 1),
    ChoiceExample("What is _ ?", "", ("a", "b", "c", "the value", ""), 4),
]


def test_options_that_a_question_lacks_have_no_pieces(small_tokenizer):
    """The others are as they are alone, whichever questions are beside."""
    mixed = featurize_choices(MIXED, small_tokenizer, TASK)
    assert (len(mixed), mixed.per_unit) == (3, 5) and mixed.targets["label"].tolist() == [0, 1, 4]
    inputs, _ = mixed.batch(tf.constant([0, 1, 2]), 40)
    assert inputs["input_mask"].numpy().any(axis=2).sum(axis=1).tolist() == [3, 2, 5]
    for row, example in enumerate(MIXED):
        count = len(example.options)
        alone = featurize_choices([example], small_tokenizer, TASK)
        assert alone.per_unit == count
        own, _ = alone.batch(tf.constant([0]), 40)
        for name in INPUTS:
            np.testing.assert_array_equal(inputs[name][row, :count], own[name][0])
            assert not np.any(inputs[name][row, count:])  # the id of <pad> is 0


def test_answers_do_not_depend_on_the_questions_beside(tiny, small_tokenizer):
    tf_keras.utils.set_random_seed(0)
    model = MultipleChoiceModel(AlbertEncoder(tiny), TASK).create_weights()

    def answers(examples):
        features = featurize_choices(examples, small_tokenizer, TASK)
        return KIND.decode(predict(model, features, 2), features, examples, TASK)

    together = answers(MIXED)
    for example, answer in zip(MIXED, together, strict=True):
        (alone,) = answers([example])
        assert len(answer["probabilities"]) == len(example.options)
        assert sum(answer["probabilities"]) == pytest.approx(1.0)
        assert (answer["choice"], answer["label"]) == (alone["choice"], alone["label"])
        np.testing.assert_allclose(answer["probabilities"], alone["probabilities"], atol=1e-5)


def test_missing_options_have_no_part_in_the_loss(tiny, small_tokenizer):
    """The loss is the cross-entropy over a question's own options, and so is its gradient."""
    tf_keras.utils.set_random_seed(0)
    model = MultipleChoiceModel(AlbertEncoder(tiny), TASK).create_weights()

    def loss_and_gradient(example, more):
        features = featurize_choices([example, *more], small_tokenizer, TASK)
        inputs, targets = features.batch(tf.constant([0]), 40)
        with tf.GradientTape() as tape:
            loss = model.training_losses()(targets["label"], model(inputs))
        return float(loss), tape.gradient(loss, model.head.kernel).numpy()

    (alone, alone_gradient), (beside, gradient) = (
        loss_and_gradient(MIXED[1], more) for more in ([], MIXED[2:])
    )
    assert beside == pytest.approx(alone, abs=1e-5) and np.isfinite(gradient).all()
    np.testing.assert_allclose(gradient, alone_gradient, atol=1e-5)


def test_probabilities_are_averaged_without_missing_options():
    """(0.8 + 0.4) / 2 = 0.6 of the first question; the second one has three options."""
    members = [
        np.array([[*np.log([0.8, 0.2]), ABSENT], [0.0, 0.0, 0.0]]),
        np.array([[*np.log([0.4, 0.6]), ABSENT], [0.0, 0.0, 0.0]]),
    ]
    examples = [ChoiceExample("q", "", ("a", "b")), ChoiceExample("q", "", ("a", "b", "c"))]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        features = featurize_choices(examples, TOKENIZER, TASK)
        answers = KIND.decode(KIND.average(members), features, examples, TASK)
    np.testing.assert_allclose(answers[0]["probabilities"], [0.6, 0.4])
    np.testing.assert_allclose(answers[1]["probabilities"], [1 / 3] * 3)


def test_letters_go_on_after_z():
    letters = [option_letter(i) for i in (0, 1, 25, 26, 27, 51, 52, 701, 702)]
    assert letters == ["A", "B", "Z", "AA", "AB", "AZ", "BA", "ZZ", "AAA"]


def test_unknown_answers_are_no_targets(small_tokenizer):
    examples = [EXAMPLES[0], ChoiceExample("Why?", CONTEXT, ("a", "b", "c"))]
    assert featurize_choices(examples, small_tokenizer, TASK).targets == {}


@pytest.mark.parametrize("key", ["seq_length", "num_choices", "qa_length", "dropout"])
def test_impossible_settings_are_refused(key):
    with pytest.raises(ConfigError, match=f"`task.{key}`.*Received: -1"):
        MultipleChoiceSettings(**{key: -1})


def test_each_option_is_scored_by_itself(tiny, small_tokenizer):
    tf_keras.utils.set_random_seed(0)
    model = MultipleChoiceModel(AlbertEncoder(tiny), TASK).create_weights()
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
    model = MultipleChoiceModel(encoder, TASK).create_weights()
    model.compile(tf_keras.optimizers.Adam(3e-3), model.training_losses(), metrics=["accuracy"])
    first = np.log(tf.nn.softmax(model(inputs)).numpy())
    history = model.fit(inputs, targets["label"], batch_size=3, epochs=10, verbose=0).history
    expected = -np.mean(first[range(3), targets["label"].numpy()])
    assert history["loss"][0] == pytest.approx(expected, rel=1e-5)
    # The right one is at every place once: blind to what an option says, a third is right.
    assert history["accuracy"][-1] == 1.0


def test_answers():
    logits = np.log([[0.2, 0.5, 0.3], [0.6, 0.3, 0.1]])
    features = featurize_choices(EXAMPLES, TOKENIZER, TASK)
    answers = KIND.decode(logits + 7, features, EXAMPLES, TASK)
    assert [(each["choice"], each["label"]) for each in answers] == [(1, "B"), (0, "A")]
    np.testing.assert_allclose([each["probabilities"] for each in answers], np.exp(logits))
