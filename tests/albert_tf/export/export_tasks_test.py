"""Tests that exports of tasks answer as `load_predictor`'s models do, one by one or together."""

import itertools
import json

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.export.saved_model import save
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings, SequenceClassifier
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.embedding.module import EmbeddingModule
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.kind import ExportSettings
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multi_label.model import MultiLabelClassifier, MultiLabelSettings
from albert_tf.tasks.multi_label.module import MultiLabelModule
from albert_tf.tasks.multiple_choice.examples import ChoiceExample
from albert_tf.tasks.multiple_choice.features import fill_blanks as fill
from albert_tf.tasks.multiple_choice.model import MultipleChoiceModel, MultipleChoiceSettings
from albert_tf.tasks.multiple_choice.module import MultipleChoiceModule, fill_blanks
from albert_tf.tasks.predictor import predict

TEXTS = ("the value", "", "of the object " * 30, "one, two", " \t", "a\0b", "naïve “x” 漢字 🙂")
OTHERS = ("a", "x", "", "three of the objects in the sequence of the objects", "b", "c", "d")


@pytest.fixture(scope="module")
def tiny(tiny):
    """Exports do not look into the encoder: one layer is enough."""
    return tiny.replace(num_layers=1)


@pytest.fixture(scope="module")
def load(tiny, small_tokenizer, tmp_path_factory):
    """(module, task) -> the SavedModel, loaded."""

    def load(module, task=None):
        folder = tmp_path_factory.mktemp("export")
        sections = {"model": tiny.__dict__} | ({"task": task.__dict__} if task else {})
        (folder / "config.json").write_text(json.dumps(sections))
        save(module, str(folder / "1"), small_tokenizer, str(folder / "config.json"))
        return tf.saved_model.load(str(folder / "1"))

    return load


def varied(model):
    """The model with a head that tells its inputs apart."""
    rng = np.random.default_rng(0)
    model.head.kernel.assign(rng.normal(size=model.head.kernel.shape))
    return model


def products(function) -> int:
    """How many matrix products a function and what it calls consist of."""
    nodes = (n for f in function.graph.as_graph_def().library.function for n in f.node_def)
    return sum(node.op in ("MatMul", "BatchMatMulV2", "Einsum") for node in nodes)


def predicted(model, examples, tokenizer):
    """The Python face's answers."""
    kind = KINDS[model.task.kind]
    features = kind.featurize(examples, tokenizer, model.task)
    return kind.decode(predict(model, features, 4), features, examples, model.task), features


