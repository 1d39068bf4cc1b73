"""The differences between a run's configuration and that of a command, and a refusal for them."""

import re
from collections.abc import Mapping
from typing import Any

from albert_tf.runtime import settings
from albert_tf.runtime.report_text import counted

# The keys of config.json that follow from the content of the data.
_DATA_KEY = re.compile(r"data|records_sketches.*|records\.\d+\.(?!weight$).*|heldout\..*")
_SHOWN = 8  # differing keys in a message


def differences(
    saved: Mapping[str, Any], wanted: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """Return the differences as `settings.differing_keys` does.

    A key that the run lacks has its default, as for all readers of config.json. Weights may have
    moved: `init` is not compared if `init_weights` are the same, nor these if one side lacks them.
    """
    saved = _filled(saved, defaults)
    before, now = saved.get("init_weights"), wanted.get("init_weights")
    left_out = "init_weights" if None in (before, now) else "init" * (before == now != "")
    lines = settings.differing_keys(
        *({key: config[key] for key in config if key != left_out} for config in (saved, wanted))
    )
    mixed = [config.get("records") for config in (saved, wanted)]
    counts = [len(parts) for parts in mixed if isinstance(parts, list)]
    if len(set(counts)) > 1:  # of the folders of --data, which cannot be compared one by one
        lines = [line for line in lines if not line.startswith("records")]
        lines.append(f"records: {' != '.join(counted(count, 'folder') for count in counts)}")
    return lines


def refusal(path: str, differing: list[str], code: tuple[str, str] | None) -> str:
    """Return the error message for a run at `path` whose configuration differs in these lines.

    If other code began it, `code` has that code and this one.
    """
    lines = {line.partition(":")[0]: line for line in differing}
    weights = lines.pop("init_weights", None)
    rest = [line for key, line in lines.items() if not _DATA_KEY.fullmatch(key)]
    problems = []
    if len(rest) < len(lines):
        what = "the data or its fingerprint" if code else "the data"
        problems.append(f"{what} has changed since the run began")
    if weights:
        changed = "the weights of --init have changed since the run began"
        other = "--init has other weights than the run began with"
        problems.append(other if "init" in lines else changed)
    if rest:
        more = f"; and {len(rest) - _SHOWN} more" if len(rest) > _SHOWN else ""
        problems.append(
            "the configuration differs (the run's value != yours): "
            f"{'; '.join(rest[:_SHOWN])}{more}"
        )
    remedies = ["name another folder"]
    if rest and not any(repr(settings.ABSENT) in line for line in rest):
        remedies.append("pass the run's values")
    origin = ""
    if code:
        origin = f" It was begun by {code[0]}, and this is {code[1]}."
        remedies.insert(0, "continue it with the code that began it")
    message = f"{'; '.join(problems)}.{origin} {_sentence(remedies)}"
    if "loop.steps" in lines:
        message += f" To train longer, begin a run with --init={path}."
    return f"--run_dir={path} holds another run: {message}"


def _sentence(remedies: list[str]) -> str:
    """Return "A, b, or c."."""
    *others, last = remedies
    text = ", ".join([*others, f"or {last}" if others else last])
    return f"{text[0].upper()}{text[1:]}."


def _filled(values: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested values, with the defaults of the missing ones."""
    return {**defaults, **values} | {
        key: _filled(values[key], default)
        for key, default in defaults.items()
        if isinstance(default, Mapping) and isinstance(values.get(key), Mapping)
    }
