"""The environment of a process, which a run records when it begins."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from importlib import metadata
from typing import Any

import albert_tf

PACKAGES = (
    "tensorflow",
    "tensorflow-text",
    "tf-keras",
    "tensorflow-hub",
    "sentencepiece",
    "numpy",
    "jax",
    "jaxlib",
)


def environment() -> dict[str, Any]:
    """Return the Python, platform, cores, versions, commit and command of this process."""
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cores": os.cpu_count(),
        "albert_tf": albert_tf.__version__,
        "packages": {name: version_of(name) for name in PACKAGES},
        "commit": _commit(),
        "command": sys.argv,
    }


def other_code(begun: Mapping[str, Any]) -> tuple[str, str] | None:
    """Return the code of the environment `begun` and that of this process, if they differ.

    Each is a commit or, of an installed package, a version.
    """
    before, now = _code(begun), _code(environment())
    return (before, now) if before and before != now else None


def _code(environment: Mapping[str, Any]) -> str:
    commit, version = environment.get("commit"), environment.get("albert_tf")
    return f"commit {commit}" if commit else f"albert_tf {version}" if version else ""


def version_of(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:  # e.g. TensorFlow for TPUs, a package of another name
        return None


def _commit() -> str | None:
    """Return the commit of this code's checkout, with -dirty after it if a file has changed.

    It is None for an installed package: the folder around it may be another project's checkout.
    """
    checkout = os.path.realpath(os.path.join(os.path.dirname(__file__), "..", ".."))
    if not os.path.exists(os.path.join(checkout, ".git")):
        return None
    git = ("git", "-C", checkout, "--no-optional-locks")  # the user may be committing
    command = (*git, "status", "--porcelain=2", "--branch", "--untracked-files=no")
    try:
        result = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):  # no git, or not allowed to read the checkout
        return None
    head, *lines = result.stdout.splitlines()  # "# branch.oid COMMIT", ..., changed files
    is_dirty = any(not line.startswith("#") for line in lines)
    return head.split()[-1] + ("-dirty" if is_dirty else "")
