"""Query an export for minutes, from several threads at a time, and check every answer.

    python -m benchmarks.load --export=export/reviews --seconds=300

The newest version in the folder, a classifier or regressor of single texts, answers in two ways in
turn: through TensorFlow's C API in this process, which does not import TensorFlow's Python package,
and behind examples/serve.py over sockets. Each thread sends requests of 1 to 16 random texts, and
one malformed request in ten. An answer is wrong if a number differs by more than 1e-5 from what the
C API answered to the same text alone, before the first way. Each way warms up on the texts, which
is not measured.

The output is a JSON line about the machine and one for each way. `requests`, `requests_per_s`,
`texts_per_s`, `p50_ms`, `p95_ms` and `p99_ms` count the well-formed requests only, although the
malformed ones take time too; p95 needs 20 requests and p99 100. `rss_mb` is the resident memory of
the process that answers, after 10 % and 50 % of the time and at the end; through the C API this
includes the threads that ask. `malformed` counts malformed requests, `wrong` wrong answers,
and `accepted` malformed requests that did not get their error. `largest_difference` is that of all
answers.

The exit status is 1 if there is a wrong answer or an accepted request, or if memory grows by more
than 10 % between the middle and the end; runs of less than 60 seconds are too short to judge
memory. Any other error ends the benchmark.
"""

import array
import concurrent.futures
import dataclasses
import json
import math
import os
import random
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Protocol

from albert_tf.runtime import commands
from albert_tf.runtime.bounds import POSITIVE, one_of
from albert_tf.runtime.errors import InputError
from benchmarks import workers
from benchmarks.load_targets import CApi, Rest, check_signatures, newest_export

TOLERANCE = 1e-5
MAX_TEXTS, MAX_WORDS, POOL = 16, 150, 200
MALFORMED_SHARE = 0.1
MEMORY_AT = (0.1, 0.5, 1.0)  # shares of the time after which memory is read
MAX_GROWTH, JUDGED_S = 1.1, 60.0  # of memory, from the middle to the end; in runs of such lengths
# Plain words, others, and what tokenizers stumble over.
_WORDS = (
    *"the a of story film music value it was is not and but very gripping dull long slow".split(),
    *(
        "naïve",
        "漢字",
        "🙂",
        "ﬁn",
        "1,000.50",
        "don't",
        "\x00",
        "\u200b",
        "e\u0301",
        "\uffff",
        "x" * 40,
    ),
)


@dataclasses.dataclass(frozen=True)
class LoadOptions(commands.CommandOptions):
    """The command line of `benchmarks.load`."""

    export: str = commands.option("the folder OUTPUT of a SavedModel export", path=True)
    targets: Annotated[str, one_of("c-api", "rest", "c-api,rest")] = commands.option(
        "the ways to ask: c-api, rest, or both", "c-api,rest"
    )
    seconds: Annotated[float, POSITIVE] = commands.option("seconds for each way", 300.0)
    threads: Annotated[int, POSITIVE] = commands.option("threads that ask at the same time", 8)
    seed: int = commands.option("seed of the texts and requests", 0)
    dry_run: bool = commands.option("check the options, but ask nothing", False)


class Target(Protocol):
    """An export that answers.

    Attributes:
      pid: its process.
      num_malformed: the number of malformed requests that it knows.
    """

    pid: int
    num_malformed: int

    def ask(self, texts: Sequence[str]) -> list[list[float]]:
        """Return the probabilities or the score of each text."""

    def refuses(self, number: int) -> bool:
        """Send malformed request `number` and return True if it got the error that it should."""


@dataclasses.dataclass
class Tally:
    """The answers that a thread got."""

    times_ms: array.array = dataclasses.field(default_factory=lambda: array.array("d"))
    texts: int = 0
    malformed: int = 0
    wrong: int = 0
    accepted: int = 0
    largest_difference: float = 0.0


def main(options: LoadOptions) -> int:
    """Measure and print the lines; return the exit status."""
    folder = newest_export(options.export)
    if options.dry_run:
        print(json.dumps({"targets": options.targets.split(",")}))
        return 0
    print(json.dumps({"cpu": workers.cpu(), "export": options.export}), flush=True)
    lines = []
    with CApi(folder) as c_api:
        check_signatures(c_api.signatures, options.export)
        alone = ask_alone(c_api.ask, options)
        if "c-api" in options.targets:
            lines.append({"target": "c-api"} | measure(c_api, alone, options))
            print(json.dumps(lines[-1]), flush=True)
        if "rest" in options.targets:
            with Rest(options.export, "classify" in c_api.signatures) as rest:
                lines.append({"target": "rest"} | measure(rest, alone, options))
            print(json.dumps(lines[-1]), flush=True)
    return int(any(is_bad(line) for line in lines))


