"""The paper's rows: medians, Avg and speed-up by hand; two runs on a task end to end."""

import csv
import dataclasses
import json
import pathlib
import shutil

import pytest

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.run_dir import RunDir
from finetuning import table, train
from finetuning.reporting import paper_table
from finetuning.reporting.table_runs import find_runs
from finetuning.table import TableOptions
from tests.finetuning.conftest import QUICK


@pytest.fixture
def runs(start: str, tmp_path: pathlib.Path) -> pathlib.Path:
    """Two copies of a pretraining run, the second twice as fast."""
    for name, speed in (("a", 1000.0), ("b", 2000.0)):
        shutil.copytree(start, tmp_path / "runs" / name)
        RunDir(str(tmp_path / "runs" / name)).finish({"tokens_per_s": speed})
    return tmp_path / "runs"


def test_a_row_by_hand(runs: pathlib.Path):
    """Of SQuAD 2.0 the paper's protocol goes into Avg; what the run answers with is beside it."""
    one, other = str(runs / "a"), str(runs / "b")
    at_zero = {"f1": 0.5, "exact_match": 0.4, "exact_match_at_best_f1": 0.5, "dev_examples": 100}
    results = {
        (one, "squad2"): [{"best_f1": f1, **at_zero} for f1 in (0.60, 0.70, 0.65)],
        (one, "cola"): [{"mcc": 0.25, "seconds": 3.0, "dev_examples": 40}],
        (other, "cola"): [{"mcc": 0.5, "dev_examples": 40}],
    }
    lines = paper_table.table_of([one, other], ["squad2", "cola"], results, one).splitlines()
    count = RunDir(one).config() and train.StartingPoint.of(one, None, None).config.param_count()
    header = "| run | parameters | squad2 | squad2, own threshold | cola | Avg | speed-up |"
    # Avg of the medians of SQuAD's mean and MCC: ((65 + 50) / 2 + 25) / 2.
    assert lines[0] == header
    own = "50.0 (50.0 to 50.0)/40.0 (40.0 to 40.0)"
    best = "65.0 (60.0 to 70.0)/50.0 (50.0 to 50.0)"
    assert lines[2] == f"| a | {count:,} | {best} | {own} | 25.0 | 41.2 | 1.0x |"
    assert lines[3] == f"| b | {count:,} | failed | failed | 50.0 |  | 2.0x |"
    assert lines[4:] == [
        "| always the same answer |  |  |  |  |  |  |",
        "| dev examples |  | 100 | 100 | 40 |  |  |",
    ]
    lines = paper_table.table_of([one, other], ["cola"], results, other).splitlines()
    assert lines[2].endswith("| 0.5x |") and lines[3].endswith("| 1.0x |")


def test_errors_and_baselines_by_hand(runs: pathlib.Path, tmp_path: pathlib.Path):
    """Of two seeds the medians; of a task without a common answer no baseline; no error of 0."""
    run = str(runs / "a")
    scores = {"exact_match": 0.5, "metric": "f1", "dev_examples": 1000}
    errors = [{"f1": 0.01, "exact_match": 0.0}, {"f1": 0.03, "exact_match": 0.0}]
    f1 = (0.7, 0.8)
    old = {"mcc": 0.5, "metric": "mcc", "baselines": {"mcc": 0.0}}
    new = {"accuracy": 0.5, "baselines": {"accuracy": 0.25}, "dev_examples": 20}
    new |= {"references": {"BM25": {"accuracy": 0.3}}}
    results = {
        (run, "squad1"): [
            scores | {"f1": value, "standard_errors": each}
            for value, each in zip(f1, errors, strict=True)
        ],
        (run, "cola"): [old | {"standard_errors": {"mcc": 0.125}, "dev_examples": 40}],
        (run, "rte"): [new | {"metric": "accuracy"}],
    }
    tasks = ["squad1", "cola", "rte"]
    lines = paper_table.table_of([run], tasks, results, run).splitlines()
    squad = "75.0 ± 2.0 (70.0 to 80.0)/50.0 (50.0 to 50.0)"
    assert f"| {squad} | 50.0 ± 12.5 | 50.0 | 54.2 |" in lines[2]
    assert lines[3:] == [
        "| always the same answer |  |  | 0.0 | 25.0 |  |  |",
        "| BM25 |  |  |  | 30.0 |  |  |",
        "| dev examples |  | 1,000 | 40 | 20 |  |  |",
    ]
    paper_table.write(str(tmp_path), [run], tasks, results, run)
    with open(tmp_path / "results.csv", encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["run"], row["task"]) for row in rows] == [
        *((run, name) for name in ("squad1", "squad1", "cola", "rte")),
        *(("always the same answer", name) for name in ("cola", "rte")),
        ("BM25", "rte"),
    ]
    assert [row["standard_error_f1"] for row in rows[:2]] == ["0.01", "0.03"]
    assert rows[2]["standard_error_mcc"] == "0.125"
    assert (rows[4]["mcc"], rows[5]["accuracy"]) == ("0.0", "0.25")


