"""The loop: the loss falls, replicas change nothing, bad runs are refused.

Tolerance for several replicas: sums are added in another order, so losses agree to 1e-4 relative
after ten steps; everything else is compared bit by bit.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

from albert_tf.convert import __main__ as convert
from albert_tf.export import __main__ as export
from albert_tf.models.checkpoints import weights_fingerprint
from albert_tf.models.encoder import load_encoder
from albert_tf.models.pretrainer import AlbertPretrainer, load_pretrainer
from albert_tf.runtime import devices
from albert_tf.runtime.errors import ConfigError, InputError, MachineError
from albert_tf.runtime.files import outputs
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.extension import add_pieces, distinct_scores
from albert_tf.text.tokenizer import Tokenizer, load_tokenizer
from data.build import build
from data.building.options import BuildOptions
from data.objectives.masked_lm import MaskedLm
from data.objectives.registry import ObjectiveConfig
from data.pipeline.batches import Mixture, Records, training_batches
from pretraining import evaluate, train
from pretraining.evaluation.intrinsic import Evaluator
from pretraining.loop.config import resolve
from pretraining.loop.first_weights import larger_vocabulary
from pretraining.loop.recipes import MINI, SMOKE
from pretraining.loop.result import finish
from pretraining.loop.runtime import StrategyRuntime
from pretraining.loop.train_step import TrainStep, make_optimizer

FAST = (
    "loop.steps=6",
    "loop.steps_per_loop=2",
    "loop.checkpoint_every=2",
    "seed=3",
    "optimizer.warmup_steps=2",
    "model.max_positions=32",
)


def options(records: str, run: pathlib.Path, *assignments: str) -> train.TrainOptions:
    return train.TrainOptions(records, str(run), "smoke", device="cpu", set=assignments)


@pytest.fixture(scope="module")
def finished(smoke_run: str) -> RunDir:
    return RunDir(smoke_run)


def test_loss_falls_and_the_run_is_whole(finished: RunDir):
    rows = finished.metrics()
    assert [row["step"] for row in rows] == [10, 20, 30, 40, 50, 60]
    assert rows[-1]["loss/mlm"] < 0.92 * rows[0]["loss/mlm"]
    assert rows[0]["loss/mlm"] == pytest.approx(np.log(600), rel=0.05)  # uniform guessing
    columns = {
        "step",
        "loss/mlm",
        "loss/pair",
        "accuracy/mlm",
        "accuracy/pair",
        "lr",
        "grad_norm",
        "skipped",
        "tokens_per_s",
        "sequences_per_s",
        "step_ms",
        "flops_utilisation",
    }
    assert set(rows[0]) == columns
    assert finished.is_complete and finished.result()["step"] == 60
    names = ("config.json", "environment.json", "tensorboard", "checkpoints", "tokenizer")
    assert all(os.path.exists(os.path.join(finished.path, name)) for name in names)
    assert len(os.listdir(finished.plots_path)) == 5
    assert tf.train.latest_checkpoint(finished.checkpoints_path).endswith("ckpt-60")


@pytest.mark.parametrize(
    ("assignment", "words"),
    [
        ("optimizer.lr=1", "unknown key `optimizer.lr`"),
        ("optimizer.learning_rate=abc", "`optimizer.learning_rate` must be of type float"),
        ("loop.steps=0", "`loop.steps` must be"),
    ],
)
def test_settings_are_checked_before_data_is_looked_for(
    assignment: str, words: str, tmp_path: pathlib.Path
):
    with pytest.raises(ConfigError, match=words):
        train.main(options("no records", tmp_path / "run", assignment))


def test_a_run_that_cannot_be_plotted_does_not_begin(tiny_records, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match="plotting needs the package matplotlib"):
        train.main(options(tiny_records, tmp_path / "run"))
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("place", ["__init__", "run"])
def test_held_out_records_that_cannot_be_read_are_named(tiny_records, monkeypatch, place):
    """Not the run's folder, although the loop that evaluates writes it."""

    def fail(*_, **__) -> None:
        raise tf.errors.PermissionDeniedError(None, None, "records-00000; Permission denied")

    heldout = Records.open(tiny_records)
    config = resolve(SMOKE, FAST, heldout.manifest, "cpu")
    runtime = StrategyRuntime(tf.distribute.get_strategy())
    model = AlbertPretrainer(config.model, heads=config.heads).create_weights()
    monkeypatch.setattr(Evaluator, place, fail)
    with pytest.raises(MachineError, match=f"'{tiny_records}' cannot be read: Permission denied"):
        train.evaluation_on(heldout, config, runtime)(model)()


