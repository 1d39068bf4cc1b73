"""The facts of a corpus, and what they recommend."""

import re

import pytest

from albert_tf.models.config import AlbertConfig
from albert_tf.text.tokenizer import load_tokenizer
from data.corpora import glance
from data.corpora.glance import Facts, Glance, Sampled, training_flops, vocabulary_size
from data.corpora.readers import Document
from pretraining.loop.recipes import EXPERIMENTS

ENGLISH = Sampled(1.3, 0.0002, True)


def test_the_facts_of_documents():
    tokenizer = load_tokenizer(glance.INCLUDED)
    texts = ["One two three. Four.", "One two  three.\nFour.", "Five six.", "x " * 30 + "."]
    documents = [Document(text, f"{i}.txt") for i, text in enumerate(texts)]
    collected = Glance()
    assert list(collected.watched(iter(documents))) == documents
    facts = collected.facts(tokenizer)
    assert (facts.documents, facts.copies, facts.words) == (3, 1, 4 + 4 + 2 + 31)
    assert facts.longest == (31, "3.txt")
    pieces = sum(map(len, tokenizer.encode_batch([" ".join(d.sentences) for d in documents])))
    assert facts.sampled.pieces_a_word == pytest.approx(pieces / 41)
    assert facts.sampled.unknown == 0
    assert facts.sampled.characters == len(set("One two three. Four. Five six. x."))
    assert "| copies of other documents | 1 |" in facts.table()
    assert "| longest document | 31 words, in 3.txt |" in facts.table()
    assert "longest" not in Facts(1, 0, 1, ENGLISH).table()
    assert "note: documents this long" in Facts(2, 1, 60_001, ENGLISH).table()
    assert "note:" not in Facts(2, 1, 60_000, ENGLISH).table()


def test_characters_are_those_of_the_whole_text(monkeypatch):
    """A vocabulary has each, also of what is not in the sample."""
    monkeypatch.setattr(glance, "_SAMPLE_CHARACTERS", 2)
    collected = Glance()
    list(collected.watched(iter([Document("abcdef.", "")])))
    assert collected.facts(load_tokenizer(glance.INCLUDED)).sampled.characters == 7


def test_the_sample_is_even_and_bounded(monkeypatch):
    monkeypatch.setattr(glance, "_SAMPLE", 4)
    collected = Glance()
    list(collected.watched(Document(f"Text {i}.", "") for i in range(100)))
    numbers = [int(text.removesuffix(".").split()[1]) for text in collected._sample]
    step = numbers[1]
    assert 4 <= len(numbers) <= 8 and numbers == list(range(0, 100, step))[: len(numbers)]
    assert numbers[-1] + step > 96 - step


@pytest.mark.parametrize(
    ("text", "is_suited"),
    [
        ("Each cgroup has a bitmap of CPUs, and the scheduler balances its kthreads.", True),
        ("Wir haben gestern den Großvater in seiner Werkstatt besucht und viel gelacht.", False),
        ("春天来了", False),
    ],
)
def test_which_texts_the_included_model_goes_on_with(text, is_suited):
    tokenizer = load_tokenizer(glance.INCLUDED)
    sampled = Sampled.of([text], tokenizer)
    words = len(text) if "春" in text else len(text.split())
    assert sampled.pieces_a_word == len(tokenizer.encode(text)) / words
    assert sampled.suits_included == is_suited


@pytest.mark.parametrize(
    ("words", "size"),
    [
        (0, 100),
        (27_982, 1300),
        (159_999, 7900),
        (160_000, 8000),
        (19_999_999, 8000),
        (20_000_000, 16_000),
        (88_000_000, 16_000),
        (10**9, 30_000),
    ],
)
def test_the_size_of_a_vocabulary(words, size):
    assert vocabulary_size(words) == size


def test_the_arithmetic_of_training():
    """By hand: 6 layers of 384, gated feed-forward of 1024, embeddings of 128, 15 % predicted."""
    config = AlbertConfig.from_preset(glance.INCLUDED)
    assert (config.hidden_size, config.inner_size, config.num_layers) == (384, 1024, 6)
    layers = 6 * (4 * 384**2 + 3 * 384 * 1024)
    scores = 2 * 6 * 128 * 384
    head = 0.15 * 128 * (16_132 + 384)
    wanted = 6 * (layers + 128 * 384 + scores + head)
    assert training_flops(128) == pytest.approx(wanted, rel=0.003)  # without biases


@pytest.mark.parametrize(
    ("words", "steps", "passes"),
    [
        (10_000, 100, "57"),
        (200_000, round(2_600_000 / (64 * 0.9 * 128), -2), "11"),
        (1_000_000, 600, "3.4"),
        (20_000_000, round(26_000_000 / (64 * 0.9 * 128), -2), "1.0"),
    ],
)
def test_a_small_english_corpus_goes_on_from_the_included_model(words, steps, passes):
    text = Facts(10, 0, words, ENGLISH).recommendation(1e11)
    assert f"pretraining.adapt --seq_length=128 --steps={steps:.0f}, which" in text
    assert "--vocab_size" not in text
    hours = steps * 64 * 0.9 * 128 * training_flops(128) / (0.5e11 * 3600)
    assert f" {passes} passes over the text, about {hours:,.1f} hours on this machine" in text
    assert f"would see {words * 13 / 10**6:,.0f} million in 10 passes" in text


def test_the_steps_are_those_of_the_experiment():
    assert glance._STEPS_OF_ADAPT == EXPERIMENTS["adapt"].loop.steps


@pytest.mark.parametrize(
    ("words", "sampled", "size"),
    [
        (1_000_000, Sampled(1.3, 0.0, False), 8000),  # another language
        (200_000_000, ENGLISH, 16_000),  # more than the included model has seen
    ],
)
def test_other_corpora_get_a_model_of_their_own(words, sampled, size):
    text = Facts(10, 0, words, sampled).recommendation(1e11)
    assert f"--vocab_size={size}, --seq_length=128, --experiment=albert-mini" in text
    assert "adapt" not in text
    steps, warmup, decay = map(int, re.findall(r"--set [a-z._]+=(\d+)", text))
    assert (warmup, decay) == (steps // 36, steps // 5)  # 1,000 and 7,200 of 36,000
