"""Which runs a data set can be asked of: what their `task` section must say."""

from typing import Any

from albert_tf.runtime.errors import InputError


def require_section(name: str, task: Any, **wanted: Any) -> None:
    """Refuses the `task` section of a run whose answers are not those of the data set `name`.

    Args:
      wanted: key of the section -> the only value that fits.

    Raises:
      InputError: which keys of the section have other values.
    """
    found = {key: getattr(task, key, None) for key in wanted}
    if differing := [key for key in wanted if found[key] != wanted[key]]:
        raise InputError(
            f"--task: {name} must be asked of a run with {_said(wanted, differing)}. Received: a "
            f"run with {_said(found, differing)}. Name another run, or the run's own task."
        )


def _said(values: dict[str, Any], keys: list[str]) -> str:
    return " and ".join(f"`task.{key}` {values[key]!r}" for key in keys)
