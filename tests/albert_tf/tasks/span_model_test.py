"""Tests of the span heads against NumPy and brute force, and that they learn by `fit`."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.encoder import AlbertEncoder
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.spans.answers import decode_spans
from albert_tf.tasks.spans.examples import SpanExample
from albert_tf.tasks.spans.features import featurize_spans
from albert_tf.tasks.spans.heads import IndependentHead
from albert_tf.tasks.spans.model import SpanModel, SpanSettings, allowed_positions
from albert_tf.text.tokenizer import Normalization, Tokenizer, load_tokenizer
from finetuning.datasets.spans.squad_reader import questions_of

ONE = SpanSettings(seq_length=16, max_answer_length=3, n_best=7, dropout=0.5)
TWO = SpanSettings(seq_length=16, answerable=True, beam=3, dropout=0.5)
# [CLS] q q [SEP] c c c c c [SEP] pad pad, and one with a single piece of context.
TYPES = np.array([[0] * 4 + [1] * 6 + [0] * 2, [0] * 10 + [1] * 2], np.int32)
ALLOWED = np.array([[1, 0, 0, 0, 1, 1, 1, 1, 1, 0, 0, 0], [1] + [0] * 9 + [1, 0]], bool)


@pytest.fixture(scope="module")
def tiny(tiny):
    """Heads do not look into the encoder: one layer is enough."""
    return tiny.replace(num_layers=1)


@pytest.fixture(scope="module", params=[ONE, TWO], ids=["1.1", "2.0"])
def model(request, tiny) -> SpanModel:
    tf_keras.utils.set_random_seed(3)
    model = SpanModel(AlbertEncoder(tiny), request.param).create_weights()
    for variable in model.head.trainable_variables:  # of 0.02, scores hardly differ
        variable.assign(variable + tf.random.normal(variable.shape, stddev=0.3))
    return model


@pytest.fixture(scope="module")
def inputs(fake_inputs) -> dict[str, np.ndarray]:
    made = fake_inputs(2, 12, padded=(2, 0))
    return made | {"input_type_ids": TYPES, "start_position": np.array([5, 0], np.int32)}


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def norm(x: np.ndarray, gamma: np.ndarray, beta: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-12) * gamma + beta


def by_numpy(model: SpanModel, inputs: dict, starts: np.ndarray) -> tuple[np.ndarray, ...]:
    """Start [B, S], end behind `starts` [B, S] and null [B], with plain concatenations."""
    hidden = model.encoder({k: inputs[k] for k in inputs if k.startswith("input_")})
    hidden = hidden["sequence_output"].numpy().astype(np.float64)
    masked = np.where(ALLOWED, 0.0, -1e30)
    if not model.task.answerable:
        kernel, bias = (v.numpy() for v in model.head.dense.variables)
        start, end = np.moveaxis(hidden @ kernel + bias, -1, 0)
        return start + masked, end + masked, np.zeros(2)
    head = model.head
    kernel, bias = (v.numpy() for v in head.start_logits.variables)
    start = (hidden @ kernel + bias)[..., 0] + masked
    chosen = hidden[np.arange(2), starts]  # [B, H]
    both = np.concatenate([hidden, np.repeat(chosen[:, None], 12, 1)], -1)
    kernel, bias = (v.numpy() for v in head.end_logits.dense_0.variables)
    x = norm(
        np.tanh(both @ kernel + bias), *(v.numpy() for v in head.end_logits.layer_norm.variables)
    )
    kernel, bias = (v.numpy() for v in head.end_logits.dense_1.variables)
    end = (x @ kernel + bias)[..., 0] + masked
    summary = (np.exp(log_softmax(start))[..., None] * hidden).sum(1)
    kernel, bias = (v.numpy() for v in head.answer_class.dense_0.variables)
    (last,) = (v.numpy() for v in head.answer_class.dense_1.variables)
    null = np.tanh(np.concatenate([summary, hidden[:, 0]], -1) @ kernel + bias) @ last
    return start, end, null[:, 0]


def test_where_an_answer_may_be():
    np.testing.assert_array_equal(allowed_positions(TYPES), ALLOWED)


def test_logits_by_numpy(model, inputs):
    logits = model._logits(inputs, training=False)
    start, end, null = by_numpy(model, inputs, inputs["start_position"])
    np.testing.assert_allclose(logits["start_position"], start, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(logits["end_position"], end, rtol=1e-4, atol=1e-4)
    if model.task.answerable:
        np.testing.assert_allclose(logits["is_impossible"], null, rtol=1e-4, atol=1e-4)


def test_candidates_by_brute_force(model, inputs):
    """1.1: the spans with the highest sums of logits. 2.0: of each likely start its likely ends."""
    outputs = {name: value.numpy() for name, value in model(inputs).items()}
    for row in range(2):
        wanted: dict[tuple[int, int], float] = {}
        start, end, null = (values[row] for values in by_numpy(model, inputs, np.zeros(2, int)))
        if model.task.answerable:
            np.testing.assert_allclose(outputs["null"][row], null, rtol=1e-4, atol=1e-4)
            for first in np.argsort(-start, kind="stable")[:3]:
                end = log_softmax(by_numpy(model, inputs, np.full(2, first))[1][row])
                for last in np.argsort(-end, kind="stable")[:3]:
                    wanted[first, last] = log_softmax(start)[first] + end[last]
        else:
            spans = [
                (a, b)
                for a, b in itertools.combinations_with_replacement(range(1, 12), 2)
                if ALLOWED[row, a] and ALLOWED[row, b] and b - a < 3
            ]
            scores = {(a, b): start[a] + end[b] for a, b in spans}
            wanted = dict(sorted(scores.items(), key=lambda item: -item[1])[:7])
        found = {
            (a, b): score
            for a, b, score in zip(
                *(outputs[k][row] for k in ("start", "end", "score")), strict=True
            )
            if score > -1e29
        }
        wanted = {span: score for span, score in wanted.items() if score > -1e29}
        assert found == pytest.approx(wanted, abs=1e-4) and found
    assert outputs["start"].dtype == outputs["end"].dtype == np.int32
    assert outputs["score"].shape == (2, 9 if model.task.answerable else 7)


def test_windows_are_compared_by_their_logits():
    """Two windows of one context: the second is less sure, but of higher logits."""
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefgh"]
    tokenizer = Tokenizer("\n".join(vocabulary).encode(), Normalization())
    task = SpanSettings(seq_length=8, doc_stride=4, max_answer_length=1, n_best=4)
    examples = [SpanExample("h", "a b c d e f g", "q")]  # "a" to "d", and "e" to "g"
    features = featurize_spans(examples, tokenizer, task)
    assert features.sequences.lengths.tolist() == [8, 7]
    head = IndependentHead(task.max_answer_length, task.n_best)
    hidden = np.zeros([2, 8, 2], np.float32)  # the hidden units are the logits
    hidden[0, 3:7, 0] = [2, 0, 0, 0]  # "a": 2 - log(e^2 + 3) = -0.34
    hidden[1, 3:6, 0] = [3, 2.9, 2.8]  # "e": 3 - log(e^3 + e^2.9 + e^2.8) = -1.00
    head.dense.build([None, None, 2])
    head.dense.set_weights([np.eye(2, dtype=np.float32), np.zeros(2, np.float32)])
    types = np.array([[0] * 3 + [1] * 5, [0] * 3 + [1] * 4 + [0]], np.int32)
    outputs = {key: value.numpy() for key, value in head(hidden, allowed_positions(types)).items()}
    (prediction,) = decode_spans(outputs, features, examples, task)
    found = [(each["text"], each["logit"]) for each in prediction["n_best"]]
    wanted = [("e", 3), ("f", 2.9), ("g", 2.8), ("a", 2)]
    assert [text for text, _ in found] == [text for text, _ in wanted]
    assert [logit for _, logit in found] == pytest.approx([logit for _, logit in wanted])
    powers = np.exp([3, 2.9, 2.8, 2])
    assert prediction["score"] == pytest.approx(powers[0] / powers.sum())


def reference_answer(starts, ends, features, row: int, example, task: SpanSettings) -> str:
    """The best text by definition: the span of highest start logit + end logit in any window.

    As google-research/bert and albert rank them, over all spans instead of 20 starts by 20 ends.
    """
    best, text = -np.inf, ""
    for window in np.flatnonzero(features.example == row):
        last = features.sequences.lengths[window] - 2
        base = features.piece[window] - features.sequences.first_lengths[window]
        for start in range(features.owned_from[window], features.owned_to[window]):
            for end in range(start, min(start + task.max_answer_length, last + 1)):
                score = starts[window, start] + ends[window, end]
                span = slice(features.first[base + start], features.reach[base + end] + 1)
                if score > best and example.context[span].strip():
                    best, text = score, example.context[span].strip()
    return text


@pytest.mark.slow
def test_real_windows_are_ranked_as_by_the_reference(shared_data, tiny):
    """XQuAD in windows of 64 pieces, random weights: normalising each window would differ."""
    examples = list(questions_of(str(shared_data / "squad" / "xquad.en.json.gz")))[:150]
    tokenizer = load_tokenizer(shared_data / "vocab" / "albert_en_30k" / "spiece.model")
    task = SpanSettings(seq_length=64, query_length=16, doc_stride=24, n_best=200)
    features = featurize_spans(examples, tokenizer, task)
    tf_keras.utils.set_random_seed(1)
    config = tiny.replace(vocab_size=tokenizer.vocab_size, max_positions=64, num_layers=1)
    model = SpanModel(AlbertEncoder(config), task).create_weights()
    for weight in model.head.trainable_variables:  # wide, or all spans are about as likely
        weight.assign(30.0 * weight)
    answers = decode_spans(predict(model, features, 32), features, examples, task)
    inputs, _ = features.batch(np.arange(len(features)), 64)
    logits = model._logits(inputs, training=False)
    starts, ends = (logits[f"{key}_position"].numpy() for key in ("start", "end"))
    other = log_softmax(starts), log_softmax(ends)
    mine = [answer["answer"] for answer in answers]
    theirs, normalised = (
        [reference_answer(*each, features, row, e, task) for row, e in enumerate(examples)]
        for each in ((starts, ends), other)
    )
    assert mine == theirs
    assert sum(a != b for a, b in zip(mine, normalised, strict=True)) > 15


def test_weights_come_back(model, tiny, inputs, tmp_path):
    """The numbers of Google's heads, whose layers have these names; a checkpoint fits."""
    size = tiny.hidden_size
    dense = 2 * size * size + size
    wanted = 2 * size + 2
    if model.task.answerable:
        wanted = (size + 1) + (dense + 2 * size + size + 1) + (dense + size)
    assert model.head.count_params() == wanted
    path = tf.train.Checkpoint(model=model).write(str(tmp_path / "ckpt"))
    other = SpanModel(AlbertEncoder(tiny), model.task).create_weights()
    tf.train.Checkpoint(model=other).read(path).assert_consumed()
    np.testing.assert_array_equal(other(inputs)["score"], model(inputs)["score"])
    if model.task.answerable:
        names = "\n".join(name for name, _ in tf.train.list_variables(path))
        for part in (
            "start_logits/kernel",
            "end_logits/dense_0/kernel",
            "end_logits/dense_1/bias",
            "answer_class/dense_0/bias",
            "answer_class/dense_1/kernel",
        ):
            assert f"head/{part}/" in names


