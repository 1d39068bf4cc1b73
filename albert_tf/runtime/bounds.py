"""Bounds on the values of settings, declared with their types.

They apply to dataclasses that derive from `Bounded`:

    @dataclasses.dataclass(frozen=True)
    class LoopConfig(Bounded):
        KEY = "`loop.{}`"
        steps: Annotated[int, POSITIVE] = 1000
        export: Annotated[str, one_of("none", "last")] = "none"
"""

import dataclasses
import functools
import math
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from albert_tf.runtime.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Bound:
    """A rule for a value.

    Attributes:
      rule: the words that follow "must" in a message.
      holds: returns True for values that follow the rule.
    """

    rule: str
    holds: Callable[[Any], bool]


POSITIVE = Bound("be positive", lambda value: 0 < value < math.inf)  # NaN is not
NOT_NEGATIVE = Bound("not be negative", lambda value: 0 <= value < math.inf)
NUMBER = Bound("be a number", lambda value: not math.isnan(value))
FINITE = Bound("be a finite number", math.isfinite)


def at_least(least: float, reason: str = "") -> Bound:
    """Return the bound of `least` or more; the `reason` appears in messages."""
    return Bound(f"be at least {least}{reason and f', {reason}'}", lambda value: value >= least)


def at_most(most: int) -> Bound:
    """Return the bound of `most` or less.

    It stands at sizes in files: a much larger one is a mistake, and would take all memory before
    any other message.
    """
    return Bound(f"be at most {most:,}", lambda value: value <= most)


MOST_PIECES = at_most(2**20)  # of a sequence


def between(interval: str) -> Bound:
    """Return the bound of an interval such as "[0, 1)" or "[0, 2^31)"."""
    low, high = (_number(end) for end in interval[1:-1].split(","))

    def holds(value: float) -> bool:
        return low <= value <= high and not (
            (value == low and interval[0] == "(") or (value == high and interval[-1] == ")")
        )

    return Bound(f"be in {interval}", holds)


def _number(text: str) -> float:
    base, _, power = text.partition("^")
    return float(base) ** float(power or 1)


def one_of(*choices: str) -> Bound:
    """Return the bound of a few allowed words."""
    return Bound(f"be one of {', '.join(choices)}", choices.__contains__)


class Bounded:
    """A mixin for dataclasses that checks the bounds of the fields.

    None is valid where the type allows it. A class checks rules between fields in its own
    `__post_init__`, which calls this one first.

    Raises:
      ConfigError: a value is out of bounds; the message shows the field's name in the format KEY.
    """

    KEY: ClassVar[str] = "`{}`"

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, optional, bound in _bounds(cls):
            value = getattr(self, name)
            if not (optional if value is None else bound.holds(value)):
                raise ConfigError(
                    f"{self.KEY.format(name)} must {bound.rule}. Received: {value!r}."
                )


@functools.cache
def _bounds(cls: type) -> Iterable[tuple[str, bool, Bound]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return [
        (name, type(None) in typing.get_args(hint.__origin__), bound)
        for name, hint in hints.items()
        for bound in getattr(hint, "__metadata__", ())
        if isinstance(bound, Bound)
    ]
