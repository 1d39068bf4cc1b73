"""The results of fine-tuned runs, checked when they are read."""

from collections.abc import Iterable
from typing import Any

from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files.log_rows import has_numbers
from albert_tf.runtime.run_dir import RunDir


def read_result(run: RunDir) -> dict[str, Any]:
    """Return the result of a complete fine-tuned run.

    Raises:
      InputError: see `require_intact`.
    """
    result = run.result()
    require_intact(result, run.result_path)
    return result


def require_intact(result: Any, path: str, metrics: Iterable[str] = ()) -> None:
    """Check that a result has numbers where it should, with those of some metrics.

    Raises:
      InputError: it does not; the message names the file `path`.
    """
    values = result if isinstance(result, dict) else {}
    groups = [
        values.get(key, {}) for key in ("baselines", "standard_errors", "at_default_threshold")
    ]
    references = values.get("references", {})
    groups += references.values() if isinstance(references, dict) else [references]
    groups += [values["at_start"]] if "at_start" in values else []
    names = {str(values.get("metric")), *metrics}
    is_intact = (
        all(isinstance(values.get(name), float) for name in names)
        and has_numbers(values, {"dev_examples", *({"baseline", "standard_error"} & values.keys())})
        and all(isinstance(group, dict) and has_numbers(group, group) for group in groups)
        and all(str(values["metric"]) in group for group in groups[3:])
        and set(groups[2]) <= {name for name in values if has_numbers(values, [name])}
    )
    if not is_intact:
        raise InputError(
            f"{path!r} must have the scores {', '.join(sorted(names))} and what describes them, as "
            f"fine-tuning writes them. Received: {shortened(result)}. Restore the file, or remove "
            "it to make it again."
        )
