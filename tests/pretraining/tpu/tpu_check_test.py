"""The verdicts of `pretraining.tpu_check`, computed by hand with a compiler of known sizes."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime.errors import InputError
from pretraining import tpu_check
from pretraining.loop.config import OptimizerConfig, PretrainConfig
from pretraining.pjrt.compiled import CompiledSize
from pretraining.tpu import cache as tpu_cache
from pretraining.tpu import fit as tpu_fit
from pretraining.tpu.lowering import TpuCompiler
from pretraining.tpu.step import CHIPS, Chip, Step, parse_topology

MB = 10**6
# Embeddings (10 + 2 + 16) 8 + 16 = 240; attention 4 (64 + 8) + 16 = 304; FFN 8 16 + 16 + 16 8 + 8 +
# 16 = 296; pooler 72; MLM head 64 + 8 + 16 + 10 = 98; pair head 18.
PARAMETERS = 240 + 304 + 296 + 72 + 98 + 18
MODEL = AlbertConfig(
    vocab_size=10,
    embedding_size=8,
    hidden_size=8,
    num_layers=3,
    num_heads=2,
    intermediate_size=16,
    max_positions=16,
)
STEP = Step(PretrainConfig(model=MODEL, precision="mixed_bfloat16"), 64, 16, 2)
CHIP = Chip("2x2", 1000 * MB, flops=1e9, clock_hz=1e9, bandwidth=1e9)


class Compiler:
    """Plain: 100 MB and 10 MB a sequence; recomputed: 200 MB and 2 MB a sequence; of one part.

    A plain sequence takes 1 s, a recomputed one 4/3 s, a part `part_s` more.
    surprise: Step -> MB more.
    """

    def __init__(self, surprise=lambda step: 0, part_s: float = 0.0) -> None:
        self.surprise, self.part_s, self.compiled = surprise, part_s, []

    def __call__(self, step: Step, topology: str = "") -> CompiledSize:
        self.compiled.append((step.batch, step.model.rematerialize, step.parts))
        base, slope = (200, 2) if step.model.rematerialize else (100, 10)
        size = base + slope * step.batch // step.parts + self.surprise(step)
        step_s = step.batch * (4 / 3 if step.model.rematerialize else 1) + step.parts * self.part_s
        return CompiledSize(0, size * MB, 0, step_s=step_s)


def plan_of(batch: int, compiler: Compiler, chip: Chip = CHIP) -> list[tpu_fit.ComputePlan]:
    return tpu_fit.compute_plans(dataclasses.replace(STEP, batch=batch), chip, compiler)


def test_muon_has_one_slot_for_a_number_of_a_matrix():
    """Four of H x H and two of H x F in a layer; other parameters have two slots as in AdamW."""
    config = dataclasses.replace(STEP.config, optimizer=OptimizerConfig(name="muon"))
    model = STEP.model
    matrices = 4 * model.hidden_size**2 + 2 * model.hidden_size * model.intermediate_size
    step = dataclasses.replace(STEP, config=config)
    assert model.sharing == "all" and STEP.slots == 2 * PARAMETERS
    assert step.slots == 2 * PARAMETERS - matrices
    assert step.fixed_bytes == STEP.fixed_bytes - 4 * matrices


def test_sizes_and_flops_by_formula():
    assert STEP.parameters == PARAMETERS
    assert STEP.fixed_bytes == 16 * PARAMETERS
    assert CompiledSize(1, 20, 300).total == 321
    # Per piece and layer 4 H H + 2 H F + 2 S H multiply-adds: 256 + 256 + 256.
    again = STEP.sized(64, recompute=True)
    assert again.recomputed_flops == 2 * 64 * 16 * 3 * 768
    assert STEP.recomputed_flops == 0
    assert STEP.share_of_peak(CHIP, 2.0) == STEP.flops / 2e9
    assert STEP.all_reduce_s(CHIP) == pytest.approx(2 * 4 * PARAMETERS / 1e9)


@pytest.mark.parametrize(
    ("batch", "seq_length", "parts", "chunks"),
    [
        (72, 512, 1, 9),
        (64, 512, 1, 8),
        (64, 512, 4, 2),
        (64, 128, 1, 2),
        (13, 512, 1, 13),
        (4, 4096, 1, 4),
        (6, 512, 1, 1),
    ],
)
def test_chunks_have_about_4096_pieces(batch, seq_length, parts, chunks):
    step = dataclasses.replace(STEP, seq_length=seq_length).sized(batch, True, parts)
    assert step.model.rematerialize_chunks == chunks
    assert step.batch % step.unit == 0
    assert step.sized(batch, False).model.rematerialize_chunks == 1


def test_the_largest_batch_takes_two_compiles_and_one_that_confirms():
    compiled_batches = []

    def need(batch: int) -> int:
        compiled_batches.append(batch)
        return 200 + 10 * batch

    # From 100 without a sequence to 360 the line gives 55: 750. The line from 16 to 55 gives 80.
    assert tpu_fit.largest_batch(need, 1005, fixed=100, start=16) == 80
    assert compiled_batches == [16, 55, 80]
    assert tpu_fit.largest_batch(need, 1005, fixed=200, start=16, unit=8) == 80
    assert compiled_batches[3:] == [16, 80]
    assert tpu_fit.largest_batch(need, 205, fixed=200, start=16) == 0
    assert tpu_fit.largest_batch(need, 215, fixed=200, start=16) == 1


def test_the_largest_batch_where_most_bytes_are_of_no_batch():
    """The line from 900 gives 8 again, where 16 is a batch as well: 1,306 and 1,316."""
    found = tpu_fit.largest_batch(lambda b: 1300 + b, 1690, fixed=900, start=8, unit=8)
    assert found == 384  # 1,684


def test_the_largest_batch_where_a_line_is_flat():
    """8 and 16 need the same, as what is of no batch hides them: no leap to billions."""
    compiled_batches = []

    def need(batch: int) -> int:
        compiled_batches.append(batch)
        return max(1600, 900 + 10 * batch)

    assert tpu_fit.largest_batch(need, 1690, fixed=900, start=8, unit=8) == 72  # 1,620
    assert max(compiled_batches) <= 4 * 64


def test_the_largest_batch_is_0_where_parameters_alone_do_not_fit():
    assert tpu_fit.largest_batch({}.__getitem__, 250, fixed=251, start=16) == 0


def test_the_largest_batch_below_one_that_does_not_fit():
    # 512: 1,812; 256: 1,556; between them 390.
    found = tpu_fit.largest_batch(lambda b: 1300 + b, 1690, fixed=900, start=512, unit=8)
    assert found == 384


def test_the_largest_batch_steps_down_where_the_line_was_wrong():
    def need(batch: int) -> int:  # steeper from 50 on
        return 100 + 10 * batch + 10 * max(0, batch - 50)

    # The line says 90, which needs 1,400; the line from 16 through it says 64: 880, which fits;
    # between 64 and 90 it says 70: 1,000.
    assert tpu_fit.largest_batch(need, 1000, fixed=100, start=16) == 70


def test_the_largest_batch_where_too_large_ones_are_not_in_order():
    needs = {16: 260, 90: 1100, 81: 1200, 67: 770, 74: 1050, 72: 995}  # as the compiler may do
    assert tpu_fit.largest_batch(needs.__getitem__, 1000, fixed=100, start=16) == 72


def test_the_cheapest_way():
    plain = plan_of(64, Compiler())[0]  # 740 MB
    assert (plain.name, plain.confirmed, plain.need) == ("plain", True, 740 * MB)
    # 200 sequences: 4 parts of 50, 600 MB; or recomputed at once, 600 MB.
    split = plan_of(200, Compiler())[0]
    assert (split.name, split.step.parts, split.step.batch) == ("accumulate", 4, 200)
    assert (split.need, split.step_s) == (600 * MB, 200)
    # 4 parts of 100 s more take 600 s; recomputed in one part, 367 s.
    slow_parts = Compiler(part_s=100.0)
    again = plan_of(200, slow_parts)[0]
    assert again.step_s == pytest.approx(200 * 4 / 3 + 100)
    assert (again.name, again.step.parts, again.step.flags) == (
        "recompute",
        1,
        "--set model.rematerialize=true",
    )
    # 1,000: recomputed at most 399 at once, so 4 parts of 250, 700 MB.
    (both,) = [one for one in plan_of(1000, slow_parts) if one.name == "recompute"]
    assert (both.step.parts, both.step.model.rematerialize) == (4, True)


def test_a_way_that_compiles_larger_than_foreseen_is_split_further():
    # Plain: 900 MB on the line, 1,200 compiled; so 2 parts.
    compiler = Compiler(lambda step: 300 * (step.batch == 80 and step.parts == 1))
    best = plan_of(80, compiler)[0]
    assert (best.name, best.step.parts, best.need) == ("accumulate", 2, 500 * MB)
    compiler = Compiler(lambda step: 450 * (step.parts > 1))
    best = plan_of(200, compiler)[0]
    # 4 parts of 50 take 1,050 MB; 5 of 40 take 950.
    assert (best.name, best.step.parts, best.need) == ("accumulate", 5, 950 * MB)
    tried = [parts for batch, _, parts in compiler.compiled if batch == 200]
    assert tried == [4, 5, 10]  # 10 are no faster


def test_smaller_parts_where_a_large_one_is_slower_than_in_proportion():
    """64 sequences at once take 96 s; 32 take 40 s, 16 take 16 s, and 8 take 10 s."""

    def compiler(step: Step) -> CompiledSize:
        batch = step.batch // step.parts
        per_sequence = {32: 1.25, 16: 1.0, 8: 1.25}.get(batch, 1.5)
        step_s = step.batch * (2.0 if step.model.rematerialize else per_sequence)
        return CompiledSize(0, batch * MB, 0, step_s=step_s)

    best, other = tpu_fit.compute_plans(STEP, CHIP, compiler)
    assert (best.name, best.step.parts, best.step_s, best.need) == ("accumulate", 4, 64, 16 * MB)
    assert (best.confirmed, other.name) == (True, "recompute")


def test_nothing_fits():
    found = plan_of(64, Compiler(), CHIP._replace(hbm=50 * MB))
    assert [(one.name, one.step is None) for one in found] == [
        ("accumulate", True),
        ("recompute", True),
        ("plain", False),
    ]
    assert found[-1].need == 740 * MB


@pytest.mark.parametrize(
    ("name", "whole", "gib"),
    [
        ("v5e", "v5e:2x2", 15.75),
        ("v5e:4x4", "v5e:4x4", 15.75),
        ("v4", "v4:2x2x1", 30.75),
    ],
)
def test_topologies(name, whole, gib):
    topology, chip = parse_topology(name)
    assert (topology, chip.hbm) == (whole, gib * 2**30)


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def check(compiler, *assignments, **values) -> int:
    chosen = {"preset": "albert-tiny", "seq_length": 64, "batch": 8} | values
    return tpu_check.main(tpu_check.TpuCheckOptions(**chosen, set=assignments), compiler)


def test_the_cache_knows_what_makes_a_program(home):
    compiler = Compiler()
    for _ in range(2):
        assert check(compiler, largest=False) == 0
        assert check(compiler, "optimizer.learning_rate=0.5", "loop.steps=7000", largest=False) == 0
    assert len(compiler.compiled) == 1
    for values in ({"batch": 16}, {"topology": "v4"}, {"seq_length": 32}, {"quick": True}):
        check(compiler, largest=False, **values)
    for assignment in (
        "model.num_layers=2",
        "optimizer.name=adamw",
        "precision=float32",
        "loop.kernels=plain",
        "loop.steps_per_loop=25",  # five steps a call
    ):
        check(compiler, assignment, largest=False)
    assert len(compiler.compiled) == 10
    files = list((home / "albert_tf" / "tpu_check").iterdir())
    assert len(files) == 10
    files[0].write_text("{")  # torn: compiled again
    for path in files[1:]:
        assert json.loads(path.read_text())["size"]["temporaries"] > 0


def test_the_cache_knows_the_sources_of_the_step():
    """All direct imports but of values that the key has, errors, and what runs the lowering."""
    root = pathlib.Path(tpu_cache.__file__).resolve().parents[2]
    known = {path for pattern in tpu_cache.SOURCES for path in root.glob(pattern)}
    others = {"config", "errors", "extras", "subprocess_call"}
    for source in (
        "pretraining/loop/train_step.py",
        "pretraining/pjrt/joined_step.py",
        "albert_tf/training/jax_program.py",
        "pretraining/tpu/lowering.py",
    ):
        text = (root / source).read_text(encoding="utf-8")
        modules = re.findall(r"^from ((?:albert_tf|pretraining)\S+) import \(?\s*(\w+)", text, re.M)
        for package, name in modules:
            folder = root / package.replace(".", "/")
            files = {folder / f"{name}.py", folder.with_suffix(".py"), folder / "__init__.py"}
            assert {folder.name, name} & others or files & known, f"SOURCES lacks {package}.{name}"


def test_a_damaged_cache_entry_is_compiled_again(tmp_path):
    compiler = Compiler()
    cache = tpu_cache.Cache(compiler, str(tmp_path))
    first = cache(STEP, "v5e:2x2")
    with open(cache.path(STEP, "v5e:2x2"), "w", encoding="utf-8") as file:
        file.write('{"size": ')
    assert cache(STEP, "v5e:2x2") == first == cache(STEP, "v5e:2x2")
    assert len(compiler.compiled) == 2


def test_verdicts(home, capsys):
    gib = 2**30

    def compiler(step: Step, topology: str) -> CompiledSize:
        per_sequence = gib // (40 if step.model.rematerialize else 4)
        return CompiledSize(0, per_sequence * step.batch, 0)

    assert check(compiler, batch=32) == 0  # 8 GiB
    shown = capsys.readouterr().out
    assert "temporaries  8.59 GB" in shown
    # 15.75 GiB at 0.25 GiB a sequence.
    assert "largest batch found that fits a chip, plain: 63" in shown
    assert check(compiler, batch=72) == 0  # plain is too large, recomputed it fits
    shown = capsys.readouterr().out
    assert "does not fit" in shown and "--set model.rematerialize=true" in shown
    assert check(compiler, "model.rematerialize=false", batch=72) == tpu_check.DOES_NOT_FIT
    assert check(compiler, batch=640) == tpu_check.DOES_NOT_FIT
    assert check(compiler, batch=320, topology="v6e") == 0
    assert check(compiler, "precision=auto", batch=320, topology="v6e") == 0


def test_a_model_that_no_batch_makes_fit_is_not_compiled(home, capsys):
    """BERT-xlarge: 16 bytes for each of 1.28 billion parameters are more than 16.9 GB."""
    compiler = Compiler()
    assert check(compiler, preset="bert-xlarge") == tpu_check.DOES_NOT_FIT
    assert "does not fit, whatever the batch" in capsys.readouterr().out
    assert check(compiler, preset="bert-xlarge", global_batch=64) == tpu_check.DOES_NOT_FIT
    assert not compiler.compiled
    assert check(compiler, table=True, presets="bert-xlarge") == 0
    row = capsys.readouterr().out.splitlines()[-3].split(" | ")
    assert (row[5], row[-1], len(compiler.compiled)) == ("does not fit", "0 |", 3)


ESTIMATE = "times: an estimate by the cost model of libtpu's compiler, not measured, without the"


def test_the_figures_as_json(home, capsys):
    path = home / "figures.json"
    assert check(Compiler(), largest=False, json=str(path)) == 0
    shown = capsys.readouterr().out
    assert "8000 ms per step, 1 sequences/s" in shown
    assert ESTIMATE in shown.splitlines()[-1]
    figures = json.loads(path.read_text())
    assert (figures["preset"], figures["topology"]) == ("albert-tiny", "v5e:2x2")
    assert (figures["seq_length"], figures["num_predictions"]) == (64, 20)
    assert (figures["precision"], figures["system"]) == ("mixed_bfloat16", "albert_tf")
    assert figures["times_by"] == "cost model of libtpu's compiler"
    (step,) = figures["steps"]
    assert (step["mode"], step["batch"], step["fits"]) == ("plain", 8, True)
    assert (step["estimated_step_s"], step["estimated_sequences_per_s"]) == (8.0, 1.0)
    share = step["flops"] / CHIPS["v5e"].flops / 8
    assert step["estimated_share_of_peak"] == pytest.approx(share)
    with pytest.raises(InputError, match="--json and --table exclude each other"):
        check(Compiler(), table=True, json=str(path))
    with pytest.raises(InputError, match="--json must be a local file in a folder"):
        check(Compiler(), json=f"{__file__}/figures.json")


def test_recommendation_and_table(home, capsys):
    compiler, path = Compiler(), home / "figures.json"
    assert check(compiler, global_batch=4096, chips=8, json=str(path)) == 0
    shown = capsys.readouterr().out
    assert "cheapest: plain: --set loop.global_batch_size=4096" in shown
    assert "plain: 5.22 GB (compiled), fits; about 5.12e+05 ms per step, 1 sequences/s" in shown
    assert ESTIMATE in shown.splitlines()[-1]
    steps = json.loads(path.read_text())["steps"]
    assert [(step["mode"], step["compiled"]) for step in steps] == [
        ("plain", True),
        ("recompute in 8 chunks", False),
    ]
    presets = "albert-tiny,albert-base-v2"
    # Nothing fits, and the table is what was asked for.
    too_large = Compiler(lambda step: 10**6)
    assert check(too_large, table=True, presets="albert-tiny", seq_length=32, largest=False) == 0
    assert "does not fit" in capsys.readouterr().out
    assert check(compiler, table=True, presets=presets) == 0
    first = capsys.readouterr().out
    assert first.count("| albert-") == 2
    assert "20 predicted in each sequence, recomputed" in first
    assert ESTIMATE in first.splitlines()[-1]
    before = len(compiler.compiled)
    check(compiler, table=True, presets=presets)
    assert len(compiler.compiled) == before
    assert first.splitlines()[-4:] == capsys.readouterr().out.splitlines()[-4:]


@pytest.mark.parametrize(
    ("values", "assignments", "message"),
    [
        ({"topology": "v3"}, (), "--topology must be one of v4, v5e, v5p, v6e"),
        ({"batch": 0}, (), "--batch must be positive"),
        ({"global_batch": 100, "chips": 8}, (), "--global_batch must be a multiple of --chips"),
        ({"global_batch": -64}, (), "--global_batch must not be negative"),
        ({"global_batch": 64}, ("model.rematerialize=true",), "chooses how"),
        ({"table": True, "presets": ""}, (), "--presets must not be empty"),
        ({"table": True, "presets": "albert-tiny,albert-bas"}, (), "albert-base"),
        ({}, ("model.max_positions=32",), "`model.max_positions` must not be less"),
        ({"num_predictions": 65}, (), "--num_predictions must be"),
        ({"preset": "albert-bas"}, (), "albert-base"),
        ({}, ("model.depth=3",), "unknown key `model.depth`"),
        ({}, ("model.rematerialize=true", "model.rematerialize_chunks=3"), "must be a multiple of"),
    ],
)
def test_mistakes(home, values, assignments, message):
    compiler = Compiler()
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        check(compiler, *assignments, **values)
    assert not compiler.compiled


def test_a_tpu_vm_gets_what_everyone_gets():
    root = pathlib.Path(__file__).resolve().parents[3]
    everyone, vm = (
        [line for line in (root / name).read_text().splitlines() if not line.startswith("#")]
        for name in ("requirements.txt", "requirements-tpu.txt")
    )
    on_vm = [line.replace("tensorflow==", "tensorflow-tpu==") for line in everyone]
    assert [line for line in vm if not line.startswith("libtpu==")] == on_vm
    assert len(vm) == len(everyone) + 1


def tpu_check_run(*arguments: str) -> subprocess.CompletedProcess:
    return subprocess.run(
        [sys.executable, "-m", "pretraining.tpu_check", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": ""},
    )


@pytest.mark.slow
@pytest.mark.parametrize("generation", CHIPS)
def test_the_compiler_grants_the_memory_of_the_table(generation):
    pytest.importorskip("libtpu", reason="libtpu is absent: the extra pjrt-tpu")
    import jax

    topology, chip = parse_topology(generation)
    compiler = TpuCompiler(topology)
    whole = jax.sharding.SingleDeviceSharding(compiler.chips[0])

    def too_large(x: jax.Array) -> jax.Array:
        """400,000 columns of 400,000 bfloat16 numbers, sorted: 320 GB at once."""
        return -jax.numpy.sort(x @ x.T, axis=0)

    x = jax.ShapeDtypeStruct((400_000, 128), "bfloat16")
    lowered = jax.jit(too_large, in_shardings=whole).lower(x)
    with pytest.raises(Exception, match="RESOURCE_EXHAUSTED") as refusal:
        lowered.compile()
    (granted,) = re.findall(r"available HBM \(([\d.]+)G\)", str(refusal.value))
    assert int(float(granted) * 2**30) == chip.hbm
    size = compiler.compile(lowered, argument_bytes=0)
    assert size.refused
    assert size.temporaries >= 2 * 400_000**2
    with pytest.raises(InputError, match="does not support the topology"):
        TpuCompiler(f"{generation}:7x9")


@pytest.mark.slow
@pytest.mark.parametrize("quick", ["--quick", "--quick=false"])
@pytest.mark.parametrize("topology", CHIPS)
def test_every_generation_compiles(topology, quick, home):
    pytest.importorskip("libtpu", reason="libtpu is absent: the extra pjrt-tpu")
    done = tpu_check_run(
        "--preset=albert-tiny",
        "--seq_length=128",
        "--batch=8",
        f"--topology={topology}",
        "--largest=false",
        quick,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert ": fits, " in done.stdout


@pytest.mark.slow
def test_xxlarge_fits_72_a_chip(home):
    pytest.importorskip("libtpu", reason="libtpu is absent: the extra pjrt-tpu")
    done = tpu_check_run(
        "--preset=albert-xxlarge-v2",
        "--seq_length=512",
        "--batch=72",
        "--topology=v5e",
        "--largest=false",
    )
    assert done.returncode == 0, done.stderr[-2000:] + done.stdout
    assert "recompute in 9 chunks" in done.stdout
