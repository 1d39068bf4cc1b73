"""Frozen dataclass trees as configuration: strict reading, typed dotted overrides, plain JSON.

A tree is a frozen dataclass whose fields are scalars, tuples of scalars, plain dicts or other such
trees.
Unknown keys, values of the wrong type and invalid values raise errors that give the key.
"""

import contextlib
import dataclasses
import difflib
import types
import typing
from collections.abc import Iterable, Mapping
from typing import Any, TypeVar

import numpy as np

from albert_tf.runtime.errors import ConfigError, shortened

T = TypeVar("T")
ABSENT = "<absent>"  # the value of a missing key in `differing_keys`
_BOOLEANS = {"true": True, "1": True, "yes": True, "false": False, "0": False, "no": False}


def to_dict(tree: Any) -> dict[str, Any]:
    """Return the tree as nested dicts of JSON values; tuples and arrays become lists."""
    return _plain(dataclasses.asdict(tree))


def defaults_of(tree: Any) -> dict[str, Any]:
    """Return the defaults of the tree's fields as `to_dict` would, where there are any."""
    defaults = {}
    for field in dataclasses.fields(tree):
        value = getattr(tree, field.name)
        if dataclasses.is_dataclass(value):
            defaults[field.name] = defaults_of(value)
        elif field.default is not dataclasses.MISSING:
            defaults[field.name] = _plain(field.default)
    return defaults


def from_dict(cls: type[T], values: Mapping[str, Any], where: str = "") -> T:
    """Build `cls` from nested mappings; every key must be a field of the tree.

    Messages prefix the keys with `where`.

    Raises:
      ConfigError: a key is unknown (the message suggests the nearest valid one) or missing, or a
        value has the wrong type.
    """
    if not isinstance(values, Mapping):
        section = where.rstrip(".") or "the configuration"
        raise ConfigError(f"`{section}` must be a section of keys. Received: {shortened(values)}.")
    hints = typing.get_type_hints(cls)
    known = {f.name: hints[f.name] for f in dataclasses.fields(typing.cast(Any, cls))}
    built: dict[str, Any] = {}
    for key, value in values.items():
        path = f"{where}{key}"
        if key not in known:
            raise ConfigError(unknown_key(path, [f"{where}{name}" for name in known]))
        if dataclasses.is_dataclass(known[key]):
            built[key] = from_dict(typing.cast(type, known[key]), value, f"{path}.")
        else:
            built[key] = _checked(path, known[key], value)
    if missing := [f"`{where}{name}`" for name in _required(cls) if name not in built]:
        raise ConfigError(f"{', '.join(missing)} must be stated, but the key is missing.")
    return cls(**built)


def require_types(tree: Any) -> None:
    """Check that each field of a dataclass has a value of its type.

    Raises:
      ConfigError: one has not.
    """
    hints = typing.get_type_hints(type(tree))
    for field in dataclasses.fields(tree):
        _checked(field.name, hints[field.name], getattr(tree, field.name))


def _required(cls: Any) -> list[str]:
    absent = dataclasses.MISSING
    fields = dataclasses.fields(cls)
    return [f.name for f in fields if f.default is absent and f.default_factory is absent]


def override(tree: T, assignments: Iterable[str]) -> T:
    """Return `tree` with `key=value` strings applied, each converted to its field's type.

    The keys of nested trees are dotted.

    >>> override(config, ["model.num_layers=6", "loop.steps=1000"])
    """
    # Apply all at once: values that depend on each other may be invalid one by one.
    changes: dict[str, Any] = {}
    for assignment in assignments:
        key, equals, text = assignment.partition("=")
        if not equals:
            raise ConfigError(f"`--set` takes key=value. Received: {assignment!r}.")
        section = changes
        *path, name = key.strip().split(".")
        for part in path:
            section = section.setdefault(part, {})
        section[name] = _parsed(tree, key.strip(), text)
    return _replaced(tree, changes)


def differing_keys(left: Any, right: Any) -> list[str]:
    """Return the dotted keys in which two trees or nested dicts differ.

    Each has the form `key: left != right`. The key of a list entry is its index. Lists of different
    lengths are compared as a whole.
    """
    return _differing("", *(x if isinstance(x, Mapping) else to_dict(x) for x in (left, right)))


