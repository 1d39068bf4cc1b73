"""Tests of what is printed while a task runs."""

import types

import pytest

from albert_tf.training import progress
from albert_tf.training.progress import Progress, printing_if


@pytest.fixture
def clock(monkeypatch) -> types.SimpleNamespace:
    """A clock that stands still until `now` is set."""
    clock = types.SimpleNamespace(now=100.0)
    monkeypatch.setattr(progress, "time", types.SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_a_line_every_15_seconds_has_rate_and_rest(clock, capsys):
    """40 of the remaining 80 steps in 20 s: 2 a second, and 20 s left. What was done is no work."""
    with Progress("steps", 1100, done=1020) as bar:
        clock.now += 14.9
        bar.advance(10, note="loss 5.0")
        assert capsys.readouterr().err == ""
        clock.now += 5.1
        bar.advance(30, note="loss 4.0")
        assert capsys.readouterr().err == "1,060/1,100 steps (2.0/s, 20 s left) loss 4.0\n"
        clock.now += 14.9
        bar.advance(1)
        assert capsys.readouterr().err == ""


def test_a_total_that_was_too_low(clock, capsys):
    with Progress("bytes", 100) as bar:
        for count in (90, 30, 30):
            clock.now += 15.0
            bar.advance(count)
    assert capsys.readouterr().err.splitlines()[1:] == [
        "100/100 bytes (3.3/s, 0 s left)",
        "100/100 bytes (2.2/s, 0 s left)",
    ]


def test_slow_units_and_an_unknown_total(clock, capsys):
    with Progress("records") as bar:
        clock.now += 60.0
        bar.advance(3)
    assert capsys.readouterr().err == "3 records (20 s each)\n"


def test_a_replaced_stderr_gets_lines(clock, monkeypatch):
    """A logger's stream has often no more than `write` and `flush`."""
    lines: list[str] = []
    stream = types.SimpleNamespace(write=lines.append, flush=lambda: None)
    monkeypatch.setattr(progress.sys, "stderr", stream)
    with Progress("texts", 10) as bar:
        clock.now += 15.0
        bar.advance(5)
    assert lines[0].startswith("5/10 texts")


def test_only_the_chief_of_several_workers_prints(capsys):
    for is_chief in (True, False):
        with printing_if(is_chief):
            print(f"chief: {is_chief}")
    print("after")
    assert capsys.readouterr().out == "chief: True\nafter\n"
