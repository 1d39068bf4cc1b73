"""The config.json keys that Google and Hugging Face have in common, read strictly."""

from collections.abc import Collection, Mapping
from typing import Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError, shortened

KEYS = {
    "vocab_size": "vocab_size",
    "embedding_size": "embedding_size",
    "hidden_size": "hidden_size",
    "num_hidden_layers": "num_layers",
    "num_hidden_groups": "num_groups",
    "num_attention_heads": "num_heads",
    "intermediate_size": "intermediate_size",
    "max_position_embeddings": "max_positions",
    "type_vocab_size": "type_vocab_size",
    "hidden_dropout_prob": "hidden_dropout",
    "attention_probs_dropout_prob": "attention_dropout",
    "initializer_range": "initializer_range",
    "hidden_act": "activation",
}
# Both have defaults for these, but a file without them is damaged. A wrong default for the depth
# would go unnoticed, since shared weights fit any depth.
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# Experimental keys that no released model uses, with the values that turn them off.
FIXED: dict[str, Any] = {
    "inner_group_num": 1,
    "net_structure_type": 0,
    "layers_to_keep": [],
    "gap_size": 0,
    "num_memory_blocks": 0,
    "down_scale_factor": 1,
}


def to_config(
    values: Mapping[str, Any],
    keys: Mapping[str, str],
    activations: Mapping[str, str],
    fixed: Mapping[str, Any],
    inert: Collection[str],
    source: str,
) -> AlbertConfig:
    """Return our configuration for theirs.

    Args:
      values: the contents of their file.
      keys: their key -> ours.
      activations: their name of an activation function -> ours.
      fixed: key -> the only value that our model supports.
      inert: keys that do not affect the model's outputs; they are skipped.
      source: the file's name in messages.

    Raises:
      ConfigError: a key is unknown, a required key is missing, or our model does not support a
        value.
    """
    for key, value in values.items():
        if key in fixed and value != fixed[key]:
            raise ConfigError(
                f"{source!r}: `{key}` must be {fixed[key]!r}; no other value is supported. "
                f"Received: {shortened(value)}."
            )
        if key not in keys and key not in fixed and key not in inert:
            raise ConfigError(
                f"{source!r}: `{key}` is an unknown key and may change what the model computes. "
                f"If it does not, pass --ignore={key}. Received: "
                f"{shortened(value)}."
            )
    if missing := [key for key in REQUIRED if key not in values]:
        raise ConfigError(
            f"{source!r} must contain {', '.join(REQUIRED)}. Missing: {', '.join(missing)}."
        )
    known: dict[str, Any] = {key: values[key] for key in keys if key in values}
    activation = known.get("hidden_act", "gelu_new")
    if str(activation) not in activations:
        raise ConfigError(
            f"{source!r}: `hidden_act` must be one of {', '.join(activations)} (our gelu is the "
            f"tanh form). Received: {shortened(activation)}."
            + (
                " If the weights were nevertheless trained with the tanh form, as Google's were, "
                "pass --ignore=hidden_act."
                if activation == "gelu"
                else ""
            )
        )
    known["hidden_act"] = activations[activation]
    ours = {keys[key]: value for key, value in known.items()}
    config = settings.from_dict(AlbertConfig, ours)
    if config.num_groups == config.num_layers > 1:  # their way to write no sharing
        return config.replace(sharing="none", num_groups=1)
    return config


def from_config(config: AlbertConfig, keys: Mapping[str, str]) -> dict[str, Any]:
    """Return our values under their keys; the activation keeps our name.

    Raises:
      ConfigError: the layers share only attention or only feed-forward weights, or the block is not
        the paper's.
    """
    config.require_known(
        {"activation": ("gelu", "relu")},
        "a model in Google's and Hugging Face's formats",
        "Export the model instead, or copy its folder.",
    )
    if config.sharing in ("attention", "ffn"):
        raise ConfigError(
            "In Google's and Hugging Face's formats, layers share all weights or none. Received: "
            f"`sharing` {config.sharing}. To give each layer its own copy of the weights, which "
            "further training can change separately, pass --init_groups_from_shared "
            "--set sharing=none."
        )
    values: dict[str, Any] = {key: getattr(config, field) for key, field in keys.items()}
    if config.sharing == "none":
        values["num_hidden_groups"] = config.num_layers
    return values | FIXED
