"""The packages of a wheel, and its version.

`data`, `pretraining` and `finetuning` go below `albert_tf/_programs`, where they hide no module of
another project (albert_tf/runtime/programs.py).
"""

import ast
import email
import pathlib
import re
import subprocess
import sys

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).resolve().parent
INSTALLED = {f"albert_tf._programs.{name}": name for name in ("data", "pretraining", "finetuning")}


def version() -> str:
    """Return the version of the commit's tag, such as v0.2.0, or else that of the sources.

    The latter has the commit as a suffix, such as 0.1.0+g1a2b3c4d, by which pip tells two builds
    apart, and `.changed` if files differ from it. An archive of the sources (sdist) has the version
    in a file.
    """
    if (about := ROOT / "PKG-INFO").is_file():
        return str(email.message_from_string(about.read_text(encoding="utf-8"))["Version"])
    tree = ast.parse((ROOT / "albert_tf" / "__init__.py").read_text(encoding="utf-8"))
    (of_sources,) = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_VERSION"
    ]
    if not (ROOT / ".git").exists():
        return of_sources
    try:
        changes = _git("status", "--porcelain", "--untracked-files=no")
        tags = _git("tag", "--points-at", "HEAD", "--list", "v[0-9]*").split()
        commit = _git("rev-parse", "--short=8", "HEAD")
    except (OSError, subprocess.SubprocessError) as error:
        print(f"albert_tf: the commit is unknown, since git failed: {error}", file=sys.stderr)
        return of_sources
    if tags and not changes:
        return max(tags, key=_order)[1:]
    return f"{of_sources}+g{commit}{'.changed' if changes else ''}"


def _order(tag: str) -> tuple[list[int], bool]:
    """Return the key by which v0.10.0 comes after v0.9.0 and after v0.10.0rc1."""
    release = re.match(r"v[\d.]+", tag)[0]
    return [int(number) for number in re.findall(r"\d+", release)], release == tag


def _git(*arguments: str) -> str:
    # The checkout may belong to another user, as in a container.
    command = ("git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), *arguments)
    return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout.strip()


setup(
    version=version(),
    packages=[
        *find_packages(str(ROOT), include=["albert_tf*"]),
        *(
            package
            for below, name in INSTALLED.items()
            for package in [below, *(f"{below}.{room}" for room in find_packages(str(ROOT / name)))]
        ),
    ],
    package_dir=INSTALLED,
)
