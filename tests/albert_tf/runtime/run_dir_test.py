"""Tests that a run's folder is begun whole, refuses another configuration and ends atomically."""

import errno
import json
import math
import os
import re

import pytest

from albert_tf.runtime.environment import environment
from albert_tf.runtime.errors import InputError, InputNotFoundError, MachineError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer

CONFIG = {"model": {"num_layers": 3, "names": ("a", "b")}, "task": {"kind": "x"}, "seed": 0}


@pytest.fixture(scope="module")
def tokenizer(small_tokenizer) -> Tokenizer:
    return small_tokenizer


@pytest.fixture
def run(tmp_path, tokenizer) -> RunDir:
    run = RunDir(str(tmp_path / "runs" / "first"))
    run.begin(CONFIG, tokenizer)
    return run


def test_a_new_run_has_configuration_environment_and_tokenizer(run, tokenizer):
    assert sorted(os.listdir(run.path)) == ["config.json", "environment.json", "tokenizer"]
    assert run.config() == json.loads(json.dumps(CONFIG))
    assert load_tokenizer(run.path).fingerprint == tokenizer.fingerprint
    assert os.listdir(os.path.dirname(run.path)) == ["first"]
    assert not run.is_complete
    assert run.metrics() == []


def test_environment_names_versions():
    found = environment()
    assert found["packages"]["tensorflow"].count(".") == 2
    assert found["packages"]["tf-keras"]
    assert re.fullmatch("[0-9a-f]{40}(-dirty)?", found["commit"] or "0" * 40)  # None: no checkout
    json.dumps(found)


def test_a_beginning_that_fails_leaves_nothing(tmp_path, tokenizer):
    run = RunDir(str(tmp_path / "run"))
    with pytest.raises(TypeError):
        run.begin(CONFIG | {"seed": object()}, tokenizer)
    assert os.listdir(tmp_path) == []


def test_a_run_with_the_same_configuration_is_resumed(run, tokenizer):
    run.add_metrics({"step": 1})
    for act in (lambda: run.begin(CONFIG, tokenizer), lambda: run.check(CONFIG)):
        act()
        assert run.metrics() == [{"step": 1}]


def test_a_run_that_another_runtime_continues_says_so(run, tokenizer, capsys):
    assert run.environment()["runtime"] == "tensorflow"
    run.begin(CONFIG, tokenizer)
    assert capsys.readouterr().out == ""
    run.begin(CONFIG, tokenizer, runtime="pjrt")
    said = "begun with --runtime=tensorflow and continues with --runtime=pjrt"
    assert said in capsys.readouterr().out
    assert run.environment()["runtime"] == "tensorflow"  # of its beginning


def test_another_configuration_is_refused_by_key(run, tokenizer):
    other = CONFIG | {"model": {"num_layers": 4, "names": ["a", "b"]}, "extra": 1}
    for act in (lambda: run.begin(other, tokenizer), lambda: run.check(other)):
        with pytest.raises(InputError) as error:
            act()
        message = str(error.value)
        assert "model.num_layers: 3 != 4" in message
        assert "extra: '<absent>' != 1" in message
        assert "names" not in message
        assert "--run_dir" in message
        assert "\n" not in message


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"task": {"kind": "pretraining"}}, " holds a fine-tuned x: name another folder."),
        ({"task": {"kind": "y"}, "seed": 1}, " holds a fine-tuned x: name another folder."),
        (
            {"data": "0f"},
            " holds another run: the data has changed since the run began. Name another folder.",
        ),
        (
            {"init_weights": "0f"},
            " holds another run: the weights of --init have changed since the run began. Name "
            "another folder.",
        ),
        (
            {"init": "b", "init_weights": "0f"},
            " holds another run: --init has other weights than the run began with; the "
            "configuration differs (the run's value != yours): "
            "init: 'a' != 'b'. Name another folder, or pass the run's values.",
        ),
        (
            {"loop": {"steps": 20}},
            " holds another run: the configuration differs (the run's value != yours): "
            "loop.steps: 10 != 20. Name another folder, or pass the run's values. To train longer, "
            "begin a run with --init={path}.",
        ),
    ],
)
def test_the_reason_of_a_refusal(tmp_path, tokenizer, changes, message):
    run = RunDir(str(tmp_path / "run"))
    begun = CONFIG | {"data": "ff", "loop": {"steps": 10}, "init": "a", "init_weights": "ff"}
    run.begin(begun, tokenizer)
    with pytest.raises(InputError) as error:
        run.check(begun | changes)
    assert str(error.value) == f"--run_dir={run.path}{message.format(path=run.path)}"


def begun_by_other_code(run: RunDir, **changes: str | None) -> None:
    now = run.environment() | {"commit": "ff", "albert_tf": "0.1"} | changes
    with open(run.environment_path, "w") as file:
        json.dump(now, file)


