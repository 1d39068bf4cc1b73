"""Packages that only some uses need: the optional dependencies of pyproject.toml."""

import importlib
import json
from importlib import metadata
from types import ModuleType

from albert_tf.runtime import programs
from albert_tf.runtime.errors import InputError


def load(module: str, extra: str, use: str) -> ModuleType:
    """Import and return a module that an extra installs.

    Raises:
      InputError: it is missing. The message begins with `use`, such as "plots".
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not f"{module}.".startswith(f"{error.name}."):
            raise  # installed, but broken
        raise InputError(missing(module, extra, use)) from None
    except ImportError as error:
        reason, *_ = str(error).splitlines() or ["no reason given"]
        raise InputError(
            f"{use} needs the package {module.partition('.')[0]}, which is installed but cannot be "
            f"imported: {reason.rstrip('.')}. Run {install(extra)}."
        ) from None


def missing(module: str, extra: str, use: str) -> str:
    """Return the message for a missing module of an extra: its name, and the command."""
    return f"{use} needs the package {module.partition('.')[0]}. Run {install(extra)}."


def install(extra: str) -> str:
    """Return the command that installs an extra where this package comes from."""
    if not programs.is_installed():
        return f"pip install -e '.[{extra}]' in the checkout"
    try:
        # A file by its path or address; absent if the package comes from an index.
        origin = metadata.distribution("albert_tf").read_text("direct_url.json")
    except metadata.PackageNotFoundError:
        origin = None
    at = f" @ {_address(json.loads(origin))}" if origin else ""
    return f"pip install 'albert_tf[{extra}]{at}'"


def _address(origin: dict) -> str:
    """Return the address of a direct_url.json (PEP 610), as pip takes it."""
    control, folder = origin.get("vcs_info", {}), origin.get("subdirectory", "")
    address = origin["url"]
    if control:
        revision = control.get("requested_revision") or control.get("commit_id", "")
        address = f"{control['vcs']}+{address}" + (f"@{revision}" if revision else "")
    return address + (f"#subdirectory={folder}" if folder else "")