def test_losses_by_numpy(model, inputs):
    """(start + end) / 2, and in 2.0 half of the sigmoid's cross-entropy."""
    targets = {"start_position": np.array([5, 0]), "end_position": np.array([7, 0])}
    start, end, null = by_numpy(model, inputs, inputs["start_position"])
    start, end = log_softmax(start), log_softmax(end)
    wanted = -(start[0, 5] + end[0, 7] + start[1, 0] + end[1, 0]) / 4
    if model.task.answerable:
        targets["is_impossible"] = np.array([0.0, 1.0], np.float32)
        wanted += (np.log1p(np.exp(null[0])) + np.log1p(np.exp(-null[1]))) / 4
    compiled = SpanModel(model.encoder, model.task).create_weights()
    compiled.set_weights(model.get_weights())
    compiled.compile(loss=compiled.training_losses())
    loss = compiled.evaluate(inputs, targets, verbose=0, return_dict=True)["loss"]
    assert loss == pytest.approx(wanted, rel=1e-4)


def test_dropout_is_in_training_alone_and_in_the_answerability_alone(model, inputs):
    first, second = (model(inputs, training=True) for _ in range(2))
    changed = {name for name in first if np.any(first[name] != second[name])}
    assert changed == ({"is_impossible"} if model.task.answerable else set())
    np.testing.assert_array_equal(model(inputs)["score"], model(inputs)["score"])


