"""The model's configuration, its presets, its sharing plan and its parameter counts."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, NamedTuple

from albert_tf.models.head import HEADS, Head
from albert_tf.models.presets import PRESETS
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.bounds import POSITIVE, Bounded, at_least, at_most, between, one_of
from albert_tf.runtime.errors import ConfigError, InputNotFoundError, in_file, shortened
from albert_tf.runtime.files import outputs, paths

SHARINGS = ("all", "attention", "ffn", "none")
ACTIVATIONS = ("gelu", "relu")
EXTRAS = "assets.extra"  # the folder of an export for config.json and tokenizer/
MAX_PARAMETERS = 10**10  # seven times BERT-xlarge; more is a mistake in a file
NORMS, POSITIONS, FFNS = ("post", "pre"), ("learned", "rotary"), ("plain", "gated")
# The fields that choose what a layer computes. Whatever computes or names layers anew, as other
# formats do, refuses what it does not know (`require_known`).
VARIANTS = ("activation", "norm", "positions", "ffn")


@dataclasses.dataclass(frozen=True)
class AlbertConfig(Bounded):
    """The configuration of an encoder of the ALBERT family (arXiv 1909.11942, Table 1) or of BERT.

    >>> config = albert_tf.AlbertConfig.from_preset("albert-base-v2")
    >>> config.num_layers, config.hidden_size, config.param_count()
    (12, 768, 11683584)
    >>> config.replace(num_layers=24).param_count()  # all layers share one block
    11683584

    If `embedding_size == hidden_size`, no projection follows the embeddings, as in BERT.
    `sharing` sets the weights that the layers of a group share: `all`, only those of the
    `attention` or of the `ffn` sub-layer, or `none`. `num_groups` splits the layers into groups of
    equal length.
    `norm`, `positions` and `ffn` are `post`, `learned` and `plain` in the paper. `pre`, `rotary`
    and `gated` learn faster in short runs. `pre` places a LayerNorm before each sub-layer instead
    of after it, and one after the stack (arXiv 2002.04745). `rotary` encodes positions as rotations
    of queries and keys (arXiv 2104.09864). `gated` adds a gate to the feed-forward (arXiv
    2002.05202) and narrows it to two thirds, so that the number of parameters stays the same.
    `rematerialize` keeps only each layer's input in training and recomputes the rest for the
    gradient. This takes less memory and less compiled code, but a third more arithmetic.
    `rematerialize_chunks` is the number of parts of the batch that are computed one after another.
    Neither changes any result.

    Raises:
      ConfigError: a value is impossible; the message names the key, the rule and the value.
    """

    vocab_size: Annotated[int, POSITIVE, at_most(2**24)] = 30000
    embedding_size: Annotated[int, POSITIVE, at_most(2**16)] = 128
    hidden_size: Annotated[int, POSITIVE, at_most(2**16)] = 768
    num_layers: Annotated[int, POSITIVE, at_most(2**10)] = 12
    num_heads: Annotated[int, POSITIVE, at_most(2**16)] = 12
    intermediate_size: Annotated[int, POSITIVE, at_most(2**18)] = 3072
    max_positions: Annotated[int, at_least(4), at_most(2**20)] = 512
    type_vocab_size: Annotated[int, POSITIVE, at_most(2**16)] = 2
    sharing: Annotated[str, one_of(*SHARINGS)] = "all"
    num_groups: Annotated[int, POSITIVE, at_most(2**10)] = 1
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
    rematerialize_chunks: Annotated[int, POSITIVE, at_most(2**16)] = 1

    def __post_init__(self) -> None:
        settings.require_types(self)
        super().__post_init__()
        self._must_divide("num_heads", "hidden_size")
        self._must_divide("num_groups", "num_layers")
        if self.sharing == "none" and self.num_groups != 1:
            raise ConfigError(
                "`num_groups` must be 1 if `sharing` is none, since no layers share weights. "
                f"Received: num_groups={self.num_groups}."
            )
        if self.rematerialize_chunks > 1 and not self.rematerialize:
            raise ConfigError(
                "`rematerialize_chunks` must be 1 if `rematerialize` is false. Set both. "
                f"Received: rematerialize_chunks={self.rematerialize_chunks}."
            )

        if self.positions == "rotary" and self.head_size % 2:
            raise ConfigError(
                "`hidden_size` / `num_heads` must be even if `positions` is rotary. "
                f"Received: {self.hidden_size} / {self.num_heads}."
            )
        if (count := self.param_count()) > MAX_PARAMETERS:
            raise ConfigError(
                f"a model must have at most {MAX_PARAMETERS:,} parameters. Received: {count:,}. "
                "Lower `hidden_size`, `intermediate_size`, `vocab_size` or `embedding_size`, or "
                "share more layers."
            )

    def _must_divide(self, part: str, whole: str) -> None:
        if getattr(self, whole) % getattr(self, part):
            raise ConfigError(
                f"`{part}` must divide `{whole}`. "
                f"Received: {part}={getattr(self, part)}, {whole}={getattr(self, whole)}."
            )

    def require_known(self, known: Mapping[str, Sequence[Any]], what: str, remedy: str) -> None:
        """Check that something knows the layers of this model.

        Args:
          known: a field of VARIANTS -> the values it knows; of other fields, the default.
          what: what must have these values, for the message.
          remedy: the end of the message.

        Raises:
          ConfigError: a field of VARIANTS has another value.
        """
        for field in dataclasses.fields(self):
            values, value = known.get(field.name, (field.default,)), getattr(self, field.name)
            if field.name in VARIANTS and value not in values:
                raise ConfigError(
                    f"{what} must have `{field.name}` {' or '.join(map(str, values))}. "
                    f"Received: {value!r}. {remedy}"
                )

    @property
    def has_one_block(self) -> bool:
        """True if all layers share all their weights."""
        return self.sharing == "all" and self.num_groups == 1

    @property
    def head_size(self) -> int:
        """The width of one attention head."""
        return self.hidden_size // self.num_heads

    @property
    def inner_size(self) -> int:
        """The input width of the feed-forward's second matrix product."""
        if self.ffn == "plain":
            return self.intermediate_size
        return max(1, round(self.intermediate_size / 12)) * 8  # 2 / 3, rounded to a multiple of 8

    @classmethod
    def from_preset(cls, name: str) -> "AlbertConfig":
        """Return the configuration of a published or an included model, e.g. `albert-base-v2`.

        Raises:
          ConfigError: there is no preset of this name.
        """
        if name in pretrained.names():
            return cls.from_json(os.path.join(pretrained.locate(name), "config.json"))
        if name not in PRESETS:
            raise ConfigError(settings.unknown_key(name, [*pretrained.names(), *PRESETS], "preset"))
        return cls(**PRESETS[name])

    @classmethod
    def from_json(cls, path: str | os.PathLike[str]) -> "AlbertConfig":
        """Read a config.json with the model's keys at the top, or under `model` as in a run.

        `path` is the file, its folder, or the versioned folder of an export.

        Raises:
          InputNotFoundError: there is no such file.
          InputError: the file is not JSON or is not a configuration of albert_tf.
        """
        path = paths.expand(os.fspath(path))
        if os.path.isdir(path):
            exported = os.path.join(path, EXTRAS, "config.json")
            path = exported if os.path.isfile(exported) else os.path.join(path, "config.json")
        if not os.path.isfile(path):
            raise InputNotFoundError(
                f"no config file {path!r} (working directory {os.getcwd()}). Pass a run folder, a "
                "converted folder, or an exported encoder with its version (export/encoder/1). "
                "A checkpoint of Google or Hugging Face must be converted first: python -m "
                "albert_tf.convert --from=google:DIR (or huggingface:DIR) --to=FOLDER."
            )
        values = outputs.read_json(path)
        model = values.get("model", values)
        if not isinstance(model, dict):
            raise ConfigError(
                f"{path!r} must contain the model's keys. Received: {shortened(model)}."
            )
        if "registered_name" in model:
            raise ConfigError(
                f"{path!r} is a configuration of Keras. Pass the folder of the same model as "
                "Hugging Face has it, converted by python -m albert_tf.convert "
                "--from=huggingface:DIR --to=FOLDER."
            )
        if "num_hidden_layers" in model:
            raise ConfigError(
                f"{path!r} is a configuration of Google or Hugging Face: convert the folder first, "
                "python -m albert_tf.convert --from=huggingface:DIR (or google:DIR) --to=FOLDER."
            )
        with in_file(path):
            return cls.from_dict(model)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> "AlbertConfig":
        """Build a config from plain values; the error for an unknown key suggests a similar one."""
        return settings.from_dict(cls, values)

    def replace(self, **changes: Any) -> "AlbertConfig":
        """Return a copy with the changed values, validated again."""
        return settings.from_dict(AlbertConfig, settings.to_dict(self) | changes)

    def param_count(self) -> int:
        """Return the number of parameters of the encoder with its pooler, without heads.

        It equals that of the built model.
        """
        return sum(param_counts(self).values())


