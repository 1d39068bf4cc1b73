"""`benchmarks.embedding`: our systems agree; the peer's pooling by hand; mistakes."""

import json

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from benchmarks import embedding
from benchmarks.embedding import EmbeddingBenchmarkOptions, main


@pytest.fixture
def texts(tmp_path):
    path = tmp_path / "texts.txt"
    path.write_text("The fox jumps.\n\nGreen tea.\nA ship sails on the sea.\n", encoding="utf-8")
    return str(path)


def test_our_systems_agree(pretrained, texts, monkeypatch, capsys):
    monkeypatch.setattr(embedding, "use_one_core", lambda: None)  # of a process of its own
    main(EmbeddingBenchmarkOptions(texts, pretrained, rounds=1))
    about, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert about["texts"] == 3
    assert [line["system"] for line in lines] == ["embedder", "saved-model", "onnx-runtime"]
    assert all(line["differs_from_embedder"] < 1e-5 for line in lines)


def test_the_peers_mean_is_over_the_pieces_of_each_text(tmp_path):
    onnx = pytest.importorskip("onnx")
    tokenizers = pytest.importorskip("tokenizers")
    # The "hidden state" of the id i is [i, 1].
    helper, kinds = onnx.helper, onnx.TensorProto
    nodes = [
        helper.make_node("Cast", ["input_ids"], ["value"], to=kinds.FLOAT),
        helper.make_node("Unsqueeze", ["value", "last"], ["column"]),
        helper.make_node("Mul", ["column", "zero"], ["nothing"]),
        helper.make_node("Add", ["nothing", "one"], ["ones"]),
        helper.make_node("Concat", ["column", "ones"], ["hidden"], axis=2),
    ]
    constants = {"last": np.array([-1]), "zero": np.float32([0]), "one": np.float32([1])}
    graph = helper.make_graph(
        nodes,
        "peer",
        [helper.make_tensor_value_info("input_ids", kinds.INT64, ["B", "S"])],
        [helper.make_tensor_value_info("hidden", kinds.FLOAT, ["B", "S", 2])],
        [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "model.onnx"
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path
    )
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel({"a": 3, "b": 5, "?": 9}, "?"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.enable_padding(pad_id=9)
    found = embedding.peer(tokenizer, str(tmp_path))(
        ["a b", "a"]
    )  # the second has a piece of padding
    np.testing.assert_allclose(found, [[4, 1] / np.sqrt(17), [3, 1] / np.sqrt(10)], rtol=1e-6)


def test_mistakes(texts, tmp_path):
    with pytest.raises(InputNotFoundError, match=r"--onnx: there is no file .*model.onnx"):
        main(EmbeddingBenchmarkOptions(texts, onnx=str(tmp_path)))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="has no text"):
        main(EmbeddingBenchmarkOptions(str(tmp_path / "empty.txt")))
