"""Tests that Google's TF1 checkpoints are read and written: real names and shapes, real quirks."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.convert import google, native
from albert_tf.convert.bundle import Bundle, MismatchPolicy, weight_shapes
from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer
from tests.albert_tf.convert.convert_test import HF_JSON, random_weights

STRICT = MismatchPolicy()
JSON = {key: value for key, value in HF_JSON.items() if key != "model_type"}


def save_tf1(folder, tensors: dict, values: dict, name: str = "model.ckpt-best") -> str:
    """A checkpoint as TF1's Saver writes it, with its configuration."""
    os.makedirs(folder, exist_ok=True)
    prefix = os.path.join(folder, name)
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    with open(os.path.join(folder, "albert_config.json"), "w", encoding="utf-8") as file:
        json.dump(values, file)
    return prefix


@pytest.fixture
def tensors(tiny) -> dict:
    return google.GOOGLE.from_ours(random_weights(tiny))


def real_variables(shared_data, name: str) -> dict[str, tuple[int, ...]]:
    table = (shared_data / "checkpoint_meta" / name / "variables.tsv").read_text()
    rows = [line.split("\t") for line in table.splitlines()[1:]]
    return {row[0]: tuple(json.loads(row[2])) for row in rows}


def test_exactly_the_variables_of_a_released_checkpoint(shared_data, tmp_path):
    meta = shared_data / "checkpoint_meta" / "google_albert_base_zh"
    values = json.loads((meta / "albert_config.json").read_text())
    real = real_variables(shared_data, meta.name)
    rng = np.random.default_rng(0)
    made = {name: rng.random(shape, np.float32) for name, shape in real.items()}
    made["global_step"] = np.int64(125000)
    vocabulary = shared_data / "vocab" / "albert_zh" / "vocab_chinese.txt"
    prefix = save_tf1(tmp_path / "in", made, values)
    shutil.copy(vocabulary, tmp_path / "in")
    bundle = google.read(prefix, STRICT)
    assert bundle.config == AlbertConfig(vocab_size=21128, activation="relu")
    assert bundle.tokenizer.model == vocabulary.read_bytes()
    os.makedirs(tmp_path / "out")
    google.write(bundle, str(tmp_path / "out"))
    reader = tf.train.load_checkpoint(str(tmp_path / "out"))
    assert {n: tuple(s) for n, s in reader.get_variable_to_shape_map().items()} == real
    for name in set(real) - {"global_step"}:
        np.testing.assert_array_equal(reader.get_tensor(name), made[name])
    assert reader.get_tensor("global_step") == 0
    written = json.loads((tmp_path / "out" / "albert_config.json").read_text())
    assert written == values


def test_brightmart_computes_with_both_factors(shared_data, tmp_path, fake_inputs):
    meta = shared_data / "checkpoint_meta" / "brightmart_albert_tiny_zh"
    values = json.loads((meta / "albert_config_tiny.json").read_text())
    rng = np.random.default_rng(0)
    made = {
        name: rng.normal(0, 0.1, shape).astype(np.float32)
        for name, shape in real_variables(shared_data, meta.name).items()
    }
    bundle = google.read(save_tf1(tmp_path / "in", made, values), STRICT)
    assert bundle.config == AlbertConfig(
        vocab_size=21128, embedding_size=312, hidden_size=312, num_layers=4, intermediate_size=1248
    )
    model = AlbertPretrainer(bundle.config).create_weights()
    for name, value in bundle.weights.items():
        native.variable(model, name).assign(value)
    ids = fake_inputs(1, 6)["input_word_ids"]
    # Their order: look up, project to H, add types and positions of width H, LayerNorm.
    x = made["bert/embeddings/word_embeddings"][ids] @ made["bert/embeddings/word_embeddings_2"]
    x += made["bert/embeddings/token_type_embeddings"][0]
    x += made["bert/embeddings/position_embeddings"][:6]
    x = (x - x.mean(-1, keepdims=True)) / x.std(-1, keepdims=True)
    x = x * made["bert/embeddings/LayerNorm/gamma"] + made["bert/embeddings/LayerNorm/beta"]
    ours = model.encoder.embeddings({"input_word_ids": ids, "input_type_ids": np.zeros_like(ids)})
    np.testing.assert_allclose(ours, x, atol=2e-5)
    key = "bert/encoder/layer_shared/attention/self/key/kernel"
    np.testing.assert_array_equal(
        bundle.weights["encoder/stack/attentions/0/key/kernel"], made[key]
    )