def test_the_head_compiles_for_accelerators(model, inputs):
    """XLA takes it: static shapes, no Python inside."""
    hidden = model.encode(inputs, training=False)[0]["sequence_output"]
    compiled = tf.function(model.head, jit_compile=True)
    for name, value in compiled(hidden, tf.constant(ALLOWED)).items():
        np.testing.assert_allclose(value, model(inputs)[name], rtol=1e-4, atol=1e-4)


def test_mixed_precision_keeps_heads_and_logits_in_float32(tiny, inputs):
    before = tf_keras.mixed_precision.global_policy()
    tf_keras.mixed_precision.set_global_policy("mixed_bfloat16")
    try:
        for task in (ONE, TWO):
            model = SpanModel(AlbertEncoder(tiny), task).create_weights()
            assert {v.dtype for v in model.head.variables} == {tf.float32}
            outputs = model(inputs, training=True) | model(inputs)
            assert {v.dtype for v in outputs.values()} == {tf.float32, tf.int32}
    finally:
        tf_keras.mixed_precision.set_global_policy(before)


def test_any_layer_of_the_hub_s_contract_is_an_encoder(tiny, inputs):
    class Foreign(tf_keras.layers.Layer):
        def __init__(self):
            super().__init__()
            self.inner = AlbertEncoder(tiny)

        def call(self, inputs, training=False):
            return {"sequence_output": self.inner(inputs, training=training)["sequence_output"]}

    for task in (ONE, TWO):
        model = SpanModel(Foreign(), task).create_weights()
        assert model(inputs, training=True)["end_position"].shape == (2, 12)
        assert model(inputs)["end"].shape == (2, 9 if task.answerable else 7)


