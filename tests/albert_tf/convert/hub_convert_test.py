"""Tests of `hub:`: modules of tf-models-official become folders that compute the same."""

import os
import re

import numpy as np
import pytest
import tensorflow as tf

from albert_tf import load_encoder, load_pretrainer
from albert_tf.convert import hub, native
from albert_tf.convert.bundle import Bundle, MismatchPolicy, weight_shapes, with_initialized_parts
from albert_tf.models.config import AlbertConfig
from albert_tf.models.encoder import INPUTS
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.text.tokenizer import Tokenizer
from finetuning.training.starting_point import StartingPoint

NO_PAIR = MismatchPolicy(allow_missing=("pair_head",))
NO_HEADS = MismatchPolicy(allow_missing=("pair_head", "mlm_head"))
WORDPIECE = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map("w{}".format, range(295))]


def of_official(config: AlbertConfig, with_mlm: bool):
    """(their configuration, the model to export, what a checkpoint is saved of), random weights."""
    encoders = pytest.importorskip("official.nlp.configs.encoders")
    from official.nlp.tools import export_tfhub_lib

    theirs = encoders.EncoderConfig(type="bert" if config.sharing == "none" else "albert")
    is_bert = theirs.type == "bert"
    values = {
        "vocab_size": config.vocab_size,
        "embedding_size" if is_bert else "embedding_width": config.embedding_size,
        "hidden_size": config.hidden_size,
        "num_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "intermediate_size": config.intermediate_size,
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.type_vocab_size,
        "hidden_activation": config.activation,
        "initializer_range": config.initializer_range,
    }
    theirs.get().override(values)
    model, holder = export_tfhub_lib._create_model(encoder_config=theirs, with_mlm=with_mlm)
    rng = np.random.default_rng(3)
    for value in holder.variables:  # biases and norms too, which begin as zeros and ones
        value.assign_add(rng.normal(0, 0.1, value.shape))
    return theirs, model, holder


def save_quickly(model, path: str, assets: dict[str, object]) -> str:
    """What `model.save` writes, less the traces for a Keras that is to load it: 1 s."""

    def reusable(model, names):
        saved, call = tf.__internal__.tracking.AutoTrackable(), model.__call__
        saved.variables = list(model.variables)
        saved.__call__ = tf.function(lambda inputs, training: call(inputs, training=training))
        ids = {name: tf.TensorSpec([None, None], tf.int32, name) for name in names}
        saved.__call__.get_concrete_function(ids, training=False)
        return saved

    saved = reusable(model, INPUTS)
    if hasattr(model, "mlm"):
        saved.mlm = reusable(model.mlm, (*INPUTS, "masked_lm_positions"))
    for name, value in assets.items():
        setattr(saved, name, value)
        if isinstance(value, tf.Variable):
            saved.variables.append(value)
    tf.saved_model.save(saved, path)
    return path


@pytest.fixture(scope="module")
def small(tiny) -> AlbertConfig:
    return tiny.replace(num_layers=2)


@pytest.fixture(scope="module")
def least(tiny) -> AlbertConfig:
    return tiny.replace(num_layers=1)


@pytest.fixture(scope="module")
def albert(small, small_tokenizer, tmp_path_factory):
    """(an ALBERT of official with its MLM head, the folder of its module)."""
    folder = tmp_path_factory.mktemp("albert")
    (folder / "30k-clean.model").write_bytes(small_tokenizer.model)
    _, model, _ = of_official(small, with_mlm=True)
    vocabulary = {"sp_model_file": tf.saved_model.Asset(str(folder / "30k-clean.model"))}
    return model, save_quickly(model, str(folder / "module"), vocabulary)


def converted(module: str, folder, policy: MismatchPolicy) -> tuple[Bundle, str]:
    bundle = hub.read(module, policy)
    os.makedirs(folder)
    complete = with_initialized_parts(bundle.config, bundle.weights)
    native.write(Bundle(bundle.config, complete, bundle.tokenizer), str(folder))
    return bundle, str(folder)


def check_outputs(ours, theirs, mask) -> None:
    """Equal to 1e-5 at real positions."""
    for name in ("sequence_output", "encoder_outputs"):
        gap = (np.asarray(ours[name]) - np.asarray(theirs[name])) * mask[..., np.newaxis]
        np.testing.assert_allclose(gap, 0, atol=1e-5)
    np.testing.assert_allclose(ours["pooled_output"], theirs["pooled_output"], atol=1e-5)


