"""Recognition of content that is no UTF-8 text, by how it begins."""

import codecs
import re

PEEKED_BYTES = 2**13
_UNPACK = "Unpack the file, or let its name end in {}."
_CONVERT = "Convert the file with iconv -f {} -t UTF-8."
_LEAVE_OUT = "Leave the file out, or convert it to text."
# How the content begins, what it is, and the remedy.
_KINDS = tuple(
    (re.compile(begin, re.DOTALL), kind, remedy)
    for begin, kind, remedy in (
        (rb"PK\x03\x04.*xl/", "an Excel workbook", "Save it as CSV UTF-8."),
        (rb"PK\x03\x04.*word/", "a Word document", "Save it as plain text in UTF-8."),
        (rb"PK\x03\x04.*(?:ppt/|mimetypeapplication/)", "an Office document or a book", _LEAVE_OUT),
        (rb"\xd0\xcf\x11\xe0", "an Office document", "Save it as plain text or CSV in UTF-8."),
        (rb"\{\\rtf", "a document in RTF", "Save it as plain text in UTF-8."),
        (rb"PK\x03\x04", "a zip archive", _UNPACK.format(".zip")),
        (rb"\x1f\x8b\x08", "gzip data", _UNPACK.format(".gz")),
        (rb"BZh[1-9]1AY&SY", "bzip2 data", _UNPACK.format(".bz2")),
        (rb"\xfd7zXZ\0", "xz data", _UNPACK.format(".xz")),
        (rb"\x28\xb5\x2f\xfd", "Zstandard data", _UNPACK.format(".zst")),
        (
            rb"7z\xbc\xaf|Rar!\x1a\x07|\x04\x22\x4d\x18|.{257}ustar",
            "an archive",
            "Unpack the file.",
        ),
        (rb"\xff\xfe\0\0|\0\0\xfe\xff", "UTF-32", _CONVERT.format("UTF-32")),
        (rb"\xff\xfe|\xfe\xff", "UTF-16", _CONVERT.format("UTF-16")),
        (rb"%PDF-", "a PDF document", _LEAVE_OUT),
        (
            rb"\x89PNG|\xff\xd8\xff|GIF8[79]a|II\*\0|MM\0\*|RIFF....WEBP|BM.{4}\0{4}",
            "an image",
            _LEAVE_OUT,
        ),
        (rb"RIFF....WAVE|ID3[\x02-\x04]|OggS\0|fLaC|.{4}ftyp", "sound or a video", _LEAVE_OUT),
        (rb"SQLite format 3\0", "an SQLite database", _LEAVE_OUT),
        (
            rb"PAR1\x15|ARROW1\0",
            "a parquet or Arrow file",
            "Let its name end in .parquet or .arrow, or pass --corpus=parquet:.",
        ),
        (
            rb"\x89HDF|\x93NUMPY",
            "a table or array in a binary format",
            "Convert it to CSV, JSON lines or text.",
        ),
    )
)


# Formats that can be ASCII throughout, and what a text about them would not have.
_ASCII_KINDS = re.compile(rb"\{\\rtf1?[\\{\s]|%PDF-\d\.\d\s.*?\d \d+ obj\b", re.DOTALL)


def content_problem(content: bytes, is_packed: bool = False) -> str:
    """Return what a file is that begins with `content`, and the remedy; "" for a text.

    Args:
      content: the beginning.
      is_packed: the content was in a compressed file.
    """
    begin = content[:PEEKED_BYTES]
    for pattern, kind, remedy in _KINDS:
        if pattern.match(begin) and (_ASCII_KINDS.match(begin) or not is_text(begin)):
            remedy = "Unpack the file." if is_packed and remedy.startswith("Unpack") else remedy
            return f"Received: {kind}. {remedy}"
    if 3 * begin.count(0) > len(begin):  # a few NUL bytes may be in a text
        return f"Received: binary data or UTF-16, with NUL bytes. {_LEAVE_OUT}"
    return ""


def is_text(begin: bytes) -> bool:
    """Return True if a text can begin so: with UTF-8, and without control characters but blanks."""
    try:
        codecs.getincrementaldecoder("utf-8")().decode(begin)  # may end inside a character
    except UnicodeDecodeError:
        return False
    return not is_binary(begin)


def is_binary(content: bytes) -> bool:
    """Return True if content has control characters that no text in any encoding has."""
    return bool(re.search(rb"[\0-\x08\x0e-\x1a]", content))
