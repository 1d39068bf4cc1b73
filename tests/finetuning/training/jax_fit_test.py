"""Fine-tuning under JAX's client, compared with TensorFlow's steps."""

import dataclasses
import pathlib
import random

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.models.encoder import INPUTS
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.texts import featurize_texts
from albert_tf.training import jax_program
from albert_tf.training.jax_devices import JaxDevices
from albert_tf.training.jax_program import without_sizes
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.train import FinetuneOptions, main
from finetuning.training.config import Plan
from finetuning.training.fit import Fit, compiled, fine_tune, keras_fit
from finetuning.training.jax_fit import JaxFit, padded_batch, padded_width
from finetuning.training.starting_point import StartingPoint, resolve

pytest.importorskip("jax", reason="jax is absent: requirements-dev.txt")
LONG = (
    "training.steps=3",
    "training.evaluate_every=3",
    "training.batch_size=4",
    "training.learning_rate=0.0005",
    "training.precision=float32",
    "task.seq_length=128",
)
CPU = tf.distribute.OneDeviceStrategy("/cpu:0")


def test_widths_are_few():
    widths = {padded_width(longest, 512) for longest in range(1, 513)}
    assert widths == {32, 64, 128, 256, 512}
    assert padded_width(96, 100) == 100 and padded_width(20, 24) == 24


def losses(begin: StartingPoint, fruit: str, folder: str, fit: Fit, **changes) -> list[float]:
    """The training losses of a run of six steps: dropout, weights of labels, two widths."""
    data = DATASETS["text_classification"].read(Source(fruit))
    chosen = (
        "training.steps=6",
        "training.evaluate_every=2",
        "training.batch_size=8",
        "training.learning_rate=0.01",
        "training.precision=float32",
        "training.class_weights=balanced",
        "task.seq_length=64",
        "model.hidden_dropout=0.1",
    )
    config = resolve(begin, data, {}, chosen, "cpu")
    config = dataclasses.replace(config, **changes)
    features = featurize_texts(data.train, begin.tokenizer, config.task)
    run, plan = RunDir(folder), Plan.of(config.training, len(features))
    run.begin({"model": {}}, begin.tokenizer)
    model = compiled(config, plan, lambda: begin.model(config), CPU)
    scores = iter((0.1, 0.2, 0.3))
    fine_tune(
        model,
        config,
        plan,
        features,
        lambda _: {"accuracy": next(scores)},
        "accuracy",
        run,
        fit=fit,
    )
    return [row["loss/train"] for row in run.metrics()]


def test_dropout_and_weights_of_labels_are_those_of_tensorflow(begin, fruit, tmp_path):
    theirs = losses(begin, fruit, str(tmp_path / "tensorflow"), keras_fit)
    ours = losses(begin, fruit, str(tmp_path / "jax"), JaxFit(JaxDevices("cpu")))
    assert len(ours) == 3 and ours == pytest.approx(theirs, rel=1e-5)


def test_bits_in_a_program():
    jax = jax_program.load_jax()
    rng = np.random.default_rng(0)
    mask = rng.random((5, 61)) < 0.5

    def function(x: tf.Tensor) -> list[tf.Tensor]:
        return [tf.where(tf.constant(mask), x, 0.0)]

    x = rng.normal(size=mask.shape).astype(np.float32)
    program = jax_program.Program.of(function, [tf.TensorSpec(x.shape)], [])
    (found,) = jax.jit(lambda x: program((), x))(x)
    np.testing.assert_array_equal(found, np.where(mask, x, 0))


def test_sizes_that_the_type_has_are_left_out():
    text = """
    %c = stablehlo.constant dense<5> : tensor<i32>
    %1 = stablehlo.set_dimension_size %0, %c, dim = 1 : (TYPE, tensor<i32>) -> TYPE
    """.replace("TYPE", "tensor<4x5xf32>")
    assert "%1 = stablehlo.reshape %0 : (tensor<4x5xf32>) -> tensor<4x5xf32>" in without_sizes(text)
    with pytest.raises(AssertionError, match="dim = 1"):
        without_sizes(text.replace("dense<5>", "dense<3>"))


def test_only_texts_are_padded():
    """Lists of texts too, up to the limit; other inputs stay."""
    shape = (2, 3, 96)
    inputs = {name: np.ones(shape, np.int32) for name in INPUTS} | {"grades": np.ones((2, 3))}
    for limit, width in ((512, 128), (100, 100)):
        padded, labels = padded_batch((inputs, np.zeros(2)), limit)
        assert padded["grades"].shape == (2, 3) and labels.shape == (2,)
        for name in INPUTS:
            assert padded[name].shape == (2, 3, width) and padded[name].sum() == np.prod(shape)


def test_several_workers_are_refused(fruit, tmp_path):
    with pytest.raises(InputError, match="multi_worker is only for --runtime=tensorflow. .*=pjrt"):
        FinetuneOptions(
            "text_classification",
            str(tmp_path / "run"),
            fruit,
            init="albert-mini-en",
            device="multi_worker",
            runtime="pjrt",
        )


@pytest.mark.slow
@pytest.mark.parametrize("given", [(), ("training.accumulation_steps=2",)], ids=("whole", "parts"))
def test_lists_of_texts_that_are_padded_further(tmp_path: pathlib.Path, given):
    """Pairs with negatives of 65 to 96 pieces, which this runtime pads to 128."""
    rng = random.Random(0)
    texts = [
        " ".join(rng.choices("the value of an object or a list".split(), k=75)) for _ in range(36)
    ]
    for part, count in (("train", 12), ("dev", 4)):
        rows = ["\t".join(texts[3 * row : 3 * row + 3]) for row in range(count)]
        table = "\n".join(["query\tpassage\tnegative", *rows]) + "\n"
        (tmp_path / f"{part}.tsv").write_text(table)
    rows = {}
    for runtime in ("tensorflow", "pjrt"):
        options = FinetuneOptions(
            "embedding",
            str(tmp_path / runtime),
            str(tmp_path),
            init="albert-mini-en",
            device="cpu",
            runtime=runtime,
            set=(*LONG, *given),
        )
        main(options)
        rows[runtime] = RunDir(options.run_dir).metrics()
    for ours, theirs in zip(rows["pjrt"], rows["tensorflow"], strict=True):
        assert ours["loss/train"] == pytest.approx(theirs["loss/train"], rel=1e-4)
