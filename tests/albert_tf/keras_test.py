"""Puts every public layer and model through what Keras offers: saving, cloning, composing.

Each is checked as Keras's own layers are: by its configuration, alone and in a functional model of
dynamic shapes, in every format that Keras saves, and in mixed precision.
"""

import dataclasses
import importlib
import json
import pathlib
import pkgutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.models.checkpoints import tracked_parts
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.layers.attention import SelfAttention
from albert_tf.models.layers.common import Affine
from albert_tf.models.layers.embeddings import AlbertEmbeddings
from albert_tf.models.layers.encoder_block import EncoderBlock
from albert_tf.models.layers.feed_forward import FeedForward
from albert_tf.models.layers.heads import MlmHead, PairHead
from albert_tf.models.layers.shared_stack import SharedStack
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.optimization import AdamW, Lamb, LinearWarmupLinearDecay
from albert_tf.runtime.errors import ConfigError
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.spans.heads import AnswerClass, EndLogits, IndependentHead, JointHead
from tests.kinds import cases as kinds

ROOT = pathlib.Path(__file__).resolve().parents[2]
CONFIG = AlbertConfig(
    vocab_size=60,
    embedding_size=8,
    hidden_size=16,
    num_layers=4,
    num_heads=2,
    num_groups=2,
    intermediate_size=32,
    max_positions=24,
    initializer_range=0.2,
    sharing="attention",
    hidden_dropout=0.1,
    attention_dropout=0.1,
)
B, S, P = 3, 10, 4
RNG = np.random.default_rng(0)
HIDDEN = RNG.normal(size=[B, S, 16]).astype(np.float32)
MASK = np.where(np.arange(S) < [[S], [7], [4]], 0.0, -10000.0).astype(np.float32)[:, None, None]
IDS = {name: RNG.integers(5, 60, [B, S]).astype(np.int32) for name in INPUTS}
IDS["input_mask"] = (MASK[:, 0, 0] == 0).astype(np.int32)
IDS["input_type_ids"] = (np.arange(S) >= np.full([B, 1], 3)).astype(np.int32) * IDS["input_mask"]
POSITIONS = RNG.integers(0, S, [B, P]).astype(np.int32)
CHOICES = {name: np.stack([each, each[::-1]], 1) for name, each in IDS.items()}  # [B, 2, S]
ABSTRACT = {"ConfiguredModel", "Float32Layer", "TaskModel"}


@dataclasses.dataclass(frozen=True)
class Case:
    """How a class is made, with Keras's own arguments, and the arguments of a call.

    dtypes: what it computes in by policy; weights are float32 in each.
    """

    make: Callable[..., tf_keras.layers.Layer]
    inputs: tuple
    dtypes: tuple[str, ...] = ("float32", "mixed_bfloat16", "mixed_float16")


def of_config(cls: type, *inputs: Any, **options: Any) -> Case:
    return Case(lambda **kwargs: cls(CONFIG, **options, **kwargs), inputs)


def of_encoder(cls: type, task: Any, inputs: dict) -> Case:
    def make(dtype: str = "float32", **kwargs: Any) -> tf_keras.Model:
        return cls(AlbertEncoder(CONFIG, dtype=dtype), task, dtype=dtype, **kwargs)

    return Case(make, (inputs,))


def head(cls: type, *inputs: Any, **options: Any) -> Case:
    return Case(lambda **kwargs: cls(**options, **kwargs), inputs, dtypes=("float32",))


