"""Fixtures of the data rooms: a tiny tokenizer, and folders of hand-made records."""

import pathlib
import random

import numpy as np
import pytest

from albert_tf.text.normalization import Normalization
from albert_tf.text.tokenizer import Tokenizer
from data.build import BuildOptions, build
from data.pipeline.batches import Records
from data.records.manifest import Counts, Manifest
from data.records.schema import COMPACT_VERSION
from data.train_tokenizer import TrainTokenizerOptions, train_model


@pytest.fixture(scope="session")
def sentence_maker():
    """(rng, number of words) -> a sentence of words from a small invented language."""
    rng = random.Random(0)
    syllables = [c + v for c in "bdfgklmnprst" for v in "aeiou"]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 4))) for _ in range(300)]

    def make(rng: random.Random, num_words: int) -> str:
        return " ".join(rng.choices(words, k=num_words)).capitalize() + "."

    return make


@pytest.fixture(scope="session")
def tiny_tokenizer(sentence_maker, tmp_path_factory) -> str:
    """The folder of a tokenizer of 200 pieces."""
    rng = random.Random(1)
    options = TrainTokenizerOptions(corpus="", output="", vocab_size=200)
    model = train_model([sentence_maker(rng, 9) for _ in range(400)], options)
    folder = tmp_path_factory.mktemp("tokenizer")
    Tokenizer(model, Normalization()).save(folder)
    return str(folder)


@pytest.fixture(scope="session")
def tiny_records(tiny_tokenizer, tmp_path_factory) -> str:
    """This room's own: those that all rooms share would else be made with its tokenizer."""
    folder = str(tmp_path_factory.mktemp("tiny") / "records")
    corpus = "python_docs:email,logging,unittest,asyncio,json,argparse"
    build(BuildOptions(corpus, tiny_tokenizer, folder, seq_length=32, num_workers=1))
    return folder


@pytest.fixture(scope="session")
def write_records():
    """(folder, shards of (pieces, word starts, length of A), seq_length) -> opened records."""

    def write(folder: pathlib.Path, shards: list[list[tuple]], seq_length: int) -> Records:
        import tensorflow as tf

        folder.mkdir(parents=True)
        manifest = Manifest(
            schema_version=COMPACT_VERSION,
            layout="compact",
            seq_length=seq_length,
            vocab_size=100,
            special_ids=(0, 1, 2, 3, 4),
            tokenizer_fingerprint="t",
            corpus_fingerprint="c",
            shards=tuple(map(len, shards)),
            counts=Counts(sequences=sum(map(len, shards))),
            options="{}",
        )
        for number, shard in enumerate(shards):
            with tf.io.TFRecordWriter(manifest.shard_path(str(folder), number)) as out:
                for pieces, word_starts, first_length in shard:
                    record = {
                        "pieces": pieces,
                        "word_starts": np.packbits(word_starts),
                        "first_length": first_length,
                        "document": number,
                    }
                    out.write(manifest.schema.encode(record))
        manifest.write(str(folder))
        return Records.open(str(folder))

    return write
