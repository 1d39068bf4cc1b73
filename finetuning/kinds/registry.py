"""The kinds in fine-tuning, by name."""

from finetuning.kinds.classifier import Classifier
from finetuning.kinds.embedding import Embedding
from finetuning.kinds.kind import FinetuningKind
from finetuning.kinds.multi_label import MultiLabel
from finetuning.kinds.multiple_choice import MultipleChoice
from finetuning.kinds.ranking import Ranking
from finetuning.kinds.regressor import Regressor
from finetuning.kinds.spans import Span
from finetuning.kinds.tokens import Tokens

FINETUNING: dict[str, FinetuningKind] = {
    "classifier": Classifier(),
    "multi_label": MultiLabel(),
    "regressor": Regressor(),
    "multiple_choice": MultipleChoice(),
    "span": Span(),
    "token_classifier": Tokens(),
    "embedding": Embedding(),
    "ranking": Ranking(),
}


def kinds_with(option: str) -> list[str]:
    """Return the kinds of one text or pair whose exports have an option of fewer layers."""
    return [n for n, each in FINETUNING.items() if each.has_depths and option in each.kind.options]


# Option of `finetuning.predict` -> the thresholds that it sets.
THRESHOLDS = {
    kind.thresholds.flag: kind.thresholds for kind in FINETUNING.values() if kind.thresholds
}
