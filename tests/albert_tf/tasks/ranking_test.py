"""Tests of rankings: losses by hand, features, what a step reads, and the exported module."""

import math

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.ranking.examples import RankingExample, TrainingQuery
from albert_tf.tasks.ranking.losses import ABSENT, ListwiseLoss, PointwiseLoss
from albert_tf.tasks.ranking.model import RankingModel, RankingSettings, sample
from albert_tf.tasks.ranking.module import RankingModule

KIND = KINDS["ranking"]
TASK = RankingSettings(seq_length=40, dropout=0.0, largest_grade=2.0)
QUERIES = [
    RankingExample("What is an iterator?", ("an object", "a name", "one item " * 20), (2, 0, 1)),
    RankingExample("Why?", ("So.",), (0,)),
]
TRAINING = [TrainingQuery(**vars(query)) for query in QUERIES]
LOSSES = {"listwise": ListwiseLoss, "pointwise": PointwiseLoss}


def log_softmax(scores, row):
    return scores[row] - math.log(sum(map(math.exp, scores)))


def cross_entropy(label, score):
    probability = 1 / (1 + math.exp(-score))
    return -label * math.log(probability) - (1 - label) * math.log(1 - probability)


def by_hand(loss: str) -> list[float]:
    """The losses of the two queries of `LABELS` and `SCORES`."""
    if loss == "listwise":
        first = [1.0, -2.0, 0.5]
        return [-(1 * log_softmax(first, 0) + 0.5 * log_softmax(first, 2)) / 1.5, 0.0]
    first = cross_entropy(1, 1.0) + cross_entropy(0, -2.0) + cross_entropy(0.5, 0.5)
    return [first / 3, cross_entropy(0, 3.0)]


LABELS = [[1.0, 0.0, 0.5, 0.0], [0.0, -1.0, -1.0, -1.0]]  # -1: the query has no such candidate
SCORES = [[1.0, -2.0, 0.5, ABSENT], [3.0, 9.0, ABSENT, 5.0]]  # the fourth of the first is not read


@pytest.mark.parametrize("name", LOSSES)
def test_losses_by_hand(name):
    scores = tf.Variable(SCORES)
    with tf.GradientTape() as tape:
        found = LOSSES[name]().call(tf.constant(LABELS), scores)
    np.testing.assert_allclose(found, by_hand(name), rtol=1e-6)
    gradient = tape.gradient(found, scores).numpy()
    assert np.isfinite(gradient).all() and (gradient[0, :3] != 0).all()
    assert gradient[0, 3] == 0 and (gradient[1, 1:] == 0).all()


@pytest.mark.parametrize("name", LOSSES)
def test_the_loss_of_a_part_is_the_mean_over_its_queries(name):
    """A candidate has its share of the loss of its query, however many the query has."""
    pairs = [(0.0, 1.0), (0.0, 0.0), (0.0, 0.5), (1.0, 0.0)]  # the query and the label
    found = LOSSES[name]().call(tf.constant(pairs), tf.constant([1.0, -2.0, 0.5, 3.0]))
    first, second = by_hand(name)
    np.testing.assert_allclose(found, [first / 3 * 2] * 3 + [second * 2], rtol=1e-6)
    assert float(tf.reduce_mean(found)) == pytest.approx((first + second) / 2)


def test_features_to_rank(small_tokenizer):
    """A unit for each candidate, in order, with the index of its query and its grade."""
    features = KIND.featurize(QUERIES, small_tokenizer, TASK)
    assert (len(features), features.per_unit, features.num_examples) == (4, 1, 2)
    np.testing.assert_array_equal(features.example, [0, 0, 0, 1])
    np.testing.assert_allclose(features.targets["label"], [[0, 1], [0, 0], [0, 0.5], [1, 0]])
    inputs, _ = features.batch(tf.range(4), 40)
    query, candidate = map(small_tokenizer.encode, ("What is an iterator?", "a name"))
    ids = [2, *query, 3, *candidate, 3]
    assert inputs["input_word_ids"][1].numpy().tolist() == ids + [0] * (40 - len(ids))
    types = [0] * (len(query) + 2) + [1] * (len(candidate) + 1)
    assert inputs["input_type_ids"][1].numpy().tolist() == types + [0] * (40 - len(ids))
    assert inputs["input_mask"].numpy().sum(axis=1)[2] == 40
    (note,) = features.notes()
    assert note.startswith(
        "1 of 4 candidates are, with their query, longer than task.seq_length=40"
    )
    unknown = KIND.featurize([QUERIES[0], RankingExample("a", ("b",))], small_tokenizer, TASK)
    assert not unknown.targets


