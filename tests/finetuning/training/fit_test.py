"""Training: order, exact continuation, patience, layer-wise rates, padding."""

import contextlib
import dataclasses
import io

import numpy as np
import pytest
import tensorflow as tf
import tf_keras
from scipy.special import log_softmax

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.optimization.layerwise_adamw import LayerwiseAdamW
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import Features
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import featurize_spans
from albert_tf.tasks.spans.model import SpanModel, SpanSettings
from albert_tf.tasks.texts import featurize_texts
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Data, Source
from finetuning.train import FinetuneOptions, main
from finetuning.training.batches import by_length, training_batches
from finetuning.training.config import FinetuneConfig, Plan, TrainingConfig
from finetuning.training.fit import compiled, evaluated_loss, fine_tune
from finetuning.training.layer_rates import factors_of, freeze
from finetuning.training.starting_point import StartingPoint, resolve

CPU = tf.distribute.OneDeviceStrategy("/cpu:0")


@pytest.fixture(scope="module")
def config(begin: StartingPoint, fruit: str) -> FinetuneConfig:
    data = DATASETS["text_classification"].read(Source(fruit))
    chosen = (
        "training.steps=6",
        "training.evaluate_every=2",
        "training.batch_size=8",
        "training.learning_rate=0.01",
        "task.seq_length=32",
        "model.hidden_dropout=0.1",
    )
    return resolve(begin, data, {}, chosen, "cpu")


def tune(
    begin: StartingPoint, config: FinetuneConfig, features: Features, path, scores, loss=None
) -> list:
    """Weights after a run whose evaluations give `scores`, one by one; an error ends it."""
    run = RunDir(path)
    run.begin({"model": {}}, begin.tokenizer)
    scores = iter(scores)

    def evaluate(_: object) -> dict[str, float]:
        score = next(scores)
        if isinstance(score, BaseException):
            raise score
        return {"accuracy": score}

    plan = Plan.of(config.training, len(features))
    model = compiled(config, plan, lambda: begin.model(config), CPU, loss)
    fine_tune(model, config, plan, features, evaluate, "accuracy", run)
    return model.get_weights()


@pytest.mark.parametrize(
    ("epochs", "steps"), [(1.1, 11), (2.2, 22), (1.11, 12), (3, 30), (1e-9, 1)]
)
def test_a_part_of_an_epoch_is_rounded_up(epochs, steps):
    assert Plan.of(TrainingConfig(epochs=epochs, batch_size=10), 100).steps == steps


def test_with_bias_correction_it_is_adam():
    """tf_keras' own, which puts its epsilon elsewhere; 20 steps of gradients of any size."""
    ours, theirs = (tf.Variable([1.0, -2.0, 3.0]) for _ in range(2))
    adam = tf_keras.optimizers.Adam(0.01, epsilon=1e-12)
    optimizer = LayerwiseAdamW(0.02, weight_decay_rate=0.0, epsilon=1e-12, factors=[0.5])
    optimizer.build([ours])
    for gradient in np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32):
        optimizer.apply_gradients([(tf.constant(gradient), ours)])
        adam.apply_gradients([(tf.constant(gradient), theirs)])
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)


@pytest.mark.parametrize(("corrected", "first"), [(True, 1.0), (False, 0.1 / 0.001**0.5)])
def test_the_first_update(corrected: bool, first: float):
    """m / sqrt(v) of one gradient g is 0.1 g / sqrt(0.001 g^2), with the correction 1.

    The decay, 0.1 of the weight, is beside it.
    """
    weight = tf.Variable([5.0])
    optimizer = LayerwiseAdamW(
        0.01, factors=[1.0], bias_correction=corrected, weight_decay_rate=0.1, exclude=()
    )
    optimizer.build([weight])
    optimizer.apply_gradients([(tf.constant([7.0]), weight)])
    np.testing.assert_allclose(weight, [5.0 - 0.01 * (first + 0.1 * 5.0)], rtol=1e-6)


