"""Distillation: the loss by hand, the teacher's answers kept, student beside control."""

import dataclasses
import gzip
import json
import pathlib
import shutil
from collections.abc import Callable, Sequence

import numpy as np
import pytest
import tensorflow as tf

import albert_tf
from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.features import concatenate
from albert_tf.tasks.predictor import load_predictor, task_of
from albert_tf.tasks.ranking.losses import ABSENT
from albert_tf.tasks.ranking.model import RankingSettings
from finetuning import distill
from finetuning.datasets.embeddings.teachers import SearchTeacher
from finetuning.distill import DistillOptions
from finetuning.kinds.kind import TeacherOutput
from finetuning.kinds.ranking import OrderLoss
from finetuning.kinds.registry import FINETUNING
from finetuning.kinds.text_kind import SoftCrossEntropy
from finetuning.training import distillation_teachers, teacher_outputs
from finetuning.training.distillation_teachers import RunTeacher, VectorTeacher, teacher_of
from tests.finetuning.conftest import QUICK


def test_the_loss_by_hand():
    """Teacher (0.8, 0.2) and student (0.5, 0.5) at T = 2: logits are halved."""
    outputs = 2 * np.log([[0.8, 0.2]])
    loss = SoftCrossEntropy(2.0)(tf.constant(outputs), tf.zeros([1, 2], tf.float64))
    assert float(loss) == pytest.approx(4 * np.log(2))
    itself = SoftCrossEntropy(2.0)(tf.constant(outputs), tf.constant(outputs))
    entropy = -(0.8 * np.log(0.8) + 0.2 * np.log(0.2))
    assert float(itself) == pytest.approx(4 * entropy)


def test_the_loss_of_an_order_by_hand():
    """Teacher (0.8, 0.2) and student (0.5, 0.5) of the two candidates that are read."""
    teacher = tf.constant([[2 * np.log(0.8), 7.0, 2 * np.log(0.2)]], tf.float32)
    student = tf.constant([[3.0, ABSENT, 3.0]], tf.float32)
    assert float(OrderLoss(2.0)(teacher, student)) == pytest.approx(4 * np.log(2), rel=1e-6)
    teacher = tf.constant([[1.0, 7.0, 5.0, 0.0]], tf.float32)
    student = tf.constant([[3.0, ABSENT, 4.0, 2.0]], tf.float32)
    margins = np.subtract.outer([1.0, 5.0, 0.0], [1.0, 5.0, 0.0])
    margins -= np.subtract.outer([3.0, 4.0, 2.0], [3.0, 4.0, 2.0])
    wanted = np.mean(margins**2) / 2
    assert float(OrderLoss(None)(teacher, student)) == pytest.approx(wanted, rel=1e-6)
    assert float(OrderLoss(None)(teacher, teacher + 3)) == pytest.approx(0, abs=1e-9)
    copy = OrderLoss.from_config(OrderLoss(2.0).get_config())
    assert copy.temperature == 2.0


def test_the_cosines_of_vectors_by_hand():
    """Queries and passages have vectors of their own; lengths do not count."""
    kind = FINETUNING["ranking"]
    vectors = {"pear": [1, 0], "plum": [3, 4], "saw": [0, -2], "none": [0, 0]}

    def embed(sign: int) -> Callable[[Sequence[str]], np.ndarray]:
        return lambda texts: sign * np.array([vectors[text] for text in texts], np.float16)

    examples = [kind.of_texts("pear", "plum", "saw", "none"), kind.of_texts("saw", "plum")]
    found = kind.vector_outputs(examples, embed(1), embed(-1))
    assert [output.values.tolist() for output in found] == [
        pytest.approx([-12, 0, 0]),
        pytest.approx([16]),
    ]
    assert kind.as_prediction(found[0])["ranking"] == [1, 2, 0]