class TestDepth:
    """Of a model with 6 layers that share a block, and labels that change on the way."""

    @pytest.fixture(
        scope="class",
        params=[
            pytest.param({}, id="paper"),
            pytest.param(
                {"norm": "pre", "positions": "rotary", "ffn": "gated"},
                id="other",
                marks=pytest.mark.slow,
            ),
        ],
    )
    def model(self, tiny, request):
        config = tiny.replace(
            num_layers=6, sharing="all", num_groups=1, initializer_range=0.5, **request.param
        )
        task = ClassifierSettings(("no", "yes", "maybe"), seq_length=40)
        tf_keras.utils.set_random_seed(8)
        return varied(SequenceClassifier(AlbertEncoder(config), task).create_weights())

    @pytest.fixture(scope="class")
    def loaded(self, model, small_tokenizer, load):
        return load(ClassifierModule(model, small_tokenizer, (1, 4), patience=2), model.task)

    @pytest.fixture(scope="class")
    def by_layer(self, model, small_tokenizer):
        """Probabilities [texts, 6 layers, 3], by the pooler and the head over each layer."""
        features = KINDS["classifier"].featurize(
            [TextExample(text) for text in self.TEXTS], small_tokenizer, model.task
        )
        layers = model.encoder(features.batch(tf.range(len(self.TEXTS)))[0])["encoder_outputs"]
        logits = [model.head(model.encoder.pool(layer)) for layer in layers]
        return tf.nn.softmax(tf.stack(logits, 1)).numpy()

    TEXTS = (*TEXTS, *OTHERS, *(f"{a} and {b}" for a, b in zip(TEXTS, OTHERS, strict=True)))

    @pytest.mark.parametrize("depth", [1, 4])
    def test_a_dial(self, loaded, by_layer, depth):
        outputs = loaded.signatures[f"depth_{depth}"](text=tf.constant(self.TEXTS))
        np.testing.assert_allclose(outputs["probabilities"], by_layer[:, depth - 1], atol=1e-5)

    def test_shallower_is_less_work(self, loaded):
        one, four, six = (
            products(loaded.signatures[name]) for name in ("depth_1", "depth_4", "serving_default")
        )
        assert four - one == 3 * (six - four) / 2 > 0

    def test_early_exit(self, loaded, by_layer):
        serve = loaded.signatures["early_exit"]
        outputs = serve(text=tf.constant(self.TEXTS))
        depths = []
        for row, layers in enumerate(by_layer):
            labels = layers.argmax(axis=1)
            settled = [k for k in range(2, 6) if labels[k - 2] == labels[k - 1] == labels[k]]
            last = settled[0] if settled else 5
            depths.append(last + 1)
            np.testing.assert_allclose(outputs["probabilities"][row], layers[last], atol=1e-5)
            alone = serve(text=tf.constant([self.TEXTS[row]]))
            np.testing.assert_allclose(alone["probabilities"][0], layers[last], atol=1e-5)
            assert alone["depth"].numpy().tolist() == [last + 1]
        assert outputs["depth"].numpy().tolist() == depths
        assert len(set(depths)) > 1  # the case is worth its name
        assert serve(text=tf.constant([], tf.string))["depth"].shape == (0,)

    @pytest.mark.parametrize(
        ("changes", "options", "words"),
        [
            ({}, {"depths": (6,)}, "--depths must be between 1 and 5.*6"),
            ({}, {"patience": 5}, "--patience must be between 1 and 4.*5"),
            ({"sharing": "none"}, {"patience": 2}, "--patience needs.*share one block.*none"),
        ],
    )
    def test_options_without_an_onnx_form_are_refused(
        self, model, small_tokenizer, changes, options, words
    ):
        encoder = AlbertEncoder(model.encoder.config.replace(**changes))
        other = SequenceClassifier(encoder, model.task).create_weights()
        with pytest.raises(InputError, match=words):
            ClassifierModule(other, small_tokenizer, **options)


@pytest.mark.slow_parameters("classifier")
@pytest.mark.parametrize("kind", ["classifier", "multi_label"])
def test_tf_serving_s_classification(tiny, small_tokenizer, kind):
    task = KINDS[kind].settings(("no", "yes"), seq_length=16)
    model = varied(KINDS[kind].model(AlbertEncoder(tiny), task).create_weights())
    signatures = KINDS[kind].module(model, small_tokenizer, ExportSettings()).signatures()
    wanted = signatures["serving_default"](tf.constant(TEXTS))["probabilities"]
    requests = [tf.train.Example() for _ in TEXTS]
    for request, text in zip(requests, TEXTS, strict=True):
        request.features.feature["text"].bytes_list.value.append(text.encode())
    outputs = signatures["classify"](tf.constant([each.SerializeToString() for each in requests]))
    np.testing.assert_array_equal(outputs["scores"], wanted)
    np.testing.assert_array_equal(outputs["classes"], [[b"no", b"yes"]] * len(TEXTS))


