"""Tests of the serving benchmark: its figures, its end where a system fails, and one run."""

import json

import pytest

from albert_tf.runtime.errors import InputError
from benchmarks import serving
from benchmarks.serving import ServingOptions, Worker


def options(tokenizer: str = "none", **changed) -> ServingOptions:
    return ServingOptions(tokenizer, **{"preset": "albert-tiny", "seq_length": 16} | changed)


def line(rounds: int) -> dict:
    """Of requests of four texts that took 1, 2, ... ms, after a first one of 1000 ms."""
    times = [1000, *range(rounds, 0, -1)]
    return serving._line("ours", "mixed", 4, {"ours": [{"wall_ms": t, "cpu_ms": t} for t in times]})


@pytest.mark.parametrize(
    ("rounds", "percentiles"),
    [
        (1, {"p50_ms": 1}),
        (19, {"p50_ms": 10}),
        (20, {"p50_ms": 10, "p95_ms": 19}),
        (99, {"p50_ms": 50, "p95_ms": 95}),
        (100, {"p50_ms": 50, "p95_ms": 95, "p99_ms": 99}),
    ],
)
def test_percentiles_are_of_enough_rounds(rounds, percentiles):
    found = line(rounds)
    assert {key: value for key, value in found.items() if key.startswith("p")} == percentiles


def test_throughput_counts_every_round():
    # 20 rounds of 4 texts took 1 + ... + 20 = 210 ms.
    assert line(20)["texts_per_s"] == round(80 / 0.210, 1)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"systems": "ours,theirs"}, "--systems must be among ours, .*hf-torch.*'theirs'"),
        ({"loads": "1 x 10,2 x 10"}, "--loads must be among 1 x 10, 1 x 16, .*'2 x 10'"),
    ],
)
def test_what_it_does_not_know_is_refused(tiny_tokenizer, changed, words):
    with pytest.raises(InputError, match=words):
        serving.main(options(tiny_tokenizer, dry_run=True, **changed))


@pytest.fixture
def torch_is(tmp_path, monkeypatch):
    """Makes a module of this text the first thing that the worker of hf-torch imports."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return (tmp_path / "torch.py").write_text


def test_a_missing_library_is_absent(torch_is, tmp_path):
    torch_is("raise ImportError('there is none')")
    worker = Worker("hf-torch", options(), str(tmp_path / "export"))
    worker.end()
    assert worker.ready == {"absent": "there is none"}


def test_a_crash_names_the_system(torch_is, tmp_path):
    torch_is("raise RuntimeError('it is broken')")
    with pytest.raises(ChildProcessError, match="system hf-torch ended with status 1"):
        Worker("hf-torch", options(), str(tmp_path / "export"))


@pytest.mark.parametrize("last", ["", "input()", "input(); print('{', end='')"])
def test_a_death_in_mid_run_names_the_system(tmp_path, monkeypatch, last):
    """Before a request, while it is computed, in its answer."""
    (tmp_path / "short_lived.py").write_text(
        f"print('{{}}', flush=True)\n{last}\nraise SystemExit(3)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Worker("ours", options(), "", module="short_lived")
    if not last:
        worker._process.wait()
    with pytest.raises(ChildProcessError, match="system ours ended with status 3"):
        worker.request(["a text"])
    worker.end()


@pytest.mark.slow
def test_both_ways_to_ask_ours(tiny_tokenizer, capfd):
    names, loads = ("ours", "ours-c-api"), ("1 x 10", "mixed")
    serving.main(options(tiny_tokenizer, systems=",".join(names), loads=",".join(loads), rounds=1))
    lines = [json.loads(text) for text in capfd.readouterr().out.splitlines()]
    timed, alone = lines[:4], lines[4:]
    assert [(line["load"], line["system"]) for line in timed] == [
        (load, name) for load in loads for name in names
    ]
    for line in timed:
        assert line.keys() == {"system", "load", "p50_ms", "texts_per_s", "cpu_ms"}
        texts = 32 if line["load"] == "mixed" else 1
        assert line["texts_per_s"] == pytest.approx(1000 * texts / line["p50_ms"], rel=0.02)
        assert line["cpu_ms"] > 0
    assert [line["system"] for line in alone] == list(names)
    assert all(0 <= line["alone_difference"] < 1e-5 for line in alone)
