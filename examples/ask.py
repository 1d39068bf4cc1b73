"""Query an exported model in plain TensorFlow, without this project.

    python examples/ask.py export/fill_mask/1 "The file does not [MASK]."

Copy this file to wherever the model is used.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf  # noqa: E402
import tensorflow_text  # noqa: E402, F401  registers the tokenizer's operations


def main(path: str, texts: list[str]) -> None:
    """Print the prediction of the model at `path` for each text."""
    model = tf.saved_model.load(path)  # keep it: the signature does not hold its variables
    signature = model.signatures["serving_default"]
    inputs = sorted(signature.structured_input_signature[1])
    outputs = sorted(signature.structured_outputs)
    if inputs != ["text"] or not {"pieces", "label", "labels", "embedding"} & set(outputs):
        print(
            f"ask.py: error: this export takes {', '.join(inputs)} and returns "
            f"{', '.join(outputs)}: this script needs one that takes text and returns pieces, a "
            "label, labels or an embedding",
            file=sys.stderr,
        )
        sys.exit(2)
    answers = signature(text=tf.constant([os.fsencode(text) for text in texts]))
    if "embedding" in answers:  # the other texts by the cosine of their angle to the first
        vectors = tf.math.l2_normalize(answers["embedding"], axis=1).numpy()
        cosines = vectors @ vectors[0]
        print(texts[0])
        if len(texts) == 1:
            print("    (pass more texts to compare them with this one)")
        for row in sorted(range(1, len(texts)), key=lambda row: -cosines[row]):
            print(f"    {cosines[row]:.2f} {texts[row]}")
        return
    for row, text in enumerate(texts):
        print(text)
        if "pieces" in answers:  # fill-mask
            for pieces, probabilities in zip(answers["pieces"][row], answers["probabilities"][row]):  # noqa: B905
                if not pieces[0]:  # padding: another text has more masks
                    continue
                pairs = zip(pieces.numpy(), probabilities.numpy())  # noqa: B905
                print(
                    "   ",
                    ", ".join(
                        f"{piece.decode()} {probability:.2f}" for piece, probability in pairs
                    ),
                )
        elif "labels" in answers:  # multi-label classifier: the rest of the row is empty
            names = [name.decode() for name in answers["labels"][row].numpy() if name]
            print(f"    {', '.join(names) or '(no label)'}")
        elif "start" in answers:  # token classifier: the rest of the row is empty
            spans = zip(*(answers[name][row].numpy() for name in ("text", "label", "score")))  # noqa: B905
            for span, label, score in spans:
                if label:
                    print(f"    {span.decode()}: {label.decode()} {score:.2f}")
        else:  # classifier
            print(f"    {answers['label'][row].numpy().decode()} {answers['score'][row]:.2f}")


if __name__ == "__main__":
    sys.stdout.reconfigure(errors="backslashreplace")  # a terminal may lack characters
    if len(sys.argv) < 3:
        print(
            "usage: python ask.py OUTPUT/VERSION TEXT... (a fill-mask, classifier, multi-label, "
            "token-classification or embedding export)",
            file=sys.stderr,
        )
        sys.exit(2)
    if not os.path.isfile(os.path.join(sys.argv[1], "saved_model.pb")):
        print(
            f"ask.py: error: no saved_model.pb in {sys.argv[1]!r}: it must be OUTPUT/VERSION",
            file=sys.stderr,
        )
        sys.exit(2)
    main(sys.argv[1], sys.argv[2:])
