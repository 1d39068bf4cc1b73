"""Proves that whatever strings come, text signatures answer them, and leave their neighbours be."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from albert_tf.encoder import AlbertEncoder
from albert_tf.export.classifier import ClassifierModule
from albert_tf.export.embedding import EmbeddingModule
from albert_tf.export.fill_mask import FillMaskModule
from albert_tf.export.multiple_choice import MultipleChoiceModule
from albert_tf.export.preprocessing import PreprocessingModule
from albert_tf.export.regressor import RegressorModule
from albert_tf.export.span import SpanModule
from albert_tf.pretrainer import AlbertPretrainer
from albert_tf.tasks.classifier import ClassifierTask
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice import MultipleChoiceTask
from albert_tf.tasks.regressor import RegressorTask
from albert_tf.tasks.span import SpanTask

TASKS = {
    "classifier": (ClassifierTask(("no", "yes"), seq_length=32), ClassifierModule),
    "pairs": (ClassifierTask(("no", "yes"), seq_length=32, pair=True), ClassifierModule),
    "regressor": (RegressorTask(seq_length=32), RegressorModule),
    "choices": (MultipleChoiceTask(seq_length=32, num_choices=2), MultipleChoiceModule),
    "span": (SpanTask(seq_length=32, doc_stride=8), SpanModule),
    "span 2.0": (SpanTask(seq_length=32, doc_stride=8, answerable=True), SpanModule),
}
NAMES = [*TASKS, "embedding", "fill_mask", "preprocessing"]
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
ROWS = st.lists(st.lists(STRINGS, min_size=4, max_size=4), max_size=25)  # 100 strings at most
CALM = {"deadline": None, "suppress_health_check": list(HealthCheck)}


@pytest.fixture(scope="module")
def serve(tiny, small_tokenizer):
    """name -> (its signature `serving_default`, rows of strings -> its outputs)."""
    made = {}

    def module(name):
        if name in TASKS:
            task, kind = TASKS[name]
            return kind(KINDS[task.kind].model(AlbertEncoder(tiny), task), small_tokenizer)
        if name == "embedding":
            return EmbeddingModule(AlbertEncoder(tiny).create_weights(), small_tokenizer)
        if name == "fill_mask":
            return FillMaskModule(AlbertPretrainer(tiny).create_weights(), small_tokenizer)
        return PreprocessingModule(small_tokenizer, 32)

    def serve(name, rows):
        if name not in made:
            own = module(name)
            made[name] = own, own.signatures()["serving_default"]
        function = made[name][1]
        columns = np.array(rows, object).reshape([-1, 4])
        inputs = []
        for number, spec in enumerate(function.input_signature):
            values = columns[:, number] if spec.shape.rank == 1 else columns[:, 2:]
            inputs.append(tf.constant(values.tolist(), tf.string, shape=values.shape))
        return function(*inputs)

    return serve


def check(serve, name, rows):
    outputs = serve(name, rows)
    for value in outputs.values():
        assert value.shape[0] == len(rows)
        if value.dtype.is_floating:
            assert np.isfinite(value).all()
    for row in range(min(len(rows), 2)):  # alone as among the others
        for key, value in serve(name, rows[row : row + 1]).items():
            # Of masks there may be fewer alone.
            own = (slice(row, row + 1), *(slice(0, size) for size in value.shape[1:]))
            if value.dtype == tf.string:
                np.testing.assert_array_equal(outputs[key].numpy()[own], value)
            else:
                np.testing.assert_allclose(outputs[key].numpy()[own], value, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_hard_strings(serve, name):
    check(
        serve,
        name,
        [[BYTES[(i * step + 1) % len(BYTES)] for step in range(1, 5)] for i in range(15)],
    )
    assert all(value.shape[0] == 0 for value in serve(name, []).values())


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=250, **CALM)  # of up to 100 strings each: some 10,000
@given(rows=ROWS)
def test_any_strings(serve, name, rows):
    check(serve, name, rows)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_thousand_and_a_million(serve, name):
    many = serve(name, [[b"the value of it"] * 4] * 1000)
    assert all(value.shape[0] == 1000 for value in many.values())
    million = b"the value of it. " * 60_000  # 1,020,000 characters
    try:
        assert serve(name, [[million] * 4, [b"a"] * 4])
    except tf.errors.InvalidArgumentError as error:
        assert name.startswith("span")
        assert "windows" in str(error)
