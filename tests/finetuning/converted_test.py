"""Converted fine-tuned runs: what asks and trains on a run takes them too, or says what to pass."""

import json
import pathlib

import pytest

from albert_tf.convert.__main__ import ConvertOptions
from albert_tf.convert.__main__ import main as convert
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.predictor import load_task_model
from finetuning import depth, predict
from finetuning.predict import PredictOptions
from finetuning.training.config import FinetuneConfig
from finetuning.training.starting_point import StartingPoint
from tests.finetuning.untrained import load_once


@pytest.fixture(scope="module")
def back(tuned: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """seed-0 of `tuned`, by way of Hugging Face's format."""
    folder = tmp_path_factory.mktemp("converted")
    convert(ConvertOptions(str(tuned / "seed-0"), f"huggingface:{folder / 'theirs'}"))
    convert(ConvertOptions(f"huggingface:{folder / 'theirs'}", str(folder / "back")))
    return str(folder / "back")


def test_it_answers_a_part_of_a_named_data_set(back, tuned, fruit, tmp_path, capsys):
    own, out = PredictOptions(str(tuned / "seed-0"), output=str(tmp_path / "own")), tmp_path / "out"
    values = {"data_dir": fruit, "part": "dev"}
    with pytest.raises(
        InputError, match="does not state its dataset, as it was converted .* Pass --task, one of"
    ):
        predict.main(PredictOptions(back, **values), load=load_once)
    predict.main(
        PredictOptions(back, output=str(out), task="text_classification", **values), load=load_once
    )
    predict.main(PredictOptions(own.run_dir, output=own.output, **values), load=load_once)
    assert out.read_text() == (tmp_path / "own").read_text() and out.read_text()


def test_it_answers_lines(back, tmp_path):
    (tmp_path / "in.txt").write_text("apple pear\nhammer saw\n")
    predict.main(
        PredictOptions(back, str(tmp_path / "in.txt"), str(tmp_path / "out.jsonl")), load=load_once
    )
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["label"] for row in rows] == ["fruit", "tool"]


def test_depths_need_the_name_of_the_data_set(back, fruit):
    values = {"patience": "", "dry_run": True}
    with pytest.raises(InputError, match="does not state its dataset"):
        depth.main(depth.DepthOptions(back, fruit, **values))
    depth.main(depth.DepthOptions(back, fruit, task="text_classification", **values))


def test_training_goes_on_with_its_head(back, tuned):
    begin = StartingPoint.of(None, back, None)
    theirs = load_task_model(str(tuned / "seed-0"))
    model = begin.model(FinetuneConfig(begin.config, theirs.task))
    for mine, weight in zip(model.get_weights(), theirs.get_weights(), strict=True):
        assert (mine == weight).all()
