"""What the tests of fine-tuning share: a tiny encoder's run, a toy task, two runs tuned on it."""

import os
import pathlib
import random

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.runtime import settings
from albert_tf.runtime.run_dir import RunDir
from albert_tf.text.tokenizer import load_tokenizer

WORDS = {"fruit": "apple pear plum cherry melon".split(), "tool": "hammer saw file drill".split()}
QUICK = (
    "training.steps=60",
    "training.evaluate_every=20",
    "training.batch_size=16",
    "training.learning_rate=0.002",
    "task.seq_length=32",
)


@pytest.fixture(scope="session")
def start(tiny_tokenizer: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A run folder as pretraining leaves it, with untrained weights."""
    import tensorflow as tf
    import tf_keras

    from albert_tf.models.pretrainer import AlbertPretrainer

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
    run = RunDir(str(tmp_path_factory.mktemp("start") / "tiny"))
    run.begin({"model": settings.to_dict(model), "task": {"kind": "pretraining"}}, tokenizer)
    tf_keras.utils.set_random_seed(1)
    pretrainer = AlbertPretrainer(model).create_weights()
    tf.train.Checkpoint(model=pretrainer).save(os.path.join(run.checkpoints_path, "ckpt"))
    run.finish({})
    return run.path


@pytest.fixture(scope="session")
def fruit(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Texts that name fruit or tools: any model that reads at all can tell them apart."""
    rng, folder = random.Random(0), tmp_path_factory.mktemp("task") / "text_classification"
    folder.mkdir()
    for name, count in (("train.tsv", 160), ("dev.tsv", 40)):
        rows = ["text\tlabel"]
        for _ in range(count):
            label = rng.choice(sorted(WORDS))
            rows.append(f"{' '.join(rng.choices(WORDS[label], k=rng.randint(1, 6)))}\t{label}")
        (folder / name).write_text("\n".join(rows) + "\n", encoding="utf-8")
    return str(folder)


@pytest.fixture(scope="session")
def begin(start: str):
    """Where a fine-tuning of `start` begins."""
    from finetuning.training.starting_point import StartingPoint

    return StartingPoint.of(start, None, None)


@pytest.fixture(scope="module")
def features(begin, config, fruit: str):
    """The training examples of `fruit`, as a test file's own `config` has them."""
    from albert_tf.tasks.classifier import featurize_texts
    from finetuning.datasets import TASKS
    from finetuning.datasets.task import Source

    data = TASKS["text_classification"].read(Source(fruit))
    return featurize_texts(data.train, begin.tokenizer, config.task)


@pytest.fixture(scope="session")
def tuned(start: str, fruit: str, tmp_path_factory: pytest.TempPathFactory) -> pathlib.Path:
    """The folder of two runs, seed-0 and seed-1."""
    from finetuning.train import FinetuneOptions, main

    folder = tmp_path_factory.mktemp("tuned") / "fruit"
    main(
        FinetuneOptions(
            "text_classification",
            str(folder),
            fruit,
            init=start,
            seeds=2,
            set=QUICK,
            cache_dir=str(folder.parent / "features"),
        )
    )
    return folder
