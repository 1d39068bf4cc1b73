"""Cosines by hand, TF-IDF beside its definition, an export, and exports of other kinds."""

import itertools
import json
import math

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.export import __main__ as program
from albert_tf.runtime.errors import InputError
from benchmarks.cosine import CosineOptions, cosine, main, tf_idf_cosine


def test_cosine_by_hand():
    a = np.array([[3.0, 4.0], [1.0, 0.0], [0.0, 0.0]])
    b = np.array([[4.0, 3.0], [-2.0, 0.0], [1.0, 1.0]])
    np.testing.assert_allclose(cosine(a, b), [24 / 25, -1, 0], atol=1e-12)


def test_tf_idf_by_hand():
    # "x" is in both training texts: idf 1. "y" is in one of them: idf ln(3 / 2) + 1.
    x, y = 1, math.log(3 / 2) + 1
    found = tf_idf_cosine(["xx yy", "xx"], ["xx yy", "xx", "zz"], ["xx", "xx", "xx"])
    np.testing.assert_allclose(found, [x / math.hypot(x, y), 1, 0], atol=1e-12)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("fill_mask", "Its outputs are pieces, probabilities"),
        ("", "has saved_model.pb or model.onnx"),
    ],
)
def test_other_exports_are_refused(exports, kind, words):
    with pytest.raises(InputError, match=words):
        main(CosineOptions(str(exports / kind), "sts-b", dry_run=True))


def test_lines_of_an_export(pretrained, tmp_path, capsys):
    """Correlations beside numpy's, of embeddings that the export gives."""
    sentences = ["a cat sleeps", "the dog runs", "a cat runs", "rain falls", "the rain", "a dog"]
    pairs = list(itertools.permutations(sentences, 2))
    scores = [(7 * i) % 6 for i in range(len(pairs))]
    columns = "index genre filename year old_index source1 source2 sentence1 sentence2 score"
    rows = "".join(
        f"{i}\tg\tf\ty\to\ts\ts\t{a}\t{b}\t{score}\n"
        for i, ((a, b), score) in enumerate(zip(pairs, scores, strict=True))
    )
    for part in ("train", "dev"):
        text = "\t".join(columns.split()) + f"\n{rows}"
        (tmp_path / f"{part}.tsv").write_text(text, encoding="utf-8")
    export = str(tmp_path / "export")
    program.main(program.ExportOptions(pretrained, export, "embedding"))
    main(CosineOptions(export, str(tmp_path)))
    found = correlations(capsys)

    signature = tf.saved_model.load(f"{export}/1").signatures["serving_default"]
    vectors = signature(text=tf.constant(sentences))["embedding"].numpy()
    # Each sentence is in as many pairs as the others, so their mean is that over the training set.
    for name, rows in (("embedding", vectors), ("centered embedding", vectors - vectors.mean(0))):
        unit = dict(zip(sentences, rows / np.linalg.norm(rows, axis=1, keepdims=True), strict=True))
        expected = np.corrcoef([unit[a] @ unit[b] for a, b in pairs], scores)[0, 1]
        assert found[name] == pytest.approx(100 * expected, abs=0.06), name
    assert set(found) == {"embedding", "centered embedding", "tf-idf"}

    pytest.importorskip("onnxruntime")
    onnx = str(tmp_path / "onnx")
    program.main(program.ExportOptions(pretrained, onnx, "embedding", format="onnx"))
    main(CosineOptions(onnx, str(tmp_path)))
    assert correlations(capsys) == pytest.approx(found, abs=0.11)


def correlations(capsys) -> dict[str, float]:
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines() if line[0] == "{"]
    return {line["similarity"]: line["pearson"] for line in lines}
