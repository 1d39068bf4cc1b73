"""Tests of the table of latencies: what is measured, and that each runtime has the run's scores."""

import json

import numpy as np
import pytest

from albert_tf.export.serving import check_name
from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from albert_tf.tasks.classifier.model import ClassifierSettings
from albert_tf.tasks.examples import TextExample
from albert_tf.tasks.multi_label.model import MultiLabelSettings
from albert_tf.tasks.predictor import load_predictor
from albert_tf.tasks.regressor.model import RegressorSettings
from albert_tf.tasks.spans.model import SpanSettings
from benchmarks import latency
from benchmarks.latency import CANDIDATES, LatencyOptions
from benchmarks.runtimes import RUNTIMES
from finetuning.datasets import DATASETS
from finetuning.datasets.dataset import Source
from tests.finetuning.untrained import leave_run, leave_weights

TEXTS = ["the value", "", "of the object " * 30, "naïve 漢字 🙂"]
TASK = ClassifierSettings(("fruit", "tool"), seq_length=24)
MULTI_LABEL = MultiLabelSettings(("fruit", "tool"), seq_length=24)


@pytest.mark.parametrize(
    ("section", "changes", "options", "wanted"),
    [
        (TASK, {}, {}, ["depth-3", "depth-6", "early-exit"]),
        (TASK, {"num_layers": 13}, {}, ["depth-3", "depth-6", "depth-12", "early-exit"]),
        (TASK, {"num_layers": 3}, {}, []),
        (TASK, {"num_groups": 2}, {"depths": "11,12"}, ["depth-11"]),
        (TASK, {"sharing": "none"}, {"depths": ""}, []),
        (TASK, {}, {"depths": "", "patience": 10}, ["early-exit"]),
        (TASK, {}, {"depths": "", "patience": 11}, []),
        (TASK, {}, {"depths": "", "patience": 0}, []),
        (MULTI_LABEL, {}, {}, ["depth-3", "depth-6"]),
    ],
)
def test_fewer_layers_are_measured_where_the_model_has_them(section, changes, options, wanted):
    found = latency.candidates_of(
        LatencyOptions("run", **options), section, AlbertConfig(**changes)
    )
    assert list(found) == [*CANDIDATES, *wanted]
    assert len({str(found[name].options) for name in wanted}) <= 1  # one export serves them
    names = {str(each.options): latency._name(each.options) for each in found.values()}
    assert len(set(names.values())) == len(names)
    for name in names.values():
        check_name(name)


def test_bfloat16_is_absent_on_cpus_without_its_products():
    in_bfloat16 = latency.Candidate(("saved_model",), is_bfloat16=True)
    assert in_bfloat16.absence({"avx2", "avx512f"}) == "this CPU has no bfloat16 products"
    assert in_bfloat16.absence({"amx_bf16"}) is in_bfloat16.absence({"avx512_bf16"}) is None
    assert latency.Candidate(("saved_model",)).absence(set()) is None
    found = {name for name, candidate in CANDIDATES.items() if candidate.is_bfloat16}
    assert found == {"saved-model-bf16", "openvino-bf16"}


@pytest.mark.parametrize(
    ("seq_length", "lengths"), [(8, [8]), (32, [10, 32]), (64, [10, 16, 64]), (128, [10, 32, 128])]
)
def test_loads_have_their_pieces(tiny_tokenizer, seq_length, lengths):
    from albert_tf.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(tiny_tokenizer)
    names = [f"{count} x {length}" for count in (1, 32) for length in lengths]
    for pair in (False, True):
        loads = latency.make_loads(tokenizer, seq_length, pair)
        assert list(loads) == names
        for name, texts in loads.items():
            count, length = map(int, name.split(" x "))
            assert len(texts) == count
            segments = texts[0] if pair else [texts[0]]
            pieces = sum(map(len, tokenizer.encode_batch(segments)))
            assert pieces + len(segments) + 1 == length


@pytest.fixture(scope="module")
def run(pretrained, tmp_path_factory):
    """Return a function: (section, its dataset) -> the folder of a run without weights."""
    return lambda section, name: leave_run(
        pretrained, tmp_path_factory.mktemp("run") / "run", name, section
    )


@pytest.mark.parametrize(
    ("section", "name", "options", "words"),
    [
        (SpanSettings(), "squad1", {}, "classifier, multi_label, regressor. .* of kind 'span'"),
        (
            ClassifierSettings(("a", "b"), long_texts="mean"),
            "text_classification",
            {},
            "task.long_texts=mean",
        ),
        (
            TASK,
            "text_classification",
            {"systems": "litert,tpu"},
            "--systems must be among .*openvino.*'tpu'",
        ),
        (TASK, "text_classification", {"rounds": 0}, "--rounds must be positive"),
    ],
)
def test_mistakes(run, section, name, options, words):
    path = run(section, name)
    with pytest.raises(InputError, match=words):
        latency.main(LatencyOptions(path, dry_run=True, **options))