def test_a_dry_run_reads_every_record_and_writes_nothing(
    tiny_records: str, tmp_path: pathlib.Path, capsys
):
    ended = tmp_path / "ended"
    shutil.copytree(tiny_records, ended)
    path, size = Records.open(str(ended)).shards()[-1]
    content = pathlib.Path(path).read_bytes()
    length = 16 + int.from_bytes(content[:8], "little")
    pathlib.Path(path).write_bytes(content[:length])  # as if the copying had stopped
    dry = dataclasses.replace(options(tiny_records, tmp_path / "run"), dry_run=True)
    train.main(dry)
    shown = json.loads(capsys.readouterr().out)
    assert shown["records"][0]["num_records"] and "records_sketches" not in shown
    for data in ({"data": str(ended)}, {"data": f"{tiny_records}:1,{ended}:2"}):
        with pytest.raises(InputError, match=f"must have {size} records. Received: 1. Copy it"):
            train.main(dataclasses.replace(dry, **data))
    train.main(dataclasses.replace(dry, data=str(ended), skip_corrupt=True))
    with pytest.raises(InputError, match="--run_dir=.*cannot be written: Not a directory"):
        train.main(dataclasses.replace(dry, run_dir=f"{path}/run"))
    assert os.listdir(tmp_path) == ["ended"]


@pytest.mark.slow
def test_bfloat16_follows_the_curve_of_float32(tiny_records: str, tmp_path: pathlib.Path):
    curves = []
    for precision in ("float32", "mixed_bfloat16"):
        run = RunDir(str(tmp_path / precision))
        train.main(options(tiny_records, run.path, "loop.steps=60", f"precision={precision}"))
        assert run.config()["precision"] == precision
        train.main(options(tiny_records, run.path, "loop.steps=60"))  # kept without being asked for
        curves.append(run.metrics())
    for full, half in zip(*curves, strict=True):
        # The band: 1 % of the loss, over a run in which it falls by more than 8 %.
        assert half["loss/mlm"] == pytest.approx(full["loss/mlm"], rel=0.01)
        assert half["loss/mlm"] != full["loss/mlm"]


def test_the_last_line_names_each_metric_once(finished: RunDir, tmp_path: pathlib.Path, capsys):
    shutil.copytree(finished.path, tmp_path / "run")
    run = RunDir(str(tmp_path / "run"))
    heldout = {"heldout/loss/sop": 0.5, "heldout/loss/pair": 0.5, "heldout/loss/mlm": 2.5}
    run.add_metrics(run.metrics()[-1] | heldout)
    finish(run, (MaskedLm(), ObjectiveConfig().of_pairs))
    shown = capsys.readouterr().out
    assert "heldout/loss/sop 0.5" in shown and "heldout/loss/pair" not in shown
    assert "heldout/loss/mlm 2.5" in shown  # the only name of this one
    assert run.result()["heldout/loss/pair"] == 0.5


def test_a_finished_run_is_left_alone(finished: RunDir, tiny_records: str, capsys):
    before = os.stat(finished.result_path).st_mtime_ns
    train.main(options(tiny_records, finished.path, "loop.steps=60"))
    assert os.stat(finished.result_path).st_mtime_ns == before
    assert "already complete" in capsys.readouterr().out


