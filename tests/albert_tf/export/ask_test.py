"""Tests that examples/ask*.py refuse models that they cannot ask, and rank by embeddings."""

import pathlib
import runpy

import pytest
import tensorflow as tf

ASK = pathlib.Path(__file__).resolve().parents[3] / "examples" / "ask.py"


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [(["text_a", "text_b"], ["label", "score"]), (["text"], ["score"])],
)
def test_a_model_of_another_kind_is_refused_in_one_line(tmp_path, capsys, inputs, outputs):
    texts = [tf.TensorSpec([None], tf.string, name) for name in inputs]
    answer = tf.function(lambda *texts: {name: texts[0] for name in outputs}, texts)
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=answer)
    main = runpy.run_path(str(ASK))["main"]
    with pytest.raises(SystemExit) as stop:
        main(str(tmp_path), ["a text"])
    assert stop.value.code == 2
    (printed,) = capsys.readouterr().err.splitlines()
    assert f"takes {', '.join(inputs)} and returns {', '.join(outputs)}:" in printed


def test_embeddings_rank_the_other_texts(tmp_path, capsys):
    def embed(text: tf.Tensor) -> dict[str, tf.Tensor]:
        length = tf.cast(tf.strings.length(text), tf.float32)
        return {"embedding": tf.stack([length, tf.ones_like(length)], axis=1)}

    answer = tf.function(embed, [tf.TensorSpec([None], tf.string, "text")])
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=answer)
    runpy.run_path(str(ASK))["main"](str(tmp_path), ["x", "abc", "b", "ab"])
    # (1, 1) against (3, 1), (1, 1) and (2, 1): 4 / sqrt(20), 1 and 3 / sqrt(10).
    lines = capsys.readouterr().out.splitlines()
    assert lines == ["x", "    1.00 b", "    0.95 ab", "    0.89 abc"]


def test_each_mask_has_a_row_of_pieces(tmp_path, capsys):
    """The second text has one mask less: its row is empty."""

    def fill(text: tf.Tensor) -> dict[str, tf.Tensor]:
        pieces = tf.constant([[["a", "b"], ["c", "d"]], [["e", "f"], ["", ""]]])
        chances = tf.constant([[[0.5, 0.25], [0.75, 0.125]], [[1.0, 0.0], [0.0, 0.0]]])
        return {"pieces": pieces, "probabilities": chances}

    answer = tf.function(fill, [tf.TensorSpec([None], tf.string, "text")])
    tf.saved_model.save(tf.Module(), str(tmp_path), signatures=answer)
    runpy.run_path(str(ASK))["main"](str(tmp_path), ["x", "y"])
    shown = ["x", "    a 0.50, b 0.25", "    c 0.75, d 0.12", "y", "    e 1.00, f 0.00"]
    assert capsys.readouterr().out.splitlines() == shown


@pytest.mark.parametrize(
    ("script", "files", "missing"),
    [
        ("ask", (), "saved_model.pb"),
        ("ask_litert", (), "model.tflite"),
        ("ask_litert", ("model.tflite",), "config.json"),
    ],
)
def test_a_missing_file_is_named(tmp_path, monkeypatch, capsys, script, files, missing):
    for name in files:
        (tmp_path / name).touch()
    printed = stopped(monkeypatch, capsys, script, str(tmp_path), "a text")
    assert printed.startswith(f"{script}.py: error: no {missing} in '{tmp_path}': it must be ")
    if not files:
        printed = stopped(monkeypatch, capsys, script, str(tmp_path / "none"), "a text")
        assert f"no {missing} in '{tmp_path / 'none'}': " in printed


@pytest.mark.parametrize("script", ["ask", "ask_litert"])
def test_without_texts_it_prints_how_to_use_it(tmp_path, monkeypatch, capsys, script):
    assert stopped(monkeypatch, capsys, script, str(tmp_path)).startswith("usage: python ")


def stopped(monkeypatch, capsys, script: str, *arguments: str) -> str:
    """The one line with which the command stops."""
    path = ASK.with_name(f"{script}.py")
    monkeypatch.setattr("sys.argv", [str(path), *arguments])
    with pytest.raises(SystemExit) as stop:
        runpy.run_path(str(path), run_name="__main__")
    assert stop.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    return line
