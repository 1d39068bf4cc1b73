"""Tests of the messages for packages that an extra installs."""

import json
import sys
from importlib import metadata

import pytest

from albert_tf.runtime import extras, programs
from albert_tf.runtime.errors import InputError


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "onnx.helper", None)
    message = r"exports needs the package onnx. Run pip install -e '\.\[onnx\]' in the checkout"
    with pytest.raises(InputError, match=message):
        extras.load("onnx.helper", "onnx", "exports")


def test_an_installed_package_that_is_broken_is_not_called_missing(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text("import its_missing_part")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="its_missing_part"):
        extras.load("broken_package", "onnx", "exports")


@pytest.mark.parametrize(("reason", "shown"), [("", "no reason given"), ("x is\nold.", "x is")])
def test_a_package_that_refuses_to_be_imported(tmp_path, monkeypatch, reason, shown):
    (tmp_path / "refusing_package.py").write_text(f"raise ImportError({reason!r})")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "refusing_package", raising=False)
    with pytest.raises(InputError, match=rf"cannot be imported: {shown}\. Run pip install"):
        extras.load("refusing_package", "html", "HTML")


@pytest.mark.parametrize(
    ("origin", "address"),
    [
        ({"url": "file:///a/b.whl"}, " @ file:///a/b.whl"),
        ({"url": "https://x/y.git", "vcs_info": {"vcs": "git"}}, " @ git+https://x/y.git"),
        (
            {
                "url": "https://x/y",
                "vcs_info": {"vcs": "git", "requested_revision": "v1", "commit_id": "a"},
                "subdirectory": "z",
            },
            " @ git+https://x/y@v1#subdirectory=z",
        ),
        (None, ""),
    ],
)
def test_the_command_names_where_the_package_comes_from(monkeypatch, origin, address):
    class Installed:
        def read_text(self, _: str) -> str | None:
            return json.dumps(origin) if origin else None

    monkeypatch.setattr(programs, "is_installed", lambda: True)
    monkeypatch.setattr(metadata, "distribution", lambda _: Installed())
    assert extras.install("train") == f"pip install 'albert_tf[train]{address}'"