ALLOWED = IDS["input_type_ids"].astype(bool)
CASES = {
    "AlbertEncoder": of_config(AlbertEncoder, IDS),
    "AlbertEncoder in a loop": of_config(AlbertEncoder, IDS, unroll=False),
    "AlbertPretrainer": of_config(AlbertPretrainer, IDS | {"masked_lm_positions": POSITIONS}),
    "AlbertEmbeddings": of_config(AlbertEmbeddings, IDS),
    "SharedStack": of_config(SharedStack, HIDDEN, MASK),
    "SharedStack of one output": of_config(SharedStack, HIDDEN, MASK, unroll=False),
    "EncoderBlock": of_config(EncoderBlock, HIDDEN, MASK),
    "SelfAttention": of_config(SelfAttention, HIDDEN, MASK),
    "FeedForward": of_config(FeedForward, HIDDEN),
    "Affine": head(Affine, HIDDEN[0], config=CONFIG, units=5),
    "MlmHead": head(
        MlmHead, HIDDEN, POSITIONS, HIDDEN[0, :, :8], config=CONFIG.replace(vocab_size=S)
    ),
    "PairHead": head(PairHead, HIDDEN[0], config=CONFIG),
    "IndependentHead": head(IndependentHead, HIDDEN, ALLOWED, max_length=4, n_best=3),
    "JointHead": head(JointHead, HIDDEN, ALLOWED, beam=2, dropout=0.1),
    "EndLogits": head(EndLogits, HIDDEN, POSITIONS),
    "AnswerClass": head(AnswerClass, HIDDEN, HIDDEN[:, :, 0], dropout=0.1),
}
TASKS = {
    name: of_encoder(
        KINDS[each.name].model,
        each.settings,
        CHOICES if each.name == "multiple_choice" else IDS,
    )
    for name, each in kinds.CASES.items()
    if each.name in KINDS
}
CLASSES = {name.split()[0] for name in CASES} | {each.model.__name__ for each in KINDS.values()}
CASES |= TASKS
STACKS = [name for name in CASES if name.startswith("SharedStack")]
SLOW_TASKS = [name for name in TASKS if name != "token_classifier"]
MODELS = [name for name, case in CASES.items() if isinstance(case.make(), tf_keras.Model)]


def public_classes() -> Iterator[type]:
    """Every layer and model of the library."""
    for info in pkgutil.walk_packages(albert_tf.__path__, "albert_tf."):
        if info.name.startswith(("albert_tf.models.", "albert_tf.tasks.")):
            for value in vars(importlib.import_module(info.name)).values():
                if isinstance(value, type) and issubclass(value, tf_keras.layers.Layer):
                    if value.__module__ == info.name and not value.__name__.startswith("_"):
                        yield value


def test_all_are_here():
    assert {cls.__name__ for cls in public_classes()} - ABSTRACT == CLASSES


def functional(layer: tf_keras.layers.Layer, inputs: tuple) -> tf_keras.Model:
    """The layer in a functional model; batch and lengths are dynamic, as far as they may be."""

    def symbolic(value: np.ndarray) -> Any:
        width = [] if value.ndim < 2 or value.dtype != np.float32 else [value.shape[-1]]
        if value is MASK:
            return tf_keras.Input([1, 1, None], dtype=value.dtype)
        shape = [None] * (value.ndim - 1 - len(width)) + width
        if value.ndim == 3 and value.dtype == np.int32:
            shape = [value.shape[1], None]
        return tf_keras.Input(shape, dtype=value.dtype)

    given = tf.nest.map_structure(symbolic, inputs)
    return tf_keras.Model(given, layer(*given))


