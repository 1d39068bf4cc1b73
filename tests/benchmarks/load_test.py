"""Tests of the load test: it counts what is wrong, and both ways to ask pass a few seconds."""

import json
import os
import random
import subprocess
import sys

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.regressor.model import RegressorSettings
from benchmarks import load, load_targets
from benchmarks.load import LoadOptions
from tests.finetuning.untrained import leave_run, leave_weights


class Fake:
    """Answer with the length of each text."""

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
    return load.measure(target, load.ask_alone(Fake().ask, options), options)


def test_right_answers_pass(tmp_path):
    line = measured(Fake(), tmp_path)
    assert line["wrong"] == line["accepted"] == line["largest_difference"] == 0
    assert line["requests"] > 0 < line["malformed"]
    assert line["requests_per_s"] == pytest.approx(line["requests"] / line["seconds"], rel=0.5)
    early, middle, late = line["rss_mb"]
    assert 0 < early <= middle * 1.5 <= late * 1.5**2
    assert not load.is_bad(line)


def test_an_answer_to_a_neighbour_is_wrong(tmp_path):
    line = measured(Fake(swaps=True), tmp_path)
    assert 0 < line["wrong"] < line["requests"]  # a single text has no neighbour
    assert line["largest_difference"] >= 1
    assert load.is_bad(line)


def test_the_answers_of_another_target_are_wrong(tmp_path):
    target = Fake()
    target.ask = lambda texts: [[len(text) + 0.5, 1.0] for text in texts]
    line = measured(target, tmp_path)
    assert line["wrong"] == line["requests"] > 0
    assert line["largest_difference"] == 0.5


def test_texts_alone_are_different_and_so_are_their_answers():
    options = LoadOptions("export/reviews")
    alone = load.ask_alone(Fake().ask, options)
    assert len(alone) == load.POOL
    assert alone == load.ask_alone(Fake().ask, options)
    assert all(row == [len(text), 1.0] for text, row in alone.items())

    numbers = iter(range(load.POOL))
    with pytest.raises(InputError, match="export/reviews must give .* 100 .* 200 .* Received: 99"):
        load.ask_alone(lambda _: [[min(next(numbers), 98) + 1e-6]], options)


@pytest.mark.parametrize(
    ("inputs", "outputs", "names"),
    [
        (["text_b", "text_a"], ["label", "score", "probabilities"], "text_a, text_b and .* label"),
        (["text_a", "text_b"], ["score"], "text_a, text_b and its outputs score"),
        (["question", "context"], ["answer", "score"], "context, question and .* answer, score"),
        (["text"], ["embedding"], "text and its outputs embedding"),
        (["text"], ["entity", "label", "score"], "text and its outputs entity, label, score"),
        (["text"], ["pieces", "probabilities"], "text and its outputs pieces, probabilities"),
    ],
)
def test_other_exports_are_refused(inputs, outputs, names):
    sides = dict.fromkeys(inputs), dict.fromkeys(outputs)
    signatures = {"serving_default": sides} | ({"classify": ({}, {})} if "label" in outputs else {})
    with pytest.raises(InputError, match=f"--export=here must be .* single texts.* are {names}"):
        load_targets.check_signatures(signatures, "here")


def test_a_broken_session_does_not_refuse(tmp_path, monkeypatch):
    """Its error is not that of the malformed request."""

    class Broken:
        signatures = {"serving_default": ({}, {}), "tokens": ({}, {})}  # a regressor's

        def run(self, *_):
            raise RuntimeError("The session is broken.")

    monkeypatch.setattr(load_targets, "Session", lambda path: Broken())
    c_api = load_targets.CApi(str(tmp_path))
    assert c_api.num_malformed == 5
    assert not any(map(c_api.refuses, range(5)))


def test_a_malformed_request_must_get_its_error(tmp_path):
    line = measured(Fake(accepts=2), tmp_path)
    assert 0 < line["accepted"] < line["malformed"]
    assert load.is_bad(line)


def test_an_error_ends_the_benchmark(tmp_path):
    broken = Fake()
    broken.refuses = lambda _: 1 / 0
    with pytest.raises(ZeroDivisionError):
        measured(broken, tmp_path)


GOOD = {"wrong": 0, "accepted": 0, "seconds": 60.0, "rss_mb": [50.0, 100.0, 109.9]}


def test_memory_must_not_grow():
    assert not load.is_bad(GOOD)
    grown = GOOD | {"rss_mb": [100.0, 100.0, 110.1]}
    assert load.is_bad(grown)
    assert not load.is_bad(grown | {"seconds": 59.9})


def test_differences():
    assert load.largest_difference([[1.0, 2.0], [3.0, 4.0]], [[1.0, 2.5], [3.0, 3.0]]) == 1.0
    assert load.largest_difference([[1.0]], [[1.0], [2.0]]) == float("inf")
    assert load.largest_difference([[1.0]], [[1.0, 2.0]]) == float("inf")
    assert load.largest_difference([[1.0, float("nan")]], [[1.0, 2.0]]) == float("inf")


def test_texts_are_bounded_and_repeatable():
    texts = [load.random_text(random.Random(seed)) for seed in range(200)]
    assert texts == [load.random_text(random.Random(seed)) for seed in range(200)]
    counts = [len(text.split(" ")) if text else 0 for text in texts]
    assert min(counts) == 0 and 100 < max(counts) <= load.MAX_WORDS


@pytest.mark.parametrize("files", [(), ("1/model.onnx",), ("9/saved_model.pb", "10/model.onnx")])
def test_a_folder_without_a_saved_model_is_refused(tmp_path, files):
    for file in files:
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).touch()
    with pytest.raises(InputNotFoundError, match="whose newest version has saved_model.pb"):
        load.main(LoadOptions(str(tmp_path), dry_run=True))


def leave_export(pretrained, tmp_path, name, section) -> str:
    """Export an untrained model and return its folder."""
    from albert_tf.export import __main__ as export

    run, output = tmp_path / "run", str(tmp_path / "export")
    leave_weights(leave_run(pretrained, run, name, section), seed=1)
    export.main(export.ExportOptions(str(run), output))
    return output


SECTIONS = {
    "text_classification": ClassifierSettings(("no", "yes"), seq_length=24),
    "text_regression": RegressorSettings(seq_length=24),
}


def ended(output: str, *arguments: str) -> subprocess.CompletedProcess:
    """Run the command, in a process whose only TensorFlow is that of the C API."""
    command = [sys.executable, "-m", "benchmarks.load", f"--export={output}", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("name", SECTIONS)
def test_both_ways(pretrained, tmp_path, name):
    run = ended(leave_export(pretrained, tmp_path, name, SECTIONS[name]), "--seconds=3")
    assert run.returncode == 0, run.stderr
    _, c_api, rest = [json.loads(line) for line in run.stdout.splitlines()]
    assert (c_api["target"], rest["target"]) == ("c-api", "rest")
    for line in (c_api, rest):
        assert line["requests"] > 8 and line["malformed"] > 0
        assert line["largest_difference"] < 1e-5


@pytest.mark.slow
def test_pairs_end_the_command_without_a_traceback(pretrained, tmp_path):
    section = ClassifierSettings(("no", "yes"), pair=True, seq_length=24)
    run = ended(leave_export(pretrained, tmp_path, "mnli", section))
    assert run.returncode == 2
    assert "must be a classifier or regressor of single texts" in run.stderr.splitlines()[-1]
    assert "Traceback" not in run.stderr