class TestBatches:
    def units(self, features: Features, first: int, steps: int, seed: int = 0) -> list[list[int]]:
        numbered = dataclasses.replace(features, targets={"number": np.arange(len(features))})
        batches = training_batches(numbered, 8, seed, first, steps, False)
        return [numbers.numpy().tolist() for _, numbers in batches]

    def test_each_epoch_has_every_unit_once(self, features):
        assert len(features) == 160
        batches = self.units(features, 0, 40)
        first, second = sum(batches[:20], []), sum(batches[20:], [])
        assert sorted(first) == sorted(second) == list(range(160))
        assert first != second and first != sorted(first)

    def test_a_later_start_sees_the_rest(self, features):
        assert self.units(features, 13, 40) == self.units(features, 0, 40)[13:]
        assert self.units(features, 0, 3, seed=1) != self.units(features, 0, 3)

    def test_padding_is_as_far_as_a_batch_needs(self, features):
        longer = dataclasses.replace(features, seq_length=64)
        widths = [
            {
                batch["input_mask"].shape[1]
                for batch, _ in training_batches(longer, 8, 0, 0, 20, pad)
            }
            for pad in (False, True)
        ]
        assert widths == [{32}, {64}]

    def test_fewer_batches_are_wide_if_lengths_are_grouped(self, begin, config):
        """Of 160 units one in eight is long, 20 in all: they fill 3 of the 20 batches."""
        texts = ["word " * (40 if number % 8 == 0 else 4) for number in range(160)]
        task = dataclasses.replace(config.task, seq_length=64)
        examples = [TextExample(text, label=0) for text in texts]
        mixed = featurize_texts(examples, begin.tokenizer, task)
        arrange = by_length(mixed.unit_lengths, 8)
        batches = training_batches(mixed, 8, 0, 0, 20, False, arrange)
        widths = [batch["input_mask"].shape[1] for batch, _ in batches]
        assert widths.count(64) == 3 and widths.count(32) == 17


