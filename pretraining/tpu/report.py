"""The lines that `pretraining.tpu_check` prints about a step."""

from pretraining.pjrt.compiled import CompiledSize, gb, verdict
from pretraining.tpu.fit import ComputePlan
from pretraining.tpu.step import Chip, Step

TIME_SOURCE = "cost model of libtpu's compiler"
TIMES = f"times: an estimate by the {TIME_SOURCE}, not measured, without the all-reduce"


def plan_line(plan: ComputePlan, chip: Chip) -> str:
    """Return a line with the memory and the time of a plan."""
    if plan.step is None:
        return f"{plan.name:>10}: does not fit, not even one sequence at a time"
    fits = "fits" if plan.need <= chip.hbm else "does not fit"
    source = "compiled" if plan.confirmed else "extrapolated from two compiles"
    return (
        f"{plan.name:>10}: {gb(plan.need)} ({source}), {fits}; "
        f"{describe_time(plan.step, plan.step_s, chip)}; {describe_mode(plan.step)}"
    )


def times_line(step: Step, chip: Chip) -> str:
    """Return a line that says whose estimate the times are and what they leave out."""
    return f"{TIMES}, by formula about {1000 * step.all_reduce_s(chip):.2g} ms more per step"


def describe_mode(step: Step) -> str:
    """Return `plain`, or the recomputation and accumulation of the step."""
    kinds = []
    if step.model.rematerialize:
        kinds.append(f"recompute in {step.model.rematerialize_chunks} chunks")
    if step.parts > 1:
        kinds.append(f"accumulate {step.parts} parts")
    return " and ".join(kinds) or "plain"


def report(step: Step, size: CompiledSize, chip: Chip) -> str:
    """Return the memory, FLOPs and time of one compiled step, as lines."""
    needed = size.total
    weights, slots = 4 * step.parameters, 4 * step.slots
    executed = step.flops + step.recomputed_flops
    rows = {
        "parameters": f"{gb(weights)}, {step.parameters:,} in float32",
        "optimizer": f"{gb(slots)}, {step.slots / step.parameters:.3g} slots per parameter",
        "batch": gb(max(0, size.arguments - weights - slots)),
        "temporaries": gb(size.temporaries),
        "code": "unknown: the compiler gave up" if size.refused else gb(size.code),
        "total": f"{gb(needed)}: {verdict(needed, chip.hbm)}",
        "FLOPs": f"{step.flops:.3g} per step on a chip, {executed:.3g} with recomputation",
        "time": describe_time(step, size.step_s, chip),
    }
    lines = [f"{describe_mode(step)} {f'({step.flags})' if step.flags else ''}".rstrip()]
    return "\n".join(lines + [f"  {name:<12} {value}" for name, value in rows.items()])


def describe_time(step: Step, step_s: float, chip: Chip) -> str:
    """Return the time of a step, its speed and its share of the chip's peak."""
    if not step_s:
        return "unknown: the compiler gave up"
    return (
        f"about {1000 * step_s:.4g} ms per step, {step.batch / step_s:.4g} sequences/s, "
        f"{step.share_of_peak(chip, step_s):.0%} of {chip.flops / 1e12:.0f} TFLOP/s"
    )


def as_json(step: Step, total: float, step_s: float, chip: Chip) -> dict[str, float | str | bool]:
    """Return the figures of a step by name; times in seconds, sizes in bytes."""
    return {
        "mode": describe_mode(step),
        "flags": step.flags,
        "batch": step.batch,
        "fits": total <= chip.hbm,
        "parameters": step.parameters,
        "total": total,
        "flops": step.flops,
        "estimated_step_s": step_s,
        "estimated_sequences_per_s": step.batch / step_s if step_s else 0.0,
        "estimated_share_of_peak": step.share_of_peak(chip, step_s) if step_s else 0.0,
        "all_reduce_s_by_formula": step.all_reduce_s(chip),
    }
