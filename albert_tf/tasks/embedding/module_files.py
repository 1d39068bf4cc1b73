"""What a folder of sentence-transformers states, whatever kind of model it holds."""

import os
from collections.abc import Mapping
from typing import Any

from albert_tf.runtime.errors import InputError, shortened
from albert_tf.runtime.files import outputs
from albert_tf.runtime.files.json_text import parse_json
from albert_tf.runtime.files.text_files import text_of

MODULES = "modules.json"
LENGTHS = "sentence_bert_config.json"
FLAGS = {  # of each pooling, before version 6 gave them one key
    "cls": "pooling_mode_cls_token",
    "mean": "pooling_mode_mean_tokens",
    "max": "pooling_mode_max_tokens",
    "mean_sqrt_len": "pooling_mode_mean_sqrt_len_tokens",
}


def modules_in(folder: str) -> list[tuple[str, str]]:
    """Return the class and the path of each module; none if the list has another form."""
    path = os.path.join(folder, MODULES)
    modules = parse_json(text_of(path), path)
    try:
        return [(str(each["type"]).rpartition(".")[2], str(each["path"])) for each in modules]
    except (TypeError, KeyError):
        return []


def pooling_in(config: Mapping[str, Any]) -> str:
    """Return the name of the pooling in its configuration, or the names if there are several."""
    mode = config.get("pooling_mode")
    if mode is not None:
        return str(mode)
    chosen = [key for key, value in config.items() if "pooling_mode" in key and value is True]
    names = {flag: name for name, flag in FLAGS.items()}
    return ", ".join(names.get(key, key) for key in chosen)


def max_length_in(folder: str) -> int | None:
    """Return the maximum pieces of a text, special pieces included; None if no file states it.

    Raises:
      InputError: a length is no number, or a file is damaged.
    """
    for sources in (
        ((LENGTHS, "max_seq_length"),),
        (("tokenizer_config.json", "model_max_length"), ("config.json", "max_position_embeddings")),
    ):
        lengths = []
        for file, key in sources:
            path = os.path.join(folder, file)
            if os.path.isfile(path) and (value := outputs.read_json(path).get(key)) is not None:
                lengths.append(_length(value, f"{path!r}: `{key}`"))
        if lengths:
            return min(lengths)
    return None


def _length(value: Any, where: str) -> int:
    """Return a length in a file; larger ones than any model has stand for none."""
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 3:
        raise InputError(f"{where} must be a whole number above 2. Received: {shortened(value)}.")
    return int(min(value, 2**20))