def test_a_second_process_writes_nothing_into_a_live_run(
    finished: RunDir, tiny_records: str, tmp_path: pathlib.Path, capsys
):
    """Neither while the first one trains nor if it ends between a look at the run and the lock."""

    def files() -> dict[pathlib.Path, int]:
        return {path: path.stat().st_mtime_ns for path in (tmp_path / "run").rglob("*")}

    shutil.copytree(finished.path, tmp_path / "run")
    run = RunDir(str(tmp_path / "run"))
    (result := pathlib.Path(run.result_path)).unlink()
    again, before = options(tiny_records, tmp_path / "run", "loop.steps=60"), files()
    with run.locked(), pytest.raises(InputError, match="another process is training this run"):
        train.main(again)
    assert files() == before

    class Ending(RunDir):
        def locked(self) -> contextlib.AbstractContextManager:
            self.finish({})
            return super().locked()

    train.main(again, open_run=Ending)
    assert "is already complete" in capsys.readouterr().out
    assert files().keys() == before.keys() | {result}


def test_another_configuration_is_refused(finished: RunDir, tiny_records: str):
    with pytest.raises(InputError) as error:
        train.main(options(tiny_records, finished.path, "loop.steps=50", "seed=1"))
    assert "loop.steps: 60 != 50" in str(error.value) and "seed: 0 != 1" in str(error.value)


def test_loading_what_was_trained(finished: RunDir):
    batch = {name: tf.ones([2, 8], tf.int32) for name in train_inputs()}
    pretrainer, encoder = load_pretrainer(finished.path), load_encoder(finished.path)
    outputs = pretrainer(batch | {"masked_lm_positions": tf.constant([[1], [2]])})
    assert outputs["mlm_logits"].shape == (2, 1, 600) and outputs["pair_logits"].shape == (2, 2)
    np.testing.assert_array_equal(
        outputs["pooled_output"].numpy(), encoder(batch)["pooled_output"].numpy()
    )


def train_inputs() -> tuple[str, ...]:
    return ("input_word_ids", "input_mask", "input_type_ids")


def test_first_weights(finished: RunDir, tiny_records: str):
    """Of the same shape, or of another number of layers that share one block."""
    records = Mixture.open(tiny_records)
    before = load_pretrainer(finished.path).get_weights()
    for given in ((), ("model.num_layers=3",)):
        config = resolve(SMOKE, given, records.manifest, "cpu")
        after = train.first_weights(finished.path, config, records, unfinished=False)
        assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))
    for given, words in (
        (("model.num_heads=4",), "num_heads: 2 != 4"),
        (("model.max_positions=48",), "max_positions: 64 != 48"),
        (("model.num_layers=3", "model.sharing=attention"), "num_layers: 2 != 3"),
        (("model.num_layers=3", "model.num_groups=3"), "num_layers: 2 != 3"),
    ):
        config = resolve(SMOKE, given, records.manifest, "cpu")
        with pytest.raises(InputError, match=words):
            train.first_weights(finished.path, config, records, unfinished=False)


def test_rotary_positions_have_no_weights_so_that_more_may_follow(tmp_path: pathlib.Path):
    (tmp_path / "a.txt").write_text("It rained on the hills. The river rose.\n\nShe slept.\n")
    corpus, folder = f"text:{tmp_path}/a.txt", str(tmp_path / "records")
    build(BuildOptions(corpus, "albert-mini-en", folder, seq_length=32, num_workers=1))
    records = Mixture.open(folder)
    config = resolve(MINI, ("model.max_positions=512",), records.manifest, "cpu")
    weights = train.first_weights("albert-mini-en", config, records, unfinished=False)
    same = resolve(MINI, (), records.manifest, "cpu")
    before = train.first_weights("albert-mini-en", same, records, unfinished=False)
    assert all(np.array_equal(a, b) for a, b in zip(before, weights, strict=True))


