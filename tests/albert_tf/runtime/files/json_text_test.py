"""Tests of what is JSON and what only Python's module takes for it."""

import math

import pytest

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files.json_text import json_object, parse_json


def test_values_stay_what_they_are():
    text = '["\\ud83d\\ude00", "é", 1.5, -1e308, 1e-999, %s, null, true, "\\\\ud800"]' % ("9" * 308)
    expected = ["😀", "é", 1.5, -1e308, 0.0, int("9" * 308), None, True, "\\ud800"]
    assert parse_json(text, "x") == expected
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-32"):
        assert parse_json(text.encode(encoding), "x") == expected


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ('{"a": NaN}', "NaN is not a JSON value; leave it out"),
        ("[-Infinity]", "-Infinity is not a JSON value; leave it out"),
        ("[-1e999]", "-1e999 is too large for a float"),
        ("-1" + "0" * 308, "an integer of 309 digits is too large for a float"),
        ("1" * 9999, "an integer of 9999 digits is too large for a float"),
        ('["\\uDC00"]', r"\udc00 is half a surrogate pair; write the whole character"),
        ('{"\\ud83d": 1}', r"\ud83d is half a surrogate pair; write the whole character"),
        (b'["\xed\xa0\x80"]', "'utf-8' codec can't decode byte 0xed in position 2: invalid contin"),
        (b'"caf\xe9"', "'utf-8' codec can't decode byte 0xe9 in position 4: "),
        ("[" * 100_000, "maximum recursion depth exceeded"),
        ("", "Expecting value: line 1 column 1 (char 0)"),
    ],
)
def test_anything_else_is_refused_in_one_line(content: str | bytes, problem: str):
    with pytest.raises(InputError) as error:
        parse_json(content, "a.jsonl:7")
    assert str(error.value).startswith(f"a.jsonl:7 must be JSON: {problem}")
    assert str(error.value).endswith(f". Received: {content[:80]!r}.")
    assert "\n" not in str(error.value)


def test_results_may_have_nan():
    nan, infinite, large = parse_json("[NaN, -Infinity, 1e999]", "x", allow_nan=True)
    assert math.isnan(nan) and (infinite, large) == (-math.inf, math.inf)


def test_half_pairs_are_replaced_on_demand():
    assert parse_json('["a\\ud83d", "\\ud83d\\ude00"]', "x", errors="replace") == ["a?", "😀"]
    with pytest.raises(InputError, match=r"character, or pass --errors=replace\. Received: "):
        parse_json('["a\\ud83d"]', "x", errors="strict")


def test_an_object_is_demanded():
    assert json_object('{"a": 1}', "x") == {"a": 1}
    with pytest.raises(InputError, match=r"^x must contain a JSON object\. Received: \[1\]\.$"):
        json_object("[1]", "x")