def test_which_teacher_a_path_is(tuned: pathlib.Path, pretrained: str, tmp_path: pathlib.Path):
    run, kind = str(tuned / "seed-0"), FINETUNING["ranking"]
    assert isinstance(teacher_of(run, FINETUNING["classifier"]), RunTeacher)
    assert isinstance(teacher_of(pretrained, FINETUNING["classifier"]), RunTeacher)
    assert isinstance(teacher_of(run, kind), RunTeacher)  # whose `task_for` refuses it
    with pytest.raises(InputError, match="must have the same kind as --data_dir"):
        teacher_of(run, kind).task_for("ranking", RankingSettings())
    with pytest.raises(InputNotFoundError, match="--teacher=.*none must be a run, .*Pass one of"):
        teacher_of(str(tmp_path / "none"), kind)
    assert isinstance(teacher_of("albert-mini-en-embed", kind), VectorTeacher)
    copy = tmp_path / "copy"
    shutil.copytree(pretrained, copy)
    names = {teacher_of(path, kind).weights() for path in (pretrained, str(copy))}
    (copy / "new.json").write_text("{}")
    names.add(teacher_of(str(copy), kind).weights())
    assert sorted(map(len, names)) == [16, 16]


def test_a_file_is_known_by_what_belongs_to_it(tmp_path: pathlib.Path, monkeypatch):
    """An ONNX file may lie in any folder, whose other files do not count."""
    monkeypatch.setattr(distillation_teachers, "load_search_teacher", lambda *_: None)
    (tmp_path / "onnx").mkdir()
    path = tmp_path / "onnx" / "model.onnx"
    found = []
    for name in (
        "onnx/model.onnx",
        "onnx/model.onnx_data",
        "tokenizer.json",
        "onnx/other.bin",
        "log.txt",
    ):
        (tmp_path / name).write_text(name)
        found.append(VectorTeacher(str(path), FINETUNING["ranking"]).weights())
    assert len(set(found)) == 3 and found[2] == found[3] == found[4]


def test_vectors_of_numbers_only(pretrained: str, monkeypatch: pytest.MonkeyPatch):
    model = teacher_of(pretrained, FINETUNING["ranking"])
    nan = SearchTeacher(*[lambda texts: np.full([len(texts), 2], np.nan)] * 2)
    monkeypatch.setattr(model, "_embed", nan)
    with pytest.raises(InputError, match="vectors of finite numbers. Received others, for .*pear"):
        model.load(8)([FINETUNING["ranking"].of_texts("pear", "saw")])


@pytest.mark.parametrize(
    "name", [None, pytest.param("albert-mini-en-embed", marks=pytest.mark.slow)]
)
def test_a_ranker_learns_cosines(name: str | None, pretrained: str, tmp_path: pathlib.Path, capsys):
    name = name or pretrained
    rows = [
        {"query": q, "candidates": [{"text": t, "label": int(t == q)} for t in ("pear", "saw")]}
        for q in ("pear", "saw")
    ]
    for part in ("train", "dev"):
        (tmp_path / f"{part}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    options = DistillOptions(
        name,
        "ranking",
        str(tmp_path / "out"),
        str(tmp_path),
        student=pretrained,
        set=("training.steps=2", "training.evaluate_every=2", "task.seq_length=16"),
    )
    with pytest.raises(InputError, match="to give its layers to the student.*Pass --student"):
        distill.main(dataclasses.replace(options, student=None, student_layers=1))
    distill.main(options)
    stored = tmp_path / "out" / "teacher"
    ((_, answers),) = teacher_outputs.read_outputs(str(stored), FINETUNING["ranking"])
    embedder = albert_tf.load_embedder(name)
    texts = ["pear", "saw"]
    wanted = 20 * embedder.encode_query(texts) @ embedder.encode_document(texts).T
    np.testing.assert_allclose([answer.values for answer in answers], wanted, atol=1e-4)
    results = json.loads((tmp_path / "out" / "result.json").read_text())
    assert results["teacher"]["map"] == 1.0 and "parameters" not in results["teacher"]
    assert RunDir(str(tmp_path / "out" / "student")).result()["train_examples"] == 2
    assert "| teacher |  |  | 1.0000" in capsys.readouterr().out


def test_queries_with_more_candidates_than_those_before(small_tokenizer):
    """Chunks of queries have as many candidates as the largest query of all."""
    kind, task = FINETUNING["ranking"], RankingSettings(seq_length=16)
    chunks = [[("pear", "apple", "saw")], [("saw", "file", "plum", "pear"), ("file", "saw")]]
    answers = [[[2.0, 3.0]], [[1.0, -1.0, 0.0], [5.0]]]
    parts = [
        kind.taught_features(
            [kind.of_texts(*texts) for texts in examples],
            [TeacherOutput(np.array(scores, np.float32)) for scores in taught],
            small_tokenizer,
            task,
        )
        for examples, taught in zip(chunks, answers, strict=True)
    ]
    every = concatenate(parts)
    assert (len(every), every.per_unit) == (3, 3)
    assert every.hints["grades"].tolist() == [[0, 1, -1], [1, 0, 0], [1, -1, -1]]
    inputs, targets = every.batch(tf.range(3))
    present = tf.reduce_any(inputs["input_mask"] > 0, axis=-1).numpy()
    assert present.tolist() == [[True, True, False], [True] * 3, [True, False, False]]
    scores = [
        row[:count].tolist() for row, count in zip(targets["label"].numpy(), (2, 3, 1), strict=True)
    ]
    assert scores == [[2, 3], [1, -1, 0], [5]]


