"""`load_embedder` of runs, exports and encoders: one vector for a text, under every name."""

import copy
import importlib.util
import os
import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

import albert_tf
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, head_shapes
from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.embedding.model import EmbeddingSettings
from albert_tf.tasks.predictor import load_predictor

TEXTS = ["the value of an object " * 3, "it", "", "a list, or none"]


@pytest.fixture(scope="module")
def run(tiny, small_tokenizer, tmp_path_factory) -> str:
    tf_keras.utils.set_random_seed(2)
    task = EmbeddingSettings(seq_length=32, projection=6, query_prompt="it ", passage_prompt="a ")
    rng, folder = np.random.default_rng(0), str(tmp_path_factory.mktemp("run"))
    shapes = head_shapes(tiny, task)
    head = {name: rng.normal(size=shape).astype("f") for name, shape in shapes.items()}
    native.write(Bundle(tiny.replace(num_layers=1), head, small_tokenizer, task), folder)
    return folder


@pytest.fixture(scope="module")
def embedder(run: str):
    return albert_tf.load_embedder(run)


def test_vectors_in_batches_are_those_of_the_predictor(run, embedder):
    wanted = np.array([each["embedding"] for each in load_predictor(run)(TEXTS)])
    for batch_size in (1, 3, 32):
        found = embedder(iter(TEXTS), batch_size)
        assert found.dtype == np.float32 and found.shape == (4, 6)
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    assert embedder([]).shape == (0, 6) and embedder.dimension == 6 and not embedder.is_untrained


def test_texts_and_pairs_take_turns(run, embedder):
    predictor, (first, *_) = load_predictor(run), embedder(TEXTS)
    query, passage = embedder.embed_query(TEXTS[0]), embedder.embed_documents(TEXTS[1:2])[0]
    for _ in range(2):
        (text,) = predictor(TEXTS[:1])
        np.testing.assert_allclose(text["embedding"], first, atol=1e-5)
        (pair,) = predictor([albert_tf.TextExample(*TEXTS[:2])])
        assert pair["score"] == pytest.approx(np.dot(query, passage), abs=1e-5)