def check_folder(module, folder: str, inputs) -> None:
    """The folder's model computes what the module does, masked pieces too."""
    check_outputs(load_encoder(folder)(inputs), module(inputs), inputs["input_mask"])
    if hasattr(module, "mlm"):
        inputs = inputs | {"masked_lm_positions": np.int32([[0, 3], [7, 7], [1, 2]])}
        ours, theirs = load_pretrainer(folder)(inputs), module.mlm(inputs)
        np.testing.assert_allclose(ours["mlm_logits"], theirs["mlm_logits"], atol=1e-5)


@pytest.mark.slow
def test_an_albert_with_its_head_and_vocabulary(
    albert, small, small_tokenizer, fake_inputs, tmp_path
):
    model, module = albert
    bundle, folder = converted(module, tmp_path / "x", NO_PAIR)
    assert bundle.config == small.replace(initializer_range=0.02)  # which no module tells
    assert bundle.tokenizer.model == small_tokenizer.model
    start = StartingPoint.of(folder, None, None)  # what --init makes of it
    assert start.config == bundle.config
    assert start.tokenizer.fingerprint == small_tokenizer.fingerprint
    check_folder(model, folder, fake_inputs(3, 12, (0, 4, 7)))
    query = next(v for v in model.variables if "query/kernel" in v.name).numpy()
    ours = bundle.weights["encoder/stack/attentions/0/query/kernel"]
    assert np.array_equal(ours.reshape(query.shape), query)


@pytest.mark.slow
def test_a_bert_shares_nothing(tiny, fake_inputs, tmp_path):
    config = tiny.replace(sharing="none", embedding_size=32, activation="relu", num_layers=2)
    _, model, _ = of_official(config, with_mlm=False)
    file = tmp_path / "words"
    file.write_text("\n".join(WORDPIECE) + "\n", encoding="utf-8")
    assets = {"vocab_file": tf.saved_model.Asset(str(file))}
    assets |= {"do_lower_case": tf.Variable(False, trainable=False)}  # among the variables
    module = save_quickly(model, str(tmp_path / "module"), assets)
    bundle, folder = converted(module, tmp_path / "x", NO_HEADS)
    assert bundle.config == config.replace(initializer_range=0.02)
    rules = bundle.tokenizer.normalization  # by itself the vocabulary, all lower case, says else
    assert (rules.lowercase, rules.strip_accents, rules.unify_quotes) == (False, False, False)
    check_folder(model, folder, fake_inputs(3, 12, (0, 4, 7)))


@pytest.mark.slow
@pytest.mark.parametrize("changes", [{}, {"sharing": "none", "embedding_size": 32}])
def test_modules_that_export_tfhub_lib_writes(
    changes, tiny, small_tokenizer, fake_inputs, tmp_path
):
    hub_lib = pytest.importorskip("official.nlp.tools.export_tfhub_lib")
    theirs, model, holder = of_official(tiny.replace(**changes), with_mlm=True)
    (tmp_path / "spiece.model").write_bytes(small_tokenizer.model)
    hub_lib.export_model(
        str(tmp_path / "module"),
        encoder_config=theirs,
        model_checkpoint_path=tf.train.Checkpoint(**holder.checkpoint_items).save(
            str(tmp_path / "ckpt")
        ),
        with_mlm=True,
        sp_model_file=str(tmp_path / "spiece.model"),
    )
    bundle, folder = converted(str(tmp_path / "module"), tmp_path / "x", NO_PAIR)
    assert bundle.config == tiny.replace(initializer_range=0.02, **changes)
    assert bundle.tokenizer.model == small_tokenizer.model
    check_folder(
        tf.saved_model.load(str(tmp_path / "module")), folder, fake_inputs(3, 12, (0, 4, 7))
    )
    check_folder(model, folder, fake_inputs(3, 40, (0, 4, 7)))


class Module:
    """A module in memory, of our model under their names, with changes by the tests."""

    def __init__(self, config: AlbertConfig) -> None:
        rng = np.random.default_rng(5)
        shapes = weight_shapes(config)
        weights = {n: rng.normal(0, 0.2, s).astype(np.float32) for n, s in shapes.items()}
        model = AlbertPretrainer(config).create_weights()
        for name, value in weights.items():
            native.variable(model, name).assign(value)
        naming = hub.ALBERT if config.sharing == "all" else hub.BERT
        named = naming.from_ours({n: w for n, w in weights.items() if "pair" not in n})
        for name in (n for n in named if n.endswith("query/kernel")):  # which tells their number
            named[name] = named[name].reshape(config.hidden_size, config.num_heads, -1)
        self.variables = [tf.Variable(value, name=name) for name, value in named.items()]
        self.encode, self.mlm = model.encoder, lambda inputs: model(inputs)

    def __call__(self, inputs):  # the contract does not ask for `training`
        return self.encode(inputs)


