"""The places of the programs `data`, `pretraining` and `finetuning`, and how users start them.

In a checkout they lie beside `albert_tf`. A wheel holds them in `albert_tf/_programs`, so that an
installed package never hides a user's own module `data`; the command `albert-tf` puts that folder
first on sys.path.
"""

from __future__ import annotations  # so that an older Python is refused, not puzzled

import functools
import os
import pickle
import platform
import re
import sys
from collections.abc import Callable
from typing import Any, NoReturn

PACKAGES = ("albert_tf", "data", "pretraining", "finetuning")
_LIBRARY = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
_FLAG = re.compile(r"-(?:[bBdEiIOPqRsSuvx]+|[WX].*)")  # of Python itself
_INSTALLED = os.path.join(_LIBRARY, "_programs")


def is_installed() -> bool:
    """Return True if this package comes from a wheel rather than from a checkout."""
    return os.path.isdir(_INSTALLED)


def is_command() -> bool:
    """Return True if this process was started as a command, also while its package is imported."""
    if not hasattr(sys, "orig_argv"):  # Python 3.7 to 3.9, where the module's name is not known yet
        return sys.argv[:1] == ["-m"] or os.path.basename(sys.argv[0]) == "albert-tf"
    arguments = sys.orig_argv[1:]
    while arguments and _FLAG.fullmatch(arguments[0]):
        flag = arguments.pop(0)
        del arguments[: flag in ("-W", "-X")]  # the flag's value
    if arguments[:1] == ["-m"]:
        return any(module.partition(".")[0] in PACKAGES for module in arguments[1:2])
    return any(os.path.basename(script) == "albert-tf" for script in arguments[:1])


def refuse_python() -> NoReturn:
    """End a command on a Python that is too old or too new, with one line.

    Raises:
      ImportError: this process is no command.
    """
    message = (
        f"albert_tf needs Python 3.11, 3.12 or 3.13. Received: {platform.python_version()} "
        f"({sys.executable}). Install one of them (https://www.python.org/downloads, or `uv python "
        "install 3.13`), and make an environment with it."
    )
    if is_command():
        print(message, file=sys.stderr)
        sys.exit(2)
    raise ImportError(message)


def root(package: str) -> str:
    """Return the folder that holds a package of this project."""
    is_program = package != "albert_tf" and is_installed()
    return _INSTALLED if is_program else os.path.dirname(_LIBRARY)


def add_to_path() -> None:
    """Put the folder of the programs first on sys.path."""
    if sys.path[:1] != [root("data")]:
        sys.path.insert(0, root("data"))


def source(module: str) -> str:
    """Return the path of a command's source; `module` is such as data.build or albert_tf.export."""
    names = module.split(".")
    path = os.path.join(root(names[0]), *names)
    return os.path.join(path, "__main__.py") if os.path.isdir(path) else f"{path}.py"


def shown(text: str) -> str:
    """Return a text with the commands that work here: `albert-tf data.build` if installed."""
    if is_installed():
        for package in PACKAGES:
            text = text.replace(f"python -m {package}.", f"albert-tf {package}.")
        text = text.replace("albert-tf albert_tf.", "albert-tf ")
    return text


def process(module: str, *flags: str) -> list[str]:
    """Return the arguments of a process that runs a command of this project."""
    return [sys.executable, "-m", "albert_tf", module, *flags]


class Portable:
    """A function of a program, for processes that know `albert_tf` alone, such as Beam's workers.

    Unpickling it first makes the programs importable there.
    """

    def __init__(self, function: Callable[..., Any], **options: Any) -> None:
        self._function = functools.partial(function, **options)

    def __call__(self, *args: Any) -> Any:
        """Call the function."""
        return self._function(*args)

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[bytes]]:
        return _restored, (pickle.dumps(self._function),)


def _restored(content: bytes) -> Callable[..., Any]:
    add_to_path()
    return Portable(pickle.loads(content))
