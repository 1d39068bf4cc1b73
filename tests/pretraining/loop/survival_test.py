"""What a run survives: SIGTERM, torn checkpoints, numbers that are not finite. Bit by bit."""

import contextlib
import dataclasses
import functools
import glob
import json
import os
import pathlib
import signal
import sys
import threading
import types
from collections.abc import Callable

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.runtime import devices
from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.training.checkpoints import Checkpoints
from data.pipeline.batches import Records
from pretraining.loop import training
from pretraining.loop.config import GuardConfig, PretrainConfig, resolve
from pretraining.loop.divergence_guard import Guard
from pretraining.loop.recipes import SMOKE
from pretraining.loop.runtime import StrategyRuntime
from pretraining.loop.stop_request import StopRequest
from pretraining.loop.train_step import TrainStep
from pretraining.loop.training import TrainingState
from tests.pretraining.loop.stub_step import StubStep, fingerprints

FAST = (
    "loop.steps=8",
    "loop.steps_per_loop=2",
    "loop.checkpoint_every=2",
    "seed=3",
    "optimizer.warmup_steps=2",
    "model.max_positions=32",
    "model.num_layers=1",
    "model.hidden_dropout=0.1",
    "model.attention_dropout=0.1",
    "guard.max_consecutive=2",
)


def config_of(records: str, *assignments: str) -> PretrainConfig:
    return resolve(SMOKE, [*FAST, *assignments], Records.open(records).manifest)


def run_in(
    folder: pathlib.Path, records: str, config: PretrainConfig, make_step=TrainStep, **options
) -> list[np.ndarray]:
    folder.mkdir(exist_ok=True)
    run, runtime = RunDir(str(folder)), StrategyRuntime(devices.strategy("cpu"))
    model = training.train(
        config, Records.open(records), run, runtime, make_step=make_step, **options
    )
    return model.get_weights()


def steps(config: PretrainConfig, count: int) -> PretrainConfig:
    """The same run, cut after so many steps."""
    cut = dataclasses.replace(config.loop, steps=count)
    optimizer = dataclasses.replace(config.optimizer, schedule_steps=config.loop.steps)
    return dataclasses.replace(config, loop=cut, optimizer=optimizer)


