"""Proves the table of depths: scores and layers of the export's signatures, FLOPs that fall."""

import numpy as np
import pytest

from albert_tf.errors import InputError
from albert_tf.tasks.predictor import load_predictor
from finetuning.depth import DepthOptions, main
from finetuning.task import Source
from finetuning.tasks import TASKS


def table(text: str) -> dict[str, list[float]]:
    rows = [line.strip("| ").split("|") for line in text.splitlines() if line.startswith("|")]
    return {
        row[0].strip(): [float(cell.split("±")[0].replace(",", "")) for cell in row[1:]]
        for row in rows[2:]
    }


def test_the_table(tuned, fruit, capsys):
    run = str(tuned / "seed-0")
    main(DepthOptions(run, fruit, requests=2, patience=""))
    rows = table(capsys.readouterr().out)
    predictor = load_predictor(run)
    layers = predictor.model.encoder.config.num_layers
    assert list(rows) == [f"depth {k}" for k in range(1, layers + 1)]
    examples = next(iter(TASKS["text_classification"].read(Source(fruit)).dev.values()))
    score = TASKS["text_classification"].score(predictor(examples), examples)["accuracy"]
    whole = rows[f"depth {layers}"]
    assert whole[0] == pytest.approx(score, abs=1e-4)
    assert [row[1] for row in rows.values()] == list(range(1, layers + 1))
    flops = np.array([row[2] for row in rows.values()])
    assert (np.diff(flops) > 0).all()
    assert all(value > 0 for row in rows.values() for value in row[3:])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"depths": "9"}, "--depths must be between"),
        ({"patience": "9"}, "--patience must be between"),
        ({"requests": 0}, "--requests must be positive. Received: 0"),
    ],
)
def test_mistakes(tuned, fruit, options, words):
    with pytest.raises(InputError, match=words):
        main(DepthOptions(str(tuned / "seed-0"), fruit, **options))
