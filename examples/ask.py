"""Asks an exported model in plain TensorFlow: nothing of this project is needed, or found.

    python -I examples/ask.py export/fill_mask/1 "The file does not [MASK]."

Copy this file to wherever the model is used.
"""

import importlib.util
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  registers the tokenizer's operations


def main(path: str, texts: list[str]) -> None:
    """Prints the answer of the model at `path` to each text; exits with 1 beside our code."""
    is_importable = importlib.util.find_spec("albert_tf") is not None
    print(f"albert_tf can be imported here: {is_importable}", flush=True)
    if is_importable:
        sys.exit("ask.py: error: that proves nothing about the model alone: start it by python -I")
    model = tf.saved_model.load(path)  # to be kept: the signature does not hold its variables
    signature = model.signatures["serving_default"]
    inputs = sorted(signature.structured_input_signature[1])
    outputs = sorted(signature.structured_outputs)
    if inputs != ["text"] or not {"pieces", "label"} & set(outputs):
        print(
            f"ask.py: error: this export takes {', '.join(inputs)} and gives {', '.join(outputs)}: "
            "only those that take text and give pieces or a label can be asked here",
            file=sys.stderr,
        )
        sys.exit(2)
    answers = signature(text=tf.constant(texts))
    for row, text in enumerate(texts):
        print(text)
        if "pieces" in answers:  # fill-mask
            for pieces, probabilities in zip(answers["pieces"][row], answers["probabilities"][row]):  # noqa: B905
                if not pieces[0]:  # filled up: another text has more masks
                    continue
                pairs = zip(pieces.numpy(), probabilities.numpy())  # noqa: B905
                print(
                    "   ",
                    ", ".join(
                        f"{piece.decode()} {probability:.2f}" for piece, probability in pairs
                    ),
                )
        else:  # classifier
            print(f"    {answers['label'][row].numpy().decode()} {answers['score'][row]:.2f}")


if __name__ == "__main__":
    if len(sys.argv) < 3 or not os.path.isfile(os.path.join(sys.argv[1], "saved_model.pb")):
        print(
            "usage: python -I ask.py OUTPUT/VERSION TEXT..., of a fill-mask or a classifier export"
        )
        sys.exit(2)
    main(sys.argv[1], sys.argv[2:])
