"""What fits a TPU chip and what is cheapest: arithmetic on a few compiled sizes."""

import dataclasses
from collections.abc import Callable, Mapping

from pretraining.tpu.step import Chip, CompiledSize, Step

TRIES = 6  # compiles of `largest_batch`
GAIN = 1.05  # what another one must promise

Measure = Callable[[Step], CompiledSize]


def needed_bytes(step: Step, size: CompiledSize) -> int:
    """Bytes that the step takes of a chip."""
    return size.arguments + size.temporaries + size.code + step.all_reduce


def fit_line(points: Mapping[int, float]) -> tuple[float, float]:
    """(bytes without any sequence, bytes per sequence) through the two largest batches."""
    (a, low), (b, high) = sorted(points.items())[-2:]
    slope = (high - low) / (b - a)
    return low - slope * a, slope


def max_batch_on_line(points: Mapping[int, float], limit: float, unit: int = 1) -> int:
    """The largest multiple of `unit` that the line through `points` keeps within `limit`."""
    base, slope = fit_line(points)
    return max(0, int((limit - base) / max(slope, 1.0)) // unit * unit)


def largest_batch(
    need: Callable[[int], int], limit: int, fixed: int, start: int, unit: int = 1
) -> int:
    """The largest batch found that fits: two compiles, a line, a third compile that confirms it.

    The line goes through the two largest that fit or, where one was refuted, through the largest
    that fits and the smallest that does not, until it promises less than GAIN or TRIES are made.

    Args:
      need: Bytes for a batch.
      limit: Bytes of the chip.
      fixed: Bytes without any sequence, at least: with `start` they give the second batch.
      start: The batch to begin with, a multiple of `unit`.
      unit: What a batch must be a multiple of.
    """
    fits: dict[int, int] = {}
    refuted: dict[int, int] = {}
    batch = start if fixed <= limit else 0
    for _ in range(TRIES):
        if batch < unit:
            break
        size = need(batch)
        (fits if size <= limit else refuted)[batch] = size
        best, worst = max(fits, default=0), min(refuted, default=0)
        if not fits:
            below = max_batch_on_line({0: fixed, worst: refuted[worst]}, limit, unit)
            batch = min(worst // 2 // unit * unit, below)
        elif refuted:
            ends = {best: fits[best], worst: refuted[worst]}
            batch = min(max_batch_on_line(ends, limit, unit), worst - unit)
        elif len(fits) == 1:
            batch = max(max_batch_on_line({0: fixed} | fits, limit, unit), best + unit)
        else:
            batch = min(max_batch_on_line(fits, limit, unit), 4 * best)  # the line may be flat
        if batch < GAIN * best:
            break
    return max(fits, default=0)


def first_batch(step: Step, limit: int) -> int:
    """About half of what should fit, for the first compile: a power of two, at least 1."""
    free = limit - step.fixed_bytes
    count = max(1, int(free / 2 / (step.estimate_activation_bytes() / step.batch)))
    return 1 << (count.bit_length() - 1)


@dataclasses.dataclass(frozen=True)
class ComputePlan:
    """How a replica's batch is computed. step: None where not even one sequence at a time fits.

    need: bytes, on the line of two compiles, or compiled where `confirmed`.
    """

    name: str
    step: Step | None
    need: float
    confirmed: bool = False


def compute_plans(step: Step, chip: Chip, measure: Measure) -> list[ComputePlan]:
    """Without recomputation and with it, in the fewest parts that fit; the cheaper first, compiled.

    Where a batch does not fit plain, that is said last.
    """
    lines = [_measure_line(step, chip, measure, recompute) for recompute in (False, True)]
    plans = [_fewest_parts(step, chip, lines[recompute], bool(recompute)) for recompute in (0, 1)]
    while True:
        cheaper = min((0, 1), key=lambda recompute: _step_seconds(plans[recompute], chip))
        best = plans[cheaper]
        if best.step is None or best.confirmed:
            break
        need = needed_bytes(best.step, measure(best.step))
        plans[cheaper] = dataclasses.replace(best, need=need, confirmed=True)
        if need > chip.hbm:
            plans[cheaper] = _fewest_parts(
                step, chip, lines[cheaper], bool(cheaper), more_than=best.step.parts
            )
    if plans[0].name != "plain":
        plain = step.sized(step.batch, recompute=False)
        plans.append(ComputePlan("plain", plain, lines[0][0] + lines[0][1] * step.batch))
    return [best, *(plan for plan in plans if plan is not best)]


def _measure_line(step: Step, chip: Chip, measure: Measure, recompute: bool) -> tuple[float, float]:
    """What batches need without accumulation, from two of them."""
    start = first_batch(step.sized(step.batch, recompute), chip.hbm)
    steps = [step.sized(batch, recompute) for batch in (start, start // 2 or 2)]
    return fit_line({each.batch: needed_bytes(each, measure(each)) for each in steps})


def _fewest_parts(
    step: Step, chip: Chip, line: tuple[float, float], recompute: bool, more_than: int = 0
) -> ComputePlan:
    """The fewest parts in which the batch fits."""
    base, slope = line
    for parts in range(more_than + 1, step.batch + 1):
        # The sums of the gradients live as long as the step.
        need = base + slope * step.batch / parts + (4 * step.parameters if parts > 1 else 0)
        if step.batch % parts == 0 and need <= chip.hbm:
            name = "recompute" if recompute else "plain" if parts == 1 else "accumulate"
            return ComputePlan(name, step.sized(step.batch, recompute, parts), need)
    return ComputePlan("recompute" if recompute else "accumulate", None, float("inf"))


def _step_seconds(plan: ComputePlan, chip: Chip) -> float:
    return plan.step.seconds(chip) if plan.step else float("inf")
