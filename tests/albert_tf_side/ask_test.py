"""Proves that examples/ask.py refuses to ask a model where it could lean on our code."""

import pathlib
import runpy

import pytest

ASK = pathlib.Path(__file__).resolve().parents[2] / "examples" / "ask.py"


def test_beside_our_code_it_fails(capsys):
    main = runpy.run_path(str(ASK))["main"]
    with pytest.raises(SystemExit, match="ask.py: error: .*python -I") as stop:
        main("no/model", [])
    assert isinstance(stop.value.code, str)  # Python prints it and exits with 1
    assert capsys.readouterr().out == "albert_tf can be imported here: True\n"
