"""The model's configuration, its presets, and two pure functions of it: weight plan and size."""

import dataclasses
import json
import os
from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, Bounded, between, one_of
from albert_tf.runtime.errors import ConfigError, InputNotFoundError, reading

SHARINGS = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "relu")
NORMS, POSITIONS, FFNS = ("post", "pre"), ("learned", "rotary"), ("plain", "gated")


@dataclasses.dataclass(frozen=True)
class AlbertConfig(Bounded):
    """An encoder of the ALBERT family (arXiv 1909.11942, Table 1), BERT's shape included.

    `embedding_size == hidden_size` means no projection after the embeddings, as in BERT.
    `sharing` says what the layers of a group have in common: `all` weights, the `attention` or the
    `ffn` sub-layer alone, or `none`; `num_groups` splits the layers into equal runs.
    `norm`, `positions` and `ffn` are `post`, `learned` and `plain` in the paper. `pre`, `rotary`
    and `gated` learn sooner in short runs: LayerNorm before each sub-layer instead of behind it,
    and once behind the stack (arXiv 2002.04745); positions as rotations of queries and keys (arXiv
    2104.09864); and a feed-forward with a gate (arXiv 2002.05202), two thirds as wide, so that it
    has as many parameters.
    `rematerialize` keeps, in training, each layer's input alone and computes the rest again for the
    gradient: less memory and code, a third more arithmetic; `rematerialize_chunks` says in how many
    parts of the batch, one after the other. They change no result.

    Raises:
      ConfigError: for an impossible value; the message names the key, the rule and the value.
    """

    vocab_size: Annotated[int, POSITIVE] = 30000
    embedding_size: Annotated[int, POSITIVE] = 128
    hidden_size: Annotated[int, POSITIVE] = 768
    num_layers: Annotated[int, POSITIVE] = 12
    num_heads: Annotated[int, POSITIVE] = 12
    intermediate_size: Annotated[int, POSITIVE] = 3072
    max_positions: Annotated[int, POSITIVE] = 512
    type_vocab_size: Annotated[int, POSITIVE] = 2
    sharing: Annotated[str, one_of(*SHARINGS)] = "all"
    num_groups: Annotated[int, POSITIVE] = 1
    activation: Annotated[str, one_of(*ACTIVATIONS)] = "gelu"
    norm: Annotated[str, one_of(*NORMS)] = "post"
    positions: Annotated[str, one_of(*POSITIONS)] = "learned"
    ffn: Annotated[str, one_of(*FFNS)] = "plain"
    hidden_dropout: Annotated[float, between("[0, 1)")] = 0.0
    attention_dropout: Annotated[float, between("[0, 1)")] = 0.0
    initializer_range: Annotated[float, POSITIVE] = 0.02
    layer_norm_eps: Annotated[float, POSITIVE] = 1e-12
    mlm_layer_norm_eps: Annotated[float, POSITIVE] = 1e-12
    rematerialize: bool = False
    rematerialize_chunks: Annotated[int, POSITIVE] = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._must_divide("num_heads", "hidden_size")
        self._must_divide("num_groups", "num_layers")
        if self.sharing == "none" and self.num_groups != 1:
            raise ConfigError(
                "`num_groups` must be 1 where `sharing` is none: no layers share anything. "
                f"Received: num_groups={self.num_groups}."
            )
        if self.rematerialize_chunks > 1 and not self.rematerialize:
            raise ConfigError(
                "`rematerialize_chunks` must be 1 where `rematerialize` is false: set both. "
                f"Received: rematerialize_chunks={self.rematerialize_chunks}."
            )

        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                "`hidden_size` / `num_heads` must be even where `positions` is rotary. "
                f"Received: {self.hidden_size} / {self.num_heads}."
            )

    def _must_divide(self, part: str, whole: str) -> None:
        if getattr(self, whole) % getattr(self, part):
            raise ConfigError(
                f"`{part}` must divide `{whole}`. "
                f"Received: {part}={getattr(self, part)}, {whole}={getattr(self, whole)}."
            )

    @property
    def head_size(self) -> int:
        """Width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def inner_size(self) -> int:
        """Width of what the feed-forward's second product takes."""
        if self.ffn == "plain":
            return self.intermediate_size
        return max(1, round(self.intermediate_size / 12)) * 8  # 2 / 3, a multiple of 8

    @classmethod
    def from_preset(cls, name: str) -> "AlbertConfig":
        """The configuration of a published model, e.g. `albert-base-v2`, or of a shipped one."""
        if name in pretrained.names():
            return cls.from_json(os.path.join(pretrained.locate(name), "config.json"))
        if name not in PRESETS:
            raise ConfigError(settings.unknown_key(name, PRESETS, "preset"))
        return cls(**PRESETS[name])

    @classmethod
    def from_json(cls, path: str) -> "AlbertConfig":
        """Reads a config.json: the model's keys alone, or under `model` as a run writes them."""
        if not os.path.isfile(path):
            raise InputNotFoundError(
                f"no config file {path!r} (working folder {os.getcwd()}). Pass a run, a converted "
                "folder, or an exported encoder with its version (export/encoder/1); what is "
                "Google's or Hugging Face's goes through albert_tf.convert, named google:DIR or "
                "huggingface:DIR."
            )
        with reading(path), open(path, encoding="utf-8") as file:
            try:
                values = json.load(file)
            except ValueError as error:
                raise ConfigError(f"{path!r} must be JSON: {error}.") from None
        model = values.get("model", values) if isinstance(values, dict) else values
        if not isinstance(model, dict):
            raise ConfigError(f"{path!r} must hold the model's keys. Received: {model!r}.")
        if "num_hidden_layers" in model:
            raise ConfigError(
                f"{path!r} is Google's or Hugging Face's configuration: convert the folder first, "
                "python -m albert_tf.convert --from=huggingface:DIR (or google:DIR) --to=FOLDER."
            )
        return cls.from_dict(model)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AlbertConfig":
        """Builds a config from plain values; an unknown key is an error that names a near one."""
        return settings.from_dict(cls, values)

    def replace(self, **changes: Any) -> "AlbertConfig":
        """A copy with other values, validated again."""
        return settings.from_dict(AlbertConfig, settings.to_dict(self) | changes)

    def param_count(self) -> int:
        """Parameters of the encoder with pooler, without heads: equal to the built model's."""
        return sum(param_counts(self).values())


