"""Tests of `python -m albert_tf.convert`: each way there and back, bit for bit, or one line why."""

import dataclasses
import itertools
import json
import os
import sys
import types

import numpy as np
import pytest
import safetensors.numpy
import tensorflow as tf

from albert_tf import load_encoder, load_pretrainer
from albert_tf.convert import google, native
from albert_tf.convert.__main__ import FORMATS, OURS, READERS, ConvertOptions, main, with_overrides
from albert_tf.convert.bundle import Bundle, MismatchPolicy, weight_shapes, with_initialized_parts
from albert_tf.convert.huggingface import folder as huggingface
from albert_tf.convert.huggingface import tokenizer as huggingface_tokenizer
from albert_tf.convert.huggingface import weights as huggingface_weights
from albert_tf.convert.unshare import init_groups_from_shared
from albert_tf.export import saved_model
from albert_tf.models.config import FFNS, NORMS, POSITIONS, AlbertConfig, sharing_plan
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.tasks.pretrained.encoder import EncoderModule
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer
from data.train_tokenizer import TrainTokenizerOptions, train_model
from tests.albert_tf.convert.closed_form import encoder_shapes, pretraining_head_shapes

STRICT = MismatchPolicy()
MODELS = {
    "shared": {},
    "grouped": {"num_layers": 4, "num_groups": 2},
    "unshared": {"sharing": "none", "hidden_dropout": 0.1, "attention_dropout": 0.2},
    "without_factors": {"embedding_size": 32, "activation": "relu", "type_vocab_size": 3},
}


def random_weights(config: AlbertConfig) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return {n: rng.normal(0, 0.2, s).astype(np.float32) for n, s in weight_shapes(config).items()}


def save(path, config: AlbertConfig, tokenizer: Tokenizer | None = None) -> str:
    os.makedirs(path)
    native.write(Bundle(config, random_weights(config), tokenizer), str(path))
    return str(path)


def convert(*argv: str) -> None:
    main(commands.parse(ConvertOptions, ["convert", *argv], "", ""))


