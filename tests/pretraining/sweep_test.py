"""A sweep: which members, how long, in which order; its means; failures, restarts and refusals.

Most tests put a trainer that takes no time in the place of the commands: its losses are chosen, so
that means and errors can be computed by hand. The slow suite has a real sweep.
"""

import csv
import dataclasses
import json
import math
import os
import pathlib
import shutil
from typing import Any

import pytest

from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import ConfigError, InputError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from data.objectives.masking import MaskingConfig
from data.records.manifest import Manifest
from pretraining import evaluate, sweep, train
from pretraining.loop.config import PretrainConfig
from pretraining.loop.groups import experiment
from pretraining.loop.recipes import LAPTOP, SMOKE
from pretraining.sweeping import calls
from pretraining.sweeping.plan import SweepOptions, configurations, of_length
from pretraining.sweeping.results import mean_and_error

SHARING = "model.sharing=all,none"


class Commands:
    """Stands for the commands: reads the same flags, writes what they would, in no time."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.devices: set[tuple[str, str | None]] = set()
        self.failing: tuple[str, ...] = ()
        self.step_ms = [5000.0, 10.0, 11.0, 12.0, 50.0]  # the first one compiles

    def __call__(self, module: str, *flags: str) -> None:
        program = {"pretraining.train": train, "pretraining.evaluate": evaluate}[module]
        is_training = program is train
        options_class = train.TrainOptions if is_training else evaluate.EvaluateOptions
        given = commands.parse(options_class, [module, *flags], "", "")
        run, name = RunDir(given.run_dir), os.path.basename(given.run_dir)
        self.calls.append(f"{'train' if is_training else 'evaluate'} {name}")
        self.devices.add((given.device, given.tpu))
        if any(text in name for text in self.failing):
            raise calls.CommandError("pretraining.train ended with status 1")
        if is_training:
            config = settings.override(experiment(given.experiment), given.set)
            assert bool(given.heldout) == bool(config.evaluation.every)  # as the real one requires
            self.train(run, config)
        else:
            self.evaluate(run, given)

    def train(self, run: RunDir, config: PretrainConfig) -> None:
        os.makedirs(run.path, exist_ok=True)
        for step_ms in self.step_ms:
            run.add_metrics({"step": 10, "step_ms": step_ms})
        warmup = config.optimizer.warmup_steps
        run.finish({"step": config.loop.steps, "loss/mlm": 6.0, "warmup": warmup})

    def evaluate(self, run: RunDir, given: evaluate.EvaluateOptions) -> None:
        share = 0.5 if "all" in run.path else 0.25
        accuracy = share + {"0": -0.1, "1": 0.0, "2": 0.1}[run.path[-1]]
        figures = {"accuracy/mlm": accuracy, "standard_error/mlm": 0.01, "notes": ["none"]}
        figures["checkpoint"] = f"ckpt-{run.result()['step']}"
        data = os.path.abspath(given.data)
        figures |= {"data": data, "records": Manifest.read(given.data).identity()}
        masks = settings.override(PretrainConfig(), given.set).masking
        figures["masking"] = settings.to_dict(masks)
        outputs.write_json(given.output, figures)


@pytest.fixture
def fake_commands() -> Commands:
    return Commands()


def options(output: pathlib.Path | str, records: str, **changes: Any) -> SweepOptions:
    values = {"experiment": "smoke", "data": records, "device": "cpu"} | changes
    if "group" not in values:
        values.setdefault("grid", (SHARING,))
    return SweepOptions(str(output), **values)


def lines(output: pathlib.Path) -> list[dict[str, str]]:
    with open(output / "results.csv", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_a_grid_is_every_combination():
    grid = (SHARING, "optimizer.learning_rate=0.01,0.1")
    members = configurations(SweepOptions("out", grid, set=("loop.steps=9",)))
    assert [member.name for member in members] == [
        "model.sharing-all_optimizer.learning_rate-0.01",
        "model.sharing-all_optimizer.learning_rate-0.1",
        "model.sharing-none_optimizer.learning_rate-0.01",
        "model.sharing-none_optimizer.learning_rate-0.1",
    ]
    assert members[1].experiment == "laptop"
    assert members[1].assignments == (
        "loop.steps=9",
        "model.sharing=all",
        "optimizer.learning_rate=0.1",
    )
    assert members[1].tree().optimizer.learning_rate == 0.1


def test_a_group_is_its_rows_of_the_papers_model_or_of_another():
    papers = configurations(SweepOptions("out", group="sharing"))
    assert [member.name for member in papers][:2] == ["all-e768", "attention-e768"]
    assert papers[1].tree() == experiment("sharing/attention-e768")
    laptops = configurations(SweepOptions("out", group="objective", experiment="laptop"))
    assert [member.tree().objective.pair for member in laptops] == ["none", "nsp", "sop"]
    assert laptops[2].tree() == LAPTOP


def test_rows_of_another_experiment_have_its_length_and_schedule(
    tiny_records: str, tmp_path: pathlib.Path
):
    """Those of the paper train for 1,000,000 steps. smoke: 40, the first 10 warm-up."""
    given = options(tmp_path / "sweep", tiny_records, group="dropout")
    assert [member.tree().loop.steps for member in configurations(given)] == [40, 40]
    shorter = dataclasses.replace(given, budget="steps:20")
    one, other = (sweep.Sweep(shorter, Commands()).config(m) for m in configurations(shorter))
    assert one.optimizer.warmup_steps == other.optimizer.warmup_steps == 5
    assert (one.model.hidden_dropout, other.model.hidden_dropout) == (0.1, 0.0)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"group": "bert-recipe", "experiment": None}, "each later run with --init"),
        ({"group": "width"}, "sizes of their own: h1024, h2048, h4096, h6144. .*--budget"),
        ({"group": "configurations"}, "sizes of their own: albert-base-v1, .*bert-xlarge"),
    ],
)
def test_groups_that_no_sweep_can_scale(
    values: dict[str, Any], words: str, tiny_records: str, tmp_path: pathlib.Path
):
    with pytest.raises(InputError, match=words):
        configurations(options(tmp_path / "sweep", tiny_records, **values))


def test_rows_with_sizes_beside_their_own_experiment():
    one = configurations(SweepOptions("out", group="recipe", experiment="albert-mini"))
    assert [m.tree() for m in one] == [experiment(f"recipe/{m.name}") for m in one]


def test_warmup_and_schedule_keep_their_share():
    # laptop: 1,500 steps, the first 100 warm-up and the last 300 decay. 300 is a fifth.
    assert of_length(LAPTOP, 300) == (
        "loop.steps=300",
        "optimizer.warmup_steps=20",
        "optimizer.schedule_steps=0",
        "optimizer.decay_steps=60",
    )
    halves = ["optimizer.schedule_steps=20", "optimizer.decay_steps=5"]  # of 40
    assert of_length(settings.override(SMOKE, halves), 8) == (
        "loop.steps=8",
        "optimizer.warmup_steps=2",
        "optimizer.schedule_steps=4",
        "optimizer.decay_steps=1",
    )


def test_rounded_shares_fit_into_the_steps():
    """Warm-up and decay of half of the steps each are 4 and 4 of 7 if both are rounded."""
    base = settings.override(SMOKE, ["optimizer.warmup_steps=20", "optimizer.decay_steps=20"])
    for steps in range(2, 60):
        _, warmup, _, decay = (int(text.split("=")[1]) for text in of_length(base, steps))
        assert steps - 1 <= warmup + decay <= steps and decay >= 1


@pytest.mark.parametrize(
    ("budget", "steps"),
    [(None, 40), ("steps:7", 7), ("tokens:5200", 10), ("tokens:1", 1)],  # 16 x 32 tokens a step
)
def test_budgets(budget: str | None, steps: int, tiny_records: str, tmp_path, capsys):
    sweep.main(options(tmp_path / "out", tiny_records, budget=budget, seeds=2, dry_run=True))
    rows = capsys.readouterr().out.splitlines()[2:]
    assert len(rows) == 4 and all(row.endswith(f" | {steps} |") for row in rows)
    assert "model.sharing-none_seed-1" in rows[3]
    assert not (tmp_path / "out").exists()


def test_means_and_errors(fake_commands: Commands, tiny_records: str, tmp_path, capsys):
    out = tmp_path / "out"
    wanted = options(out, tiny_records, seeds=3, heldout=tiny_records, set=("seed=0",))
    assert sweep.main(wanted, fake_commands) == 0
    # All configurations with the first seed come before the second seed.
    runs = [f"model.sharing-{s}_seed-{n}" for n in range(3) for s in ("all", "none")]
    assert fake_commands.calls == [
        f"{what} {run}" for run in runs for what in ("train", "evaluate")
    ]
    rows = lines(out)
    assert [row["run"] for row in rows] == runs
    assert [row["model.sharing"] for row in rows] == ["all", "none"] * 3
    assert [float(row["accuracy/mlm"]) for row in rows] == [0.4, 0.15, 0.5, 0.25, 0.6, 0.35]
    assert all(row["train/step"] == "40" and "notes" not in row for row in rows)
    # A figure of another checkpoint is not taken for the last one's, and the others are.
    stale = RunDir(str(out / runs[0])).evaluation_path("sweep")
    outputs.write_json(stale, {"accuracy/mlm": 0.01, "checkpoint": "ckpt-10"})
    fake_commands.calls = []
    assert sweep.main(wanted, fake_commands) == 0 and fake_commands.calls == [f"evaluate {runs[0]}"]
    # 0.4, 0.5, 0.6: deviation 0.1 over the root of 3.
    printed = capsys.readouterr().out
    assert "| model.sharing-all | 3 |" in printed
    assert "| 0.5000 ± 0.0577 |" in printed and "| 0.2500 ± 0.0577 |" in printed
    assert (out / "results.png").read_bytes().startswith(b"\x89PNG")


def test_an_evaluation_may_be_added_and_its_masks_changed(
    fake_commands: Commands, tiny_records: str, tmp_path
):
    out = tmp_path / "out"
    assert sweep.main(options(out, tiny_records), fake_commands) == 0
    for masks in ((), ("masking.max_ngram=1",)):
        changes = {"heldout": os.path.relpath(tiny_records), "heldout_set": masks}
        for evaluations in (2, 0):
            fake_commands.calls = []
            assert sweep.main(options(out, tiny_records, **changes), fake_commands) == 0
            assert [call.split()[0] for call in fake_commands.calls] == ["evaluate"] * evaluations
    other = str(tmp_path / "heldout")  # the same corpus elsewhere may be another part of it
    shutil.copytree(tiny_records, other)
    fake_commands.calls = []
    assert (
        sweep.main(options(out, tiny_records, **changes | {"heldout": other}), fake_commands) == 0
    )
    assert len(fake_commands.calls) == 2
    path = RunDir(str(out / "model.sharing-all_seed-0")).evaluation_path("sweep")
    assert outputs.read_json(path)["masking"]["max_ngram"] == 1


def test_held_out_records_are_masked_as_in_the_paper(
    fake_commands: Commands, tiny_records: str, tmp_path: pathlib.Path
):
    out, heldout = tmp_path / "out", {"heldout": tiny_records}
    assert sweep.main(options(out, tiny_records, **heldout), fake_commands) == 0
    path = RunDir(str(out / "model.sharing-all_seed-0")).evaluation_path("sweep")
    masking = outputs.read_json(path)["masking"]
    assert masking == settings.to_dict(experiment("albert-base-v1").masking)
    assert MaskingConfig(**masking).slots(512) == 20
    short = rebuilt(tiny_records, tmp_path / "short", seq_length=16)  # which 20 would not fit
    given = options(tmp_path / "one", tiny_records, heldout=short)
    masks = sweep.Sweep(given, fake_commands)._masks(Manifest.read(short))
    assert masks["max_predictions"] == 16
    too_many = {"heldout_set": ("masking.max_predictions=33",)}  # of 32 pieces
    with pytest.raises(ConfigError, match="`masking.max_predictions` must be at most the seq"):
        sweep.main(options(tmp_path / "other", tiny_records, **heldout, **too_many), fake_commands)


def rebuilt(records: str, folder: pathlib.Path, **changes: Any) -> str:
    """A copy of the records whose manifest tells of another build."""
    shutil.copytree(records, folder, dirs_exist_ok=True)
    manifest = folder / "manifest.json"
    outputs.write_json(str(manifest), outputs.read_json(str(manifest)) | changes)
    return str(folder)


def test_records_that_were_built_again_are_another_sweep_or_evaluated_again(
    fake_commands: Commands, tiny_records: str, tmp_path
):
    out, data = tmp_path / "out", rebuilt(tiny_records, tmp_path / "data")
    wanted = options(out, data, heldout=rebuilt(tiny_records, tmp_path / "heldout"))
    sweep.main(wanted, fake_commands)
    rebuilt(tiny_records, tmp_path / "heldout", options='{"split": "heldout"}')
    fake_commands.calls = []
    sweep.main(wanted, fake_commands)
    assert [call.split()[0] for call in fake_commands.calls] == ["evaluate", "evaluate"]
    rebuilt(tiny_records, tmp_path / "data", corpus_fingerprint="another")
    with pytest.raises(InputError, match="another sweep.*records.0.corpus"):
        sweep.main(wanted, fake_commands)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer_fingerprint": "another"}, "--heldout=.* must have the tokenizer of --data"),
        ({"seq_length": 4096}, "at most 64 pieces, `model.max_positions`. Received: 4096"),
        (
            {"layout": "reference", "feature_names": "google"},
            "--heldout_set requires --heldout records of the compact layout",
        ),
    ],
)
def test_held_out_records_are_checked_before_anything_runs(
    changes: dict[str, Any], words: str, fake_commands: Commands, tiny_records: str, tmp_path
):
    heldout = rebuilt(tiny_records, tmp_path / "heldout", **changes)
    wanted = options(
        tmp_path / "out", tiny_records, heldout=heldout, heldout_set=("masking.max_ngram=1",)
    )
    with pytest.raises(InputError, match=words):
        sweep.main(wanted, fake_commands)
    assert not fake_commands.calls and not (tmp_path / "out").exists()


def test_finished_members_are_in_the_file_while_others_train(
    fake_commands: Commands, tiny_records: str, tmp_path
):
    out = tmp_path / "out"
    sweep.main(options(out, tiny_records), fake_commands)

    def interrupted(module: str, *flags: str) -> None:
        raise KeyboardInterrupt

    more = options(out, tiny_records, grid=("model.sharing=ffn,all,none",))
    with pytest.raises(KeyboardInterrupt):
        sweep.main(more, interrupted)
    assert [row["model.sharing"] for row in lines(out)] == ["all", "none"]
    sweep.main(more, fake_commands)
    assert [row["model.sharing"] for row in lines(out)] == ["ffn", "all", "none"]


def test_the_error_of_one_run_needs_30_examples():
    figures = {"accuracy/sop": 0.5, "standard_error/sop": 0.1}
    assert mean_and_error([figures | {"count/sop": 30}], "accuracy/sop") == (0.5, 0.1)
    mean, error = mean_and_error([figures | {"count/sop": 29}], "accuracy/sop")
    assert mean == 0.5 and math.isnan(error)


def test_members_compute_where_the_sweep_is_told_to(
    fake_commands: Commands, tiny_records: str, tmp_path
):
    wanted = options(tmp_path / "out", tiny_records, heldout=tiny_records, device="tpu", tpu="mine")
    assert sweep.main(wanted, fake_commands) == 0
    assert len(fake_commands.calls) == 4 and fake_commands.devices == {("tpu", "mine")}


def test_the_error_of_one_run_is_its_samples():
    one = [
        {
            "accuracy/sop": 0.7,
            "standard_error/sop": 0.02,
            "probe/sop": 0.6,
            "loss/mlm": 5.0,
            "standard_error/probe_sop": 0.03,
        }
    ]
    assert mean_and_error(one, "accuracy/sop") == (0.7, 0.02)
    assert mean_and_error(one, "probe/sop") == (0.6, 0.03)
    assert mean_and_error(one, "loss/mlm")[0] == 5.0
    assert math.isnan(mean_and_error(one, "loss/mlm")[1])
    assert all(map(math.isnan, mean_and_error(one, "accuracy/nsp")))
    assert all(map(math.isnan, mean_and_error([{"a": 1.0}, {"a": math.nan}], "a")))
    of_one_document = [{"accuracy/mlm": 0.4, "standard_error/mlm": 0.0}]
    assert math.isnan(mean_and_error(of_one_document, "accuracy/mlm")[1])


def test_a_failure_is_reported_and_the_others_go_on(
    fake_commands: Commands, tiny_records: str, tmp_path, capsys
):
    fake_commands.failing = ("all_seed-0",)
    wanted = options(tmp_path / "out", tiny_records, seeds=2)
    assert sweep.main(wanted, fake_commands) == commands.USAGE_ERROR
    assert len(fake_commands.calls) == 4 and len(lines(tmp_path / "out")) == 3
    assert "failed: " in (message := capsys.readouterr().err) and "all_seed-0: " in message
    fake_commands.failing, fake_commands.calls = (), []
    assert sweep.main(wanted, fake_commands) == 0
    assert fake_commands.calls == ["train model.sharing-all_seed-0"]  # the others are finished
    assert len(lines(tmp_path / "out")) == 4


def test_seconds_become_steps_once(fake_commands: Commands, tiny_records: str, tmp_path):
    out = tmp_path / "out"
    wanted = options(out, tiny_records, budget="seconds:23", seeds=2)
    fake_commands.failing = ("none_seed-1",)
    assert sweep.main(wanted, fake_commands) == commands.USAGE_ERROR
    # The median of 10, 11, 12 and 50 ms is 11.5; smoke warms up for a quarter of its steps.
    assert {(row["train/step"], row["train/warmup"]) for row in lines(out)} == {("2000", "500")}
    # Each configuration is timed once, before any is trained.
    assert fake_commands.calls.count("train run") == 2 == len(set(fake_commands.calls[:2])) + 1
    fake_commands.step_ms, fake_commands.failing = [1.0] * 5, ()
    assert sweep.main(wanted, fake_commands) == 0
    assert {row["train/step"] for row in lines(out)} == {"2000"}
    assert fake_commands.calls.count("train run") == 2
    assert not [name for name in os.listdir(out) if name.startswith(".timing")]


def test_equal_work_is_timed_once(fake_commands: Commands, tiny_records: str, tmp_path):
    """A rate costs nothing; dropout, the operations and another objective do."""
    others = ("model.hidden_dropout=0,0.1", "loop.kernels=auto,plain", "objective.pair=sop,none")
    for number, other in enumerate(others):
        grid = ("optimizer.learning_rate=0.1,0.2", other)
        wanted = options(tmp_path / f"{number}", tiny_records, grid=grid, budget="seconds:23")
        assert sweep.main(wanted, fake_commands) == 0
        assert fake_commands.calls.count("train run") == 2 * (number + 1)
    assert len(lines(tmp_path / "0")) == 4
    assert {row["train/step"] for row in lines(tmp_path / "0")} == {"2000"}


@pytest.mark.parametrize("content", ['{"loss/mlm": 1.5}', '{"step": 40, "lr": "0"}'])
def test_a_damaged_result_is_named(
    content: str, fake_commands: Commands, tiny_records: str, tmp_path: pathlib.Path
):
    wanted = options(tmp_path / "out", tiny_records, heldout=tiny_records)
    sweep.main(wanted, fake_commands)
    result = next((tmp_path / "out").glob("*/result.json"))
    result.write_text(content)
    with pytest.raises(InputError, match="result.json' must have numbers, with the integer `step`"):
        sweep.main(wanted, fake_commands)


def test_damaged_steps_are_named(fake_commands: Commands, tiny_records: str, tmp_path):
    wanted = options(tmp_path / "out", tiny_records, budget="seconds:23")
    sweep.main(wanted, fake_commands)
    state = json.loads((tmp_path / "out" / "sweep.json").read_text())
    for steps in ([], {"model.sharing-all": "10"}):
        outputs.write_json(str(tmp_path / "out" / "sweep.json"), state | {"steps": steps})
        with pytest.raises(InputError, match="sweep.json': `steps` must have a number for each"):
            sweep.main(wanted, fake_commands)


def test_another_sweep_in_the_folder_is_refused(
    fake_commands: Commands, tiny_records: str, tmp_path
):
    out = tmp_path / "out"
    sweep.main(options(out, tiny_records), fake_commands)
    more = options(out, tiny_records, grid=("model.sharing=attention",), seeds=2)
    sweep.main(more, fake_commands)
    for changes in (
        {"set": ("loop.steps=20",)},
        {"budget": "steps:9"},
        {"experiment": "laptop"},
    ):
        with pytest.raises(InputError, match=f"another sweep.*{next(iter(changes))}"):
            sweep.main(options(out, tiny_records, **changes), fake_commands)
    in_training, each = {"set": ("evaluation.every=10",)}, tmp_path / "each"
    with pytest.raises(InputError, match="`evaluation.every` requires --heldout"):
        sweep.main(options(each, tiny_records, **in_training), fake_commands)
    timed = in_training | {"budget": "seconds:10"}  # timing does not evaluate
    sweep.main(options(each, tiny_records, heldout=tiny_records, **timed), fake_commands)
    other = shutil.copytree(tiny_records, tmp_path / "other")
    with pytest.raises(InputError, match="another sweep.*heldout"):
        sweep.main(options(each, tiny_records, heldout=str(other), **timed), fake_commands)
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").touch()
    with pytest.raises(InputError, match="--output must name a new or empty folder"):
        sweep.main(options(tmp_path / "full", tiny_records), fake_commands)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"group": "sharing", "grid": (SHARING,)}, "either --grid or --group"),
        ({"grid": ()}, "either --grid or --group"),
        ({"seeds": 0}, "--seeds must be positive. Received: 0"),
        ({"budget": "minutes:3"}, "--budget must be steps:N.*'minutes:3'"),
        ({"budget": "steps:0.5"}, "--budget must be steps:N.*'steps:0.5'"),
        ({"grid": ("model.sharing",)}, "--grid must be key=value,value"),
        (
            {"grid": ("loop.steps=1,2",), "budget": "steps:4"},
            "--grid must not contain `loop.steps` beside --budget",
        ),
        (
            {"grid": (SHARING,), "set": ("model.sharing=ffn",)},
            "`model.sharing` must be given only once",
        ),
        ({"grid": ("seed=1,2",)}, "seeds only in --seeds"),
        ({"grid": ("model.sharing=all,all",)}, "members must differ"),
        ({"group": "additional-data"}, "members must differ. Received: without and with"),
        ({"heldout_set": ("loop.steps=1",)}, "--heldout_set must be masking.KEY=value"),
        ({"heldout": "nowhere"}, "no manifest.json in 'nowhere'"),
    ],
)
def test_mistakes_are_told(changes: dict[str, Any], words: str, tiny_records: str, tmp_path):
    with pytest.raises(InputError, match=words):
        sweep.main(options(tmp_path / "out", tiny_records, **changes))
    assert not (tmp_path / "out").exists()


def test_an_impossible_member_is_told_before_anything_runs(
    fake_commands: Commands, tiny_records, tmp_path
):
    with pytest.raises(ConfigError, match="`num_heads` must divide"):
        impossible = options(tmp_path / "out", tiny_records, grid=("model.num_heads=2,3",))
        sweep.main(impossible, fake_commands)
    assert not fake_commands.calls


def test_the_grid_may_be_repeated():
    flags = ["x", "--grid=model.sharing=all,none", "--grid=loop.steps=1,2", "--output=out"]
    parsed = commands.parse(SweepOptions, flags, "", "")
    assert [member.values["loop.steps"] for member in configurations(parsed)] == ["1", "2"] * 2


def test_a_command_that_fails_is_told():
    calls.call("albert_tf.info", "--preset=albert-base-v2", "--dry_run")
    with pytest.raises(calls.CommandError, match="albert_tf.info ended with status 2"):
        calls.call("albert_tf.info", "--preset=albert-base-v9")


@pytest.mark.parametrize(
    ("signals", "wanted"),
    [(1, ["terminate", "wait"]), (2, ["terminate", "wait", "kill", "wait"])],
)
def test_a_command_ends_with_the_sweep(
    monkeypatch: pytest.MonkeyPatch, signals: int, wanted: list[str]
):
    events: list[str] = []

    class Process:
        def __init__(self, command: list[str], process_group: int) -> None:
            assert process_group == 0  # Ctrl-C reaches the sweep alone, which passes it on once
            events.append(command[-2])

        def wait(self) -> int:
            events.append("wait")
            if events.count("wait") <= signals:
                raise SystemExit(143)  # what SIGTERM to the sweep does
            return 143

        def terminate(self) -> None:
            events.append("terminate")

        def kill(self) -> None:
            events.append("kill")

    monkeypatch.setattr(calls.subprocess, "Popen", Process)
    with pytest.raises(SystemExit):
        calls.call("pretraining.train", "--data=records")
    assert events == ["pretraining.train", "wait", *wanted]


@pytest.mark.slow
def test_a_real_sweep_by_seconds(tiny_records: str, tmp_path: pathlib.Path, capsys):
    out = tmp_path / "out"
    wanted = options(
        out,
        tiny_records,
        grid=("model.sharing=none",),
        budget="seconds:3",
        seeds=2,
        heldout=tiny_records,
    )
    assert sweep.main(wanted) == 0
    rows = lines(out)
    assert len(rows) == 2 and all(0 < float(row["accuracy/mlm"]) < 1 for row in rows)
    timed = json.loads((out / "sweep.json").read_text(encoding="utf-8"))["steps"]
    for row in rows:
        assert int(row["train/step"]) == timed[row["configuration"]]
        config = RunDir(str(out / row["run"])).config()
        assert config["loop"]["steps"] == timed[row["configuration"]]
        assert config["optimizer"]["warmup_steps"] == round(10 * config["loop"]["steps"] / 40)
        assert config["seed"] == int(row["seed"])
    assert "±" in capsys.readouterr().out
