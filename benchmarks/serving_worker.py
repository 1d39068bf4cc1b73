"""Run one system of `benchmarks.serving`: build its classifier, then answer lines of JSON texts.

python -m benchmarks.serving_worker SYSTEM PRESET TOKENIZER SEQ_LENGTH FOLDER CORES
"""

import contextlib
import json
import multiprocessing
import os
import sys
import time
from collections.abc import Callable

Classify = Callable[[list[str]], list[list[float]]]  # texts -> probabilities
LABELS = ("no", "yes")


def ours(preset: str, tokenizer_path: str, seq_length: int, folder: str) -> Classify:
    """Return our export, called from Python."""
    _export_ours(preset, tokenizer_path, seq_length, folder, "float32")
    return _load(folder)


def ours_bf16(preset: str, tokenizer_path: str, seq_length: int, folder: str) -> Classify:
    """Return our export, computing in bfloat16."""
    _export_ours(preset, tokenizer_path, seq_length, folder, "mixed_bfloat16")
    return _load(folder)


def ours_c_api(preset: str, tokenizer_path: str, seq_length: int, folder: str) -> Classify:
    """Return our export in a session of TensorFlow's C API.

    This process does not import TensorFlow's Python package.
    """
    exporter = multiprocessing.get_context("spawn").Process(
        target=_export_ours, args=(preset, tokenizer_path, seq_length, folder, "float32")
    )
    exporter.start()
    exporter.join()
    if exporter.exitcode:
        raise ChildProcessError(f"The export ended with status {exporter.exitcode}.")
    from examples.c_api import Session

    session = Session(folder)
    return lambda texts: session.run({"text": texts})["probabilities"]


def tf_models_official(preset: str, tokenizer_path: str, seq_length: int, folder: str) -> Classify:
    """Return Model Garden's SavedModel: text -> pieces -> padded to `seq_length` -> labels."""
    import tensorflow as tf
    import tf_keras
    from official.nlp.modeling import layers

    from albert_tf.models.config import AlbertConfig
    from albert_tf.text.tokenizer import load_tokenizer
    from benchmarks.systems.tf_models_official import encoder_like

    tokenizer = load_tokenizer(tokenizer_path)
    os.makedirs(folder)
    model_file = os.path.join(folder, "spiece.model")
    with open(model_file, "wb") as file:
        file.write(tokenizer.model)
    tokenize = layers.SentencepieceTokenizer(
        model_file_path=model_file, lower_case=True, strip_diacritics=True
    )
    special = tokenize.get_special_tokens_dict()
    pack = layers.BertPackInputs(seq_length, special_tokens_dict=special)
    config = AlbertConfig.from_preset(preset).replace(vocab_size=tokenizer.vocab_size)
    text = tf_keras.Input([], dtype=tf.string, name="text")
    packed = pack(tokenize(text))
    pooled = encoder_like(config)(
        [packed[name] for name in ("input_word_ids", "input_mask", "input_type_ids")]
    )["pooled_output"]
    probabilities = tf_keras.layers.Dense(len(LABELS), activation="softmax")(pooled)
    model = tf_keras.Model(text, probabilities)
    serve = tf.function(
        lambda text: {"probabilities": model(text)},
        input_signature=[tf.TensorSpec([None], tf.string, "text")],
    )
    path = os.path.join(folder, "1")
    tf.saved_model.save(model, path, signatures=serve)
    return _load(path)


def hf_torch(preset: str, tokenizer_path: str, seq_length: int, folder: str) -> Classify:
    """Return the torch classifier of transformers, which pads to the longest text."""
    import torch
    from transformers import AlbertConfig as HfConfig
    from transformers import AlbertForSequenceClassification, AlbertTokenizer

    from albert_tf.models.config import AlbertConfig
    from albert_tf.text.tokenizer import load_tokenizer
    from benchmarks.systems.hf_config import hf_config
    from benchmarks.workloads import Workload

    ours = load_tokenizer(tokenizer_path)
    os.makedirs(folder)
    with open(os.path.join(folder, "spiece.model"), "wb") as file:
        file.write(ours.model)
    tokenize = AlbertTokenizer.from_pretrained(folder)
    config = AlbertConfig.from_preset(preset).replace(vocab_size=ours.vocab_size)
    keys = hf_config(Workload(config, 1, seq_length, 1))
    model = AlbertForSequenceClassification(HfConfig(**keys)).eval()
    torch.set_num_threads(len(os.sched_getaffinity(0)))

    def classify(texts: list[str]) -> list[list[float]]:
        batch = tokenize(
            texts, padding=True, truncation=True, max_length=seq_length, return_tensors="pt"
        )
        with torch.inference_mode():
            return model(**batch).logits.softmax(-1).tolist()

    return classify


SYSTEMS = {
    "ours": ours,
    "ours-bf16": ours_bf16,
    "ours-c-api": ours_c_api,
    "tf-models-official": tf_models_official,
    "hf-torch": hf_torch,
}


def _export_ours(
    preset: str, tokenizer_path: str, seq_length: int, folder: str, precision: str
) -> None:
    import tensorflow as tf

    from albert_tf.export.constant_stack import with_constants
    from albert_tf.export.modules.classifier import ClassifierModule
    from albert_tf.models.config import AlbertConfig
    from albert_tf.models.encoder import AlbertEncoder
    from albert_tf.runtime.devices import precision_policy
    from albert_tf.tasks.classifier import ClassifierTask, SequenceClassifier
    from albert_tf.text.tokenizer import load_tokenizer

    tokenizer = load_tokenizer(tokenizer_path)
    config = AlbertConfig.from_preset(preset).replace(vocab_size=tokenizer.vocab_size)
    task = ClassifierTask(LABELS, seq_length=seq_length)
    with precision_policy(precision):
        model = SequenceClassifier(AlbertEncoder(config), task).create_weights()
        module = ClassifierModule(with_constants(model), tokenizer)
        tf.saved_model.save(module, folder, signatures=module.signatures())


def _load(path: str) -> Classify:
    import tensorflow as tf
    import tensorflow_text  # noqa: F401  registers its operations

    loaded = tf.saved_model.load(path)

    def classify(texts: list[str]) -> list[list[float]]:
        answer = loaded.signatures["serving_default"](text=tf.constant(texts))
        return answer["probabilities"].numpy().tolist()

    return classify


def main(name: str, preset: str, tokenizer: str, seq_length: str, folder: str, cores: str) -> None:
    """Report that the system is ready or absent, then answer each line of texts with a line.

    Only a missing library is reported as absent; any other error ends the process.
    """
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    lines = os.fdopen(os.dup(1), "w")  # all other output goes to standard error
    os.dup2(2, 1)
    try:
        classify = SYSTEMS[name](preset, tokenizer, int(seq_length), folder)
    except ImportError as error:
        print(json.dumps({"absent": str(error)}), file=lines, flush=True)
        return
    print(json.dumps({"ready": name}), file=lines, flush=True)
    for line in sys.stdin:
        texts = json.loads(line)
        wall, cpu = time.perf_counter(), time.process_time()
        probabilities = classify(texts)
        answer = {
            "wall_ms": 1000 * (time.perf_counter() - wall),
            "cpu_ms": 1000 * (time.process_time() - cpu),
            "probabilities": probabilities,
        }
        print(json.dumps(answer), file=lines, flush=True)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(*sys.argv[1:])
