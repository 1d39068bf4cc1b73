"""The dataset that CONTRIBUTING.md adds, as its code is there."""

import pathlib
import re

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from finetuning.datasets.dataset import Reading, Source
from finetuning.datasets.labeled_texts import LabeledTexts

GUIDE = pathlib.Path(__file__).resolve().parents[3] / "CONTRIBUTING.md"
LINES = 'A "cat" sleeps.\tIt rests.\tentails\nRain falls.\tIt is dry.\tneutral\n'


@pytest.fixture(scope="module")
def dataset() -> LabeledTexts:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)
    names: dict = {}
    exec(compile(code, str(GUIDE), "exec"), names)
    return names["SciTail"]()


@pytest.fixture
def source(tmp_path: pathlib.Path) -> Source:
    for part, content in (("train", LINES * 2), ("dev", LINES), ("test", "a\t\tneutral\n")):
        (tmp_path / f"scitail_1.0_{part}.tsv").write_text(content)
    return Source(str(tmp_path))


def test_examples_and_the_section(dataset, source):
    data = dataset.read(source)
    first = TextExample('A "cat" sleeps.', "It rests.", 1)
    assert data.train[0] == data.dev["dev"][0] == first and len(data.train) == 4
    assert data.task == ClassifierSettings(("neutral", "entails"), pair=True)
    limited = Source(source.data_dir, reading=Reading(max_train_examples=3))
    assert len(dataset.read(limited).train) == 3
    assert dataset.read_part(source, "test", data.task) == [TextExample("a", "", 0)]


def test_errors_name_the_row_and_what_is_missing(dataset, source):
    folder = pathlib.Path(source.data_dir)
    (folder / "scitail_1.0_dev.tsv").write_text("a\tb\tmaybe\n")
    with pytest.raises(InputError, match=r"dev.tsv:1: label 'maybe' is not one of neutral, entai"):
        dataset.read(source)
    (folder / "scitail_1.0_train.tsv").write_text("a\t\tneutral\n")
    with pytest.raises(InputError, match=r"train.tsv:1: `hypothesis` is empty"):
        dataset.read(source)
    (folder / "scitail_1.0_dev.tsv").unlink()
    with pytest.raises(InputNotFoundError, match="dev_fraction"):
        (folder / "scitail_1.0_train.tsv").write_text(LINES)
        dataset.read(source)
    with pytest.raises(InputError, match=r"SciTail requires a run with .*pair. True.*pair. False"):
        dataset.read_part(source, "test", ClassifierSettings(dataset.labels))


def test_the_score_and_a_submission(dataset, tmp_path):
    """Two of three are right."""
    predictions = [
        {"label": label, "probabilities": {"neutral": 0.5, "entails": 0.5}}
        for label in ("neutral", "entails", "entails")
    ]
    examples = [TextExample("a", "b", label) for label in (0, 0, 1)]
    assert dataset.score(predictions, examples) == {"accuracy": pytest.approx(2 / 3)}
    dataset.write_submission(str(tmp_path / "out.tsv"), predictions, examples)
    written = np.loadtxt(tmp_path / "out.tsv", dtype=str)
    assert written.tolist()[1:] == [["0", "neutral"], ["1", "entails"], ["2", "entails"]]
