"""Named tensors in a folder of Hugging Face's transformers: safetensors or torch pickles."""

import os
import textwrap
from collections.abc import Mapping

import numpy as np
import safetensors
import safetensors.numpy

from albert_tf.runtime import extras
from albert_tf.runtime.errors import InputError, InputNotFoundError, reading

WEIGHTS_FILE, TORCH_FILE = "model.safetensors", "pytorch_model.bin"
_WRAPPER = "module."


def read(path: str) -> dict[str, np.ndarray]:
    """Read the tensors of model.safetensors or, failing that, of pytorch_model.bin (needs torch).

    Raises:
      InputNotFoundError: the folder `path` contains neither file.
      InputError: the weights are split over several files, or the file cannot be read.
    """
    for name, read_file in ((WEIGHTS_FILE, _read_safetensors), (TORCH_FILE, _read_torch)):
        file = os.path.join(path, name)
        if os.path.isfile(file):
            with reading(file), open(file, "rb"):  # the readers' own errors give no reason
                pass
            return _without_wrapper(read_file(file))
        if os.path.isfile(f"{file}.index.json"):
            raise InputError(
                f"{file}.index.json lists weights in several files, but they must be in one. Write "
                f"it with AutoModel.from_pretrained({path!r}).save_pretrained(NEW, "
                "max_shard_size='100GB'), and replace AutoModel with the class that config.json "
                "names."
            )
    raise InputNotFoundError(
        f"neither {WEIGHTS_FILE} nor {TORCH_FILE} in {path!r} (working directory {os.getcwd()})."
    )


def _without_wrapper(tensors: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Return tensors without the prefix that torch's DataParallel gives the names of all."""
    if not all(name.startswith(_WRAPPER) for name in tensors):
        return tensors
    return {name.removeprefix(_WRAPPER): value for name, value in tensors.items()}


def write(tensors: Mapping[str, np.ndarray], folder: str) -> None:
    """Write model.safetensors, without `save_file`, which would make it private (mode 0600)."""
    with open(os.path.join(folder, WEIGHTS_FILE), "wb") as file:
        file.write(safetensors.numpy.save(dict(tensors), metadata={"format": "pt"}))


def _read_safetensors(file: str) -> dict[str, np.ndarray]:
    try:
        with safetensors.safe_open(file, framework="numpy") as tensors:
            return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118
    except (safetensors.SafetensorError, TypeError, AttributeError) as error:  # of other numbers
        raise InputError(f"{file!r} is not a readable safetensors file: {error}.") from None


def _read_torch(file: str) -> dict[str, np.ndarray]:
    torch = extras.load("torch", "huggingface-torch", f"reading {TORCH_FILE}")
    try:
        state = torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # invalid pickle bytes can raise any type
        reason = textwrap.shorten(str(error), 200)
        raise InputError(f"{file!r} is not a readable file of torch tensors: {reason}") from None
    entries = state.items() if isinstance(state, Mapping) else [("the whole", state)]
    for name, value in entries:
        if not isinstance(value, torch.Tensor):
            raise InputError(
                f"{file!r} must hold tensors by name, as a model's state_dict() does. Received: "
                f"{name!r} of type {type(value).__name__}."
            )
    return {name: tensor.float().numpy() for name, tensor in entries}
