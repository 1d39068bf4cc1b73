"""Tests of ONNX exports with int8 weights: hand-made products, error bounds, size, bad input."""

import os

import numpy as np
import onnx
import onnxruntime
import pytest
import tf_keras

from albert_tf.export import __main__ as export
from albert_tf.export.onnx import Onnx, onnx_model
from albert_tf.graph.onnx.int8_graph import Int8Graph, quantize
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.kinds import EXPORTS
from albert_tf.tasks.spans.model import SpanModel, SpanSettings
from tests.albert_tf.export.export_onnx_test import MODELS as CHANGES

DISABLE_ALL = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL


def run(model, inputs, level=None) -> dict:
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level or options.graph_optimization_level
    session = onnxruntime.InferenceSession(model.SerializeToString(), options)
    names = [each.name for each in session.get_outputs()]
    return dict(zip(names, session.run(None, inputs), strict=True))


def affine(x, kernel, bias=None, transposed=False, level=None) -> np.ndarray:
    """What an int8 graph returns for x W + b with float32 x."""
    graph = Int8Graph()
    # A graph's inputs are int32: this one is the number of times that x is repeated.
    tiled = graph.op(
        "Tile",
        graph.constant(x, np.float32),
        graph.op("Concat", graph.op("Cast", "times", to=7), graph.constant([1]), axis=0),
    )
    y = graph.product(tiled, "kernel", kernel, transposed)
    if bias is not None:
        y = graph.op("Add", y, graph.weight("bias", bias))
    model = graph.model({"times": [1]}, {"y": (y, np.float32, ["B", "N"])})
    return run(model, {"times": np.ones([1], np.int32)}, level)["y"]


def test_a_matrix_by_hand():
    """The columns' maxima 1, 4 and 0 give the scales 1 / 64, 1 / 16 and, of zeros, any."""
    matrix = np.array([[1, -4, 0], [0.5, 2, 0], [-0.25, 0.01, 0]], np.float32)
    values, scales = quantize(matrix, axis=0)
    np.testing.assert_array_equal(values, [[64, -64, 0], [32, 32, 0], [-16, 0, 0]])
    np.testing.assert_array_equal(scales[:2], [1 / 64, 1 / 16])
    assert values.dtype == np.int8 and scales.dtype == np.float32
    for given, wanted in zip(quantize(matrix.T.copy(), axis=1), (values.T, scales), strict=True):
        np.testing.assert_array_equal(given, wanted)


def test_a_product_of_whole_numbers_is_exact():
    """Rows with the maxima 127 and 1270, columns with the maxima 64 and 128: nothing to round."""
    rng = np.random.default_rng(0)
    x = rng.integers(-127, 128, [5, 32]).astype(np.float32)
    kernel = rng.integers(-64, 65, [32, 16]).astype(np.float32)
    x[:, 3], kernel[5] = -127, 64
    x[1], x[2], kernel[:, 7] = 10 * x[1], 0, 2 * kernel[:, 7]
    for transposed in (False, True):
        given = kernel.T.copy() if transposed else kernel
        found = affine(x, given, transposed=transposed)
        np.testing.assert_allclose(found, x @ kernel, rtol=1e-6)


def test_the_largest_numbers_do_not_saturate():
    """255 x 64 + 255 x 64, the largest sum of two products, fits int16."""
    largest = np.abs(quantize(np.random.default_rng(0).normal(size=[64, 64]), 0)[0]).max()
    assert 2 * 255 * int(largest) < 2**15
    x, kernel = np.full([1, 64], 3, np.float32), np.full([64, 16], 2, np.float32)
    np.testing.assert_allclose(affine(x, kernel), np.full([1, 16], 3 * 2 * 64), rtol=1e-6)


@pytest.mark.parametrize("level", [None, DISABLE_ALL], ids=["optimized", "as written"])
def test_the_error_of_a_product_is_bounded(level):
    """Also for a row with an outlier, and with a bias, whatever the runtime fuses."""
    rng = np.random.default_rng(1)
    x, kernel = rng.normal(size=[40, 96]), rng.normal(size=[96, 48])
    x[:, 5] *= np.geomspace(1, 1000, 40)
    kernel[7] *= 10
    x, kernel = x.astype(np.float32), kernel.astype(np.float32)
    bias = (100 * rng.normal(size=48)).astype(np.float32)
    values, scales = quantize(kernel, 0)
    step = np.abs(x).max(1, keepdims=True) / 127
    bound = step / 2 * np.abs(values * scales).sum(0) + np.abs(x).sum(1)[:, None] * scales / 2
    error = np.abs(affine(x, kernel, bias, level=level) - (x @ kernel + bias))
    assert (error <= bound * (1 + 1e-4)).all()
    assert error.max() > bound.max() / 100  # it is the rounding that is measured


