"""The runs of a table: globs, names of included models, and baselines."""

import os
from collections.abc import Sequence

from albert_tf.runtime import pretrained
from albert_tf.runtime.errors import InputError, InputNotFoundError
from albert_tf.runtime.files.paths import matching
from albert_tf.runtime.run_dir import RunDir
from finetuning.reporting.paper_table import BAG_OF_WORDS, name_of


def find_runs(items: Sequence[str]) -> list[str]:
    """Return the runs that the values of --runs stand for, without repetition.

    Raises:
      InputNotFoundError: an item matches no run.
      InputError: two runs have the same name.
    """
    runs = list(dict.fromkeys(run for item in items for run in _all_matches(item)))
    names = [name_of(run) for run in runs]
    if twice := [run for run, name in zip(runs, names, strict=True) if names.count(name) > 1]:
        raise InputError(
            "--runs must have different names, because OUTPUT/RUN is each run's folder. Received: "
            f"{' and '.join(twice)}. Rename one, or make separate tables."
        )
    return runs


def _all_matches(item: str) -> list[str]:
    """Return the runs that an item of --runs stands for, which may be several with commas."""
    if matches := _matches(item):  # its path may have a comma
        return matches
    runs = []
    for pattern in item.strip(",").split(","):
        if not (matches := _matches(pattern.strip())):
            raise InputNotFoundError(
                f"--runs matches no run: {pattern!r} (working directory {os.getcwd()}). Included "
                f"models: {', '.join(pretrained.names())}. Baselines: {BAG_OF_WORDS}, and "
                f"{pretrained.RANDOM}RUN for random initialization of any of these."
            )
        runs += matches
    return runs


def _matches(pattern: str) -> list[str]:
    """Return the runs that a glob or a name stands for."""
    if pattern == BAG_OF_WORDS:
        return [pattern]
    if pattern.startswith(pretrained.RANDOM):
        return [
            pretrained.RANDOM + run for run in _matches(pattern.removeprefix(pretrained.RANDOM))
        ]
    if pattern in pretrained.names() and not os.path.exists(pattern):
        return [pattern]
    paths = map(os.path.normpath, matching(pattern))
    return [path for path in paths if os.path.isfile(RunDir(path).config_path)]
