"""Tests that the exports answer as the Python models do, on texts of every kind."""

import json
import os
import pathlib
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras

from albert_tf import load_encoder, load_fill_mask, load_pretrainer
from albert_tf.export import __main__ as program
from albert_tf.export.saved_model import save
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.features import pack
from albert_tf.tasks.pretrained.encoder import EncoderModule
from albert_tf.tasks.pretrained.fill_mask import FillMaskModule

WORD = "with"  # one piece of the small vocabulary, in none of the texts
NAMES = ("sequence_output", "pooled_output")


@pytest.fixture(scope="module")
def write(small_tokenizer, tmp_path_factory):
    """(module, config) -> the loaded SavedModel's folder."""

    def write(module, config: dict) -> str:
        folder = tmp_path_factory.mktemp("export")
        (folder / "config.json").write_text(json.dumps(config))
        path = str(folder / "kind" / "1")
        save(module, path, small_tokenizer, str(folder / "config.json"))
        return path

    return write


class TestEncoder:
    @pytest.fixture(scope="class")
    def encoder(self, tiny) -> AlbertEncoder:
        config = tiny.replace(num_layers=2, hidden_dropout=0.3, attention_dropout=0.3)
        return AlbertEncoder(config).create_weights()

    @pytest.fixture(scope="class")
    def path(self, encoder, write) -> str:
        return write(EncoderModule(encoder), {"model": encoder.config.__dict__})

    @pytest.fixture
    def layer(self, path) -> hub.KerasLayer:
        return hub.KerasLayer(path, trainable=True)

    def test_hub_layer_gives_the_encoder_s_outputs(self, encoder, layer, fake_inputs):
        for batch, length, padded in ((2, 9, (0, 4)), (1, 40, ())):
            inputs = fake_inputs(batch, length, padded)
            ours, theirs = encoder(inputs), layer(inputs)
            assert set(theirs) == {*ours, "default"}
            for name in NAMES:
                np.testing.assert_allclose(ours[name], theirs[name], atol=1e-5)
            assert len(theirs["encoder_outputs"]) == encoder.config.num_layers
            for mine, other in zip(ours["encoder_outputs"], theirs["encoder_outputs"], strict=True):
                np.testing.assert_allclose(mine, other, atol=1e-5)
            np.testing.assert_array_equal(theirs["default"], theirs["pooled_output"])

    def test_more_positions_than_the_model_s_are_refused(self, tiny, write, fake_inputs):
        """Also with rotary ones, which have no table that could refuse them."""
        encoder = AlbertEncoder(tiny.replace(positions="rotary")).create_weights()
        loaded = tf.saved_model.load(
            write(EncoderModule(encoder), {"model": encoder.config.__dict__})
        )
        inputs, longest = fake_inputs(1, tiny.max_positions + 1), tiny.max_positions
        for call in (loaded, lambda inputs: loaded.signatures["serving_default"](**inputs)):
            with pytest.raises(tf.errors.InvalidArgumentError, match=f"1 to {longest} positions"):
                call(inputs)

    def test_dropout_follows_training(self, layer, fake_inputs):
        inputs = fake_inputs(2, 9)
        calm = layer(inputs, training=False)["pooled_output"]
        np.testing.assert_array_equal(calm, layer(inputs)["pooled_output"])
        drawn = [layer(inputs, training=True)["pooled_output"].numpy() for _ in range(2)]
        assert np.any(drawn[0] != drawn[1])
        assert np.any(drawn[0] != calm)

    def test_all_weights_are_trainable_and_train(self, encoder, layer, fake_inputs):
        ids = {name: tf_keras.Input([None], dtype=tf.int32, name=name) for name in INPUTS}
        model = tf_keras.Model(ids, tf_keras.layers.Dense(1)(layer(ids)["pooled_output"]))
        assert len(layer.trainable_weights) == len(encoder.trainable_variables)
        assert sum(v.shape.num_elements() for v in layer.weights) == encoder.count_params()
        before = [v.numpy() for v in layer.trainable_weights]
        model.compile("sgd", "mse")
        model.fit(fake_inputs(8, 40), np.ones([8, 1]), verbose=0)
        changed = [np.any(v != old) for v, old in zip(layer.weights, before, strict=True)]
        assert changed.count(False) <= 1  # the key's bias: a softmax does not see it

    def test_the_order_of_weights_is_the_encoder_s(self, encoder, layer):
        for mine, other in zip(encoder.variables, layer.variables, strict=True):
            np.testing.assert_array_equal(mine, other)

    def test_signature(self, encoder, path, fake_inputs):
        serve = tf.saved_model.load(path).signatures["serving_default"]
        inputs = {name: tf.constant(values) for name, values in fake_inputs(3, 9).items()}
        outputs = serve(**inputs)
        assert set(outputs) == set(NAMES)
        assert {values.shape[0] for values in outputs.values()} == {3}
        np.testing.assert_allclose(
            outputs["pooled_output"], encoder(inputs)["pooled_output"], atol=1e-5
        )