@pytest.mark.slow
def test_a_run_that_was_cut_off_goes_on_to_the_same_weights(
    begin, config, features, tmp_path, capsys
):
    whole = tune(begin, config, features, str(tmp_path / "whole"), (0.1, 0.2, 0.3))
    path = str(tmp_path / "cut")
    with pytest.raises(SystemExit):
        tune(begin, config, features, path, (0.1, SystemExit(143)))
    assert "stopped: the same command resumes from step 2\n" in capsys.readouterr().out
    assert [row["step"] for row in RunDir(path).metrics()] == [2]
    again = tune(begin, config, features, path, (0.2, 0.3))
    rows = RunDir(path).metrics()
    assert [row["step"] for row in rows] == [2, 4, 6] and all(row["seconds"] > 0 for row in rows)
    for one, other in zip(whole, again, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


class CtrlC(io.StringIO):
    """An output that interrupts the program as soon as it holds some words."""

    def __init__(self, words: str) -> None:
        super().__init__()
        self.words = words

    def write(self, text: str) -> int:
        written = super().write(text)
        if self.words in text:
            raise KeyboardInterrupt
        return written


def test_an_evaluation_that_was_printed_is_saved(begin, config, features, tmp_path):
    run, output = RunDir(str(tmp_path / "run")), CtrlC("step 2 of 6")
    with pytest.raises(KeyboardInterrupt), contextlib.redirect_stdout(output):
        tune(begin, config, features, run.path, (0.1,))
    assert output.getvalue().endswith("stopped: the same command resumes from step 2\n")
    for folder in (run.training_path, run.checkpoints_path):
        assert (tf.train.latest_checkpoint(folder) or "").endswith("ckpt-2")


@pytest.mark.slow
@pytest.mark.parametrize("before", ["last", "best"])
def test_a_run_that_is_cut_off_while_it_saves_keeps_no_best_weights_that_it_has_lost(
    begin, config, features, tmp_path, monkeypatch, before: str
):
    """Cut off at step 4, the best so far; the second time step 4 is no better than step 2."""
    path, save = str(tmp_path / "run"), tf.train.CheckpointManager.save
    folder = {"last": "training", "best": "checkpoints"}[before]

    def cut(manager: tf.train.CheckpointManager, checkpoint_number: int) -> str:
        if checkpoint_number == 4 and manager.directory.endswith(folder):
            raise KeyError("cut off")
        return save(manager, checkpoint_number=checkpoint_number)

    with monkeypatch.context() as patch, pytest.raises(KeyError):
        patch.setattr(tf.train.CheckpointManager, "save", cut)
        tune(begin, config, features, path, (0.2, 0.3))
    tune(begin, config, features, path, (0.1, 0.1))
    assert [row["step"] for row in RunDir(path).metrics()] == [2, 4, 6]
    kept = tf.train.latest_checkpoint(RunDir(path).checkpoints_path)
    assert kept.endswith("ckpt-2")


@pytest.mark.slow
def test_patience_ends_a_run_with_its_best_weights(begin, config, features, tmp_path):
    patient = dataclasses.replace(config, training=dataclasses.replace(config.training, patience=1))
    best = tune(begin, patient, features, str(tmp_path / "a"), (0.2, 0.1))
    assert [row["step"] for row in RunDir(str(tmp_path / "a")).metrics()] == [2, 4]
    saved = tf.train.load_checkpoint(str(tmp_path / "a" / "checkpoints"))
    head = saved.get_tensor("model/head/kernel/.ATTRIBUTES/VARIABLE_VALUE")
    assert tf.train.latest_checkpoint(str(tmp_path / "a" / "checkpoints")).endswith("ckpt-2")
    assert any(weight.shape == head.shape and np.all(weight == head) for weight in best)


@pytest.mark.parametrize(
    ("scores", "is_noted"),
    [((0.2, 0.1, 0.1), True), ((0.1, 0.2, 0.1), False), ((0.2, 0.2, 0.1), False)],
)
def test_a_run_whose_first_evaluation_was_the_best_says_so(
    begin, config, features, tmp_path, scores, is_noted, capsys
):
    tune(begin, config, features, str(tmp_path / "a"), scores)
    assert ("of 3 evaluations, the first was the best" in capsys.readouterr().out) == is_noted


class TestLayers:
    def model(self, begin: StartingPoint, config: FinetuneConfig, sharing: str):
        model = dataclasses.replace(config.model, sharing=sharing, num_layers=3)
        other = dataclasses.replace(config, model=model)
        from albert_tf.models.encoder import AlbertEncoder
        from albert_tf.tasks.classifier.model import SequenceClassifier

        return SequenceClassifier(AlbertEncoder(other.model), other.task).create_weights()

    def rates(self, begin: StartingPoint, config: FinetuneConfig, sharing: str) -> dict[str, float]:
        model = self.model(begin, config, sharing)
        names = [weight.name for weight in model.trainable_variables]
        return dict(zip(names, factors_of(model, 0.5), strict=True))

    def test_rates_fall_from_layer_to_layer(self, begin, config):
        """Three layers: embeddings are four below the pooler."""
        rates = self.rates(begin, config, "none")
        found = {
            part: {rate for name, rate in rates.items() if part in name}
            for part in ("embeddings", "attention_0", "feed_forward_1", "attention_2", "pooler")
        }
        assert found == {
            "embeddings": {1 / 16},
            "attention_0": {1 / 8},
            "feed_forward_1": {1 / 4},
            "attention_2": {1 / 2},
            "pooler": {1},
        }

    def test_shared_weights_are_as_high_as_the_highest_that_uses_them(self, begin, config):
        rates = self.rates(begin, config, "attention")
        assert {rate for name, rate in rates.items() if "/attention_0/" in name} == {1 / 2}
        assert {rate for name, rate in rates.items() if "feed_forward_0" in name} == {1 / 8}

    def test_frozen_layers_stay(self, begin, config):
        model = self.model(begin, config, "none")
        freeze(model, 2)
        trained = {w.name.split("/")[-3] for w in model.trainable_weights if "stack" in w.name}
        frozen = {name for w in model.non_trainable_weights for name in w.name.split("/")}
        assert {"embeddings", "attention_0", "feed_forward_0"} <= frozen
        assert not {"attention_1", "feed_forward_1", "pooler", "head"} & frozen and trained
        with pytest.raises(ConfigError, match=r"at most 4.*Received: 5"):
            freeze(model, 5)
        freeze(model, 4)  # the embeddings and all layers
        names = {weight.name.split("/")[-2] for weight in model.trainable_weights}
        assert names == {"pooler", "head"}

    @pytest.mark.slow
    def test_a_run_with_both(self, begin, config, features, tmp_path):
        training = dataclasses.replace(config.training, layer_decay=0.9, frozen=1, steps=2)
        values = dataclasses.replace(config, training=training)
        before = begin.model(config)
        after = tune(begin, values, features, str(tmp_path / "run"), (0.5,))
        names = [weight.name for weight in before.weights]
        moved = {
            name
            for name, old, new in zip(names, before.get_weights(), after, strict=True)
            if np.any(old != new)
        }
        assert not any("embeddings" in name for name in moved)
        assert any("attention_0" in name for name in moved)


def test_a_rate_that_is_too_low_for_a_small_encoder_is_noted(begin, fruit, capsys):
    """The default and the paper's are; the user's, that of few_labels and base models are not."""
    data = DATASETS["text_classification"].read(Source(fruit))
    base = dataclasses.replace(begin, config=begin.config.replace(hidden_size=768))
    paper, few = ({"training.learning_rate": rate} for rate in (1e-5, 5e-4))
    rate_set = ("training.learning_rate=1e-5",)
    for start, recipe, chosen in ((begin, few, ()), (begin, {}, rate_set), (base, paper, ())):
        resolve(start, data, recipe, chosen, "cpu")
        assert "note:" not in capsys.readouterr().out
    for recipe, rate in (({}, "0.0001"), (paper, "1e-05")):
        resolve(begin, data, recipe, (), "cpu")
        assert f"note: training.learning_rate={rate} suits models of" in capsys.readouterr().out


def test_batches_on_a_tpu_are_padded_to_one_length_with_a_note(begin, fruit, capsys):
    data = DATASETS["text_classification"].read(Source(fruit))
    chosen = ("task.seq_length=32",)
    assert not resolve(begin, data, {}, chosen, "tpu").training.pad_to_longest
    assert "padded to task.seq_length=32" in capsys.readouterr().out
    assert resolve(begin, data, {}, chosen, "cpu").training.pad_to_longest
    resolve(begin, data, {}, (*chosen, "training.pad_to_longest=false"), "tpu")
    assert "padded" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"layer_decay": 0.0}, "layer_decay"),
        ({"frozen": -1}, "frozen"),
        ({"precision": "half"}, "precision"),
        ({"patience": 0}, "patience"),
        ({"epochs": float("nan")}, "epochs"),
        ({"threshold_share": 1.0}, "threshold_share"),
    ],
)
def test_impossible_values(changes: dict, word: str):
    with pytest.raises(ConfigError, match=rf"`training.{word}`"):
        TrainingConfig(**changes)


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run(begin, config, features, tmp_path):
    def loss(_: tf.Tensor, logits: tf.Tensor) -> tf.Tensor:
        return logits[:, 0] * float("nan")

    with pytest.raises(InputError, match="loss was not finite before step 2"):
        tune(begin, config, features, str(tmp_path / "run"), (0.5,), loss)


