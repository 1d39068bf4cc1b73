"""Tests that text is read alike from plain and compressed files, and that each fault is named."""

import bz2
import gzip
import io
import lzma
import os
import re
import socket
import stat
import zipfile

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.compression import format_of, is_compressed, without_suffix
from albert_tf.runtime.files.text_files import MAX_LINE_BYTES, files_of, lines_of, text_of


def zipped(**members):
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return stream.getvalue()


def zstd(content):
    zstandard = pytest.importorskip("zstandard")
    half = len(content) // 2  # two frames, the first of unknown size
    first = zstandard.ZstdCompressor(write_content_size=False).compress(content[:half])
    return first + zstandard.ZstdCompressor().compress(content[half:])


COMPRESSED = {
    ".gz": gzip.compress,
    ".bz2": bz2.compress,
    ".xz": lzma.compress,
    ".zst": zstd,
    ".zip": lambda content: zipped(**{"a.txt": content}),
}
NAMES = {
    ".gz": "gzip",
    ".bz2": "bzip2",
    ".xz": "xz",
    ".zst": "Zstandard",
    ".zip": "zip",
}
TEXT = "\ufeffOne\r\n\nTwo\u2028é 中\n" + "x" * 300_000 + "\nlast"


@pytest.mark.parametrize("suffix", ["", *COMPRESSED])
def test_the_same_lines_from_every_format(tmp_path, suffix):
    content = TEXT.encode()
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(COMPRESSED[suffix](content) if suffix else content)
    expected = ["One\r\n", "\n", "Two\u2028é 中\n", "x" * 300_000 + "\n", "last"]
    assert list(lines_of(str(path))) == list(enumerate(expected, start=1))
    assert text_of(str(path)) == TEXT[1:]
    blocks = [list(file.blocks(block_bytes=6)) for file in files_of(str(path))]
    assert blocks == [["One", "\nTwo\u2028é 中", "x" * 300_000, "last"]]
    assert format_of(str(path)) == ".txt" and without_suffix(str(path)) == f"{tmp_path}/a.txt"
    assert is_compressed(str(path)) == bool(suffix)


@pytest.mark.parametrize("suffix", COMPRESSED)
@pytest.mark.parametrize("kept", [0.5, 0.98, -1])
def test_a_damaged_archive_is_named(tmp_path, suffix, kept):
    whole = COMPRESSED[suffix](b"".join(b"%d" % n for n in range(99_999)))
    content = b"\xff" * 99 if kept < 0 else whole[: int(len(whole) * kept)]
    path = tmp_path / f"a.txt{suffix}"
    path.write_bytes(content)
    with pytest.raises(InputError) as error:
        list(lines_of(str(path), "--input"))
    start = f"--input: {path} must be a complete {NAMES[suffix]} file: "
    assert str(error.value).startswith(start)
    assert str(error.value).endswith(" Download it again.")


def test_the_files_of_a_zip_come_by_name_without_hidden_ones(tmp_path, capsys):
    path = tmp_path / "a.zip"
    path.write_bytes(
        zipped(
            **{
                "b.txt": "B\n",
                "d/": "",
                "d/c.txt.bz2": bz2.compress(b"C"),
                "a.txt": "A",
                "__MACOSX/._a.txt": b"\0\5\x16\7\0",
                "d/.DS_Store": b"\0\0\0\1Bud1",
            }
        )
    )
    found = [(file.name, file.text()) for file in files_of(str(path))]
    names = [f"{path}/{name}" for name in ("a.txt", "b.txt", "d/c.txt.bz2")]
    assert found == list(zip(names, ("A", "B\n", "C"), strict=True))
    assert sorted(os.listdir(tmp_path)) == ["a.zip"]
    hidden = f"{path}: its hidden files and links are left out: __MACOSX/._a.txt, d/.DS_Store."
    assert capsys.readouterr().err == f"note: {hidden}\n"
    with pytest.raises(InputError) as error:
        list(lines_of(str(path), "--input"))
    assert str(error.value) == (
        f"--input: {path} must have the extension of the file in it, {path}/a.txt, before its own. "
        "Rename it to a.txt.zip, or unpack it."
    )
    assert not capsys.readouterr().err
    path = path.rename(tmp_path / "a.txt.zip")
    with pytest.raises(InputError, match=r"a\.txt\.zip must hold one file\. Received: 3\."):
        list(lines_of(str(path)))


