"""Google's and Hugging Face's config.json: the same keys, read strictly."""

from collections.abc import Collection, Mapping
from typing import Any

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.errors import ConfigError

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
# Both have defaults for these, but a file without them is a torn one: weights that are shared fit
# any depth.
REQUIRED = (
    "vocab_size",
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "intermediate_size",
)
# Keys of experiments that no released model uses, with the values that mean "none".
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
    """Their configuration as ours.

    Args:
      values: what their file holds.
      keys: their key -> ours.
      activations: their name of a function -> ours.
      fixed: keys that must have this value, since we have nothing for another.
      inert: keys that change no number, and are passed over.
      source: the file's name in messages.

    Raises:
      ConfigError: a key that is none of these, or a value that our model has nothing for.
    """
    for key, value in values.items():
        if key in fixed and value != fixed[key]:
            raise ConfigError(
                f"{source!r}: `{key}` must be {fixed[key]!r}: no other is supported. "
                f"Received: {value!r}."
            )
        if key not in keys and key not in fixed and key not in inert:
            raise ConfigError(
                f"{source!r}: `{key}` is no key that we know, and it may change what the model "
                f"computes. If it does not, pass --ignore={key}. Received: {value!r}."
            )
    if missing := [key for key in REQUIRED if key not in values]:
        raise ConfigError(
            f"{source!r} must say {', '.join(REQUIRED)}. Missing: {', '.join(missing)}."
        )
    known: dict[str, Any] = {key: values[key] for key in keys if key in values}
    activation = known.get("hidden_act", "gelu_new")
    if activation not in activations:
        raise ConfigError(
            f"{source!r}: `hidden_act` must be one of {', '.join(activations)} (gelu in its tanh "
            f"form). Received: {activation!r}."
            + (
                " Where the weights were trained with the tanh form all the same, as Google's "
                "were, pass --ignore=hidden_act."
                if activation == "gelu"
                else ""
            )
        )
    known["hidden_act"] = activations[activation]
    ours = {keys[key]: value for key, value in known.items()}
    config = settings.from_dict(AlbertConfig, ours)
    if config.num_groups == config.num_layers > 1:  # as they write out what shares nothing
        return config.replace(sharing="none", num_groups=1)
    return config


def from_config(config: AlbertConfig, keys: Mapping[str, str]) -> dict[str, Any]:
    """Our values under their keys; the activation keeps our name.

    Raises:
      ConfigError: layers share attention or feed-forward weights alone, or the block is not the
        paper's.
    """
    for key, paper in {"norm": "post", "positions": "learned", "ffn": "plain"}.items():
        if (value := getattr(config, key)) != paper:
            raise ConfigError(
                f"Google's and Hugging Face's models have the paper's block, `{key}` {paper}. "
                f"Received: {value!r}. Export it, or copy the folder as it is."
            )
    if config.sharing in ("attention", "ffn"):
        raise ConfigError(
            "Google's and Hugging Face's models share whole layers or nothing. Received: `sharing` "
            f"{config.sharing}. To give each layer a copy of its weights, which trains as another "
            "model, pass --init_groups_from_shared --set sharing=none."
        )
    values: dict[str, Any] = {theirs: getattr(config, ours) for theirs, ours in keys.items()}
    if config.sharing == "none":
        values["num_hidden_groups"] = config.num_layers
    return values | FIXED
