"""Embeddings: losses by hand, the gradient of parts, features, rankings."""

import dataclasses
import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.layers import common
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.embedding import kind as kinds
from albert_tf.tasks.embedding.examples import ContrastExample, Corpus, SearchExample
from albert_tf.tasks.embedding.losses import (
    CoSENT,
    CosineError,
    InBatchNegatives,
    TeacherCosine,
    TeacherSquared,
)
from albert_tf.tasks.embedding.model import LOSSES, EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.training.step import split_batch, step_dropout_key

EAST, NORTH, WEST = (1.0, 0.0), (0.0, 1.0), (-1.0, 0.0)
KIND = kinds.Embedding()


def entropy(right: float, *others: float) -> float:
    """The cross-entropy of the softmax of cosines at temperature 1/2."""
    return math.log(sum(math.exp(2 * each) for each in (right, *others))) - 2 * right


class TestInBatchNegatives:
    VECTORS = [[EAST, NORTH], [NORTH, EAST], [EAST, WEST]]  # cosines of pairs 0, 0, -1

    def loss(self, texts, vectors=VECTORS, symmetric=False):
        loss = InBatchNegatives(0.5, symmetric)
        return loss.call(tf.constant(texts), tf.constant(vectors)).numpy()

    def test_one_way_and_both(self):
        texts = [[0, 1], [2, 3], [4, 5]]
        forth = [entropy(0, 1, -1), entropy(0, 1, 0), entropy(-1, 0, 1)]
        np.testing.assert_allclose(self.loss(texts), forth, rtol=1e-6)
        back = [entropy(0, 1, 0), entropy(0, 1, 1), entropy(-1, -1, 0)]
        both = np.mean([forth, back], axis=0)
        np.testing.assert_allclose(self.loss(texts, symmetric=True), both, rtol=1e-6)

    def test_given_negatives_count_for_every_row(self):
        """The second row has none; where there is no text, the vector does not matter."""
        vectors = [[EAST, NORTH, WEST], [NORTH, EAST, EAST]]
        found = self.loss([[0, 1, 2], [3, 4, -1]], vectors)
        np.testing.assert_allclose(found, [entropy(0, 1, -1), entropy(0, 1, 0)], rtol=1e-6)

    @pytest.mark.parametrize(
        ("texts", "others"),
        [
            ([[0, 1], [2, 1], [4, 5]], [(-1,), (0,), (0, 1)]),  # equal second texts
            ([[0, 1], [0, 3], [4, 5]], [(-1,), (0,), (0, 1)]),  # equal first texts
            ([[0, 1], [1, 3], [4, 5]], [(1, -1), (0,), (0, 1)]),  # a second text is a first one
            ([[0, 1], [2, 3], [4, 2]], [(1, -1), (1,), (0, 1)]),
        ],
    )
    def test_duplicates_are_no_negatives(self, texts, others):
        rights = (0, 0, -1)
        wanted = [entropy(right, *each) for right, each in zip(rights, others, strict=True)]
        np.testing.assert_allclose(self.loss(texts), wanted, rtol=1e-6)

    def test_a_negative_that_is_right_does_not_count(self):
        vectors = [[EAST, NORTH, WEST], [NORTH, EAST, EAST]]
        found = self.loss([[0, 1, 4], [3, 4, 0]], vectors)
        np.testing.assert_allclose(found, [entropy(0, 1, -1), entropy(0, 0, 1)], rtol=1e-6)

    def test_an_answer_to_an_equal_text_does_not_count(self):
        """The first two rows have the same first text, so the second one's 3 is right for both."""
        found = self.loss([[0, 1], [0, 3], [4, 3]])
        np.testing.assert_allclose(found, [entropy(0), entropy(0), entropy(-1, 0)], rtol=1e-6)
        vectors = [[EAST, NORTH, WEST], [NORTH, EAST, WEST], [EAST, WEST, NORTH]]
        found = self.loss([[0, 1, -1], [0, 3, -1], [4, 5, 3]], vectors)
        wanted = [entropy(0, -1), entropy(0, 0), entropy(-1, 0, 1, 0)]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)

    def test_duplicates_do_not_count_backwards(self):
        """The first two rows have the same second text, so each first text is right for both."""
        found = self.loss([[0, 1], [2, 1], [4, 5]], symmetric=True)
        forth = [entropy(0, -1), entropy(0, 0), entropy(-1, 0, 1)]
        back = [entropy(0, 0), entropy(0, 1), entropy(-1, -1, 0)]
        np.testing.assert_allclose(found, np.mean([forth, back], axis=0), rtol=1e-6)

    def test_the_same_text_twice(self):
        """Of SimCSE: a number for each text, which is first and second."""
        found = self.loss([7, 8, 7])
        wanted = [entropy(0, 1), entropy(0, 1, 0), entropy(-1, 1)]
        np.testing.assert_allclose(found, wanted, rtol=1e-6)


