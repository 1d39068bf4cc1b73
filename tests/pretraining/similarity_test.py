"""The similarity of layers by hand, beside NumPy on a model's own outputs, and as a command."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tf_keras

from albert_tf.models.config import AlbertConfig
from albert_tf.models.pretrainer import AlbertPretrainer
from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer
from data.objectives.masking import MaskingConfig
from data.objectives.pair_objective import NoPairs
from data.pipeline.batches import Records, evaluation_batches
from pretraining import similarity
from pretraining.similarity import ANGLE, L2, SimilarityOptions, distance_sums, layer_similarity

CONFIG = AlbertConfig(
    vocab_size=600,
    embedding_size=8,
    hidden_size=16,
    num_layers=3,
    num_heads=2,
    intermediate_size=32,
    max_positions=32,
)


@pytest.fixture(scope="module")
def run_dir(tiny_tokenizer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    run = RunDir(str(tmp_path_factory.mktemp("similarity") / "run"))
    run.begin({"model": settings.to_dict(CONFIG)}, load_tokenizer(tiny_tokenizer))
    model = AlbertPretrainer(CONFIG).create_weights()
    tf.train.CheckpointManager(
        tf.train.Checkpoint(model=model), run.checkpoints_path, max_to_keep=1
    ).save()
    return run.path


def test_by_hand():
    before = tf.constant([[[3.0, 0.0], [1.0, 0.0], [1.0, 1.0], [9.0, 9.0]]])
    after = tf.constant([[[0.0, 4.0], [1.0, 1.0], [-1.0, -1.0], [0.0, 1.0]]])
    mask = tf.constant([[1, 1, 1, 0]])  # the last one is padding
    sums = distance_sums([before, after, after], mask).numpy()
    # 3-4-5 and a right angle; 1 and half of it; the diagonal of 2 x 2 and the opposite direction.
    expected = [[5 + 1 + np.sqrt(8), 0], [90 + 45 + 180, 0]]
    np.testing.assert_allclose(sums, expected, rtol=1e-6, atol=1e-5)


def test_small_angles_are_exact():
    turned = [[[np.cos(1e-4), np.sin(1e-4)]]]  # its cosine is 1 in float32, short of 5e-9
    sums = distance_sums([tf.constant([[[1.0, 0.0]]]), tf.constant(turned)], tf.constant([[1]]))
    assert float(sums[1, 0]) == pytest.approx(np.degrees(1e-4), rel=1e-3)


@pytest.mark.slow
def test_beside_numpy(tiny_records: str):
    tf_keras.utils.set_random_seed(1)
    encoder, records = AlbertPretrainer(CONFIG).create_weights().encoder, Records.open(tiny_records)
    total = records.manifest.num_records
    assert total % 50  # the last batch is filled up with copies
    found = layer_similarity(encoder, records, batch_size=50)
    distances, angles = [], []
    for batch in evaluation_batches(records, NoPairs(), MaskingConfig(), total):
        states = [encoder.embeddings(batch), *encoder(batch)["encoder_outputs"]]
        real = [
            state.numpy()[batch["input_mask"].numpy() == 1].astype(np.float64) for state in states
        ]
        for x, y in zip(real, real[1:], strict=False):
            lengths = np.linalg.norm(x, axis=1) * np.linalg.norm(y, axis=1)
            distances.append(np.linalg.norm(y - x, axis=1).mean())
            angles.append(np.degrees(np.arccos((x * y).sum(1) / lengths)).mean())
    assert len(found[L2]) == len(found[ANGLE]) == 3
    np.testing.assert_allclose(found[L2], distances, rtol=1e-4)
    np.testing.assert_allclose(found[ANGLE], angles, rtol=1e-4)


@pytest.mark.slow
def test_the_command_prints_draws_and_keeps(run_dir: str, tiny_records: str, capsys):
    config = RunDir(run_dir).config() | {"records": []}
    pathlib.Path(RunDir(run_dir).config_path).write_text(json.dumps(config), encoding="utf-8")
    image = pathlib.Path(RunDir(run_dir).plots_path, "similarity.png")
    similarity.main(SimilarityOptions((run_dir,), tiny_records, batch_size=128))
    figures = json.loads(image.with_suffix(".json").read_text(encoding="utf-8"))[run_dir]
    printed = capsys.readouterr().out
    for layer in range(3):
        cells = f"| {layer + 1} | {figures[L2][layer]:.3f} | {figures[ANGLE][layer]:.2f} |"
        assert cells in printed
    assert image.read_bytes().startswith(b"\x89PNG")


def test_mistakes_are_told(run_dir: str, tiny_records: str, tmp_path: pathlib.Path):
    with pytest.raises(InputError, match="--batch_size must be positive. Received: 0"):
        similarity.main(SimilarityOptions((run_dir,), tiny_records, batch_size=0))
    short = RunDir(str(tmp_path / "short"))
    model = settings.to_dict(CONFIG.replace(max_positions=16))
    short.begin({"model": model}, load_tokenizer(run_dir))
    with pytest.raises(InputError, match="--output is required, since .*run is not a run of"):
        similarity.main(SimilarityOptions((run_dir,), tiny_records))
    with pytest.raises(InputError, match="sequences of 32 pieces.* accepts only 16"):
        similarity.main(SimilarityOptions((short.path,), tiny_records))