def glue(folder: pathlib.Path) -> None:
    """RTE, STS-B, MRPC and MNLI in the layouts of their files, four rows each."""
    nli = "\t".join(["x"] * 8)
    columns = {
        "RTE": (
            "index\tsentence1\tsentence2\tlabel",
            "0\t{}\t{}",
            ("entailment", "not_entailment"),
        ),
        "STS-B": (
            "\t".join([*"abcdefg", "sentence1", "sentence2", "score"]),
            "\t".join(["x"] * 7) + "\t{}\t{}",
            ("1.5", "4.0"),
        ),
        "MRPC": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "{1}\t1\t2\t{0}", ("0", "1")),
        "MNLI": (
            "\t".join([*"abcdefgh", "sentence1", "sentence2", "gold_label"]),
            nli + "\t{}\t{}",
            ("contradiction", "entailment", "neutral"),
        ),
    }
    for name, (header, row, labels) in columns.items():
        (folder / name).mkdir(parents=True)
        parts = ("dev_matched", "dev_mismatched") if name == "MNLI" else ("dev",)
        for part in ("train", *parts):  # MRPC's training rows that are dev rows are left out
            pair = f"A text of {part}.\tAnother text."
            rows = [row.format(pair, label) for label in (labels * 4)[:4]]
            text = "\n".join([header, *rows]) + "\n"
            (folder / name / f"{part}.tsv").write_text(text, encoding="utf-8")


def test_it_begins_with_the_best_mnli_model_or_where_it_began(
    runs: pathlib.Path, tmp_path: pathlib.Path
):
    """Of two seeds the second is better; with a third, which is best, RTE's start stays."""
    options = TableOptions(
        (f"{runs}/a",), "rte,mnli", "glue", str(tmp_path), 2, from_mnli=True, dry_run=True
    )
    run, mnli = str(runs / "a"), tmp_path / "a" / "mnli"
    assert table._start(options, run, "mnli") == f"--init={run}"
    assert table._start(options, run, "rte") == f"--init_from_task={mnli}"  # before it is there
    for seed, score in enumerate((0.5, 0.8, 0.9)):
        folder = mnli / f"seed-{seed}"
        shutil.copytree(run, folder)
        RunDir(str(folder)).finish({"accuracy": score, "metric": "accuracy", "dev_examples": 9})
        if seed == 0:
            continue
        wanted = f"--init_from_task={mnli / 'seed-1'}"
        assert table._start(options, run, "rte") == wanted
        begun = tmp_path / "a" / "rte" / "seed-0"
        begun.mkdir(parents=True, exist_ok=True)
        (begun / "config.json").write_text(json.dumps({"init": str(mnli / "seed-1")}))


@pytest.mark.slow
def test_the_paper_s_table_9(runs: pathlib.Path, tmp_path: pathlib.Path):
    """RTE, STS-B and MRPC begin with the best of the run's MNLI models, which is trained first."""
    glue(tmp_path / "glue")
    begun: list[list[str]] = []

    def run(command: list[str]) -> int:
        begun.append(command)
        train.main(commands.parse(train.FinetuneOptions, command[1:], "", ""))
        return 0

    quick = ("training.steps=2", "training.batch_size=2", "task.seq_length=16")
    options = TableOptions(
        (f"{runs}/a",),
        "rte,sts-b,mnli,mrpc",
        str(tmp_path / "glue"),
        str(tmp_path / "t"),
        2,
        from_mnli=True,
        set=quick,
    )
    assert table.main(options, run) == 0
    mnli = [RunDir(str(tmp_path / "t" / "a" / "mnli" / f"seed-{i}")) for i in (0, 1)]
    scores = [run.result()["accuracy"] for run in mnli]
    best = mnli[scores.index(max(scores))].path
    assert [command[2] for command in begun] == [
        "--task=mnli",
        "--task=rte",
        "--task=sts-b",
        "--task=mrpc",
    ]
    assert begun[0][4] == f"--init={runs / 'a'}"
    assert {command[4] for command in begun[1:]} == {f"--init_from_task={best}"}
    for name in ("rte", "sts-b", "mrpc"):
        config = RunDir(str(tmp_path / "t" / "a" / name / "seed-1")).config()
        assert config["init"] == best
    header = (tmp_path / "t" / "table.md").read_text().splitlines()[0]
    assert header == "| run | parameters | rte | sts-b | mnli | mrpc | Avg | speed-up |"