def test_a_name_in_a_zip_has_escapes_in_place_of_what_a_terminal_obeys(tmp_path, capsys):
    name, shown = "\x1b[2Ja.txt", f"{tmp_path}/a.zip/\\x1b[2Ja.txt"
    (tmp_path / "a.zip").write_bytes(zipped(**{name: "x" * (MAX_LINE_BYTES + 9)}))
    for file in files_of(str(tmp_path / "a.zip")):
        assert file.name == shown and sum(map(len, file.blocks())) == MAX_LINE_BYTES + 9
    assert capsys.readouterr().err.startswith(f"note: {shown}:1 has more than")


def test_names_of_a_zip_may_begin_with_the_folder_itself(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(**{"./a.txt": "A", "../b.txt": "B", "./.c.txt": "C"}))
    assert [file.text() for file in files_of(str(tmp_path / "a.zip"))] == ["B", "A"]


def test_a_name_in_a_zip_that_is_not_utf_8_is_damage(tmp_path):
    content = zipped(**{"\xe9.txt": "A"}).replace("\xe9".encode(), b"\xe9\xe9")
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.zip must be a complete zip file: it is damaged\. Do"):
        list(files_of(str(tmp_path / "a.zip")))


def test_a_link_in_a_zip_is_no_text(tmp_path, capsys):
    link = zipfile.ZipInfo("b.txt")
    link.create_system, link.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(tmp_path / "a.txt.zip", "w") as archive:
        archive.writestr("a.txt", "A")
        archive.writestr(link, "../somewhere/else.txt")
    assert text_of(str(tmp_path / "a.txt.zip")) == "A"
    assert capsys.readouterr().err == (
        f"note: {tmp_path}/a.txt.zip: its hidden files and links are left out: b.txt.\n"
    )


_DIRECTORY = b"PK\1\2"  # begins the entry of a file in the directory


@pytest.mark.parametrize(  # the file's offset, name or size
    ("place", "value"), [(42, 1), (43, 1), (44, 255), (45, 255), (28, 0), (24, 1)]
)
def test_a_zip_with_a_damaged_directory_is_named(tmp_path, place, value):
    content = bytearray(zipped(**{"a.txt": "A" * 300}))
    content[content.index(_DIRECTORY) + place] = value
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError) as error:
        [file.text() for file in files_of(str(tmp_path / "a.zip"))]
    assert re.fullmatch(
        r".*/a\.zip(/.*)? must be a complete zip file: it is damaged\. Download it again\.",
        str(error.value),
    )


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_a_text_that_is_not_compressed_is_named(tmp_path, suffix):
    path = tmp_path / f"a.txt{suffix}"
    path.write_text("a text, é\n" * 3000, encoding="utf-8")
    with pytest.raises(InputError) as error:
        text_of(str(path), "--input")
    assert str(error.value) == (
        f"--input: {path} must be a complete {NAMES[suffix]} file. Received: a text that is not "
        "compressed. Rename it to a.txt, or download it again."
    )


def test_an_encrypted_zip_is_named(tmp_path):
    content = bytearray(zipped(**{"a.txt": "A", "b.txt": "B"}))
    content[content.rindex(_DIRECTORY) + 8] |= 1  # the last file's entry in the directory
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.zip/b\.txt must not be encrypted\."):
        [file.text() for file in files_of(str(tmp_path / "a.zip"))]


def test_an_unknown_method_of_a_zip_is_named(tmp_path):
    content = bytearray(zipped(**{"a.txt": "A"}))
    content[content.index(_DIRECTORY) + 10] = content[8] = 9
    (tmp_path / "a.zip").write_bytes(content)
    with pytest.raises(InputError, match=r"a\.zip/a\.txt cannot be unpacked: .*not supported"):
        [file.text() for file in files_of(str(tmp_path / "a.zip"))]


