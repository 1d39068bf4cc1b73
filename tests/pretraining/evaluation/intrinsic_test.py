"""Figures that can be known: of models that answer by rule, on records that tell what they are."""

import dataclasses
import math
import pathlib
import subprocess
import sys
import types
from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import pytest
import tensorflow as tf

from albert_tf.text.tokenizer import Tokenizer
from data.objectives.masking import MaskingConfig
from data.objectives.registry import ObjectiveConfig
from data.objectives.sentence_order import SentenceOrder
from data.pipeline.batches import Records, evaluation_batches
from pretraining.evaluation import piece_kinds
from pretraining.evaluation.intrinsic import Evaluator
from pretraining.evaluation.piece_kinds import KINDS, position_ranges
from pretraining.evaluation.probe import Halves
from pretraining.loop.config import PretrainConfig
from tests.pretraining.evaluation.probe_test import (
    DOCUMENTS,
    EACH,
    SIZE,
    coins,
    even_records,
    write,
)

COUNT = DOCUMENTS * EACH
VOCABULARY = 200


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Records:
    return even_records(tmp_path_factory.mktemp("intrinsic") / "records")


@dataclasses.dataclass
class Oracle:
    """A model that knows both objectives' labels and answers one: `head`.

    Its outputs at padding are not a number. It predicts `piece` for every masked one.
    """

    head: str = "sop"
    piece: int = 10

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        ids = inputs["input_word_ids"]
        first, second = (tf.sort(ids[:, at : at + SIZE])[:, SIZE // 2] for at in (1, SIZE + 2))
        # Pieces of A are even and of B odd; those of a document differ in that alone.
        knows = {"sop": first % 2 == 1, "nsp": first // 2 != second // 2}
        states = tf.cast(tf.stack(list(knows.values()), 1), tf.float32)[:, None, :]
        real = inputs["input_mask"][:, :, None] > 0
        slots = tf.zeros_like(inputs["masked_lm_positions"])
        return {
            "sequence_output": tf.where(real, states, np.nan),
            "pair_logits": tf.one_hot(tf.cast(knows[self.head], tf.int32), 2),
            "mlm_logits": tf.one_hot(slots + self.piece, VOCABULARY),
        }


class Blind(Oracle):
    """Its outputs are noise."""

    def __call__(self, inputs: Mapping[str, tf.Tensor]) -> dict[str, tf.Tensor]:
        shape = [*inputs["input_mask"].shape, 4]
        return super().__call__(inputs) | {
            "sequence_output": tf.random.stateless_normal(shape, [1, 2])
        }


def config(pair: str = "sop", **masking: float) -> PretrainConfig:
    return PretrainConfig(objective=ObjectiveConfig(pair), masking=MaskingConfig(**masking))


@pytest.fixture(scope="module")
def targets(records: Records) -> np.ndarray:
    """The masked pieces, with SOP's pairs."""
    batches = evaluation_batches(records, SentenceOrder(), MaskingConfig(), COUNT)
    (batch,) = batches.as_numpy_iterator()
    return batch["masked_lm_ids"][batch["masked_lm_weights"] > 0]


@pytest.fixture(scope="module")
def result(records: Records, targets: np.ndarray) -> dict[str, Any]:
    """Of a model that knows SOP and always predicts the most frequent piece."""
    piece = int(np.bincount(targets).argmax())
    tokenizer = cast(Tokenizer, types.SimpleNamespace(num_characters=np.arange(VOCABULARY)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(piece_kinds, "FIRST_RANGE", 8)
        return Evaluator(Oracle(piece=piece), records, config(), 32, tokenizer=tokenizer).run()


def over_documents(right: np.ndarray) -> float:
    """The standard error of documents with equally many predictions; each round has all of them."""
    means = right.reshape(EACH, DOCUMENTS, -1).mean((0, 2))
    return means.std(ddof=1) / math.sqrt(DOCUMENTS)


def test_each_objective_is_asked_of_head_and_probe(result: dict[str, Any]):
    assert result["trained_with"] == "sop" and result["notes"] == []
    assert result["accuracy/sop"] == 1 and result["count/sop"] == COUNT
    assert result["loss/sop"] == pytest.approx(math.log(1 + math.exp(-1)))
    # No pair of NSP is swapped: a head that knows SOP alone answers `in order` each time.
    in_order = 1 - coins(COUNT).mean()
    assert result["accuracy/nsp"] == pytest.approx(in_order) and result["count/nsp"] == COUNT
    assert result["standard_error/nsp"] == pytest.approx(over_documents(1 - coins(COUNT)))
    # The outputs tell both, and the half that is scored has half of the documents.
    for pair in ("sop", "nsp"):
        assert result[f"probe/{pair}"] == 1 and result[f"count/probe_{pair}"] == COUNT // 2
        assert result[f"verdict/probe_{pair}"] == "above chance"
    for kind in ("loss", "accuracy", "standard_error", "count", "verdict"):
        assert result[f"{kind}/pair"] == result[f"{kind}/sop"]


def test_lengths_that_tell_nothing_and_lengths_that_tell_the_order(
    result: dict[str, Any], tmp_path: pathlib.Path
):
    """Of equal segments, the probe answers alike; if A is the shorter one, it knows a swap."""
    assert result["count/lengths_sop"] == COUNT // 2
    assert abs(result["lengths/sop"] - 0.5) < 4 * math.sqrt(0.25 / (COUNT // 2))
    told = Evaluator(Blind(), even_records(tmp_path / "told", first=3), config(), 32).run()
    assert told["lengths/sop"] == 1 and told["verdict/lengths_sop"] == "above chance"
    assert abs(told["lengths/nsp"] - 0.5) < 4 * math.sqrt(0.25 / (COUNT // 2))


def test_masked_pieces_by_hand(result: dict[str, Any], targets: np.ndarray):
    assert len(targets) == result["count/mlm"] == COUNT * 3  # round(0.15 * 19) of each
    share = np.bincount(targets).max() / len(targets)
    assert result["accuracy/mlm"] == pytest.approx(share)
    assert result["baseline/mlm"] == pytest.approx(share)
    error = over_documents(targets == np.bincount(targets).argmax())
    assert result["standard_error/mlm"] == pytest.approx(error)
    # Logits are 1 for one piece and 0 for 199.
    loss = math.log(math.e + VOCABULARY - 1) - share
    assert result["loss/mlm"] == pytest.approx(loss, rel=1e-5)
    # Piece n has n characters.
    bits = loss * len(targets) / math.log(2) / targets.sum()
    assert result["bits_per_character/mlm"] == pytest.approx(bits, rel=1e-5)


def test_hidden_replaced_and_visible_pieces_by_hand(records: Records, result: dict[str, Any]):
    """The piece that the model always predicts has its own share of each kind."""
    (batch,) = evaluation_batches(
        records, SentenceOrder(), MaskingConfig(), COUNT
    ).as_numpy_iterator()
    targets, real = batch["masked_lm_ids"], batch["masked_lm_weights"] > 0
    piece = int(np.bincount(targets[real]).argmax())
    shown = np.take_along_axis(batch["input_word_ids"], batch["masked_lm_positions"], 1)
    mask = records.manifest.special_ids[4]
    rows = {"hidden": shown == mask, "visible": shown == targets}
    rows["replaced"] = ~(rows["hidden"] | rows["visible"])
    positions = batch["masked_lm_positions"]
    for begin in (0, 8, 16):
        is_within = (begin <= positions) & (positions < begin + 8)
        rows[f"hidden {begin}-{begin + 7}"] = rows["hidden"] & is_within
    for kind in rows:
        is_kind = rows[kind] & real
        found = targets[is_kind]
        assert result[f"{kind}/count"] == len(found) > 0
        share = np.mean(found == piece)
        assert result[f"{kind}/accuracy"] == pytest.approx(share)
        loss = math.log(math.e + VOCABULARY - 1) - share
        assert result[f"{kind}/loss"] == pytest.approx(loss, rel=1e-5)
        bits = loss * len(found) / math.log(2) / found.sum()
        assert result[f"{kind}/bits_per_character"] == pytest.approx(bits, rel=1e-5)
    assert result["hidden/count"] / result["count/mlm"] == pytest.approx(0.8, abs=0.08)
    total = sum(result[f"{kind}/accuracy"] * result[f"{kind}/count"] for kind in KINDS)
    assert total / result["count/mlm"] == pytest.approx(result["accuracy/mlm"])


def test_ranges_of_positions():
    assert position_ranges(128) == {}
    assert position_ranges(300) == {
        "hidden 0-127": (0, 128),
        "hidden 128-255": (128, 256),
        "hidden 256-299": (256, 300),
    }


@pytest.mark.slow
def test_a_model_without_a_pair_objective_has_probes_alone(records: Records):
    """And where the outputs are noise they are at chance."""
    result = Evaluator(Blind(), records, config("none", rate=0.06), 32).run()
    assert result["trained_with"] == "none" and result["count/mlm"] == COUNT  # round(0.06 * 19)
    assert not {"accuracy/sop", "accuracy/nsp", "accuracy/pair", "loss/sop"} & set(result)
    for pair in ("sop", "nsp"):
        assert abs(result[f"probe/{pair}"] - 0.5) < 4 * math.sqrt(0.25 / (COUNT // 2))


@pytest.mark.slow
def test_in_mid_training_only_what_is_trained(
    records: Records, result: dict[str, Any], targets: np.ndarray, monkeypatch
):
    """And records are read once: halves, which a reading of all of them makes, are not needed."""
    monkeypatch.setattr(Halves, "of_pairs", lambda records: pytest.fail("one reading more"))
    evaluator = Evaluator(Oracle(), records, config(), 50, trained_only=True, by_kind=False)
    assert evaluator.num_sequences == COUNT
    done: list[int] = []
    quick = evaluator.run(done.append)
    assert quick == evaluator.run() and sum(done) == COUNT
    assert evaluator._forward.experimental_get_tracing_count() == 1
    kinds = ("loss", "accuracy", "standard_error", "count", "verdict")
    assert {f"{kind}/pair" for kind in kinds} < quick.keys() <= result.keys()
    assert not {"accuracy/nsp", "probe/sop", "probe/nsp", "hidden/loss"} & set(quick)
    for name in ("accuracy/sop", "loss/sop", "count/sop", "count/mlm", "baseline/mlm"):
        assert quick[name] == pytest.approx(result[name])
    knowing = Oracle(piece=int(np.bincount(targets).argmax()))
    by_kind = Evaluator(knowing, records, config(), 50, trained_only=True).run()
    new = by_kind.keys() - quick.keys()
    assert "hidden/accuracy" in new and {key.partition("/")[0] for key in new} <= {*KINDS}
    assert {key: by_kind[key] for key in new} == pytest.approx({key: result[key] for key in new})


@pytest.mark.slow
def test_one_document_has_neither_random_pairs_nor_probes(tmp_path: pathlib.Path):
    records = write(tmp_path / "one", [[3] * 40])
    result = Evaluator(Oracle(), records, config("nsp"), 32).run()
    assert result["accuracy/sop"] == 1 and result["count/mlm"] == 40 * 3
    assert not {"accuracy/nsp", "accuracy/pair", "probe/sop", "probe/nsp"} & set(result)
    nsp, mlm, sop = result["notes"]
    assert "no NSP pairs" in nsp and "two documents" in nsp
    assert "MLM" in mlm and "no SOP probe" in sop


@pytest.mark.slow
def test_replicas_share_batches(records: Records):
    """Two replicas give the figures of one; and a batch that they cannot share is refused."""
    script = f"""
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
from albert_tf.runtime import devices
from data.pipeline.batches import Records
from pretraining.evaluation.intrinsic import Evaluator
from tests.pretraining.evaluation.intrinsic_test import Oracle, config
records, two = Records.open({records.folder!r}), devices.strategy("cpu")
one = Evaluator(Oracle(), records, config(), 32).run()
assert one == Evaluator(Oracle(), records, config(), 32, strategy=two).run()
try:
    Evaluator(Oracle(), records, config(), 31, strategy=two)
except ValueError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert "Received: 31, replicas: 2" in done.stdout
