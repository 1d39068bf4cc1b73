"""Tests of the processes that benchmarks ask in turn: their ends, and the figures of requests."""

import pytest

from benchmarks import workers
from benchmarks.workers import Worker


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
    assert workers.percentiles(range(rounds, 0, -1)) == percentiles


def test_the_interval_of_a_ratio_is_of_order_statistics():
    # P(Bin(20, 1/2) <= 5) = 0.0207 <= 0.025 < P(<= 6): the 6th smallest and the 6th largest.
    ours = [10 + round for round in range(20)]
    assert workers.paired_ratio(ours, [10] * 20) == {"of_before": [1.5, 1.95, 2.4]}
    assert workers.paired_ratio(ours[:6], [10] * 6) == {"of_before": [1.0, 1.25, 1.5]}
    assert workers.paired_ratio(ours[:5], [10] * 5) == {}


def test_throughput_counts_every_round():
    # 20 rounds of 4 texts took 1 + ... + 20 = 210 ms.
    assert workers.throughput(20 * 4, range(1, 21)) == {"texts_per_s": round(80 / 0.210, 1)}


@pytest.mark.parametrize("last", ["", "input()", "input(); print('{', end='')"])
def test_a_death_in_mid_run_names_the_system(tmp_path, monkeypatch, last):
    """Before a request, while it is computed, in its answer."""
    (tmp_path / "short_lived.py").write_text(
        f"print('{{}}', flush=True)\n{last}\nraise SystemExit(3)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    worker = Worker("ours", "short_lived", [])
    if not last:
        worker._process.wait()
    with pytest.raises(ChildProcessError, match="system ours ended with status 3"):
        worker.request(["a text"])
    worker.end()
