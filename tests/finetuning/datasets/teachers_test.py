"""Teachers: SavedModels and ONNX models of others, whose vectors are computed by hand."""

import dataclasses
import json
import pathlib
import sys
import types

import numpy as np
import onnx
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.runtime.errors import InputError, InputNotFoundError
from finetuning.datasets.embeddings.teachers import load_search_teacher, load_teacher

TEXTS = ["aaa", "a", "", "aa", "aaaa"]


class Lengths(tf.Module):
    """The vector of a text is (its length, 1)."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def vectors(self, text):
        size = tf.cast(tf.strings.length(text), tf.float32)
        return {"anything": tf.stack([size, tf.ones_like(size)], 1)}

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def of_ids(self, ids):
        return {"sum": tf.cast(ids, tf.float32)}

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def one(self, text):
        return {"first": tf.ones([1, 2])}


def saved(folder: pathlib.Path, **signatures: str) -> str:
    module = Lengths()
    tf.saved_model.save(module, str(folder), {k: getattr(module, v) for k, v in signatures.items()})
    return str(folder)


def test_queries_and_passages_have_their_prompts(pretrained, tmp_path, monkeypatch):
    embedder = albert_tf.load_embedder(pretrained)
    prompts = {"query_prompt": "pear ", "passage_prompt": "saw "}
    embedder.task = dataclasses.replace(embedder.task, **prompts)
    monkeypatch.setattr(albert_tf, "load_embedder", lambda path: embedder)
    teacher = load_search_teacher(pretrained, 2)
    for found, text in ((teacher.queries, "pear plum"), (teacher.passages, "saw plum")):
        np.testing.assert_allclose(found(["plum"]), embedder([text]), atol=1e-6)
    assert abs(teacher.queries(["plum"]) - teacher.passages(["plum"])).max() > 1e-3
    other = load_search_teacher(saved(tmp_path / "model", serving_default="vectors"), 2)
    assert other.queries(["aa"]).tolist() == other.passages(["aa"]).tolist() == [[2, 1]]


class TestSavedModels:
    @pytest.mark.parametrize(
        "signatures",
        [
            {"serving_default": "vectors", "other": "one"},
            {"encode": "vectors", "serving_default": "of_ids"},
        ],
    )
    def test_vectors_in_the_order_of_the_texts(self, tmp_path, signatures):
        path = saved(tmp_path / "model", **signatures)
        found = load_teacher(path, 2)(TEXTS)
        assert found.dtype == np.float32
        assert found.tolist() == [[len(text), 1] for text in TEXTS]
        found = load_teacher(path, 2, "say ")(TEXTS)
        assert found[:, 0].tolist() == [len(text) + 4 for text in TEXTS]

    @pytest.mark.parametrize(
        ("signatures", "message"),
        [
            ({"one": "vectors", "two": "vectors"}, "only one other.* Received: one, two. Save"),
            ({"serving_default": "of_ids"}, "Received: serving_default, with other inputs"),
        ],
    )
    def test_signatures_that_do_not_fit(self, tmp_path, signatures, message):
        with pytest.raises(InputError, match=f"must have the signature serving_default.*{message}"):
            load_teacher(saved(tmp_path / "model", **signatures), 2)

    def test_a_vector_for_each_batch(self, tmp_path):
        teacher = load_teacher(saved(tmp_path / "model", serving_default="one"), 2)
        with pytest.raises(
            InputError, match=r"a vector of floats for each text. .* \[1, 2\] for 2"
        ):
            teacher(TEXTS)

    def test_a_damaged_file(self, tmp_path):
        path = saved(tmp_path / "model", serving_default="vectors")
        (tmp_path / "model" / "saved_model.pb").write_bytes(b"\xff")
        with pytest.raises(InputError, match="must be an intact SavedModel"):
            load_teacher(path, 2)


WORDS = ["[PAD]", "[CLS]", "the", "sea", "rose"]
TOKENIZER = {
    "version": "1.0",
    "truncation": None,
    "padding": {
        "strategy": {"Fixed": 9},
        "direction": "Right",
        "pad_to_multiple_of": None,
        "pad_id": 4,
        "pad_type_id": 0,
        "pad_token": "rose",
    },
    "added_tokens": [],
    "normalizer": {"type": "Lowercase"},
    "pre_tokenizer": {"type": "WhitespaceSplit"},
    "post_processor": {
        "type": "TemplateProcessing",
        "single": [
            {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
            {"Sequence": {"id": "A", "type_id": 0}},
        ],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}},
    },
    "decoder": None,
    "model": {
        "type": "WordLevel",
        "vocab": {word: i for i, word in enumerate(WORDS)},
        "unk_token": "[PAD]",
    },
}
MODULES = ["Transformer", "Pooling", "Normalize"]


class Tokenizer:
    """What is used of `tokenizers.Tokenizer`, for the file above."""

    def __init__(self) -> None:
        self.padding, self.longest = TOKENIZER["padding"], None

    @classmethod
    def from_file(cls, path: str) -> "Tokenizer":
        if json.loads(pathlib.Path(path).read_text()) != TOKENIZER:
            raise Exception("no tokenizer")
        return cls()

    def no_padding(self) -> None:
        self.padding = None

    def enable_truncation(self, length: int) -> None:
        self.longest = length

    def encode_batch(self, texts: list[str]) -> list[types.SimpleNamespace]:
        assert self.padding is None
        rows = [[1, *map(WORDS.index, text.lower().split())][: self.longest] for text in texts]
        return [types.SimpleNamespace(ids=row, type_ids=[0] * len(row)) for row in rows]


@pytest.fixture(params=["stand-in", "tokenizers"])
def library(request, monkeypatch) -> None:
    """The package `tokenizers`, and what stands for it where it is not installed."""
    if request.param == "tokenizers":
        pytest.importorskip("tokenizers")
    else:
        module = types.ModuleType("tokenizers")
        module.Tokenizer = Tokenizer  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "tokenizers", module)


def write_model(path: pathlib.Path, output: str, *more: str, dtype: int = 7) -> None:
    """Writes a graph that returns (id, mask) of each piece, float [B, S, 2], and perhaps more.

    `sentence_embedding` is (7, 7) for each text; another name is an input that nobody can give.
    """
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    inputs = ["input_ids", "attention_mask", *(each for each in more if each == "pixels")]
    nodes = [
        helper.make_node("Cast", [name], [f"{name}_float"], to=floats) for name in inputs[:2]
    ] + [
        helper.make_node("Unsqueeze", [f"{name}_float", "two"], [f"{name}_column"])
        for name in inputs[:2]
    ]
    nodes.append(
        helper.make_node("Concat", [f"{name}_column" for name in inputs[:2]], [output], axis=2)
    )
    outputs = [helper.make_tensor_value_info(output, floats, ["B", "S", 2])]
    if "sentence_embedding" in more:
        nodes.append(helper.make_node("ReduceMean", [output, "one"], ["mean"], keepdims=0))
        nodes.append(helper.make_node("Sub", ["mean", "mean"], ["zero"]))
        nodes.append(helper.make_node("Add", ["zero", "seven"], ["sentence_embedding"]))
        outputs.append(helper.make_tensor_value_info("sentence_embedding", floats, ["B", 2]))
    graph = helper.make_graph(
        nodes,
        "graph",
        [helper.make_tensor_value_info(name, dtype, ["B", "S"]) for name in inputs],
        outputs,
        [
            onnx.numpy_helper.from_array(np.array([1]), "one"),
            onnx.numpy_helper.from_array(np.array([2]), "two"),
            onnx.numpy_helper.from_array(np.float32(7), "seven"),
        ],
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    opset = [helper.make_opsetid("", 18)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), path)


def write(path: pathlib.Path, value: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(value))


@pytest.fixture
def folder(tmp_path, library) -> pathlib.Path:
    write_model(tmp_path / "onnx" / "model.onnx", "last_hidden_state")
    write(tmp_path / "tokenizer.json", TOKENIZER)
    write(tmp_path / "sentence_bert_config.json", {"max_seq_length": 3})
    write(tmp_path / "1_Pooling" / "config.json", {"pooling_mode_mean_tokens": True})
    write_modules(tmp_path, MODULES)
    return tmp_path


def write_modules(folder: pathlib.Path, names: list[str]) -> None:
    paths = {"Pooling": "1_Pooling", "Normalize": "2_Normalize"}
    modules = [
        {"idx": i, "path": paths.get(name, ""), "type": f"sentence_transformers.models.{name}"}
        for i, name in enumerate(names)
    ]
    write(folder / "modules.json", modules)


LINES = ["The sea rose", "sea", ""]


class TestOnnx:
    """The ids of LINES are 1 2 3 (and 4, which is truncated), 1 3, and 1, padded with 4."""

    def test_a_folder_of_sentence_transformers(self, folder):
        found = load_teacher(str(folder), 2)(LINES)
        wanted = np.array([[2, 1], [2, 1], [1, 1]]) / np.sqrt([[5], [5], [2]])
        np.testing.assert_allclose(found, wanted, rtol=1e-6)

    @pytest.mark.parametrize(
        ("pooling", "first"),
        [
            ({"pooling_mode": "mean"}, [2, 2, 1]),
            ({"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": False}, [1, 1, 1]),
            ({"pooling_mode": "cls"}, [1, 1, 1]),
        ],
    )
    def test_poolings_without_normalization(self, folder, pooling, first):
        write(folder / "1_Pooling" / "config.json", pooling)
        write_modules(folder, MODULES[:2])
        found = load_teacher(str(folder / "onnx" / "model.onnx"), 9)(LINES)
        assert found.tolist() == [[each, 1] for each in first]

    @pytest.mark.parametrize(
        ("lengths", "first"), [({"model_max_length": 3}, 2), ({"model_max_length": 1e30}, 2.5)]
    )
    def test_the_length_of_the_tokenizer_and_the_model(self, folder, lengths, first):
        (folder / "sentence_bert_config.json").unlink()
        write(folder / "tokenizer_config.json", lengths)
        write(folder / "config.json", {"max_position_embeddings": 4})
        write_modules(folder, MODULES[:2])
        assert load_teacher(str(folder), 2)(LINES)[0].tolist() == [first, 1]

    def test_a_graph_that_pools(self, folder):
        (folder / "modules.json").unlink()
        write_model(folder / "model.onnx", "token_embeddings", "sentence_embedding", dtype=6)
        assert load_teacher(str(folder), 2)(LINES).tolist() == [[7, 7]] * 3

    @pytest.mark.parametrize(
        ("file", "content", "message"),
        [
            ("modules.json", [{"type": "x.Transformer"}], "must list Transformer, Pooling and"),
            ("modules.json", {"a": 1}, "must list Transformer, Pooling and"),
            (
                "modules.json",
                [{"type": f"x.{name}", "path": ""} for name in (*MODULES[:2], "Dense")],
                "Received: .*'Dense'.*Remove the ONNX file",
            ),
            ("1_Pooling/config.json", {"pooling_mode_max_tokens": True}, "pool by cls or mean"),
            ("1_Pooling/config.json", {"pooling_mode": ["cls", "mean"]}, "pool by cls or mean"),
            ("sentence_bert_config.json", {"max_seq_length": "9"}, "`max_seq_length` must be a"),
            ("tokenizer.json", {}, "must be a tokenizer of the package tokenizers"),
        ],
    )
    def test_files_that_do_not_fit(self, folder, file, content, message):
        write(folder / file, content)
        with pytest.raises(InputError, match=message):
            load_teacher(str(folder), 2)

    @pytest.mark.parametrize("file", ["tokenizer.json", "1_Pooling/config.json"])
    def test_missing_files(self, folder, file):
        (folder / file).unlink()
        with pytest.raises(InputNotFoundError, match=file):
            load_teacher(str(folder), 2)

    def test_graphs_that_do_not_fit(self, folder):
        (folder / "modules.json").unlink()
        with pytest.raises(InputError, match="a vector for each piece, so modules.json and"):
            load_teacher(str(folder), 2)(LINES)
        write_model(folder / "onnx" / "model.onnx", "last_hidden_state", "pixels")
        with pytest.raises(InputError, match="Received: input_ids, attention_mask, pixels"):
            load_teacher(str(folder), 2)(LINES)
        (folder / "onnx" / "model.onnx").write_bytes(b"torn")
        with pytest.raises(InputError, match="must be a model that ONNX Runtime can run"):
            load_teacher(str(folder), 2)


@pytest.mark.parametrize(
    "modules",
    [[{"type": "sentence_transformers.models.Transformer"}, {"type": "code.Pooling"}], [{}], "a"],
)
def test_a_folder_of_sentence_transformers_runs_no_code_of_its_own(tmp_path, modules):
    (tmp_path / "code.py").write_text(f"open({str(tmp_path / 'was_run')!r}, 'w')")
    write(tmp_path / "modules.json", modules)
    with pytest.raises(InputError, match="each `type` in modules.json must begin with 'sentence_"):
        load_teacher(str(tmp_path), 2)
    assert not (tmp_path / "was_run").exists()


def test_a_package_that_is_missing(tmp_path, monkeypatch):
    write_model(tmp_path / "model.onnx", "last_hidden_state")
    write(tmp_path / "tokenizer.json", TOKENIZER)
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(InputError, match="package tokenizers. Run pip install .*teacher"):
        load_teacher(str(tmp_path), 2)