def test_features_to_train_on(small_tokenizer):
    """A unit for each query, padded to the most candidates; of one, the axis stays."""
    features = KIND.featurize(TRAINING, small_tokenizer, TASK)
    assert (len(features), features.per_unit) == (2, 3)
    for values in (features.targets["label"], features.hints["grades"]):
        np.testing.assert_allclose(values, [[1, 0, 0.5], [0, -1, -1]])
    inputs, targets = features.batch(tf.range(2))
    assert inputs["input_mask"].shape[:2] == (2, 3) and targets["label"].shape == (2, 3)
    assert (inputs["input_mask"].numpy().sum(axis=2) > 0).tolist() == [[True] * 3, [True, 0, 0]]
    flat, _ = KIND.featurize(QUERIES, small_tokenizer, TASK).batch(tf.range(4), 40)
    listed, _ = features.batch(tf.range(2), 40)
    for name in INPUTS:
        found = tf.reshape(listed[name], [6, 40]).numpy()[[0, 1, 2, 3]]
        np.testing.assert_array_equal(found, flat[name])
    one = KIND.featurize(TRAINING[1:], small_tokenizer, TASK)
    assert one.per_unit == 2 and one.batch(tf.range(1))[0]["input_mask"].shape.rank == 3


@pytest.mark.parametrize(
    ("example", "message"),
    [
        (RankingExample("Why?", ()), r"at least 1 candidate. Received in example 0 \('Why\?'\): 0"),
        (
            RankingExample("why " * 60, ("So.",), (1,), location="dev.jsonl:3"),
            "dev.jsonl:3: the query must have at most 36 pieces, .* in task.seq_length=40. ",
        ),
    ],
)
def test_queries_that_cannot_be_read_are_refused(small_tokenizer, example, message):
    with pytest.raises(InputError, match=message):
        KIND.featurize([example], small_tokenizer, TASK)


def test_a_query_that_leaves_room_for_a_piece_is_read(small_tokenizer):
    """36 pieces, [CLS], two [SEP] and one of the candidate are 40."""
    query = "the " * 36
    assert len(small_tokenizer.encode(query)) == 36
    features = KIND.featurize([RankingExample(query, ("the",), (1,))], small_tokenizer, TASK)
    assert features.sequences.lengths.tolist() == [40]
    assert features.sequences.first_lengths.tolist() == [38]


@pytest.fixture(scope="module")
def model(tiny) -> RankingModel:
    tf_keras.utils.set_random_seed(3)
    made = RankingModel(AlbertEncoder(tiny), TASK).create_weights()
    made.head.set_weights([5 * np.ones([tiny.hidden_size, 1]) / 7, np.array([0.25])])
    return made


def test_missing_candidates_do_not_change_the_others(model, small_tokenizer):
    """Nor does it whether candidates are read one by one or as a list."""
    flat = predict(model, KIND.featurize(QUERIES, small_tokenizer, TASK), 3)
    listed = predict(model, KIND.featurize(TRAINING, small_tokenizer, TASK), 2)
    np.testing.assert_allclose(listed[0], flat[:3], atol=1e-5)
    np.testing.assert_allclose(listed[1], [flat[3], ABSENT, ABSENT], atol=1e-5)
    decoded = [KIND.decode(outputs, None, QUERIES, TASK) for outputs in (flat, listed.astype("f"))]
    for first, second in zip(*decoded, strict=True):
        assert first["ranking"] == second["ranking"] and sorted(first["ranking"]) == [
            *range(len(first["scores"]))
        ]
        assert first["scores"] == pytest.approx(second["scores"], abs=1e-5)
    assert KIND.decode(np.array([1.0, 2.0, 1.0]), None, QUERIES[:1], TASK) == [
        {"scores": [1.0, 2.0, 1.0], "ranking": [1, 0, 2]}
    ]


GRADES = tf.constant([[0.5, 0, 0, 1, 0, 0], [1, 1, 1, 1, 1, 0], [0, 0, -1, -1, -1, -1.0]])


def chosen(step: int, count: int = 4) -> list[set[int]]:
    rows = sample(GRADES, count, tf.constant([7, step])).numpy()
    assert rows.shape == (3, min(count, 6))
    return [{*row} for row in rows.tolist()]


def test_a_step_reads_the_relevant_candidates_and_a_sample_of_the_others():
    found = [chosen(step) for step in range(60)]
    assert found == [chosen(step) for step in range(60)]  # a function of the key
    others = {1, 2, 4, 5}
    for first, second, third in found:
        assert {0, 3} < first and len(first & others) == 2  # all relevant ones
        assert 5 in second and len(second) == 4  # as many as leave room for one that is not
        assert {0, 1} < third  # and places without a candidate, which have no pieces
    seen = [number for first, *_ in found for number in first & others]
    assert all(20 <= seen.count(number) <= 40 for number in others)  # 30 of 60 expected
    assert {frozenset(second) for _, second, _ in found} > {frozenset({0, 1, 2, 5})}
    assert chosen(1, 9) == [{*range(6)}] * 3


