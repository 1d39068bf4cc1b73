"""`benchmarks.embedding`: our systems agree, a peer beside them, and mistakes."""

import json
import pathlib

import onnx
import pytest
import tokenizers

from albert_tf.runtime.errors import InputError, InputNotFoundError
from benchmarks.embedding import EmbeddingBenchmarkOptions, main


@pytest.fixture
def texts(tmp_path: pathlib.Path) -> str:
    path = tmp_path / "texts.txt"
    path.write_text("The fox jumps.\n\nGreen tea.\nA ship sails on the sea.\n", encoding="utf-8")
    return str(path)


def test_lines(pretrained, texts, tmp_path, capsys):
    main(EmbeddingBenchmarkOptions(texts, pretrained, write_peer(tmp_path / "peer"), rounds=6))
    about, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    assert about["texts"] == 3 and about["mean_pieces"] > 5
    *ours, peer = lines
    assert [line["system"] for line in ours] == ["embedder", "saved-model", "onnx-runtime"]
    for line in ours:
        assert line["differs_from_embedder"] < 1e-5
        low, median, high = line["of_peer"]
        assert low <= median <= high
    assert peer.keys() == {"system", "texts_per_s"}


def write_peer(folder: pathlib.Path) -> str:
    """Write a model whose vectors are [1, 1] times the sum of a text's ids."""
    folder.mkdir()
    helper, kinds = onnx.helper, onnx.TensorProto
    graph = helper.make_graph(
        [
            helper.make_node("Cast", ["input_ids"], ["ids"], to=kinds.FLOAT),
            helper.make_node("ReduceSum", ["ids", "axis"], ["sum"], keepdims=1),
            helper.make_node("Concat", ["sum", "sum"], ["sentence_embedding"], axis=1),
        ],
        "peer",
        [helper.make_tensor_value_info("input_ids", kinds.INT64, ["B", "S"])],
        [helper.make_tensor_value_info("sentence_embedding", kinds.FLOAT, ["B", 2])],
        [helper.make_tensor("axis", kinds.INT64, [1], [1])],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=9), folder / "model.onnx")
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({"?": 0, "tea": 1}, "?"))
    words.save(str(folder / "tokenizer.json"))
    return str(folder)


def test_mistakes(texts, tmp_path):
    with pytest.raises(InputNotFoundError, match="--peer=.* must be or hold an ONNX model"):
        main(EmbeddingBenchmarkOptions(texts, peer=str(tmp_path)))
    (tmp_path / "empty.txt").write_text("\n")
    with pytest.raises(InputError, match="has no text"):
        main(EmbeddingBenchmarkOptions(str(tmp_path / "empty.txt")))
