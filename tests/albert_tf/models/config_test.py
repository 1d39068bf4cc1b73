"""Tests of the parameter counts, the weight plan and the error messages of `AlbertConfig`."""

import dataclasses
import itertools
import json

import pytest

from albert_tf.convert.config_keys import KEYS, from_config
from albert_tf.graph.onnx.encoder import EncoderGraph
from albert_tf.graph.onnx.graph import Graph
from albert_tf.models import config as config_module
from albert_tf.models.config import (
    MAX_PARAMETERS,
    PRESETS,
    SHARINGS,
    VARIANTS,
    AlbertConfig,
    head_param_counts,
    param_counts,
    sharing_plan,
)
from albert_tf.models.encoder import AlbertEncoder
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError

PUBLISHED = {
    "base": 11_683_584,
    "large": 17_683_968,
    "xlarge": 58_724_864,
    "xxlarge": 222_595_584,
}


@pytest.mark.parametrize("version", ["v1", "v2"])
@pytest.mark.parametrize("size", PUBLISHED)
def test_published_sizes(size, version):
    assert AlbertConfig.from_preset(f"albert-{size}-{version}").param_count() == PUBLISHED[size]


def test_bert_base_is_the_published_109_482_240_less_its_larger_vocabulary():
    # BERT-base has 30,522 pieces where ours has 30,000, and 768 numbers for each.
    ours = AlbertConfig.from_preset("bert-base").param_count()
    assert ours + 522 * 768 == 109_482_240


def test_published_dropout_and_heads():
    names = ("albert-base-v1", "albert-base-v2", "albert-xxlarge-v1")
    assert [AlbertConfig.from_preset(name).hidden_dropout for name in names] == [0.1, 0.0, 0.0]
    heads = [AlbertConfig.from_preset(f"albert-{size}-v2").head_size for size in PUBLISHED]
    assert heads == [64, 64, 128, 64]


@pytest.mark.parametrize("size", PUBLISHED)
def test_chinese_presets_have_the_shapes_of_english_with_relu_and_berts_vocabulary(size):
    english = AlbertConfig.from_preset(f"albert-{size}-v2")
    chinese = AlbertConfig.from_preset(f"albert-{size}-zh")
    assert (chinese.activation, chinese.vocab_size) == ("relu", 21128)
    # 128 numbers for each piece that the vocabulary has less.
    assert english.param_count() - chinese.param_count() == (30000 - 21128) * 128
    own = ("activation", "vocab_size", "num_heads", "initializer_range")
    same = {key: getattr(english, key) for key in own}
    assert chinese.replace(**same) == english
    # The released configurations: no variable's shape tells the number of heads.
    others = {"xlarge": (16, 0.014), "xxlarge": (16, 0.01)}
    expected = others.get(size, (english.num_heads, 0.02))
    assert (chinese.num_heads, chinese.initializer_range) == expected


def test_chinese_base_is_googles_config(shared_data):
    path = shared_data / "checkpoint_meta" / "google_albert_base_zh" / "albert_config.json"
    google = json.loads(path.read_text())
    names = {
        "attention_probs_dropout_prob": "attention_dropout",
        "hidden_act": "activation",
        "hidden_dropout_prob": "hidden_dropout",
        "num_attention_heads": "num_heads",
        "num_hidden_layers": "num_layers",
        "num_hidden_groups": "num_groups",
        "max_position_embeddings": "max_positions",
    }
    same = (
        "embedding_size",
        "hidden_size",
        "initializer_range",
        "intermediate_size",
        "type_vocab_size",
        "vocab_size",
    )
    chinese = AlbertConfig.from_preset("albert-base-zh")
    for theirs, ours in (names | {key: key for key in same}).items():
        assert getattr(chinese, ours) == google[theirs], ours


def test_every_preset_is_valid():
    for name in PRESETS:
        assert AlbertConfig.from_preset(name).param_count() > 0


CASES = [*itertools.product(SHARINGS[:3], (1, 2, 4), [16]), ("none", 1, 16), ("none", 1, 32)]