def test_a_line_that_is_too_long_is_divided_at_a_blank_or_refused(tmp_path, capsys):
    path = tmp_path / "a.txt"
    words, letters = "word " * (MAX_LINE_BYTES // 4), "é" * (MAX_LINE_BYTES // 2 + 9)
    path.write_text(f"First\n{words}\n-{letters}\n{words[:99]}")
    (file,) = files_of(str(path), "--corpus")
    blocks = list(file.blocks())
    whole = f"First\n{words}\n-{letters}\n{words[:99]}"
    assert "".join(blocks).replace("\n", "") == whole.replace("\n", ""), "all of it"
    assert len(blocks[0]) == 6 + MAX_LINE_BYTES // 5 * 5, "ends after the last blank"
    assert all(len(block.encode()) <= 6 + MAX_LINE_BYTES for block in blocks)
    assert capsys.readouterr().err == (f"note: {path}:2 has more than 16 MiB, so it is divided.\n")
    with pytest.raises(InputError, match=r"^--corpus: .*a\.txt:2 must have at most 16 MiB, "):
        list(file.lines())
    assert file.text() == path.read_text()
    with pytest.raises(InputError, match=r"a\.txt must have at most 1 MiB, because .* Divide"):
        file.text(max_bytes=2**20)
    path.write_text("漢" * 100, encoding="utf-8")  # 300 bytes
    assert len(file.text(max_bytes=300)) == 100
    with pytest.raises(InputError, match="must have at most"):
        file.text(max_bytes=299)
    path.write_text("\n" + "x" * MAX_LINE_BYTES + "\n" + "y" * MAX_LINE_BYTES)
    assert [number for number, _ in file.lines()] == [1, 2, 3]


def test_no_byte_is_lost_where_no_character_ends(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"\x80" * (MAX_LINE_BYTES + 9))
    (file,) = files_of(str(path), errors="replace")
    assert "".join(file.blocks()) == "\ufffd" * (MAX_LINE_BYTES + 9)


@pytest.mark.parametrize(
    ("errors", "advice"),
    [(None, ""), ("strict", ", or pass --errors=replace"), ("replace", None)],
)
def test_bytes_that_are_not_utf8(tmp_path, errors, advice):
    path = tmp_path / "a.txt.gz"
    path.write_bytes(gzip.compress(b"Good line.\n" * 100 + b"caf\xe9.\n"))
    (file,) = files_of(str(path), "--corpus", errors)
    if advice is None:
        assert "".join(file.blocks()).endswith("caf\ufffd.")
        return
    with pytest.raises(InputError) as error:
        list(file.blocks(block_bytes=64))
    assert str(error.value) == (
        f"--corpus: {path}:101 must be UTF-8. Received: byte 0xe9 at offset 1103. Convert the "
        f"file, for example with iconv -f WINDOWS-1252 -t UTF-8{advice}."
    )


TAR = b"a.txt".ljust(257, b"\0") + b"ustar\x0000"
BINARY = {
    "gzip": (gzip.compress(b"Text."), "gzip data. Unpack the file, or let its name end in .gz."),
    "bzip2": (bz2.compress(b"Text."), "bzip2 data. Unpack the file, or let its name end in .bz2."),
    "xz": (lzma.compress(b"Text."), "xz data. Unpack the file, or let its name end in .xz."),
    "zst": (b"\x28\xb5\x2f\xfd\x20\5", "Zstandard data. Unpack"),
    "zip": (zipped(a="A"), "a zip archive. Unpack the file, or let its name end in .zip."),
    "xlsx": (zipped(**{"xl/workbook.xml": "A"}), "an Excel workbook. Save it as CSV UTF-8."),
    "docx": (zipped(**{"[Content_Types].xml": "A", "word/document.xml": "A"}), "a Word document."),
    "xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Office document."),
    "tar": (TAR, "an archive. Unpack the file."),
    "pdf": (b"%PDF-1.7\n%\xe2\xe3\n", "a PDF document. Leave the file out, or convert it"),
    "png": (b"\x89PNG\r\n\x1a\n\0\0", "an image."),
    "jpeg": (b"\xff\xd8\xff\xe0\0\x10JFIF", "an image."),
    "sqlite": (b"SQLite format 3\0\x10", "an SQLite database."),
    "parquet": (b"PAR1\x15\4\x15", "a parquet or Arrow file. Let its name end in .parquet"),
    "utf-16": ("Text.\n".encode("utf-16"), "UTF-16. Convert the file with iconv -f UTF-16 -t"),
    "utf-32": ("Text.\n".encode("utf-32"), "UTF-32. Convert the file with iconv -f UTF-32 -t"),
    "utf-16le": ("Text.\n".encode("utf-16-le"), "binary data or UTF-16, with NUL bytes."),
    ".DS_Store": (b"\0\0\0\1Bud1\0\0\x10\0", "binary data or UTF-16, with NUL bytes."),
    "deflate": (b"x\x9c\xcbH\xcd\xc9\xc9\x07\x00\x06,\x02\x15", "binary data. Leave"),
    "compress": (
        b"\x1f\x9d\x90h\xca\xb0a\xf3F\x05\x01",
        "binary data. Leave the file out, or conv",
    ),
    "random": (b"\x7fELF\2\1\1\0\xb0\xff text", "binary data. Leave"),
}


