"""Results that were damaged are refused with their file."""

import pytest

from albert_tf.runtime.errors import InputError
from finetuning.reporting.intact_results import require_intact

RESULT = {"metric": "spearman", "spearman": 0.5, "dev_examples": 3}


def test_an_intact_result():
    require_intact(RESULT, "result.json")
    require_intact(RESULT | {"references": {"TF-IDF": {"spearman": 0.7}}}, "result.json")


@pytest.mark.parametrize(
    "changes",
    [
        {"spearman": None},
        {"references": 3},
        {"references": {"TF-IDF": 0.7}},
        {"references": {"TF-IDF": {}}},
        {"references": {"TF-IDF": {"spearman": "high"}}},
    ],
)
def test_a_damaged_one(changes):
    with pytest.raises(InputError, match="'result.json' must have the scores spearman"):
        require_intact(RESULT | changes, "result.json")