def test_many_long_texts_are_computed_in_parts(embedder):
    many = [f"{number} {8 * TEXTS[0]}" for number in range(8192 // 32 + 10)]  # all of 32 pieces
    found = embedder(many, batch_size=len(many))
    np.testing.assert_allclose(found, embedder(many, batch_size=7), atol=1e-6)


def test_every_name_gives_the_same_vectors(embedder):
    plain, prompted = embedder(TEXTS), embedder(TEXTS, prompt="it ")
    np.testing.assert_array_equal(prompted, embedder([f"it {text}" for text in TEXTS]))
    assert np.abs(prompted - plain).max() > 1e-3
    np.testing.assert_array_equal(embedder.encode(TEXTS, show_progress_bar=False), plain)
    np.testing.assert_allclose(embedder.encode(TEXTS[0]), plain[0], atol=1e-6)
    as_callers = {"convert_to_numpy": True, "batch_size": 32, "show_progress_bar": False}
    for normalize in (True, False):
        found = embedder.encode(TEXTS, **as_callers, normalize_embeddings=normalize)
        np.testing.assert_array_equal(found, plain)
    with pytest.raises(InputError, match="`convert_to_numpy` must be True"):
        embedder.encode(TEXTS, convert_to_numpy=False)
    theirs = {"precision": "float32", "device": None, "convert_to_tensor": False}
    found = embedder.encode(TEXTS, **theirs, prompt_name="query")
    np.testing.assert_array_equal(found, prompted)
    with pytest.raises(InputError, match=r"`precision` must be 'float32'.*Received: 'int8'"):
        embedder.encode(TEXTS, precision="int8")
    with pytest.raises(InputError, match="`prompt_name` must be query or document. .*'retrieval'"):
        embedder.encode(TEXTS, prompt_name="retrieval")
    np.testing.assert_array_equal(embedder.encode_query(TEXTS), prompted)
    passages = embedder(TEXTS, prompt="a ")
    np.testing.assert_array_equal(embedder.encode_document(TEXTS), passages)
    assert embedder.embed_documents(TEXTS) == passages.tolist()
    np.testing.assert_allclose(embedder.embed_query(TEXTS[1]), prompted[1], atol=1e-6)
    for method in (embedder.embed_documents, embedder.embed_query):
        with pytest.raises(InputError, match="takes a list of strings"):
            method("it" if method == embedder.embed_documents else ["it"])


def test_none_is_the_default_of_a_prompt(embedder):
    plain, query, document = (embedder(TEXTS, prompt=prompt) for prompt in ("", "it ", "a "))
    for options, wanted in (
        ({"prompt": None}, (plain, query, document)),
        ({"prompt_name": None}, (plain, query, document)),
        ({"prompt_name": "query", "prompt": None}, (query, query, query)),
        ({"prompt_name": "document"}, (document, document, document)),
        ({"prompt_name": "document", "prompt": "it "}, (query, query, query)),
        ({"prompt_name": "document", "prompt": ""}, (plain, plain, plain)),
    ):
        methods = (embedder.encode, embedder.encode_query, embedder.encode_document)
        for method, vectors in zip(methods, wanted, strict=True):
            np.testing.assert_array_equal(method(TEXTS, **options), vectors, str(options))


def test_another_process_loads_it_again(run, embedder, tmp_path, monkeypatch):
    """Also in another folder, if the path was relative."""
    monkeypatch.chdir(os.path.dirname(run))
    content = pickle.dumps(albert_tf.load_embedder(os.path.basename(run)))
    monkeypatch.chdir(tmp_path)
    loaded = pickle.loads(content)
    np.testing.assert_array_equal(loaded(TEXTS), embedder(TEXTS))


def test_a_copy_is_the_same_object(embedder):
    assert copy.copy(embedder) is embedder and copy.deepcopy(embedder) is embedder


def test_a_pickle_needs_the_same_weights(tiny, run, small_tokenizer, tmp_path):
    path, new = str(tmp_path / "run"), str(tmp_path / "new")
    loaded = albert_tf.load_embedder(shutil.copytree(run, path))
    content = pickle.dumps(loaded)
    task = loaded.task
    head = {name: np.ones(shape, "f") for name, shape in head_shapes(tiny, task).items()}
    native.write(Bundle(tiny.replace(num_layers=1), head, small_tokenizer, task), new)
    shutil.rmtree(path)
    os.rename(new, path)
    with pytest.raises(InputError, match=f"{path}' must hold the weights.*Load the model again"):
        pickle.loads(content)


def test_an_export_is_loaded_with_its_prompts(run, embedder, tmp_path):
    export(ExportOptions(run, str(tmp_path / "out")))
    exported = albert_tf.load_embedder(str(tmp_path / "out" / "1"))
    assert exported.dimension == 6 and not exported.is_untrained
    tf.random.set_seed(1)  # frees the resources of TensorFlow's operators
    texts = [*TEXTS, "half \ud83d a pair"]
    for method in ("encode", "encode_query", "encode_document"):
        found, wanted = (getattr(each, method)(texts) for each in (exported, embedder))
        np.testing.assert_allclose(found, wanted, atol=1e-5)
    with pytest.raises(InputError, match="--pooling must be that of the run, mean, .*: cls"):
        export(ExportOptions(run, str(tmp_path / "cls"), pooling="cls"))


def test_an_encoder_is_said_to_be_untrained(pretrained, exports, capsys):
    embedder = albert_tf.load_embedder(pretrained)
    assert "was not trained for embeddings" in capsys.readouterr().err
    assert embedder.is_untrained
    of_export = albert_tf.load_embedder(str(exports / "encoder" / "1"))
    np.testing.assert_allclose(of_export(TEXTS), embedder(TEXTS), atol=1e-5)
    capsys.readouterr()
    exported = albert_tf.load_embedder(str(exports / "embedding" / "1"))
    assert exported.is_untrained and "was not trained" in capsys.readouterr().err
    assert exported.task.seq_length == embedder.task.seq_length


@pytest.mark.parametrize("file", ["saved_model.pb", "variables/variables.index"])
@pytest.mark.parametrize("size", [0, 50])
def test_a_damaged_export_is_named(exports, tmp_path, file, size):
    path = shutil.copytree(exports / "embedding" / "1", tmp_path / "1")
    with open(path / file, "r+b") as damaged:
        damaged.truncate(size)
    with pytest.raises(InputError, match="must be an intact SavedModel: .* Copy or export"):
        albert_tf.load_embedder(str(path))


def test_progress(embedder, capsys, monkeypatch):
    monkeypatch.setattr("albert_tf.training.progress.LINE_EVERY_S", 0.0)
    embedder(TEXTS)
    assert not capsys.readouterr().err
    embedder(TEXTS, batch_size=2, show_progress_bar=True)
    assert capsys.readouterr().err.startswith("2/4 texts")


@pytest.mark.parametrize(
    ("texts", "batch_size", "message"),
    [
        ("one text", 1, "takes a list of strings"),
        ([3], 1, "3 as number 0"),
        (["a"], 0, "positive"),
        (["a"], 2.5, "positive integer. Received: 2.5"),
    ],
)
def test_invalid_texts_and_batch_sizes_are_refused(embedder, texts, batch_size, message):
    with pytest.raises(InputError, match=message):
        embedder(texts, batch_size)


def test_another_export_is_refused(exports):
    with pytest.raises(InputError, match="--kind=encoder"):
        albert_tf.load_embedder(str(exports / "fill_mask" / "1"))


START = """
import contextlib, sys
with contextlib.suppress(ImportError):
    import triton  # as docs/python.md says
import albert_tf
embedder = albert_tf.load_embedder(sys.argv[1])
texts = ["the value of an object", "a list, or none"] * 10
"""
LIBRARIES = {
    "txtai": """
import txtai
index = txtai.Embeddings(transform=lambda texts: embedder(texts))
index.index(texts[:2])
((row, score),) = index.search("a list, or none", 1)
print(row, round(score, 4))
""",
    "bertopic": """
import bertopic
from sklearn.cluster import KMeans
from sklearn.decomposition import PCA
model = bertopic.BERTopic(umap_model=PCA(2), hdbscan_model=KMeans(2, random_state=0))
topics, _ = model.fit_transform(texts, embeddings=embedder(texts))
print(len({*topics[::2]}), len({*topics}))
""",
}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "printed"), [("txtai", "1 1.0"), ("bertopic", "1 2")])
def test_other_libraries_take_it(run, name, printed):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is absent")
    done = subprocess.run(
        [sys.executable, "-c", START + LIBRARIES[name], run],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-1:] == [printed], done.stderr[-3000:]
