"""The base class of pretraining objectives: a head, labels, and the sums of a batch."""

from albert_tf.models.head import Head


class Objective:
    """A classification by which the model learns.

    Attributes:
      name: in messages and, for objectives of pairs, in `objective.pair`.
      labels: the feature of a batch with the right classes, int32 [B] or [B, P].
      weights: the feature with a weight for each of them, float32; 0 where there is no label.
      is_trained: False if it has no part in the loss.
    """

    name: str
    labels: str
    weights: str
    is_trained = True

    @property
    def head(self) -> Head:
        """The head that it declares, whose name the sums and the metrics have too."""
        raise NotImplementedError

    @property
    def sums(self) -> tuple[str, str, str]:
        """The names of the sums of losses, of correct predictions and of weights of a batch."""
        name = self.head.name
        return f"{name}_loss", f"{name}_correct", f"{name}_count"

    @property
    def metrics(self) -> tuple[str, str]:
        """The names of the mean loss and of the accuracy."""
        return f"loss/{self.head.name}", f"accuracy/{self.head.name}"