def test_slots_steps_and_hub_prefix_are_left_behind(tensors, tmp_path, tiny):
    made = {f"module/{name}": value for name, value in tensors.items()}
    made |= {f"module/{n}/adam_{s}": v for n, v in tensors.items() for s in "mv"}
    made |= {name: np.float32(0.5) for name in ("beta1_power", "module/beta2_power")}
    save_tf1(tmp_path / "variables", made | {"global_step": np.int64(7)}, JSON, "variables")
    os.makedirs(tmp_path / "assets")
    os.rename(tmp_path / "variables/albert_config.json", tmp_path / "assets/albert_config.json")
    bundle = google.read(str(tmp_path), STRICT)
    assert bundle.weights.keys() == weight_shapes(tiny).keys()
    for name, value in random_weights(tiny).items():
        np.testing.assert_array_equal(bundle.weights[name], value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"inner_group_num": 2}, ["inner_group_num", "must be 1", "Received: 2"]),
        ({"net_structure_type": 1}, ["net_structure_type"]),
        ({"ln_type": "preln"}, ["ln_type", "postln"]),
        ({"hidden_act": "tanh"}, ["hidden_act", "gelu", "relu", "'tanh'"]),
        ({"num_hidden_groups": 2}, ["num_groups", "num_layers"]),
        ({"new_trick": True}, ["new_trick", "--ignore=new_trick"]),
        ({"num_hidden_layers": 22, "num_hidden_groups": 22}, ["layer 15 of 22"]),
        ({"vocab_size": 200}, ["word_embeddings [300, 16], expected [200, 16]"]),
        ({"num_hidden_groups": 3}, ["64 weights expected", "32 missing", "group_1"]),
        ({"embedding_size": 32}, ["embedding_hidden_mapping_in", "unexpected"]),
    ],
)
def test_another_configuration_is_an_error(tensors, tmp_path, changes, words):
    with pytest.raises(InputError) as error:
        google.read(save_tf1(tmp_path, tensors, JSON | changes), STRICT)
    for word in words:
        assert word in str(error.value)


def test_a_folder_named_like_a_pattern(tensors, tmp_path):
    save_tf1(tmp_path / "go[1]", tensors, JSON)
    read = google.read(str(tmp_path / "go[1]"), STRICT)
    for name, value in random_weights(read.config).items():
        np.testing.assert_array_equal(read.weights[name], value)


def test_a_deliberate_partial_load_is_named(tensors, tmp_path, tiny):
    without = {n: v for n, v in tensors.items() if not n.startswith("cls/")}
    prefix = save_tf1(tmp_path, without | {"output_weights": np.zeros([3, 32])}, JSON | {"x": 1})
    for policy, words in (
        (STRICT, "--ignore=x"),
        (MismatchPolicy(ignore=("output_weights", "x")), "missing.*cls/predictions"),
        (MismatchPolicy(("mlm_head",), ("output_weights", "x")), "2 missing.*cls/seq_relationship"),
        (MismatchPolicy(("mlm_head", "pair_head"), ("x",)), "1 unexpected.*output_weights"),
        (MismatchPolicy(("mlm_head", "pair_head"), ("output_weights",)), "--ignore=x"),
    ):
        with pytest.raises(InputError, match=words):
            google.read(prefix, policy)
    policy = MismatchPolicy(("mlm_head", "pair_head"), ("output_weights", "x"))
    bundle = google.read(prefix, policy)
    assert bundle.weights.keys() == {n for n in weight_shapes(tiny) if n.startswith("encoder/")}
    with pytest.raises(InputError, match="mlm_head, pair_head, pooler.*'heads'"):
        MismatchPolicy(("heads",))


def test_where_the_files_are(tensors, tmp_path):
    with pytest.raises(InputNotFoundError, match="no folder"):
        google.read(str(tmp_path / "nowhere"), STRICT)
    with pytest.raises(InputNotFoundError, match=r"no TF1 checkpoint.*\*\.index"):
        google.read(str(tmp_path), STRICT)
    prefix = save_tf1(tmp_path, tensors, JSON)
    os.rename(tmp_path / "albert_config.json", tmp_path / "other.json")
    with pytest.raises(InputNotFoundError, match="configuration"):
        google.read(prefix, STRICT)
    save_tf1(tmp_path, tensors, JSON, "model.ckpt-0")
    with pytest.raises(InputError, match="one TF1 checkpoint.*ckpt-0.*ckpt-best"):
        google.read(str(tmp_path), STRICT)
    google.read(prefix, STRICT)
    with open(f"{prefix}.index", "r+b") as file:
        file.truncate(20)
    with pytest.raises(InputError, match="not a readable checkpoint"):
        google.read(prefix, STRICT)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"sharing": "attention"}, "--init_groups_from_shared --set sharing=none"),
        ({"sharing": "ffn"}, "--init_groups_from_shared --set sharing=none"),
        ({"layer_norm_eps": 1e-5}, "layer_norm_eps"),
        ({"sharing": "none", "num_layers": 22}, "layer 15 of 22"),
    ],
)
def test_configurations_without_a_google_form_are_refused(tiny, changes, words):
    bundle = Bundle(tiny.replace(**changes), {}, None)
    with pytest.raises(ConfigError, match=words):
        google.check(bundle)


def test_an_epsilon_lost_by_google_is_noted(tiny):
    assert google.check(Bundle(tiny, {}, None)) == []
    (note,) = google.check(Bundle(tiny.replace(mlm_layer_norm_eps=1e-5), {}, None))
    assert "1e-05" in note


@pytest.mark.parametrize("rule", ["strip_accents", "unify_quotes"])
def test_rules_that_google_lacks_are_noted(tiny, small_tokenizer, rule):
    own = small_tokenizer.normalization
    assert own == Normalization()
    rules = dataclasses.replace(own, **{rule: not getattr(own, rule)})
    (note,) = google.check(Bundle(tiny, {}, Tokenizer(small_tokenizer.model, rules)))
    assert f"{rule}={getattr(rules, rule)}" in note
    assert google.check(Bundle(tiny, {}, small_tokenizer)) == []
