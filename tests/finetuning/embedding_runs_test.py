"""Runs of embeddings from their files: every loss trains, a search decides, settings that clash."""

import dataclasses
import json
import pathlib

import numpy as np
import pytest

import albert_tf
from albert_tf.runtime.errors import ConfigError
from albert_tf.runtime.run_dir import RunDir
from finetuning import predict, train
from finetuning.datasets.embeddings.teacher_vectors import digest_of
from finetuning.train import FinetuneOptions
from tests.finetuning.conftest import WORDS

QUICK = (
    "training.steps=6",
    "training.evaluate_every=3",
    "training.batch_size=4",
    "training.learning_rate=0.002",
    "task.seq_length=32",
)
NAMES = [name for names in WORDS.values() for name in names]
PAIRS = [(f"the {a}", f"{a} or {b}") for a, b in zip(NAMES, NAMES[1:] + NAMES[:1], strict=True)]


def table(*columns: str, rows) -> str:
    return "\n".join("\t".join(map(str, row)) for row in [columns, *rows]) + "\n"


DATA = {
    "in_batch": table("query", "passage", rows=PAIRS),
    "cosine": table("text_a", "text_b", "score", rows=[(*p, i % 3) for i, p in enumerate(PAIRS)]),
    "simcse": table("text", rows=[[a] for a, _ in PAIRS]),
}
DATA |= {"cosent": DATA["cosine"], "teacher_cosine": DATA["simcse"]}
DATA["teacher_squared"] = DATA["simcse"]


@pytest.fixture
def folder(request, tmp_path) -> pathlib.Path:
    (tmp_path / "train.tsv").write_text(DATA[request.param])
    (tmp_path / "dev.tsv").write_text(DATA["in_batch"])
    if request.param.startswith("teacher"):
        texts, rng = [a for a, _ in PAIRS], np.random.default_rng(0)
        vectors = rng.normal(size=[len(texts), 5]).astype(np.float16)
        (tmp_path / "train.vectors").mkdir()
        np.save(tmp_path / "train.vectors" / "vectors.npy", vectors)
        values = {"sha256": digest_of(texts), "count": len(texts), "width": 5}
        (tmp_path / "train.vectors" / "texts.json").write_text(json.dumps(values))
    return tmp_path


def options_of(folder: pathlib.Path, start: str, *settings: str, **given) -> FinetuneOptions:
    return FinetuneOptions(
        "embedding",
        str(folder / "run"),
        str(folder),
        init=start,
        device="cpu",
        set=(*QUICK, *settings),
        **given,
    )


@pytest.mark.slow_parameters("cosine", "cosent", "teacher_squared")
@pytest.mark.parametrize("folder", DATA, indirect=True, ids=DATA)
def test_every_loss_makes_a_run(folder, start, request, capsys):
    loss = request.node.callspec.params["folder"]
    parts = "training.accumulation_steps=2" if loss in ("in_batch", "simcse") else "seed=0"
    exact = "training.precision=float32"  # a CPU may train in bfloat16, whose ranks differ
    train.main(options_of(folder, start, f"task.loss={loss}", parts, exact))
    run = RunDir(str(folder / "run"))
    result, rows = run.result(), run.metrics()
    assert result["metric"] == "ndcg_at_10" and 0 < result["ndcg_at_10"] <= 1
    assert [row["step"] for row in rows] == [3, 6] and "loss" not in result
    assert result["ndcg_at_10"] == pytest.approx(
        max(row["dev/ndcg_at_10"] for row in rows), abs=1e-5
    )
    assert (
        result["references"]["BM25"]["ndcg_at_10"] > 0.9 and "BM25 0.9" in capsys.readouterr().out
    )
    card = pathlib.Path(run.card_path).read_text()
    assert "| BM25 | TF-IDF |" in card and "sentence-similarity" in card
    answers = pathlib.Path(run.predictions_path("dev")).read_text().splitlines()
    assert len(answers) == len(PAIRS) and len(json.loads(answers[0])["prediction"]["ranking"]) == 9
    vectors = albert_tf.load_embedder(run.path)(NAMES)
    assert vectors.shape == (9, 5 if loss.startswith("teacher") else 32)


