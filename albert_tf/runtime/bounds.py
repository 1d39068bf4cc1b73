"""What values a setting may have, declared beside its type.

@dataclasses.dataclass(frozen=True)
class LoopConfig(Bounded):
    KEY = "`loop.{}`"
    steps: Annotated[int, POSITIVE] = 1000
    export: Annotated[str, one_of("none", "last")] = "none"
"""

import dataclasses
import functools
import typing
from collections.abc import Callable, Iterable
from typing import Any, ClassVar

from albert_tf.runtime.errors import ConfigError


@dataclasses.dataclass(frozen=True)
class Bound:
    """rule: what a value must do, as in a message; holds: whether it does."""

    rule: str
    holds: Callable[[Any], bool]


POSITIVE = Bound("be positive", lambda value: value > 0)  # NaN is not
NOT_NEGATIVE = Bound("not be negative", lambda value: value >= 0)
NUMBER = Bound("be a number", lambda value: value == value)


def at_least(least: float, reason: str = "") -> Bound:
    """`least` or more; the `reason` is for people."""
    return Bound(f"be at least {least}{reason and f', {reason}'}", lambda value: value >= least)


def between(interval: str) -> Bound:
    """In an interval such as "[0, 1)"."""
    low, high = map(float, interval[1:-1].split(","))

    def holds(value: float) -> bool:
        return low <= value <= high and not (
            (value == low and interval[0] == "(") or (value == high and interval[-1] == ")")
        )

    return Bound(f"be in {interval}", holds)


def one_of(*choices: str) -> Bound:
    """One of a few words."""
    return Bound(f"be one of {', '.join(choices)}", choices.__contains__)


class Bounded:
    """Mixin of dataclasses whose values are within the bounds of their fields; None always is.

    Rules between fields are a class's own `__post_init__`, which calls this one first.

    Raises:
      ConfigError: a value that is not; the message has the field's name as KEY shows it.
    """

    KEY: ClassVar[str] = "`{}`"

    def __post_init__(self) -> None:
        cls: Any = type(self)
        for name, bound in _bounds(cls):
            value = getattr(self, name)
            if value is not None and not bound.holds(value):
                raise ConfigError(
                    f"{self.KEY.format(name)} must {bound.rule}. Received: {value!r}."
                )


@functools.cache
def _bounds(cls: type) -> Iterable[tuple[str, Bound]]:
    hints = typing.get_type_hints(cls, include_extras=True)
    return [
        (name, bound)
        for name, hint in hints.items()
        for bound in getattr(hint, "__metadata__", ())
        if isinstance(bound, Bound)
    ]
