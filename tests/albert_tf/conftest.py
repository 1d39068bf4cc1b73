"""What the tests of the library share: a tiny configuration, vocabulary and run folder."""

import numpy as np
import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.text.tokenizer import Tokenizer

TINY = AlbertConfig(
    vocab_size=300,
    embedding_size=16,
    hidden_size=32,
    num_layers=3,
    num_heads=4,
    intermediate_size=64,
    max_positions=40,
    initializer_range=0.2,
)


@pytest.fixture(scope="session")
def tiny() -> AlbertConfig:
    """Weights ten times wider than usual: with 0.02 a tiny model's outputs hardly differ."""
    return TINY


@pytest.fixture(scope="session")
def comma_tokenizer() -> Tokenizer:
    """400 pieces of English topics and years, so that some pieces end in a digit and a comma."""
    topics = pytest.importorskip("pydoc_data.topics").topics
    from data.train_tokenizer import TrainTokenizerOptions, train_model

    sentences = [line for text in list(topics.values())[:12] for line in text.splitlines()]
    years = [f"in {year}, or {year % 100}, " * 3 for year in range(2000, 2030)]
    options = TrainTokenizerOptions(corpus="", output="", vocab_size=400)
    return Tokenizer(train_model(sentences + years * 9, options))


@pytest.fixture(scope="session")
def fake_inputs():
    """(batch, length, padding of each row) -> the encoder's dict of random ids."""

    def make(batch: int, length: int, padded: tuple[int, ...] = (), seed: int = 0) -> dict:
        rng = np.random.default_rng(seed)
        mask = np.ones([batch, length], np.int32)
        for row, count in enumerate(padded):
            mask[row, length - count :] = 0
        return {
            "input_word_ids": rng.integers(5, 300, [batch, length]).astype(np.int32) * mask,
            "input_mask": mask,
            "input_type_ids": rng.integers(0, 2, [batch, length]).astype(np.int32) * mask,
        }

    return make
