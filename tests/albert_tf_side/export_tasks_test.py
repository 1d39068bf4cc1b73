"""Proves that exports of tasks answer as `load_predictor`'s models do, one by one or together."""

import json

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.encoder import INPUTS, AlbertEncoder
from albert_tf.export.classifier import ClassifierModule
from albert_tf.export.embedding import EmbeddingModule
from albert_tf.export.multiple_choice import MultipleChoiceModule, filled
from albert_tf.export.regressor import RegressorModule
from albert_tf.export.signatures import save
from albert_tf.tasks.classifier import ClassifierTask, SequenceClassifier
from albert_tf.tasks.examples import ChoiceExample, TextExample
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.multiple_choice import MultipleChoice, MultipleChoiceTask, fill
from albert_tf.tasks.predictor import predict
from albert_tf.tasks.regressor import RegressorTask, SequenceRegressor

TEXTS = ("the value", "", "of the object " * 30, "one, two", " \t", "a\0b", "naïve “x” 漢字 🙂")
OTHERS = ("a", "x", "", "three of the objects in the sequence of the objects", "b", "c", "d")


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


def predicted(model, examples, tokenizer):
    """The Python face's answers."""
    kind = KINDS[model.task.kind]
    features = kind.featurize(examples, tokenizer, model.task)
    return kind.decode(predict(model, features, 4), features, examples, model.task), features


class TestRegressor:
    @pytest.mark.parametrize("pair", [False, True])
    def test_scores(self, tiny, small_tokenizer, load, pair):
        task = RegressorTask(seq_length=16, pair=pair)
        model = varied(SequenceRegressor(AlbertEncoder(tiny), task).create_weights())
        loaded = load(RegressorModule(model, small_tokenizer), task)
        serve, tokens = loaded.signatures["serving_default"], loaded.signatures["tokens"]
        columns = {"text_a": TEXTS, "text_b": OTHERS} if pair else {"text": TEXTS}
        examples = [TextExample(*row) for row in zip(*columns.values(), strict=True)]
        wanted, features = predicted(model, examples, small_tokenizer)
        wanted = [answer["score"] for answer in wanted]
        together = serve(**{name: tf.constant(texts) for name, texts in columns.items()})["score"]
        np.testing.assert_allclose(together, wanted, atol=1e-5)
        by_ids = tokens(**features.batch(tf.range(len(TEXTS)))[0])["score"]
        np.testing.assert_allclose(by_ids, wanted, atol=1e-5)
        for row in range(len(TEXTS)):
            alone = {name: tf.constant(texts[row : row + 1]) for name, texts in columns.items()}
            np.testing.assert_allclose(serve(**alone)["score"], wanted[row : row + 1], atol=1e-5)

    def test_texts_that_are_no_pairs(self, tiny, small_tokenizer, load):
        task = RegressorTask(seq_length=16, pair=True)
        model = SequenceRegressor(AlbertEncoder(tiny), task).create_weights()
        serve = load(RegressorModule(model, small_tokenizer), task).signatures["serving_default"]
        with pytest.raises(tf.errors.InvalidArgumentError, match="text_a and text_b must have as"):
            serve(text_a=tf.constant(["a", "b"]), text_b=tf.constant(["c"]))


class TestClassify:
    def test_tf_serving_s_classification(self, tiny, small_tokenizer, load):
        task = ClassifierTask(("no", "yes"), seq_length=16)
        model = varied(SequenceClassifier(AlbertEncoder(tiny), task).create_weights())
        signatures = load(ClassifierModule(model, small_tokenizer), task).signatures
        wanted = signatures["serving_default"](text=tf.constant(TEXTS))["probabilities"]
        examples = [
            tf.train.Example(
                features=tf.train.Features(
                    feature={
                        "text": tf.train.Feature(bytes_list=tf.train.BytesList(value=[t.encode()]))
                    }
                )
            ).SerializeToString()
            for t in TEXTS
        ]
        outputs = signatures["classify"](inputs=tf.constant(examples))
        np.testing.assert_array_equal(outputs["scores"], wanted)
        np.testing.assert_array_equal(outputs["classes"], [[b"no", b"yes"]] * len(TEXTS))


class TestEmbedding:
    @pytest.mark.parametrize("pooling", ["mean", "cls"])
    def test_vectors(self, tiny, small_tokenizer, load, pooling):
        encoder = AlbertEncoder(tiny).create_weights()
        module = load(EmbeddingModule(encoder, small_tokenizer, pooling))
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
            np.testing.assert_allclose(vector, wanted, atol=1e-5)


class TestMultipleChoice:
    QUESTIONS = ("who said _ to _ ?", "", "of the value", "_", "a_b", "ends with _", "the object")

    def test_choices(self, tiny, small_tokenizer, load):
        task = MultipleChoiceTask(seq_length=24, num_choices=3, qa_length=9)
        model = varied(MultipleChoice(AlbertEncoder(tiny), task).create_weights())
        loaded = load(MultipleChoiceModule(model, small_tokenizer), task)
        serve = loaded.signatures["serving_default"]
        options = [("x", text, "the value of " * row) for row, text in enumerate(TEXTS)]
        rows = list(zip(self.QUESTIONS, OTHERS, options, strict=True))
        wanted, features = predicted(model, [ChoiceExample(*row) for row in rows], small_tokenizer)

        def ask(rows):
            names = ("question", "context", "options")
            columns = zip(*rows, strict=True) if rows else ([], [], tf.zeros([0, 3], tf.string))
            if not rows:
                columns = (
                    tf.zeros([0], tf.string),
                    tf.zeros([0], tf.string),
                    tf.zeros([0, 3], tf.string),
                )
            return serve(**{n: tf.constant(c) for n, c in zip(names, columns, strict=True)})

        together = ask(rows)
        by_ids = loaded.signatures["tokens"](**features.batch(tf.range(len(rows)))[0])
        for outputs in (together, by_ids):
            np.testing.assert_allclose(
                outputs["probabilities"], [w["probabilities"] for w in wanted], atol=1e-5
            )
            assert outputs["choice"].numpy().tolist() == [w["choice"] for w in wanted]
            assert [b.decode() for b in outputs["label"].numpy()] == [w["label"] for w in wanted]
        for row, answer in zip(rows, wanted, strict=True):
            alone = ask([row])["probabilities"][0]
            np.testing.assert_allclose(alone, answer["probabilities"], atol=1e-5)
        assert ask([])["probabilities"].shape == (0, 3)

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
        found = tf.function(filled)(tf.constant(self.QUESTIONS), tf.constant(options))
        wanted = [fill(q, o) for q, own in zip(self.QUESTIONS, options, strict=True) for o in own]
        assert [text.decode() for text in found.numpy()] == wanted