def encode_masked(text: str, tokenizer) -> list[int]:
    """As training would have it: a word of one piece is encoded in its place, then masked."""
    (word,) = tokenizer.encode(WORD)
    ids = tokenizer.encode(text.replace("[MASK]", f" {WORD}"))
    assert ids.count(word) == text.count("[MASK]")
    return [tokenizer.special.mask if i == word else i for i in ids]


class TestFillMask:
    TEXTS = (
        "the value of [MASK] object",
        "a [MASK] is a [MASK].",
        "[MASK] begins",
        "and at the end [MASK]",
        "no mask in this one",
        "",
        "un[MASK]able",
        "[MASK]",
        "[MASK][MASK][MASK]",
        "naïve text, 1,000 words: “[MASK]”",
        "the file does not [MASK].",
        "[MASK], [MASK] x ([MASK])? [MASK]\n. the end",
    )

    @pytest.fixture(scope="class")
    def model(self, pretrained) -> AlbertPretrainer:
        return load_pretrainer(pretrained)

    @pytest.fixture(scope="class")
    def path(self, model, small_tokenizer, write) -> str:
        return write(FillMaskModule(model, small_tokenizer), {"model": model.config.__dict__})

    @pytest.fixture(scope="class")
    def serve(self, path):
        loaded = tf.saved_model.load(path)
        signature = loaded.signatures["serving_default"]

        def serve(*texts: str) -> tuple[np.ndarray, np.ndarray]:
            outputs = signature(text=tf.constant(texts, tf.string))
            assert set(outputs) == {"pieces", "probabilities"}
            return np.char.decode(outputs["pieces"].numpy().astype(bytes), "utf-8"), outputs[
                "probabilities"
            ].numpy()

        serve.keep = loaded
        return serve

    @pytest.fixture(scope="class")
    def guess(self, model, small_tokenizer):
        """ids with masks -> the Python model's best pieces and their probabilities."""

        def guess(ids: list[int]) -> tuple[list[list[str]], np.ndarray]:
            features = pack([ids], None, 40, small_tokenizer.special).inputs(tf.range(1), 40)
            positions = np.flatnonzero(np.array(ids) == small_tokenizer.special.mask)[None] + 1
            logits = model(features | {"masked_lm_positions": positions})["mlm_logits"][0]
            best, best_ids = tf.math.top_k(tf.nn.softmax(logits), 5)
            pieces = [[small_tokenizer.id_to_piece(i) for i in row] for row in best_ids.numpy()]
            return pieces, best.numpy()

        return guess

    def test_shapes_and_filling(self, serve):
        pieces, probabilities = serve(*self.TEXTS)
        assert pieces.shape == probabilities.shape == (len(self.TEXTS), 4, 5)
        for row, text in enumerate(self.TEXTS):
            masks = text.count("[MASK]")
            assert (pieces[row, :masks] != "").all()
            assert (pieces[row, masks:] == "").all()
            assert (probabilities[row, :masks] > 0).all()
            assert (probabilities[row, masks:] == 0).all()
        assert (np.diff(probabilities, axis=2) <= 0).all()
        assert (probabilities.sum(axis=2) <= 1 + 1e-6).all()

    @pytest.mark.parametrize("texts", [[], [""], ["", ""], ["nothing hidden"]])
    def test_nothing_to_guess(self, serve, texts):
        pieces, probabilities = serve(*texts)
        assert pieces.shape == probabilities.shape == (len(texts), 0, 5)

    @pytest.mark.parametrize("text", [t for t in TEXTS if "[MASK]" in t])
    def test_guesses_are_the_python_path_s(self, serve, guess, small_tokenizer, text):
        pieces, probabilities = serve(text)
        wanted, best = guess(encode_masked(text, small_tokenizer))
        assert pieces[0].tolist() == wanted
        np.testing.assert_allclose(probabilities[0], best, atol=1e-5)

    def test_neighbours_do_not_matter(self, serve):
        together = serve(*self.TEXTS)[1]
        for row, text in enumerate(self.TEXTS):
            if masks := text.count("[MASK]"):
                np.testing.assert_allclose(serve(text)[1][0], together[row, :masks], atol=1e-5)

    def test_in_python_the_same_pieces_come_as_lists(self, serve, pretrained):
        fill = load_fill_mask(pretrained, top_k=5)
        answers = fill(self.TEXTS)
        assert [len(masks) for masks in answers] == [text.count("[MASK]") for text in self.TEXTS]
        pieces, probabilities = serve(*self.TEXTS)
        assert answers[1][1] == list(zip(pieces[1, 1], probabilities[1, 1], strict=True))
        assert fill([]) == []
        assert fill(text for text in self.TEXTS[:2]) == fill(self.TEXTS[:2])
        for wrong, words in {
            "a [MASK]": r"texts must be a list of strings. Received: 'a \[MASK\]'",
            (None,): "texts must be a list of strings. Received: None",
            ("a <mask>", "b"): r"must have blanks, written as \[MASK\]. Received: 'a <mask>'",
        }.items():
            with pytest.raises(InputError, match=words):
                fill(wrong)

    LONG = "of the value in a list, " * 30
    # Where the window of 38 begins, among the pieces of a text with one mask or more.
    WINDOWS = (
        (LONG + "[MASK]", lambda mask, size: size - 38),
        (LONG + "[MASK] " + LONG, lambda mask, size: mask - 19),
        ("[MASK] " + LONG, lambda mask, size: 0),
        (LONG + "[MASK] and [MASK]. " + LONG + "[MASK]", lambda mask, size: mask - 19),
    )

    @pytest.mark.parametrize(("text", "begin"), WINDOWS)
    def test_of_a_long_text_a_window_is_seen(self, serve, guess, small_tokenizer, text, begin):
        ids = encode_masked(text, small_tokenizer)
        begin = begin(ids.index(small_tokenizer.special.mask), len(ids))
        wanted, best = guess(ids[begin : begin + 38])
        pieces, probabilities = serve("the [MASK]", text)
        assert pieces.shape == probabilities.shape == (2, len(wanted), 5)
        assert pieces[1].tolist() == wanted
        np.testing.assert_allclose(probabilities[1], best, atol=1e-5)

    def test_more_masks_than_the_model_sees(self, serve):
        pieces, _ = serve("[MASK]" * 100_000, "a [MASK]")
        assert pieces.shape == (2, 38, 5)
        assert [(row[:, 0] != "").sum() for row in pieces] == [38, 1]

    def test_in_python_masks_outside_the_window_are_empty_lists(self, pretrained):
        answers = load_fill_mask(pretrained)([f"[MASK] {self.LONG} [MASK]", "a [MASK]"])
        assert [[len(mask) for mask in masks] for masks in answers] == [[5, 0], [5]]

    def test_in_python_it_outlives_tensorflow_s_resources(self, pretrained, tmp_path, monkeypatch):
        monkeypatch.chdir(os.path.dirname(pretrained))
        fill = load_fill_mask(pathlib.Path(os.path.basename(pretrained)), 2)
        texts = ["a [MASK]", b"caf\xe9 [MASK]", "half \ud83d a [MASK]"]
        before = fill(texts)
        assert [len(mask) for ((*mask,),) in before] == [2, 2, 2]
        for free in (tf_keras.backend.clear_session, lambda: tf.random.set_seed(1)):
            free()
            assert fill(texts) == before
        content = pickle.dumps(fill)
        monkeypatch.chdir(tmp_path)
        assert pickle.loads(content)(texts) == before

    def test_rows_of_a_padded_table_are_not_predicted(self, small_tokenizer):
        config = AlbertConfig(
            vocab_size=small_tokenizer.vocab_size + 8,
            embedding_size=4,
            hidden_size=4,
            num_layers=1,
            num_heads=1,
            intermediate_size=4,
            max_positions=16,
        )
        model = AlbertPretrainer(config).create_weights()
        bias = next(w for w in model.weights if w.shape == [config.vocab_size])
        bias.assign(tf.one_hot(config.vocab_size - 1, config.vocab_size) * 100)
        module = FillMaskModule(model, small_tokenizer, 3)
        outputs = module.serve(tf.constant(["a [MASK]"]))
        assert outputs["pieces"].shape == [1, 1, 3]
        assert tf.reduce_max(outputs["probabilities"]) < 0.1

    @pytest.mark.parametrize("top_k", [0, 2.5, 100_000])
    def test_the_number_of_pieces_is_checked(self, pretrained, top_k):
        with pytest.raises(InputError, match=f"top_k must be between 1 and .*Received: {top_k}"):
            load_fill_mask(pretrained, top_k)

    def test_a_request_has_a_limit(self, model, small_tokenizer):
        """The output is [B, M, K], however short the other texts are."""
        module = FillMaskModule(model, small_tokenizer, 280)
        texts = ["[MASK]" * 38, *["[MASK]"] * 399]  # 400 x 38 x 280 > 2**22
        with pytest.raises(tf.errors.InvalidArgumentError, match="must be at most 4194304"):
            module.serve(tf.constant(texts))

    def test_in_python_there_is_no_limit(self, pretrained):
        fill = load_fill_mask(pretrained, 280)
        counts = [38, *(1 + number % 3 for number in range(399))]  # 400 x 38 x 280 > 2**22
        texts = ["[MASK]" * count for count in counts]
        answers = fill(texts)
        assert [len(masks) for masks in answers] == counts
        for number in (0, 1, 399):
            (alone,) = fill([texts[number]])
            for mask, wanted in zip(answers[number], alone, strict=True):
                np.testing.assert_allclose([p for _, p in mask], [p for _, p in wanted], atol=1e-5)

    def test_no_text_pays_for_the_masks_of_others(self, model, small_tokenizer):
        module, computed = FillMaskModule(model, small_tokenizer), []

        def predict(features):
            computed.append(tuple(features["masked_lm_positions"].shape))
            return model(features)

        module._predict = predict
        tf.config.run_functions_eagerly(True)
        try:
            module.serve(tf.constant(["[MASK]" * 38, *["a [MASK]"] * 5, "none"]))
        finally:
            tf.config.run_functions_eagerly(False)
        assert computed == [(6, 1), (1, 38)]

    @pytest.mark.slow  # it imports TensorFlow once more
    def test_another_process_needs_no_code_of_ours(self, path, tmp_path):
        code = (
            "import sys, tensorflow as tf, tensorflow_text\n"
            "serve = tf.saved_model.load(sys.argv[1]).signatures['serving_default']\n"
            "print(serve(text=tf.constant(['a [MASK]']))['pieces'].shape)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", code, path],
            capture_output=True,
            text=True,
            check=True,
            cwd=tmp_path,
            env={},
        )
        assert done.stdout == "(1, 1, 5)\n"