@pytest.fixture(scope="module")
def extended_records(tiny_tokenizer: str, tmp_path_factory) -> str:
    """Records whose vocabulary has the pieces of the smoke run's, a word and three characters."""
    old, folder = load_tokenizer(tiny_tokenizer), tmp_path_factory.mktemp("extended")
    scores = distinct_scores({"▁whale": 9, "☃": 9, "☃z": 9}, 1000, old.vocabulary.scores)
    Tokenizer(add_pieces(old.model, scores)).save(folder / "tokenizer")
    text = "The whale sang. A ☃ heard it. It rang a bell. The ☃z whale went.\n\n"
    (folder / "a.txt").write_text(text * 40)
    out = str(folder / "records")
    build(BuildOptions(f"text:{folder}/a.txt", str(folder / "tokenizer"), out, seq_length=32))
    return out


def test_first_weights_of_a_larger_vocabulary(finished: RunDir, extended_records: str):
    """New pieces begin as the mean of their parts; everything else stays, bit for bit."""
    records = Mixture.open(extended_records)
    config = resolve(SMOKE, (), records.manifest, "cpu")
    assert config.model.vocab_size == 603
    model = load_pretrainer(finished.path)
    bigger = AlbertPretrainer(config.model).create_weights()
    bigger.set_weights(train.first_weights(finished.path, config, records, unfinished=False))
    old = load_tokenizer(finished.path)
    ids = {piece: i for i, piece in enumerate(old.vocabulary.pieces)}
    single = [i for p, i in ids.items() if len(p) == 1 and p in old.vocabulary.scores and p != "▁"]
    for before, after in (
        (model.encoder.embeddings.word_embeddings, bigger.encoder.embeddings.word_embeddings),
        (model.mlm_head.bias, bigger.mlm_head.bias),
    ):
        before, after = before.numpy(), after.numpy()
        assert np.array_equal(after[:600], before) and len(after) == 603
        character = before[single].mean(0)
        wanted = [
            before[old.encode("whale")].mean(0),
            character,
            (character + before[ids["z"]]) / 2,
        ]
        np.testing.assert_allclose(after[600:], wanted, rtol=1e-6)
    others = {id(model.encoder.embeddings.word_embeddings), id(model.mlm_head.bias)}
    for before, after in zip(model.weights, bigger.weights, strict=True):
        assert id(before) in others or np.array_equal(before.numpy(), after.numpy())


def test_a_vocabulary_that_does_not_extend_the_first_one_is_refused(
    finished: RunDir, tiny_records: str, small_tokenizer, tmp_path: pathlib.Path
):
    shutil.copytree(finished.path, tmp_path / "run")
    small_tokenizer.save(tmp_path / "run" / "tokenizer")
    records = Mixture.open(tiny_records)
    config = resolve(SMOKE, (), records.manifest, "cpu")
    with pytest.raises(
        InputError, match=r"another tokenizer.*\(its piece \d+ is '.*--extend=.*run"
    ):
        train.first_weights(str(tmp_path / "run"), config, records, unfinished=False)


@pytest.mark.slow
def test_rows_that_no_piece_uses_give_way_to_new_pieces(tiny_tokenizer: str):
    """A converted model may have more rows than its vocabulary has pieces."""
    old = load_tokenizer(tiny_tokenizer)
    scores = distinct_scores({"▁whale": 9}, 1000, old.vocabulary.scores)
    new = Tokenizer(add_pieces(old.model, scores))
    padded = AlbertPretrainer(SMOKE.model.replace(vocab_size=624)).create_weights()
    weights = larger_vocabulary(padded, old, new)
    before = padded.encoder.embeddings.word_embeddings.numpy()
    (after,) = (value for value in weights if value.shape == (601, before.shape[1]))
    assert np.array_equal(after[:600], before[:600])
    np.testing.assert_allclose(after[600], before[old.encode("whale")].mean(0), rtol=1e-6)


