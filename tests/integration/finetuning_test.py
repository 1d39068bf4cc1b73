"""Fine-tuning a small model, pretrained on the novels, on the real tables of GLUE."""

import pathlib

import pytest

from data.build import BuildOptions, build
from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer
from finetuning import predict
from pretraining import train as pretrain
from tests.finetuning.slow_test import tune

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]  # pretraining on the way, real files


@pytest.fixture(scope="module")
def novels(shared_data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model, pretrained on the novels for minutes."""
    folder = tmp_path_factory.mktemp("novels")
    corpus = f"text:{shared_data}/corpus_novels_en/*.txt.gz"
    boundary = r"regex:^\s*(?:CHAPTER|Chapter|VOLUME|BOOK|Book) [0-9IVXLC]+"
    train_tokenizer(
        TrainTokenizerOptions(
            corpus, str(folder / "tokenizer"), vocab_size=8000, document_boundary=boundary
        )
    )
    build(
        BuildOptions(
            corpus,
            str(folder / "tokenizer"),
            str(folder / "records"),
            seq_length=64,
            document_boundary=boundary,
        )
    )
    run = str(folder / "run")
    pretrain.main(
        pretrain.TrainOptions(
            experiment="laptop",
            data=str(folder / "records"),
            run_dir=run,
            set=("loop.steps=600", "optimizer.warmup_steps=60"),
        )
    )
    return run


def test_sst_2_is_above_the_majority(novels: str, shared_data: pathlib.Path, tmp_path):
    values = ("training.steps=1000", "training.learning_rate=0.0005", "task.seq_length=64")
    result = tune("sst-2", shared_data / "glue", novels, tmp_path / "run", *values)
    assert (result["train_examples"], result["dev_examples"]) == (67349, 872)
    assert result["accuracy"] > result["baseline"] + 2 * result["standard_error"]
    predict.main(
        predict.PredictOptions(
            str(tmp_path / "run"),
            data_dir=str(shared_data / "glue"),
            part="test",
            submission=str(tmp_path / "SST-2.tsv"),
        )
    )
    assert len((tmp_path / "SST-2.tsv").read_text().splitlines()) == 1822


@pytest.mark.parametrize("task", ["rte", "sts-b", "wnli", "cola"])
def test_the_other_real_tables(task: str, novels: str, shared_data: pathlib.Path, tmp_path):
    values = ("training.steps=20", "task.seq_length=64")
    result = tune(task, shared_data / "glue", novels, tmp_path / "run", *values)
    assert {"rte": 277, "sts-b": 1500, "wnli": 71, "cola": 1043}[task] == result["dev_examples"]