class LayerWeights(NamedTuple):
    """The weights of a layer: indices into the stack's attention and FFN sub-layers."""

    attention: int
    ffn: int


def sharing_plan(config: AlbertConfig) -> tuple[LayerWeights, ...]:
    """Return, for each layer, the sub-layers that it uses (paper section 4.5, Table 4).

    >>> sharing_plan(AlbertConfig(num_layers=4, num_groups=2))
    ((0, 0), (0, 0), (1, 1), (1, 1))
    """
    # Integer arithmetic: int(layer / num_layers * num_groups) misplaces layers for odd sizes.
    groups = [layer * config.num_groups // config.num_layers for layer in range(config.num_layers)]
    separate = range(config.num_layers)
    attention = groups if config.sharing in ("all", "attention") else separate
    ffn = groups if config.sharing in ("all", "ffn") else separate
    return tuple(LayerWeights(a, f) for a, f in zip(attention, ffn, strict=True))


def param_counts(config: AlbertConfig) -> dict[str, int]:
    """Return the number of parameters of each component of the encoder, in closed form."""
    e, h, f = config.embedding_size, config.hidden_size, config.inner_size
    plan = sharing_plan(config)
    tables = config.vocab_size + config.type_vocab_size
    tables += config.max_positions if config.positions == "learned" else 0
    first = f if config.ffn == "plain" else 2 * f  # with the gate
    counts = {
        "embeddings": tables * e + 2 * e,
        "projection": e * h + h if e != h else 0,
        "attention": len({layer.attention for layer in plan}) * (4 * (h * h + h) + 2 * h),
        "feed_forward": len({layer.ffn for layer in plan})
        * (h * first + first + f * h + h + 2 * h),
        "pooler": h * h + h,
    }
    return counts | ({"output_layer_norm": 2 * h} if config.norm == "pre" else {})


def layer_flops(config: AlbertConfig, width: Any, queries: Any) -> Any:
    """Return the FLOPs of the matrix products of a layer for a sequence; numbers or arrays.

    A multiply-add counts as two.

    Args:
      config: the model.
      width: the positions of the sequence, padding included.
      queries: the number of those whose output is computed.
    """
    hidden = config.hidden_size
    inner = config.inner_size * (2 if config.ffn == "plain" else 3)
    projections = 3 * width * hidden**2 + queries * hidden**2
    return 2 * (projections + queries * hidden * inner) + 4 * queries * width * hidden


def head_param_counts(config: AlbertConfig, heads: Sequence[Head] = HEADS) -> dict[str, int]:
    """Return the number of parameters of the pretraining heads.

    The output matrix of the MLM head is the word table, which is not counted.
    """
    e, h = config.embedding_size, config.hidden_size
    mlm = h * e + e + 2 * e + config.vocab_size
    return {head.layer: head.num_classes * (h + 1) if head.num_classes else mlm for head in heads}
