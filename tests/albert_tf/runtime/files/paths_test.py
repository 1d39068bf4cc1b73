"""Tests of paths as users write them: home folders, and names that look like globs."""

import errno
import glob
import importlib
import os
import pathlib
import pkgutil
import subprocess
import sys

import pytest

import albert_tf
from albert_tf.runtime import commands
from albert_tf.runtime.errors import InputError, MachineError
from albert_tf.runtime.files import paths

ROOT = pathlib.Path(albert_tf.__path__[0]).parent
# Options that hold text but no path.
OTHERS = {
    "allow_missing", "beam_args", "budget", "by", "column_separator", "depths", "device",
    "document_boundary", "duplicates", "errors", "experiment", "feature_names", "format",
    "general_text_column", "grid", "group", "heldout_set", "ignore", "kind", "label_column",
    "label_separator",
    "languages", "layout", "loss", "objective", "offsets", "pair", "part", "patience",
    "pooling", "precision", "preset", "presets", "prompt", "quantization", "recipe", "rows",
    "runner", "runtime", "select", "set", "split", "task", "tasks", "text_column", "topology",
    "tpu",
}  # fmt: skip


@pytest.fixture
def home(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("HOME", str(tmp_path))
    return str(tmp_path)


@pytest.mark.parametrize(
    ("text", "expanded"),
    [
        ("~", "{}"),
        ("~/x", "{}/x"),
        ("google:~/x", "google:{}/x"),
        ("text:~/x/*.txt", "text:{}/x/*.txt"),
        ("~/a:2,~/b:1", "{0}/a:2,{0}/b:1"),
        ("random:~/a, ~/b", "random:{0}/a, {0}/b"),
        ("./~/x", "./~/x"),
        ("a~/x~", "a~/x~"),
        ("~no such user/x", "~no such user/x"),
        ("gs://bucket/~x", "gs://bucket/~x"),
    ],
)
def test_home_folders_are_expanded(home: str, text: str, expanded: str):
    assert paths.expand(text) == expanded.format(home)


def test_the_folder_of_caches(home: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert paths.cache_folder("a", "b") == f"{home}/.cache/albert_tf/a/b"
    monkeypatch.delenv("HOME")
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # in no list of users
    with pytest.raises(InputError, match="no home folder. Set XDG_CACHE_HOME"):
        paths.cache_folder("a")
    monkeypatch.setenv("XDG_CACHE_HOME", "/c")
    assert paths.cache_folder("a") == "/c/albert_tf/a"


def test_every_option_with_a_path_says_so():
    modules = {
        importlib.import_module(name)
        for package in ("albert_tf", "data", "pretraining", "finetuning")
        for name in _modules(package)
    }
    options = {
        each
        for module in modules
        for each in vars(module).values()
        if isinstance(each, type) and each.__name__.endswith("Options")
    }
    unmarked = {
        name
        for each in options
        for name, field in getattr(each, "__dataclass_fields__", {}).items()
        if "path" in field.metadata and "str" in str(field.type) and not field.metadata["path"]
    }
    assert unmarked <= OTHERS


def _modules(package: str) -> list[str]:
    path = importlib.import_module(package).__path__
    found = pkgutil.iter_modules(path, f"{package}.")
    names = [each.name for each in found if not each.ispkg]
    extra = ["albert_tf.convert.__main__", "albert_tf.export.__main__"]
    return [*names, *(extra if package == "albert_tf" else ())]


def test_commands_expand_them_once_and_for_all(home: str):
    from pretraining.train import TrainOptions

    argv = ["prog", "--run_dir=~/r", "--data=~/a:1,~/b:2", "--set=loop.steps=1", "--init=~x~"]
    options = commands.parse(TrainOptions, argv, "", "prog")
    assert options.run_dir == f"{home}/r"
    assert options.data == f"{home}/a:1,{home}/b:2"
    assert (options.init, options.heldout) == ("~x~", None)
    from data.show_records import ShowRecordsOptions

    assert (
        commands.parse(ShowRecordsOptions, ["prog", "--set=data=~/r"], "", "prog").data
        == f"{home}/r"
    )


def test_models_are_loaded_from_them(home: str, smoke_run: str):
    pathlib.Path(home, "run").symlink_to(smoke_run)
    assert albert_tf.load_encoder("~/run").config == albert_tf.load_encoder(smoke_run).config
    assert albert_tf.load_tokenizer("~/run").fingerprint


@pytest.mark.parametrize("name", ["a [1]", "b*", "c?", "d\\e"])
def test_a_path_that_exists_wins_over_a_glob(tmp_path: pathlib.Path, name: str):
    for each in (name, "a 1", "bb", "cc"):
        (tmp_path / each).touch()
    assert paths.matching(str(tmp_path / name)) == [str(tmp_path / name)]
    assert paths.matching(f"{tmp_path}/[bc]?") == [
        str(tmp_path / each) for each in sorted({"bb", "cc", name} - {"a [1]", "d\\e"})
    ]


def test_a_glob_in_a_folder_whose_name_is_like_one(tmp_path: pathlib.Path):
    for name in ("c [1]", "c 1", "d*"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "x.txt").touch()
    for name in ("c [1]", "d*"):
        wanted = [str(tmp_path / name / "sub" / "x.txt")]
        for pattern in ("*/x.txt", "sub/*", "**/*.txt", "[s]ub/x.txt"):
            assert paths.matching(f"{tmp_path}/{name}/{pattern}") == wanted
    assert len(paths.matching(f"{tmp_path}/c*/*/*")) == 2


def test_a_match_that_is_no_file_is_noted(tmp_path: pathlib.Path, capsys):
    (tmp_path / "b").touch()
    assert paths.files_matching(f"{tmp_path}/*", "--x") == [str(tmp_path / "b")]
    assert not capsys.readouterr().err
    os.mkfifo(tmp_path / "a")
    (tmp_path / "c").symlink_to(tmp_path / "none")
    (tmp_path / "d").mkdir()
    (tmp_path / "e").symlink_to("/dev/null")
    assert paths.files_matching(f"{tmp_path}/*", "--x") == [str(tmp_path / "b")]
    assert capsys.readouterr().err == (
        f"note: --x: these matches of '{tmp_path}/*' are not files and are left out: {tmp_path}/a "
        f"(a pipe), {tmp_path}/c (a broken link), {tmp_path}/d (a folder) and 1 more.\n"
    )
    assert paths.files_matching(f"{tmp_path}/[a]", "--x") == []


PATTERNS = ("**/*.txt", "*/*.txt", "*/x.txt", "**")


@pytest.fixture
def three_folders(tmp_path: pathlib.Path) -> pathlib.Path:
    """Folders a, b and c, with a file in each."""
    for name in "abc":
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").touch()
    return tmp_path


@pytest.mark.parametrize("pattern", PATTERNS)
def test_a_folder_without_permission_is_noted(pattern, three_folders, break_folder, capsys):
    break_folder(three_folders / "b")
    found = paths.files_matching(f"{three_folders}/{pattern}", "--x")
    assert found == [f"{three_folders}/{name}/x.txt" for name in "ac"]
    note = f"note: {three_folders}/b cannot be read and is left out: Permission denied.\n"
    assert capsys.readouterr().err == note


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE])
def test_a_failing_disk_is_no_absent_file(pattern, number, three_folders, break_folder):
    break_folder(three_folders / "b", number)
    with pytest.raises(MachineError, match=f"/b/' cannot be read: {os.strerror(number)}"):
        paths.files_matching(f"{three_folders}/{pattern}", "--x")


