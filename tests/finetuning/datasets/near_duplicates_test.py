"""The texts that are copies of others or parts of them."""

import gzip
import pathlib
import random

from finetuning.datasets.near_duplicates import hosts, possible_hosts


def of_texts(*texts: str) -> list[str]:
    return [each.strip() for each in hosts([[text, None] for text in texts])]


def test_a_phrase_belongs_to_the_longest_text_that_contains_it():
    assert of_texts(
        "a fine film", "Fine  film!", "it is a fine film .", "film", "fine", "films"
    ) == [
        *["it is a fine film"] * 5,
        "films",
    ]
    # Parts of words and words with others between them are no phrases.
    assert of_texts("one", "none of them", "of none", "none them") == [
        "one",
        "none of them",
        "of none",
        "none them",
    ]


def test_a_phrase_of_several_texts_joins_none_of_them():
    """It belongs to the longer one; of equally long ones, to the first by name."""
    long, short = "the film is very long", "see the film"
    assert of_texts("the film", short, long) == [long, short, long]
    assert of_texts("the film", "the film bored", "the film amazes") == [
        "the film amazes",
        "the film bored",
        "the film amazes",
    ]


def test_pairs_are_compared_text_by_text():
    pairs = [("a b", "c d"), ("A b.", "c, d"), ("b", "c"), ("a", "b c d"), ("a b c d", None)]
    assert hosts(pairs) == [" a b \n c d "] * 3 + [" a \n b c d ", " a b c d "]


def test_texts_without_words():
    assert of_texts(":)", ": )", ":)", "", " ") == [":)", ": )", ":)", "", ""]


def test_the_order_of_the_texts_makes_no_difference():
    rng = random.Random(0)
    texts = [" ".join(rng.choices("abcdef", k=rng.randint(1, 8))) for _ in range(300)]
    found = dict(zip(texts, of_texts(*texts), strict=True))
    for text, host in found.items():  # by definition
        longest = max(len(each) for each in texts if f" {text} " in f" {each} ")
        assert f" {text} " in f" {host} " and len(host) == longest and found[host] == host
    rng.shuffle(texts)
    assert dict(zip(texts, of_texts(*texts), strict=True)) == found


def test_few_texts_are_compared():
    """Of 4,000 texts, a word is in 300 to 400 and a pair of neighbors in about three."""
    rng = random.Random(0)
    words = [str(i) for i in range(100)]
    texts = [" ".join(rng.choices(words, k=rng.randint(5, 12))) for _ in range(4000)]
    found = hosts([[text] for text in texts])
    possible = possible_hosts(found)
    compared = [possible[host].index(host) + 1 for host in found]
    assert sum(compared) < 3 * len(texts)
    for text, host in list(zip(texts, found, strict=True))[:200]:
        containing = [each for each in found if f" {text} " in each]
        assert host == min(containing, key=lambda each: (-len(each), each))


def test_the_phrases_of_sst_2(shared_data: pathlib.Path):
    """67,349 phrases are of 6,920 sentences (Socher et al. 2013), a few of which contain others."""
    path = shared_data / "glue" / "SST-2" / "train.tsv.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        texts = [line.split("\t")[0] for line in file][1:]
    found = set(hosts([[text] for text in texts]))
    assert len(texts) == 67_349 and 6_800 < len(found) <= 6_920