def test_the_teacher_is_asked_once(tuned: pathlib.Path, tmp_path: pathlib.Path, capsys):
    path, folder = str(tuned / "seed-0"), str(tmp_path / "teacher")
    model = RunTeacher(path)
    examples = [TextExample("pear apple"), TextExample("saw"), TextExample("naïve 漢字 plum")]
    identity = teacher_outputs.identity_of(model, examples)
    teacher_outputs.write_outputs(model, identity, examples, folder, 2)
    ((kept, answers),) = teacher_outputs.read_outputs(folder, FINETUNING["classifier"])
    assert kept == examples and not any(len(answer.starts) for answer in answers)
    outputs = np.stack([answer.values for answer in answers])
    wanted = [answer["probabilities"]["fruit"] for answer in load_predictor(path)(examples)]
    powers = np.exp(outputs)
    np.testing.assert_allclose(powers[:, 0] / powers.sum(axis=1), wanted, atol=1e-5)
    teacher_outputs.write_outputs(model, identity, examples, folder, 2)
    assert "the teacher's outputs already exist" in capsys.readouterr().out
    model = RunTeacher(str(tuned / "seed-1"))
    other = teacher_outputs.identity_of(model, examples[:2])
    with pytest.raises(
        InputError,
        match=r"holds outputs of another teacher or for other texts.*count: 3 != 2.*weights: ",
    ):
        teacher_outputs.write_outputs(model, other, examples[:2], folder, 2)


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "empty", "pointer"])
def test_damaged_outputs_are_named(damage: str, tuned: pathlib.Path, tmp_path: pathlib.Path):
    examples, folder = [TextExample("pear"), TextExample("saw")], tmp_path / "teacher"
    model = RunTeacher(str(tuned / "seed-0"))
    identity = teacher_outputs.identity_of(model, examples)
    teacher_outputs.write_outputs(model, identity, examples, str(folder), 2)
    path = folder / "outputs.tfrecord"
    content = path.read_bytes()
    changed = {
        "cut": content[:-3],
        "flipped": content[:40] + bytes([content[40] ^ 1]) + content[41:],
        "empty": b"",
        "pointer": b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n",
    }
    path.unlink() if damage == "missing" else path.write_bytes(changed[damage])
    with pytest.raises(InputError, match="outputs.tfrecord' must hold the teacher's outputs"):
        list(teacher_outputs.read_outputs(str(folder), FINETUNING["classifier"]))


def test_texts_that_do_not_fit(tmp_path: pathlib.Path):
    file = tmp_path / "texts.txt"
    file.write_text("one\ntwo\tthree\n")
    with pytest.raises(InputError, match=r"texts.txt:2: a line must be a text without tabs"):
        list(teacher_outputs.examples_of(str(file), ("text",)))
    with pytest.raises(InputNotFoundError, match="--texts: no file"):
        list(teacher_outputs.examples_of(str(tmp_path / "no"), ("text",)))


def test_texts_of_a_table(tmp_path: pathlib.Path):
    """The header and other columns are no texts; quotes are those of csv."""
    files = {
        "one.csv": ('label,text\nx,"a saw, a file"\n', [("a saw, a file",)]),
        "one.jsonl": ('{"text": "a\\tb", "id": 1}\n', [("a\tb",)]),
        "two.tsv": ("text_a\ttext_b\tlabel\na\tb\tx\n", [("a", "b")]),
    }
    for name, (content, examples) in files.items():
        (tmp_path / name).write_text(content)
        path, pair = str(tmp_path / name), name.startswith("two")
        columns = {each: FINETUNING["classifier"].text_columns((), each) for each in (True, False)}
        assert [*map(tuple, teacher_outputs.examples_of(path, columns[pair]))] == examples
        with pytest.raises(InputError, match="Rename the column, or the file to .txt"):
            list(teacher_outputs.examples_of(path, columns[not pair]))
    with gzip.open(tmp_path / "own.csv.gz", "wt") as file:
        file.write("body\na saw\n")
    own = teacher_outputs.examples_of(str(tmp_path / "own.csv.gz"), ("body",))
    assert [*map(tuple, own)] == [("a saw",)]
    (tmp_path / "empty.csv").write_text("text\na saw\n  \n")
    with pytest.raises(InputError, match=r"empty.csv:3: `text` is empty"):
        list(teacher_outputs.examples_of(str(tmp_path / "empty.csv"), ("text",)))


