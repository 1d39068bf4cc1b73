"""SIGTERM and Ctrl-C: the first is noted, the second ends the process."""

import signal

import pytest

from pretraining.loop.stop_request import StopRequest


@pytest.mark.parametrize("number", [signal.SIGHUP, signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("handler", [signal.SIG_IGN, signal.SIG_DFL])
def test_what_is_ignored_stops_no_run(number: signal.Signals, handler: signal.Handlers):
    """A closed terminal under nohup, and Ctrl-C for what a script has begun with `&`."""
    before = signal.signal(number, handler)
    with StopRequest() as stop:
        signal.raise_signal(number)
        assert stop.signal == (0 if handler == signal.SIG_IGN else number)
    assert signal.signal(number, before) == handler


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_second_signal_ends_the_process_at_once(number: signal.Signals, capsys):
    """With the status of a shell for the second one; afterwards signals do what they did before."""
    others = {each: signal.signal(each, signal.SIG_DFL) for each in (signal.SIGTERM, signal.SIGINT)}
    with StopRequest() as stop:
        assert stop.signal == 0
        signal.raise_signal(number)
        assert stop.signal == number
        assert "saving after this loop" in capsys.readouterr().out
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143 and stop.signal == number
    for each, handler in others.items():
        assert signal.signal(each, handler) == signal.SIG_DFL
