"""Checks of arguments that callers of the library pass."""

import numbers
from collections.abc import Mapping
from typing import Any

from albert_tf.runtime.errors import InputError

# The items of these would be characters, keys or values in any order.
_NO_LISTS = (str, bytes, Mapping, set, frozenset)


def list_of(kinds: type | tuple[type, ...], values: Any, expected: str) -> list[Any]:
    """Return the items of a list, an array, a column of a table or a generator.

    Args:
      kinds: the types that the items may have.
      values: the list.
      expected: a sentence that describes it, for error messages.

    Raises:
      InputError: `values` is a single value, a dict, a set or a table, or an item has another type.
    """
    is_table = hasattr(values, "columns")  # its items would be their names
    if is_table or isinstance(values, _NO_LISTS) or not _can_be_iterated(values):
        raise InputError(
            f"{expected} Received: {_short(values)}. Pass a list, also for a single example, or a "
            "column of a table."
        )
    items = list(values)
    for number, item in enumerate(items):
        if not isinstance(item, kinds):
            raise InputError(f"{expected} Received: {_short(item)} as number {number}.")
    return items


def positive(name: str, value: Any) -> int:
    """Return a positive integer, of Python or NumPy.

    Raises:
      InputError: `value` is another one; the message has the argument's `name`.
    """
    if not _is_integer(value) or value < 1:
        raise InputError(f"`{name}` must be a positive integer. Received: {_short(value)}.")
    return int(value)


def is_index(value: Any, count: int) -> bool:
    """Return True for an integer of Python or NumPy in [0, count)."""
    return _is_integer(value) and 0 <= value < count


def _is_integer(value: Any) -> bool:
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def _can_be_iterated(value: Any) -> bool:
    try:
        iter(value)
    except TypeError:  # also of an array without dimensions, which is an `Iterable`
        return False
    return True


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:80]
