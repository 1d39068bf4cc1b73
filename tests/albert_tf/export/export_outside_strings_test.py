"""Tests that the C API answers 10,000 strings, and real texts, as `load_predictor` does."""

import functools
import gzip
import itertools
import pickle

import numpy as np
import pytest
import tf_keras
from hypothesis import given, settings

from albert_tf import load_predictor
from albert_tf.convert import native
from albert_tf.convert.bundle import Bundle, weight_shapes
from albert_tf.export.__main__ import ExportOptions, main
from albert_tf.tasks.examples import ChoiceExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.multiple_choice.model import MultipleChoiceSettings
from albert_tf.tasks.tokens.model import TokenSettings
from finetuning.datasets.dataset import Reading
from finetuning.datasets.tokens.token_files import read_conll
from tests.albert_tf.export.export_outside_test import C_API, isolated
from tests.albert_tf.export.export_strings_test import CALM, STRINGS
from tests.albert_tf.export.export_token_classifier_test import TEXT

SETTINGS = [
    TokenSettings(("place", "person"), seq_length=32, doc_stride=8),
    MultiLabelSettings(("no", "yes", "maybe"), (0.25, 0.5, 0.75), seq_length=32),
    MultipleChoiceSettings(seq_length=40, num_choices=2, qa_length=16),
]
COUNT, BATCH = 10_000, 64
ASK = """
import pickle, runpy, sys
_, script, path, file = sys.argv
with open(file, "rb") as requests, runpy.run_path(script)["Session"](path) as session:
    found = [session.run(request) for request in pickle.load(requests)]
with open(file, "wb") as answers:
    pickle.dump(found, answers)
"""


@functools.cache
def generated() -> list[bytes]:
    """COUNT different strings, the same in each run; some are not valid UTF-8."""
    found = {}

    @settings(max_examples=11 * COUNT // 10, derandomize=True, **CALM)
    @given(text=STRINGS | TEXT.map(str.encode))
    def collect(text):
        found[text] = None

    collect()
    return list(found)[:COUNT]


@pytest.fixture
def texts(request) -> list[bytes]:
    if request.param == "generated":
        return generated()
    data = request.getfixturevalue("shared_data")
    sentences = read_conll(str(data / "ner" / "wnut17" / "dev.conll"), Reading())
    found = [" ".join(sentence.tokens) for sentence in sentences]
    for part in ("dev", "test"):
        path = data / "multilabel" / "goemotions" / f"{part}.tsv.gz"
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found += [line.split("\t")[0] for line in lines]
    return [text.encode() for text in dict.fromkeys(found)]


def columns_of(task, texts) -> dict[str, list]:
    """The inputs of the signature, with as many rows as texts."""
    if task.kind != "multiple_choice":
        return {"text": texts}
    turned = [texts[i:] + texts[:i] for i in range(4)]
    options = [list(row) for row in zip(*turned[2:], strict=True)]
    return {"question": turned[0], "context": turned[1], "options": options}


def examples_of(columns) -> list:
    """The predictor's examples: as the exports say, malformed UTF-8 is replaced."""

    def decoded(value):
        if isinstance(value, list):
            return [*map(decoded, value)]
        return value.decode(errors="replace")

    rows = zip(*(decoded(column) for column in columns.values()), strict=True)
    return [row[0] if len(row) == 1 else ChoiceExample(*row) for row in rows]


def served(path, columns, file) -> list[dict]:
    """The rows of the C API's answers."""
    count = len(next(iter(columns.values())))
    requests = [
        {name: column[i : i + BATCH] for name, column in columns.items()}
        for i in range(0, count, BATCH)
    ]
    file.write_bytes(pickle.dumps(requests))
    isolated("-c", ASK, C_API, path, str(file))
    answers = pickle.loads(file.read_bytes())
    rows = (zip(*answer.values(), strict=True) for answer in answers)
    return [dict(zip(answers[0], row, strict=True)) for row in itertools.chain(*rows)]


def of_export(row, task) -> tuple[list, list]:
    """What of a served row must be equal, and what must be close."""
    if task.kind == "multiple_choice":
        return [row["choice"], row["label"].decode()], row["probabilities"]
    if task.kind == "multi_label":
        labels = [label.decode() for label in row["labels"] if label]
        chosen = itertools.compress(task.labels, row["chosen"])
        assert sorted(labels) == sorted(chosen)
        return labels, row["probabilities"]
    count = sum(start >= 0 for start in row["start"])
    label, text = ([each.decode() for each in row[name]] for name in ("label", "text"))
    spans = zip(label, text, row["start"], row["end"], strict=True)
    return list(spans)[:count], row["score"][:count]


def of_predictor(answer, task) -> tuple[list, list]:
    """The same of the predictor's answer."""
    if task.kind == "multiple_choice":
        return [answer["choice"], answer["label"]], answer["probabilities"]
    if task.kind == "multi_label":
        return answer["labels"], [*answer["probabilities"].values()]
    spans = [tuple(entity.values()) for entity in answer["entities"]]
    return [span[:4] for span in spans], [span[4] for span in spans]


@pytest.fixture
def run(request, tiny, small_tokenizer, tmp_path) -> str:
    """A run of random weights that tells its inputs apart."""
    tf_keras.utils.set_random_seed(7)
    config = tiny.replace(num_layers=1)
    shape = weight_shapes(config, request.param)["head/kernel"]
    head = {"head/kernel": np.random.default_rng(0).normal(size=shape)}
    (tmp_path / "run").mkdir()
    native.write(Bundle(config, head, small_tokenizer, request.param), str(tmp_path / "run"))
    return str(tmp_path / "run")


@pytest.mark.slow
@pytest.mark.parametrize("texts", ["generated", "real"], indirect=True)
@pytest.mark.parametrize("run", SETTINGS, ids=lambda task: task.kind, indirect=True)
def test_ten_thousand_strings(run, texts, tmp_path):
    assert len(texts) >= COUNT
    main(ExportOptions(run, str(tmp_path / "export")))
    predictor = load_predictor(run)
    task, columns = predictor.task, columns_of(predictor.task, texts)
    rows = served(str(tmp_path / "export" / "1"), columns, tmp_path / "requests")
    wanted = [of_predictor(answer, task) for answer in predictor(examples_of(columns))]
    differ = ties = 0
    for row, (answer, values) in zip(rows, wanted, strict=True):
        found, close = of_export(row, task)
        assert len(close) == len(values)
        np.testing.assert_allclose(close, values, rtol=0, atol=1e-4)
        # Rounding decides between two options that are equal as pieces.
        is_tie = task.kind == "multiple_choice" and np.ptp(values) < 2e-6
        ties += found != answer and is_tie
        differ += found != answer and not is_tie
    print(f"{task.kind}: of {len(rows)} rows {differ} differ, and {ties} ties")
    assert differ == 0 and ties <= 10
    assert all(f"'{label}'" in str(wanted) for label in getattr(task, "labels", "AB"))