def assert_equal(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    pairs = zip(tf.nest.flatten(found), tf.nest.flatten(expected), strict=True)
    for one, other in pairs:
        assert one.dtype == other.dtype
        np.testing.assert_allclose(
            np.float64(one), np.float64(other), rtol=tolerance, atol=tolerance
        )


@pytest.fixture(params=CASES)
def case(request: pytest.FixtureRequest) -> Case:
    return CASES[request.param]


@pytest.mark.slow_parameters("AlbertPretrainer", *SLOW_TASKS)
def test_configuration(case: Case):
    for dtype in case.dtypes:
        layer = case.make(name="mine", trainable=False, dtype=dtype)
        other = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
        assert (other.name, other.trainable) == ("mine", False)
        written = json.loads(json.dumps(other.get_config()))
        again = json.loads(json.dumps(type(layer).from_config(written).get_config()))
        for config in (written, again):
            config.get("encoder", {}).pop("shared_object_id", None)  # where it is in memory
        assert again == written


@pytest.mark.slow_parameters(*SLOW_TASKS)
def test_weights_are_float32_and_what_it_computes_is_near(case: Case):
    layers = {dtype: case.make(dtype=dtype) for dtype in case.dtypes}
    outputs = {}
    for dtype, layer in layers.items():
        layer(*case.inputs)
        assert {each.dtype for each in layer.weights} == {tf.float32}
        layer.set_weights(layers["float32"].get_weights())
        outputs[dtype] = layer(*case.inputs)
    for dtype in case.dtypes[1:]:
        found = tf.nest.flatten(outputs[dtype])
        expected = tf.nest.flatten(outputs["float32"])
        differ = False
        for one, other in zip(found, expected, strict=True):
            if other.dtype == tf.float32:
                np.testing.assert_allclose(np.float32(one), other, atol=0.15, rtol=0.05)
                differ |= bool(np.any(np.float32(one) != other))
        assert differ


def test_another_dtype_is_refused(case: Case):
    with pytest.raises(ValueError, match="dtype.*must be one of float32"):
        case.make(dtype="bfloat16")


@pytest.mark.slow_parameters("AlbertPretrainer", "AlbertEncoder in a loop", *STACKS, *SLOW_TASKS)
def test_functional_model_in_the_formats(case: Case, tmp_path: pathlib.Path):
    layer = case.make()
    model = functional(layer, case.inputs)
    expected = layer(*case.inputs)
    assert_equal(model(case.inputs), expected, 1e-6)
    model.save(tmp_path / "m.keras")
    assert_equal(tf_keras.models.load_model(tmp_path / "m.keras")(case.inputs), expected, 1e-6)
    clone = tf_keras.models.clone_model(model)
    for path in ("w.weights.h5", "w.h5"):
        model.save_weights(tmp_path / path)
        clone.set_weights([0 * each for each in clone.get_weights()])
        clone.load_weights(tmp_path / path)
        assert_equal(clone(case.inputs), expected, 1e-6)


FUNCTIONAL = """
import sys
import numpy as np, tf_keras
from albert_tf import AlbertEncoder

encoder = AlbertEncoder.from_preset("albert-tiny", dtype=sys.argv[2])
names = ("input_word_ids", "input_mask", "input_type_ids")
inputs = {name: tf_keras.Input([None], dtype="int32", name=name) for name in names}
model = tf_keras.Model(inputs, tf_keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))
model.compile("adam", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
batch = {name: np.ones([8, 16], np.int32) for name in names}
model.fit(batch, np.arange(8) % 2, verbose=0)
model.save(sys.argv[1])
np.save(sys.argv[1] + ".npy", model.predict(batch, verbose=0))
"""
LOADED = """
import sys
import numpy as np, tf_keras
if sys.argv[1].endswith(".keras"): from albert_tf import AlbertEncoder
model = tf_keras.models.load_model(sys.argv[1])
batch = {name: np.ones([8, 16], np.int32) for name in model.input_names}
expected = np.load(sys.argv[1] + ".npy")
np.testing.assert_allclose(model.predict(batch, verbose=0), expected, atol=1e-6)
assert "albert_tf" not in sys.modules or sys.argv[1].endswith(".keras")
"""


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["model.keras", "saved_model"])
def test_a_new_process_predicts_the_same(name: str, dtype: str, tmp_path: pathlib.Path):
    """A SavedModel needs none of our code for it."""
    for code in (FUNCTIONAL, LOADED):
        command = [sys.executable, "-c", code, str(tmp_path / name), dtype]
        subprocess.run(command, cwd=ROOT, check=True, timeout=300)


def classifier(encoder: AlbertEncoder, **kwargs: Any) -> SequenceClassifier:
    return SequenceClassifier(
        encoder, ClassifierSettings(seq_length=S, labels=("no", "yes")), **kwargs
    )


def fitted(model: tf_keras.Model, optimizer: Any) -> tf_keras.Model:
    """After three steps on three texts."""
    model.compile(optimizer, tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IDS, np.array([0, 1, 1]), epochs=3, batch_size=B, verbose=0, shuffle=False)
    return model


