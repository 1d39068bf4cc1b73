"""Tests that exports answer the same outside of this project: in C++, under TF Hub, under Keras 3.

Through the C API, those of kinds of tasks are in tests/kinds. The processes run isolated (-I): they
see neither this folder nor the environment's paths.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_hub as hub
import tf_keras

from albert_tf.export.saved_model import save
from albert_tf.models.encoder import INPUTS, AlbertEncoder
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.classifier.module import ClassifierModule
from albert_tf.tasks.embedding.model import EmbeddingModel, EmbeddingSettings
from albert_tf.tasks.embedding.module import EmbeddingModule
from albert_tf.tasks.kinds import KINDS
from albert_tf.tasks.pretrained.encoder import load_encoder_module
from albert_tf.tasks.pretrained.preprocessing import PreprocessingModule

ROOT = str(pathlib.Path(__file__).resolve().parents[3])
TEXTS = ["the value", "", "naïve [MASK] 漢字 🙂 1,000", "of the object " * 30]
IDS = {name: [[2, 9, 3]] if name == "input_word_ids" else [[1, 1, 0]] for name in INPUTS}
CLASSIFIER = ClassifierSettings(("no", "yes"), seq_length=32)
FEWER_LAYERS = functools.partial(ClassifierModule, depths=(1, 2), patience=1)
CLASSIFIERS = {"classifier": ClassifierModule, "fewer layers": FEWER_LAYERS}


@pytest.fixture(scope="module")
def tiny(tiny):
    """Exports do not look into the encoder: one layer is enough, but for `fewer layers`."""
    return tiny.replace(num_layers=1)


@pytest.fixture(scope="module")
def export(tiny, exports, pretrained, small_tokenizer, tmp_path_factory):
    """name of an export -> (its folder, inputs of its signature `serving_default`)."""
    folder = tmp_path_factory.mktemp("exports")
    config_path = os.path.join(pretrained, "config.json")

    def export(name: str) -> tuple[str, dict]:
        inputs: dict = {"text": TEXTS}
        if name in CLASSIFIERS:
            tf_keras.utils.set_random_seed(5)
            layers = 3 if name == "fewer layers" else 1
            encoder = AlbertEncoder(tiny.replace(initializer_range=0.3, num_layers=layers))
            model = KINDS["classifier"].model(encoder, CLASSIFIER).create_weights()
            module = CLASSIFIERS[name](model, small_tokenizer)
        elif name in ("encoder", "fill_mask"):
            return str(exports / name / "1"), IDS if name == "encoder" else inputs
        elif name == "embedding":
            model = EmbeddingModel(AlbertEncoder(tiny), EmbeddingSettings(seq_length=40))
            module = EmbeddingModule(model.create_weights(), small_tokenizer)
        else:
            assert name == "preprocessing"
            module = PreprocessingModule(small_tokenizer, 40)
        path = str(folder / name / "1")
        if not os.path.isdir(path):
            save(module, path, small_tokenizer, config_path)
        return path, inputs

    return export


def isolated(*arguments: str) -> str:
    """Standard output of `python -I arguments`."""
    done = subprocess.run(
        [sys.executable, "-I", *arguments], capture_output=True, text=True, cwd="/", timeout=600
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


C_API = os.path.join(ROOT, "examples", "c_api.py")


@pytest.mark.slow_parameters("embedding-serving_default", "preprocessing-serving_default")
@pytest.mark.parametrize(
    ("name", "signature"),
    [(name, "serving_default") for name in ("encoder", "fill_mask", "embedding", "preprocessing")]
    + [
        pytest.param("fewer layers", signature, marks=pytest.mark.slow)
        for signature in ("serving_default", "depth_1", "depth_2", "early_exit", "classify")
    ],
)
def test_the_c_api_gives_the_same_answers(export, name, signature):
    path, inputs = export(name)
    if signature == "classify":
        inputs = {"inputs": [serialized(text) for text in ("the value", "", "of the object")]}
    found = json.loads(isolated(C_API, path, json.dumps(inputs), signature))
    assert_same(found, tf.saved_model.load(path), inputs, signature)


def assert_same(found: dict, loaded: Any, inputs: dict, signature: str = "serving_default") -> None:
    """What the C API has `found` is what the export answers in this process."""
    wanted = loaded.signatures[signature](
        **{key: tf.constant(value) for key, value in inputs.items()}
    )
    assert set(found) == set(wanted)
    for key, value in wanted.items():
        if value.dtype == tf.string:
            decoded = np.char.decode(value.numpy().astype(bytes), "utf-8")
            assert found[key] == decoded.tolist()
        else:
            np.testing.assert_allclose(found[key], value, rtol=1e-5, atol=1e-6)


def serialized(text: str) -> str:
    """A tf.Example; of a short text of ASCII the bytes are ASCII, which JSON can hold."""
    feature = tf.train.Feature(bytes_list=tf.train.BytesList(value=[text.encode()]))
    example = tf.train.Example(features=tf.train.Features(feature={"text": feature}))
    return example.SerializeToString().decode("ascii")


SESSION = """
import json, runpy, sys
_, script, path, *arguments = sys.argv
Session = runpy.run_path(script)["Session"]
def rss():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * 4096 / 1e6
def error(*request):
    try:
        return session.run(*request)
    except (RuntimeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
"""


def test_the_c_api_refuses_what_does_not_fit(export):
    code = """
with Session(path) as session:
    found = [error(*request) for request in json.loads(arguments[0])]
    found.append([len(row) for row in session.run({"text": ["a", "b"]})["probabilities"]])
session.close()
print(json.dumps([*found, error({"text": ["a"]})]))
"""
    ragged = [[["a"], ["b", "c"]], [["a", "b"], ["c"]], [["a"], "b"], ["b", ["a"]]]
    requests = [[{"text": text}] for text in ragged]
    requests += [[{"texts": ["a"]}], [{"text": ["a"], "more": ["b"]}]]
    requests += [[{"text": ["a"]}, "depth_7"], [{"inputs": ["nonsense"]}, "classify"]]
    path, _ = export("classifier")
    found = json.loads(isolated("-c", SESSION + code, C_API, path, json.dumps(requests)))
    *lists, unlike, more, signature, nonsense, answered, closed = found
    assert len(lists) == 4
    assert all(error.startswith("ValueError: Nested lists must have") for error in lists)
    assert unlike == "ValueError: The inputs are ['text'], not ['texts']."
    assert more == "ValueError: The inputs are ['text'], not ['more', 'text']."
    assert signature.startswith("ValueError: The signatures are [")
    assert signature.endswith("'serving_default', 'tokens'], not 'depth_7'.")
    assert nonsense.startswith("RuntimeError: ")  # TensorFlow's own, and the session goes on
    assert answered == [2, 2]
    assert closed == "ValueError: The session is closed."


@pytest.mark.slow
@pytest.mark.parametrize(
    ("inputs", "signature", "error"),
    [
        ('{"txt": ["a"]}', "serving_default", "The inputs are ['text'], not ['txt']."),
        ('{"text": ["a"]}', "depth_7", "The signatures are ["),
        ('{"text": [1]}', "serving_default", "The values must be strings: "),
        ('{"text": ["\\ud800"]}', "serving_default", "'utf-8' codec can't encode"),
        ('{"input_word_ids": ["a"]}', "tokens", "The inputs are ['input_mask', "),
        (json.dumps(dict.fromkeys(INPUTS, ["a"])), "tokens", "The values must be numbers of the f"),
        ('{"inputs": ["nonsense"]}', "classify", "Could not parse example input"),
        ("{", "serving_default", "the inputs must be a JSON object, "),
        ("[]", "serving_default", "the inputs must be a JSON object, "),
    ],
)
def test_the_c_api_refuses_wrong_inputs_in_one_line(export, inputs, signature, error):
    path, _ = export("classifier")
    assert stopped(path, inputs, signature).startswith(error)


def test_the_c_api_names_a_folder_without_a_model(tmp_path):
    for path in (str(tmp_path), str(tmp_path / "none")):
        found = stopped(path, '{"text": ["a"]}')
        assert found == f"no saved_model.pb in {path!r}: it must be the folder OUTPUT/VERSION"


def stopped(*arguments: str) -> str:
    """The line with which the command stops; only TensorFlow's log may come before it."""
    done = subprocess.run(
        [sys.executable, "-I", C_API, *arguments], capture_output=True, text=True, cwd="/"
    )
    *_, line = done.stderr.splitlines()
    assert (done.returncode, done.stdout) == (2, "") and "Traceback" not in done.stderr
    assert line.startswith("c_api.py: error: ")
    return line.removeprefix("c_api.py: error: ")


@pytest.mark.slow
def test_the_c_api_frees_what_it_made(export):
    """Failed requests and closed sessions leak no memory."""
    code = """
def growth(requests, call):
    seen = [(call(), rss())[1] for _ in range(requests)]
    return seen[-1] - seen[requests // 6]
def used():
    with Session(path) as session:
        session.run({"text": ["a"]})
with Session(path) as session:
    grown = [growth(60, lambda: error({"inputs": [b"x" * 10**6]}, "classify"))]
    names, ids = ("input_mask", "input_type_ids", "input_word_ids"), [[1] * 125_000]
    for last in names:
        request = {name: [[1], [1, 2]] if name == last else ids for name in names}
        grown.append(growth(60, lambda: error(request, "tokens")))
print([*grown, growth(10, used)])
"""
    path, _ = export("classifier")
    grown = json.loads(isolated("-c", SESSION + code, C_API, path))
    assert max(grown) < 6, grown  # MB


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_memory_stays_flat_through_five_minutes_of_requests(export):
    """Of batches of 1 to 32 texts of all lengths: the second half may grow by 2 % at most."""
    path, _ = export("classifier")
    code = """
import random, time
session, rng, seen = Session(path), random.Random(0), []
end = time.time() + 300
while time.time() < end:
    texts = ["the value " * rng.randrange(40) for _ in range(rng.randrange(1, 33))]
    assert len(session.run({"text": texts})["label"]) == len(texts)
    seen.append(rss())
half = len(seen) // 2
print(len(seen), max(seen[half // 2 : half]), max(seen[half:]))
"""
    count, before, after = map(float, isolated("-c", SESSION + code, C_API, path).split())
    assert count > 1000
    assert after < 1.02 * before, (count, before, after)


@pytest.mark.slow
def test_keras_3_takes_it_as_a_layer(export):
    path, inputs = export("classifier")
    code = (
        "import json, sys, keras, tensorflow as tf, tensorflow_text\n"
        "layer = keras.layers.TFSMLayer(sys.argv[1], call_endpoint='serving_default')\n"
        "print(keras.__version__[0], json.dumps(\n"
        "    layer(tf.constant(json.loads(sys.argv[2])))['probabilities'].numpy().tolist()))"
    )
    version, _, found = isolated("-c", code, path, json.dumps(inputs["text"])).partition(" ")
    loaded = tf.saved_model.load(path)
    wanted = loaded.signatures["serving_default"](text=tf.constant(inputs["text"]))
    assert version == "3"
    np.testing.assert_allclose(json.loads(found), wanted["probabilities"], rtol=0, atol=1e-6)


@pytest.mark.slow
def test_hub_s_masked_lm(export, pretrained):
    path, inputs = export("encoder")
    loaded = hub.load(path)
    ids = {name: tf.constant(value) for name, value in inputs.items()}
    ids["masked_lm_positions"] = tf.constant([[1, 0]])
    outputs = hub.KerasLayer(loaded.mlm, trainable=True)(ids)
    model = load_encoder_module(pretrained)
    np.testing.assert_allclose(
        outputs["mlm_logits"], model.mlm(ids)["mlm_logits"], rtol=0, atol=1e-5
    )
    np.testing.assert_allclose(
        outputs["pooled_output"], hub.KerasLayer(path)(inputs)["pooled_output"], rtol=0, atol=1e-6
    )