class LayerWeights(NamedTuple):
    """Which weights a layer uses: indices into the stack's attention and FFN sub-layers."""

    attention: int
    ffn: int


def sharing_plan(config: AlbertConfig) -> tuple[LayerWeights, ...]:
    """For each layer, the sub-layers that it uses (paper section 4.5, Table 4).

    >>> sharing_plan(AlbertConfig(num_layers=4, num_groups=2))
    ((0, 0), (0, 0), (1, 1), (1, 1))
    """
    # Integer arithmetic: int(layer / num_layers * num_groups) misplaces layers for odd sizes.
    groups = [layer * config.num_groups // config.num_layers for layer in range(config.num_layers)]
    own = range(config.num_layers)
    attention = groups if config.sharing in ("all", "attention") else own
    ffn = groups if config.sharing in ("all", "ffn") else own
    return tuple(LayerWeights(a, f) for a, f in zip(attention, ffn, strict=True))


def param_counts(config: AlbertConfig) -> dict[str, int]:
    """Parameters of each component of the encoder, in closed form."""
    e, h, f = config.embedding_size, config.hidden_size, config.inner_size
    plan = sharing_plan(config)
    tables = config.vocab_size + config.type_vocab_size
    tables += config.max_positions if config.positions == "learned" else 0
    first = f if config.ffn == "plain" else 2 * f  # with the gate's
    counts = {
        "embeddings": tables * e + 2 * e,
        "projection": e * h + h if e != h else 0,
        "attention": len({layer.attention for layer in plan}) * (4 * (h * h + h) + 2 * h),
        "feed_forward": len({layer.ffn for layer in plan})
        * (h * first + first + f * h + h + 2 * h),
        "pooler": h * h + h,
    }
    return counts | ({"output_layer_norm": 2 * h} if config.norm == "pre" else {})


def head_param_counts(config: AlbertConfig) -> dict[str, int]:
    """Parameters of the two pretraining heads; the MLM head's matrix is the word table's."""
    e, h = config.embedding_size, config.hidden_size
    return {"mlm_head": h * e + e + 2 * e + config.vocab_size, "pair_head": 2 * h + 2}


def _presets() -> dict[str, dict[str, Any]]:
    # Table 1: layers, hidden size, feed-forward size, heads. xlarge has heads of 128 (paper's own
    # choice in the released checkpoints: 16 heads), all others of 64.
    shapes = {
        "base": (12, 768, 3072, 12),
        "large": (24, 1024, 4096, 16),
        "xlarge": (24, 2048, 8192, 16),
        "xxlarge": (12, 4096, 16384, 64),
    }
    # Google's Chinese models: BERT's Chinese WordPiece vocabulary, ReLU, and where they differ.
    chinese = {"vocab_size": 21128, "activation": "relu"}
    chinese_own = {
        "xlarge": {"initializer_range": 0.014},
        "xxlarge": {"initializer_range": 0.01, "num_heads": 16},
    }
    keys = ("num_layers", "hidden_size", "intermediate_size", "num_heads")
    presets: dict[str, dict[str, Any]] = {
        "albert-tiny": dict(zip(keys, (4, 128, 512, 4), strict=True)) | {"embedding_size": 64}
    }
    for name, shape in shapes.items():
        values = dict(zip(keys, shape, strict=True))
        dropout = 0.0 if name == "xxlarge" else 0.1  # v1 was released with dropout but for xxlarge
        presets[f"albert-{name}-v1"] = values | _dropout(dropout)
        presets[f"albert-{name}-v2"] = values | _dropout(0.0)
        presets[f"albert-{name}-zh"] = values | chinese | chinese_own.get(name, {}) | _dropout(0.0)
        if name != "xxlarge":
            bert = {"sharing": "none", "embedding_size": values["hidden_size"]}
            presets[f"bert-{name}"] = values | bert | _dropout(0.1)
    return presets


def _dropout(rate: float) -> dict[str, float]:
    return {"hidden_dropout": rate, "attention_dropout": rate}


PRESETS = _presets()