def same(left, right) -> bool:
    assert left.keys() == right.keys()
    return all(np.array_equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("sharing", ["all", "attention", "ffn", "none"])
@pytest.mark.parametrize("embedding_size", [16, 32])
def test_names_and_shapes_are_the_model_s(tiny, sharing, embedding_size):
    config = tiny.replace(sharing=sharing, embedding_size=embedding_size)
    shapes = encoder_shapes(config) | pretraining_head_shapes(config)
    assert weight_shapes(config) == shapes
    model = AlbertPretrainer(config).create_weights()
    found = {name: native.variable(model, name) for name in shapes}
    assert {id(v) for v in found.values()} == {id(v) for v in model.variables}


@pytest.mark.parametrize(("norm", "positions", "ffn"), itertools.product(NORMS, POSITIONS, FFNS))
def test_shapes_of_other_blocks(tiny, norm, positions, ffn):
    config = tiny.replace(norm=norm, positions=positions, ffn=ffn)
    assert weight_shapes(config) == encoder_shapes(config) | pretraining_head_shapes(config)


@pytest.mark.parametrize("case", MODELS)
def test_hugging_face_in_memory_there_and_back(case, tiny):
    config = tiny.replace(**MODELS[case])
    read = huggingface.read_config(huggingface.to_json(config), "it")
    tensors = huggingface.from_ours(config, random_weights(config))
    assert read == config
    assert same(huggingface.to_ours(read, tensors, STRICT, "it"), random_weights(config))


@pytest.mark.parametrize("case", MODELS)
def test_google_there_and_back(case, tiny, small_tokenizer, tmp_path):
    config = tiny.replace(**MODELS[case])
    tokenizer = Tokenizer(small_tokenizer.model, Normalization(strip_accents=False))
    google.write(Bundle(config, random_weights(config), tokenizer), str(tmp_path))
    back = google.read(str(tmp_path), STRICT)
    assert back.config == config
    assert same(back.weights, random_weights(config))
    assert back.tokenizer.fingerprint == tokenizer.fingerprint


@pytest.mark.parametrize("kind", ["google", "huggingface"])
def test_the_command_there_and_back_is_bit_equal(kind, tiny, small_tokenizer, tmp_path, capsys):
    config = tiny.replace(num_layers=4, num_groups=2)
    tokenizer = Tokenizer(small_tokenizer.model, Normalization(unify_quotes=kind != "google"))
    ours, theirs, back = save(tmp_path / "ours", config, tokenizer), tmp_path / "t", tmp_path / "b"
    convert(f"--from={ours}", f"--to={kind}:{theirs}")
    convert(f"--from={kind}:{theirs}", f"--to={back}")
    returned = native.read(str(back), STRICT)
    assert returned.config == config
    assert same(returned.weights, random_weights(config))
    assert returned.tokenizer.fingerprint == tokenizer.fingerprint
    assert tf.train.latest_checkpoint(str(back / "checkpoints"))
    printed = capsys.readouterr()
    assert printed.err == ""
    heads = 32 * 16 + 16 * 3 + 300 + 32 * 2 + 2
    both = f"{config.param_count() + heads:,} parameters, {config.param_count():,} of them in"
    read, wrote, read_back, _ = printed.out.splitlines()
    assert read.startswith(f"read {ours}: {both}")
    assert wrote.startswith(f"wrote {kind}:{theirs}: {both}")
    assert read_back.startswith(f"read {kind}:{theirs}: {both}")
    assert f"groups 2; a tokenizer of {tokenizer.vocab_size:,} pieces" in wrote


def test_a_group_for_each_layer_is_no_sharing(tiny):
    groups, none = tiny.replace(num_groups=3), tiny.replace(sharing="none")
    assert sharing_plan(groups) == sharing_plan(none)
    assert huggingface.read_config(huggingface.to_json(groups), "it") == none
    single = tiny.replace(num_layers=1)
    assert huggingface.read_config(huggingface.to_json(single), "it") == single


@pytest.mark.slow_parameters("num_groups=2")
@pytest.mark.parametrize("setting", ["num_groups=2", "sharing=attention"])
def test_an_unshared_model_starts_as_the_shared_one(setting, tiny, tmp_path, fake_inputs):
    ours = save(tmp_path / "ours", tiny.replace(num_layers=4))
    new = [f"--from={ours}", f"--to={tmp_path / 'new'}", f"--set={setting}"]
    with pytest.raises(ConfigError, match=f"--init_groups_from_shared.*Received: {setting}"):
        convert(*new)
    convert(*new, "--init_groups_from_shared")
    before, after = load_encoder(ours), load_encoder(str(tmp_path / "new"))
    assert after.config == settings.override(before.config, [setting])
    assert len(after.variables) > len(before.variables)
    inputs = fake_inputs(2, 9, (0, 4))
    for name in ("sequence_output", "pooled_output"):
        np.testing.assert_allclose(after(inputs)[name], before(inputs)[name], atol=1e-6)


def test_groups_are_copied_to_the_layers_that_used_them(tiny):
    two, six = tiny.replace(num_layers=6, num_groups=2), tiny.replace(num_layers=6, num_groups=6)
    weights = random_weights(two)
    copied = init_groups_from_shared(weights, two, six)
    assert copied.keys() == weight_shapes(six).keys()
    for layer in range(6):
        for part in ("attentions/{}/key/kernel", "feed_forwards/{}/intermediate/bias"):
            mine = copied["encoder/stack/" + part.format(layer)]
            np.testing.assert_array_equal(mine, weights["encoder/stack/" + part.format(layer // 3)])
    assert same(init_groups_from_shared(weights, two, two), weights)


def test_weights_are_never_merged(tiny):
    groups = {g: tiny.replace(num_layers=6, num_groups=g) for g in (1, 2, 3)}
    for source, target in ((2, 1), (2, 3), (3, 2)):
        with pytest.raises(InputError, match="not merged"):
            init_groups_from_shared({}, groups[source], groups[target])
    with pytest.raises(InputError, match="as many layers.*6.*3"):
        init_groups_from_shared({}, tiny, groups[1])


def test_half_sharing_is_written_apart_only_on_request(tiny, tmp_path):
    ours = save(tmp_path / "ours", tiny.replace(sharing="ffn"))
    to = f"--to=google:{tmp_path / 'google'}"
    with pytest.raises(ConfigError, match="--init_groups_from_shared --set sharing=none"):
        convert(f"--from={ours}", to)
    convert(f"--from={ours}", to, "--init_groups_from_shared", "--set=sharing=none")
    names = {name for name, _ in tf.train.list_variables(str(tmp_path / "google"))}
    assert sum("ffn_1/intermediate/dense/kernel" in name for name in names) == 3


def test_a_missing_head_starts_anew(tiny):
    config = tiny.replace(initializer_range=0.02)
    weights = random_weights(config)
    without = {n: v for n, v in weights.items() if not n.startswith("pair_head")}
    tensors = huggingface.from_ours(config, without)
    values = huggingface.to_json(config)
    bundle = Bundle(
        huggingface.read_config(values, "it"),
        huggingface.to_ours(config, tensors, MismatchPolicy(("pair_head",)), "it"),
        None,
    )
    with pytest.raises(InputError, match="2 missing.*sop_classifier"):
        huggingface.to_ours(config, tensors, STRICT, "it")
    completed = with_initialized_parts(config, bundle.weights)
    assert completed.keys() == weights.keys()
    assert not completed["pair_head/dense/bias"].any()
    assert 0.01 < completed["pair_head/dense/kernel"].std() < 0.03
    assert same(completed, with_initialized_parts(config, bundle.weights))
    np.testing.assert_array_equal(completed["encoder/pooler/bias"], weights["encoder/pooler/bias"])


def save_parts(path, config: AlbertConfig, parts: tuple[str, ...]) -> str:
    """A run whose model has only these of the pretrainer's parts."""
    os.makedirs(path)
    model = AlbertPretrainer(config).create_weights()
    for name, value in random_weights(config).items():
        native.variable(model, name).assign(value)
    some = tf.train.Checkpoint(**{part: getattr(model, part) for part in parts})
    tf.train.Checkpoint(model=some).save(str(path / "checkpoints" / "ckpt"))
    (path / "config.json").write_text(json.dumps(settings.to_dict(config)))
    return str(path)


def test_only_what_our_own_run_lacks_starts_anew(tiny, tmp_path, capsys):
    weights = random_weights(tiny)
    both = MismatchPolicy(("mlm_head", "pair_head", "pooler"))
    whole = save(tmp_path / "whole", tiny)
    assert same(native.read(whole, both).weights, weights)
    without = save_parts(tmp_path / "without", tiny, ("encoder", "mlm_head"))
    with pytest.raises(InputError, match="2 missing.*pair_head.*--allow_missing"):
        native.read(without, MismatchPolicy(("mlm_head",)))
    convert(f"--from={without}", f"--to={tmp_path / 'new'}", "--allow_missing=pair_head")
    printed = capsys.readouterr()
    assert f"{without} has no pair_head: {tmp_path / 'new'} gets random weights" in printed.err
    assert printed.out.splitlines()[0].endswith("no tokenizer; no pair_head")
    assert printed.out.splitlines()[1].endswith("no tokenizer")
    new = native.read(str(tmp_path / "new"), STRICT).weights
    kept = {name: value for name, value in weights.items() if not name.startswith("pair_head/")}
    assert same({name: new[name] for name in kept}, kept)
    no_head = MismatchPolicy(("mlm_head",), ignore=("mlm_head/",))
    rest = {name: value for name, value in weights.items() if not name.startswith("mlm_head/")}
    assert same(native.read(whole, no_head).weights, rest)


def test_our_own_run_must_fit_its_configuration(tiny, tmp_path):
    ours = save(tmp_path / "ours", tiny.replace(num_groups=3))
    (tmp_path / "ours" / "config.json").write_text(json.dumps(settings.to_dict(tiny)))
    with pytest.raises(InputError, match="32 unexpected.*attentions/1"):
        native.read(ours, STRICT)
    (data,) = (tmp_path / "ours" / "checkpoints").glob("*.index")
    data.write_bytes(data.read_bytes()[:20])
    with pytest.raises(InputError, match="not a readable checkpoint"):
        native.read(ours, STRICT)


@pytest.mark.slow_parameters("True")
@pytest.mark.parametrize("is_exported", [False, True])
def test_an_encoder_alone_is_a_source(is_exported, tiny, small_tokenizer, tmp_path, capsys):
    ours = save_parts(tmp_path / "ours", tiny, ("encoder",))
    encoder = load_encoder(ours)
    if is_exported:
        saved_model.save(
            EncoderModule(encoder), str(tmp_path / "e"), small_tokenizer, f"{ours}/config.json"
        )
        ours = str(tmp_path / "e")
    with pytest.raises(InputError, match="7 missing"):
        convert(f"--from={ours}", f"--to=google:{tmp_path / 'google'}")
    heads = "--allow_missing=mlm_head,pair_head"
    convert(f"--from={ours}", f"--to=google:{tmp_path / 'google'}", heads)
    assert "has no mlm_head, pair_head" in capsys.readouterr().err
    reader = tf.train.load_checkpoint(str(tmp_path / "google"))
    np.testing.assert_array_equal(
        reader.get_tensor("bert/pooler/dense/kernel"), encoder.pooler.kernel
    )


def test_a_dry_run_writes_nothing(pretrained, tmp_path, capsys):
    convert(f"--from={pretrained}", f"--to=google:{tmp_path / 'new'}", "--dry_run")
    assert f"would write google:{tmp_path / 'new'}: " in capsys.readouterr().out
    assert os.listdir(tmp_path) == []


def test_a_model_without_tokenizer_is_converted_with_a_warning(tiny, tmp_path, capsys):
    ours = save(tmp_path / "ours", tiny)
    convert(f"--from={ours}", f"--to={tmp_path / 'new'}", "--set=hidden_dropout=0.1")
    printed = capsys.readouterr().err
    assert f"no tokenizer in {ours!r}" in printed
    assert (
        f"Put the spiece.model or vocab.txt that the model was trained with into {ours!r}"
        in printed
    )
    assert sorted(os.listdir(tmp_path / "new")) == ["checkpoints", "config.json"]
    assert load_pretrainer(str(tmp_path / "new")).config == tiny.replace(hidden_dropout=0.1)


@pytest.fixture(scope="module")
def plain_tokenizer() -> Tokenizer:
    """A vocabulary without rules for typographic punctuation."""
    options = TrainTokenizerOptions(corpus="", output="", vocab_size=25, fold_punctuation=False)
    return Tokenizer(train_model(["don't a-b well"] * 20, options), training={"seed": 7})


def test_rules_for_punctuation_are_added(tiny, plain_tokenizer, tmp_path):
    config = tiny.replace(vocab_size=plain_tokenizer.vocab_size)
    ours = save(tmp_path / "ours", config, plain_tokenizer)
    convert(f"--from={ours}", f"--to={tmp_path / 'new'}", "--fold_punctuation")
    new = native.read(str(tmp_path / "new"), STRICT)
    assert same(new.weights, random_weights(config))
    text, plain = "“don’t” — a‑b", '"don\'t" - a-b'
    assert plain_tokenizer.special.unk in plain_tokenizer.encode(text)
    assert new.tokenizer.encode(text) == plain_tokenizer.encode(plain)
    assert new.tokenizer.training == {"seed": 7}
    assert new.tokenizer.fingerprint != plain_tokenizer.fingerprint


@pytest.mark.parametrize("vocabulary", ["[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\na", None])
def test_rules_for_punctuation_need_a_sentencepiece_vocabulary(vocabulary, tiny, tmp_path):
    tokenizer = Tokenizer(vocabulary.encode()) if vocabulary else None
    ours = save(tmp_path / "ours", tiny, tokenizer)
    with pytest.raises(InputError, match="--fold_punctuation needs.*sentencepiece vocabulary"):
        convert(f"--from={ours}", f"--to={tmp_path / 'new'}", "--fold_punctuation")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("argv", "error", "words"),
    [
        (["--from=google:", "--to=x"], InputError, "--from.*google:PATH, huggingface:PATH"),
        (["--from=hub:", "--to=x"], InputError, "--from.*huggingface:PATH, hub:PATH"),
        (["--from=hub:nowhere", "--to=x"], InputNotFoundError, "saved_model.pb in 'nowhere'"),
        (["--from=x", "--to=hub:x"], InputError, "--to must be.*huggingface:PATH. Received: 'hub:"),
        (["--from=hf:some", "--to=x"], InputError, "--from must be.*'hf:some'"),
        (["--from=nowhere", "--to=x"], InputNotFoundError, "no file or folder.*no model of that"),
        (["--from=huggingface:nowhere", "--to=x"], InputNotFoundError, "'nowhere'.*hf download"),
        (["--from=huggingface:tests", "--to=x"], InputNotFoundError, "tests/config.json"),
        (["--from=google:nowhere", "--to=x"], InputNotFoundError, "'nowhere'.*unpacked archive"),
        (["--from=x", "--to=x", "--allow_missing=sop"], InputError, "pair_head"),
        (["--from=x", "--to=albert_tf"], InputError, "--to must name a new or empty folder"),
        (["--from=x"], InputError, "--to is required"),
    ],
)
def test_mistakes(argv, error, words):
    with pytest.raises(error, match=words):
        convert(*argv)
    assert not os.path.exists("x")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("vocab_size=7", "--set must not change the model.*vocab_size=7"),
        ("num_heads=2", "--set must not change the model.*num_heads=2"),
        ("activation=relu", "--set must not change the model.*activation=relu"),
        ("layer_norm_eps=1e-5", "--set must not change the model.*layer_norm_eps=1e-05"),
        ("vocab=7", "vocab_size"),
    ],
)
@pytest.mark.parametrize("unshare", [False, True])
def test_the_weights_stay_the_model_that_they_are(change, words, unshare, tiny):
    with pytest.raises(ConfigError, match=words):
        with_overrides(Bundle(tiny, random_weights(tiny), None), (change,), unshare)


def test_values_that_the_weights_leave_open(tiny):
    changes = ("mlm_layer_norm_eps=1e-5", "attention_dropout=0.1", "rematerialize=true")
    bundle = with_overrides(
        Bundle(tiny, random_weights(tiny), None), (*changes, "num_heads=4"), False
    )
    assert bundle.config == tiny.replace(
        mlm_layer_norm_eps=1e-5, attention_dropout=0.1, rematerialize=True
    )
    assert same(bundle.weights, random_weights(tiny))


@pytest.mark.parametrize("name", ["new", "deep/new"])
def test_the_target_lies_outside_the_source(name, pretrained):
    before = sorted(os.listdir(pretrained))
    with pytest.raises(InputError, match="--to must lie outside.*pretrained"):
        convert(f"--from={pretrained}", f"--to=google:{pretrained}/{name}")
    assert sorted(os.listdir(pretrained)) == before


HF_JSON = {
    "model_type": "albert",
    "vocab_size": 300,
    "embedding_size": 16,
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 64,
    "max_position_embeddings": 40,
}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hidden_act": "gelu"}, "gelu_new.*tanh.*'gelu'.*--ignore=hidden_act"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder.*must be False"),
        ({"model_type": "bert"}, "model_type"),
        ({"inner_group_num": 2}, "inner_group_num.*must be 1"),
        ({"position_embedding_type": "relative_key"}, "position_embedding_type"),
        ({"rope_theta": 1}, "--ignore=rope_theta"),
        ({"num_hidden_groups": 2}, "num_groups.*num_layers"),
    ],
)
def test_hugging_face_configurations_without_an_equal(changes, words):
    with pytest.raises(ConfigError, match=words):
        huggingface.read_config(HF_JSON | changes, "it")


