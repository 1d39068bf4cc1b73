"""Writes TFRecord files without TensorFlow, whose import takes longer than most builds write.

A record is its length (uint64, little endian), the masked CRC-32C of those eight bytes, the bytes
and their masked CRC-32C.
"""

import struct
from collections.abc import Iterable

import google_crc32c


def write_records(path: str, records: Iterable[bytes]) -> None:
    """Writes the records to a new file."""
    with open(path, "wb") as file:
        for record in records:
            length = struct.pack("<Q", len(record))
            file.write(length + _masked_crc(length) + record + _masked_crc(record))


def _masked_crc(data: bytes) -> bytes:
    """Rotated and shifted, so that a checksum of bytes that hold checksums stays a good one."""
    crc = google_crc32c.value(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF)
