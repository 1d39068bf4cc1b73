"""Tests of the classifier's features and model, and that a run's classifier comes back."""

import json
import os

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.tasks.classifier.model import (
    ClassifierSettings,
    SequenceClassifier,
    SupervisedContrastive,
)
from albert_tf.tasks.features import Features, TextFeatures, concatenate, pack
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.predictor import load_task_model, predict
from albert_tf.text.graph_tokenizer import pack_segments
from albert_tf.text.tokenizer import SpecialIds

SPECIAL = SpecialIds(pad=0, unk=1, cls=2, sep=3, mask=4)
TASK = ClassifierSettings(labels=("no", "yes", "maybe"), seq_length=12, dropout=0.5)


def padded(first, second, seq_length: int) -> dict[str, np.ndarray]:
    sequences = pack(first, second, seq_length, SPECIAL)
    inputs = sequences.inputs(tf.range(len(sequences)), seq_length)
    return {name: value.numpy() for name, value in inputs.items()}


def test_one_text():
    features = padded([[7, 8], [], [9] * 9], None, 6)
    assert features["input_word_ids"].tolist() == [
        [2, 7, 8, 3, 0, 0],
        [2, 3, 0, 0, 0, 0],
        [2, 9, 9, 9, 9, 3],
    ]
    assert features["input_mask"].sum(axis=1).tolist() == [4, 2, 6]
    assert not features["input_type_ids"].any()
    assert {values.dtype for values in features.values()} == {np.dtype(np.int32)}


def test_a_pair():
    features = padded([[7, 8]], [[9]], 8)
    assert features["input_word_ids"].tolist() == [[2, 7, 8, 3, 9, 3, 0, 0]]
    assert features["input_mask"].tolist() == [[1, 1, 1, 1, 1, 1, 0, 0]]
    assert features["input_type_ids"].tolist() == [[0, 0, 0, 0, 1, 1, 0, 0]]


@pytest.mark.parametrize("seq_length", [3, 4, 7, 8, 12])
def test_the_served_graph_makes_the_same_features(seq_length):
    first = [[10 + i] * a for i, a in enumerate(range(9)) for _ in range(9)]
    second = [[30 + i] * b for _ in range(9) for i, b in enumerate(range(9))]
    for segments in ([first], [first, second]):
        ours = padded(first, second if len(segments) == 2 else None, seq_length)
        ragged = [tf.ragged.constant(segment, tf.int32) for segment in segments]
        graph = pack_segments(ragged, seq_length, SPECIAL)
        for name, values in ours.items():
            np.testing.assert_array_equal(values, graph[name], err_msg=name)


def test_truncated_examples_are_counted():
    assert pack([[7] * 4, [7] * 5, [7] * 9], None, 6, SPECIAL).cut.tolist() == [False, True, True]
    both = [pack([[7] * a], [[8] * 2], 9, SPECIAL) for a in (4, 5)]
    assert [each.cut.tolist() for each in both] == [[False], [True]]
    row = np.zeros(1, np.int32)
    whole = concatenate(
        [
            TextFeatures(each, 9, {"label": np.array([i])}, example=row)
            for i, each in enumerate(both)
        ]
    )
    assert (len(whole), whole.cut) == (2, 1)
    assert whole.notes() == ["1 of 2 examples are longer than task.seq_length=9 and are truncated"]
    assert whole.batch(tf.range(2), 9)[0]["input_mask"].numpy().sum(axis=1).tolist() == [9, 9]
    assert whole.targets["label"].tolist() == [0, 1]


def test_of_a_pair_the_longer_loses_its_tail():
    (row,) = padded([[7] * 9], [[8, 9]], 9)["input_word_ids"].tolist()
    assert row == [2, 7, 7, 7, 7, 3, 8, 9, 3]


def test_no_examples():
    assert padded([], None, 6)["input_mask"].shape == (0, 6)


@pytest.mark.parametrize("labels", [(), ("a",), ("a", "a"), ("a", "b", "a")])
def test_labels_must_differ(labels):
    with pytest.raises(ConfigError, match=r"`task.labels`.*Received: \("):
        ClassifierSettings(labels)


@pytest.mark.parametrize(
    ("changes", "word"), [({"seq_length": 3}, "seq_length"), ({"dropout": 1.0}, "dropout")]
)
def test_impossible_values(changes, word):
    with pytest.raises(ConfigError, match=rf"`task.{word}`"):
        ClassifierSettings(("a", "b"), **changes)


@pytest.fixture(scope="module")
def model(tiny) -> SequenceClassifier:
    return SequenceClassifier(AlbertEncoder(tiny), TASK).create_weights()


@pytest.mark.parametrize(
    ("label", "received"),
    [(3, "3"), (-1, "-1"), (1.7, "1.7"), ("1", "'1'"), (True, "True"), (np.nan, "nan")],
)
def test_a_label_that_is_none_of_the_tasks_is_refused(small_tokenizer, label, received):
    examples = [albert_tf.TextExample("a", label=each) for each in (2, np.int64(0), label)]
    message = rf"`label` of example 2 must be .* integer in \[0, 3\). Received: {received}\."
    with pytest.raises(InputError, match=message):
        KINDS["classifier"].featurize(examples, small_tokenizer, TASK)
    label = KINDS["classifier"].featurize(examples[:2], small_tokenizer, TASK).targets["label"]
    assert label.dtype == np.int32 and label.tolist() == [2, 0]