def test_hugging_face_configurations(tiny):
    read = huggingface.read_config(HF_JSON | {"initializer_range": 0.2, "layer_norm_eps": 1e-5}, "")
    assert read == tiny.replace(layer_norm_eps=1e-5, mlm_layer_norm_eps=1e-5)
    torn = {key: value for key, value in HF_JSON.items() if key != "num_hidden_layers"}
    with pytest.raises(ConfigError, match="Missing: num_hidden_layers"):
        huggingface.read_config(torn, "it")


# What the released folders of albert-base-v2, and of v1 but for `hidden_act`, hold.
RELEASED = {
    "architectures": ["AlbertForMaskedLM"],
    "attention_probs_dropout_prob": 0,
    "bos_token_id": 2,
    "classifier_dropout_prob": 0.1,
    "down_scale_factor": 1,
    "embedding_size": 128,
    "eos_token_id": 3,
    "gap_size": 0,
    "hidden_act": "gelu_new",
    "hidden_dropout_prob": 0,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "inner_group_num": 1,
    "intermediate_size": 3072,
    "layer_norm_eps": 1e-12,
    "layers_to_keep": [],
    "max_position_embeddings": 512,
    "model_type": "albert",
    "net_structure_type": 0,
    "num_attention_heads": 12,
    "num_hidden_groups": 1,
    "num_hidden_layers": 12,
    "num_memory_blocks": 0,
    "pad_token_id": 0,
    "type_vocab_size": 2,
    "vocab_size": 30000,
}


