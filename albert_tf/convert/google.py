"""Google's TF1 checkpoints: albert_config.json, model.ckpt-best.*, the vocabulary.

The reader accepts the released archives, TF1 Hub modules (variables under `module/`) and the layout
of github.com/brightmart/albert_zh. It skips step counters and the slots of Adam and LAMB.
"""

import glob
import os

import numpy as np
import tensorflow as tf

from albert_tf.convert import config_keys
from albert_tf.convert.bundle import Bundle, MismatchPolicy, Weights, read_variables
from albert_tf.convert.naming import Naming
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.runtime.files import outputs
from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from albert_tf.text.wordpiece import is_vocabulary

CONFIG_FILE, CHECKPOINT = "albert_config.json", "model.ckpt-best"
_SLOTS = ("/adam_m", "/adam_v", "/Adam", "/Adam_1")
_COUNTERS = ("global_step", "beta1_power", "beta2_power")  # without and with Adam's slots
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_new": "gelu",
    "relu": "relu",
}  # Google's gelu is the tanh form
# BERT's keys in brightmart's files, for a pooler that is not built.
_INERT = {
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
}
# Includes BERT's keys for the layout, with the only values that we support.
_FIXED = config_keys.FIXED | {"directionality": "bidi", "ln_type": "postln"}
_LAYER = "bert/encoder/transformer/group_#/inner_group_0/"
_OUTSIDE_THE_LAYERS = {
    "encoder/embeddings/word_embeddings": "bert/embeddings/word_embeddings",
    "encoder/embeddings/type_embeddings": "bert/embeddings/token_type_embeddings",
    "encoder/embeddings/position_embeddings": "bert/embeddings/position_embeddings",
    "encoder/embeddings/layer_norm": "bert/embeddings/LayerNorm",
    "encoder/embeddings/projection": "bert/encoder/embedding_hidden_mapping_in",
    "encoder/pooler": "bert/pooler/dense",
    "mlm_head/transform": "cls/predictions/transform/dense",
    "mlm_head/layer_norm": "cls/predictions/transform/LayerNorm",
    "mlm_head/bias": "cls/predictions/output_bias",
    "pair_head/dense/kernel": "cls/seq_relationship/output_weights",
    "pair_head/dense/bias": "cls/seq_relationship/output_bias",
}


def _naming(attention: str, norm_1: str, intermediate: str, output: str, norm_2: str) -> Naming:
    layers = {
        **{f"attentions/#/{x}": f"{attention}/self/{x}" for x in ("query", "key", "value")},
        "attentions/#/output_dense": f"{attention}/output/dense",
        "attentions/#/layer_norm": norm_1,
        "feed_forwards/#/intermediate": intermediate,
        "feed_forwards/#/output_dense": output,
        "feed_forwards/#/layer_norm": norm_2,
    }
    return Naming(
        _OUTSIDE_THE_LAYERS | {f"encoder/stack/{ours}": name for ours, name in layers.items()},
        {leaf: f"/{leaf}" for leaf in ("kernel", "bias", "gamma", "beta")},
        lambda ours: ours == "pair_head/dense/kernel",
    )


GOOGLE = _naming(
    f"{_LAYER}attention_1",
    f"{_LAYER}LayerNorm",
    f"{_LAYER}ffn_1/intermediate/dense",
    f"{_LAYER}ffn_1/intermediate/output/dense",
    f"{_LAYER}LayerNorm_1",
)
_SHARED = "bert/encoder/layer_shared"
BRIGHTMART = _naming(
    f"{_SHARED}/attention",
    f"{_SHARED}/attention/output/LayerNorm",
    f"{_SHARED}/intermediate/dense",
    f"{_SHARED}/output/dense",
    f"{_SHARED}/output/LayerNorm",
)


def read(path: str, policy: MismatchPolicy) -> Bundle:
    """Read the checkpoint in a folder or at a prefix such as `albert_base/model.ckpt-best`.

    Raises:
      InputNotFoundError: there is no checkpoint, or no configuration next to it.
      InputError: there are several of either, or they do not fit each other.
    """
    prefix = _prefix(path)
    folders = [os.path.dirname(prefix), os.path.join(os.path.dirname(prefix), "..", "assets")]
    file = _single_file(folders, "*config*.json", "configuration (albert_config.json)")
    values = outputs.read_json(file)
    values = {key: value for key, value in values.items() if key not in policy.ignore}
    config = config_keys.to_config(values, config_keys.KEYS, _ACTIVATIONS, _FIXED, _INERT, file)
    _check_groups(config)
    variables, naming = _variables(prefix, policy), GOOGLE
    if any(name.startswith(_SHARED) for name in variables):
        config, variables = _merge_embedding_factors(config, variables, prefix)
        naming = BRIGHTMART
    weights = naming.to_ours(config, variables, policy, prefix)
    return Bundle(config, weights, _tokenizer(folders))