def equal(some: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return all(np.array_equal(a, b) for a, b in zip(some, others, strict=True))


@pytest.fixture(scope="module")
def whole(tiny_records: str, tmp_path_factory: pytest.TempPathFactory) -> list[np.ndarray]:
    return run_in(tmp_path_factory.mktemp("whole"), tiny_records, config_of(tiny_records))


def stub(records: str, config: PretrainConfig, *bad: int) -> Callable[..., StubStep]:
    """A step that skips the batches `bad` of the stream."""
    prints = fingerprints(Records.open(records), config, max(bad, default=-1) + 1)
    assert len(set(prints)) == len(prints)
    return functools.partial(StubStep, bad=[prints[number] for number in bad])


def stop_at(number: int) -> dict[str, object]:
    """Options of a run that gets SIGTERM during its evaluation of that number, from 1 on."""
    calls: list[int] = []

    def evaluate() -> dict[str, float]:
        calls.append(1)
        if len(calls) == number:
            os.kill(os.getpid(), signal.SIGTERM)
        return {"loss/mlm": 1.0}

    return {"evaluation": lambda model: evaluate}


def test_records_that_cannot_be_read_are_named(tiny_records: str, tmp_path: pathlib.Path):
    """Not the run's folder, although the same block writes it."""

    class Unreadable(StubStep):
        def __call__(self, batch):
            raise tf.errors.UnknownError(None, None, "records-00000; Input/output error")

    with pytest.raises(MachineError, match=f"{tiny_records}' cannot be read: Input/output error"):
        run_in(tmp_path / "run", tiny_records, config_of(tiny_records), Unreadable)


class TestStopping:
    def test_sigterm_saves_and_the_rest_is_bit_equal(
        self,
        tiny_records: str,
        whole: list[np.ndarray],
        tmp_path: pathlib.Path,
        capsys: pytest.CaptureFixture,
    ):
        config, handler = config_of(tiny_records), signal.getsignal(signal.SIGTERM)
        # Nothing but the signal saves.
        rare = config_of(tiny_records, "loop.checkpoint_every=100", "evaluation.every=2")
        with pytest.raises(SystemExit) as ended:
            run_in(tmp_path / "run", tiny_records, rare, **stop_at(2))
        assert ended.value.code == 143
        assert capsys.readouterr().out.endswith("stopped, saved at step 4\n")
        assert tf.train.latest_checkpoint(str(tmp_path / "run/checkpoints")).endswith("ckpt-4")
        assert signal.getsignal(signal.SIGTERM) == handler
        assert equal(run_in(tmp_path / "run", tiny_records, config), whole)
        rows = RunDir(str(tmp_path / "run")).metrics()
        assert [row["step"] for row in rows] == [2, 4, 6, 8]

    @pytest.mark.parametrize("is_late", [False, True])
    def test_a_run_is_saved_if_the_reader_of_its_output_has_ended_too(
        self,
        is_late: bool,
        tiny_records: str,
        tmp_path: pathlib.Path,
        monkeypatch: pytest.MonkeyPatch,
    ):
        """As Ctrl-C ends `tee` before it, or just after."""
        rare = config_of(tiny_records, "loop.checkpoint_every=100", "evaluation.every=2")
        readers, handle = [], StopRequest._handle

        def end_readers() -> None:
            while readers:
                os.close(readers.pop())

        def handled(*arguments) -> None:
            threading.Timer(0.02, end_readers).start()
            handle(*arguments)

        monkeypatch.setattr(StopRequest, "_handle", handled)
        with contextlib.ExitStack() as files, pytest.raises(SystemExit):
            for name in ("stdout", "stderr"):
                reader, writer = os.pipe()
                readers.append(reader)
                stream = files.enter_context(os.fdopen(writer, "w"))
                monkeypatch.setattr(sys, name, stream)
            if not is_late:
                end_readers()
            run_in(tmp_path / "run", tiny_records, rare, **stop_at(2))
        assert tf.train.latest_checkpoint(str(tmp_path / "run/checkpoints")).endswith("ckpt-4")

    def test_a_torn_checkpoint_gives_way_to_the_one_before(
        self, masked_records: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture
    ):
        config = config_of(masked_records)
        whole = run_in(tmp_path / "run", masked_records, config, StubStep)
        (data,) = glob.glob(str(tmp_path / "run/checkpoints/ckpt-8.data*"))
        with open(data, "r+b") as file:
            file.truncate(os.path.getsize(data) // 2)
        capsys.readouterr()
        assert equal(run_in(tmp_path / "run", masked_records, config, StubStep), whole)
        printed = capsys.readouterr().out
        assert "ckpt-8 is damaged" in printed and "continuing at step 6" in printed

    def test_no_readable_checkpoint_is_an_error(self, masked_records: str, tmp_path: pathlib.Path):
        folder = tmp_path / "run" / "checkpoints"
        os.makedirs(folder)
        for name in ("ckpt-2.index", "ckpt-2.data-00000-of-00001"):
            (folder / name).write_bytes(b"torn")
        with pytest.raises(InputError, match="no checkpoint .* can be read"):
            run_in(tmp_path / "run", masked_records, config_of(masked_records))
        assert (folder / "ckpt-2.index").read_bytes() == b"torn"

    def test_a_checkpoint_of_another_model_is_told(
        self, masked_records: str, tmp_path: pathlib.Path, capsys
    ):
        """Of other shapes, of fewer weights, of others: nothing of it is damaged."""
        run_in(tmp_path / "run", masked_records, steps(config_of(masked_records), 2), StubStep)
        others = {
            "model.hidden_size=128": r"pooler/kernel \[64, 64\], expected \[128, 128\]",
            "model.num_groups=2": "missing",
            "model.embedding_size=64": "missing|unexpected",
        }
        for assignment, difference in others.items():
            changed = config_of(masked_records, assignment, "model.num_layers=2")
            capsys.readouterr()
            wrong = f"ckpt-2 does not match the model.*({difference})"
            with pytest.raises(InputError, match=wrong):
                run_in(tmp_path / "run", masked_records, steps(changed, 4))
            assert "damaged" not in capsys.readouterr().out


class TestCheckpoints:
    """What is there after going back and after a signal, so that a kill right then changes nothing.

    The run went back to step 4, or would: it has room for a checkpoint, and one of step 8.
    """

    def state(self, folder: pathlib.Path, step: int, *saved: int) -> types.SimpleNamespace:
        guard = Guard(GuardConfig(1, 3))
        guard.last_good.assign(4)
        path = str(folder)
        checkpoints = Checkpoints(tf.train.Checkpoint(guard=guard), path, path, keep=1)
        for each in saved:
            checkpoints.save(each, also_keep=4)
        nothing = types.SimpleNamespace(
            to_variables=lambda: None, from_variables=lambda: None, is_chief=True
        )
        state = types.SimpleNamespace(
            step=step,
            guard=guard,
            checkpoints=checkpoints,
            runtime=nothing,
            rewind=lambda: None,
            _require_agreement=lambda: None,
            exported=[],
        )
        state._export = lambda: state.exported.append(state.step)
        state._write = functools.partial(TrainingState._write, state)
        return state

    def test_later_ones_are_dropped_with_the_steps_that_are_taken_again(self, tmp_path):
        state = self.state(tmp_path, 10, 4, 8)
        TrainingState.roll_back(state)
        assert (state.step, state.checkpoints.steps()) == (4, [4])

    @pytest.mark.parametrize(("step", "steps"), [(8, [8, 4]), (4, [4])])
    def test_the_one_to_go_back_to_stays_beside_that_of_a_signal(self, tmp_path, step, steps):
        state = self.state(tmp_path, step, 4)
        with pytest.raises(SystemExit) as ended:
            TrainingState.save_and_exit(state, signal.SIGINT)
        assert ended.value.code == 130
        assert state.checkpoints.steps() == steps and int(state.guard.last_good) == 4
        assert (
            not state.exported
        )  # at a due checkpoint it was; in a streak, the step may come again

    @pytest.mark.parametrize("skipped", [0.0, 1.0])
    def test_weights_within_a_streak_are_not_exported_on_resuming(self, tmp_path, skipped):
        state = self.state(tmp_path, 4)
        state.guard.check(4, np.array([skipped]), RunDir(str(tmp_path)), lambda batch: [])
        state.log = state.selection = types.SimpleNamespace(rewind=lambda *_: None)
        state.run = types.SimpleNamespace(metrics=lambda: [])
        state.config = state.records = None
        state.runtime.batches = lambda *_: iter(())
        TrainingState.rewind(state)
        assert state.exported == ([] if skipped else [4])

    def test_workers_that_do_not_agree_stop(self, masked_records: str, tmp_path, monkeypatch):
        monkeypatch.setattr(StrategyRuntime, "agree", lambda self, text: '"seed": 3' in text)
        for seed, rule in ((3, None), (4, "all workers must start with the same settings")):
            config = steps(config_of(masked_records, f"seed={seed}"), 2)
            with (
                contextlib.nullcontext() if rule is None else pytest.raises(InputError, match=rule)
            ):
                run_in(tmp_path / str(seed), masked_records, config, StubStep)
        assert not (tmp_path / "4" / "metrics.jsonl").exists()

    def test_replicas_agree_on_the_same_text(self):
        runtime = StrategyRuntime(devices.strategy("cpu"))
        assert runtime.agree("a text")
        runtime.replicas, runtime._sums = 300, lambda values: 300 * values
        assert runtime.agree("a text")
        runtime._sums = lambda values: 299 * values + 1  # another process has another text
        assert not runtime.agree("a text")


class TestGuard:
    def test_skipped_steps_are_logged_with_their_records(
        self, masked_records: str, tmp_path: pathlib.Path, capsys
    ):
        config = config_of(masked_records)
        before = run_in(tmp_path / "before", masked_records, steps(config, 2), StubStep)
        bad = stub(masked_records, config, 2, 3)
        assert equal(run_in(tmp_path / "run", masked_records, steps(config, 4), bad), before)
        rows = RunDir(str(tmp_path / "run")).metrics()
        assert [row["skipped"] for row in rows] == [0, 2]
        assert "loss/mlm" not in rows[1]
        assert (
            "2 of the 2 steps up to step 4 had a loss or gradient that was not finite"
            in capsys.readouterr().out
        )
        with open(tmp_path / "run/skipped.jsonl", encoding="utf-8") as file:
            skipped = [json.loads(line) for line in file]
        assert [entry["step"] for entry in skipped] == [2, 3]
        assert skipped[0]["records"] == [
            [masked_records, *number[1:]]
            for number in Records.open(masked_records).numbers(3, 32, 16)
        ]

    def test_too_many_in_a_row_go_back_and_pass_over_the_data(
        self, masked_records: str, tmp_path: pathlib.Path, capsys
    ):
        """Batches 3, 4 and 5 are bad: at step 6 back to 2, the last checkpoint before them, which
        is now trained on batch 6."""
        config = config_of(masked_records)
        run_in(tmp_path / "run", masked_records, config, stub(masked_records, config, 3, 4, 5))
        assert "back from step 6 to 2 and skipping the 4 batches" in capsys.readouterr().out
        rows = RunDir(str(tmp_path / "run")).metrics()
        assert [(row["step"], row["skipped"]) for row in rows] == [(2, 0), (4, 0), (6, 0), (8, 0)]
        reader = tf.train.load_checkpoint(str(tmp_path / "run/checkpoints"))
        assert reader.get_tensor("guard/offset/.ATTRIBUTES/VARIABLE_VALUE") == 4

    @pytest.mark.slow
    @pytest.mark.parametrize("stop", [4, 6, 8])  # 4 is saved anyway
    def test_a_stop_before_going_back_changes_nothing(
        self, masked_records: str, tmp_path: pathlib.Path, capsys, stop: int
    ):
        """Batches 7 to 9 are bad. Stopped at 6, or at 8 within them, with room for one checkpoint:
        what is saved there is not what training goes back to."""
        given = ("loop.checkpoint_every=4", "loop.keep_checkpoints=1", "loop.steps=12")
        config = config_of(masked_records, *given)
        evaluated = config_of(masked_records, *given, "evaluation.every=2")
        bad = stub(masked_records, config, 7, 8, 9)
        whole = run_in(tmp_path / "whole", masked_records, config, bad)
        message = "back from step 10 to 4 and skipping the 6 batches"
        assert message in capsys.readouterr().out
        with pytest.raises(SystemExit):
            run_in(tmp_path / "run", masked_records, evaluated, bad, **stop_at(stop // 2))
        saved = {path.stem for path in (tmp_path / "run/checkpoints").glob("*.index")}
        assert saved == {"ckpt-4", f"ckpt-{stop}"}
        assert equal(run_in(tmp_path / "run", masked_records, config, bad), whole)
        assert message in capsys.readouterr().out
        for path in (tmp_path / "whole", tmp_path / "run"):
            assert [row["step"] for row in RunDir(str(path)).skipped()] == [7, 8, 9]
            assert [path.stem for path in path.glob("checkpoints/*.index")] == ["ckpt-12"]

    def test_skipped_steps_from_before_going_back_stay_in_the_log(self, tmp_path: pathlib.Path):
        guard, run = Guard(GuardConfig(1, 3)), RunDir(str(tmp_path))
        assert guard.check(6, np.array([1.0, 1.0]), run, lambda batch: [])
        guard.roll_back(6, lambda step: step)
        guard.check(2, np.array([0.0, 1.0]), run, lambda batch: [])
        guard.restart(1, run)  # step 1 is taken again; 4 and 5, of the first time, are history
        assert [(row["restores"], row["step"]) for row in run.skipped()] == [(0, 4), (0, 5)]
        with open(run.skipped_path, "a", encoding="utf-8") as file:
            file.write('{"step": 1, "rec')  # a full disk, a kill
        guard.restart(1, run)
        guard.check(2, np.array([0.0, 1.0]), run, lambda batch: [])
        assert [row["step"] for row in run.skipped()] == [4, 5, 1]

    def test_nothing_to_go_back_to_is_told(self):
        guard = Guard(GuardConfig(1, 3))
        with pytest.raises(InputError, match="no checkpoint up to step 0 can be read"):
            guard.roll_back(6, lambda step: None)

    def test_a_run_that_keeps_diverging_is_given_up(self, tmp_path: pathlib.Path):
        """At most 2 in a row, over the end of a loop too; going back once is allowed."""
        guard, run = Guard(GuardConfig(2, 1)), RunDir(str(tmp_path))

        def see(step: int, *skipped: float) -> bool:
            return guard.check(step, np.array(skipped), run, lambda batch: [("data", 0, batch)])

        assert not see(2, 1, 0) and not see(4, 1, 1)
        assert see(6, 1, 0)
        assert guard.roll_back(6, lambda step: 4) == 4 and guard.offset.numpy() == 2
        assert not see(6, 1, 1) and see(8, 1, 1)
        with pytest.raises(
            InputError, match=r"diverged at step 8: more than 2 .* after 1 restores"
        ):
            guard.roll_back(8, lambda step: 4)
        with open(run.skipped_path, encoding="utf-8") as file:
            skipped = [json.loads(line) for line in file]
        # After going back step 4 is trained on batch 6.
        assert [entry["step"] for entry in skipped] == [0, 2, 3, 4, 4, 5, 6, 7]
        assert [entry["records"][0][2] for entry in skipped] == [0, 2, 3, 4, 6, 7, 8, 9]