def test_released_configurations_of_hugging_face(tmp_path):
    assert huggingface.read_config(RELEASED, "it") == AlbertConfig.from_preset("albert-base-v2")
    dropout = {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.1}
    values = RELEASED | dropout | {"hidden_act": "gelu", "is_encoder_decoder": False, "top_k": 50}
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(ConfigError, match="hidden_act"):
        huggingface.read(str(tmp_path), STRICT)
    with pytest.raises(InputNotFoundError, match="model.safetensors"):  # the configuration is read
        huggingface.read(str(tmp_path), MismatchPolicy(ignore=("hidden_act",)))
    del values["hidden_act"]
    assert huggingface.read_config(values, "it") == AlbertConfig.from_preset("albert-base-v1")


def test_tied_and_constant_tensors_of_hugging_face(tiny):
    config = tiny.replace(embedding_size=32)
    weights = random_weights(config)
    tensors = huggingface.from_ours(config, weights)
    table, bias = weights["encoder/embeddings/word_embeddings"], weights["mlm_head/bias"]
    tied = tensors | {"predictions.decoder.weight": table, "predictions.decoder.bias": bias}
    assert same(huggingface.to_ours(config, tied, STRICT, "it"), weights)
    del tied["predictions.bias"]
    assert same(huggingface.to_ours(config, tied, STRICT, "it"), weights)
    other = {"weight": table[:32] + 1, "bias": bias[:32] + 1}
    for name in ("predictions.decoder", huggingface.PROJECTION):
        for part, value in other.items():
            with pytest.raises(InputError, match=name):
                huggingface.to_ours(config, tensors | {f"{name}.{part}": value}, STRICT, "it")


