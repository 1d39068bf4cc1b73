"""Tests of the serving benchmark: its ratios, systems that are absent or fail, and one run."""

import json

import pytest

from albert_tf.runtime.errors import InputError
from benchmarks import serving
from benchmarks.serving import ServingOptions


def options(tokenizer: str = "none", **changed) -> ServingOptions:
    return ServingOptions(tokenizer, **{"preset": "albert-tiny", "seq_length": 16} | changed)


def test_ratios_are_to_the_other_peers():
    times = {"ours": 6.0, "onnx-runtime": 3.0, "openvino": 4.0, "before": 12.0}
    answers = {
        name: [{"wall_ms": 1.0, "cpu_ms": 100.0}, {"wall_ms": 1.0, "cpu_ms": cpu_ms}]
        for name, cpu_ms in times.items()
    }
    ratios = {name: serving._line(name, "mixed", 4, answers)["ratios"] for name in times}
    assert ratios == {
        "ours": {"onnx-runtime": 2.0, "openvino": 1.5, "before": 0.5},
        "onnx-runtime": {"openvino": 0.75, "before": 0.25},
        "openvino": {"onnx-runtime": 1.333, "before": 0.333},
        "before": {"onnx-runtime": 4.0, "openvino": 3.0},
    }


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"before": "/nowhere"}, "--before=/nowhere is not a checkout"),
        ({"systems": "ours,theirs"}, "--systems must be among ours, .*hf-torch.*'theirs'"),
        ({"preset": "albert-tiger"}, "albert-tiger"),
        ({"seq_length": 9}, "--seq_length must be between 10 and 512 .*Received: 9"),
        ({"cores": 999}, "--cores must be at most .*Received: 999"),
        ({"loads": "1 x 10,2 x 10"}, "--loads must be among 1 x 10, 1 x 16, .*'2 x 10'"),
    ],
)
def test_invalid_options_are_refused(tiny_tokenizer, changed, words):
    with pytest.raises(InputError, match=words):
        serving.main(options(tiny_tokenizer, dry_run=True, **changed))


def test_before_is_a_system_of_another_checkout(tiny_tokenizer, tmp_path, capsys):
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "serving_worker.py").write_text(
        "import json, sys; print(json.dumps({'absent': ' '.join(sys.argv[1:3])}))"
    )
    serving.main(options(tiny_tokenizer, systems="", before=str(tmp_path)))
    _, line = map(json.loads, capsys.readouterr().out.splitlines())
    assert line == {"system": "before", "absent": "ours albert-tiny"}


LIBRARIES = {"hf-torch": "torch", "onnx-runtime": "onnxruntime"}


@pytest.mark.parametrize("system", LIBRARIES)
def test_a_missing_library_is_absent(tmp_path, monkeypatch, system):
    """A module in the place of the library says that there is none."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / f"{LIBRARIES[system]}.py").write_text("raise ImportError('there is none')")
    worker = serving.start(system, options(), str(tmp_path / "export"))
    worker.end()
    assert worker.ready == {"absent": "there is none"}


def test_bfloat16_is_absent_on_a_cpu_without_its_products(tiny_tokenizer, monkeypatch, capsys):
    monkeypatch.setattr(serving, "has_bfloat16_products", lambda: False)
    serving.main(options(tiny_tokenizer, systems="ours-bf16,openvino-bf16"))
    _, *lines = map(json.loads, capsys.readouterr().out.splitlines())
    why = "this CPU has no bfloat16 products"
    assert lines == [{"system": name, "absent": why} for name in ("ours-bf16", "openvino-bf16")]


def test_a_crash_names_the_system(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    (tmp_path / "torch.py").write_text("raise RuntimeError('it is broken')")
    with pytest.raises(ChildProcessError, match="system hf-torch ended with status 1"):
        serving.start("hf-torch", options(), str(tmp_path / "export"))


@pytest.mark.slow
def test_ours_and_the_runtimes(tiny_tokenizer, capfd):
    ours, runtimes = ("ours", "ours-c-api"), ("onnx-runtime", "openvino", "openvino-bf16")
    names, loads = (*ours, *runtimes), ("1 x 10", "mixed")
    serving.main(options(tiny_tokenizer, systems=",".join(names), loads=",".join(loads), rounds=1))
    first, *lines = [json.loads(text) for text in capfd.readouterr().out.splitlines()]
    assert first.keys() == {"cpu", "cores", "preset"}
    timed, alone = lines[: 2 * len(names)], lines[2 * len(names) :]
    assert [(line["load"], line["system"]) for line in timed] == [
        (load, name) for load in loads for name in names
    ]
    for line in timed:
        assert line.keys() == {"system", "load", "p50_ms", "texts_per_s", "cpu_ms", "ratios"}
        assert line["ratios"].keys() == {*runtimes} - {line["system"]}
        texts = 32 if line["load"] == "mixed" else 1
        assert line["texts_per_s"] == pytest.approx(1000 * texts / line["p50_ms"], rel=0.02)
        assert line["cpu_ms"] > 0
    assert [line["system"] for line in alone] == list(names)
    for line in alone:
        assert 0 <= line["alone_difference"] < (1e-2 if "bf16" in line["system"] else 1e-5)