def test_training_scores_what_it_reads(model, small_tokenizer):
    """With room for two of the three candidates, the two are those of a sample."""
    features = KIND.featurize(TRAINING, small_tokenizer, TASK)
    inputs, targets = features.batch(tf.range(2))
    whole = model(inputs).numpy()
    try:
        model.task = TASK.replace(num_candidates=2)
        part = model(inputs, training=True).numpy()
    finally:
        model.task = TASK
    is_read = part > ABSENT / 2
    assert is_read.sum(axis=1).tolist() == [2, 1] and is_read[0, 1] and part.shape == (2, 3)
    np.testing.assert_allclose(part[is_read], whole[is_read], atol=1e-4)
    assert np.isfinite(ListwiseLoss().call(targets["label"], tf.constant(part))).all()
    np.testing.assert_allclose(model(inputs, training=True), whole, atol=1e-4)


@pytest.fixture(scope="module")
def signatures(model, small_tokenizer) -> dict:
    module = RankingModule(model, small_tokenizer)
    return module.signatures() | {"module": module}


LISTS = [("an object", "a name", "one item " * 20), ("So.", "", "naïve “x” 漢字")]


def test_the_module_answers_as_the_features(model, signatures, small_tokenizer):
    examples = [
        RankingExample(query, texts)
        for query, texts in zip(("What is it?", "why " * 60), LISTS, strict=True)
    ]
    features = KIND.featurize(examples, small_tokenizer, TASK)
    answers = KIND.decode(predict(model, features, 4), features, examples, TASK)
    found = signatures["serving_default"](
        tf.constant([each.query for each in examples]), tf.constant(LISTS)
    )
    assert found["scores"].dtype == tf.float32 and found["ranking"].dtype == tf.int32
    np.testing.assert_allclose(found["scores"], [answer["scores"] for answer in answers], atol=2e-5)
    np.testing.assert_array_equal(found["ranking"], [answer["ranking"] for answer in answers])
    inputs, _ = features.batch(tf.range(6))
    scores = signatures["tokens"](*(inputs[name] for name in INPUTS))
    assert scores.keys() == {"scores"}
    np.testing.assert_allclose(scores["scores"], tf.reshape(found["scores"], [-1]), atol=2e-5)


def test_queries_with_different_numbers_of_candidates(signatures):
    query, texts = tf.constant(["What is it?", "why"]), tf.constant(LISTS)
    whole = signatures["serving_default"](query, texts)
    found = signatures["padded"](query, texts, tf.constant([3, 2]))
    np.testing.assert_allclose(found["scores"][0], whole["scores"][0], atol=2e-5)
    np.testing.assert_allclose(found["scores"][1, :2], whole["scores"][1, :2], atol=2e-5)
    assert found["scores"][1, 2] == ABSENT and found["ranking"][1, 2] == 2
    for counts in ([3, 0], [4, 1]):
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 1 to the number"):
            signatures["padded"](query, texts, tf.constant(counts))
    with pytest.raises(tf.errors.InvalidArgumentError, match="at least 1 column"):
        signatures["serving_default"](query, tf.zeros([2, 0], tf.string))
    with pytest.raises(tf.errors.InvalidArgumentError, match="same number of entries"):
        signatures["serving_default"](query[:1], texts)
    for rows in (1, 3):  # one list would fit all queries by broadcasting
        with pytest.raises(tf.errors.InvalidArgumentError, match="same number of entries"):
            signatures["padded"](query, tf.constant([LISTS[0]] * rows), tf.constant([3, 2]))


def test_a_loaded_model_has_its_weights_and_loss(model, small_tokenizer, tmp_path):
    inputs, targets = KIND.featurize(TRAINING, small_tokenizer, TASK).batch(tf.range(2))
    model.compile(loss=model.training_losses())
    model.save(tmp_path / "m.keras")
    loaded = tf_keras.models.load_model(tmp_path / "m.keras")
    assert isinstance(loaded, RankingModel) and loaded.task == TASK
    np.testing.assert_allclose(loaded(inputs), model(inputs), atol=1e-6)
    data = tf.data.Dataset.from_tensors((inputs, targets["label"]))
    assert loaded.evaluate(data, verbose=0) == pytest.approx(model.evaluate(data, verbose=0))
