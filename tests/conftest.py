"""Fixtures that several test rooms share."""

import contextlib
import errno
import fcntl
import gc
import os
import pathlib
from collections.abc import Callable
from typing import Any

import hypothesis
import pytest

if "PYTEST_XDIST_WORKER" in os.environ:  # the workers share the cores
    os.environ.setdefault("TF_NUM_INTRAOP_THREADS", "1")
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# A graph is a million small objects. By default, looking for garbage among them takes a twentieth
# of the suite's time, and a search among all of them most of a minute.
gc.set_threshold(100_000, 20, 10_000)


@hypothesis.given(hypothesis.strategies.none())
@hypothesis.settings(max_examples=1, database=None)
def first_example(_: None) -> None:
    """Run Hypothesis once: its first example triggers garbage collection, slow on a large heap."""


@pytest.fixture(scope="session", autouse=True)
def little_garbage() -> None:
    """Trigger that collection while the heap is small."""
    first_example()


TINY_CORPUS = "python_docs:email,logging,unittest,asyncio,json,argparse,collections"


@pytest.fixture(scope="session")
def shared_data() -> pathlib.Path:
    """The folder of real data; the test is skipped where there is none."""
    beside_the_checkout = pathlib.Path(__file__).resolve().parents[1] / ".." / "shared" / "data"
    folder = pathlib.Path(os.environ.get("ALBERT_TEST_DATA") or beside_the_checkout).resolve()
    if not folder.is_dir():
        pytest.skip(f"shared data is absent: no folder {folder} (set ALBERT_TEST_DATA)")
    return folder


@pytest.fixture(scope="session")
def made_once(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Callable[[str, Callable[[pathlib.Path], object]], pathlib.Path]:
    """(name, function that writes a new folder) -> the folder, which all workers share."""
    root = tmp_path_factory.getbasetemp()
    shared = root.parent if hasattr(request.config, "workerinput") else root

    def make(name: str, write: Callable[[pathlib.Path], object]) -> pathlib.Path:
        folder, done = shared / "once" / name, shared / "once" / f"{name}.done"
        folder.parent.mkdir(exist_ok=True)
        with contextlib.closing(open(f"{done}.lock", "w")) as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                write(folder)
                done.touch()
        return folder

    return make


@pytest.fixture
def break_folder(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """(folder, error number) -> None: from then on, what is in the folder cannot be reached.

    With `is_listed`, its names can still be listed. Permissions would not stop root.
    """

    def break_it(folder: pathlib.Path, number: int = errno.EACCES, is_listed: bool = False) -> None:
        def replace(name: str, is_broken: Callable[[pathlib.Path], bool]) -> None:
            call = getattr(os, name)

            def replacement(path: Any = ".", *args: Any, **kwargs: Any) -> Any:
                if not isinstance(path, int) and is_broken(pathlib.Path(os.path.abspath(path))):
                    raise OSError(number, os.strerror(number), path)
                return call(path, *args, **kwargs)

            monkeypatch.setattr(os, name, replacement)

        for name in ("stat", "lstat"):
            replace(name, lambda path: folder in path.parents)
        for name in ("listdir", "scandir") * (not is_listed):
            replace(name, lambda path: folder in (path, *path.parents))

    return break_it


@pytest.fixture(scope="session")
def tiny_tokenizer(made_once: Callable) -> str:
    """The folder of a tokenizer of 600 pieces, trained on docstrings."""
    from data.train_tokenizer import TrainTokenizerOptions, train_tokenizer

    def write(folder: pathlib.Path) -> None:
        train_tokenizer(TrainTokenizerOptions(TINY_CORPUS, str(folder), vocab_size=600))

    return str(made_once("tokenizer", write))


@pytest.fixture(scope="session")
def tiny_records(tiny_tokenizer: str, made_once: Callable) -> str:
    """A folder of real records: docstrings in sequences of 32."""
    from data.build import BuildOptions, build

    def write(folder: pathlib.Path) -> None:
        build(BuildOptions(TINY_CORPUS, tiny_tokenizer, str(folder), seq_length=32, num_workers=1))

    return str(made_once("records", write))


@pytest.fixture(scope="session")
def smoke_run(tiny_records: str, made_once: Callable) -> str:
    """The folder of a finished pretraining run of 60 steps; copy it to change it."""
    from pretraining import train

    def write(folder: pathlib.Path) -> None:
        given = ("loop.steps=60",)
        train.main(train.TrainOptions(tiny_records, str(folder), "smoke", device="cpu", set=given))

    return str(made_once("run", write))


@pytest.fixture(scope="session")
def small_tokenizer() -> object:
    """300 pieces of Python's own documentation."""
    topics = pytest.importorskip("pydoc_data.topics").topics
    from albert_tf.text.tokenizer import Tokenizer
    from data.train_tokenizer import TrainTokenizerOptions, train_model

    sentences = [line for text in list(topics.values())[:12] for line in text.splitlines()]
    options = TrainTokenizerOptions(corpus="", output="", vocab_size=300)
    return Tokenizer(train_model(sentences, options))


@pytest.fixture(scope="session")
def pretrained(made_once: Callable, small_tokenizer) -> str:
    """A run folder as pretraining leaves it, with untrained weights."""
    from tests.albert_tf.conftest import TINY
    from tests.finetuning.untrained import leave_pretrained

    def write(folder: pathlib.Path) -> None:
        leave_pretrained(folder, TINY, small_tokenizer)

    return str(made_once("pretrained", write))


@pytest.fixture(scope="session")
def exports(made_once: Callable, pretrained: str) -> pathlib.Path:
    """What the command writes for `pretrained`, by kind of export; copy it to change it."""
    from albert_tf.export import __main__ as program

    def write(folder: pathlib.Path) -> None:
        for kind in ("encoder", "fill_mask", "embedding"):
            program.main(program.ExportOptions(pretrained, str(folder / kind), kind))

    return made_once("exports", write)


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the slow parameters, and sorts by file, so that two workers share few fixtures."""
    for item in items:
        for mark in item.iter_markers("slow_parameters"):
            if item.callspec.id in mark.args:  # type: ignore[attr-defined]
                item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: str(item.path), reverse=True)


ALLOWED_SKIPS = ("shared data",)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """In CI, names every test that was skipped for another reason than the allowed ones."""
    for reason in _unexpected_skips(terminalreporter):
        terminalreporter.write_line(f"skipped in CI without an allowed reason: {reason}", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """In CI, such a test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if exitstatus == 0 and _unexpected_skips(reporter):
        session.exitstatus = 1


def _unexpected_skips(reporter: pytest.TerminalReporter) -> list[str]:
    if not os.environ.get("CI"):
        return []
    reasons = [str(report.longrepr) for report in reporter.stats.get("skipped", [])]
    return [r for r in reasons if not any(allowed in r for allowed in ALLOWED_SKIPS)]
