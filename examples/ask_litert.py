"""Query a LiteRT export of a model of texts without TensorFlow, as a phone app does.

    python -m examples.ask_litert export/reviews/1 "a gripping story"

Each text is one query; for a task on pairs, each pair is. An app does the same in its own language:
normalize as in tokenizer/albert_tokenizer.json, tokenize by sentencepiece with
tokenizer/spiece.model, divide pieces such as `▁2010,` (docs/serving.md), add the special pieces,
run LiteRT, and read the labels from config.json.
"""

import json
import os
import sys
from collections.abc import Sequence

import numpy as np
from ai_edge_litert.interpreter import Interpreter

import albert_tf
from albert_tf.text.tokenizer import Tokenizer


class Model:
    """The folder OUTPUT/VERSION of `python -m albert_tf.export --format=litert`.

    Attributes:
      task: the `task` section of its config.json.
    """

    def __init__(self, path: str) -> None:
        with open(os.path.join(path, "config.json"), encoding="utf-8") as file:
            self.task = json.load(file)["task"]
        self._tokenizer: Tokenizer = albert_tf.load_tokenizer(path)
        interpreter = Interpreter(os.path.join(path, "model.tflite"))
        self._run = interpreter.get_signature_runner()
        *_, width = self._run.get_input_details()["input_word_ids"]["shape_signature"]
        self._width = None if width == -1 else int(width)  # None: any length

    def __call__(self, *texts: str) -> dict[str, np.ndarray]:
        """Return the outputs for a text or a pair: `probabilities` [1, C], or `score` [1]."""
        special = self._tokenizer.special
        max_length = min(self.task["seq_length"], self._width or self.task["seq_length"])
        ids, types = [special.cls], [0]
        for segment, pieces in enumerate(self._cut(texts, max_length - 1 - len(texts))):
            ids += [*pieces, special.sep]
            types += [segment] * (len(pieces) + 1)
        padding = [0] * ((self._width or len(ids)) - len(ids))
        rows = {
            "input_word_ids": ids + [special.pad] * len(padding),
            "input_mask": [1] * len(ids) + padding,
            "input_type_ids": types + padding,
        }
        return self._run(**{name: np.array([row], np.int32) for name, row in rows.items()})

    def _cut(self, texts: Sequence[str], max_pieces: int) -> list[list[int]]:
        """Return the ids of the texts; the longest one is truncated until all fit."""
        parts = self._tokenizer.encode_batch(texts)
        if sum(map(len, parts)) > max_pieces and self.task.get("long_texts", "cut") != "cut":
            sys.exit(
                "ask_litert.py: error: this model reads long texts in windows, whose answers an "
                "app must pool (docs/serving.md). This example does not."
            )
        while sum(map(len, parts)) > max_pieces:
            max(reversed(parts), key=len).pop()
        return parts


def main(path: str, texts: Sequence[str]) -> None:
    """Print the prediction of the model at `path` for each text, or pair of texts."""
    model = Model(path)
    if "pair" not in model.task:
        sys.exit(f"ask_litert.py: error: {path} is not a classifier or a regressor of texts.")
    count = 2 if model.task["pair"] else 1
    if len(texts) % count:
        sys.exit(
            f"ask_litert.py: error: {path} takes pairs of texts. Received: {len(texts)} texts."
        )
    for begin in range(0, len(texts), count):
        batch = texts[begin : begin + count]
        outputs = model(*batch)
        if not {"chosen", "probabilities", "score"} & set(outputs):
            sys.exit(f"ask_litert.py: error: {path} returns {', '.join(outputs)}: no answer.")
        print(" | ".join(batch))
        if "chosen" in outputs:
            chosen = zip(model.task["labels"], outputs["chosen"][0], strict=True)
            names = ", ".join(name for name, is_chosen in chosen if is_chosen)
            print(f"    {names or '(no label)'}")
        elif "probabilities" in outputs:
            (probabilities,) = outputs["probabilities"]
            print(f"    {model.task['labels'][probabilities.argmax()]} {probabilities.max():.2f}")
        else:
            print(f"    {outputs['score'][0]:.2f}")


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack characters
    if len(sys.argv) < 3:
        print("usage: python -m examples.ask_litert OUTPUT/VERSION TEXT...", file=sys.stderr)
        sys.exit(2)
    for name in ("model.tflite", "config.json"):
        if not os.path.isfile(os.path.join(sys.argv[1], name)):
            print(
                f"ask_litert.py: error: no {name} in {sys.argv[1]!r}: it must be OUTPUT/VERSION "
                "of an export with --format=litert",
                file=sys.stderr,
            )
            sys.exit(2)
    main(sys.argv[1], sys.argv[2:])