def test_a_run_that_other_code_continues_says_so(run, tokenizer, capsys):
    for changes, origin in (
        ({}, "note: this run was begun by commit ff, and this is "),
        ({"commit": None}, "note: this run was begun by albert_tf 0.1, and this is "),
        ({"commit": None, "albert_tf": None}, ""),  # unknown
    ):
        begun_by_other_code(run, **changes)
        run.begin(CONFIG, tokenizer)
        printed = capsys.readouterr().out
        assert printed.startswith(origin) and bool(printed) is bool(origin)


def test_a_refusal_names_the_code_that_began_the_run(run):
    begun_by_other_code(run)
    for changes, remedy in (
        ({"data": "0f"}, "or name another folder."),  # absent in the run: no value to pass
        ({"seed": 1}, "name another folder, or pass the run's values."),
    ):
        with pytest.raises(InputError) as error:
            run.check(CONFIG | changes)
        assert "It was begun by commit ff, and this is " in str(error.value)
        assert f"Continue it with the code that began it, {remedy}" in str(error.value)


def test_a_key_that_the_run_lacks_has_its_default(run):
    now = CONFIG | {"masking": {"rate": 0.1}, "model": CONFIG["model"] | {"norm": "post"}}
    defaults = {"masking": {"rate": 0.1}, "model": {"norm": "post", "num_layers": 9}, "seed": 9}
    run.check(now, defaults)
    with pytest.raises(InputError, match=r"masking\.rate: 0\.1 != 0\.2\. Name.*the run's values"):
        run.check(now | {"masking": {"rate": 0.2}}, defaults)
    with pytest.raises(InputError, match=r"'<absent>' != .*\. Name another folder\.$"):
        run.check(now)


def test_another_mixture_is_no_change_of_the_data(tmp_path, tokenizer):
    def mixture(*parts: tuple[str, float]) -> dict[str, object]:
        records = [{"corpus": corpus, "weight": weight} for corpus, weight in parts]
        return CONFIG | {"records": records, "records_sketches": [name for name, _ in parts]}

    run = RunDir(str(tmp_path / "run"))
    run.begin(mixture(("a", 3.0), ("b", 1.0)), tokenizer)
    both = "the data has changed since the run began; the configuration differs (the run's value "
    for other, problem in (
        (mixture(("a", 1.0), ("b", 1.0)), "!= yours): records.0.weight: 3.0 != 1.0. Name"),
        (mixture(("a", 3.0)), "!= yours): records: 2 folders != 1 folder. Name"),
        (mixture(("a", 3.0), ("c", 1.0)), "the data has changed since the run began. Name"),
        (mixture(("a", 3.0), ("c", 2.0)), f"{both}!= yours): records.1.weight: 1.0 != 2.0. Name"),
    ):
        with pytest.raises(InputError) as error:
            run.check(other)
        assert problem in str(error.value)
        assert ("data has changed" in str(error.value)) is ("data has changed" in problem)


def test_initial_weights_may_move_but_not_change(tmp_path, tokenizer):
    """`init` says where weights are, `init_weights` which; it is empty for random ones."""
    known = CONFIG | {"init": "a", "init_weights": "ff"}
    random = CONFIG | {"init": "random:a", "init_weights": ""}
    unknown = CONFIG | {"init": "a"}
    for number, (begun, same, other) in enumerate(
        (
            (known, {"init": "b"}, {"init_weights": "0f"}),
            (random, {}, {"init": "random:b"}),
            (unknown, {"init_weights": "ff"}, {"init": "b", "init_weights": "ff"}),
        )
    ):
        run = RunDir(str(tmp_path / str(number)))
        run.begin(begun, tokenizer)
        run.check(begun | same)
        with pytest.raises(InputError, match="init"):
            run.check(begun | other)


def test_a_refusal_lists_some_keys_only(run):
    with pytest.raises(InputError) as error:
        run.check(CONFIG | {f"key_{number}": 0 for number in range(10)})
    assert str(error.value).count("'<absent>'") == 8 and "; and 2 more." in str(error.value)


def test_a_foreign_folder_is_refused(tmp_path, tokenizer):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.txt").touch()
    run = RunDir(str(tmp_path / "mine"))
    for act in (lambda: run.begin(CONFIG, tokenizer), lambda: run.check(CONFIG)):
        with pytest.raises(InputError, match="--run_dir.*new or empty"):
            act()
    assert os.listdir(run.path) == ["thesis.txt"]


def test_check_writes_nothing(tmp_path):
    RunDir(str(tmp_path / "run")).check(CONFIG)
    assert os.listdir(tmp_path) == []


def test_no_run_there(tmp_path):
    with pytest.raises(InputNotFoundError, match=r"no config.json.*working directory"):
        RunDir(str(tmp_path)).config()


def test_a_config_that_is_no_json_names_itself(run):
    with open(run.config_path, "w") as file:
        file.write("{")
    with pytest.raises(InputError, match=r"config\.json"):
        run.config()


def test_metrics_after_a_step_are_dropped(run):
    for step in (10, 20, 30):
        run.add_metrics({"step": step, "loss/mlm": 1.5})
    run.truncate_metrics(20)
    assert [row["step"] for row in run.metrics()] == [10, 20]
    run.truncate_metrics(0)
    assert run.metrics() == []


