"""Workloads: the shapes of a pretraining step, its arithmetic and its batch."""

import dataclasses

import numpy as np

from albert_tf.info import bert_of_same_shape
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError


@dataclasses.dataclass(frozen=True)
class Workload:
    """A model and the batch to train it on: B rows of S pieces, P of them predicted.

    Attributes:
      model: the configuration of the model.
      batch_size: B.
      seq_length: S.
      predictions: P.
      batch: an .npz file of the batch; without it, full rows of random pieces.
    """

    model: AlbertConfig
    batch_size: int
    seq_length: int
    predictions: int
    batch: str | None = None

    def as_bert(self) -> "Workload":
        """Return the workload with the BERT of the same shape."""
        return dataclasses.replace(self, model=bert_of_same_shape(self.model))


_BASE = AlbertConfig.from_preset("albert-base-v2")
_SMALL = AlbertConfig(hidden_size=256, num_layers=6, num_heads=4, intermediate_size=1024)
WORKLOADS = {
    "base128": Workload(_BASE, batch_size=8, seq_length=128, predictions=20),
    "base512": Workload(_BASE, batch_size=2, seq_length=512, predictions=77),
    "small128": Workload(_SMALL, batch_size=32, seq_length=128, predictions=20),
    "laptop64": Workload(
        AlbertConfig(
            vocab_size=8000,
            embedding_size=64,
            hidden_size=128,
            num_layers=4,
            num_heads=2,
            intermediate_size=512,
        ),
        batch_size=32,
        seq_length=64,
        predictions=10,
    ),
    "large128": Workload(
        AlbertConfig.from_preset("albert-large-v2"), batch_size=8, seq_length=128, predictions=20
    ),
    "tiny": Workload(
        AlbertConfig.from_preset("albert-tiny").replace(vocab_size=1000, num_layers=2),
        batch_size=2,
        seq_length=16,
        predictions=3,
    ),
}


def step_flops(workload: Workload) -> int:
    """Return the floating-point operations of the matrix products of a training step.

    Forward, with T = B S: each layer 2 T (4 H H + 2 H F) for the dense layers and 4 T S H for
    attention's two products; embeddings 2 T E H if E != H; pooler 2 B H H; MLM head 2 B P
    (H E + E V); pair head 4 B H. The backward pass differentiates each product with respect to both
    factors, so that a step is 3 x forward.
    """
    model = workload.model
    h, f, e = model.hidden_size, model.intermediate_size, model.embedding_size
    b, tokens = workload.batch_size, workload.batch_size * workload.seq_length
    layer = 2 * tokens * (4 * h * h + 2 * h * f) + 4 * tokens * workload.seq_length * h
    projection = 2 * tokens * e * h if e != h else 0
    heads = 2 * b * workload.predictions * (h * e + e * model.vocab_size) + 4 * b * h
    return 3 * (model.num_layers * layer + projection + 2 * b * h * h + heads)


def batch_of(workload: Workload) -> dict[str, np.ndarray]:
    """Return the workload's batch."""
    if workload.batch is None:
        return random_batch(workload)
    with np.load(workload.batch) as arrays:
        return dict(arrays)


def batch_of_records(workload: Workload, folder: str) -> dict[str, np.ndarray]:
    """Return the first batch of records, with its padding.

    Raises:
      InputError: the records have another length or a larger vocabulary.
    """
    from data.objectives.masking import MaskingConfig
    from data.objectives.sentence_order import SentenceOrder
    from data.pipeline.batches import Records, training_batches

    records = Records.open(folder)
    length, vocabulary = records.manifest.seq_length, records.manifest.vocab_size
    if length != workload.seq_length or vocabulary > workload.model.vocab_size:
        raise InputError(
            f"--data must have {workload.seq_length} pieces per sequence and at most "
            f"{workload.model.vocab_size} in the vocabulary. Received: {length} and {vocabulary}."
        )
    masking = MaskingConfig(max_predictions=workload.predictions)
    batches = training_batches(records, SentenceOrder(), masking, workload.batch_size, seed=0)
    return {name: value.numpy() for name, value in next(iter(batches)).items()}


def random_batch(workload: Workload, seed: int = 0) -> dict[str, np.ndarray]:
    """Return a batch with the names of `data.records.schema`.

    It has full rows, two segments and random pieces.
    """
    rng = np.random.default_rng(seed)
    shape, slots = (
        (workload.batch_size, workload.seq_length),
        (workload.batch_size, workload.predictions),
    )
    chosen = [
        rng.permutation(workload.seq_length)[: workload.predictions]
        for _ in range(workload.batch_size)
    ]
    segments = np.arange(workload.seq_length) >= workload.seq_length // 2
    return {
        "input_word_ids": rng.integers(5, workload.model.vocab_size, shape, np.int32),
        "input_mask": np.ones(shape, np.int32),
        "input_type_ids": np.tile(segments.astype(np.int32), (workload.batch_size, 1)),
        "masked_lm_positions": np.sort(np.array(chosen, np.int32), axis=1),
        "masked_lm_ids": rng.integers(5, workload.model.vocab_size, slots, np.int32),
        "masked_lm_weights": np.ones(slots, np.float32),
        "pair_label": rng.integers(0, 2, workload.batch_size, np.int32),
        "pair_weight": np.ones(workload.batch_size, np.float32),
    }