OPTIMIZERS = {
    "adamw": lambda: AdamW(0.01),
    "lamb": lambda: Lamb(LinearWarmupLinearDecay(0.01, 2, 9)),
}


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", [pytest.param("adamw", marks=pytest.mark.slow), "lamb"])
def test_a_loaded_model_continues_as_it_would_have(optimizer: str, tmp_path: pathlib.Path):
    """Optimizer, schedule, dropout of the step and frozen layers."""
    encoder = AlbertEncoder(CONFIG)
    model = classifier(encoder, dropout_seed=5, accumulation_steps=3)
    encoder.embeddings.trainable = False
    fitted(model, OPTIMIZERS[optimizer]()).save(tmp_path / "m.keras")
    loaded = tf_keras.models.load_model(tmp_path / "m.keras")
    assert len(loaded.trainable_variables) == len(model.trainable_variables)
    for each in (model, loaded):
        each.fit(IDS, np.array([0, 1, 1]), epochs=2, batch_size=B, verbose=0, shuffle=False)
        assert int(each.optimizer.iterations) == 5
    for one, other in zip(model.weights, loaded.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_array_equal(
        loaded.encoder.embeddings.word_embeddings, encoder.embeddings.word_embeddings
    )


@pytest.mark.slow
def test_optimizers_take_and_give_their_state():
    model = fitted(classifier(AlbertEncoder(CONFIG)), AdamW(0.01))
    other = AdamW.from_config(model.optimizer.get_config())
    other.build(model.trainable_variables)
    other.set_weights(model.optimizer.variables)
    assert int(other.iterations) == 3


def test_a_name_is_no_reason_not_to_decay():
    model = classifier(AlbertEncoder(CONFIG, name="unbiased"), name="bias_layer_norm")
    decayed = {
        path
        for path, part in tracked_parts(model.create_weights())
        if isinstance(part, tf.Variable) and not AdamW(0.1).is_excluded(part)
    }
    assert {"encoder/embeddings/word_embeddings", "head/kernel"} <= decayed
    assert not any("bias" in path or "norm" in path for path in decayed)


@pytest.mark.slow
def test_a_shared_encoder_stays_shared(tmp_path: pathlib.Path):
    """Two heads over one encoder; and two encoders, each with a name of its own."""
    shared, other = AlbertEncoder(CONFIG), AlbertEncoder(CONFIG)
    inputs = {name: tf_keras.Input([None], dtype="int32", name=name) for name in INPUTS}
    heads = [classifier(shared, name="one"), classifier(shared, name="two"), classifier(other)]
    model = tf_keras.Model(inputs, [head(inputs) for head in heads])
    model.save(tmp_path / "m.keras")
    loaded = tf_keras.models.load_model(tmp_path / "m.keras")
    assert len(loaded.weights) == len(model.weights)
    assert_equal(loaded(IDS), model(IDS), 1e-6)


def test_an_encoder_s_output_is_that_of_the_user_s_call(tmp_path: pathlib.Path):
    """For models over a part of a model: what made the weights left no node."""
    inputs = {name: tf_keras.Input([None], dtype="int32", name=name) for name in INPUTS}
    encoder = AlbertEncoder(CONFIG, name="encoder").create_weights()
    model = tf_keras.Model(inputs, tf_keras.layers.Dense(2)(encoder(inputs)["pooled_output"]))
    model.save(tmp_path / "m.keras")
    for each in (model, tf_keras.models.load_model(tmp_path / "m.keras")):
        hidden = each.get_layer("encoder").output["sequence_output"]
        assert_equal(tf_keras.Model(each.input, hidden)(IDS), encoder(IDS)["sequence_output"], 1e-6)


@pytest.mark.slow
def test_dropout_without_a_step_differs_from_call_to_call():
    model = fitted(classifier(AlbertEncoder(CONFIG)), AdamW(0.0001))
    assert np.any(model(IDS, training=True) != model(IDS, training=True))


def test_a_loop_of_layers_has_the_same_output_in_training():
    config = CONFIG.replace(hidden_dropout=0.0, attention_dropout=0.0)
    unrolled, looped = (AlbertEncoder(config, unroll=unroll) for unroll in (True, False))
    looped.create_weights().set_weights(unrolled.create_weights().get_weights())
    last = unrolled(IDS)["encoder_outputs"][-1]
    for training in (False, True):
        (only,) = looped(IDS, training=training)["encoder_outputs"]
        np.testing.assert_allclose(only, last, rtol=1e-5, atol=1e-5)


def test_a_task_model_computes_as_its_encoder():
    assert classifier(AlbertEncoder(CONFIG, dtype="mixed_bfloat16")).compute_dtype == "bfloat16"
    with pytest.raises(ValueError, match="dtype.*must be its encoder's, float32. .*bfloat16"):
        classifier(AlbertEncoder(CONFIG), dtype="mixed_bfloat16")


def test_from_preset(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch):
    """The shape with new weights; an existing path wins over a name, and has its own."""
    encoder = AlbertEncoder.from_preset("albert-tiny", dtype="mixed_bfloat16", name="mine")
    assert encoder.config == AlbertConfig.from_preset("albert-tiny") and encoder.name == "mine"
    assert encoder.stack.compute_dtype == "bfloat16"
    pretrainer = AlbertPretrainer(CONFIG).create_weights()
    monkeypatch.chdir(tmp_path)
    tf.train.Checkpoint(model=pretrainer).save("albert-tiny/checkpoints/ckpt")
    pathlib.Path("albert-tiny/config.json").write_text(json.dumps(dataclasses.asdict(CONFIG)))
    inputs = IDS | {"masked_lm_positions": POSITIONS}
    assert_equal(AlbertPretrainer.from_preset("albert-tiny")(inputs), pretrainer(inputs))
    assert_equal(AlbertEncoder.from_preset("albert-tiny")(IDS), pretrainer.encoder(IDS))
    with pytest.raises(ConfigError, match="folder.*albert-tiny.*Received: 'albert-tinny'"):
        AlbertEncoder.from_preset("albert-tinny")


ONE_LAYER = CONFIG.replace(num_layers=1, num_groups=1)
SMALL = Case(lambda: AlbertEncoder(ONE_LAYER), (IDS,))
SMALL_PRETRAINER = Case(
    lambda: AlbertPretrainer(ONE_LAYER), (IDS | {"masked_lm_positions": POSITIONS},)
)


@pytest.mark.parametrize(
    "case",
    [
        pytest.param(SMALL, id="small encoder"),
        pytest.param(SMALL_PRETRAINER, id="small pretrainer"),
    ]
    + [pytest.param(CASES[name], id=name, marks=pytest.mark.slow) for name in MODELS],
)
def test_models_in_the_formats(case: Case, tmp_path: pathlib.Path):
    model = case.make().create_weights()
    expected = model(*case.inputs)
    model.save(tmp_path / "m.keras")
    model.save(tmp_path / "saved_model")
    for path in ("m.keras", "saved_model"):
        assert_equal(tf_keras.models.load_model(tmp_path / path)(*case.inputs), expected, 1e-6)
    clone = tf_keras.models.clone_model(model)
    for path in ("w.weights.h5", "w.h5"):
        model.save_weights(tmp_path / path)
        clone.set_weights([0 * each for each in clone.get_weights()])
        clone.load_weights(tmp_path / path)
        assert_equal(clone(*case.inputs), expected, 1e-6)


@tf_keras.saving.register_keras_serializable("tests")
class Reviews(tf_keras.Model):
    """A user's own model around the encoder."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.encoder = AlbertEncoder(ONE_LAYER).create_weights()
        self.head = tf_keras.layers.Dense(2)

    def call(self, inputs: Any, training: bool = False) -> tf.Tensor:
        return self.head(self.encoder(inputs, training=training)["pooled_output"])


def test_a_subclassed_model_is_loaded(tmp_path: pathlib.Path):
    """Keras builds it with float32 inputs."""
    model = Reviews()
    model.compile("sgd", tf_keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(IDS, np.zeros(len(IDS["input_mask"])), verbose=0)
    model.save(tmp_path / "m.keras")
    assert_equal(tf_keras.models.load_model(tmp_path / "m.keras")(IDS), model(IDS), 1e-6)


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "int64"])
def test_other_integers_are_ids(dtype: str):
    encoder = SMALL.make().create_weights()
    wanted = encoder(IDS)["sequence_output"]
    found = encoder({name: tf.cast(value, dtype) for name, value in IDS.items()})
    assert_equal(found["sequence_output"], wanted, 0)
    with pytest.raises(ValueError, match="`input_word_ids` must be an int32 tensor. .*string"):
        encoder(IDS | {"input_word_ids": tf.constant([["a"]])})


@pytest.mark.parametrize("num_layers", [-1, 0, 2])
def test_another_number_of_layers_is_refused(num_layers: int):
    with pytest.raises(ValueError, match=f"num_layers` must be from 1 to 1. .*: {num_layers}"):
        SMALL.make().create_weights()(IDS, num_layers=num_layers)


def test_a_name_is_no_configuration():
    with pytest.raises(TypeError, match="must be an AlbertConfig. .*albert-base-v2.*from_preset"):
        AlbertEncoder("albert-base-v2")