def test_files_among_the_folders_are_passed_over(three_folders):
    pointer = "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n"
    (three_folders / "model.bin").write_text(pointer)
    found = paths.matching(f"{three_folders}/*/*.txt")
    below = paths.matching(f"{three_folders}/*/**")
    assert len(found) == 3 and found == [path for path in below if os.path.isfile(path)]


def test_a_match_that_cannot_be_reached_is_noted(three_folders, break_folder, capsys):
    break_folder(three_folders / "b", is_listed=True)
    assert len(paths.files_matching(f"{three_folders}/**/*", "--x")) == 2
    assert f"left out: {three_folders}/b/x.txt (Permission denied)." in capsys.readouterr().err


@pytest.mark.parametrize("name", ["n" * 300, "x.txt/y", "x.txt/*", "loop/y", "loop/*", "x.txt/"])
def test_a_path_that_cannot_exist_matches_nothing(name, three_folders):
    (three_folders / "a" / "loop").symlink_to("loop")
    assert paths.matching(f"{three_folders}/*/{name}") == []


def test_a_file_that_is_read_is_not_replaced(tmp_path):
    for name in "ab":
        (tmp_path / name).touch()
    (tmp_path / "soft").symlink_to("a")
    os.link(tmp_path / "a", tmp_path / "hard")
    inputs = {"--x": [str(tmp_path / "none"), str(tmp_path / "a")], "--y": ["-"]}
    for name in ("a", "soft", "hard"):
        with pytest.raises(InputError, match=f"--z must not be a file of --x.*/{name}'"):
            paths.require_other_file(str(tmp_path / name), "--z", inputs)
    for path in (str(tmp_path / "none"), str(tmp_path / "b"), "-", "/dev/null"):
        paths.require_other_file(path, "--z", inputs)