def test_the_squared_error_of_a_cosine():
    vectors = [[EAST, EAST], [EAST, NORTH], [EAST, WEST]]
    found = CosineError(1.0, 5.0).call(tf.constant([5.0, 2.0, 1.0]), tf.constant(vectors))
    np.testing.assert_allclose(found, [0, 1 / 16, 1], rtol=1e-6)


def test_the_order_of_scored_pairs():
    """Scores 3 > 2 > 1 with the cosines 0, 1, -1: only the second should not be above the first."""
    vectors = [[EAST, NORTH], [EAST, EAST], [EAST, WEST]]
    found = CoSENT(0.5).call(tf.constant([3.0, 2.0, 1.0]), tf.constant(vectors))
    wanted = math.log(1 + math.exp(2) + math.exp(-2) + math.exp(-4))
    np.testing.assert_allclose(found, [wanted] * 3, rtol=1e-6)
    equal = CoSENT(0.5).call(tf.constant([1.0, 1.0, 1.0]), tf.constant(vectors))
    np.testing.assert_allclose(equal, [0, 0, 0], atol=1e-7)


def test_a_teachers_vectors():
    teacher, student = tf.constant([[0.0, 3.0], [3.0, 4.0]], tf.float16), tf.constant([NORTH, EAST])
    np.testing.assert_allclose(TeacherCosine().call(teacher, student), [0, 0.4], atol=1e-6)
    np.testing.assert_allclose(TeacherSquared().call(teacher, student), [4, 20], atol=1e-6)


@pytest.mark.parametrize("name", LOSSES)
def test_every_loss_is_rebuilt_from_its_configuration(name):
    task = EmbeddingSettings(loss=name, symmetric=True, lowest_score=1.0, highest_score=3.0)
    loss = LOSSES[name](task)
    copy = tf_keras.losses.deserialize(tf_keras.losses.serialize(loss))
    assert copy.get_config() == loss.get_config()


def test_scores_that_do_not_differ():
    with pytest.raises(ConfigError, match="below `task.highest_score`. Received: 1.0 and 1.0"):
        EmbeddingSettings(lowest_score=1.0)


def model_of(tiny, **changes) -> EmbeddingModel:
    tf_keras.utils.set_random_seed(3)
    config = tiny.replace(num_layers=1, hidden_dropout=changes.pop("hidden_dropout", 0.0))
    return EmbeddingModel(AlbertEncoder(config), EmbeddingSettings(**changes)).create_weights()


class TestModel:
    def test_texts_of_an_example_are_as_texts_alone(self, tiny, fake_inputs):
        model = model_of(tiny, projection=5)
        inputs = {k: tf.constant(v) for k, v in fake_inputs(6, 7, (0, 2, 4, 0, 0, 1)).items()}
        flat = model(inputs)
        assert flat.shape == (6, 5)
        np.testing.assert_allclose(np.linalg.norm(flat, axis=1), np.ones(6), atol=1e-6)
        rows = model({name: tf.reshape(value, [2, 3, 7]) for name, value in inputs.items()})
        np.testing.assert_allclose(rows, tf.reshape(flat, [2, 3, 5]), atol=1e-6)

    def test_a_row_without_a_text_is_zero(self, tiny, fake_inputs):
        inputs = fake_inputs(2, 5, (0, 5))
        vectors = model_of(tiny)({name: tf.constant(value) for name, value in inputs.items()})
        assert not vectors[1].numpy().any()

    def test_simcse_reads_twice_with_other_dropout(self, tiny, fake_inputs):
        inputs = {name: tf.constant(value) for name, value in fake_inputs(3, 5).items()}
        model = model_of(tiny, loss="simcse", hidden_dropout=0.1)
        assert model(inputs).shape == (3, 32)
        twice = model(inputs, training=True).numpy()
        assert twice.shape == (3, 2, 32) and np.abs(twice[:, 0] - twice[:, 1]).max(axis=1).all()

    def test_only_the_squared_error_sees_lengths(self, tiny, fake_inputs):
        inputs = {name: tf.constant(value) for name, value in fake_inputs(3, 5).items()}
        for loss, is_unit in (("teacher_squared", False), ("teacher_cosine", True)):
            vectors = model_of(tiny, loss=loss)(inputs, training=True)
            assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5) == is_unit


