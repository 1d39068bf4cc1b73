"""Results that were damaged are refused with their file."""

import json
import pathlib

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from finetuning.reporting.intact_results import read_result, require_intact

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


def test_a_run_states_its_precision(tmp_path):
    run = RunDir(str(tmp_path))
    for precision in (None, 32, "float32"):
        result = RESULT | ({} if precision is None else {"training_precision": precision})
        pathlib.Path(run.result_path).write_text(json.dumps(result), encoding="utf-8")
        if precision == "float32":
            assert read_result(run) == result
            continue
        with pytest.raises(InputError, match="result.json' must have scores, `training_precision`"):
            read_result(run)