@pytest.mark.parametrize("rules", [Normalization(), Normalization(False, False)])
def test_a_wordpiece_vocabulary_travels_along(rules, tiny, tmp_path):
    vocabulary = "\n".join(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b", "你"]
    ).encode()
    tokenizer = Tokenizer(vocabulary, rules)
    huggingface.write(Bundle(tiny, random_weights(tiny), tokenizer), str(tmp_path))
    assert huggingface.read(str(tmp_path), STRICT).tokenizer.fingerprint == tokenizer.fingerprint
    printed = json.loads((tmp_path / "tokenizer_config.json").read_text())
    assert (printed["tokenizer_class"], printed["pad_token"]) == ("BertTokenizer", "[PAD]")
    assert "token_type_ids" in printed["model_input_names"]
    assert printed["model_max_length"] == tiny.max_positions
    (note,) = huggingface.check(Bundle(tiny, {}, tokenizer))
    assert "a word of more than 100 characters unknown, yours one of more than 200" in note
    rules = json.dumps(printed | {"tokenize_chinese_chars": False})
    (tmp_path / "tokenizer_config.json").write_text(rules)
    with pytest.raises(InputError, match="`tokenize_chinese_chars` false is not supported"):
        huggingface.read(str(tmp_path), STRICT)


def test_an_albert_model_s_own_folder(tiny, tmp_path):
    tensors = huggingface.from_ours(tiny, random_weights(tiny))
    bare = {n.removeprefix("albert."): v for n, v in tensors.items() if n.startswith("albert.")}
    bare["embeddings.position_ids"] = np.arange(40)[None]
    safetensors.numpy.save_file(bare, tmp_path / "model.safetensors")
    (tmp_path / "config.json").write_text(json.dumps(huggingface.to_json(tiny)))
    with pytest.raises(InputError, match="7 missing.*--allow_missing"):
        huggingface.read(str(tmp_path), STRICT)
    bundle = huggingface.read(str(tmp_path), MismatchPolicy(("mlm_head", "pair_head")))
    assert bundle.tokenizer is None
    encoder = {n: v for n, v in random_weights(tiny).items() if n.startswith("encoder/")}
    assert same(bundle.weights, encoder)
    with open(tmp_path / "model.safetensors", "r+b") as file:
        file.truncate(30)
    with pytest.raises(InputError, match="not a readable safetensors"):
        huggingface.read(str(tmp_path), STRICT)
    os.remove(tmp_path / "model.safetensors")
    with pytest.raises(InputNotFoundError, match="neither model.safetensors nor"):
        huggingface.read(str(tmp_path), STRICT)
    (tmp_path / "model.safetensors.index.json").touch()
    with pytest.raises(InputError, match="several files.*max_shard_size"):
        huggingface.read(str(tmp_path), STRICT)


