"""Tests of commands made from a dataclass of options: flags, help, mistakes, exit status."""

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, reading


@dataclasses.dataclass(frozen=True)
class Options:
    corpus: str = commands.option("where the text is")
    size: int = commands.option("how many", 3)
    rate: float = commands.option("how fast", 0.5)
    device: str | None = commands.option("on what", None)
    dry_run: bool = commands.option("do nothing", False)


@dataclasses.dataclass(frozen=True)
class WithOwnSet:
    name: str = commands.option("what", "x")
    set: tuple[str, ...] = commands.option("key=value of the thing", ())


def parse(*argv, options_class=Options):
    return commands.parse(options_class, ["prog", *argv], "What it does.", "python -m prog")


def test_defaults_and_types():
    assert parse("--corpus=a") == Options("a")
    given = parse("--corpus", "a=b,c", "--size=-4", "--rate=1", "--device=tpu", "--dry_run")
    assert given == Options("a=b,c", -4, 1.0, "tpu", True)
    assert parse("--corpus=a", "--nodry_run") == Options("a")


def test_set_applies_to_the_options():
    assert parse("--set=corpus=a", "--set", "size=9").size == 9
    with pytest.raises(InputError, match="unknown key `siz`.*size"):
        parse("--corpus=a", "--set=siz=9")
    with pytest.raises(InputError, match="`size`.*int.*'x'"):
        parse("--corpus=a", "--set=size=x")


def test_the_help_of_set_is_that_of_the_options(capsys):
    with pytest.raises(SystemExit):
        parse("--help", options_class=WithOwnSet)
    assert "key=value of the thing; may be repeated" in " ".join(capsys.readouterr().out.split())


def test_set_is_left_to_programs_that_have_it_themselves():
    given = parse("--set=model.x=1", "--set=a=2,3", options_class=WithOwnSet)
    assert given == WithOwnSet("x", ("model.x=1", "a=2,3"))


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        ([], ["--corpus is required", "where the text is"]),
        (["--corpus="], ["--corpus is required", "where the text is"]),
        (["--corpus=a", "--sise=3"], ["sise", "--help"]),
        (["--corpus=a", "--size=x"], ["size", "x"]),
        (["--corpus=a", "--corpus=b"], ["--corpus=b", "already defined as a"]),
        (["--corpus=a", "--dry_run=x"], ["dry_run", "x"]),
        (["--corpus=a", "more"], ["unexpected argument 'more'"]),
        (["--corpus"], ["corpus"]),
    ],
)
def test_mistakes(argv, words):
    with pytest.raises(InputError) as error:
        parse(*argv)
    for word in words:
        assert word in commands.one_line(error.value)


def test_an_error_is_one_line_with_escapes_in_place_of_what_a_terminal_obeys():
    error = InputError("文.txt\n\x1b[2J must\u2028be  text\u200b.\n  File x")
    assert commands.one_line(error) == "文.txt \\x1b[2J must be text\\u200b."


@pytest.mark.parametrize("flag", ["--help", "-h", "--helpfull"])
def test_help_shows_every_flag(flag, capsys):
    with pytest.raises(SystemExit) as stop:
        parse(flag)
    shown = capsys.readouterr().out
    assert stop.value.code == 0
    assert "python -m prog [flags]" in shown
    assert "What it does." in shown
    for text in ("--corpus", "where the text is (required)", "--size", "(default: '3'", "--set"):
        assert text in shown


def test_parsing_twice_shares_nothing():
    assert parse("--corpus=a", "--size=4").size == 4
    assert parse("--corpus=a").size == 3