class TestMultiLabel:
    TASK = MultiLabelSettings(("no", "yes", "maybe"), (0.5, 0.1, 0.9), seq_length=16)

    def test_each_order_by_hand(self, tiny, small_tokenizer):
        model = MultiLabelClassifier(AlbertEncoder(tiny), self.TASK).create_weights()
        module = MultiLabelModule(model, small_tokenizer)
        values = tf.constant([[0.6, 0.2, 0.95], [0.4, 0.8, 0.85], [0.5, 0.1, 0.9], [0.7, 0.7, 0.1]])
        answer = module.answer(values)
        assert answer["labels"].numpy().tolist() == [
            [b"maybe", b"no", b"yes"],
            [b"yes", b"", b""],
            [b"", b"", b""],  # not above, but at the thresholds
            [b"no", b"yes", b""],
        ]
        assert answer["chosen"].numpy().sum(axis=1).tolist() == [3, 1, 0, 2]


class TestEmbedding:
    @pytest.mark.slow_parameters("cls")
    @pytest.mark.parametrize("pooling", ["mean", "cls"])
    def test_vectors(self, tiny, small_tokenizer, load, pooling):
        encoder = AlbertEncoder(tiny).create_weights()
        task = EmbeddingSettings(seq_length=tiny.max_positions, pooling=pooling)
        module = load(EmbeddingModule(EmbeddingModel(encoder, task), small_tokenizer))
        vectors = module.signatures["serving_default"](text=tf.constant(TEXTS))["embedding"]
        special = small_tokenizer.special
        for text, vector in zip(TEXTS, vectors, strict=True):
            ids = [
                special.cls,
                *small_tokenizer.encode(text)[: tiny.max_positions - 2],
                special.sep,
            ]
            values = ([ids], [[1] * len(ids)], [[0] * len(ids)])
            inputs = {n: tf.constant(v) for n, v in zip(INPUTS, values, strict=True)}
            outputs = encoder(inputs)
            wanted = (
                outputs["pooled_output"][0]
                if pooling == "cls"
                else tf.reduce_mean(outputs["sequence_output"][0], axis=0)
            )
            np.testing.assert_allclose(vector, wanted / np.linalg.norm(wanted), atol=1e-5)

    def test_prompts(self, tiny, small_tokenizer, load):
        task = EmbeddingSettings(query_prompt="it, ", passage_prompt="the ")
        model = EmbeddingModel(AlbertEncoder(tiny), task).create_weights()
        signatures = load(EmbeddingModule(model, small_tokenizer)).signatures
        plain, query, passage = (
            signatures[name](text=tf.constant(texts))["embedding"]
            for name, texts in (
                ("serving_default", ["it, a list", "the a list"]),
                ("query", ["a list"]),
                ("passage", ["a list"]),
            )
        )
        np.testing.assert_allclose(plain, tf.concat([query, passage], 0), atol=1e-6)


