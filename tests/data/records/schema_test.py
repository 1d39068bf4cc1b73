"""Tests that what a schema writes it parses, and that it refuses what it cannot write."""

import numpy as np
import pytest
import tensorflow as tf

from data.building.compact_layout import CompactLayout
from data.building.sequences import Sequences
from data.records.schema import Feature, RecordSchema, compact_schema, ids_dtype


@pytest.fixture(params=[2**16, 2**16 + 1], ids=["uint16", "int32"])
def schema(request) -> RecordSchema:
    return compact_schema(20, request.param)


def record(**changes) -> dict[str, object]:
    plain = {"pieces": [7, 8, 9], "word_starts": [0b10100000], "first_length": 2, "document": 5}
    return plain | changes


def test_records_come_back_padded_with_their_lengths(schema):
    top = 2**16 - 1  # the highest id that has two bytes
    rows = [record(), record(pieces=[top] * 20, word_starts=[255] * 3, document=2**62)]
    parsed = schema.parse(tf.constant([schema.encode(row) for row in rows]))
    parsed = {name: value.numpy() for name, value in parsed.items()}
    assert parsed["pieces"].tolist() == [[7, 8, 9] + [0] * 17, [top] * 20]
    assert parsed["pieces_length"].tolist() == [3, 20]
    assert parsed["word_starts"].tolist() == [[160, 0, 0], [255] * 3]
    assert parsed["word_starts_length"].tolist() == [1, 3]
    assert parsed["first_length"].tolist() == [2, 2]
    assert parsed["document"].tolist() == [5, 2**62]


def test_the_type_of_pieces_follows_the_vocabulary(schema):
    pieces = schema.features[0]
    parsed = schema.parse(tf.constant([schema.encode(record())]))
    assert parsed["pieces"].dtype == pieces.dtype
    assert parsed["pieces"].shape[1:] == [20] and parsed["word_starts"].shape[1:] == [3]
    assert [ids_dtype(size) for size in (30_000, 2**16, 2**16 + 1)] == ["uint16"] * 2 + ["int32"]
    assert (2**16 - 1) <= np.iinfo(ids_dtype(2**16)).max


def test_the_bytes_are_the_same_in_every_process(schema):
    """Features in the order of their names; protobuf's own order changes from run to run."""
    wire = schema.encode(record())
    names = sorted(feature.name for feature in schema.features)
    places = [wire.index(name.encode()) for name in names]
    assert places == sorted(places)
    assert b"\x07\x00\x08\x00" in wire or b"\x07\x00\x00\x00\x08" in wire  # little-endian


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"extra": 1}, r"a record must have \['pieces'.*Received: .*'extra'"),
        ({"pieces": [1] * 21}, r"`pieces` must be one row of at most 20.*\(21,\)"),
        ({"pieces": [[1, 2]]}, r"`pieces` must be one row of at most 20.*\(1, 2\)"),
    ],
)
def test_records_that_do_not_fit_are_refused(schema, change, message):
    with pytest.raises(ValueError, match=message):
        schema.encode(record(**change))


def test_a_missing_feature_is_refused(schema):
    rest = record()
    del rest["document"]
    with pytest.raises(ValueError, match="a record must have"):
        schema.encode(rest)


def test_ids_that_the_type_cannot_hold_are_refused():
    with pytest.raises(OverflowError, match="65536 out of bounds for uint16"):
        compact_schema(20, 100).encode(record(pieces=[2**16]))


def test_a_record_of_another_schema_is_not_parsed(schema):
    other = RecordSchema((Feature("text", "something else"),)).encode({"text": 1})
    with pytest.raises(tf.errors.InvalidArgumentError, match="is required but could not be found"):
        schema.parse(tf.constant([other]))


def test_the_description_names_every_feature(schema):
    rows = schema.describe().splitlines()
    assert len(rows) == 2 + len(schema.features)
    for feature, row in zip(schema.features, rows[2:], strict=True):
        assert f"`{feature.name}`" in row and feature.doc in row
    assert "x at most 20, raw bytes" in rows[2] and "| int64 |" in rows[4]


@pytest.mark.parametrize("vocab_size", [2**16, 2**16 + 1])
def test_batches_are_encoded_as_the_messages_are(vocab_size):
    """Byte for byte, with segments of all lengths and numbers of documents of all widths."""
    rng = np.random.default_rng(0)
    is_word_start = rng.random(vocab_size) < 0.5
    first, second = rng.integers(1, 150, 300), rng.integers(0, 150, 300)
    sequences = Sequences(
        keys=np.zeros(300, np.uint64),
        documents=rng.integers(0, 2 ** rng.integers(1, 62, 300)),
        labels=np.zeros(300, np.uint8),
        first=first.astype(np.int32),
        second=second.astype(np.int32),
        pieces=rng.integers(0, vocab_size, int(first.sum() + second.sum())).astype(
            ids_dtype(vocab_size)
        ),
    )
    schema = compact_schema(300, vocab_size)
    rows = np.split(sequences.pieces, np.cumsum(sequences.lengths)[:-1])
    expected = [
        schema.encode(
            {
                "pieces": pieces,
                "word_starts": np.packbits(is_word_start[pieces]),
                "first_length": int(a),
                "document": int(document),
            }
        )
        for pieces, a, document in zip(rows, first, sequences.documents, strict=True)
    ]
    assert CompactLayout(300, is_word_start).encode(sequences) == expected