def test_stdin_is_not_replaced(tmp_path):
    code = (
        "import sys\n"
        "from albert_tf.runtime.files import paths\n"
        "paths.require_other_file(sys.argv[1], '--output', {'--input': ['-']})\n"
    )
    (tmp_path / "a").touch()
    command = [sys.executable, "-c", code, str(tmp_path / "a")]
    for name, status in (("a", 1), (os.devnull, 0)):
        with open(tmp_path / name) as file:
            assert subprocess.run(command, cwd=ROOT, stdin=file).returncode == status


def test_linked_folders_are_read_once(tmp_path: pathlib.Path):
    """Also those that lead back to a parent."""
    (tmp_path / "a" / "sub").mkdir(parents=True)
    (tmp_path / "other").mkdir()
    for path in ("a/sub/x.txt", "other/y.txt"):
        (tmp_path / path).touch()
    (tmp_path / "a" / "sub" / "up").symlink_to("..")
    (tmp_path / "a" / "again").symlink_to("sub")
    (tmp_path / "a" / "beside").symlink_to("../other")
    (tmp_path / "a" / "file").symlink_to("sub/x.txt")
    (tmp_path / "a" / "all").symlink_to("..")  # which holds a and other
    (tmp_path / "a" / "itself").symlink_to("itself")
    found = [os.path.relpath(path, tmp_path) for path in paths.matching(f"{tmp_path}/a/**/*.txt")]
    assert found == ["a/all/other/y.txt", "a/sub/x.txt"]
    assert f"{tmp_path}/a/file" in paths.matching(f"{tmp_path}/a/**")


@pytest.mark.parametrize(
    "pattern",
    [
        *(
            "**",
            "**/*.txt",
            "**/b/*",
            "a/**/b/*",
            "**/.h/*",
            "*/**/*.txt",
            "a/**/**/*.txt",
            "**/.*",
        ),
        *(
            "*",
            "*/",
            "a/",
            "a//*",
            "[a]/b/*",
            "./*/b",
            "../*/a/?.md",
            "*/.*",
            ".*",
            "",
            "[q]/[[]1]/*",
        ),
    ],
)
def test_globs_are_those_of_python(pattern: str, tmp_path: pathlib.Path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("a/b/c.txt", "a/.h/x.txt", "a/b/.y.txt", "a/z.md", "q/[1]/t.txt", "a/b/d/f.txt"):
        pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
        pathlib.Path(name).touch()
    assert paths.matching(pattern) == sorted(set(glob.glob(pattern, recursive=True)))
