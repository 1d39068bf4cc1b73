"""Tests of the load test: it counts what is wrong, and both ways to ask pass a few seconds."""

import json
import os
import random

import pytest

from albert_tf.runtime.errors import InputNotFoundError
from albert_tf.tasks.classifier import ClassifierTask
from benchmarks import load
from benchmarks.load import LoadOptions
from tests.finetuning.untrained import leave_run, leave_weights


class Fake:
    """Answers with the length of each text."""

    pid, num_malformed = os.getpid(), 3

    def __init__(self, swaps: bool = False, accepts: int = -1) -> None:
        self.swaps, self.accepts = swaps, accepts

    def ask(self, texts):
        rows = [[float(len(text)), 1.0] for text in texts]
        return rows[::-1] if self.swaps else rows

    def refuses(self, number):
        return number != self.accepts


def measured(target: Fake, tmp_path, **changed) -> dict:
    options = LoadOptions(str(tmp_path), threads=2, **{"seconds": 0.2} | changed)
    return load.measure(target, options)


def test_right_answers_pass(tmp_path):
    line = measured(Fake(), tmp_path)
    assert line["wrong"] == line["accepted"] == line["largest_difference"] == 0
    assert line["requests"] > 0 < line["malformed"]
    assert line["requests_per_s"] == pytest.approx(line["requests"] / line["seconds"], rel=0.5)
    early, late = line["rss_mb"]
    assert 0 < early <= late * 1.5
    assert not load.is_bad(line)


def test_an_answer_to_a_neighbour_is_wrong(tmp_path):
    line = measured(Fake(swaps=True), tmp_path)
    assert 0 < line["wrong"] < line["requests"]  # a single text has no neighbour
    assert line["largest_difference"] >= 1
    assert load.is_bad(line)


def test_a_malformed_request_must_get_its_error(tmp_path):
    line = measured(Fake(accepts=2), tmp_path)
    assert 0 < line["accepted"] < line["malformed"]
    assert load.is_bad(line)


def test_an_error_ends_the_benchmark(tmp_path):
    broken = Fake()
    broken.refuses = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        measured(broken, tmp_path)


def test_503_must_come():
    line = {"wrong": 0, "accepted": 0}
    assert not load.is_bad(line | {"refused_503": 8})
    assert load.is_bad(line | {"refused_503": 7}) and load.is_bad(line | {"refused_503": 9})


def test_differences():
    assert load.largest_difference([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.5], [3.0, 3.0]]) == 1.0
    assert load.largest_difference([[1.0]], [[1.0], [2.0]]) == float("inf")
    assert load.largest_difference([[1.0]], [[1.0, 2.0]]) == float("inf")


def test_texts_are_bounded_and_repeatable():
    texts = [load.random_text(random.Random(seed)) for seed in range(200)]
    assert texts == [load.random_text(random.Random(seed)) for seed in range(200)]
    counts = [len(text.split(" ")) if text else 0 for text in texts]
    assert min(counts) == 0 and 100 < max(counts) <= load.MAX_WORDS


def test_a_folder_without_a_version_is_refused(tmp_path):
    with pytest.raises(InputNotFoundError, match="must be a folder with a version"):
        load.main(LoadOptions(str(tmp_path), dry_run=True))


@pytest.mark.slow
def test_both_ways(pretrained, tmp_path, capfd):
    from albert_tf.export import __main__ as export

    run, output = tmp_path / "run", str(tmp_path / "export")
    section = ClassifierTask(("no", "yes"), seq_length=24)
    leave_weights(leave_run(pretrained, run, "text_classification", section), seed=1)
    export.main(export.ExportOptions(str(run), output))
    capfd.readouterr()
    assert load.main(LoadOptions(output, seconds=3.0)) == 0
    _, c_api, rest = [json.loads(line) for line in capfd.readouterr().out.splitlines()]
    assert (c_api["target"], rest["target"], rest["refused_503"]) == ("c-api", "rest", 8)
    for line in (c_api, rest):
        assert line["requests"] > 8 and line["malformed"] > 0
        assert line["largest_difference"] < 1e-5