def is_bad(line: dict[str, Any]) -> bool:
    """Return True if a request got what it should not get, or if memory grew."""
    _, middle, late = line["rss_mb"]
    grew = line["seconds"] >= JUDGED_S and late > MAX_GROWTH * middle
    return bool(grew or line["wrong"] or line["accepted"])


def ask_alone(
    ask: Callable[[Sequence[str]], list[list[float]]], options: LoadOptions
) -> dict[str, list[float]]:
    """Return `POOL` different texts and the answer to each.

    Raises:
      InputError: fewer than half of the answers differ in their first 4 decimals, so that an
        answer to another text could pass.
    """
    draw = random.Random(options.seed)
    texts: set[str] = set()
    while len(texts) < POOL:
        texts.add(random_text(draw))
    alone = {text: ask([text])[0] for text in sorted(texts)}
    different = len({tuple(round(number, 4) for number in row) for row in alone.values()})
    if different < POOL / 2:
        raise InputError(
            f"--export={options.export} must give at least {POOL // 2} different answers to {POOL} "
            f"different texts, in 4 decimals. Received: {different}. Pass a trained model."
        )
    return alone


def measure(
    target: Target, alone: Mapping[str, Sequence[float]], options: LoadOptions
) -> dict[str, Any]:
    """Ask for texts of `alone` from all threads and return the line's figures."""
    for text in alone:  # to warm up
        target.ask([text])
    draw = random.Random(options.seed)
    start = time.monotonic()
    end = start + options.seconds
    with concurrent.futures.ThreadPoolExecutor(options.threads) as threads:
        jobs = [
            threads.submit(_ask_until, end, target, alone, random.Random(draw.random()))
            for _ in range(options.threads)
        ]
        memory = [
            _memory_at(start + share * options.seconds, jobs, target.pid) for share in MEMORY_AT
        ]
        tallies = [job.result() for job in jobs]
    seconds = time.monotonic() - start
    times = [time_ms for tally in tallies for time_ms in tally.times_ms]
    totals = {
        name: sum(getattr(tally, name) for tally in tallies)
        for name in ("malformed", "wrong", "accepted")
    }
    return {
        "seconds": round(seconds, 1),
        "threads": options.threads,
        "requests": len(times),
        "requests_per_s": round(len(times) / seconds, 1),
        "texts_per_s": round(sum(tally.texts for tally in tallies) / seconds, 1),
        **workers.percentiles(times),
        "rss_mb": memory,
        **totals,
        "largest_difference": max(tally.largest_difference for tally in tallies),
    }


def random_text(draw: random.Random) -> str:
    """Return a text of up to `MAX_WORDS` words; most are short, and some are empty."""
    count = int(MAX_WORDS * draw.random() ** 3)
    return " ".join(draw.choices(_WORDS, k=count))


def largest_difference(rows: Sequence[Sequence[float]], wanted: Sequence[Sequence[float]]) -> float:
    """Return the largest difference between numbers; infinity if there are more of one or NaN."""
    if [len(row) for row in rows] != [len(row) for row in wanted]:
        return float("inf")
    pairs = zip(sum(map(list, rows), []), sum(map(list, wanted), []), strict=True)
    return max(float("inf") if math.isnan(a - b) else abs(a - b) for a, b in pairs)


def _ask_until(
    end: float, target: Target, alone: Mapping[str, Sequence[float]], draw: random.Random
) -> Tally:
    tally, pool = Tally(), list(alone)
    while time.monotonic() < end:
        if draw.random() < MALFORMED_SHARE:
            tally.malformed += 1
            tally.accepted += not target.refuses(draw.randrange(target.num_malformed))
            continue
        texts = draw.choices(pool, k=draw.randint(1, MAX_TEXTS))
        start = time.perf_counter()
        answer = target.ask(texts)
        tally.times_ms.append(1000 * (time.perf_counter() - start))
        tally.texts += len(texts)
        difference = largest_difference(answer, [alone[text] for text in texts])
        tally.largest_difference = max(tally.largest_difference, difference)
        tally.wrong += difference > TOLERANCE
    return tally


def _memory_at(moment: float, jobs: Sequence[concurrent.futures.Future], pid: int) -> float:
    """Wait for a moment, or for the first error, and return the memory of a process in MB."""
    seconds = max(0.0, moment - time.monotonic())
    concurrent.futures.wait(jobs, seconds, concurrent.futures.FIRST_EXCEPTION)
    return rss_mb(pid)


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    with open(f"/proc/{pid}/statm", encoding="ascii") as file:
        pages = int(file.read().split()[1])
    return round(pages * os.sysconf("SC_PAGE_SIZE") / 1e6, 1)


if __name__ == "__main__":
    commands.run(main, LoadOptions, __doc__)