def test_without_mnli_nothing_begins_with_it(runs: pathlib.Path, tmp_path, capsys):
    glue(tmp_path / "glue")
    options = TableOptions(
        (f"{runs}/a",), "rte,mnli", str(tmp_path / "glue"), str(tmp_path / "t"), from_mnli=True
    )
    assert table.main(options, lambda command: 2) == commands.USAGE_ERROR
    mnli = tmp_path / "t" / "a" / "mnli"
    assert capsys.readouterr().err.splitlines() == [
        f"failed: {mnli}: finetuning.train exited with status 2; see its message above.",
        f"failed: {mnli.parent / 'rte'}: no finished run in {mnli}",
    ]
    with pytest.raises(InputError, match="--from_mnli requires mnli among --tasks"):
        table.main(dataclasses.replace(options, tasks="rte"))


@pytest.mark.slow
def test_two_runs_end_to_end(runs: pathlib.Path, fruit: str, tmp_path: pathlib.Path, capsys):
    begun = []

    def run(command: list[str]) -> int:
        begun.append(command)
        assert command[:2] == ["-m", "finetuning.train"]
        train.main(commands.parse(train.FinetuneOptions, command[1:], "", ""))
        return 0

    quick = tuple(value.replace("steps=60", "steps=20") for value in QUICK)
    options = TableOptions(
        (f"{runs}/*",),
        "text_classification",
        str(pathlib.Path(fruit).parent),
        str(tmp_path / "table"),
        set=quick,
    )
    assert table.main(options, run) == 0
    written = (tmp_path / "table" / "table.md").read_text()
    for name in ("a", "b"):
        result = RunDir(str(tmp_path / "table" / name / "text_classification")).result()
        shown = f"| {100 * result['accuracy']:.1f} ± {100 * result['standard_error']:.1f} |"
        assert f"| {name} |" in written and shown in written
    assert f"| {100 * result['baseline']:.1f} |" in written
    assert len((tmp_path / "table" / "results.csv").read_text().splitlines()) == 4
    capsys.readouterr()
    assert table.main(options, run) == 0  # taken up again: nothing is trained
    assert capsys.readouterr().out.count("already complete") == 2 and len(begun) == 4


def test_a_failure_is_told_and_the_others_go_on(
    runs: pathlib.Path, fruit: str, tmp_path: pathlib.Path, capsys
):
    """Of five runs one ended with an error, one left no result, two cannot begin."""
    for name in ("c", "d", "e"):
        shutil.copytree(runs / "a", runs / name)
    (runs / "c" / "result.json").unlink()
    (runs / "d" / "config.json").write_text("{")

    def run(command: list[str]) -> int:
        name = pathlib.Path(command[5]).parent.name
        if name == "e":
            folder = command[5].removeprefix("--run_dir=")
            shutil.copytree(runs / "a", folder)
            RunDir(folder).finish({"metric": "accuracy", "accuracy": 0.5, "dev_examples": 40})
        return 2 if name in "ad" else 0

    options = TableOptions((f"{runs}/*",), "text_classification", fruit, str(tmp_path / "t"))
    assert table.main(options, run) == commands.USAGE_ERROR
    printed = capsys.readouterr()
    failed = [f"failed: {tmp_path}/t/{name}/text_classification: " for name in "abcd"]
    for line, start in zip(printed.err.splitlines(), failed, strict=True):
        assert line.startswith(start)
    assert f"{failed[2]}{runs}/c is not complete. Repeat its command" in printed.err
    rows = printed.out.splitlines()[-7:-2]
    assert [row.split(" | ")[2] for row in rows] == ["failed"] * 4 + ["50.0"]
    assert rows[3].startswith("| d |  |")  # its config.json cannot be read


