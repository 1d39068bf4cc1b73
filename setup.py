"""The packages of a wheel, and its version.

`data`, `pretraining` and `finetuning` go below `albert_tf/_programs`, where they hide no module of
another project (albert_tf/runtime/programs.py).
"""

import ast
import email
import pathlib
import subprocess

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).resolve().parent
INSTALLED = {f"albert_tf._programs.{name}": name for name in ("data", "pretraining", "finetuning")}


def version() -> str:
    """Return the version of the commit's tag, such as v0.2.0, or else that of the sources.

    An archive of the sources (sdist) has it in a file.
    """
    if (about := ROOT / "PKG-INFO").is_file():
        return str(email.message_from_string(about.read_text(encoding="utf-8"))["Version"])
    git = ("git", "-C", str(ROOT), "describe", "--tags", "--exact-match", "--match=v[0-9]*")
    try:
        if not (ROOT / ".git").exists():
            raise OSError("no checkout")
        return subprocess.run(git, capture_output=True, text=True, check=True).stdout.strip()[1:]
    except (OSError, subprocess.SubprocessError):
        tree = ast.parse((ROOT / "albert_tf" / "__init__.py").read_text(encoding="utf-8"))
        values = [
            node.value
            for node in tree.body
            if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "_VERSION"
        ]
        return ast.literal_eval(values[0])


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