@pytest.mark.slow_parameters("all-1-16", "attention-1-16", "attention-2-16", "ffn-1-16", "ffn-2-16")
@pytest.mark.parametrize(("sharing", "num_groups", "embedding_size"), CASES)
def test_closed_form_is_the_built_model(tiny, sharing, num_groups, embedding_size):
    config = tiny.replace(
        num_layers=4, sharing=sharing, num_groups=num_groups, embedding_size=embedding_size
    )
    model = AlbertPretrainer(config).create_weights()
    counts, heads = param_counts(config), head_param_counts(config)
    encoder = model.encoder
    assert encoder.count_params() == config.param_count() == sum(counts.values())
    projection = encoder.embeddings.projection
    of_projection = projection.count_params() if projection else 0
    assert counts["projection"] == of_projection
    assert counts["embeddings"] == encoder.embeddings.count_params() - of_projection
    assert counts["attention"] == sum(x.count_params() for x in encoder.stack.attentions)
    assert counts["feed_forward"] == sum(x.count_params() for x in encoder.stack.feed_forwards)
    assert counts["pooler"] == encoder.pooler.count_params()
    assert heads["mlm_head"] == model.mlm_head.count_params()
    assert heads["pair_head"] == model.pair_head.count_params()
    assert model.count_params() == config.param_count() + sum(heads.values())


@pytest.mark.parametrize(
    ("sharing", "num_groups", "plan"),
    [
        ("all", 1, [(0, 0), (0, 0), (0, 0), (0, 0)]),
        ("all", 2, [(0, 0), (0, 0), (1, 1), (1, 1)]),
        ("all", 4, [(0, 0), (1, 1), (2, 2), (3, 3)]),
        ("attention", 1, [(0, 0), (0, 1), (0, 2), (0, 3)]),
        ("attention", 2, [(0, 0), (0, 1), (1, 2), (1, 3)]),
        ("ffn", 1, [(0, 0), (1, 0), (2, 0), (3, 0)]),
        ("ffn", 2, [(0, 0), (1, 0), (2, 1), (3, 1)]),
        ("none", 1, [(0, 0), (1, 1), (2, 2), (3, 3)]),
    ],
)
def test_sharing_plan(sharing, num_groups, plan):
    config = AlbertConfig(num_layers=4, sharing=sharing, num_groups=num_groups)
    assert list(sharing_plan(config)) == plan


def test_no_layer_is_misplaced_by_rounding():
    # int(15 / 22 * 22) is 14.
    plan = sharing_plan(AlbertConfig(num_layers=22, num_groups=22))
    assert [layer.attention for layer in plan] == list(range(22))


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_layers": 0}, ["`num_layers`", "positive", "0"]),
        ({"vocab_size": -3}, ["`vocab_size`", "positive", "-3"]),
        ({"hidden_dropout": 1.0}, ["`hidden_dropout`", "[0, 1)", "1.0"]),
        ({"attention_dropout": -0.1}, ["`attention_dropout`", "[0, 1)", "-0.1"]),
        ({"attention_dropout": float("nan")}, ["`attention_dropout`", "[0, 1)", "nan"]),
        ({"initializer_range": 0.0}, ["`initializer_range`", "positive", "0.0"]),
        ({"layer_norm_eps": float("nan")}, ["`layer_norm_eps`", "positive", "nan"]),
        ({"num_heads": 5}, ["`num_heads`", "divide `hidden_size`", "5", "768"]),
        ({"num_groups": 5}, ["`num_groups`", "divide `num_layers`", "5", "12"]),
        ({"sharing": "al"}, ["`sharing`", "all, attention, ffn, none", "'al'"]),
        ({"activation": "swish"}, ["`activation`", "gelu, relu", "'swish'"]),
        ({"sharing": "none", "num_groups": 2}, ["`num_groups`", "1", "none", "num_groups=2"]),
        ({"hiden_size": 3}, ["unknown key `hiden_size`", "hidden_size"]),
        ({"zzz": 3}, ["unknown key `zzz`", "Valid keys", "num_layers"]),
        ({"num_layers": "12"}, ["`num_layers`", "int", "'12'"]),
        ({"num_layers": True}, ["`num_layers`", "int", "True"]),
        ({"num_layers": 1.5}, ["`num_layers`", "int", "1.5"]),
        ({"sharing": None}, ["`sharing`", "str", "None"]),
    ],
)
def test_errors_name_key_rule_and_value(changes, words):
    with pytest.raises(ConfigError) as error:
        AlbertConfig().replace(**changes)
    assert "\n" not in str(error.value)
    for word in words:
        assert word in str(error.value)


def test_a_tilde_is_the_home_folder(tiny, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "config.json").write_text(json.dumps(settings.to_dict(tiny)))
    assert AlbertConfig.from_json("~") == tiny == AlbertConfig.from_json(tmp_path)
    with pytest.raises(InputNotFoundError, match="checkpoint"):  # and not that it is no folder
        AlbertEncoder.from_preset("~")


