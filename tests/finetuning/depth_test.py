"""Tests of the table of depths: scores and layers of the export's signatures, FLOPs that fall."""

import pathlib

import numpy as np
import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.predictor import load_predictor
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from finetuning.depth import DepthOptions, _flops, main


def table(text: str) -> dict[str, list[float]]:
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    return {
        row[0].strip(): [float(cell.split("±")[0].replace(",", "")) for cell in row[1:]]
        for row in rows[2:]
    }


@pytest.mark.slow
def test_the_table(tuned, fruit, tmp_path, capsys):
    """Of a folder whose own labels have other numbers than the run's."""
    run = str(tuned / "seed-0")
    dev = pathlib.Path(fruit, "dev.tsv").read_text(encoding="utf-8")
    (tmp_path / "dev.tsv").write_text(f"{dev}{'红 ' * 20}\tfruit\n", encoding="utf-8")
    (tmp_path / "train.tsv").write_text("text\tlabel\nx\tanimal\nx\tfruit\nx\ttool\n")
    main(DepthOptions(run, str(tmp_path), requests=2))
    captured = capsys.readouterr()
    assert "unknown to the vocabulary: 20 of 红 (U+7EA2). Check" in captured.err
    rows = table(captured.out)
    predictor = load_predictor(run)
    layers = predictor.model.encoder.config.num_layers
    assert list(rows) == [f"depth {k}" for k in range(1, layers + 1)]
    task = DATASETS["text_classification"]
    examples = task.read_part(Source(str(tmp_path)), "dev", predictor.task)
    score = task.score(predictor(examples), examples)["accuracy"]
    whole = rows[f"depth {layers}"]
    assert whole[0] == pytest.approx(score, abs=1e-4)
    assert [row[1] for row in rows.values()] == list(range(1, layers + 1))
    flops = np.array([row[2] for row in rows.values()])
    assert (np.diff(flops) > 0).all()
    assert all(value > 0 for row in rows.values() for value in row[3:])


def test_flops_are_those_of_the_products():
    """By hand, at width 4: H = 2 in one head, E = 1, an inner width of 3."""
    sizes = {"hidden_size": 2, "num_heads": 1, "intermediate_size": 3, "embedding_size": 1}
    config = AlbertConfig(vocab_size=10, num_layers=3, max_positions=4, **sizes)
    # For each position: query, key and value 3 x 2 x 2, output 2 x 2, feed-forward 2 x 2 x 3.
    # For each query: logits and context 2 x 4 positions x 2. All times 2.
    layer = 2 * 4 * (12 + 4 + 12 + 16)
    last = 2 * (4 * 12 + 4 + 12 + 16)
    projection = 2 * 4 * 2
    lengths, depth = np.array([4, 3]), np.array([1, 3])
    for at_all_positions, final in ((True, layer), (False, last)):
        found = _flops(config, 4, lengths, depth, at_all_positions)
        np.testing.assert_array_equal(found, projection + (depth - 1) * layer + final)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depths": "9"}, "--depths must be between"),
        ({"patience": "9"}, "--patience needs a model of at least 3 layers. Received: 2 layers"),
        ({"patience": "0"}, "--patience must be positive numbers. Received: 0"),
        ({"requests": 0}, "--requests must be positive. Received: 0"),
    ],
)
def test_mistakes(tuned, fruit, options, words):
    with pytest.raises(InputError, match=words):
        main(DepthOptions(str(tuned / "seed-0"), fruit, **options))


@pytest.mark.parametrize(
    ("dev", "words"),
    [
        ("text\tlabel\nx\tanimal\n", r"dev.tsv:2: label 'animal' .* which has fruit, tool"),
        ("text\nx\n", "Example 0 has none"),
    ],
)
def test_dev_examples_that_the_run_cannot_answer(tuned, tmp_path, dev, words):
    (tmp_path / "dev.tsv").write_text(dev)
    with pytest.raises(InputError, match=words):
        main(DepthOptions(str(tuned / "seed-0"), str(tmp_path), dry_run=True))
