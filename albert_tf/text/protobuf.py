"""The encoding of Protocol Buffers, in which sentencepiece stores its models.

Parsing concatenated messages merges them: repeated fields are joined, and of other fields the last
value remains. So a model is changed by appending fields to its bytes.
"""

import struct


def varint(value: int) -> bytes:
    """Return the encoding of a non-negative integer; a ValueError for a negative one."""
    if value < 0:
        raise ValueError(value)
    low, rest = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + varint(rest) if rest else bytes([low])


def bytes_field(number: int, value: bytes) -> bytes:
    """Return a field that holds bytes, a string or a message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def integer_field(number: int, value: int) -> bytes:
    """Return a field that holds an integer or an enum."""
    return varint(number << 3) + varint(value)


def float_field(number: int, value: float) -> bytes:
    """Return a field that holds a float of 32 bits."""
    return varint(number << 3 | 5) + struct.pack("<f", value)