def test_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="albert-base-v3.*Did you mean.*albert-base-v2"):
        AlbertConfig.from_preset("albert-base-v3")
    with pytest.raises(ConfigError, match="albert-mini.*Did you mean albert-mini-en"):
        AlbertConfig.from_preset("albert-mini")


def test_a_configuration_is_frozen_and_replace_copies_it():
    config = AlbertConfig()
    assert config.replace(num_layers=3).num_layers == 3
    assert config.num_layers == 12
    with pytest.raises(dataclasses.FrozenInstanceError):
        config.num_layers = 3


def test_json_alone_and_in_a_run(tmp_path, tiny):
    values = dataclasses.asdict(tiny)
    (tmp_path / "alone.json").write_text(json.dumps(values))
    (tmp_path / "run.json").write_text(json.dumps({"model": values, "task": {"kind": "x"}}))
    for name in ("alone.json", "run.json"):
        assert AlbertConfig.from_json(str(tmp_path / name)) == tiny
    (tmp_path / "assets.extra").mkdir()  # of an export
    (tmp_path / "run.json").rename(tmp_path / "assets.extra" / "config.json")
    assert AlbertConfig.from_json(str(tmp_path)) == tiny


@pytest.mark.parametrize("text", ["{", "[]", '{"model": 3}', ""])
def test_json_that_is_no_config(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(InputError, match=r"config\.json"):
        AlbertConfig.from_json(str(path))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"num_layers": 10**9}, "`num_layers` must be at most 1,024. Received: 1000000000."),
        ({"vocab_size": 2**24 + 1}, "`vocab_size` must be at most 16,777,216. Received: 16777217."),
        ({"hidden_size": 2**16, "num_heads": 64}, "at most 10,000,000,000 parameters. Received: "),
    ],
)
def test_sizes_beyond_their_bounds_are_refused(values, words):
    with pytest.raises(ConfigError) as error:
        AlbertConfig(**values)
    assert words in str(error.value)


def test_the_largest_published_models_are_far_below_the_limit():
    assert AlbertConfig.from_preset("bert-xlarge").param_count() < MAX_PARAMETERS / 7


def test_missing_json_names_path_and_working_folder(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"nowhere\.json.*working directory"):
        AlbertConfig.from_json(str(tmp_path / "nowhere.json"))


def test_chunks_need_rematerialize():
    with pytest.raises(ConfigError, match="Received: rematerialize_chunks=4"):
        AlbertConfig(rematerialize_chunks=4)
    assert AlbertConfig(rematerialize=True, rematerialize_chunks=4).rematerialize_chunks == 4


def test_a_foreign_configuration_names_the_converter(tmp_path):
    path = tmp_path / "config.json"
    path.write_text('{"num_hidden_layers": 2}')
    with pytest.raises(ConfigError, match="albert_tf.convert"):
        AlbertConfig.from_json(str(path))


def test_every_choice_of_a_layer_is_a_variant():
    """Sharing and recomputation change which weights a layer uses, and when: no result."""
    defaults = {field.name: field.default for field in dataclasses.fields(AlbertConfig)}
    choices = {name for name, value in defaults.items() if isinstance(value, str | bool)}
    assert choices - {"sharing", "rematerialize"} == set(VARIANTS)


def test_a_variant_that_a_format_does_not_know_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(config_module, "VARIANTS", (*VARIANTS, "max_positions"))  # as if new
    config = AlbertConfig(max_positions=12, ffn="gated")
    with pytest.raises(ConfigError, match="an ONNX model .* `max_positions` 512. Received: 12. Ex"):
        EncoderGraph(Graph(), AlbertEncoder(config))
    with pytest.raises(ConfigError, match="Hugging.* `max_positions` 512. Received: 12. Export"):
        from_config(config.replace(ffn="plain"), KEYS)
    with pytest.raises(ConfigError, match="x must have `ffn` plain or wide. Received: 'gated'. Y"):
        config.require_known({"ffn": ("plain", "wide"), "max_positions": (12,)}, "x", "Y")


@pytest.mark.parametrize(
    ("field", "value"), [("hidden_size", "768"), ("hidden_size", 768.0), ("rematerialize", "no")]
)
def test_a_value_of_another_type_is_refused(field, value):
    with pytest.raises(ConfigError, match=f"`{field}` must be of type"):
        AlbertConfig(**{field: value})
