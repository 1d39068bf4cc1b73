"""The kinds of tasks, and what can be exported, by name."""

from typing import Any

from albert_tf.tasks.classifier.kind import Classifier
from albert_tf.tasks.embedding.kind import Embedding
from albert_tf.tasks.kind import Export, Kind
from albert_tf.tasks.multi_label.kind import MultiLabel
from albert_tf.tasks.multiple_choice.kind import MultipleChoice
from albert_tf.tasks.pretrained.encoder import Encoder
from albert_tf.tasks.pretrained.fill_mask import FillMaskExport
from albert_tf.tasks.pretrained.preprocessing import Preprocessing
from albert_tf.tasks.ranking.kind import Ranking
from albert_tf.tasks.regressor.kind import Regressor
from albert_tf.tasks.spans.kind import Span
from albert_tf.tasks.tokens.kind import Tokens

KINDS: dict[str, Kind[Any]] = {
    "classifier": Classifier(),
    "multi_label": MultiLabel(),
    "regressor": Regressor(),
    "multiple_choice": MultipleChoice(),
    "span": Span(),
    "token_classifier": Tokens(),
    "embedding": Embedding(),
    "ranking": Ranking(),
}
# What needs no task; a pretraining run exports the first one by default.
PRETRAINED: dict[str, Export] = {
    "encoder": Encoder(),
    "preprocessing": Preprocessing(),
    "fill_mask": FillMaskExport(),
}
EXPORTS: dict[str, Export] = {**PRETRAINED, **KINDS}