def torn(*_, **__):
    raise RuntimeError("PytorchStreamReader failed reading zip archive")


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (torn, "not a readable file of torch tensors: PytorchStreamReader"),
        (lambda *_, **__: {"epoch": 3}, r"state_dict\(\).*'epoch' of type int"),
        (lambda *_, **__: [1], "of type list"),
    ],
)
def test_torch_files_that_hold_no_model(load, words, monkeypatch, tmp_path):
    """With a stand-in for torch, which must not share a process with TensorFlow."""
    torch = types.SimpleNamespace(load=load, Tensor=np.ndarray)
    monkeypatch.setitem(sys.modules, "torch", torch)
    (tmp_path / "config.json").write_text(json.dumps(HF_JSON))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(InputError, match=words):
        huggingface.read(str(tmp_path), STRICT)


def test_a_missing_package_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "torch", None)
    (tmp_path / "config.json").write_text(json.dumps(HF_JSON))
    (tmp_path / "pytorch_model.bin").touch()
    with pytest.raises(
        InputError, match=r"package torch. Run pip install -e '\.\[huggingface-torch\]'"
    ):
        huggingface.read(str(tmp_path), STRICT)


def test_hugging_face_s_losses_are_noted(tiny, small_tokenizer):
    config = tiny.replace(mlm_layer_norm_eps=1e-5)
    assert len(huggingface.check(Bundle(config, {}, small_tokenizer))) == 1
    assert huggingface.check(Bundle(tiny, {}, None)) == []