PROGRAM = """
import dataclasses, sys
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError

@dataclasses.dataclass(frozen=True)
class Options:
    what: str = commands.option("what happens")

def program(options):
    if options.what == "mistake":
        raise InputError("two\\nlines")
    if options.what == "file":
        open("/no/such/file")
    if options.what == "bug":
        raise KeyError("bug")
    if options.what == "characters":
        print('{"é": "漢𝄞"}')
        raise InputError("漢")
    return int(options.what)

if __name__ == "__main__":
    commands.run(program, Options, "Doc.")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    folder = tmp_path_factory.mktemp("program")
    (folder / "pack").mkdir()
    for name in ("__init__", "__main__", "tool"):
        (folder / "pack" / f"{name}.py").write_text("" if name == "__init__" else PROGRAM)
    return folder


def run(package, *argv):
    import albert_tf

    root = albert_tf.__path__[0].removesuffix("/albert_tf")
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=package,
        env={"PYTHONPATH": f"{root}:{package}"},
        capture_output=True,
        text=True,
        # A shell lets what it starts in the background ignore it.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["-m", "pack", "--what=mistake"], 2, "pack: error: two lines\n"),
        (["-m", "pack.tool", "--what=mistake"], 2, "pack.tool: error: two lines\n"),
        (["pack/tool.py", "--what=mistake"], 2, "tool.py: error: two lines\n"),
        (["-m", "pack", "--wat=3"], 2, "pack: error: Unknown command line flag 'wat'"),
        (["-m", "pack"], 2, "pack: error: --what is required"),
        (["-m", "pack", "--what=3"], 3, ""),
        (["-m", "pack", "--what=0"], 0, ""),
    ],
)
def test_exit_status_and_one_line(package, argv, status, line):
    code, out, err = run(package, *argv)
    assert code == status
    assert err.startswith(line)
    assert err.count("\n") == (1 if line else 0)
    assert out == ""


def test_a_reader_that_has_read_enough_is_no_error(package):
    code = (
        "import dataclasses\nfrom albert_tf.runtime import commands\n"
        "Options = dataclasses.make_dataclass('Options', [], frozen=True)\n"
        "def main(_):\n    while True: print('x' * 100)\n"
        "commands.run(main, Options, '')"
    )
    pipe = f'{sys.executable} -c "{code}" | head -1; echo ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
    assert done.stdout == "x" * 100 + "\n141\n" and done.stderr == ""


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("print('x')", "stdout or another open file: File too large"),
        ("raise OSError(5, 'Input/output error', 'a.txt')", "a.txt: Input/output error"),
    ],
)
def test_a_failure_of_the_machine_takes_one_line(tmp_path, body, message):
    code = (
        "import dataclasses\nfrom albert_tf.runtime import commands\n"
        "Options = dataclasses.make_dataclass('Options', [], frozen=True)\n"
        f"def main(_): {body}\n"
        "commands.run(main, Options, '')"
    )
    full = f'ulimit -f 0; exec {sys.executable} -B -c "{code}" > {tmp_path}/out'
    done = subprocess.run(["bash", "-c", full], stderr=subprocess.PIPE, text=True)
    assert done.returncode == 2
    assert done.stderr == f"-c: error: {message}. Free some space, or use another path.\n"


@pytest.mark.parametrize("what", ["bug", "file"])
def test_an_error_that_is_no_mistake_of_the_user_keeps_its_traceback(package, what):
    code, _, err = run(package, "-m", "pack", f"--what={what}")
    assert code == 1
    assert "Traceback" in err


@pytest.fixture
def status(monkeypatch, capsys):
    """program -> exit status and standard error of the command, in this process."""
    monkeypatch.setattr(sys, "argv", ["prog", "--corpus=a"])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    before = {
        number: signal.signal(number, signal.SIG_DFL) for number in (signal.SIGTERM, signal.SIGHUP)
    }
    interrupt = signal.signal(signal.SIGINT, signal.default_int_handler)

    def status(program) -> tuple[int, str]:
        with pytest.raises(SystemExit) as stop:
            commands.run(program, Options, "Doc.")
        return stop.value.code, capsys.readouterr().err

    yield status
    for number, handler in before.items():
        signal.signal(number, handler)
    signal.signal(signal.SIGINT, interrupt)


def test_a_refusal_by_the_machine_is_one_line(status, tmp_path):
    def program(_) -> None:
        with reading(str(tmp_path)), open(tmp_path):
            pass

    code, err = status(program)
    assert code == 2
    assert err.count("\n") == 1 and "cannot be read: Is a directory" in err


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_termination_cleans_up(status, number, code):
    ended = []

    def program(_) -> None:
        try:
            signal.raise_signal(number)
        finally:
            ended.append(True)

    assert status(program) == (code, "")
    assert ended == [True]


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_a_signal_that_meets_a_finalizer_is_not_lost(status, number, code):
    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(number)

    def program(_) -> None:
        Finalized()  # the exception is ignored there
        time.sleep(60)

    assert status(program) == (code, "")


def test_a_repeated_signal_that_meets_the_repetition_is_not_lost(status, monkeypatch):
    class Timer(threading.Timer):
        early = True

        def start(self) -> None:
            super().start()
            if Timer.early:
                Timer.early = False
                self.join()  # so that the signal comes here
                time.sleep(60)

    monkeypatch.setattr(threading, "Timer", Timer)

    class Finalized:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGTERM)

    def program(_) -> None:
        Finalized()
        time.sleep(60)

    assert status(program) == (143, "") and not Timer.early


def test_termination_of_a_forked_worker_cleans_nothing_up(status, tmp_path):
    def program(_) -> int:
        if (worker := os.fork()) == 0:
            try:
                signal.raise_signal(signal.SIGTERM)
            finally:
                (tmp_path / "cleaned").touch()
                os._exit(0)
        return os.waitstatus_to_exitcode(os.waitpid(worker, 0)[1])

    assert status(program) == (143, "")
    assert not (tmp_path / "cleaned").exists()


@pytest.mark.parametrize(
    ("argv", "status", "is_quiet"),
    [
        (["-m", "data.loads"], 130, True),
        (["-m", "finetuning.loads"], 130, True),
        (["-m", "pack.loads"], -signal.SIGINT, False),  # another program keeps its own handler
    ],
)
def test_ctrl_c_while_a_command_loads_its_libraries(tmp_path, argv, status, is_quiet):
    """The package finetuning imports `commands` before Python knows the module of the command."""
    for name in ("data", "finetuning", "pack"):
        (tmp_path / name).mkdir()
        content = "from albert_tf.runtime import commands\n" if name == "finetuning" else ""
        (tmp_path / name / "__init__.py").write_text(content)
        (tmp_path / name / "loads.py").write_text(
            "import signal\nfrom albert_tf.runtime import commands\n"
            "signal.raise_signal(signal.SIGINT)\n"
        )
    code, out, err = run(tmp_path, *argv)
    assert (code, out, not err) == (status, "", is_quiet)


def test_ctrl_c_of_a_running_command_cleans_up(status):
    ended = []

    def program(_) -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        finally:
            ended.append(True)

    assert status(program) == (130, "")
    assert ended == [True]


@pytest.mark.slow_parameters("convert")
@pytest.mark.parametrize("name", ["convert", "export"])
def test_a_package_that_is_a_command_prints_its_message_only(tmp_path, name):
    source = "from" if name == "convert" else "run_dir"
    target = "to" if name == "convert" else "output"
    flags = [f"--{source}=nowhere", f"--{target}={tmp_path / 'out'}"]
    code, out, err = run(tmp_path, "-m", f"albert_tf.{name}", *flags)
    assert (code, out) == (2, "")
    assert err.startswith(f"albert_tf.{name}: error: no ") and err.count("\n") == 1


def test_help_of_a_module_exits_0(package):
    code, out, err = run(package, "-m", "pack.tool", "--help")
    assert (code, err) == (0, "")
    assert "python -m pack.tool [flags]" in out


@pytest.mark.parametrize(
    ("encoding", "printed"),
    [("utf-8", '{"é": "漢𝄞"}'), ("latin-1", '{"é": "\\u6f22\\ud834\\udd1e"}'),
     ("ascii", '{"\\u00e9": "\\u6f22\\ud834\\udd1e"}')],
)  # fmt: skip
def test_characters_that_the_terminal_lacks(package, encoding, printed):
    import albert_tf

    root = albert_tf.__path__[0].removesuffix("/albert_tf")
    env = {"PYTHONPATH": f"{root}:{package}", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    env |= {"LC_ALL": "POSIX"} | ({} if encoding == "ascii" else {"PYTHONIOENCODING": encoding})
    done = subprocess.run(
        [sys.executable, "-m", "pack", "--what=characters"],
        env=env,
        cwd=package,
        capture_output=True,
    )
    assert (done.returncode, done.stdout.decode(encoding)) == (2, printed + "\n")
    message = "漢" if encoding == "utf-8" else "\\u6f22"
    assert done.stderr.decode(encoding) == f"pack: error: {message}\n"


def _require_short(kind: str) -> None:
    if len(kind) > 1:
        raise InputError(f"--kind must be short. Received: {kind}.")


@dataclasses.dataclass(frozen=True)
class _Applicable(commands.CommandOptions):
    kind: str | None = commands.option("the kind", None, check=_require_short)
    part: str | None = commands.option("the part", None)
    depths: tuple[str, ...] = commands.option(
        "depths", (), only_for={"kind": ("a", "b")}, repeated_only_for={"kind": ("b",)}
    )
    form: str = commands.option(
        "the form",
        "x",
        values_only_for={"x": {"kind": ()}, "y": {"kind": lambda: ["a"], "part": ("p",)}},
    )
    file: str | None = commands.option("file", None, needs="part")
    port: int | None = commands.option("the port", None, excludes="file")
    dry_run: bool = commands.option("nothing", False)


def test_options_say_where_they_apply(capsys):
    """A kind that is None is not known yet; a repeated flag that is absent is not set."""
    assert commands.parse(_Applicable, ["x", "--kind=c"], "", "x").depths == ()
    unknown = commands.parse(_Applicable, ["x", "--depths=1"], "", "x")
    assert dataclasses.replace(unknown, kind="b").depths == ("1",)
    wanted = "--depths is only for --kind=a, b. Received: --kind=c and --depths=1. Leave it out."
    with pytest.raises(InputError, match=wanted):
        dataclasses.replace(unknown, kind="c")
    with pytest.raises(InputError, match="--kind must be short. Received: unknown."):
        dataclasses.replace(unknown, kind="unknown")  # before what applies to it
    assert dataclasses.replace(unknown, kind="b", depths=("1", "2")).form == "x"
    wanted = "is only for --kind=b. Received: --kind=a and --depths=1, 2. Pass it once."
    with pytest.raises(InputError, match=wanted):
        dataclasses.replace(unknown, kind="a", depths=("1", "2"))
    assert commands.parse(_Applicable, ["x", "--form=y", "--kind=a"], "", "x").form == "y"
    wanted = "--form=y is only for --part=p. Received: --part=q and --form=y. Pass another --form."
    with pytest.raises(InputError, match=wanted):
        commands.parse(_Applicable, ["x", "--form=y", "--kind=a", "--part=q"], "", "x")
    wanted = "--file requires --part. Received: 'f' alone. Pass --part, or leave --file out."
    with pytest.raises(InputError, match=wanted):
        commands.parse(_Applicable, ["x", "--file=f"], "", "x")
    assert commands.parse(_Applicable, ["x", "--file=f", "--part=p"], "", "x").file == "f"
    wanted = "--port and --file exclude each other. Received: --port=0, --file=f. Leave one"
    with pytest.raises(InputError, match=wanted):
        commands.parse(_Applicable, ["x", "--port=0", "--file=f", "--part=p"], "", "x")
    assert commands.parse(_Applicable, ["x", "--port=0"], "", "x").port == 0
    with pytest.raises(SystemExit):
        commands.parse(_Applicable, ["x", "--help"], "", "x")
    text = " ".join(capsys.readouterr().out.split())
    assert "the port; not with --file" in text and "file; not with --port" in text
    assert "depths; only for --kind=a, b; repeated only for --kind=b" in text
    assert "the form; y only for --kind=a and --part=p (default" in text


@dataclasses.dataclass(frozen=True)
class WithPaths(commands.CommandOptions):
    output: str = commands.option("where to", path=True)
    init: str | None = commands.option("where from", None, path=True)


def test_the_path_in_a_variable_that_is_not_set():
    assert parse("--output=a", options_class=WithPaths).init is None
    with pytest.raises(InputError, match="--init must not be empty. Leave it out, or pass a path"):
        parse("--output=a", "--init=", options_class=WithPaths)


def test_a_flag_file_that_is_not_utf_8(tmp_path):
    (tmp_path / "flags").write_bytes(b"\xff\xfe--output=a")
    with pytest.raises(InputError, match="can't decode byte 0xff"):
        parse(f"--flagfile={tmp_path}/flags", options_class=WithPaths)
