"""Tests that whatever strings come, text signatures answer them, and leave their neighbours be."""

import functools
import time

import hypothesis
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.tasks.classifier.model import SequenceClassifier
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.pretrained.fill_mask import FillMaskModule
from albert_tf.tasks.pretrained.preprocessing import PreprocessingModule
from tests.kinds.cases import CASES

OF_CLASSIFIER = ["classify", "depth_1", "early_exit"]  # its signatures beside serving_default
KEYS = [key for key in CASES if key != "toy"]
NAMES = [*KEYS, *OF_CLASSIFIER, "fill_mask", "preprocessing"]
# Each of these is like one that is not.
SLOW = [key for key in KEYS if key.startswith("classifier of ")]
SLOW += ["multi_label", "regressor", "span", "classify", "depth_1"]
HARD = [
    "",
    " ",
    "\t\n",
    "\0",
    "a\0b",
    "\ud7ff\ue000",
    "🙂" * 30,
    "\U0010ffff",
    "[MASK]",
    "_",
    "``''",
]
BYTES = [text.encode() for text in HARD] + [
    b"\xff",
    b"\xc3",
    b"a\xed\xa0\x80b",
    b"\xf4\x90\x80\x80",
]
STRINGS = st.one_of(st.text().map(str.encode), st.binary(), st.sampled_from(BYTES))
LEAST = 40  # strings of an example
TEXTS = st.lists(STRINGS, min_size=LEAST, max_size=2 * LEAST)
CALM = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def signature(tiny, small_tokenizer):
    """name -> the signature."""
    one = tiny.replace(num_layers=1)  # faster

    def module(name):
        if name in ("depth_1", "early_exit"):
            encoder = AlbertEncoder(tiny.replace(num_layers=4))
            model = SequenceClassifier(encoder, CASES["classifier"].settings).create_weights()
            return ClassifierModule(model, small_tokenizer, (1,), patience=2)
        if name in [*KEYS, "classify"]:
            task = CASES.get(name, CASES["classifier"]).settings
            model = KINDS[task.kind].model(AlbertEncoder(one), task).create_weights()
            return KINDS[task.kind].module(model, small_tokenizer, ExportSettings())
        if name == "fill_mask":
            return FillMaskModule(AlbertPretrainer(one).create_weights(), small_tokenizer)
        return PreprocessingModule(small_tokenizer, 32)

    kept = []  # a signature does not keep its module

    @functools.cache
    def signature(name):
        kept.append(module(name))
        return kept[-1].signatures()[name if name in OF_CLASSIFIER else "serving_default"]

    return signature


@pytest.fixture(scope="module")
def ask(signature):
    """name -> how many strings a row has, and (strings of all rows) -> the outputs."""

    def ask(name):
        function = signature(name)
        columns = [1 if spec.shape.rank == 1 else 2 for spec in function.input_signature]

        def serve(texts):
            rows = np.array([*map(bytes, texts)], object).reshape([-1, sum(columns)])
            if name == "classify":
                rows = np.array([[example(row[0])] for row in rows], object).reshape([-1, 1])
            inputs, place = [], 0
            for spec, width in zip(function.input_signature, columns, strict=True):
                own = rows[:, place : place + width]
                own = own[:, 0] if spec.shape.rank == 1 else own
                inputs.append(tf.constant(own.tolist(), tf.string, shape=own.shape))
                place += width
            return function(*inputs)

        return sum(columns), serve

    return ask


def example(text: bytes) -> bytes:
    """A serialized tf.Example."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text]))
    features = tf.train.Features(feature={"text": feature})
    return tf.train.Example(features=features).SerializeToString()


def check(width, serve, texts) -> int:
    """How many strings it looked at: rows of `width`."""
    count = len(texts) // width
    outputs = serve(texts[: count * width])
    for value in outputs.values():
        assert value.shape[0] == count
        if value.dtype.is_floating:
            assert np.isfinite(value).all()
    for row in range(min(count, 2)):  # alone as among the others
        # Rounding decides between options or candidates that are equal as pieces.
        compared = {"choice": "probabilities", "ranking": "scores"}
        is_tie = any(
            name in outputs and np.ptp(outputs[values][row]) < 1e-5
            for name, values in compared.items()
        )
        for key, value in serve(texts[row * width : (row + 1) * width]).items():
            # Of masks there may be fewer alone.
            own = (slice(row, row + 1), *(slice(0, size) for size in value.shape[1:]))
            if is_tie and key in (*compared, "label"):
                continue
            if value.dtype == tf.string:
                np.testing.assert_array_equal(outputs[key].numpy()[own], value)
            else:
                np.testing.assert_allclose(outputs[key].numpy()[own], value, atol=1e-5)
    return count * width


@pytest.mark.slow_parameters(*(f"2-{name}" for name in SLOW))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("examples", [2, pytest.param(275, marks=pytest.mark.slow)])
def test_any_strings(ask, name, examples):
    seen = []
    hard = [BYTES[(i * step + 1) % len(BYTES)] for i in range(15) for step in range(1, 5)]

    @settings(max_examples=examples, **CALM)
    @given(texts=TEXTS)
    @hypothesis.example(texts=hard)
    def check_some(texts):
        seen.append(check(*ask(name), texts))

    check_some()
    print(f"{name}: {sum(seen)} strings")
    assert sum(seen) >= (LEAST - 3) * examples  # 10,175 for 275
    assert all(value.shape[0] == 0 for value in ask(name)[1]([]).values())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_and_a_million(ask, name):
    width, serve = ask(name)
    many = serve([b"the value of it"] * width * 1000)
    assert all(value.shape[0] == 1000 for value in many.values())
    for million in (b"the value of it. " * 60_000, "🙂".encode() * 1_000_000):
        begin = time.process_time()
        try:
            assert serve([million] * width + [b"a"] * width)
        except tf.errors.InvalidArgumentError as error:
            assert name.startswith(("span", "token", "classifier of long"))
            assert million[0] == ord("t")  # prose has too many pieces
            assert "windows" in str(error)
        assert time.process_time() - begin < 30
