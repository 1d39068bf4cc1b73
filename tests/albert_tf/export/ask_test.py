"""Proves what examples/ask.py refuses: our code beside it, and models that it cannot ask."""

import importlib.util
import pathlib
import runpy

import pytest
import tensorflow as tf

ASK = pathlib.Path(__file__).resolve().parents[3] / "examples" / "ask.py"


def test_beside_our_code_it_fails(capsys):
    main = runpy.run_path(str(ASK))["main"]
    with pytest.raises(SystemExit, match="ask.py: error: .*python -I") as stop:
        main("no/model", [])
    assert isinstance(stop.value.code, str)  # Python prints it and exits with 1
    assert capsys.readouterr().out == "albert_tf can be imported here: True\n"


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(["text_a", "text_b"], ["label", "score"]), (["text"], ["score"])],
)
def test_a_model_of_another_kind_is_told_in_one_line(
    tmp_path, capsys, monkeypatch, inputs, outputs
):
    texts = [tf.TensorSpec([None], tf.string, name) for name in inputs]
    answer = tf.function(lambda *texts: {name: texts[0] for name in outputs}, texts)
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=answer)
    main, find_spec = runpy.run_path(str(ASK))["main"], importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "albert_tf" else find_spec(name)
    )
    with pytest.raises(SystemExit) as stop:
        main(str(tmp_path), ["a text"])
    assert stop.value.code == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert f"takes {', '.join(inputs)} and returns {', '.join(outputs)}:" in printed