@pytest.mark.parametrize("folder", ["in_batch"], indirect=True)
def test_a_run_searches_and_scores_pairs_of_other_files(folder, start, tmp_path, capsys):
    train.main(options_of(folder, start))
    other = tmp_path / "other"
    (other / "qrels").mkdir(parents=True)
    documents = [{"_id": str(i), "text": text} for i, (_, text) in enumerate(PAIRS)]
    queries = [{"_id": f"q{i}", "text": text} for i, (text, _) in enumerate(PAIRS)]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (other / f"{name}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    judged = table(
        "query-id", "corpus-id", "score", rows=[(f"q{i}", i, 1) for i in range(len(PAIRS))]
    )
    (other / "qrels" / "test.tsv").write_text(judged)
    (other / "test.tsv").unlink(missing_ok=True)
    out = tmp_path / "out.jsonl"
    asked = predict.PredictOptions(str(folder / "run"), output=str(out))
    asked = dict(vars(asked)) | {"data_dir": str(other), "part": "test"}
    predict.main(predict.PredictOptions(**asked))
    first = json.loads(out.read_text().splitlines()[0])
    assert first["id"] == "q0" and len(first["ranking"]) == len(PAIRS)
    wanted = RunDir(str(folder / "run")).result()["ndcg_at_10"]
    assert f"ndcg_at_10 {wanted:.4f}" in capsys.readouterr().err
    (other / "dev.tsv").write_text(DATA["cosine"].replace("text_a\ttext_b", "sentence1\tsentence2"))
    predict.main(predict.PredictOptions(**asked | {"part": "dev", "task": "sts"}))
    assert "sts dev: spearman" in capsys.readouterr().err
    assert {*json.loads(out.read_text().splitlines()[0])} == {"score"}
    (other / "dev.tsv").write_text(DATA["cosine"].replace("\t2\n", "\t1\n"))
    predict.main(predict.PredictOptions(**asked | {"part": "dev", "task": "pair_classification"}))
    assert "pair_classification dev: average_precision" in capsys.readouterr().err


@pytest.mark.parametrize("folder", ["in_batch", "simcse"], indirect=True)
def test_a_single_example_has_no_negatives(folder, start):
    (folder / "train.tsv").write_text(
        "".join((folder / "train.tsv").read_text().splitlines(True)[:2])
    )
    with pytest.raises(ConfigError, match="at least 2 examples. Received: 1"):
        train.main(options_of(folder, start))


@pytest.mark.parametrize("folder", ["in_batch"], indirect=True)
def test_the_score_before_training_is_beside_that_of_the_run(folder, start, capsys):
    """It is the same if nothing is learned, and of the weights that the run began with."""
    for rate, is_same in (("1e-30", True), ("0.002", False)):
        options = options_of(folder, start, f"training.learning_rate={rate}", "task.projection=6")
        train.main(dataclasses.replace(options, run_dir=str(folder / rate)))
        result = RunDir(str(folder / rate)).result()
        begun = result["at_start"]
        assert (begun["mrr_at_10"] == pytest.approx(result["mrr_at_10"])) is is_same
        card = (folder / rate / "README.md").read_text()
        assert f"before training {begun['ndcg_at_10']:.4f}, BM25" in capsys.readouterr().out
        assert "| before training | BM25 | TF-IDF |" in card
    assert begun == pytest.approx(RunDir(str(folder / "1e-30")).result()["at_start"])


@pytest.mark.parametrize(
    ("folder", "given", "message"),
    [
        ("in_batch", "training.batch_size=1", "at least 2 for each replica. Received: 1 for 1"),
        ("cosent", "training.batch_size=1", "at least 2 for each replica. Received: 1 for 1"),
        ("in_batch", "task.loss=cosine", "cosine needs pairs of texts with scores"),
        ("cosine", "task.loss=in_batch", "in_batch needs pairs of texts, .* without scores"),
        ("simcse", "task.loss=teacher_cosine", "single texts with a teacher's vectors"),
        ("teacher_cosine", "task.projection=7", "the teacher's width, 5. Received: 7"),
        ("teacher_cosine", "task.loss=simcse", "needs dropout"),
    ],
    indirect=["folder"],
)
def test_settings_that_do_not_fit_the_data(folder, start, given, message):
    with pytest.raises(ConfigError, match=message):
        train.main(options_of(folder, start, given))
    assert not (folder / "run").exists()
