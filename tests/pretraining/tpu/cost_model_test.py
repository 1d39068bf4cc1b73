"""The estimate of a program's time: counted by hand, and against products of a known time."""

import pytest

from pretraining.tpu.cost_model import estimated_cycles
from pretraining.tpu.lowering import TpuCompiler
from pretraining.tpu.step import parse_topology

COST = 'backend_config={"estimated_cycles":"%d"}'
# 7 + 12 trips of (3 + a call of 2) + 12 trips of 5, since a loop that counts down has no bound.
PROGRAM = f"""HloModule jit_step

%add.1 (x: f32[], y: f32[]) -> f32[] {{
  ROOT %add.2 = f32[] add(f32[] %x, f32[] %y), {COST % 100}
}}

%called.1 (p: f32[8]) -> f32[8] {{
  ROOT %negate.1 = f32[8]{{0}} negate(f32[8] %p), {COST % 2}
}}

%up_body.1 (state: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %fusion.1 = f32[8]{{0}} fusion(f32[8] %x), calls=%add.1, {COST % 3}
  %call.1 = f32[8]{{0}} call(f32[8] %fusion.1), to_apply=%called.1
}}

%up_condition.1 (state: (s32[], f32[8])) -> pred[] {{
  %constant.1 = s32[]{{:T(128)}} constant(12)
  ROOT %compare.1 = pred[] compare(s32[] %i, s32[] %constant.1), direction=LT
}}

%down_body.1 (state: (s32[], f32[8])) -> (s32[], f32[8]) {{
  %fusion.2 = f32[8]{{0}} fusion(f32[8] %x), calls=%add.1, {COST % 5}
}}

%down_condition.1 (state: (s32[], f32[8])) -> pred[] {{
  %constant.2 = s32[]{{:T(128)}} constant(0)
  ROOT %compare.2 = pred[] compare(s32[] %i, s32[] %constant.2), direction=GE
}}

ENTRY %main.1 (p: f32[8]) -> f32[8] {{
  %fusion.3 = f32[8]{{0}} fusion(f32[8] %p), calls=%add.1, {COST % 7}
  %while.1 = (s32[], f32[8]) while(%t), condition=%up_condition.1, body=%up_body.1
  ROOT %while.2 = (s32[], f32[8]) while(%t), condition=%down_condition.1, body=%down_body.1
}}
"""


def test_cycles_by_hand():
    assert estimated_cycles(PROGRAM) == 7 + 12 * (3 + 2) + 12 * 5
    known = PROGRAM.replace(
        "body=%down_body.1", 'body=%down_body.1, backend_config={"known_trip_count":{"n":"4"}}'
    )
    assert estimated_cycles(known) == 7 + 12 * (3 + 2) + 4 * 5


def test_a_loop_around_others_does_not_count_for_them():
    outer = (
        PROGRAM.replace("ENTRY %main.1", "%part.1")
        + """
%parts_condition.1 (state: (s32[], f32[8])) -> pred[] {
  %constant.3 = s32[]{:T(128)} constant(16)
  ROOT %compare.3 = pred[] compare(s32[] %i, s32[] %constant.3), direction=LT
}

ENTRY %main.1 (p: f32[8]) -> f32[8] {
  ROOT %while.3 = (s32[], f32[8]) while(%t), condition=%parts_condition.1, body=%part.1
}
"""
    )
    assert estimated_cycles(outer) == 16 * (7 + 12 * (3 + 2) + 12 * 5)


def test_a_loop_of_unknown_trips_is_an_error():
    alone = PROGRAM.replace("  %while.1 = (s32[], f32[8]) while(%t), condition=%up_condition.1", "")
    with pytest.raises(ValueError, match="trips of a loop in main.1 are unknown"):
        estimated_cycles(alone)
    assert estimated_cycles(alone, steps=10) == 7 + 10 * 5


@pytest.mark.parametrize(
    "branches",
    [
        "true_computation=%called.1, false_computation=%up_body.1",
        "branch_computations={%called.1, %up_body.1}",
    ],
)
def test_of_a_conditional_the_longest_branch_counts(branches):
    call = "call(f32[8] %fusion.3), to_apply=%called.1"
    program = PROGRAM.replace("%fusion.3 =", f"%call.2 = f32[8] {call}\n  %fusion.3 =")
    assert estimated_cycles(program) == 2 + 7 + 12 * (3 + 2) + 12 * 5
    either = program.replace(call, f"conditional(s32[] %i, f32[8] %p, f32[8] %p), {branches}")
    assert estimated_cycles(either) == (3 + 2) + 7 + 12 * (3 + 2) + 12 * 5


@pytest.mark.slow
@pytest.mark.parametrize(
    ("generation", "at_most"), [("v5e", 1.1), ("v4", 1.5), ("v5p", 1.4), ("v6e", 1.6)]
)
def test_large_products_take_little_longer_than_at_the_peak(generation, at_most):
    pytest.importorskip("libtpu", reason="libtpu is absent: the extra pjrt-tpu")
    import jax

    topology, chip = parse_topology(generation)
    compiler = TpuCompiler(topology)
    x, w = (jax.ShapeDtypeStruct((rows, 4096), "bfloat16") for rows in (8192, 4096))
    whole = jax.sharding.SingleDeviceSharding(compiler.chips[0])

    def seconds(trips: int) -> float:
        def products(x: jax.Array, w: jax.Array) -> jax.Array:
            return jax.lax.fori_loop(0, trips, lambda _, x: x @ w, x)

        lowered = jax.jit(products, in_shardings=whole).lower(x, w)
        return compiler.compile(lowered, argument_bytes=0, steps=trips).step_s

    five, ten = seconds(5), seconds(10)
    peak_s = 2 * 8192 * 4096 * 4096 / chip.flops
    assert 1.0 <= (ten - five) / 5 / peak_s < at_most
    assert ten == pytest.approx(2 * five, rel=0.05)