@pytest.mark.parametrize("task", [TASK, MultiLabelSettings(TASK.labels)])
def test_logits_by_numpy(tiny, fake_inputs, task):
    model = KINDS[task.kind].model(AlbertEncoder(tiny), task).create_weights()
    inputs = fake_inputs(4, 9)
    kernel, bias = model.head.get_weights()
    wanted = model.encoder(inputs)["pooled_output"].numpy() @ kernel + bias
    np.testing.assert_allclose(model(inputs), wanted, atol=1e-6)
    assert model(inputs).shape == (4, 3)
    assert model.count_params() == model.encoder.config.param_count() + 32 * 3 + 3
    assert np.any(model(inputs, training=True) != model(inputs))


def test_dropout_only_in_training(model, fake_inputs):
    inputs = fake_inputs(4, 9)
    np.testing.assert_array_equal(model(inputs), model(inputs))
    assert np.any(model(inputs, training=True) != model(inputs, training=True))


def test_no_classifier_s_run(pretrained):
    with pytest.raises(InputError, match="is not a fine-tuned run: its task is 'pretraining'"):
        load_task_model(pretrained)


def test_an_export_is_called_by_its_signature(tmp_path):
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(InputError, match="is an export: call a signature of .*, or pass the run"):
        albert_tf.load_predictor(str(tmp_path))


def test_a_task_with_an_unknown_key(tmp_path, tiny):
    task = TASK.__dict__ | {"lables": []}
    (tmp_path / "config.json").write_text(json.dumps({"model": tiny.__dict__, "task": task}))
    with pytest.raises(ConfigError, match=r"unknown key `task.lables`.*task.labels"):
        load_task_model(str(tmp_path))
    assert os.listdir(tmp_path) == ["config.json"]


def test_predictions_keep_the_order_of_the_units(tiny):
    model = SequenceClassifier(AlbertEncoder(tiny), TASK).create_weights()
    texts = [[7 + i] * (5 * i % 11) for i in range(11)]  # of mixed lengths, in 3 batches of 4
    features = Features(pack(texts, None, 12, SPECIAL), 12)
    inputs = features.sequences.inputs(tf.range(11), 12)
    np.testing.assert_allclose(predict(model, features, 4), model(inputs), atol=1e-5)


def test_sequences_are_the_same_by_numpy():
    texts = [[7 + i] * (5 * i % 11) for i in range(9)]
    for second in (None, texts[::-1]):
        sequences = pack(texts, second, 12, SPECIAL)
        arrays = sequences.arrays(14)
        for name, values in sequences.inputs(tf.range(9), 14).items():
            assert arrays[name].dtype == np.int32
            np.testing.assert_array_equal(arrays[name], values, err_msg=name)


def test_on_a_tpu_all_batches_have_one_shape(tiny, monkeypatch):
    texts = [[7 + i] * i for i in range(11)]
    features = Features(pack(texts, None, 64, SPECIAL), 64)
    assert {features.batch(tf.constant([i]))[0]["input_mask"].shape[1] for i in range(11)} == {32}
    widths = set()

    class Classifier(SequenceClassifier):
        def call(self, inputs, training=False):
            widths.add(inputs["input_mask"].shape[1])
            return super().call(inputs, training)

    with tf.distribute.OneDeviceStrategy("/cpu:0").scope():
        model = Classifier(AlbertEncoder(tiny.replace(max_positions=64)), TASK).create_weights()
    widths.clear()
    monkeypatch.setattr(tf.distribute, "TPUStrategy", tf.distribute.OneDeviceStrategy)
    logits = predict(model, features, 4)
    assert widths == {64}
    np.testing.assert_allclose(
        logits, model(features.sequences.inputs(tf.range(11), 32)), atol=1e-5
    )


@pytest.mark.slow
def test_dropout_in_fit_follows_seed_and_step(tiny, fake_inputs):
    model = SequenceClassifier(AlbertEncoder(tiny), TASK).create_weights()
    batch = fake_inputs(4, 9), np.array([0, 1, 0, 1])
    model.compile(tf_keras.optimizers.SGD(0.0), model.training_losses(), run_eagerly=True)

    def loss(seed: int, step: int) -> float:
        model.dropout_seed = seed
        model.optimizer.iterations.assign(step)
        return model.train_on_batch(*batch, reset_metrics=True)

    assert loss(1, 5) == loss(1, 5)
    assert loss(1, 5) != loss(1, 6) and loss(1, 5) != loss(2, 5)