def check(bundle: Bundle) -> list[str]:
    """Return notes on what their format loses.

    Raises:
      ConfigError: their format cannot represent this model.
      InputError: the model is fine-tuned.
    """
    if bundle.task is not None:
        raise InputError(
            "google: must be given a pretrained model, since it cannot store a task's labels and "
            f"settings. Received: a run of kind {bundle.task.kind!r}. Convert it to huggingface:, "
            "or drop its head with --ignore=head --allow_missing=mlm_head,pair_head."
        )
    config = bundle.config
    _check_groups(config)
    if config.layer_norm_eps != 1e-12:
        raise ConfigError(
            "`layer_norm_eps` must be 1e-12, the only epsilon in Google's LayerNorm. "
            f"Received: {config.layer_norm_eps}. Convert to huggingface: instead."
        )
    notes = []
    if (tokenizer := bundle.tokenizer) and not is_vocabulary(tokenizer.model):
        theirs = Normalization(lowercase=tokenizer.normalization.lowercase)
        if tokenizer.normalization != theirs:
            notes.append(
                "Google's code always strips accents, and keeps `` and '' as they are, unlike this "
                f"vocabulary ({tokenizer.normalization}): texts with them get other ids there."
            )
    if config.mlm_layer_norm_eps != 1e-12:
        notes.append(
            "Google's code uses epsilon 1e-12 in the MLM head's LayerNorm, so predictions for "
            "masked pieces will differ slightly from those with your epsilon "
            f"{config.mlm_layer_norm_eps}."
        )
    return notes


def write(bundle: Bundle, folder: str) -> None:
    """Write the files of a released archive, with exactly its variables."""
    values = config_keys.from_config(bundle.config, config_keys.KEYS)
    outputs.write_json(os.path.join(folder, CONFIG_FILE), values)
    if bundle.tokenizer:
        bundle.tokenizer.save(folder)
    tensors: dict[str, np.ndarray] = GOOGLE.from_ours(bundle.weights)
    tensors["global_step"] = np.array(0, np.int64)
    names = sorted(tensors)
    tf.raw_ops.SaveV2(
        prefix=os.path.join(folder, CHECKPOINT),
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=[tensors[name] for name in names],
    )
    with open(os.path.join(folder, "checkpoint"), "w", encoding="utf-8") as file:
        file.write(f'model_checkpoint_path: "{CHECKPOINT}"\n')


def _check_groups(config: AlbertConfig) -> None:
    groups = config_keys.from_config(config, config_keys.KEYS)["num_hidden_groups"]
    layers = config.num_layers
    for layer in range(layers):
        if int(layer / layers * groups) != layer * groups // layers:
            raise ConfigError(
                f"Google's code rounds when it assigns layers to groups and puts layer {layer} of "
                f"{layers} into a different one of {groups} groups than ours. Such a model can be "
                "neither read nor written."
            )


def _prefix(path: str) -> str:
    if os.path.isfile(f"{path}.index"):
        return path
    if not os.path.isdir(path):
        raise InputNotFoundError(
            f"no folder {path!r} and no file {path}.index (working directory {os.getcwd()}). "
            "Nothing is downloaded: pass the folder of an unpacked archive, or a checkpoint's path "
            "without .index."
        )
    folders = [path, os.path.join(path, "variables")]
    return _single_file(folders, "*.index", "TF1 checkpoint").removesuffix(".index")


def _single_file(folders: list[str], pattern: str, kind: str) -> str:
    paths = [file for folder in folders for file in _files(folder, pattern)]
    if not paths:
        raise InputNotFoundError(
            f"no {kind} in {folders[0]!r}; expected a file {pattern} (working directory "
            f"{os.getcwd()})."
        )
    if len(paths) > 1:
        raise InputError(
            f"there must be exactly one {kind}. Received: "
            f"{', '.join(map(repr, sorted(paths)))}. Pass one checkpoint by its path without "
            ".index, and keep one configuration and one vocabulary next to it."
        )
    return paths[0]


def _files(folder: str, pattern: str) -> list[str]:
    return glob.glob(os.path.join(glob.escape(folder), pattern))


def _variables(prefix: str, policy: MismatchPolicy) -> dict[str, np.ndarray]:
    """Read the model's variables, without the prefix `module/`."""

    def rename(original: str) -> str | None:
        name = original.removeprefix("module/")
        is_ignored = (
            name.rpartition("/")[2] in _COUNTERS
            or name.endswith(_SLOTS)
            or name.startswith(policy.ignore)
        )
        return None if is_ignored else name

    return read_variables(prefix, rename)


def _merge_embedding_factors(
    config: AlbertConfig, variables: Weights, source: str
) -> tuple[AlbertConfig, dict[str, np.ndarray]]:
    """Merge the embedding factors of brightmart's models into one word table.

    These models apply the projection E -> H before they add the position and type embeddings, which
    have width H, and their MLM head applies its transpose. That equals a model with E == H whose
    word table is the product of both factors.
    """
    first, second = "bert/embeddings/word_embeddings", "bert/embeddings/word_embeddings_2"
    if first not in variables or second not in variables:
        raise InputError(f"{source!r} names its layers as albert_zh does but lacks {second}.")
    tables = dict(variables)
    tables[first] = tables[first] @ tables.pop(second)
    return config.replace(embedding_size=config.hidden_size), tables


def _tokenizer(folders: list[str]) -> Tokenizer | None:
    """Load the sentencepiece model or vocab*.txt, with our settings if they are next to it."""
    for pattern in ("*.model", "vocab*.txt"):
        if any(_files(folder, pattern) for folder in folders):
            return load_tokenizer(_single_file(folders, pattern, "vocabulary"))
    return None
