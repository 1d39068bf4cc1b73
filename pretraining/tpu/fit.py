"""Estimates, from a few compiled sizes, of what fits a TPU chip and what is cheapest."""

import dataclasses
from collections.abc import Callable, Mapping
from typing import NamedTuple

from pretraining.pjrt.compiled import CompiledSize
from pretraining.tpu.step import Chip, Step

TRIES = 6  # the most compiles of `largest_batch`
GAIN = 1.05  # the predicted growth that justifies another compile

Measure = Callable[[Step], CompiledSize]


def fit_line(points: Mapping[int, float]) -> tuple[float, float]:
    """Return bytes for 0 sequences and bytes per sequence, from the two largest batches."""
    (a, low), (b, high) = sorted(points.items())[-2:]
    slope = (high - low) / (b - a)
    return low - slope * a, slope


def max_batch_on_line(points: Mapping[int, float], limit: float, unit: int = 1) -> int:
    """Return the largest multiple of `unit` that needs at most `limit` on the line of `points`."""
    base, slope = fit_line(points)
    return max(0, int((limit - base) / max(slope, 1.0)) // unit * unit)


def largest_batch(
    need: Callable[[int], int], limit: int, fixed: int, start: int, unit: int = 1
) -> int:
    """Return the largest batch found that fits.

    Two compiles give a line, and a third one confirms the batch that the line predicts. The line
    goes through the two largest batches that fit or, once a batch did not fit, through the largest
    that fits and the smallest that does not. The search ends when the line predicts a growth of
    less than GAIN, or after TRIES compiles.

    Args:
      need: returns the bytes for a batch.
      limit: the bytes of the chip.
      fixed: a lower bound on the bytes for 0 sequences; with `start` it gives the second batch.
      start: the first batch, a multiple of `unit`.
      unit: every batch is a multiple of this.
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
    """Return the batch of the first compile: a power of two, about half of what should fit."""
    free = limit - step.fixed_bytes
    count = max(1, int(free / 2 / (step.estimate_activation_bytes() / step.batch)))
    return 1 << (count.bit_length() - 1)


@dataclasses.dataclass(frozen=True)
class ComputePlan:
    """A way to compute a replica's batch.

    Attributes:
      name: plain, accumulate or recompute.
      step: None if not even one sequence at a time fits.
      need: bytes, from the line of two compiles or, if `confirmed`, from a compile.
      step_s: estimated seconds per step, likewise.
      confirmed: True if the step itself was compiled.
    """

    name: str
    step: Step | None
    need: float
    step_s: float
    confirmed: bool = False


class _Lines(NamedTuple):
    """Bytes and seconds, each for 0 sequences and per sequence."""

    need: tuple[float, float]
    step_s: tuple[float, float]


def compute_plans(step: Step, chip: Chip, measure: Measure) -> list[ComputePlan]:
    """Return plans without and with recomputation, each in the fewest parts that fit.

    Without recomputation, the parts are doubled for as long as that is faster. The cheaper plan
    comes first; if it fits, its step was compiled. If the batch does not fit plain, a last plan
    shows the memory that plain computation would take.
    """
    lines = [_measure_lines(step, chip, measure, recompute) for recompute in (False, True)]
    plans = [_fewest_parts(step, chip, lines[recompute], bool(recompute)) for recompute in (0, 1)]
    while True:
        cheaper = min((0, 1), key=lambda recompute: plans[recompute].step_s)
        best = plans[cheaper]
        if best.step is None or best.confirmed:
            break
        size = measure(best.step)
        plans[cheaper] = dataclasses.replace(
            best, need=size.total, step_s=size.step_s or best.step_s, confirmed=True
        )
        if size.total > chip.hbm:
            plans[cheaper] = _fewest_parts(
                step, chip, lines[cheaper], bool(cheaper), more_than=best.step.parts
            )
    if plans[0].name != "plain":
        plain = step.sized(step.batch, recompute=False)
        plans.append(_plan("plain", plain, lines[0]))
    plans[0] = _double_parts(plans[0], chip, measure)
    return sorted(plans[:2], key=lambda plan: plan.step_s) + plans[2:]


def _double_parts(plan: ComputePlan, chip: Chip, measure: Measure) -> ComputePlan:
    """Return the plan with more parts, of which one can take less time per sequence.

    Activations of a smaller part stay in the fast memory of a chip, which no line predicts.
    """
    while plan.step is not None and plan.step.batch % (2 * plan.step.parts) == 0:
        step = plan.step.sized(plan.step.batch, recompute=False, parts=2 * plan.step.parts)
        size = measure(step)
        if size.total > chip.hbm or not 0.0 < size.step_s < plan.step_s:
            break
        plan = ComputePlan("accumulate", step, size.total, size.step_s, confirmed=True)
    return plan


def _measure_lines(step: Step, chip: Chip, measure: Measure, recompute: bool) -> _Lines:
    """Return the lines over batches without accumulation, from two compiles."""
    start = first_batch(step.sized(step.batch, recompute), chip.hbm)
    steps = [step.sized(batch, recompute) for batch in (start, start // 2 or 2)]
    sizes = {candidate.batch: measure(candidate) for candidate in steps}
    need = {candidate.batch: sizes[candidate.batch].total for candidate in steps}
    return _Lines(fit_line(need), fit_line({batch: sizes[batch].step_s for batch in sizes}))


def _plan(name: str, step: Step, lines: _Lines) -> ComputePlan:
    """Return a plan whose figures are on the lines."""
    parts, batch = step.parts, step.batch
    # The accumulated gradients are held for the whole step.
    sums = 4 * step.parameters if parts > 1 else 0
    need = lines.need[0] + lines.need[1] * batch / parts + sums
    step_s = lines.step_s[0] * parts + lines.step_s[1] * batch
    return ComputePlan(name, step, need, step_s)


def _fewest_parts(
    step: Step, chip: Chip, lines: _Lines, recompute: bool, more_than: int = 0
) -> ComputePlan:
    """Return the plan with the fewest parts, more than `more_than`, in which the batch fits."""
    for parts in range(more_than + 1, step.batch + 1):
        if step.batch % parts:
            continue
        name = "recompute" if recompute else "plain" if parts == 1 else "accumulate"
        plan = _plan(name, step.sized(step.batch, recompute, parts), lines)
        if plan.need <= chip.hbm:
            return plan
    infinite = float("inf")
    return ComputePlan("recompute" if recompute else "accumulate", None, infinite, infinite)