def test_a_run_with_a_larger_vocabulary_is_one_like_any_other(
    finished: RunDir, extended_records: str, tmp_path: pathlib.Path
):
    """It is trained, and its tokenizer, exports and converted folders have the new pieces."""
    run = str(tmp_path / "larger")
    given = options(extended_records, pathlib.Path(run), *FAST[:-1])  # 64 positions
    train.main(dataclasses.replace(given, init=finished.path))
    assert load_tokenizer(run).vocab_size == 603
    export.main(export.ExportOptions(run, str(tmp_path / "export"), "fill_mask"))
    assert load_tokenizer(tmp_path / "export" / "1").vocabulary.pieces[600] == "▁whale"
    for kind in ("huggingface:", "google:"):
        there, back = f"{kind}{tmp_path}/{kind[:-1]}", str(tmp_path / f"from-{kind[:-1]}")
        convert.main(convert.ConvertOptions(run, there))
        convert.main(convert.ConvertOptions(there, back))
        weights = zip(
            load_pretrainer(run).get_weights(), load_pretrainer(back).get_weights(), strict=True
        )
        assert all(np.array_equal(a, b) for a, b in weights)
        assert load_tokenizer(back).vocabulary.pieces == load_tokenizer(run).vocabulary.pieces


@pytest.mark.slow
def test_first_weights_come_from_init(finished: RunDir, tiny_records: str, tmp_path: pathlib.Path):
    before = load_pretrainer(finished.path).get_weights()
    run = tmp_path / "continued"
    chosen = ("loop.steps=1", "optimizer.warmup_steps=1")
    # Step 0 of a warm-up has rate 0: the weights are those of --init.
    train.main(dataclasses.replace(options(tiny_records, run, *chosen), init=finished.path))
    after = load_pretrainer(str(run)).get_weights()
    assert all(np.array_equal(a, b) for a, b in zip(before, after, strict=True))


@pytest.mark.slow
def test_a_deeper_model_begins_with_a_shallower_one_s_block(
    finished: RunDir, tiny_records: str, tmp_path: pathlib.Path
):
    """The paper's Table 11."""
    before = load_pretrainer(finished.path).get_weights()
    chosen = ("loop.steps=1", "optimizer.warmup_steps=1", "model.num_layers=3")
    given = options(tiny_records, tmp_path / "deeper", *chosen)
    train.main(dataclasses.replace(given, init=finished.path))
    deeper = load_pretrainer(str(tmp_path / "deeper"))
    assert deeper.encoder.config.num_layers == 3
    assert all(np.array_equal(a, b) for a, b in zip(before, deeper.get_weights(), strict=True))


def test_a_run_that_has_not_ended_is_begun_from_only_if_asked(
    finished: RunDir, tiny_records: str, tmp_path: pathlib.Path
):
    shutil.copytree(finished.path, tmp_path / "begun")
    (tmp_path / "begun" / "result.json").unlink()
    given = options(tiny_records, tmp_path / "run", "loop.steps=1", "optimizer.warmup_steps=1")
    given = dataclasses.replace(given, init=str(tmp_path / "begun"), dry_run=True)
    with pytest.raises(InputError, match=r"--init=.*begun has not ended.*--unfinished"):
        train.main(given)
    train.main(dataclasses.replace(given, unfinished=True))
    with pytest.raises(InputError, match="--unfinished requires --init"):
        dataclasses.replace(given, init=None, unfinished=True)
    (tmp_path / "begun" / "saved_model.pb").touch()
    with pytest.raises(InputError, match="is an export and has no pretraining heads"):
        train.main(given)