class TestProgram:
    def export(self, run_dir: str, output: str, **options) -> None:
        program.main(program.ExportOptions(run_dir=run_dir, output=output, **options))

    def test_a_pretraining_run_gives_its_encoder(self, pretrained, exports, tmp_path, fake_inputs):
        output = str(tmp_path / "encoder")
        self.export(pretrained, output, dry_run=True)
        assert os.listdir(tmp_path) == []
        shutil.copytree(exports / "encoder", output)
        assert sorted(os.listdir(output)) == ["1", "serving"]
        extras = os.path.join(output, "1", "assets.extra")
        assert sorted(os.listdir(extras)) == [
            "config.json",
            "tf_serving_warmup_requests",
            "tokenizer",
        ]
        again = load_encoder(os.path.join(output, "1"))
        inputs = fake_inputs(2, 9)
        np.testing.assert_array_equal(
            again(inputs)["pooled_output"], load_encoder(pretrained)(inputs)["pooled_output"]
        )
        with pytest.raises(InputError, match=r"--output.*encoder.*--version=2"):
            self.export(pretrained, output, kind="preprocessing")
        self.export(pretrained, output, kind="preprocessing", version=2)
        assert sorted(os.listdir(output)) == ["1", "2", "serving"]
        os.mkdir(os.path.join(output, "3"))
        with open(os.path.join(output, "3", "model.onnx"), "wb"):
            pass
        with pytest.raises(InputError, match=r"--output.*encoder.*--version=4"):
            self.export(pretrained, output, format="onnx", version=3)

    @pytest.mark.parametrize(
        ("options", "words"),
        [
            ({"kind": "fill-mask"}, "--kind must be one of encoder.*'fill-mask'"),
            ({"version": 0}, "--version must be positive. Received: 0"),
            ({"kind": "classifier"}, "--kind must be one of.*'pretraining'.*'classifier'"),
            ({"kind": "embedding", "pooling": "max"}, "--pooling must be one of mean, cls.*'max'"),
            ({"kind": "no", "depths": "1"}, "--kind must be one of encoder, .*Received: 'no'"),
            ({"depths": "1"}, "--depths is only for --kind=.*classifier.*--kind=encoder"),
            (
                {"kind": "embedding", "patience": 1},
                "--patience is only for --kind=classifier.*embedding",
            ),
            (
                {"quantization": "int8"},
                "--quantization=int8 is only for --format=litert, onnx. .*saved_model",
            ),
            (
                {"kind": "fill_mask", "format": "litert"},
                "--format=litert is only for --kind=encoder, .*Received: --kind=fill_mask",
            ),
            ({"precision": "float16"}, "--precision must be.*'float16'"),
        ],
    )
    def test_mistakes_leave_nothing(self, pretrained, tmp_path, options, words):
        with pytest.raises(InputError, match=words):
            self.export(pretrained, str(tmp_path / "out"), **options)
        assert os.listdir(tmp_path) == []

    @pytest.mark.slow
    def test_a_litert_model(self, pretrained, tmp_path):
        self.export(pretrained, str(tmp_path / "out"), format="litert", quantization="int8")
        found = sorted(os.listdir(tmp_path / "out" / "1"))
        assert found == ["config.json", "model.tflite", "tokenizer"]
        assert b"while" in (tmp_path / "out" / "1" / "model.tflite").read_bytes()

    @pytest.mark.slow
    def test_an_unfinished_run_must_be_named(self, pretrained, tmp_path):
        run = str(tmp_path / "run")
        shutil.copytree(pretrained, run)
        os.remove(RunDir(run).result_path)
        with pytest.raises(InputError, match="has not ended.*--unfinished"):
            self.export(run, str(tmp_path / "out"))
        self.export(run, str(tmp_path / "out"), unfinished=True)
        assert (tmp_path / "out" / "1" / "saved_model.pb").is_file()

    def test_no_run(self, tmp_path):
        with pytest.raises(InputError, match=r"no config\.json"):
            self.export(str(tmp_path), str(tmp_path / "out"))

    def test_an_unknown_task_asks_for_the_kind(self, pretrained, tmp_path):
        config = RunDir(pretrained).config()
        for task in ({}, {"task": {"kind": "poetry"}}):
            run = tmp_path / f"run{len(task)}"
            run.mkdir()
            (run / "config.json").write_text(json.dumps({"model": config["model"]} | task))
            with pytest.raises(InputError, match="--kind"):
                self.export(str(run), str(tmp_path / "out"))