def test_baselines_are_rows(runs: pathlib.Path, fruit: str, tmp_path: pathlib.Path):
    """Words tell fruit from tools; SQuAD has no row for them."""
    (tmp_path / "data").mkdir()
    shutil.copytree(fruit, tmp_path / "data" / "text_classification")
    (tmp_path / "data" / "squad1").mkdir()
    begun: list[list[str]] = []

    def run(command: list[str]) -> int:
        begun.append(command)
        return 2

    options = TableOptions(
        ("bag-of-words", f"random:{runs}/a"),
        "text_classification,squad1",
        str(tmp_path / "data"),
        str(tmp_path / "t"),
        max_train_examples=100,
    )
    assert table.main(options, run) == commands.USAGE_ERROR
    assert [command[4:6] for command in begun] == [
        [f"--init=random:{runs}/a", f"--run_dir={tmp_path}/t/a-random/{task}"]
        for task in ("text_classification", "squad1")
    ]
    assert all(command[-1] == "--max_train_examples=100" for command in begun)
    words, random = (tmp_path / "t" / "table.md").read_text().splitlines()[2:4]
    assert words.startswith("| bag-of-words |  | 100.0") and words.endswith("|  |  |  |")
    assert random.startswith("| a-random | ") and random.count("failed") == 2


def test_words_alone_have_no_row_for_squad(tmp_path: pathlib.Path):
    options = TableOptions(("bag-of-words",), "squad2", str(tmp_path), str(tmp_path / "t"))
    with pytest.raises(InputError, match="bag-of-words is a baseline for the kinds classifier"):
        table.main(options)
    assert not (tmp_path / "t").exists()


def test_commas_separate_runs(runs: pathlib.Path):
    a, b = f"{runs}/a", f"{runs}/b"
    one, *others = find_runs((f"bag-of-words,random:albert-mini-en, {b},", f"{runs}/*"))
    assert (one, others) == ("bag-of-words", ["random:albert-mini-en", b, a])
    with pytest.raises(InputNotFoundError, match=r"matches no run: 'random:none' .*albert-mini-en"):
        find_runs((f"{a},random:none",))
    shutil.copytree(a, f"{a},b")
    assert find_runs((f"{a},b",)) == [f"{a},b"]


def test_two_runs_of_one_name(start: str, runs: pathlib.Path, tmp_path: pathlib.Path):
    twice = find_runs((f"{runs}/*", f"{runs}/a"))
    assert [pathlib.Path(path).name for path in twice] == ["a", "b"]
    shutil.copytree(start, tmp_path / "more" / "a")
    with pytest.raises(InputError, match=r"runs/a and .*more/a. Rename one") as error:
        find_runs((f"{runs}/*", f"{tmp_path}/more/*"))
    assert "runs/b" not in str(error.value)


def test_mistakes(runs: pathlib.Path, tmp_path: pathlib.Path):
    def of(**changes: str) -> TableOptions:
        values = {"runs": (f"{runs}/*",), "tasks": "cola", "data_dir": str(tmp_path)}
        return TableOptions(**values | changes, output=str(tmp_path / "t"))

    with pytest.raises(
        InputNotFoundError, match=r"no folder cola in .*itself .*which contains runs"
    ):
        table.main(of())
    with pytest.raises(InputError, match="unknown task `colla`. Did you mean cola"):
        table.main(of(tasks="colla"))
    with pytest.raises(InputError, match="--tasks: ax has no training part. Fine-tune on mnli"):
        table.main(of(tasks="mnli,ax"))
    with pytest.raises(InputError, match="--baseline must be a complete pretraining run"):
        table.main(of(baseline=str(tmp_path)))
    with pytest.raises(InputError, match="--output must be a folder. Received: .*, a file"):
        table.main(dataclasses.replace(of(), output=str(runs / "a" / "config.json")))
    with pytest.raises(InputNotFoundError, match="--runs matches no run"):
        table.main(of(runs=(f"{tmp_path}/none/*",)))
    assert not (tmp_path / "t").exists()


def test_one_seed_and_several_are_not_mixed(runs: pathlib.Path, tmp_path: pathlib.Path):
    (tmp_path / "cola").mkdir()
    target = tmp_path / "t" / "a" / "cola"
    options = TableOptions((f"{runs}/a",), "cola,cola", str(tmp_path), str(tmp_path / "t"))
    (target / "seed-0").mkdir(parents=True)
    with pytest.raises(InputError, match=r"--seeds must be more than 1, as before.*Received: 1"):
        table.main(options)
    (target / "seed-0").rmdir()
    (target / "config.json").write_text("{}")
    with pytest.raises(InputError, match=r"--seeds must be 1, as before.*Received: 2"):
        table.main(dataclasses.replace(options, seeds=2))
    begun = []
    assert table.main(options, lambda command: begun.append(command) or 2) == commands.USAGE_ERROR
    assert len(begun) == 1  # a task that is named twice is one