def test_the_loss_of_spans_by_hand(begin: StartingPoint):
    """Of windows in batches of 2: half the cross-entropies of start and end, as in training."""
    examples = [
        SpanExample(
            "saw?", "an apple, a plum and a pear, a saw and a file", answers=((3, "apple"),)
        ),
        SpanExample("file?", "a hammer", answers=((2, "hammer"),)),
    ]
    task = SpanSettings(seq_length=16, doc_stride=4, dropout=0.0)
    features = featurize_spans(examples, begin.tokenizer, task)
    assert len(features) > 3
    model = SpanModel(AlbertEncoder(begin.config), task).create_weights()
    inputs, targets = features.batch(np.arange(len(features)))
    logits = model(inputs, training=True)  # without dropout in `begin` either
    expected = np.mean(
        [
            -log_softmax(logits[name].numpy(), axis=1)[range(len(features)), targets[name]]
            for name in ("start_position", "end_position")
        ]
    )
    assert evaluated_loss(model, features, 2) == pytest.approx(expected, rel=1e-5)


def test_shortened_lengths_are_printed(begin: StartingPoint, capsys):
    """To 64 positions; 128 * 64 // 384 is 21."""

    def note(task: SpanSettings, *chosen: str) -> str:
        chosen = (*chosen, "training.learning_rate=0.001")  # otherwise there is a note on the rate
        resolve(begin, Data(task, [], {}), {}, chosen, "cpu")
        return capsys.readouterr().out

    begins = "The encoder has 64 positions: `task.seq_length` 384 -> 64"
    assert note(SpanSettings()) == f"{begins}, `task.doc_stride` 128 -> 21.\n"
    assert (
        note(SpanSettings(), "task.doc_stride=9")
        == note(SpanSettings(doc_stride=1))
        == f"{begins}.\n"
    )
    assert note(SpanSettings(seq_length=64)) == note(SpanSettings(), "task.seq_length=32") == ""


@pytest.mark.slow
def test_settings_that_do_not_fit_the_model_are_refused_before_anything_is_written(
    fruit: str, start: str, tmp_path
):
    path = tmp_path / "run"
    for assignment, words in {
        "training.warmup_steps=500": "must be fewer than the steps of the run. Received: 500",
        "training.frozen=99": "`training.frozen` must be at most",
        "task.exit_losses=true": "exit_losses",
    }.items():
        chosen = ("training.steps=6", "model.rematerialize=true", assignment)
        for dry_run in (True, False):
            options = FinetuneOptions(
                "text_classification", str(path), fruit, init=start, set=chosen, dry_run=dry_run
            )
            with pytest.raises(ConfigError, match=words):
                main(options)
    assert not path.exists()


@pytest.mark.slow
def test_padding_changes_no_score(begin, config, features, tmp_path):
    """Without dropout, whose masks have the shape of the batch."""
    model = dataclasses.replace(config.model, hidden_dropout=0.0)
    task = dataclasses.replace(config.task, dropout=0.0)
    losses, longer = [], dataclasses.replace(features, seq_length=64)  # and none is above 32
    for pad in (True, False):
        training = dataclasses.replace(config.training, pad_to_longest=pad)
        changed = dataclasses.replace(config, model=model, task=task, training=training)
        path = str(tmp_path / str(pad))
        tune(begin, changed, longer, path, (0.1, 0.2, 0.3))
        losses.append([row["loss/train"] for row in RunDir(path).metrics()])
    np.testing.assert_allclose(*losses, rtol=1e-5)
