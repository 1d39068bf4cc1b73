"""Long values in messages, and errors of the disk."""

import errno
import tempfile

import pytest

from albert_tf.runtime.errors import (
    MachineError,
    listed,
    note_once,
    shortened,
    writing,
    writing_temporary,
)


def test_long_lists_are_shortened():
    names = [f"n{i}" for i in range(1500)]
    assert listed(names[:10]) == "n0, n1, n2, n3, n4, n5, n6, n7, n8, n9"
    assert listed(names, 2) == "n0, n1 and 1,498 more"
    assert shortened(("a", "b")) == "('a', 'b')" and shortened("ab") == "'ab'"
    assert shortened(names[:11]) == (
        "('n0', 'n1', 'n2', 'n3', 'n4', 'n5', 'n6', 'n7', 'n8', 'n9' and 1 more)"
    )


def test_a_note_has_escapes_in_place_of_what_a_terminal_obeys(capsys):
    note_once("文 é.txt \x1b]0;x\x07\u202etxt.exe")
    note_once("文 é.txt \x1b]0;x\x07\u202etxt.exe")
    assert capsys.readouterr().err == "note: 文 é.txt \\x1b]0;x\\x07\\u202etxt.exe\n"


def test_an_array_that_does_not_fit_on_the_disk():
    """As NumPy says it, without the system's number."""
    with pytest.raises(MachineError, match="'a.npy' cannot be written: No space left on device"):
        with writing("a.npy"):
            raise OSError("1000000 requested and 131056 written")


@pytest.mark.parametrize(
    ("folder", "error", "message"),
    [
        (
            "/t",
            OSError(errno.ENOSPC, "No space left on device"),
            "written in '/t': No space left on device. Set TMPDIR to a folder that has room",
        ),
        (None, FileNotFoundError(errno.ENOENT, "No usable one in [...]"), "written: No usable one"),
        (None, OSError("a cache is needed"), "written: a cache is needed. Set TMPDIR"),
    ],
)
def test_temporary_files(folder, error, message, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", folder)
    with pytest.raises(MachineError) as raised, writing_temporary():
        raise error
    assert message in str(raised.value)
