"""Fine-tuning on the real files, under replicas, and by the scripts of examples/."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest
import tf_keras

from albert_tf.export import __main__ as export
from albert_tf.runs import RunDir
from data.build import BuildOptions, build
from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer
from examples import finetune_checkpoint, finetune_hub, finetune_raw_text
from finetuning import predict
from finetuning import train as finetune
from pretraining import train as pretrain

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def novels(shared_data: pathlib.Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A small model, pretrained on the novels for minutes."""
    folder = tmp_path_factory.mktemp("novels")
    corpus = f"text:{shared_data}/corpus_novels_en/*.txt.gz"
    boundary = r"regex:^\s*(?:CHAPTER|Chapter|VOLUME|BOOK|Book) [0-9IVXLC]+"
    train_tokenizer(TrainTokenizerOptions(corpus, str(folder / "tokenizer"), vocab_size=8000,
                                          document_boundary=boundary))  # fmt: skip
    build(BuildOptions(corpus, str(folder / "tokenizer"), str(folder / "records"), seq_length=64,
                       document_boundary=boundary))  # fmt: skip
    run = str(folder / "run")
    pretrain.main(
        pretrain.TrainOptions(
            experiment="laptop", data=str(folder / "records"), run_dir=run,
            set=("loop.steps=600", "optimizer.warmup_steps=60"),
        )
    )  # fmt: skip
    return run


def tune(task: str, data: object, init: str, run: pathlib.Path, *values: str) -> dict:
    options = finetune.FinetuneOptions(
        task, str(run), str(data), init=init, recipe="none", set=values
    )
    finetune.main(options)
    return RunDir(str(run)).result()


def test_sst_2_is_above_the_majority(novels: str, shared_data: pathlib.Path, tmp_path):
    values = ("training.steps=1000", "training.learning_rate=0.0005", "task.seq_length=64")
    result = tune("sst-2", shared_data / "glue", novels, tmp_path / "run", *values)
    assert (result["train_examples"], result["dev_examples"]) == (67349, 872)
    assert result["accuracy"] > result["baseline"] + 2 * result["standard_error"]
    predict.main(
        predict.PredictOptions(
            str(tmp_path / "run"), data_dir=str(shared_data / "glue"), part="test",
            submission=str(tmp_path / "SST-2.tsv"),
        )
    )  # fmt: skip
    assert len((tmp_path / "SST-2.tsv").read_text().splitlines()) == 1822


@pytest.mark.parametrize("task", ["rte", "sts-b", "wnli", "cola"])
def test_the_other_real_tables(task: str, novels: str, shared_data: pathlib.Path, tmp_path):
    values = ("training.steps=20", "task.seq_length=64")
    result = tune(task, shared_data / "glue", novels, tmp_path / "run", *values)
    assert {"rte": 277, "sts-b": 1500, "wnli": 71, "cola": 1043}[task] == result["dev_examples"]


@pytest.mark.parametrize(
    ("task", "file", "count"),
    [("squad2", "squad2_subset_a", 2828), ("squad1", "xquad.en", 1190)],
)
def test_squad_s_files(task, file, count, novels: str, shared_data: pathlib.Path, tmp_path):
    data = tmp_path / "squad"
    data.mkdir()
    version = {"squad1": "v1.1", "squad2": "v2.0"}[task]
    for part in ("train", "dev"):
        source = shared_data / "squad" / f"{file}.json.gz"
        shutil.copyfile(source, data / f"{part}-{version}.json.gz")
    values = ("training.steps=30", "task.seq_length=64", "task.doc_stride=24",
              "task.query_length=16")  # fmt: skip
    result = tune(task, data, novels, tmp_path / "run", *values)
    assert result["dev_examples"] == count and 0 <= result["exact_match"] <= result["f1"] <= 1
    predict.main(
        predict.PredictOptions(
            str(tmp_path / "run"), data_dir=str(data), part="dev",
            submission=str(tmp_path / "predictions.json"),
        )
    )  # fmt: skip
    answers = json.loads((tmp_path / "predictions.json").read_text())
    assert len(answers) == count
    nbest = json.loads((tmp_path / "nbest_predictions.json").read_text())
    assert answers.keys() == nbest.keys()


def test_two_replicas_learn_what_one_does(novels: str, shared_data: pathlib.Path, tmp_path):
    """Without dropout the batch is split and nothing else."""
    program = (
        "import sys, tensorflow as tf\n"
        "cpus = tf.config.list_physical_devices('CPU')\n"
        "parts = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv.pop(1))\n"
        "tf.config.set_logical_device_configuration(cpus[0], parts)\n"
        "from albert_tf import cli\n"
        "from finetuning import train\n"
        "cli.run(train.main, train.FinetuneOptions, '')\n"
    )
    losses = []
    for replicas in ("1", "2"):
        run = tmp_path / replicas
        flags = ["--task=rte", f"--data_dir={shared_data / 'glue'}", f"--init={novels}",
                 f"--run_dir={run}", "--recipe=none"]  # fmt: skip
        for value in ("training.steps=12", "training.evaluate_every=4", "task.dropout=0",
                      "task.seq_length=64"):  # fmt: skip
            flags += ["--set", value]
        subprocess.run([sys.executable, "-c", program, replicas, *flags], check=True)
        losses.append([row["loss/train"] for row in RunDir(str(run)).metrics()])
    assert losses[0] == pytest.approx(losses[1], abs=2e-4)


def test_the_scripts_of_examples(novels: str, tmp_path: pathlib.Path):
    rows = [("pear apple", "fruit"), ("hammer saw", "tool")] * 40
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n" for text, label in rows))
    for kind in ("preprocessing", "encoder"):
        export.main(export.ExportOptions(novels, str(tmp_path / kind), kind=kind))
    preprocessing, encoder = (str(tmp_path / k / "1") for k in ("preprocessing", "encoder"))
    one = finetune_checkpoint.main(novels, str(table), epochs=8)
    other = finetune_hub.main(preprocessing, encoder, str(table), epochs=8)
    for model in (one, other):
        assert model.history.history["accuracy"][-1] > 0.9
    saved = str(tmp_path / "reviews")
    finetune_raw_text.main(preprocessing, encoder, str(table), saved, epochs=8)
    assert os.path.isfile(os.path.join(saved, "saved_model.pb"))
    loaded = tf_keras.models.load_model(saved)
    assert loaded.predict(["pear apple", "hammer saw"]).argmax(axis=1).tolist() == [0, 1]
