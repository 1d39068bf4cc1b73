"""The values of `objective.pair`, and the section `objective` of a run's configuration."""

import dataclasses
from typing import Annotated

from albert_tf.runtime.bounds import POSITIVE, Bound, Bounded
from data.objectives import DEFAULT_PAIR
from data.objectives.next_sentence import NextSentence
from data.objectives.pair_objective import NoPairs, PairObjective
from data.objectives.sentence_order import SentenceOrder

OBJECTIVES: dict[str, PairObjective] = {
    objective.name: objective
    for objective in (
        SentenceOrder(),
        NextSentence(),
        NoPairs(),
    )
}


@dataclasses.dataclass(frozen=True)
class ObjectiveConfig(Bounded):
    """The objective of pairs beside masked LM, with labels in equal shares.

    Attributes:
      pair: its name in OBJECTIVES. `sop`: the segments are in order (0) or swapped (1) (paper,
        section 3.1). `nsp`: the second segment follows the first (0) or is from another document
        (1). `none`: no prediction; the segments stay in order.
      pair_weight: the factor of the pair loss in the training loss; 1 in the paper. A batch has far
        fewer pairs than masked pieces, so in small batches the noise of their gradient slows the
        masked LM down (docs/findings.md); 0.1 avoids that.
    """

    KEY = "`objective.{}`"

    pair: Annotated[str, Bound(f"be one of {', '.join(OBJECTIVES)}", OBJECTIVES.__contains__)] = (
        DEFAULT_PAIR
    )
    pair_weight: Annotated[float, POSITIVE] = 1.0

    @property
    def of_pairs(self) -> PairObjective:
        """The objective that `pair` names."""
        return OBJECTIVES[self.pair]

    @property
    def factors(self) -> tuple[float, ...]:
        """The factor of each objective's loss."""
        return 1.0, self.pair_weight
