"""The wire format of `tf.train.Example`, as far as records need it; far faster than the messages.

An Example is a map from names to features; a feature is one packed list of integers (tag 0x1a) or
of floats (0x12), or one string of bytes (0x0a).
"""

import functools

import numpy as np

INTEGERS, FLOATS, BYTES = b"\x1a", b"\x12", b"\n"


@functools.lru_cache(2**12)
def varint(number: int) -> bytes:
    """A number that is not negative: 7 bits a byte, the lowest first."""
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def entry_head(name: str, kind: bytes, size: int) -> bytes:
    """What stands before the `size` bytes of a feature's value, as an entry of the map."""
    values = b"\n" + varint(size)
    feature = kind + varint(len(values) + size) + values
    key = b"\n" + varint(len(name.encode())) + name.encode()
    entry = key + b"\x12" + varint(len(feature) + size) + feature
    return b"\n" + varint(len(entry) + size) + entry


def encode_examples(features: dict[str, np.ndarray], largest: dict[str, int]) -> list[bytes]:
    """Serialized Examples, one for each row of the features, all of one size.

    Every varint has the width of the largest, which parsers accept.

    Args:
      features: [N, K] each; float32 are floats, others integers.
      largest: the largest value of a feature; 1 where it is not given.
    """
    count = len(next(iter(features.values())))
    parts: list[np.ndarray] = []
    for name in sorted(features):
        values = features[name]
        is_float = values.dtype == np.float32
        payload: np.ndarray = (
            values.astype("<f4").view(np.uint8)
            if is_float
            else _varints(values, largest.get(name, 1))
        )
        head = entry_head(name, FLOATS if is_float else INTEGERS, payload.shape[1])
        parts += [np.broadcast_to(np.frombuffer(head, np.uint8), (count, len(head))), payload]
    head = b"\n" + varint(sum(part.shape[1] for part in parts))
    parts.insert(0, np.broadcast_to(np.frombuffer(head, np.uint8), (count, len(head))))
    rows = np.concatenate(parts, axis=1)
    content, size = rows.tobytes(), rows.shape[1]
    return [content[begin : begin + size] for begin in range(0, count * size, size)]


def _varints(values: np.ndarray, largest: int) -> np.ndarray:
    """Integers [N, K] -> uint8 [N, K x width], each as wide as the varint of `largest`."""
    width = len(varint(largest))
    if width == 1:
        return values.astype(np.uint8)
    table: np.ndarray = _varint_table(largest).view(np.uint32)[
        :, 0
    ]  # one look-up for the bytes of a number
    return (
        table[values].view(np.uint8).reshape(*values.shape, 4)[..., :width].reshape(len(values), -1)
    )


@functools.lru_cache(8)
def _varint_table(largest: int) -> np.ndarray:
    """uint8 [largest + 1, 4]: the bytes of every number, below 2**28, as wide as the largest's."""
    numbers, width = np.arange(largest + 1), len(varint(largest))
    table: np.ndarray = np.zeros((largest + 1, 4), np.uint8)
    for byte in range(width):
        table[:, byte] = (numbers >> 7 * byte) & 127 | (128 if byte < width - 1 else 0)
    return table