def test_tables_show_what_is_known():
    lines = [
        {"system": "a", "load": "1 x 10", "p50_ms": 1.5, "texts_per_s": 9.0, "mb": 2.0, "f1": 0.5},
        {"system": "b", "load": "1 x 10", "p50_ms": 2.5, "texts_per_s": 8.0, "mb": 3.0, "f1": 0.4},
        {"system": "a", "load": "dev", "p50_ms": 3.5, "p95_ms": 4.0, "texts_per_s": 7.0, "mb": 2.0},
        {"system": "c", "absent": "c is not installed"},
    ]
    first, second, absent = latency.tables(lines, "f1").split("\n\n")
    assert first.splitlines()[0] == "| 1 x 10 | p50 ms | p95 ms | texts/s | MB | f1 |"
    assert first.splitlines()[2:] == [
        "| a | 1.5 |  | 9.0 | 2.0 | 0.5 |",
        "| b | 2.5 |  | 8.0 | 3.0 | 0.4 |",
    ]
    assert second.splitlines()[2:] == ["| a | 3.5 | 4.0 | 7.0 | 2.0 |  |"]
    assert absent == "c: c is not installed"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "name"),
    [
        (ClassifierSettings(("fruit", "tool"), seq_length=24, pair=True), "text_classification"),
        (MULTI_LABEL, "multi_label"),
        (RegressorSettings(center=2.0, scale=3.0, seq_length=24), "text_regression"),
    ],
)
def test_each_runtime_answers_as_the_run(run, section, name, tmp_path):
    path = run(section, name)
    leave_weights(path, seed=1)
    texts = [[a, b] for a, b in zip(TEXTS, TEXTS[::-1], strict=True)] if section.pair else TEXTS
    examples = [TextExample(*each) if section.pair else TextExample(each) for each in texts]
    wanted = np.array(
        [
            list(answer.get("probabilities", answer).values())
            for answer in load_predictor(path)(examples)
        ]
    )
    for candidate in CANDIDATES.values():
        export = latency._export(path, candidate.options, str(tmp_path))
        runtime, *variant = candidate.runtime
        system = RUNTIMES[runtime](export, 1, *variant)
        found = np.array(system.run(system.prepare(texts))).reshape(wanted.shape)
        is_exact = candidate.options.keys() <= {"format"} and "bf16" not in variant
        np.testing.assert_allclose(found, wanted, atol=1e-5 if is_exact else 0.05)
        assert 0 < latency._bytes(export) < 5e6


@pytest.mark.slow
def test_the_lines(run, tmp_path, capsys, monkeypatch):
    path = run(TASK, "text_classification")
    leave_weights(path, seed=1)
    rows = [
        f"{text}\t{label}\n" for text, label in zip("abcdef" * 6, TASK.labels * 18, strict=True)
    ]
    (tmp_path / "dev.tsv").write_text("text\tlabel\n" + "".join(rows))
    monkeypatch.setitem(
        latency.CANDIDATES, "other", latency.Candidate(("none",), {}, ("no_such_library",))
    )
    names = ["saved-model", "onnx-runtime", "depth-1", "depth-2", "early-exit", "other"]
    latency.main(
        LatencyOptions(
            path,
            str(tmp_path),
            systems=",".join(names),
            depths="1,2",
            patience=1,
            rounds=1,
            json=True,
        )
    )
    first, *lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert first["cores"] == 1 and first["run"] == path
    assert lines.pop() == {"system": "other", "absent": "no_such_library is not installed"}
    loads = ["1 x 10", "1 x 24", "32 x 10", "32 x 24", "dev"]
    assert [(line["load"], line["system"]) for line in lines] == [
        (load, name) for load in loads for name in names[:-1]
    ]
    dataset = DATASETS["text_classification"]
    examples = dataset.read_part(Source(str(tmp_path)), "dev", TASK)
    score = dataset.score(load_predictor(path)(examples), examples)["accuracy"]
    assert {line["accuracy"] for line in lines if line["system"] in names[:2]} == {round(score, 4)}
    for line in lines:
        if line["load"] != "dev":
            count = int(line["load"].split(" ")[0])
            assert line["texts_per_s"] == pytest.approx(1000 * count / line["p50_ms"], rel=0.02)