@pytest.fixture
def loaded(tmp_path, monkeypatch):
    """(module in memory) -> the path that it is loaded from."""

    def place(module) -> str:
        (tmp_path / "saved_model.pb").touch()
        monkeypatch.setattr(tf.saved_model, "load", lambda path: module)
        return str(tmp_path)

    return place


@pytest.mark.slow
def test_activation_and_epsilons_follow_from_the_outputs(least, loaded):
    config = least.replace(
        sharing="none", activation="relu", layer_norm_eps=1e-5, mlm_layer_norm_eps=1e-3
    )
    assert hub.read(loaded(Module(config)), NO_PAIR).config == config.replace(
        initializer_range=0.02
    )


def test_a_vocabulary_may_lie_beside_the_module(least, loaded, small_tokenizer: Tokenizer):
    path = loaded(Module(least))
    assert hub.read(path, NO_PAIR).tokenizer is None
    with open(os.path.join(path, "spiece.model"), "wb") as file:
        file.write(small_tokenizer.model)
    assert hub.read(path, NO_PAIR).tokenizer.model == small_tokenizer.model


def test_heads_follow_the_rules_of_every_conversion(least, loaded):
    path = loaded(Module(least))
    with pytest.raises(InputError, match=r"2 missing \(pair_head/kernel.*--allow_missing=mlm_head"):
        hub.read(path, MismatchPolicy())
    without = hub.read(path, MismatchPolicy(("pair_head", "mlm_head"), ("cls/predictions",)))
    assert not any(name.startswith("mlm_head") for name in without.weights)


def _other_weights(module):
    module.variables[0].assign(module.variables[0] * 1.1)


def _nan(module):
    module.variables[0].assign(tf.fill(module.variables[0].shape, np.nan))


def _other_names(module):
    module.variables = [tf.Variable(v, name=f"x{i}") for i, v in enumerate(module.variables)]


def _duplicate_weights(module):
    module.variables.append(tf.Variable(module.variables[0], name="word_embeddings/embeddings"))


def _no_layers(module):
    module.encode = lambda inputs: {"default": tf.zeros([2, 4])}


def _other_shape(module):
    encode = module.encode
    module.encode = lambda inputs: encode(inputs) | {"pooled_output": tf.zeros([2, 4])}


def _other_head(module):
    mlm = module.mlm
    module.mlm = lambda inputs: {"mlm_logits": mlm(inputs)["mlm_logits"] + 2e-4}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (_other_weights, "encoder_outputs, sequence_output, pooled_output differ .* at best"),
        (_nan, "by nan at best"),
        (_other_names, "no word_embeddings/embeddings"),
        (_duplicate_weights, "two of its weights are named word_embeddings/embeddings"),
        (_no_layers, "does not return encoder_outputs"),
        (_other_shape, "by inf at best"),
        (_other_head, "mlm_logits differ from its own by 0.0002 at best, more than 0.0001"),
    ],
)
def test_a_module_that_ours_does_not_compute_is_refused(change, message, least, loaded):
    module = Module(least)
    change(module)
    with pytest.raises(InputError, match=message):
        hub.read(loaded(module), NO_PAIR, epsilons=(1e-12,))  # to be refused, all are tried


@pytest.mark.slow
def test_a_command_that_is_given_a_module_tells_how_to_convert_it(albert):
    _, module = albert
    message = f"convert it first: python -m albert_tf.convert --from=hub:{module} --to="
    for command in (load_encoder, lambda path: StartingPoint.of(path, None, None)):
        with pytest.raises(InputNotFoundError, match=re.escape(message)):
            command(module)


def test_an_export_of_ours_needs_no_hub(tmp_path):
    extras = tmp_path / "assets.extra"
    extras.mkdir()
    (extras / "config.json").touch()
    (tmp_path / "saved_model.pb").touch()
    with pytest.raises(InputError, match="pass it without `hub:`"):
        hub.read(str(tmp_path), NO_PAIR)


def test_folders_without_a_module_are_refused(pretrained, tmp_path):
    with pytest.raises(InputNotFoundError, match="Nothing is downloaded"):
        hub.read("https://tfhub.dev/tensorflow/albert_en_base/3", NO_PAIR)
    with pytest.raises(InputNotFoundError, match="no file saved_model.pb"):
        hub.read(pretrained, NO_PAIR)
    (tmp_path / "saved_model.pb").write_bytes(b"torn")
    with pytest.raises(InputError, match="cannot be loaded"):
        hub.read(str(tmp_path), NO_PAIR)
    tf.saved_model.save(tf.Module(), str(tmp_path / "empty"))
    with pytest.raises(InputError, match="cannot be called"):
        hub.read(str(tmp_path / "empty"), NO_PAIR)