BATCH = 8
CASES = {
    "in_batch": tf.reshape(tf.range(2 * BATCH), [BATCH, 2]),
    "cosent": tf.range(float(BATCH)),
    "simcse": tf.range(BATCH),
}


@pytest.mark.parametrize("parts", [2, 8])
@pytest.mark.parametrize("loss", CASES)
def test_the_gradient_of_parts_is_that_of_the_whole_batch(tiny, fake_inputs, loss, parts):
    """With dropout: the plain gradient goes through all parts at once, with the same masks."""
    model = model_of(tiny, loss=loss, symmetric=True, hidden_dropout=0.2, dropout=0.1, projection=6)
    count = 1 if loss == "simcse" else 2
    inputs = {k: tf.constant(v) for k, v in fake_inputs(BATCH * count, 7, (0, 1) * 4).items()}
    if count > 1:
        inputs = {k: tf.reshape(v, [BATCH, count, 7]) for k, v in inputs.items()}
    found: list[np.ndarray] = []

    class Recorder(tf_keras.optimizers.SGD):
        def apply_gradients(self, pairs, *args, **kwargs):
            found.extend(np.asarray(tf.convert_to_tensor(gradient)) for gradient, _ in pairs)

    model.compile(Recorder(), model.training_losses(), run_eagerly=True)
    model.dropout_seed, model.accumulation_steps = 5, parts
    value = model.train_step((inputs, CASES[loss]))["loss"]

    key, split = step_dropout_key(5, tf.constant(0), tf.constant(0)), split_batch(inputs, parts)
    with tf.GradientTape() as tape:
        outputs = []
        for part in range(parts):
            with model._keyed(common.fold_in(key, part)):
                rows = {name: values[part] for name, values in split.items()}
                outputs.append(model(rows, training=True))
        losses = model.training_losses().call(CASES[loss], tf.concat(outputs, 0))
        plain = tf.reduce_mean(losses)
    wanted = [
        np.asarray(tf.convert_to_tensor(each))
        for each in tape.gradient(plain, model.trainable_variables)
        if each is not None
    ]
    assert float(value) == pytest.approx(float(plain), abs=1e-6)
    assert len(found) == len(wanted) > 10 and max(np.abs(each).max() for each in wanted) > 1e-2
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def featurized(examples, tokenizer, **changes):
    return KIND.featurize(examples, tokenizer, EmbeddingSettings(seq_length=32, **changes))