def test_a_retrained_init_is_noticed_and_a_deleted_one_not_needed(
    finished: RunDir, tiny_records: str, tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
):
    base, run = tmp_path / "base", RunDir(str(tmp_path / "run"))
    for copy in (str(base), run.path):
        shutil.copytree(finished.path, copy)
    known = {"init": str(base), "init_weights": weights_fingerprint(finished.path)}
    outputs.write_json(run.config_path, run.config() | known)
    given = options(tiny_records, tmp_path / "run", "loop.steps=60")
    os.rename(base, tmp_path / "moved")
    for init in (base, tmp_path / "moved"):
        train.main(dataclasses.replace(given, init=str(init)))
        assert "is already complete" in capsys.readouterr().out
    os.rename(tmp_path / "moved", base)
    model = load_pretrainer(str(base))
    model.mlm_head.bias.assign_add(np.ones(model.encoder.config.vocab_size, np.float32))
    tf.train.Checkpoint(model=model).save(str(base / "checkpoints" / "ckpt"))
    with pytest.raises(InputError, match="the weights of --init have changed since the run began"):
        train.main(dataclasses.replace(given, init=str(base)))
    train.main(dataclasses.replace(given, init=str(base), unfinished=True))  # it may train on
    assert "is already complete" in capsys.readouterr().out
    with pytest.raises(InputError, match=r"differs .*\binit: "):
        train.main(dataclasses.replace(given, init=str(tmp_path / "mistyped")))


@pytest.mark.slow
def test_no_pairs_leaves_the_pooler_alone(tiny_records: str, tmp_path: pathlib.Path):
    run = tmp_path / "none"
    train.main(options(tiny_records, run, *FAST, "objective.pair=none"))
    rows = RunDir(str(run)).metrics()
    assert "loss/pair" not in rows[0]
    # Biases start at zero and are neither moved nor decayed.
    assert not load_encoder(str(run)).pooler.bias.numpy().any()