def test_the_output_and_the_teacher_are_checked_first(
    tuned: pathlib.Path, fruit: str, tmp_path: pathlib.Path
):
    (tmp_path / "file").touch()
    options = DistillOptions(
        str(tuned / "seed-0"),
        "text_classification",
        str(tmp_path / "file"),
        fruit,
        student_layers=1,
    )
    with pytest.raises(InputError, match="--output must be a folder. Received: .*, a file"):
        distill.main(options)
    shutil.copytree(tuned / "seed-0", tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    begun = dataclasses.replace(
        options, output=str(tmp_path / "out"), teacher=str(tmp_path / "begun")
    )
    with pytest.raises(InputError, match="--teacher=.*begun has not ended"):
        distill.main(begun)
    model = VectorTeacher(begun.teacher, FINETUNING["ranking"])
    model.require_ended(True)
    with pytest.raises(InputError, match="--teacher=.*begun has not ended"):
        model.require_ended(False)


@pytest.mark.slow
def test_student_and_control(tuned: pathlib.Path, fruit: str, tmp_path: pathlib.Path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("pear saw\nmelon\n" + "红 楼\n" * 20, encoding="utf-8")
    of_dev = pathlib.Path(fruit, "dev.tsv").read_text().splitlines()[1].split("\t")[0]
    with open(texts, "a") as file:
        file.write(f"{of_dev}\n")  # is left out
    options = DistillOptions(
        str(tuned / "seed-0"),
        "text_classification",
        str(tmp_path / "out"),
        fruit,
        student_layers=1,
        texts=str(texts),
        set=QUICK,
    )
    distill.main(options)
    results = json.loads((tmp_path / "out" / "result.json").read_text())
    assert {name: result["layers"] for name, result in results.items()} == {
        "teacher": 2,
        "student": 1,
        "control": 1,
    }
    # The block is shared: fewer layers are as many parameters.
    assert len({result["parameters"] for result in results.values()}) == 1
    assert results["student"]["accuracy"] > 0.9
    assert json.loads((tmp_path / "out/teacher/manifest.json").read_text())["count"] == 182
    student = RunDir(str(tmp_path / "out" / "student"))
    assert student.config()["model"]["num_layers"] == 1
    answer = load_predictor(student.path)([TextExample("pear melon")])[0]
    assert answer["label"] == "fruit"
    printed = capsys.readouterr().out
    assert "| student | 1 |" in printed and "vocabulary: 20 of 红 (U+7EA2), 20 of 楼" in printed
    for name in ("student", "control"):  # runs like others
        run = RunDir(str(tmp_path / "out" / name))
        assert run.result()["accuracy"] == pytest.approx(results[name]["accuracy"])
        assert max(row["dev/accuracy"] for row in run.metrics()) == run.result()["accuracy"]
        assert pathlib.Path(run.card_path).is_file()
    origin = RunDir(str(tuned / "seed-0")).config()["init"]
    assert RunDir(str(tmp_path / "out" / "control")).config()["init"] == origin
    assert student.config()["init"] == str(tuned / "seed-0")
    assert student.result()["train_examples"] == 182
    saved = tf.train.latest_checkpoint(student.checkpoints_path)
    written = pathlib.Path(saved + ".index").stat().st_mtime_ns
    distill.main(options)  # nothing is trained again
    assert pathlib.Path(saved + ".index").stat().st_mtime_ns == written


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"student_layers": 2}, "must be less than the teacher's.*Received: 2"),
        ({"student_layers": None}, "either --student or --student_layers"),
        ({"loss": "kl"}, "--loss must be one of"),
        ({"device": "multi_worker"}, "--device must be one of auto, cpu, gpu, tpu"),
        ({"loss": "mse", "temperature": 7.0}, "--temperature is only for --loss=cross_entropy"),
        (
            {"task": "sts-b", "loss": "cross_entropy"},
            "--loss=cross_entropy is only for --task=.*Received: --task=sts-b",
        ),
        ({"task": "sts-b", "temperature": 7.0}, "--temperature is only for --loss=cross_entropy"),
        ({"temperature": 0.0}, "--temperature must be positive"),
        (
            {"task": "ranking", "texts": "a.txt"},
            "--texts is only for --task=.*Received: --task=ranking",
        ),
        ({"task": "rtee", "loss": "mse"}, "--task: unknown task .*rte"),
        ({"task": "squad1", "loss": "mse"}, "--task must be one of cola.*cannot be distilled here"),
        ({"task": "rte"}, "train.tsv:1: the header must name sentence1"),
        ({"set": ("training.frozen=4",), "dry_run": True}, "`training.frozen` must be at most"),
    ],
)
def test_mistakes(changes: dict, words: str, tuned: pathlib.Path, fruit: str, tmp_path):
    options = DistillOptions(
        str(tuned / "seed-0"), "text_classification", str(tmp_path / "out"), fruit, student_layers=1
    )
    with pytest.raises(InputError, match=words):
        distill.main(dataclasses.replace(options, **changes))
    assert not (tmp_path / "out").exists()