@pytest.mark.parametrize("unify_quotes", [False, True])
def test_a_tokenizer_comes_back_from_transformers_with_its_rules(
    small_tokenizer, tmp_path, unify_quotes: bool
):
    """Theirs has no switch for quotes, so the folder says what ours does."""
    rules = dataclasses.replace(small_tokenizer.normalization, unify_quotes=unify_quotes)
    tokenizer = Tokenizer(small_tokenizer.model, rules)
    huggingface_tokenizer.write(tokenizer, str(tmp_path), 64)
    assert huggingface_tokenizer.read(str(tmp_path)).fingerprint == tokenizer.fingerprint


def test_names_of_a_wrapped_torch_model(tiny, tmp_path):
    source = str(tmp_path / "theirs")
    os.mkdir(source)
    weights = random_weights(tiny)
    huggingface.write(Bundle(tiny, weights, None), source)
    tensors = huggingface_weights.read(source)
    huggingface_weights.write({f"module.{n}": value for n, value in tensors.items()}, source)
    read = huggingface.read(source, MismatchPolicy())
    for name, value in weights.items():
        np.testing.assert_array_equal(read.weights[name], value)


@pytest.mark.parametrize("target", ["", "huggingface:", "google:"])
def test_rows_beyond_the_vocabulary_are_left_out(target, tiny, small_tokenizer, tmp_path, capsys):
    """Some programs pad the word table to a multiple of 8 or 128."""
    size = small_tokenizer.vocab_size
    padded = tiny.replace(vocab_size=size + 24)
    weights = random_weights(padded)
    os.mkdir(tmp_path / "theirs")
    huggingface.write(Bundle(padded, weights, small_tokenizer), str(tmp_path / "theirs"))
    main(ConvertOptions(f"huggingface:{tmp_path / 'theirs'}", f"{target}{tmp_path / 'ours'}"))
    assert (
        f"the model has {size + 24:,} pieces and its tokenizer {size:,}: the rows of the last 24 "
        "pieces are left out." in capsys.readouterr().err
    )
    read = READERS.get(target.rstrip(":"), native.read)(str(tmp_path / "ours"), MismatchPolicy())
    assert read.config.vocab_size == size
    for name, value in weights.items():
        cut = name.endswith("/word_embeddings") or name == "mlm_head/bias"
        np.testing.assert_array_equal(read.weights[name], value[:size] if cut else value)


