"""Runs of rankings from their files: both losses learn, and what stands beside the scores."""

import json
import pathlib
import random

import pytest

import albert_tf
from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.run_dir import RunDir
from finetuning import predict, train
from finetuning.train import FinetuneOptions
from tests.finetuning.conftest import WORDS

QUICK = (
    "training.steps=40",
    "training.evaluate_every=20",
    "training.learning_rate=0.003",
    "task.seq_length=32",
    "task.num_candidates=3",
)


def rows(seed: int, count: int) -> list[dict]:
    """Queries for a fruit or a tool; what is relevant does not share a word with them."""
    rng, lists = random.Random(seed), []
    for number in range(count):
        label = rng.choice(sorted(WORDS))
        texts = [(name, float(name in WORDS[label])) for names in WORDS.values() for name in names]
        candidates = [{"text": text, "label": grade} for text, grade in rng.sample(texts, 5)]
        lists.append({"query": f"a {label}", "candidates": candidates, "id": f"q{number}"})
    return lists


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> pathlib.Path:
    folder = tmp_path_factory.mktemp("rankings")
    for seed, (part, count) in enumerate({"train": 120, "dev": 40}.items()):
        lines = "\n".join(map(json.dumps, rows(seed, count)))
        (folder / f"{part}.jsonl").write_text(lines)
    return folder


def options_of(folder: pathlib.Path, out: pathlib.Path, start: str, *settings: str):
    return FinetuneOptions(
        "ranking",
        str(out / "run"),
        str(folder),
        init=start,
        device="cpu",
        cache_dir=str(out / "features"),
        set=(*QUICK, *settings),
    )


@pytest.mark.slow_parameters("pointwise")
@pytest.mark.parametrize("loss", ["listwise", "pointwise"])
def test_a_run_learns(folder, start, loss, tmp_path, capsys):
    parts = "training.accumulation_steps=2"
    train.main(options_of(folder, tmp_path, start, f"task.loss={loss}", parts))
    run, output = RunDir(str(tmp_path / "run")), capsys.readouterr().out
    result = run.result()
    assert any((tmp_path / "features").iterdir())
    assert result["metric"] == "map" and result["map"] > result["references"]["BM25"]["map"] + 0.2
    assert "standard_errors" not in result and result["loss"] > 0  # of two different queries
    assert "BM25 0." in output and "TF-IDF 0." in output
    card = pathlib.Path(run.card_path).read_text()
    assert "| BM25 | TF-IDF |" in card and "text-ranking" in card and "| mrr |" in card
    lines = pathlib.Path(run.predictions_path("dev")).read_text().splitlines()
    example, answer = json.loads(lines[0])["example"], json.loads(lines[0])["prediction"]
    assert example["id"] == "q0" and len(lines) == 40
    ranked = albert_tf.load_ranker(run.path).rank(example["query"], example["candidates"])
    assert [row for row, _ in ranked] == answer["ranking"]
    assert [score for _, score in ranked] == pytest.approx(
        sorted(answer["scores"], reverse=True), abs=1e-4
    )


@pytest.mark.slow
def test_other_files_are_predicted(folder, start, tmp_path, capsys):
    train.main(options_of(folder, tmp_path, start, "training.steps=2", "training.evaluate_every=2"))
    out, run = tmp_path / "out.jsonl", str(tmp_path / "run")
    predict.main(predict.PredictOptions(run, output=str(out), data_dir=str(folder), part="dev"))
    result = RunDir(run).result()
    assert f"ranking dev: map {result['map']:.4f}, mrr" in capsys.readouterr().err
    assert json.loads(out.read_text().splitlines()[3])["id"] == "q3"
    lines = tmp_path / "in.txt"
    lines.write_text('a fruit\tapple\tsaw\n{"query": "a tool", "candidates": ["file"], "id": 5}\n')
    predict.main(predict.PredictOptions(run, str(lines), str(out)))
    first, second = map(json.loads, out.read_text().splitlines())
    assert len(first["scores"]) == 2 and sorted(first["ranking"]) == [0, 1]
    assert second["id"] == 5 and second["ranking"] == [0]


def test_a_listwise_loss_needs_candidates_to_compare(folder, start, tmp_path):
    single = [{**row, "candidates": [{"text": "apple", "label": 1}]} for row in rows(0, 3)]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, single)))
    (tmp_path / "dev.jsonl").write_text((folder / "dev.jsonl").read_text())
    with pytest.raises(ConfigError, match="relevant candidates and others. Received: 3 queries"):
        train.main(options_of(tmp_path, tmp_path, start))
    assert not (tmp_path / "run").exists()
