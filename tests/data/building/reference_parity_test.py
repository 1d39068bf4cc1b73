"""Tests of the statistics of masked records on real text: Google's tool's quirks, and ours.

Expected figures: measured with google-research/albert's create_pretraining_data.py on English
Wikipedia, novels and reviews, with the published vocabulary; where they hang on the text, a
tolerance says how far a corpus without the reviews may be off.
"""

import dataclasses

import numpy as np
import pytest

from albert_tf.text.tokenizer import load_tokenizer
from data.build import BuildOptions, make_stages
from data.building import static_masking
from data.building.cutter import cut_all
from data.building.sequences import Sequences
from data.corpora.corpus import read_documents

CHAPTER = r"regex:^\s*(?:CHAPTER|Chapter|VOLUME|BOOK|Book) [0-9IVXLC]+"
ARTICLE = r"regex:^ = [^=].*[^=] = $"


@pytest.fixture(scope="module")
def text(shared_data):
    """(path of the vocabulary, documents): novels and Wikipedia, about 4 MB."""
    documents = [
        *read_documents(f"text:{shared_data}/corpus_novels_en/[AET]*.txt.gz", CHAPTER),
        *read_documents(f"text:{shared_data}/corpus_wikitext2/valid.txt.gz", ARTICLE),
    ]
    return str(shared_data / "vocab" / "albert_en_30k"), list(enumerate(documents))


@pytest.fixture
def accepted(monkeypatch) -> list[int]:
    """The words of each n-gram that is taken."""
    found: list[int] = []
    real = static_masking._Words.take

    def take(self, begin, length, missing, max_ngram):
        taken = real(self, begin, length, missing, max_ngram)
        end = np.searchsorted(self.first_piece, self.first_piece[begin] + taken)
        found.extend((end - begin)[taken > 0].tolist())
        return taken

    monkeypatch.setattr(static_masking._Words, "take", take)
    return found


def features(text, **options) -> dict[str, np.ndarray]:
    """All records of a build of the text, their ids before and after masks, and the lengths."""
    vocabulary, documents = text
    given = BuildOptions("", vocabulary, "", layout="reference", num_workers=1, **options)
    cutter, layout = make_stages(given, load_tokenizer(vocabulary))
    parts = [part for part, _ in cut_all(cutter, documents, 1)]
    names = [field.name for field in dataclasses.fields(Sequences)]
    rows = Sequences(*(np.concatenate([getattr(p, n) for p in parts]) for n in names))
    chosen = static_masking.choose(rows, layout.is_word_start, layout.masking)
    return layout.features(rows, chosen) | {"length": rows.lengths + 3}


def masked_kinds(found: dict[str, np.ndarray]) -> np.ndarray:
    """Shares of [MASK], kept and random among all predicted pieces."""
    real = found["masked_lm_weights"] > 0
    shown = np.take_along_axis(found["input_ids"], found["masked_lm_positions"], 1)[real]
    kept = shown == found["masked_lm_ids"][real]
    return np.array([(shown == 4).mean(), kept.mean(), ((shown != 4) & ~kept).mean()])


def has_special_replacements(found: dict[str, np.ndarray]) -> bool:
    """Whether one of <pad>, [CLS] and [SEP] stands at a predicted place."""
    shown = np.take_along_axis(found["input_ids"], found["masked_lm_positions"], 1)
    return bool(np.isin(shown[found["masked_lm_weights"] > 0], [0, 2, 3]).any())


@pytest.mark.parametrize(
    ("seq_length", "slots", "masked", "ngrams", "label"),
    [
        (128, 20, 0.14876, (0.5957, 0.2590, 0.1453), (0.5475, 0.02)),
        pytest.param(
            512, 77, 0.15026, (0.5739, 0.2654, 0.1608), (0.5145, 0.03), marks=pytest.mark.slow
        ),
        pytest.param(
            512, 0, None, (0.5882, 0.2611, 0.1507), (0.5145, 0.03), marks=pytest.mark.slow
        ),
    ],
)
def test_with_its_quirks_it_is_googles_tool(
    text, accepted, seq_length, slots, masked, ngrams, label
):
    found = features(text, seq_length=seq_length, max_predictions=slots, reference_quirks=True)
    weights, length = found["masked_lm_weights"], found["length"]
    budget = np.clip(np.rint(0.15 * length), 1, slots or 20)
    assert (weights.sum(axis=1) == budget).mean() > 0.999  # "1.0 exactly"
    if masked:
        assert abs(weights.sum() / length.sum() - masked) < 0.001
    else:
        assert weights.shape[1] == 20
    shares = np.bincount(accepted, minlength=4)[1:] / len(accepted)
    assert np.abs(shares - ngrams).max() < 0.012
    assert np.abs(masked_kinds(found) - [0.8, 0.1, 0.1]).max() < 0.005
    assert has_special_replacements(found)
    share = found["next_sentence_labels"].mean()
    assert share > 0.5 and abs(share - label[0]) < label[1]


@pytest.mark.parametrize("seq_length", [128, pytest.param(512, marks=pytest.mark.slow)])
def test_clean_records_are_balanced_and_full(text, accepted, seq_length):
    """p(n) ~ 1/n: 6/11, 3/11, 2/11; only the last n-gram of a sequence is ever shortened."""
    found = features(text, seq_length=seq_length)
    weights, length = found["masked_lm_weights"], found["length"]
    assert (weights.sum(axis=1) == np.clip(np.rint(0.15 * length), 1, weights.shape[1])).all()
    labels = found["next_sentence_labels"]
    assert abs(labels.mean() - 0.5) < 5 * 0.5 / len(labels) ** 0.5
    assert np.abs(masked_kinds(found) - [0.8, 0.1, 0.1]).max() < 0.005
    assert not has_special_replacements(found)
    shares = np.bincount(accepted, minlength=4)[1:] / len(accepted)
    shortened = 1 / weights.sum(axis=1).mean() * 2  # about one n-gram of two pieces a sequence
    assert np.abs(shares - np.array([6, 3, 2]) / 11).max() < shortened