def test_a_vocabulary_that_is_much_too_small_is_refused(tiny, small_tokenizer, tmp_path):
    large = tiny.replace(vocab_size=small_tokenizer.vocab_size + 1024)
    os.mkdir(tmp_path / "theirs")
    bundle = Bundle(large, random_weights(large), small_tokenizer)
    huggingface.write(bundle, str(tmp_path / "theirs"))
    with pytest.raises(
        InputError, match="has 1,324 pieces and its tokenizer 300, so it is another"
    ):
        main(ConvertOptions(f"huggingface:{tmp_path / 'theirs'}", str(tmp_path / "ours")))
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("kind", "file"),
    [
        ("huggingface", "model.safetensors"),
        ("huggingface", "config.json"),
        ("huggingface", "spiece.model"),
        ("google", "model.ckpt-best.index"),
        ("google", "model.ckpt-best.data-00000-of-00001"),
        ("", "checkpoints/ckpt-1.data-00000-of-00001"),
        ("", "tokenizer/spiece.model"),
    ],
)
def test_git_lfs_pointers_are_named(kind, file, tiny, small_tokenizer, tmp_path):
    source = tmp_path / "source"
    source.mkdir()
    bundle = Bundle(tiny, random_weights(tiny), small_tokenizer)
    FORMATS.get(kind, OURS).write(bundle, str(source))
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 46747112\n"
    (source / file).write_text(pointer)
    message = f"^'{source / file}' must be the file itself. Received: a Git LFS pointer"
    with pytest.raises(InputError, match=message):
        main(ConvertOptions(f"{kind}:{source}".lstrip(":"), str(tmp_path / "out")))


@pytest.mark.parametrize("key", ["remove_space", "do_lower_case", "keep_accents"])
def test_rules_of_other_types_are_refused(key, tmp_path, small_tokenizer):
    small_tokenizer.save(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({key: [1]}))
    words = rf"tokenizer_config.json': `{key}` must be true or false. Received: \[1\]."
    with pytest.raises(InputError, match=words):
        huggingface_tokenizer.read(str(tmp_path))
