"""Tests of the greedy choice by hand."""

from data.vocabulary.shortening import Shortening


def chosen(runs: dict[str, int], known: str = "", size: int = 9, min_count: int = 1) -> list:
    """The candidates for runs of pieces that are separated by `|`."""
    split = {tuple(run.split("|")): count for run, count in runs.items()}
    return list(Shortening(split, set(known.split()), size, min_count))


def test_the_piece_that_saves_most_comes_first():
    """abc saves 2 x 3 + 5 pieces, ab 5 + 3. Once abc is joined, ab only saves in the other run."""
    assert chosen({"a|b|c": 3, "ab|c": 5, "x|a|b": 4}) == [("abc", 8), ("xab", 4)]


def test_the_saving_falls_when_another_is_joined():
    """At first bc saves 10, ab 9. Joined, bc leaves ab in one run only."""
    assert chosen({"a|b|c": 6, "b|c": 4, "a|b": 3}) == [("abc", 6), ("bc", 4), ("ab", 3)]
    assert chosen({"a|b|x": 6, "a|b|y": 5}) == [("abx", 6), ("aby", 5)]
    assert chosen({"a|b|x": 2, "a|b|y": 2, "a|b|z": 2}) == [
        ("ab", 6),
        ("abx", 2),
        ("aby", 2),
        ("abz", 2),
    ]


def test_known_and_rare_ones_are_left_out():
    assert chosen({"a|b": 3, "c|d": 2}, known="ab", min_count=2) == [("cd", 2)]
    assert chosen({"a|b": 3, "c|d": 2}, min_count=3) == [("ab", 3)]


def test_each_occurrence_in_a_run_counts_once():
    assert chosen({"a|b|a|b": 2}) == [("abab", 2)]
    assert chosen({"a|a|a": 1}, known="aaa") == [("aa", 1)]


def test_cuts_must_fit():
    """ab is no run of pieces in a|bc."""
    assert chosen({"a|b": 1, "a|bc": 1}) == [("ab", 1), ("abc", 1)]


def test_long_ones_are_no_candidates():
    assert chosen({"0123456789|abcdef": 1}) == [("0123456789abcdef", 1)]
    assert chosen({"0123456789|abcdefg": 1}) == []


def test_ties_go_by_the_alphabet():
    assert chosen({"x|y": 1, "a|b": 1, "p|q": 1}) == [("ab", 1), ("pq", 1), ("xy", 1)]