@pytest.mark.parametrize("errors", ["strict", "replace"])
@pytest.mark.parametrize("case", BINARY)
def test_binary_content_is_named_and_never_replaced(tmp_path, case, errors):
    content, message = BINARY[case]
    for path in (tmp_path / "a.txt", tmp_path / "a.txt.gz"):
        path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
        (file,) = files_of(str(path), "--corpus", errors)
        for read in (file.require_text, file.text):
            with pytest.raises(InputError) as error:
                read()
            assert str(error.value).startswith(f"--corpus: {path}")
            if path.suffix == ".gz":
                message = re.sub("Unpack the file, .*", "Unpack the file.", message)
            assert f" must be text. Received: {message}" in str(error.value)
            assert "--errors" not in str(error.value)


def test_a_few_nul_bytes_are_text(tmp_path):
    path = tmp_path / "a.txt"
    path.write_bytes(b"One\0 and\0 two.\n")
    assert text_of(str(path)) == "One\0 and\0 two.\n"


def test_a_path_that_is_no_file_is_named_and_never_waited_for(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    os.mkfifo("pipe")
    os.mkdir("folder")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        for path, kind in {
            "pipe": "a pipe",
            "folder": "a folder",
            "socket": "a socket",
            "/dev/zero": "a device",
        }.items():
            with pytest.raises(InputError) as error:
                text_of(path, "--texts")
            assert str(error.value) == (
                f"--texts: {path} must be a file. Received: {kind}. Write its content to a file."
            )
    with pytest.raises(InputNotFoundError) as error:
        text_of("nothing", "--texts")
    assert str(error.value) == f"--texts: no file 'nothing' (working directory {tmp_path})."


def test_stdin(monkeypatch):
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as stream:
        stream.write(b"One\nTwo")
    with os.fdopen(reader, "rb") as stream:
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(stream))
        assert list(lines_of("-")) == [(1, "One\n"), (2, "Two")]


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("size", [1, 7, 2**18])
def test_lines_may_end_in_cr_alone(tmp_path, suffix, size):
    path = tmp_path / f"a.txt{suffix}"
    for content, lines in {
        b"\xef\xbb\xbfOne\r\rTwo\r": ["One\n", "\n", "Two\n"],
        b"One\rTwo": ["One\n", "Two"],
        b"\r": ["\n"],
        b"One\rTwo\r\nSix\r": ["One\rTwo\r\n", "Six\r"],
    }.items():
        path.write_bytes(COMPRESSED[suffix](content) if suffix else content)
        (file,) = files_of(str(path))
        assert list(file.lines(size)) == list(enumerate(lines, start=1))
        assert "\n".join(file.blocks(size)) == "".join(lines).replace("\r\n", "\n").replace(
            "\r", "\n"
        ).removesuffix("\n")


def test_a_long_file_of_which_the_lines_end_in_cr_first(tmp_path, capsys):
    """What follows the first 16 MiB may have other line ends."""
    line = b"x" * (2**20 - 1)
    path = tmp_path / "a.txt"
    path.write_bytes((line + b"\r") * 16 + line[1:] + b"\r\r\n" + line + b"\nLast\r\r\n")
    (file,) = files_of(str(path))
    lengths = [(number, len(text)) for number, text in file.lines()]
    expected = [2**20] * 16 + [2**20 - 1, 1, 2**20, 5, 1]
    assert lengths == list(enumerate(expected, start=1))
    assert sum(block.count("\n") + 1 for block in file.blocks()) == 21
    assert not capsys.readouterr().err


