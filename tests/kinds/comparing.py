"""Comparisons of predictions, and the inputs of a signature, for the conformance suite."""

from collections.abc import Sequence
from typing import Any

import pytest

from tests.kinds.cases import Case

ODD = ("", " \t", "a\0b", "naïve “x” 漢字 🙂", "the value of the object " * 40)


def odd_examples(case: Case) -> list[Any]:
    """Examples of unusual texts."""
    return [case.unlabeled(text) for text in ODD]


def same(found: Any, wanted: Any) -> None:
    """Predictions are equal, up to float32's rounding."""
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert found.keys() == wanted.keys()
        for key, value in wanted.items():
            same(found[key], value)
    elif isinstance(wanted, list):
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            same(one, other)
    elif isinstance(wanted, float):
        assert found == pytest.approx(wanted, abs=2e-5), f"{found} instead of {wanted}"
    else:
        assert found == wanted, f"{found!r} instead of {wanted!r}"


def columns_of(names: Sequence[str], examples: Sequence[Any]) -> dict[str, list]:
    """The inputs of a signature for examples, by the names of their texts."""
    pair = ("text_a", "text_b") if "text_a" in names else ("text",)
    renamed = {"first": pair[0], "second": pair[-1]}
    found: dict[str, list] = {name: [] for name in names}
    for example in examples:
        texts: dict[str, list[str]] = {}
        for name, text in example.named_texts:
            texts.setdefault(renamed.get(name, name), []).append(text)
        for name in names:
            is_list = name in ("options", "candidates")
            found[name].append(texts[name] if is_list else texts[name][0])
    return found