class TestFeatures:
    def test_negatives_of_any_number(self, small_tokenizer):
        examples = [
            ContrastExample("a list", "it", negatives=("none", "a list")),
            ContrastExample("it", "the value"),
        ]
        features = featurized(examples, small_tokenizer)
        assert features.per_unit == 4
        assert features.targets["label"].tolist() == [[0, 1, 2, 0], [1, 3, -1, -1]]
        assert features.sequences.lengths.reshape(2, 4)[1].tolist()[2:] == [0, 0]
        inputs, _ = features.batch(tf.constant([1]))
        assert inputs["input_mask"][0, 2:].numpy().sum() == 0

    def test_prompts_of_pairs_and_searches(self, small_tokenizer):
        prompts = {"query_prompt": "the value ", "passage_prompt": "a list "}
        pair = featurized([TextExample("it", "none")], small_tokenizer, **prompts)
        plain = featurized([TextExample("the value it", "a list none")], small_tokenizer)
        assert pair.sequences.ids.tolist() == plain.sequences.ids.tolist()
        search = SearchExample("it", corpus=Corpus(["7"], ["none"]))
        found = featurized([search], small_tokenizer, **prompts)
        assert found.sequences.ids.tolist() == plain.sequences.ids.tolist()
        single = featurized([TextExample("it")], small_tokenizer, **prompts)
        assert len(single.sequences.ids) == 2 + len(small_tokenizer.encode("it"))

    @pytest.mark.parametrize(
        ("loss", "examples", "targets"),
        [
            ("cosine", [TextExample("a", "b", 2.0)], [2.0]),
            ("cosent", [TextExample("a", "b")], None),
            ("in_batch", [TextExample("a", "b", 2.0)], None),
            ("in_batch", [TextExample("a")], None),
            ("simcse", [TextExample("a"), TextExample("b"), TextExample("a")], [0, 1, 0]),
            ("simcse", [TextExample("a", "b")], None),
            ("teacher_squared", [TextExample("a", label=(1.0, 2.0))], [[1.0, 2.0]]),
            ("teacher_cosine", [TextExample("a")], None),
        ],
    )
    def test_targets(self, small_tokenizer, loss, examples, targets):
        found = featurized(examples, small_tokenizer, loss=loss).targets
        assert (found["label"].tolist() if found else None) == targets

    def test_two_corpora(self, small_tokenizer):
        searches = [SearchExample("a", corpus=Corpus([name], ["b"])) for name in "xy"]
        with pytest.raises(InputError, match="the same corpus"):
            featurized(searches, small_tokenizer)


class TestPredictions:
    def test_equal_scores_are_ranked_as_by_trec_eval(self):
        search = SearchExample("x", corpus=Corpus(*2 * [("a", "c", "b", "d")]))
        found = kinds.ranking(search, np.array([0.5, 0.5, 1.0, 0.5]))
        assert found == [["b", 1.0], ["d", 0.5], ["c", 0.5], ["a", 0.5]]

    def test_the_best_of_many(self, monkeypatch):
        monkeypatch.setattr(kinds, "RANKED", 2)
        search = SearchExample("x", corpus=Corpus(*2 * [("a", "b", "c", "d")]))
        scores = np.array([0.5, 0.1, 0.5, 0.5])
        assert kinds.ranking(search, scores) == [["d", 0.5], ["c", 0.5]]
        search = dataclasses.replace(search, itself="c")
        assert kinds.ranking(search, scores) == [["d", 0.5], ["a", 0.5]]

    def test_a_search_and_a_pair(self):
        corpus = Corpus(("x", "y"), ("one", "two"))
        searches = [SearchExample(text, corpus=corpus) for text in "ab"]
        vectors = np.array([EAST, NORTH, NORTH, EAST], np.float32)
        found = KIND.decode(vectors, None, searches, EmbeddingSettings())
        assert found == [
            {"ranking": [["y", 1.0], ["x", 0.0]]},
            {"ranking": [["x", 1.0], ["y", 0.0]]},
        ]
        pairs = np.array([[EAST, WEST], [EAST, EAST]], np.float32)
        examples = [TextExample("a", "b"), TextExample("c")]
        found = KIND.decode(pairs, None, examples, EmbeddingSettings())
        assert found == [{"score": -1.0}, {"embedding": [1.0, 0.0]}]


def test_the_dev_loss_compares_pairs_of_batches(tiny):
    """Otherwise its memory would grow with the square of the part."""
    model = EmbeddingModel(AlbertEncoder(tiny), EmbeddingSettings(loss="cosent", temperature=0.5))
    rng = np.random.default_rng(0)
    labels, vectors = rng.normal(size=10).astype("f"), rng.normal(size=[10, 2, 3]).astype("f")
    loss = CoSENT(0.5)
    parts = [float(np.mean(loss.call(labels[i : i + 4], vectors[i : i + 4]))) for i in (0, 4, 8)]
    wanted = (4 * parts[0] + 4 * parts[1] + 2 * parts[2]) / 10
    assert model.mean_loss(vectors, {"label": labels}, 4) == pytest.approx(wanted)