def test_a_row_does_not_depend_on_the_others():
    rng = np.random.default_rng(2)
    x, kernel = (rng.normal(size=shape).astype(np.float32) for shape in ([9, 64], [64, 32]))
    x[3] *= 1e6
    together = affine(x, kernel)
    for i in range(9):
        np.testing.assert_array_equal(affine(x[i : i + 1], kernel)[0], together[i])


def test_rows_of_tables_are_the_nearest():
    """Each number is within half a step, 1 / 128 of its row's maximum."""
    table = np.random.default_rng(3).normal(size=[50, 24]).astype(np.float32)
    table[9] *= 1000
    graph = Int8Graph()
    outputs = {
        "rows": (graph.rows("table", table, "ids"), np.float32, ["B", 24]),
        "first": (graph.first_rows("table", table, graph.size("ids", 0)), np.float32, ["B", 24]),
    }
    ids = np.array([9, 0, 49, 9], np.int32)
    found = run(graph.model({"ids": ["B"]}, outputs), {"ids": ids})
    for rows, wanted in ((found["rows"], table[ids]), (found["first"], table[:4])):
        half = np.abs(wanted).max(1, keepdims=True) / 128
        assert (np.abs(rows - wanted) <= half * (1 + 1e-5)).all()


def test_a_byte_a_parameter_and_shared_weights_once():
    """At most 1.05 bytes a parameter, and twelve layers within 5 % of one."""
    config = AlbertConfig(vocab_size=3000, hidden_size=256, num_heads=4, intermediate_size=1024)
    one, twelve = (
        onnx_model(
            EXPORTS["encoder"],
            AlbertEncoder(config.replace(num_layers=n)).create_weights(),
            quantization="int8",
        )
        for n in (1, 12)
    )
    encoder = AlbertEncoder(config).create_weights()
    parameters = sum(int(np.prod(each.shape)) for each in encoder.trainable_variables)
    stored = sum(onnx.numpy_helper.to_array(each).nbytes for each in one.graph.initializer)
    assert parameters < stored <= 1.05 * parameters
    assert [each.name for each in one.graph.initializer] == [
        each.name for each in twelve.graph.initializer
    ]
    assert {each.domain for each in twelve.opset_import} == {""}  # the standard's operators only


def models(config):
    """(kind, model) for kinds that use every kind of product and table."""
    tf_keras.utils.set_random_seed(1)
    yield "fill_mask", AlbertPretrainer(config).create_weights()
    yield "encoder", AlbertEncoder(config).create_weights()
    task = ClassifierSettings(("a", "b", "c"))
    yield "classifier", SequenceClassifier(AlbertEncoder(config), task).create_weights()
    task = SpanSettings(answerable=True, beam=3)
    yield "span", SpanModel(AlbertEncoder(config), task).create_weights()


OUTPUT = {
    "fill_mask": "mlm_logits",
    "encoder": "sequence_output",
    "classifier": "probabilities",
    "span": "null",
}


def inputs_of(kind, fake_inputs) -> dict:
    inputs = fake_inputs(3, 17, (0, 4, 11))
    if kind == "fill_mask":
        inputs["masked_lm_positions"] = np.tile(np.array([[1, 2]], np.int32), [3, 1])
    return inputs


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_answers_are_near_those_of_float32(tiny, fake_inputs, changes):
    """Within 5 % in the mean square, on random weights."""
    for kind, model in models(tiny.replace(initializer_range=0.1, **changes)):
        inputs = inputs_of(kind, fake_inputs)
        exact, near = (
            run(onnx_model(EXPORTS[kind], model, quantization=each), inputs)[OUTPUT[kind]]
            for each in ("none", "int8")
        )
        assert 0 < np.linalg.norm(near - exact) < 0.05 * np.linalg.norm(exact)


