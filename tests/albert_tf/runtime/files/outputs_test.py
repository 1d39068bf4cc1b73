"""Tests that outputs appear complete or not at all, and that nothing foreign is overwritten."""

import errno
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

import pytest

from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.files import outputs

ROOT = pathlib.Path(__file__).resolve().parents[4]


def fill(path, **changes):
    with outputs.new_folder(str(path), **changes) as work:
        with open(os.path.join(work, "a"), "w") as file:
            file.write("x")
        assert not os.path.isdir(path) or not os.listdir(path)


@pytest.mark.parametrize("path", ["new", "new/", "deep/er/new", "./new"])
def test_appears_when_complete(tmp_path, path):
    fill(os.path.join(tmp_path, path))
    assert os.listdir(os.path.join(tmp_path, path)) == ["a"]
    assert [name for _, folders, _ in os.walk(tmp_path) for name in folders if "." in name] == []


def test_a_relative_path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fill("new")
    assert os.listdir(tmp_path) == ["new"]


def test_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "empty").mkdir()
    fill(tmp_path / "empty")
    assert os.listdir(tmp_path) == ["empty"]


def test_a_link_to_an_empty_folder_is_taken(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    fill(tmp_path / "link")
    assert os.listdir(tmp_path / "elsewhere") == ["a"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("path", ["new", "deep/er/new"])
def test_failure_leaves_nothing(tmp_path, error, path):
    with pytest.raises(error), outputs.new_folder(str(tmp_path / path)) as work:
        with open(os.path.join(work, "a"), "w"):
            pass
        raise error
    assert os.listdir(tmp_path) == []


def test_failure_leaves_what_was_there(tmp_path):
    (tmp_path / "there").mkdir()
    with pytest.raises(KeyError), outputs.new_folder(str(tmp_path / "there" / "new")):
        raise KeyError
    assert os.listdir(tmp_path) == ["there"]


def test_leftovers_of_a_killed_process_are_cleared(tmp_path):
    code = (
        "import os, sys\n"
        "from albert_tf.runtime.files import outputs\n"
        "with outputs.new_folder(sys.argv[1]) as work:\n"
        "    open(os.path.join(work, 'torn'), 'w').close()\n"
        "    os._exit(9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code, tmp_path / "new"], cwd=ROOT).returncode == 9
    assert (tmp_path / ("new" + outputs.SUFFIX) / "torn").exists()
    fill(tmp_path / "new")
    assert os.listdir(tmp_path / "new") == ["a"]
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("error", [OSError, MachineError, KeyboardInterrupt])
def test_work_of_the_same_identity_is_continued(tmp_path, error):
    with pytest.raises(error), outputs.new_folder(str(tmp_path / "new"), identity="one") as work:
        pathlib.Path(work, "a").touch()
        pathlib.Path(work, outputs.MARK + ".done").touch()
        raise error
    assert os.listdir(tmp_path) == ["new.incomplete"]
    with outputs.new_folder(str(tmp_path / "new"), identity="one") as work:
        assert sorted(os.listdir(work)) == [outputs.MARK, outputs.MARK + ".done", "a"]
    assert os.listdir(tmp_path) == ["new"] and os.listdir(tmp_path / "new") == ["a"]


@pytest.mark.parametrize("identity", ["", "one"])
def test_a_complete_folder_that_cannot_be_renamed_is_kept(tmp_path, identity):
    """Something appears in the empty output folder while the content is written."""
    (tmp_path / "new").mkdir()
    with (
        pytest.raises(MachineError, match="new.incomplete' is complete but .*new': Directory not"),
        outputs.new_folder(str(tmp_path / "new"), identity=identity) as work,
    ):
        pathlib.Path(work, "a").touch()
        (tmp_path / "new" / "mine").touch()
    assert os.listdir(tmp_path / "new.incomplete") == ["a"]
    (tmp_path / "new" / "mine").unlink()
    with pytest.raises(InputError, match="is no unfinished output of this project: move it"):
        fill(tmp_path / "new", identity=identity)
    (tmp_path / "new.incomplete").rename(tmp_path / "new")
    assert os.listdir(tmp_path / "new") == ["a"]


@pytest.mark.parametrize("number", [errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_file_system_without_locks(tmp_path, monkeypatch, number):
    def flock(*_):
        raise OSError(number, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    with outputs.new_folder(str(tmp_path / "new")) as work:
        pathlib.Path(work, "a").touch()
    assert os.listdir(tmp_path / "new") == ["a"]


def test_another_process_completes_the_folder_meanwhile(tmp_path, monkeypatch):
    path, leftover = str(tmp_path / "new"), outputs._remove_leftover

    def remove_leftover(*arguments) -> None:  # after both have found the name free
        monkeypatch.setattr(outputs, "_remove_leftover", leftover)
        fill(tmp_path / "new")
        leftover(*arguments)

    monkeypatch.setattr(outputs, "_remove_leftover", remove_leftover)
    with (
        pytest.raises(InputError, match="must name a new or empty folder"),
        outputs.new_folder(path),
    ):
        raise AssertionError
    assert os.listdir(tmp_path) == ["new"] and os.listdir(path) == ["a"]


def test_another_process_moves_the_folder_before_it_is_locked(tmp_path, monkeypatch):
    monkeypatch.setattr(os, "makedirs", lambda *_, **__: None)
    with (
        pytest.raises(InputError, match="another process is writing .*new.incomplete'"),
        outputs.new_folder(str(tmp_path / "new")),
    ):
        raise AssertionError


def test_another_process_removes_the_folder_while_it_is_locked(tmp_path, monkeypatch):
    def flock(*_):
        shutil.rmtree(tmp_path / "new.incomplete")

    monkeypatch.setattr("fcntl.flock", flock)
    with (
        pytest.raises(InputError, match="another process is writing .*new.incomplete'"),
        outputs.new_folder(str(tmp_path / "new")),
    ):
        raise AssertionError


@pytest.mark.parametrize("name", ["listdir", "open"])
def test_a_leftover_of_another_user_is_refused(tmp_path, monkeypatch, name):
    (tmp_path / "new.incomplete").mkdir()
    (tmp_path / "new.incomplete" / outputs.MARK).touch()

    def denied(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, name, denied)
    with pytest.raises(InputError, match="--output=.*new.incomplete cannot be written: Permission"):
        fill(tmp_path / "new")


def test_an_empty_leftover_of_another_user_is_refused(tmp_path, monkeypatch):
    (tmp_path / "new.incomplete").mkdir()

    def denied(path, *_):
        raise PermissionError(errno.EACCES, "Permission denied", path)

    monkeypatch.setattr(os, "open", denied)
    with pytest.raises(MachineError, match="new' cannot be written: Permission denied"):
        fill(tmp_path / "new")


def test_files_of_two_writers(tmp_path, monkeypatch):
    """One begins while the other, which has written everything, flushes it to the disk."""
    path, sync = tmp_path / "new.txt", outputs._sync

    def flush(partial: str) -> None:
        monkeypatch.setattr(outputs, "_sync", sync)
        outputs.write_bytes(str(path), b"second")
        assert path.read_text() == "second"
        sync(partial)

    monkeypatch.setattr(outputs, "_sync", flush)
    outputs.write_bytes(str(path), b"first")
    assert os.listdir(tmp_path) == ["new.txt"] and path.read_text() == "first"


def test_files_of_two_writers_without_locks(tmp_path, monkeypatch):
    def flock(*_):
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr("fcntl.flock", flock)
    path = tmp_path / "new.txt"
    with outputs.new_text(str(path)) as file:
        outputs.write_bytes(str(path), b"second")
        file.write("first")
    assert os.listdir(tmp_path) == ["new.txt"] and path.read_text() == "first"


def test_work_of_another_identity_is_kept_unless_it_is_superseded(tmp_path):
    path = str(tmp_path / "new")
    with pytest.raises(OSError), outputs.new_folder(path, identity="one") as work:
        pathlib.Path(work, "a").touch()
        raise OSError
    for identity in ("other", ""):
        with (
            pytest.raises(InputError, match="left its work in .*new.incomplete'. Repeat that c"),
            outputs.new_folder(path, identity=identity),
        ):
            pass
    with pytest.raises(OSError), outputs.new_folder(path, identity="one") as work:
        assert sorted(os.listdir(work)) == [outputs.MARK, "a"]
        (pathlib.Path(work) / "folder").mkdir()
        (pathlib.Path(work) / "link").symlink_to(tmp_path)
        raise OSError
    with outputs.new_folder(path, identity="two", supersedes=True) as work:
        assert os.listdir(work) == [outputs.MARK]
        assert pathlib.Path(work, outputs.MARK).read_text() == "two"


def test_a_link_under_the_name_of_the_mark_is_not_followed(tmp_path):
    (tmp_path / "new.incomplete").mkdir()
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "new.incomplete" / outputs.MARK).symlink_to(tmp_path / "notes.txt")
    path = str(tmp_path / "new")
    with (
        pytest.raises(InputError, match="is no unfinished output of this project"),
        outputs.new_folder(path, identity="one", supersedes=True),
    ):
        pass
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_mistake_leaves_nothing_of_an_identity(tmp_path):
    path = str(tmp_path / "deep" / "new")
    with pytest.raises(InputError), outputs.new_folder(path, identity="one"):
        raise InputError
    assert os.listdir(tmp_path) == []


def test_a_disk_without_room_for_the_mark_does_not_block_the_name(tmp_path, monkeypatch):
    with (
        monkeypatch.context() as patch,
        pytest.raises(MachineError, match="No space.*Free some space"),
    ):
        patch.setattr(os, "fsync", full)
        with outputs.new_folder(str(tmp_path / "new"), identity="one") as work:
            pass
    (mark,) = (tmp_path / "new.incomplete").iterdir()
    mark.write_bytes(b"")
    with outputs.new_folder(str(tmp_path / "new"), identity="one") as work:
        assert os.listdir(work) == [outputs.MARK]


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_content_is_on_the_disk_before_its_name(tmp_path, monkeypatch):
    """After a power cut a name would otherwise stand for nothing."""
    synced, named = [], []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda fd: synced.append(os.fstat(fd).st_ino) or fsync(fd))
    monkeypatch.setattr(
        os, "replace", lambda old, new: named.append((new, list(synced))) or replace(old, new)
    )
    outputs.write_json(str(tmp_path / "a.json"), {"a": 1})
    fill(tmp_path / "new")
    files = [tmp_path / "a.json", tmp_path / "new" / "a"]
    assert [new for new, _ in named] == [str(tmp_path / "a.json"), str(tmp_path / "new")]
    for (_, before), file in zip(named, files, strict=True):
        assert file.stat().st_ino in before


def test_a_process_at_work_is_left_alone(tmp_path):
    with outputs.new_folder(str(tmp_path / "new")) as work:
        with pytest.raises(InputError, match=r"another process is writing .*new\.incomplete"):
            fill(tmp_path / "new")
        assert os.path.isdir(work)
    assert os.listdir(tmp_path / "new") == []


@pytest.mark.parametrize("kind", ["folder", "file"])
def test_files_of_others_are_kept(tmp_path, kind):
    there = tmp_path / ("new" + outputs.SUFFIX)
    if kind == "folder":
        there.mkdir()
        (there / "thesis.txt").touch()
    else:
        there.touch()
    with pytest.raises(InputError, match=r"--output needs .*new\.incomplete.* is no unfinished"):
        fill(tmp_path / "new")
    assert os.listdir(tmp_path) == [there.name]
    assert kind == "file" or os.listdir(there) == ["thesis.txt"]


def test_an_empty_folder_of_that_name_is_taken(tmp_path):
    (tmp_path / ("new" + outputs.SUFFIX)).mkdir()
    fill(tmp_path / "new")
    assert os.listdir(tmp_path) == ["new"]


@pytest.mark.parametrize("kind", ["full", "file", "dangling"])
def test_foreign_paths_are_refused_and_kept(tmp_path, kind):
    path = tmp_path / "there"
    if kind == "full":
        path.mkdir()
        (path / "mine").touch()
    elif kind == "file":
        path.touch()
    else:
        path.symlink_to(tmp_path / "nowhere")
    with pytest.raises(InputError, match=r"--run_dir must name a new or empty.*there") as error:
        fill(path, flag="--run_dir")
    assert "remove" not in str(error.value)
    assert os.listdir(tmp_path) == ["there"]
    assert kind != "full" or os.listdir(path) == ["mine"]


def test_a_folder_under_a_file_cannot_be_written(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"--output=.*file/new cannot be written: Not a directory"):
        fill(tmp_path / "file" / "new")
    assert os.listdir(tmp_path) == ["file"]


def test_a_folder_in_proc_cannot_be_written():
    with pytest.raises(InputError, match="--output=/proc/new cannot be written"):
        fill("/proc/new")


def test_json_is_whole_or_old(tmp_path):
    path = str(tmp_path / "a.json")
    outputs.write_json(path, {"a": 1})
    with pytest.raises(TypeError):
        outputs.write_json(path, {"a": 2, "b": object()})
    assert os.listdir(tmp_path) == ["a.json"]
    with open(path, encoding="utf-8") as file:
        assert json.load(file) == {"a": 1}
    outputs.write_json(path, {"a": 3})
    assert os.listdir(tmp_path) == ["a.json"]


def test_a_configuration_has_no_nan(tmp_path):
    path = str(tmp_path / "a.json")
    outputs.write_json(path, {"a": [float("-inf")]})
    with pytest.raises(InputError, match="a.json' must be JSON: -Infinity is not a JSON value"):
        outputs.read_json(path)
    assert outputs.read_json(path, allow_nan=True) == {"a": [float("-inf")]}


def test_a_full_disk_is_told_and_the_old_content_stays(tmp_path):
    path = tmp_path / "a.json"
    outputs.write_json(str(path), {"a": 1})
    for error in (OSError(errno.ENOSPC, "?"), RuntimeError("ckpt; No space left on device")):
        with pytest.raises(MachineError, match="a.json' cannot be written: No space left"):
            with outputs.new_file(str(path)):
                raise error
    with pytest.raises(FileNotFoundError), outputs.new_file(str(path)):
        raise FileNotFoundError(errno.ENOENT, "a bug")
    assert path.read_text() == '{\n "a": 1\n}\n' and os.listdir(tmp_path) == ["a.json"]


def test_compressed_text_is_complete_and_always_the_same(tmp_path):
    contents = []
    for name in ("a.jsonl.gz", "b.GZ", "plain"):
        path = tmp_path / name
        with outputs.new_text(str(path)) as file:
            file.write("é\n" * 1000)
            assert not path.exists()
        contents.append(path.read_bytes())
    assert contents[0] == contents[1] and gzip.decompress(contents[0]) == contents[2]
    with pytest.raises(KeyError), outputs.new_text(str(tmp_path / "c.gz")) as file:
        file.write("half")
        raise KeyError
    assert len([*tmp_path.iterdir()]) == 3


@pytest.mark.parametrize("name", ["a.bz2", "a.XZ", "a.zst", "a.zip"])
def test_no_other_compression_is_written(tmp_path, name):
    with pytest.raises(InputError, match=f"--output can be compressed as .gz only. .*{name}"):
        outputs.require_file(str(tmp_path / name), "--output")


def test_where_a_file_can_be_written(tmp_path):
    (tmp_path / "file").touch()
    outputs.require_file(str(tmp_path / "file"), "--output")
    for path, words in {
        tmp_path: "must be a file. Received: .* a folder",
        tmp_path / "file" / "under": "must be a local file in a folder",
        "gs://bucket/file": "must be a local file in a folder",
    }.items():
        with pytest.raises(InputError, match=f"--output.*{words}"):
            outputs.require_file(str(path), "--output")
    outputs.require_file(str(tmp_path / "no" / "file"), "--output")
    outputs.write_bytes(str(tmp_path / "no" / "file"), b"a")
    assert (tmp_path / "no" / "file").read_bytes() == b"a"
    outputs.require_folder(str(tmp_path), "--output")
    outputs.require_folder(str(tmp_path / "new" / "deep"), "--output")
    with pytest.raises(InputError, match="--output must be a folder. Received: .*, a file"):
        outputs.require_folder(str(tmp_path / "file"), "--output")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": "\xe9"}', "must be JSON: .*can't decode byte 0xe9"),
        (b"[" * 100_000, "must be JSON: .*recursion"),
        (b'{"a": ' + b"1" * 5000 + b"}", "must be JSON: .*5000 digits"),
        (b'{"a": "\\uD800"}', r"must be JSON: \\ud800 is half a surrogate pair"),
        (b"[1, 2]", r"must contain a JSON object. Received: \[1, 2\]\."),
        (b'"' + b"x" * 5000 + b'"', r"JSON object. Received: 'x{99}\.\.\.\.$"),
    ],
)
def test_a_file_without_a_json_object_is_refused_in_one_line(tmp_path, content, words):
    (tmp_path / "a.json").write_bytes(content)
    with pytest.raises(InputError, match=words):
        outputs.read_json(str(tmp_path / "a.json"))


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_json_in_encodings_of_unicode(tmp_path, encoding):
    (tmp_path / "a.json").write_bytes('{"a": "é漢𝄞"}'.encode(encoding))
    assert outputs.read_json(str(tmp_path / "a.json")) == {"a": "é漢𝄞"}


def test_a_link_stays_and_its_file_is_replaced(tmp_path):
    (tmp_path / "real").write_text("old")
    (tmp_path / "link").symlink_to("real")
    outputs.write_bytes(str(tmp_path / "link"), b"new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "real").read_text() == "new"
    assert sorted(os.listdir(tmp_path)) == ["link", "real"]


def test_a_mount_point_is_refused_first(tmp_path, monkeypatch):
    empty = tmp_path / "empty"
    empty.mkdir()
    (tmp_path / "link").symlink_to(empty)
    monkeypatch.setattr(os.path, "ismount", lambda path: path == str(empty))
    for path in (str(empty), str(tmp_path / "link")):
        with pytest.raises(InputError, match=f"must not be a mount point .*such as '{path}/out'"):
            outputs.require_new(path)


def test_the_working_folder_is_refused(tmp_path, monkeypatch):
    """It would be another folder than the one that has the name afterwards."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="must not be .* the working folder. Received: '.'"):
        outputs.require_new(".")


def test_outputs_elsewhere_after_the_working_folder_was_removed(tmp_path, monkeypatch):
    (tmp_path / "gone").mkdir()
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    for name in ("new", "empty"):
        fill(tmp_path / name)
    outputs.require_file(str(tmp_path / "a.txt"), "--output")
    outputs.write_bytes(str(tmp_path / "a.txt"), b"a")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "empty", "new"]


def test_stdout_is_written_in_place_and_notes_go_to_stderr(tmp_path):
    """Python's own file for /dev/stdout would write at its beginning once more."""
    code = (
        "import sys\n"
        "from albert_tf.runtime.files import outputs\n"
        "with outputs.new_text(sys.argv[1]) as file:\n"
        "    file.write('row\\n')\n"
        "outputs.say(sys.argv[1], '1 row')\n"
    )
    for path in ("-", "/dev/stdout"):
        with open(tmp_path / "out", "a") as out:
            command = [sys.executable, "-c", code, path]
            run = subprocess.run(command, cwd=ROOT, stdout=out, stderr=subprocess.PIPE, text=True)
        assert run.stderr == "1 row\n"
    assert (tmp_path / "out").read_text() == "row\n" * 2


def test_two_processes_write_a_file(tmp_path):
    """The one that ends last wins, with all of its content."""
    path = str(tmp_path / "a.txt")
    with outputs.new_text(path) as first:
        first.write("first" * 1000)
        first.flush()
        with outputs.new_text(path) as second:
            second.write("second")
        assert (tmp_path / "a.txt").read_text() == "second"
    assert (tmp_path / "a.txt").read_text() == "first" * 1000
    assert os.listdir(tmp_path) == ["a.txt"]


def test_what_a_killed_process_left_of_a_file_is_removed(tmp_path):
    """Also inside a folder that is continued."""
    code = (
        "import os, sys\n"
        "from albert_tf.runtime.files import outputs\n"
        "with outputs.new_folder(sys.argv[1], identity='one') as work:\n"
        "    with outputs.new_text(os.path.join(work, 'a.txt')) as file:\n"
        "        file.write('half')\n"
        "        file.flush()\n"
        "        os._exit(9)\n"
    )
    command = [sys.executable, "-c", code, tmp_path / "new"]
    assert subprocess.run(command, cwd=ROOT).returncode == 9
    with outputs.new_folder(str(tmp_path / "new"), identity="one") as work:
        assert len(os.listdir(work)) == 2
        with outputs.new_text(os.path.join(work, "a.txt")) as file:
            file.write("whole")
    assert os.listdir(tmp_path / "new") == ["a.txt"]


def test_files_of_similar_names_are_kept(tmp_path):
    (tmp_path / "a.txt.part-2.incomplete").touch()
    (tmp_path / "a.txt.0123abcd.incomplete").touch()  # of a killed process
    outputs.write_bytes(str(tmp_path / "a.txt"), b"a")
    assert sorted(os.listdir(tmp_path)) == ["a.txt", "a.txt.part-2.incomplete"]


def test_permissions_of_a_file_stay(tmp_path):
    path = tmp_path / "a.txt"
    path.touch(0o600)
    with outputs.new_file(str(path)) as partial:
        assert os.stat(partial).st_mode & 0o777 == 0o600  # also of what is not complete yet
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_that_is_read_only_is_refused(tmp_path, monkeypatch):
    path = str(tmp_path / "a.txt")
    pathlib.Path(path).touch()
    access = os.access  # of which root has all
    monkeypatch.setattr(os, "access", lambda p, mode: p != path and access(p, mode))
    with pytest.raises(InputError, match="--output=.*a.txt cannot be written: Permission denied"):
        outputs.require_file(path, "--output")


def test_files_in_memory_are_replaced_whole():
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        path = os.path.join(folder, "a.json")
        outputs.write_json(path, {"a": 1})
        with pytest.raises(KeyError), outputs.new_text(path) as file:
            file.write("half")
            file.flush()
            raise KeyError
        assert outputs.read_json(path) == {"a": 1}
