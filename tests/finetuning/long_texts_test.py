"""A run whose texts are longer than its model's input, read in windows; commands that refuse it."""

import json
import pathlib

import numpy as np
import pytest

import albert_tf
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from finetuning import depth, distill, train
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source

pytestmark = pytest.mark.slow  # the windows themselves: tests/albert_tf/tasks/long_texts_test.py


@pytest.fixture(scope="module")
def run(start: str, fruit: str, tmp_path_factory) -> RunDir:
    run = RunDir(str(tmp_path_factory.mktemp("long") / "run"))
    values = ("training.steps=4", "training.evaluate_every=2", "task.seq_length=5")
    train.main(
        train.FinetuneOptions(
            "text_classification",
            run.path,
            fruit,
            init=start,
            device="cpu",
            set=(*values, "task.long_texts=mean"),
        )
    )
    return run


def test_dev_texts_are_predicted_from_all_of_their_windows(run: RunDir, fruit: str):
    result = run.result()
    assert result["dev_examples"] == 40 and np.isfinite(result["loss"])
    lines = pathlib.Path(run.predictions_path("dev")).read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["prediction"] for line in lines]
    examples = DATASETS["text_classification"].read(Source(fruit)).dev["dev"]
    score = DATASETS["text_classification"].score(answers, examples)
    assert score["accuracy"] == pytest.approx(result["accuracy"])
    predictor = albert_tf.load_predictor(run.path)
    again = predictor(examples)
    for one, other in zip(answers, again, strict=True):
        assert one["score"] == pytest.approx(other["score"], abs=1e-5)
    # The last words of a long text count.
    texts = ["apple " * 9 + "hammer " * 9, "apple " * 9 + "pear " * 9]
    one, other = predictor(texts)
    assert one["probabilities"] != other["probabilities"]


def test_commands_that_need_one_output_a_text(run: RunDir, fruit: str, tmp_path: pathlib.Path):
    with pytest.raises(InputError, match="must truncate long texts"):
        depth.main(depth.DepthOptions(run.path, fruit))
    for values in ((), ("task.long_texts=cut",)):
        options = distill.DistillOptions(
            run.path,
            "text_classification",
            str(tmp_path / "d"),
            fruit,
            student_layers=1,
            set=values,
        )
        with pytest.raises(InputError, match="must truncate long texts"):
            distill.main(options)
    assert not (tmp_path / "d").exists()