def test_a_long_file_of_empty_lines_that_end_in_cr(tmp_path):
    path, lines = tmp_path / "a.txt", 17 * 2**20  # more than 16 MiB; byte by byte, it takes hours
    path.write_bytes(b"\r" * lines + b"\nLast")
    (file,) = files_of(str(path))
    assert "\n".join(file.blocks()) == "\n" * lines + "Last"


def test_every_cr_ends_a_line_of_text(tmp_path):
    """Also beside other line ends; but several CR before one LF are one line end."""
    path = tmp_path / "a.txt"
    path.write_bytes(b"One.\rTwo.\n\nSix.\r\r\nTen.\r\rEnd.\r\n")
    (file,) = files_of(str(path))
    assert list(file.blocks()) == ["One.\nTwo.\n\nSix.\nTen.\n\nEnd."]


@pytest.mark.parametrize("suffix", [suffix for suffix in COMPRESSED if suffix != ".zip"])
def test_only_zeros_or_another_stream_may_follow_a_compressed_text(tmp_path, suffix):
    whole = COMPRESSED[suffix](b"One\n" * 999)
    path = tmp_path / f"a.txt{suffix}"
    for more in (b"\0" * 4000, whole, b"\0" * 512 + whole):
        path.write_bytes(whole + more)
        assert text_of(str(path)) == "One\n" * 999 * (2 if whole in more else 1)
    damage = [b"", b"\0" * 99, whole + b"garbage", whole + b"\0\0x", whole + whole[:-9], whole[:9]]
    for content in damage:
        path.write_bytes(content)
        with pytest.raises(InputError, match=f"must be a complete {NAMES[suffix]} file: ") as error:
            text_of(str(path))
        assert ("the file is empty" in str(error.value)) == (content == b"")
    for member, content in {"a": b"", "b": whole}.items():
        (tmp_path / "a.zip").write_bytes(zipped(**{f"{member}.txt{suffix}": content}))
        file = next(files := files_of(str(tmp_path / "a.zip")))
        if content:
            assert file.text() == "One\n" * 999
        else:
            with pytest.raises(InputError, match=rf"a\.zip/a\.txt\{suffix} must be .* is empty"):
                file.text()
        files.close()


@pytest.mark.parametrize("suffix", COMPRESSED)
def test_suffixes_in_upper_case(tmp_path, suffix):
    path = tmp_path / f"X.TXT{suffix.upper()}"
    path.write_bytes(COMPRESSED[suffix](b"One"))
    assert text_of(str(path)) == "One"
    assert format_of(str(path)) == ".txt" and without_suffix(str(path)) == f"{tmp_path}/X.TXT"


def test_an_archive_in_an_archive_is_named(tmp_path):
    (tmp_path / "a.zip").write_bytes(zipped(**{"b.ZIP": zipped(**{"c.txt": "C"})}))
    with pytest.raises(InputError) as error:
        [file.require_text() for file in files_of(str(tmp_path / "a.zip"))]
    assert str(error.value) == (
        f"{tmp_path}/a.zip/b.ZIP must be text. Received: a zip archive. Unpack the file."
    )


TEXTS_WITH_MAGIC = [
    "%PDF-1.4 files are how a log begins.\n",
    "GIF89a, é and other formats\n",
    "BZh91AY&SY begins a file of bzip2.\n",
    "fLaC\n",
    "BM25 ranks\n",
    "Lossy 4ftyp\n",
]


@pytest.mark.parametrize("text", TEXTS_WITH_MAGIC)
def test_a_text_may_begin_like_a_binary_file(tmp_path, text):
    (tmp_path / "a.txt").write_text(text + "é" * 9000)
    assert text_of(str(tmp_path / "a.txt")) == text + "é" * 9000


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"%PDF-1.4\n1 0 obj\n<< /Type /Catalog >>\nendobj\n", "a PDF document"),
        (b"GIF89a\1\0\1\0\x80", "an image"),
        (b"{\\rtf1\\ansi Text.}", "a document in RTF"),
    ],
)
def test_binary_files_without_bytes_beyond_ascii(tmp_path, content, kind):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(InputError, match=f"must be text. Received: {kind}"):
        text_of(str(tmp_path / "a.txt"))
