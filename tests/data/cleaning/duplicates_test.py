"""Exact and near copies: those that there are, and no others."""

import random

import numpy as np
import pytest

from albert_tf.runtime.errors import InputError
from data.cleaning import ngrams
from data.cleaning.duplicates import Copy, Duplicates, first_of_each_kind
from data.cleaning.ngrams import ngram_hashes, num_words, word_hashes


def found(tmp_path, texts: list[str], similarity: float | None) -> dict[int, Copy]:
    duplicates = Duplicates(str(tmp_path / "signatures"), similarity)
    for text in texts:
        duplicates.add(text)
    return duplicates.copies()


def test_exact_copies_repeat_the_first_one(tmp_path):
    texts = ["a b", "c", "a  b\n", "A b", "c", "a b", "a b."]
    copies = found(tmp_path, texts, None)
    assert copies == {n: Copy(first, "exact duplicates") for n, first in {2: 0, 4: 1, 5: 0}.items()}
    assert found(tmp_path, [], None) == {}


def text_of(rng: random.Random, num_words: int) -> list[str]:
    return [f"w{rng.randrange(20_000)}" for _ in range(num_words)]


def jaccard(one: str, other: str) -> float:
    sets = [set(ngram_hashes(word_hashes(text), 5).tolist()) for text in (one, other)]
    return len(sets[0] & sets[1]) / len(sets[0] | sets[1])


def planted(similar: bool) -> tuple[list[str], list[tuple[int, int]]]:
    """Return texts, and the pairs whose similarity is above .88, or else between .4 and .62."""
    rng, texts, pairs = random.Random(7), [], []
    for _ in range(250):
        words = text_of(rng, rng.randint(150, 400))
        other = list(words)
        share = 0.01 if similar else 0.09
        for place in rng.sample(range(len(words)), round(share * len(words))):
            other[place] = "changed"
        one, two = " ".join(words), " ".join(other)
        if jaccard(one, two) > 0.88 if similar else 0.4 < jaccard(one, two) < 0.62:
            pairs.append((len(texts), len(texts) + 1))
            texts += [one, two]
    return texts, pairs


def test_planted_near_copies_are_found(tmp_path):
    """The bound: 1 - (1 - s^4)^32 > .9999999 for s = .88, times the probability that of 128
    places at least 103 agree: .993 for s = .88. So of 250 pairs at most a few are missed."""
    pytest.importorskip("rensa")
    texts, pairs = planted(similar=True)
    assert len(pairs) > 180
    copies = found(tmp_path, texts, 0.8)
    recall = sum(copies.get(later) == Copy(earlier, "near duplicates") for earlier, later in pairs)
    assert recall >= 0.98 * len(pairs)
    assert set(copies) <= {later for _, later in pairs}
    assert found(tmp_path, texts, 0.8) == copies


def test_texts_that_are_less_similar_are_kept(tmp_path):
    """At s = .62, 103 of 128 places agree with a probability of 5e-6."""
    pytest.importorskip("rensa")
    texts, pairs = planted(similar=False)
    assert len(pairs) > 60
    assert found(tmp_path, texts, 0.8) == {}


def test_a_copy_of_a_dropped_text_that_no_kept_one_resembles_stays(tmp_path):
    pytest.importorskip("rensa")
    rng = random.Random(3)
    words = text_of(rng, 300)
    texts = []
    for step in range(6):  # each is similar to the one before, and less to those before that
        changed = ["other"] * 12 * step + words[12 * step :]
        texts.append(" ".join(changed))
    assert min(jaccard(a, b) for a, b in zip(texts, texts[1:], strict=False)) > 0.85
    copies = found(tmp_path, texts, 0.8)
    assert copies and all(copy.original not in copies for copy in copies.values())
    assert all(jaccard(texts[n], texts[copy.original]) > 0.65 for n, copy in copies.items())


def test_many_copies_of_one_text(tmp_path):
    pytest.importorskip("rensa")
    words = text_of(random.Random(1), 300)
    texts = [" ".join([*words, f"end{i}"]) for i in range(50)] + ["short text", "!", "?", "!"]
    copies = found(tmp_path, texts, 0.8)
    near = {n: Copy(0, "near duplicates") for n in range(1, 50)}
    assert copies == near | {53: Copy(51, "exact duplicates")}
    assert first_of_each_kind(copies, 2) == [near[1], near[2], copies[53]]


def test_the_package_that_is_missing_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "rensa", None)
    with pytest.raises(InputError, match="--duplicates=near needs the package rensa. Run pip"):
        Duplicates(str(tmp_path / "signatures"), 0.8)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The old TRAM, it's 1987!", ["the", "old", "tram", "it", "s", "1987"]),
        ("naïve Ünder_score", ["naïve", "ünder", "score"]),
        ("co\xadop _all_", ["coop", "all"]),
        ("대한민국 정부는 7월", ["대한민국", "정부는", "7월"]),
        ("漢字です", ["漢", "字", "で", "す"]),
        ("हिन्दी शब्द", ["हिन्दी", "शब्द"]),
        ("—  …", []),
    ],
)
def test_words(text, words):
    """Each is hashed as if it were alone, so equal words and no others have equal hashes."""
    assert word_hashes(text).tolist() == [word_hashes(word)[0] for word in words]
    assert num_words(text) == len(words) == len({*word_hashes(text).tolist()})


def test_words_of_parts_are_those_of_the_whole(monkeypatch):
    text = "The old tram\u2028of 1987, " * 20
    whole = word_hashes(text)
    assert len(whole) == 100
    for characters in (1, 7, 100):
        monkeypatch.setattr(ngrams, "_BLOCK", characters)
        assert word_hashes(text).tolist() == whole.tolist()


def test_runs_of_words():
    words = word_hashes("a b c a b")
    assert words[0] == words[3] and len(set(words.tolist())) == 3
    runs = ngram_hashes(words, 2)
    assert runs[0] == runs[3] and len(set(runs.tolist())) == 3 and len(runs) == 4
    assert ngram_hashes(words, 2)[0] != ngram_hashes(words[::-1], 2)[-1]  # order counts
    assert len(ngram_hashes(words, 6)) == 0 and len(ngram_hashes(words, 5)) == 1
    assert word_hashes("tram") == [8648178168188339393] and len(word_hashes("a\ud800b")) == 2
    assert word_hashes("A") == word_hashes("a") and word_hashes("").dtype == np.uint64
