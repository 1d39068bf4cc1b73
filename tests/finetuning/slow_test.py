"""Fine-tuning on SQuAD's real files, under replicas, and by the scripts of examples/."""

import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys

import pytest
import tf_keras

from albert_tf.export import __main__ as export
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.predictor import load_predictor
from examples import finetune_checkpoint, finetune_hub, finetune_raw_text
from finetuning import predict
from finetuning import train as finetune

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def tune(task: str, data: object, init: str, run: pathlib.Path, *values: str) -> dict:
    options = finetune.FinetuneOptions(
        task, str(run), str(data), init=init, recipe="none", set=values
    )
    finetune.main(options)
    return RunDir(str(run)).result()


@pytest.mark.parametrize(
    ("task", "file", "count"),
    [("squad2", "squad2_subset_a", 2828)]
    + [("squad1", f"xquad.{x}", 1190) for x in ("en", "de", "zh")],
)
def test_squad_s_files(task, file, count, start: str, shared_data: pathlib.Path, tmp_path):
    data = tmp_path / "squad"
    data.mkdir()
    version = {"squad1": "v1.1", "squad2": "v2.0"}[task]
    for part in ("train", "dev"):
        source = shared_data / "squad" / f"{file}.json.gz"
        shutil.copyfile(source, data / f"{part}-{version}.json.gz")
    values = (
        "training.steps=30",
        "task.seq_length=64",
        "task.doc_stride=24",
        "task.query_length=16",
    )
    result = tune(task, data, start, tmp_path / "run", *values)
    assert result["dev_examples"] == count and 0 <= result["exact_match"] <= result["f1"] <= 1
    predict.main(
        predict.PredictOptions(
            str(tmp_path / "run"),
            data_dir=str(data),
            part="dev",
            submission=str(tmp_path / "predictions.json"),
        )
    )
    answers = json.loads((tmp_path / "predictions.json").read_text())
    assert len(answers) == count
    nbest = json.loads((tmp_path / "predictions_nbest.json").read_text())
    assert answers.keys() == nbest.keys()


PROGRAM = """
import sys, tensorflow as tf
cpus = tf.config.list_physical_devices("CPU")
parts = [tf.config.LogicalDeviceConfiguration()] * int(sys.argv.pop(1))
tf.config.set_logical_device_configuration(cpus[0], parts)
from albert_tf.runtime import commands
from finetuning import train
commands.run(train.main, train.FinetuneOptions, "")
"""
VALUES = (  # without dropout a batch is split and nothing else
    "training.steps=12",
    "training.evaluate_every=4",
    "task.dropout=0",
    "task.seq_length=32",
    "training.layer_decay=0.5",
    "training.learning_rate=0.01",
    "training.precision=float32",
)


def process(
    fruit: str, start: str, run: pathlib.Path, replicas: int, *more: str, **environment: str
) -> subprocess.Popen:
    flags = [
        "--task=text_classification",
        f"--data_dir={fruit}",
        f"--init={start}",
        f"--run_dir={run}",
        "--recipe=none",
        *more,
    ]
    for value in VALUES:
        flags += ["--set", value]
    command = [sys.executable, "-c", PROGRAM, str(replicas), *flags]
    return subprocess.Popen(command, env=os.environ | environment)


def losses_and_answers(run: pathlib.Path) -> tuple[list[float], list[float]]:
    lines = (run / "predictions" / "dev.jsonl").read_text(encoding="utf-8").splitlines()
    answers = [json.loads(line)["prediction"]["probabilities"]["fruit"] for line in lines]
    return [row["loss/train"] for row in RunDir(str(run)).metrics()], answers


def test_replicas_and_workers_learn_what_one_device_does(
    fruit: str, start: str, tmp_path: pathlib.Path
):
    for replicas in (1, 2):
        assert process(fruit, start, tmp_path / str(replicas), replicas).wait() == 0
    parts = ("--set", "training.accumulation_steps=4")
    assert process(fruit, start, tmp_path / "parts", 2, *parts).wait() == 0
    ports = []
    for _ in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            ports.append(free.getsockname()[1])
    cluster = {"worker": [f"127.0.0.1:{port}" for port in ports]}
    workers = [
        process(
            fruit,
            start,
            tmp_path / "workers",
            1,
            "--device=multi_worker",
            TF_CONFIG=json.dumps({"cluster": cluster, "task": {"type": "worker", "index": i}}),
        )
        for i in (0, 1)
    ]
    assert [worker.wait(timeout=600) for worker in workers] == [0, 0]
    losses, answers = losses_and_answers(tmp_path / "1")
    for name in ("2", "parts", "workers"):
        others, theirs = losses_and_answers(tmp_path / name)
        assert others == pytest.approx(losses, abs=2e-4)
        assert theirs == pytest.approx(answers, abs=2e-3)


def test_the_scripts_of_examples(start: str, tmp_path: pathlib.Path, capsys):
    rows = [("pear apple", "fruit"), ("hammer saw", "tool")] * 40
    rows[0] = ("pear apple " * 40, "fruit")
    table = tmp_path / "train.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{text}\t{label}\n\n" for text, label in rows))
    for kind in ("preprocessing", "encoder"):
        export.main(export.ExportOptions(start, str(tmp_path / kind), kind=kind, unfinished=True))
    preprocessing, encoder = (str(tmp_path / k / "1") for k in ("preprocessing", "encoder"))
    run = str(tmp_path / "run")
    one = finetune_checkpoint.main(start, str(table), run, epochs=8, rate=1e-3)
    note = "note: 1 of 80 examples are longer than task.seq_length=64 and are truncated"
    assert note in capsys.readouterr().out
    other = finetune_hub.main(preprocessing, encoder, str(table), epochs=8, rate=1e-3)
    for model in (one, other):
        assert model.history.history["accuracy"][-1] > 0.9
    answers = load_predictor(run)(["pear apple", "hammer saw"])
    assert [answer["label"] for answer in answers] == ["fruit", "tool"]
    saved = str(tmp_path / "reviews")
    finetune_raw_text.main(preprocessing, encoder, str(table), saved, epochs=8, rate=1e-3)
    assert os.path.isfile(os.path.join(saved, "saved_model.pb"))
    loaded = tf_keras.models.load_model(saved)
    assert loaded.predict(["pear apple", "hammer saw"]).argmax(axis=1).tolist() == [0, 1]