def test_metrics_without_a_file_stay_empty(run):
    run.truncate_metrics(10)
    assert run.metrics() == []


def test_a_torn_last_row_is_left_out(run):
    run.add_metrics({"step": 10})
    with open(run.metrics_path, "a") as file:
        file.write('{"step": 2')
    assert run.metrics() == [{"step": 10}]
    run.truncate_metrics(10)
    run.add_metrics({"step": 20})
    assert [row["step"] for row in run.metrics()] == [10, 20]


def test_the_result_is_written_whole(run):
    with pytest.raises(TypeError):
        run.finish({"loss": object()})
    assert not run.is_complete
    run.finish({"loss": 1.0})
    assert run.is_complete
    assert run.result() == {"loss": 1.0}


def test_evaluations_have_a_place(run):
    path = run.evaluation_path("heldout")
    assert path == os.path.join(run.path, "evaluations", "heldout.json")
    assert os.path.isdir(os.path.dirname(path))


def test_a_folder_of_runs_names_one_of_them(tmp_path):
    (tmp_path / "seed-0").mkdir()
    (tmp_path / "seed-0" / "config.json").write_text("{}")
    with pytest.raises(InputNotFoundError, match=r"not a run folder. Did you mean '.*/seed-0'\?$"):
        RunDir(str(tmp_path)).config()
    with pytest.raises(InputNotFoundError, match=r"not a run folder.$"):
        RunDir(str(tmp_path / "nothing")).config()


def test_a_run_of_another_user_is_refused(run, monkeypatch):
    def denied(*_, **__):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr("builtins.open", denied)
    with pytest.raises(MachineError, match="environment.json' cannot be written: Permission den"):
        with run.locked():
            raise AssertionError


def test_two_processes_do_not_train_one_run(run):
    with run.locked(), pytest.raises(InputError, match="another process is training this run"):
        with RunDir(run.path).locked():
            pass
    with RunDir(run.path).locked():  # the first one has ended
        pass


@pytest.mark.parametrize("values", [{"task": [1]}, {"task": {"kind": ["span"]}}])
def test_a_task_of_another_type_is_refused(tmp_path, values):
    (tmp_path / "config.json").write_text(json.dumps(values))
    with pytest.raises(InputError, match=r"config.json': `task(.kind)?` must be a .*Received: \["):
        RunDir(str(tmp_path)).kind()


def test_the_kind_of_a_run_and_of_a_folder_without_one(run, tmp_path):
    assert run.kind() == "x"
    (tmp_path / "config.json").write_text("{}")
    assert RunDir(str(tmp_path)).kind() is None


@pytest.mark.parametrize("line", [b'{"step": \xff}\n', b"[" * 100_000 + b"\n", b"[1]\n"])
def test_damaged_metrics_are_named(run, line):
    with open(run.metrics_path, "wb") as file:
        file.write(b'{"loss": NaN}\n' + line)
    with pytest.raises(InputError, match=r"metrics.jsonl:2 must (be JSON|contain a JSON object)"):
        run.metrics()


@pytest.mark.parametrize(
    "line",
    [
        '{"loss": 1}',
        '{"step": "1"}',
        '{"step": true}',
        '{"step": 1, "loss": null}',
        f'{{"step": {10**30}}}',
    ],
)
def test_metrics_without_numbers_are_refused_before_the_run_resumes(run, line):
    run.add_metrics({"step": 1, "loss": math.nan})
    run.check(CONFIG)
    with open(run.metrics_path, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match="metrics.jsonl' must have a line of numbers, with step, "):
        run.check(CONFIG)
    run.finish({})
    run.check(CONFIG)  # a complete run does not resume


@pytest.mark.parametrize("content", ["{", "[1]", None])
def test_a_damaged_environment_is_refused_before_the_run_resumes(run, content):
    os.remove(run.environment_path)
    if content:
        with open(run.environment_path, "w") as file:
            file.write(content)
    with pytest.raises(InputError, match=r"environment\.json'"):
        run.check(CONFIG)
    run.finish({})
    run.check(CONFIG)  # a complete run does not resume


def test_metrics_that_are_needed(run):
    with pytest.raises(InputError, match="with step, step_ms, for each part"):
        run.metrics("step_ms")
    run.add_metrics({"step": 1, "step_ms": 2.0})
    assert run.metrics("step_ms") == [{"step": 1, "step_ms": 2.0}]
    run.add_metrics({"step": 2})
    with pytest.raises(InputError, match="with step, step_ms, for each part"):
        run.metrics("step_ms")


@pytest.mark.parametrize("line", ['{"step": 1}', '{"restores": "0", "step": 1}'])
def test_damaged_lists_of_skipped_steps_are_named(run, line):
    row = {"restores": 0, "step": 1, "records": []}
    with open(run.skipped_path, "w") as file:
        file.write(json.dumps(row) + "\n")
    assert run.skipped() == [row]
    with open(run.skipped_path, "a") as file:
        file.write(f"{line}\n")
    with pytest.raises(InputError, match="skipped.jsonl' must have restores and step in each line"):
        run.skipped()