@pytest.mark.slow
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_openvino_reads_it(tiny, fake_inputs, changes, tmp_path):
    openvino = pytest.importorskip("openvino")
    path = str(tmp_path / "model.onnx")
    for kind, model in models(tiny.replace(initializer_range=0.1, **changes)):
        onnx.save(onnx_model(EXPORTS[kind], model, quantization="int8"), path)
        precision = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(path, "CPU", precision)
        inputs = inputs_of(kind, fake_inputs)
        found = compiled(inputs)[compiled.output(OUTPUT[kind])]
        exact = run(onnx_model(EXPORTS[kind], model), inputs)[OUTPUT[kind]]
        assert 0 < np.linalg.norm(found - exact) < 0.05 * np.linalg.norm(exact)


def test_the_command_writes_it(pretrained, tmp_path, fake_inputs):
    folder, inputs, found = tmp_path / "export", fake_inputs(2, 9, (0, 3)), {}
    for version, quantization in enumerate(Onnx.quantizations, 1):
        export.main(
            export.ExportOptions(
                pretrained, str(folder), version=version, format="onnx", quantization=quantization
            )
        )
        path = os.path.join(folder, str(version), "model.onnx")
        found[quantization] = run(onnx.load(path), inputs)["sequence_output"]
    error = np.linalg.norm(found["int8"] - found["none"]) / np.linalg.norm(found["none"])
    assert 0 < error < 0.05


def odd_inputs(config, count):
    """Batches of any shape up to the longest, with any masks, types and ids, also the last ones."""
    rng = np.random.default_rng(4)
    for _ in range(count):
        shape = (rng.integers(1, 5), rng.integers(1, config.max_positions + 1))
        words = rng.integers(0, config.vocab_size, shape)
        edges = rng.choice([0, config.vocab_size - 1], shape)
        masks = (np.ones(shape), np.zeros(shape), rng.integers(0, 2, shape))
        inputs = {
            "input_word_ids": np.where(rng.random() < 0.3, edges, words),
            "input_mask": masks[rng.integers(3)],
            "input_type_ids": rng.integers(0, config.type_vocab_size, shape),
        }
        yield {name: value.astype(np.int32) for name, value in inputs.items()}


@pytest.mark.slow
@pytest.mark.parametrize("quantization", Onnx.quantizations)
@pytest.mark.parametrize("changes", CHANGES.values(), ids=CHANGES)
def test_any_input_has_an_answer(tiny, quantization, changes):
    config = tiny.replace(**changes)
    for kind in ("classifier", "span"):
        model = dict(models(config))[kind]
        content = onnx_model(EXPORTS[kind], model, quantization=quantization).SerializeToString()
        session = onnxruntime.InferenceSession(content)
        for inputs in odd_inputs(config, 1700):  # 10,200 in all for each type of weights
            for value in session.run(None, inputs):
                assert not np.isnan(value).any() and len(value) == len(inputs["input_mask"])


@pytest.mark.parametrize("positions", ["learned", "rotary"])
@pytest.mark.parametrize("quantization", Onnx.quantizations)
def test_ids_out_of_range_are_an_error(tiny, fake_inputs, quantization, positions):
    config = tiny.replace(num_layers=1, positions=positions)
    model = AlbertPretrainer(config).create_weights()
    content = onnx_model(EXPORTS["fill_mask"], model, quantization=quantization).SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # errors are raised
    session = onnxruntime.InferenceSession(content, options)
    good = inputs_of("fill_mask", fake_inputs)
    assert not np.isnan(session.run(None, good)[0]).any()
    for name, values in {
        "input_word_ids": (-1, -300, 300, 2**31 - 1, -(2**31)),
        "input_type_ids": (-1, 2),
        "masked_lm_positions": (-1, 17),
    }.items():
        for value in values:
            bad = good[name].copy()
            bad[1, 1] = value
            with pytest.raises(Exception, match=r"out of data bounds|invalid index"):
                session.run(None, good | {name: bad})
    longer = fake_inputs(1, tiny.max_positions + 1)
    message = f"Name:'the inputs must have at most {tiny.max_positions} positions'"
    with pytest.raises(Exception, match=message):
        session.run(None, longer | {"masked_lm_positions": np.zeros([1, 1], np.int32)})
