"""A folder of a BertModel: its hidden states, its pieces, and what is refused."""

import json
import math
import pathlib

import numpy as np
import pytest
import safetensors.numpy

from albert_tf.models.encoder import load_encoder
from albert_tf.runtime.errors import InputError
from albert_tf.text.tokenizer import load_tokenizer
from benchmarks.bert_weights import BertWeightsOptions, main

PIECES = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "ab", "##c", '"', "`")
H, HEADS, INNER, LAYERS = 8, 2, 12, 2
CONFIG = {
    **{"model_type": "bert", "hidden_act": "gelu", "hidden_size": H, "vocab_size": len(PIECES)},
    **{"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "intermediate_size": INNER},
    **{"max_position_embeddings": 6, "type_vocab_size": 2, "layer_norm_eps": 1e-5},
}
NORMALIZER = {
    **{"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True},
    **{"strip_accents": None, "lowercase": True},
}


def tensors_of_bert() -> dict[str, np.ndarray]:
    shapes = {"embeddings.word_embeddings.weight": (len(PIECES), H)}
    shapes["embeddings.position_embeddings.weight"] = (6, H)
    shapes["embeddings.token_type_embeddings.weight"] = (2, H)
    norms, dense = ["embeddings.LayerNorm"], {"pooler.dense": (H, H)}
    for i in range(LAYERS):
        layer = f"encoder.layer.{i}"
        dense |= {f"{layer}.attention.self.{x}": (H, H) for x in ("query", "key", "value")}
        dense |= {f"{layer}.attention.output.dense": (H, H)}
        dense |= {f"{layer}.intermediate.dense": (INNER, H), f"{layer}.output.dense": (H, INNER)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in dense.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (H,), f"{name}.bias": (H,)}
    rng = np.random.default_rng(1)
    tensors = {name: rng.normal(0, 0.5, shape) for name, shape in shapes.items()}
    tensors = {name: value.astype(np.float32) for name, value in tensors.items()}
    return tensors | {"embeddings.position_ids": np.arange(6)[None]}


def hidden_states(tensors: dict, ids: list[int], types: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """The last layer and the pooled output of one text, with the erf form of GELU."""

    def dense(name: str, x: np.ndarray) -> np.ndarray:
        return x @ tensors[f"{name}.weight"].T + tensors[f"{name}.bias"]

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + 1e-5)
        return scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"]

    def heads(x: np.ndarray) -> np.ndarray:
        return x.reshape(len(ids), HEADS, H // HEADS).swapaxes(0, 1)

    words, positions, kinds = (
        tensors[f"embeddings.{name}_embeddings.weight"]
        for name in ("word", "position", "token_type")
    )
    x = norm("embeddings.LayerNorm", words[ids] + positions[: len(ids)] + kinds[types])
    erf = np.vectorize(math.erf)
    for layer in (f"encoder.layer.{i}" for i in range(LAYERS)):
        q, k, v = (
            heads(dense(f"{layer}.attention.self.{n}", x)) for n in ("query", "key", "value")
        )
        weights = np.exp(q @ k.swapaxes(1, 2) / math.sqrt(H // HEADS))
        context = (weights / weights.sum(-1, keepdims=True)) @ v
        context = context.swapaxes(0, 1).reshape(len(ids), H)
        output = dense(f"{layer}.attention.output.dense", context)
        x = norm(f"{layer}.attention.output.LayerNorm", x + output)
        inner = dense(f"{layer}.intermediate.dense", x)
        inner = inner * (1 + erf(inner / math.sqrt(2))) / 2
        x = norm(f"{layer}.output.LayerNorm", x + dense(f"{layer}.output.dense", inner))
    return x, np.tanh(dense("pooler.dense", x[:1]))[0]


@pytest.fixture
def folder(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "bert"
    path.mkdir()
    model = {"type": "WordPiece", "vocab": {piece: i for i, piece in enumerate(PIECES)}}
    fast = {"normalizer": NORMALIZER, "model": model}
    (path / "config.json").write_text(json.dumps(CONFIG))
    (path / "tokenizer.json").write_text(json.dumps(fast))
    safetensors.numpy.save_file(tensors_of_bert(), path / "model.safetensors")
    return path


def test_hidden_states_are_those_of_the_tensors(folder: pathlib.Path, tmp_path: pathlib.Path):
    """Up to the two forms of GELU, which differ by less than 5e-4."""
    main(BertWeightsOptions(str(folder), str(tmp_path / "ours")))
    encoder = load_encoder(str(tmp_path / "ours"))
    ids, types = [2, 6, 7, 3, 5], [0, 0, 0, 0, 1]
    inputs = {"input_word_ids": [ids], "input_mask": [[1] * 5], "input_type_ids": [types]}
    outputs = encoder({name: np.array(value, np.int32) for name, value in inputs.items()})
    sequence, pooled = hidden_states(tensors_of_bert(), ids, types)
    np.testing.assert_allclose(outputs["sequence_output"][0], sequence, atol=3e-3)
    np.testing.assert_allclose(outputs["pooled_output"][0], pooled, atol=3e-3)
    tokenizer = load_tokenizer(str(tmp_path / "ours"))
    assert tokenizer.encode("ABC á ``") == [6, 7, 5, 9, 9]  # quotes stay as they are


@pytest.mark.parametrize(
    ("file", "changes", "words"),
    [
        ("config.json", {"model_type": "roberta"}, "`model_type` must be 'bert'"),
        ("config.json", {"hidden_act": "silu"}, "`hidden_act` must be one of"),
        ("config.json", {"num_hidden_layers": 3}, "must hold the weights"),
        ("tokenizer.json", {"normalizer": NORMALIZER | {"lowercase": False}}, "uncased BERT"),
        ("tokenizer.json", {"model": {"type": "BPE", "vocab": {}}}, "with WordPiece"),
    ],
)
def test_other_models_are_refused(folder, tmp_path, file, changes, words):
    values = json.loads((folder / file).read_text())
    (folder / file).write_text(json.dumps(values | changes))
    with pytest.raises(InputError, match=words):
        main(BertWeightsOptions(str(folder), str(tmp_path / "ours"), dry_run=True))
    assert not (tmp_path / "ours").exists()