def unknown_key(key: str, valid: Iterable[str], what: str = "key") -> str:
    """Return the error message for an unknown key.

    It suggests the valid keys that begin with `key`, or else those that resemble it, or else lists
    all.
    """
    valid = sorted(valid)
    suggestions = [name for name in valid if name.startswith(key)][:3]
    suggestions = suggestions or difflib.get_close_matches(key, valid, n=3, cutoff=0.5)
    hint = (
        f"Did you mean {' or '.join(suggestions)}?"
        if suggestions
        else f"Valid {what}s: {', '.join(valid)}."
    )
    return f"unknown {what} `{key}`. {hint}"


def _parsed(tree: Any, key: str, text: str) -> Any:
    """Return `text` converted to the type of the tree's field at the dotted `key`."""
    path, hint = key.split("."), None
    for depth, name in enumerate(path):
        hints, parent = typing.get_type_hints(type(tree)), ".".join(path[:depth])
        fields = [f.name for f in dataclasses.fields(tree)]
        prefix = f"{parent}." if parent else ""
        if name not in fields:
            if len(path) == 1 and (inside := _keys_inside(tree, name)):
                raise ConfigError(f"unknown key `{key}`. Did you mean {' or '.join(inside)}?")
            raise ConfigError(unknown_key(prefix + name, [prefix + field for field in fields]))
        tree, hint = getattr(tree, name), hints[name]
        is_section, is_last = dataclasses.is_dataclass(tree), depth == len(path) - 1
        if is_section and is_last:
            raise ConfigError(
                f"`{key}` is a section: set one of its keys, as in `{key}.NAME=value`."
            )
        if not is_section and not is_last:
            raise ConfigError(f"`{prefix}{name}` is not a section. Received: {key!r}.")
    return parse(key, hint, text)


def _keys_inside(tree: Any, name: str) -> list[str]:
    """Return the dotted keys of the tree's sections whose last part is `name`."""
    return [
        f"{section.name}.{name}"
        for section in dataclasses.fields(tree)
        if dataclasses.is_dataclass(inner := getattr(tree, section.name))
        and name in (field.name for field in dataclasses.fields(inner))
    ]


def _replaced(tree: Any, changes: Mapping[str, Any]) -> Any:
    values = {
        name: _replaced(getattr(tree, name), value) if isinstance(value, dict) else value
        for name, value in changes.items()
    }
    return dataclasses.replace(tree, **values)


def parse(key: str, hint: Any, text: str) -> Any:
    """Convert command-line text to the type `hint`.

    Raises:
      ConfigError: the text does not fit; the message gives `key`, the type and the text.
    """
    optional, kind, item = _kind(hint)
    if optional and text.lower() in ("none", ""):
        return None
    if kind is tuple:
        return tuple(parse(key, item, part) for part in text.split(",") if part)
    try:
        return _BOOLEANS[text.lower()] if kind is bool else kind(text)
    except (KeyError, ValueError):
        raise ConfigError(f"`{key}` must be of type {kind.__name__}. Received: {text!r}.") from None


def _checked(path: str, hint: Any, value: Any) -> Any:
    optional, kind, item = _kind(hint)
    if value is None and optional:
        return None
    if kind is tuple and isinstance(value, list | tuple):
        return tuple(_checked(path, item, part) for part in value)
    if kind is float and isinstance(value, int) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise ConfigError(
            f"`{path}` must be of type {kind.__name__}. Received: {shortened(value)}."
        )
    return value


def _kind(hint: Any) -> tuple[bool, type, Any]:
    """Return (True if None is allowed, scalar type, dict or tuple, type of a tuple's items)."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (inner,) = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return True, *_kind(inner)[1:]
    if typing.get_origin(hint) is tuple:
        return False, tuple, typing.get_args(hint)[0]
    return False, typing.get_origin(hint) or hint, None


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return [_plain(inner) for inner in value] if isinstance(value, list | tuple) else value


def _differing(key: str, left: Any, right: Any) -> list[str]:
    are_lists = isinstance(left, list | tuple) and isinstance(right, list | tuple)
    if are_lists and len(left) == len(right):
        left, right = dict(enumerate(left)), dict(enumerate(right))
    if not (isinstance(left, Mapping) and isinstance(right, Mapping)):
        return [] if left == right else [f"{key}: {shortened(left)} != {shortened(right)}"]
    return [
        line
        for name in sorted(left.keys() | right.keys())
        for line in _differing(
            f"{key}.{name}" if key else name, left.get(name, ABSENT), right.get(name, ABSENT)
        )
    ]