class TestExitLosses:
    def test_every_layer_is_trained_by_hand_computed_weights(self, tiny):
        task = ClassifierSettings(("no", "yes"), seq_length=12, dropout=0.0, exit_losses=True)
        encoder = AlbertEncoder(
            tiny.replace(num_layers=3, hidden_dropout=0.0, attention_dropout=0.0)
        )
        model = SequenceClassifier(encoder, task).create_weights()
        inputs = padded([[7, 8], [9]], None, 12)
        logits = model(inputs, training=True).numpy()  # [B, layers, C]
        assert logits.shape == (2, 3, 2)
        np.testing.assert_allclose(logits[:, -1], model(inputs), atol=1e-6)
        labels = np.array([1, 0])
        losses = np.log(np.exp(logits).sum(-1)) - np.stack([logits[0, :, 1], logits[1, :, 0]])
        wanted = (losses @ [1, 2, 3] / 6).mean()
        found = model.training_losses()(tf.constant(labels), tf.constant(logits))
        np.testing.assert_allclose(found, wanted, rtol=1e-5)
        last = model.training_losses()(tf.constant(labels), tf.constant(logits[:, -1]))
        np.testing.assert_allclose(last, losses[:, -1].mean(), rtol=1e-5)

    @pytest.mark.slow
    def test_fit_learns_them(self, tiny):
        task = ClassifierSettings(("no", "yes"), seq_length=12, exit_losses=True)
        model = SequenceClassifier(AlbertEncoder(tiny.replace(num_layers=3)), task).create_weights()
        inputs, labels = padded([[7, 8], [9]] * 8, None, 12), np.array([1, 0] * 8)
        model.compile(tf_keras.optimizers.legacy.Adam(0.01), loss=model.training_losses())
        first, *_, last = model.fit(inputs, labels, epochs=8, verbose=0).history["loss"]
        assert last < first / 2

    def test_it_needs_every_layer(self, tiny):
        task = ClassifierSettings(("no", "yes"), exit_losses=True)
        with pytest.raises(ConfigError, match=r"`task.exit_losses` needs.*rematerialize=false"):
            SequenceClassifier(AlbertEncoder(tiny.replace(rematerialize=True)), task)


class TestContrast:
    def test_the_loss_by_hand(self):
        """Two of label 0 at 60 degrees, one of label 1 opposite of the first, temperature 1/2.

        The first has cosine 1/2 with its partner and -1 with the other; its partner 1/2 and -1/2.
        """
        vectors = tf.constant([[1, 0], [0.5, 3**0.5 / 2], [-1, 0]], tf.float32)
        loss = SupervisedContrastive(0.5).call(tf.constant([0, 0, 1]), vectors).numpy()
        first = np.log(np.exp(1) + np.exp(-2)) - 1
        second = np.log(np.exp(1) + np.exp(-1)) - 1
        np.testing.assert_allclose(loss, [first, second, 0], rtol=1e-5)

    def test_it_is_equation_2(self):
        rng = np.random.default_rng(0)
        labels = rng.integers(0, 3, 12)
        vectors = rng.normal(size=(12, 5))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        expected = []
        for i in range(12):
            others = [a for a in range(12) if a != i]
            terms = {a: np.exp(vectors[i] @ vectors[a] / 0.1) for a in others}
            alike = [a for a in others if labels[a] == labels[i]]
            logs = [np.log(terms[p] / sum(terms.values())) for p in alike]
            expected.append(-np.mean(logs) if alike else 0)
        loss = SupervisedContrastive(0.1).call(labels, tf.constant(vectors, tf.float32))
        np.testing.assert_allclose(loss, expected, rtol=1e-4)

    def test_the_head_reads_the_mean_of_length_1(self, tiny):
        task = TASK.replace(pooling="mean")
        model = SequenceClassifier(AlbertEncoder(tiny), task).create_weights()
        inputs = {k: v[:2] for k, v in padded([[7, 8], [9] * 9], None, 12).items()}
        hidden = model.encoder(inputs)["sequence_output"].numpy()
        mean = np.stack([hidden[0, :4].mean(0), hidden[1, :11].mean(0)])
        mean /= np.linalg.norm(mean, axis=1, keepdims=True)
        kernel, bias = model.head.get_weights()
        np.testing.assert_allclose(model(inputs), mean @ kernel + bias, rtol=1e-4, atol=1e-6)
        np.testing.assert_allclose(model.text_vectors()(inputs), mean, rtol=1e-4, atol=1e-6)

    def test_in_training_the_vectors_come_out(self, tiny):
        task = TASK.replace(pooling="mean", loss="contrastive")
        model = SequenceClassifier(AlbertEncoder(tiny), task).create_weights()
        inputs = padded([[7, 8], [9] * 9], None, 12)
        lengths = np.linalg.norm(model(inputs, training=True), axis=1)
        np.testing.assert_allclose(lengths, 1, rtol=1e-5)
        assert model(inputs).shape == (2, 3)

    def test_settings_that_do_not_go_together(self):
        with pytest.raises(ConfigError, match="`task.loss` contrastive requires `task.pooling` me"):
            TASK.replace(loss="contrastive")
        with pytest.raises(ConfigError, match="`task.exit_losses` requires `task.pooling` cls"):
            TASK.replace(pooling="mean", exit_losses=True)

    def test_another_pooling_needs_another_head(self):
        assert TASK.head() != TASK.replace(pooling="mean").head()
        assert TASK.head() == TASK.replace(seq_length=8).head()