def test_a_teacher_of_another_task_is_refused(tuned: pathlib.Path, monkeypatch):
    path = str(tuned / "seed-0")
    model, theirs = RunTeacher(path), task_of(path)
    with pytest.raises(
        InputError, match="must be a run of --task=sst-2. Received: a run of 'text_c"
    ):
        model.task_for("sst-2", theirs)
    assert model.task_for("text_classification", theirs) == theirs
    calibrated = theirs.replace(logit_temperature=2.0)  # the outputs to learn are divided by it
    monkeypatch.setattr(distillation_teachers, "task_of", lambda _: calibrated)
    assert model.task_for("text_classification", theirs) == theirs
    for key, value in {"pair": True, "labels": ("a", "b")}.items():
        with pytest.raises(InputError, match=f"must have the same {key} as --data_dir"):
            model.task_for("text_classification", dataclasses.replace(theirs, **{key: value}))


def test_a_control_that_cannot_begin_is_known_first(
    tuned: pathlib.Path, fruit: str, tmp_path: pathlib.Path
):
    moved = tmp_path / "teacher"
    shutil.copytree(tuned / "seed-0", moved)
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"init": "/no/such"}))
    options = DistillOptions(
        str(moved), "text_classification", str(tmp_path / "out"), fruit, student_layers=1
    )
    with pytest.raises(InputError, match="must still exist. Received: '/no/such'"):
        distill.main(options)
    (moved / "config.json").write_text(json.dumps(config | {"init": "random:/no/such"}))
    with pytest.raises(InputError, match="must not be random weights"):
        distill.main(options)
    assert not (tmp_path / "out").exists()


def test_a_control_begins_where_the_teacher_did_in_this_installation(
    tuned: pathlib.Path, fruit: str, start: str, tmp_path: pathlib.Path, monkeypatch, capsys
):
    """The teacher recorded the name of an included model."""
    monkeypatch.setattr(pretrained, "FOLDER", str(tmp_path / "pretrained"))
    shutil.copytree(start, tmp_path / "pretrained" / "included")
    moved = tmp_path / "teacher"
    shutil.copytree(tuned / "seed-0", moved)
    config = json.loads((moved / "config.json").read_text())
    (moved / "config.json").write_text(json.dumps(config | {"init": "included"}))
    out = str(tmp_path / "out")
    distill.main(
        DistillOptions(
            str(moved), "text_classification", out, fruit, student_layers=1, dry_run=True
        )
    )
    assert '"init": "included"' in capsys.readouterr().out


def test_the_control_has_the_grades_of_its_data(tmp_path: pathlib.Path):
    """Those of the teacher's data may be larger."""
    run = RunDir(str(tmp_path))
    config = {"name": "ranking", "task": settings.to_dict(RankingSettings(largest_grade=3.0))}
    pathlib.Path(run.config_path).write_text(json.dumps(config), encoding="utf-8")
    task = RunTeacher(run.path).task_for("ranking", RankingSettings(largest_grade=1.0))
    assert task == RankingSettings(largest_grade=1.0)