@pytest.mark.parametrize(
    ("replicas", "recompute"),
    [
        (2, False),
        pytest.param(4, False, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
    ],
)
def test_replicas_give_the_curve_of_one(
    tiny_records: str, tmp_path: pathlib.Path, replicas: int, recompute: bool
):
    layers = 2 if recompute else 1
    script = f"""
import dataclasses
import os
import tensorflow as tf
cpu, one = tf.config.list_physical_devices("CPU")[0], tf.config.LogicalDeviceConfiguration()
tf.config.set_logical_device_configuration(cpu, [one] * {replicas})
from albert_tf.runtime import devices
from albert_tf.runtime.run_dir import RunDir
from data.pipeline.batches import Records
from pretraining.loop.config import resolve
from pretraining.loop.recipes import MINI, SMOKE
from pretraining.loop.runtime import StrategyRuntime
from pretraining.loop.training import train
records = Records.open({tiny_records!r})
config = resolve(SMOKE, ["loop.steps=10", "loop.steps_per_loop=1", "loop.checkpoint_every=10",
                         "model.max_positions=32", "model.num_layers={layers}"], records.manifest)
config = dataclasses.replace(config, model=config.model.replace(rematerialize={recompute}))
for name, strategy in (("one", tf.distribute.OneDeviceStrategy("/cpu:0")),
                       ("several", devices.strategy("cpu"))):
    print(strategy.num_replicas_in_sync)
    run = RunDir({str(tmp_path)!r} + "/" + name)
    os.mkdir(run.path)
    train(config, records, run, StrategyRuntime(strategy))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert [line for line in done.stdout.splitlines() if line.isdigit()] == ["1", str(replicas)]
    one, several = (RunDir(str(tmp_path / name)).metrics() for name in ("one", "several"))
    for a, b in zip(one, several, strict=True):
        assert b["loss/mlm"] == pytest.approx(a["loss/mlm"], rel=1e-4)
        assert b["loss/pair"] == pytest.approx(a["loss/pair"], rel=1e-4)
        assert b["grad_norm"] == pytest.approx(a["grad_norm"], rel=1e-3)


def test_a_batch_that_replicas_cannot_share_is_refused(tiny_records: str):
    from pretraining.loop.training import check_batch

    opened = Records.open(tiny_records)
    config = resolve(SMOKE, ["loop.global_batch_size=15"], opened.manifest)

    with pytest.raises(InputError, match=r"15, replicas: 2"):
        check_batch(config, replicas=2)
    saving = ["model.rematerialize=true", "model.rematerialize_chunks=3"]
    config = resolve(SMOKE, ["loop.global_batch_size=16", *saving], opened.manifest)
    with pytest.raises(InputError, match=r"3 chunks, 8 sequences"):
        check_batch(config, replicas=2)


@pytest.mark.slow
def test_evaluation_has_baselines_and_standard_errors(finished: RunDir, tiny_records: str, capsys):
    evaluate.main(evaluate.EvaluateOptions(finished.path, tiny_records))
    with open(finished.evaluation_path("records"), encoding="utf-8") as file:
        result = json.load(file)
    manifest = Records.open(tiny_records).manifest
    pairs = manifest.counts.sequences - manifest.counts.sequences_without_pair
    assert result["count/pair"] == pairs  # every pair once, whatever the last batch's filling
    p = result["accuracy/pair"]
    binomial = (p * (1 - p) / pairs) ** 0.5  # the pairs of a document may be right together
    assert 0.5 * binomial < result["standard_error/pair"] < 2 * binomial
    assert 0 < result["baseline/mlm"] < 0.3
    assert "standard errors from 50 %" in capsys.readouterr().out


def test_records_of_another_tokenizer_are_refused(
    finished: RunDir, tiny_records: str, tmp_path: pathlib.Path
):
    other = tmp_path / "other"
    os.makedirs(other)
    for name in os.listdir(tiny_records):
        os.symlink(os.path.join(tiny_records, name), other / name)
    os.remove(other / "manifest.json")
    manifest = dataclasses.replace(Records.open(tiny_records).manifest, tokenizer_fingerprint="no")
    manifest.write(str(other))
    with pytest.raises(InputError, match="another tokenizer"):
        evaluate.main(evaluate.EvaluateOptions(finished.path, str(other)))


@pytest.mark.slow
@pytest.mark.parametrize("side_by_side", [1, 2])
@pytest.mark.parametrize(
    "way",
    [
        ("loop.accumulation_steps=2",),
        ("model.sharing=attention", "model.rematerialize=true"),
    ],
)
def test_no_sum_depends_on_time(tiny_records: str, way: tuple[str, ...], side_by_side: int):
    """AddN of three or more begins with an input whose buffer is free by then: no gradient of what
    layers share is such a sum. Two can be added in any order."""
    devices.make_deterministic()
    records = Records.open(tiny_records)
    config = resolve(SMOKE, (*FAST, "model.num_layers=4", *way), records.manifest)
    model, optimizer = AlbertPretrainer(config.model).create_weights(), make_optimizer(config)
    optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, config, side_by_side, smallest_part=64)
    batch = next(
        iter(
            training_batches(
                records,
                config.objective.of_pairs,
                config.masking,
                config.loop.global_batch_size,
                config.seed,
            )
        )
    )
    counts = tf.constant([100.0, 16.0])
    context.enable_graph_collection()
    tf.function(step._accumulated)(batch, counts, tf.constant([1, 2]))
    graphs = [one.post_optimization_graph for one in context.export_run_metadata().function_graphs]
    context.disable_graph_collection()
    functions = [function.node_def for graph in graphs for function in graph.library.function]
    nodes = [node for part in (*(g.node for g in graphs), *functions) for node in part]
    sums = [list(node.input) for node in nodes if node.op == "AddN"]
    assert len(sums) > 30
    # Keras's own LayerNorm and GELU have sums of three products that nothing else reads, so that
    # the first one's buffer is always free.
    many = [inputs for inputs in sums if len(inputs) > 2]
    assert all("layer_norm/" in name or "Gelu/" in name for inputs in many for name in inputs)
    assert not [name for inputs in many for name in inputs if "stack/" in name]


def test_an_export_goes_only_where_tensorflow_can_load_it(tiny_records, tmp_path):
    run = tmp_path / "a [1]"
    with pytest.raises(InputError, match=r"--run_dir, with `loop.export`, must be a path without"):
        train.main(options(tiny_records, run, *FAST, "loop.export=last"))
    assert not run.exists()
