"""What the tests of fine-tuning share: a tiny encoder's run, a toy task, two runs tuned on it."""

import pathlib
import random
from collections.abc import Callable

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.text.tokenizer import load_tokenizer
from tests.finetuning.untrained import leave_pretrained

WORDS = {"fruit": "apple pear plum cherry melon".split(), "tool": "hammer saw file drill".split()}
QUICK = (
    "training.steps=60",
    "training.evaluate_every=20",
    "training.batch_size=16",
    "training.learning_rate=0.002",
    "task.seq_length=32",
)


@pytest.fixture(scope="session")
def start(tiny_tokenizer: str, made_once: Callable) -> str:
    """A run folder as pretraining leaves it, with untrained weights."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    model = AlbertConfig(
        vocab_size=tokenizer.vocab_size,
        embedding_size=16,
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        intermediate_size=64,
        max_positions=64,
        initializer_range=0.2,
    )
    return str(made_once("start", lambda folder: leave_pretrained(folder, model, tokenizer)))


@pytest.fixture(scope="session")
def fruit(made_once: Callable) -> str:
    """Texts that name fruit or tools: any model that reads at all can tell them apart."""

    def write(folder: pathlib.Path) -> None:
        rng = random.Random(0)
        folder.mkdir()
        for name, count in (("train.tsv", 160), ("dev.tsv", 40)):
            rows = ["text\tlabel"]
            for _ in range(count):
                label = rng.choice(sorted(WORDS))
                words = rng.choices(WORDS[label], k=rng.randint(1, 6))
                rows.append(f"{' '.join(words)}\t{label}")
            (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")

    return str(made_once("text_classification", write))


@pytest.fixture(scope="session")
def begin(start: str):
    """Where a fine-tuning of `start` begins."""
    from finetuning.training.starting_point import StartingPoint

    return StartingPoint.of(start, None, None)


@pytest.fixture(scope="module")
def features(begin, config, fruit: str):
    """The training examples of `fruit`, as a test file's own `config` has them."""
    from albert_tf.tasks.texts import featurize_texts
    from finetuning.datasets import DATASETS
    from finetuning.datasets.dataset import Source

    data = DATASETS["text_classification"].read(Source(fruit))
    return featurize_texts(data.train, begin.tokenizer, config.task)


@pytest.fixture(scope="session")
def tuned(start: str, fruit: str, made_once: Callable) -> pathlib.Path:
    """The folder of two runs, seed-0 and seed-1."""
    from finetuning.train import FinetuneOptions, main

    def write(folder: pathlib.Path) -> None:
        main(
            FinetuneOptions(
                "text_classification",
                str(folder / "fruit"),
                fruit,
                init=start,
                seeds=2,
                set=QUICK,
                cache_dir=str(folder / "features"),
            )
        )

    return made_once("tuned", write) / "fruit"
