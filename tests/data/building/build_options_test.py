"""Tests of the options that each layout takes."""

import dataclasses

import pytest

from albert_tf.runtime.errors import InputError
from data.building.options import BuildOptions, check

COMPACT = BuildOptions("text:a", "tokenizer", "out")
CHANGES = {
    "feature_names": "model_garden",
    "masking_rate": 0.2,
    "max_predictions": 3,
    "max_ngram": 1,
    "reference_quirks": True,
}


@pytest.mark.parametrize("name", CHANGES)
def test_masks_are_of_the_reference_layout(name):
    change = {name: CHANGES[name]}
    with pytest.raises(InputError, match=f"--{name} is only for --layout=reference"):
        dataclasses.replace(COMPACT, **change)
    check(dataclasses.replace(COMPACT, layout="reference", **change))


def test_compact_records_are_no_longer_than_masking_can_read():
    check(dataclasses.replace(COMPACT, seq_length=8192))
    longer = dataclasses.replace(COMPACT, seq_length=8193)
    with pytest.raises(InputError, match="--seq_length must be at most 8192.*Received: 8193"):
        check(longer)
    check(dataclasses.replace(longer, layout="reference"))
