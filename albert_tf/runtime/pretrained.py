"""Trained models that the package includes, by name."""

import os
import re

from albert_tf.runtime.errors import InputNotFoundError
from albert_tf.runtime.files import paths

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pretrained")
RANDOM = "random:"  # before a path where weights are loaded: the same model, randomly initialized
_PUBLISHED = re.compile(r"albert-(base|large|xlarge|xxlarge)-v[12]")
_HOW_TO_FETCH = (
    " To fetch the published weights: `hf download albert/{0} --local-dir DIR`, then `python -m "
    "albert_tf.convert --from=huggingface:DIR --to=artifacts/{0} "
    "--allow_missing=pair_head{1}`, and pass artifacts/{0}."
)
_HOW_TO_CONVERT = " Convert another project's checkpoint with `python -m albert_tf.convert` first."


def names() -> list[str]:
    """Return the names of the models in the folder `albert_tf/pretrained`."""
    if not os.path.isdir(FOLDER):
        return []
    return sorted(name for name in os.listdir(FOLDER) if os.path.isdir(os.path.join(FOLDER, name)))


def name_of(path: str | os.PathLike[str]) -> str:
    """Return the name of an included model, or else the absolute path."""
    path = os.fspath(path)
    if path in names() and not os.path.exists(path):
        return path
    return os.path.abspath(paths.expand(path))


def shown(path: str) -> str:
    """Return a path, with the folder of an included model shortened to its name."""
    return path.replace(FOLDER + os.sep, "")


def locate(path: str | os.PathLike[str]) -> str:
    """Return the folder of a trained model, given its path or the name of an included model.

    A path that exists takes precedence over a name. Any other path with a `/` is returned as it is,
    except that `~` is expanded.

    Raises:
      InputNotFoundError: `path` is neither; the message lists the names.
    """
    path = paths.expand(os.fspath(path))
    if os.path.exists(path) or os.path.basename(path) != path:
        return path
    if path not in names():
        # The published v1 folders name an activation other than the one that was trained with.
        ignore = " --ignore=hidden_act" if path.endswith("-v1") else ""
        raise InputNotFoundError(
            f"no file or folder {path!r} (working directory {os.getcwd()}), and no model of that "
            f"name is included in albert_tf. Included models: {', '.join(names()) or 'none'}."
            + (
                _HOW_TO_FETCH.format(path, ignore)
                if _PUBLISHED.fullmatch(path)
                else _HOW_TO_CONVERT
            )
        )
    return os.path.join(FOLDER, path)
