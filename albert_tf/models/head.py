"""Pretraining heads: their input and their number of classes."""

import dataclasses
import os
from typing import Annotated, Any

from albert_tf.runtime import settings
from albert_tf.runtime.bounds import Bounded, at_least, one_of
from albert_tf.runtime.errors import ConfigError, shortened
from albert_tf.runtime.files import outputs

POOLED_OUTPUT, MASKED_POSITIONS = "pooled_output", "masked_positions"


@dataclasses.dataclass(frozen=True)
class Head(Bounded):
    """A head that a pretraining objective declares; `AlbertPretrainer` builds it.

    Attributes:
      name: in the names of its weights, NAME_head, of its logits, NAME_logits, and of its metrics,
        loss/NAME and accuracy/NAME.
      input: `pooled_output`, with a prediction for each sequence, or `masked_positions`.
      num_classes: None: the vocabulary, with the word embeddings as output matrix. This is the
        head of masked positions, and only theirs.
    """

    KEY = "`heads.{}`"

    name: str
    input: Annotated[str, one_of(POOLED_OUTPUT, MASKED_POSITIONS)]
    num_classes: Annotated[int | None, at_least(2)] = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.input == MASKED_POSITIONS) != (self.num_classes is None):
            raise ConfigError(
                "`heads.num_classes` must be null, the vocabulary, for masked_positions and a "
                f"number for pooled_output. Received: {self.num_classes} for {self.input}."
            )

    @property
    def layer(self) -> str:
        """The name of the model's layer and the beginning of its weights' names."""
        return f"{self.name}_head"

    @property
    def logits(self) -> str:
        """The name of the model's output."""
        return f"{self.name}_logits"


MLM_HEAD, PAIR_HEAD = Head("mlm", MASKED_POSITIONS), Head("pair", POOLED_OUTPUT, 2)
HEADS = (MLM_HEAD, PAIR_HEAD)  # ALBERT's own


def load_heads(folder: str) -> tuple[Head, ...]:
    """Return the heads of a run or converted folder: ALBERT's own unless config.json has others.

    Raises:
      InputError: `heads` of config.json is not a list of heads.
    """
    return parse_heads(outputs.read_json(os.path.join(folder, "config.json")).get("heads"))


def parse_heads(values: Any) -> tuple[Head, ...]:
    """Return the heads that a list of dicts describes, or ALBERT's own if it is None.

    Raises:
      ConfigError: it is not a list of heads with different names, the first of which is the MLM
        head.
    """
    if values is None:
        return HEADS
    if not isinstance(values, list):
        raise ConfigError(f"`heads` must be a list. Received: {shortened(values)}.")
    heads = tuple(settings.from_dict(Head, value, "heads.") for value in values)
    if heads[:1] != (MLM_HEAD,) or len({head.name for head in heads}) < len(heads):
        raise ConfigError(
            "`heads` must have different names and begin with the MLM head. "
            f"Received: {shortened(values)}."
        )
    return heads