class TestMultipleChoice:
    QUESTIONS = ("who said _ to _ ?", "", "of the value", "_", "a_b", "ends with _", "the object")

    def test_any_number_of_options(self, tiny, small_tokenizer, load):
        """Of 2, 5 and 3 options, with a model of 3: what is behind them does not count."""
        task = MultipleChoiceSettings(seq_length=24, num_choices=3, qa_length=9)
        model = varied(MultipleChoiceModel(AlbertEncoder(tiny), task).create_weights())
        loaded = load(MultipleChoiceModule(model, small_tokenizer), task)
        ask = loaded.signatures["padded"]
        examples = [
            ChoiceExample("who said _ ?", "the value", ("x", "the object")),
            ChoiceExample("of the value", "", ("a", "", "b c", "the value of it", "no")),
            ChoiceExample("why", "the object " * 20, ("one", "two", "three")),
        ]
        wanted, features = predicted(model, examples, small_tokenizer)
        rows = [
            ["x", "the object", "padding " * 30, "", "_"],
            [*examples[1].options],
            ["one", "two", "three", "", "more"],
        ]
        outputs = ask(
            question=tf.constant([each.question for each in examples]),
            context=tf.constant([each.context for each in examples]),
            options=tf.constant(rows),
            num_options=tf.constant([2, 5, 3]),
        )
        for row, answer in enumerate(wanted):
            values = answer["probabilities"] + [0.0] * (5 - len(answer["probabilities"]))
            np.testing.assert_allclose(outputs["probabilities"][row], values, atol=1e-5)
        assert outputs["choice"].numpy().tolist() == [each["choice"] for each in wanted]
        assert outputs["label"].numpy().tolist() == [each["label"].encode() for each in wanted]
        serve = loaded.signatures["serving_default"]
        question, context = tf.constant(["of the value"] * 2), tf.constant(["", ""])
        alone = serve(question=question, context=context, options=tf.constant([rows[1]] * 2))
        np.testing.assert_allclose(alone["probabilities"][1], wanted[1]["probabilities"], atol=1e-5)
        with pytest.raises(tf.errors.InvalidArgumentError, match="from 2 to 702 columns"):
            serve(question=question, context=context, options=tf.constant([["a"]] * 2))
        # Ids of three rows for each question: the first one has only two options.
        own = [examples[0], examples[2]]
        wanted, features = predicted(model, own, small_tokenizer)
        by_ids = loaded.signatures["tokens"](**features.batch(tf.range(2))[0])["probabilities"]
        np.testing.assert_allclose(by_ids[0], [*wanted[0]["probabilities"], 0.0], atol=1e-5)
        np.testing.assert_allclose(by_ids[1], wanted[1]["probabilities"], atol=1e-5)

    @pytest.mark.parametrize("counts", [[0], [3], [1, 2]])
    def test_numbers_of_options_that_do_not_fit(self, tiny, small_tokenizer, counts):
        task = MultipleChoiceSettings(seq_length=24, num_choices=3)
        model = MultipleChoiceModel(AlbertEncoder(tiny), task).create_weights()
        ask = MultipleChoiceModule(model, small_tokenizer).signatures()["padded"]
        with pytest.raises(tf.errors.InvalidArgumentError, match="num_options"):
            ask(*map(tf.constant, (["q"], ["c"], [["a", "b"]], counts)))

    def test_blanks_are_filled_as_in_python(self):
        options = [
            ["x", "y z"],
            ["_", ""],
            ["", "b"],
            ["\\1", "é"],
            ["1", "2"],
            ["3", "4"],
            ["5", ""],
        ]
        fill_in_graph = tf.function(fill_blanks)
        found = fill_in_graph(tf.constant(self.QUESTIONS), tf.constant(options))
        wanted = [fill(q, o) for q, own in zip(self.QUESTIONS, options, strict=True) for o in own]
        assert [text.decode() for text in found.numpy()] == wanted
        most = ["x" * 400, "y" * 622]  # 1022 bytes and two options in each of 1024 blanks
        full = fill_in_graph(tf.constant(["__ " * 1024, "a"]), tf.constant([most, ["b", ""]]))
        assert tf.strings.length(full).numpy().tolist() == [401 * 1024, 623 * 1024, 3, 2]
        with pytest.raises(tf.errors.InvalidArgumentError, match="question.*options.*1048576"):
            fill_in_graph(tf.constant(["_ " * 1025]), tf.constant([most]))

    def test_runs_of_underscores_are_filled_as_in_python(self):
        """In all strings of up to five of these characters; bytes that are not UTF-8 are replaced.

        So b"\xc2" of a question and b"\x9c" of an option do not become a character.
        """
        alphabet = (b"_", b"a", b" ", b"\xe5", b"\0")
        questions = [b"".join(q) for n in range(6) for q in itertools.product(alphabet, repeat=n)]
        questions.append(b"a\xc2_\x9c")
        options = [b"x_", b"\x9c_"]
        found = fill_blanks(tf.constant(questions), tf.constant([options] * len(questions)))
        wanted = [
            fill(*(text.decode(errors="replace") for text in (question, option))).encode()
            for question in questions
            for option in options
        ]
        assert found.numpy().tolist() == wanted