def test_fewer_positions_than_candidates(tiny, fake_inputs):
    for task in (
        SpanSettings(n_best=20, max_answer_length=1),
        SpanSettings(answerable=True, beam=11),
    ):
        model = SpanModel(AlbertEncoder(tiny), task).create_weights()
        score = model(fake_inputs(1, 8))["score"].numpy()
        assert score.shape == (1, 121 if task.answerable else 20) and not np.isnan(score).any()


@pytest.mark.slow
@pytest.mark.parametrize("answerable", [False, True])
def test_it_learns(tiny, answerable):
    """The answer is what stands behind `x`; without an x there is none."""
    letters = "abcdefghij"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters, "x", "?"]
    tokenizer = Tokenizer("\n".join(vocabulary).encode(), Normalization())
    rng = np.random.default_rng(0)
    examples = []
    for number in range(48):
        words = list(rng.permutation(list(letters))[:6])
        index = number % 5
        words[index] = "x"
        context = " ".join(words)
        answers = ((2 * index + 2, words[index + 1]),)
        if answerable and number % 3 == 0:
            examples.append(SpanExample("?", context.replace("x", "?"), str(number), (), True))
        else:
            examples.append(SpanExample("?", context, str(number), answers))
    task = SpanSettings(seq_length=12, answerable=answerable, max_answer_length=2, dropout=0.0)
    features = featurize_spans(examples, tokenizer, task)
    tf_keras.utils.set_random_seed(0)
    model = SpanModel(AlbertEncoder(tiny.replace(num_layers=1)), task).create_weights()
    model.compile(tf_keras.optimizers.Adam(3e-3), model.training_losses())
    model.fit(tf.data.Dataset.from_tensors(features.batch(np.arange(48))).repeat(60), verbose=0)
    predictions = decode_spans(predict(model, features, 16), features, examples, task)
    wanted = [e.answers[0][1] if e.answers else "" for e in examples]
    assert [p["answer"] for p in predictions] == wanted
