#!/bin/sh
# Makes run.tar.xz: what this project writes, and what it computes of it. In a checkout:
#
#     PYTHON=.venv/bin/python sh tests/golden/run/make.sh
#
# Make it anew only when the format of what is written changes, and say so in CHANGELOG.md. All paths
# are relative, so that the files name no machine. The archive holds golden_run/: tokenizer, records,
# pretrained and finetuned (runs as they were left, but for pictures and summaries), export/encoder,
# export/classifier, and answers.npz, which tests/integration/golden_folders_test.py explains. Sums
# depend on the CPU: another one gives other files, and answers that fit them.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
PYTHON=${PYTHON:-python}
export CUDA_VISIBLE_DEVICES=-1 TF_CPP_MIN_LOG_LEVEL=2 PYTHONPATH=.
rm -rf golden_run
mkdir -p golden_run/reviews

"$PYTHON" - <<'REVIEWS'
import random

rng = random.Random(0)
words = {"fruit": "apple pear plum cherry melon".split(), "tool": "hammer saw file drill".split()}
for name, count in (("train", 64), ("dev", 16)):
    with open(f"golden_run/reviews/{name}.tsv", "w", encoding="utf-8") as file:
        print("text\tlabel", file=file)
        for label in rng.choices(sorted(words), k=count):
            print(" ".join(rng.choices(words[label], k=4)), label, sep="\t", file=file)
REVIEWS

"$PYTHON" -m data.train_tokenizer --corpus=text:README.md --vocab_size=300 \
    --output=golden_run/tokenizer
"$PYTHON" -m data.build --corpus=text:docs/training.md --seq_length=32 --num_workers=1 \
    --tokenizer=golden_run/tokenizer --output=golden_run/records
"$PYTHON" -m pretraining.train --experiment=smoke --data=golden_run/records --device=cpu \
    --run_dir=golden_run/pretrained --set precision=float32 \
    --set model.embedding_size=8 --set model.hidden_size=16 --set model.intermediate_size=32 \
    --set model.max_positions=32 --set model.initializer_range=0.2 \
    --set optimizer.warmup_steps=2 --set loop.steps=8 --set loop.steps_per_loop=2 \
    --set loop.checkpoint_every=4 --set loop.global_batch_size=8
"$PYTHON" -m albert_tf.export --run_dir=golden_run/pretrained --output=golden_run/export/encoder
"$PYTHON" -m finetuning.train --task=text_classification --data_dir=golden_run/reviews --device=cpu \
    --init=golden_run/export/encoder/1 --run_dir=golden_run/finetuned --set training.precision=float32 \
    --set training.epochs=2 --set training.batch_size=8 --set training.learning_rate=0.01 \
    --set task.seq_length=24
"$PYTHON" -m albert_tf.export --run_dir=golden_run/finetuned --output=golden_run/export/classifier

"$PYTHON" - <<'ANSWERS'
import json

import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401

import albert_tf
from data.objectives.masking import MaskingConfig
from data.objectives.registry import ObjectiveConfig
from data.pipeline.batches import Records, training_batches

texts = ["A run that was stopped is taken up again.", "Él lee “Ñandú” à la crème brûlée",
         "apple 😀 pear 👩‍🔬", "第一回 红楼梦", ""]
tokenizer = albert_tf.load_tokenizer("golden_run/pretrained")
ids = np.zeros([len(texts), 32], np.int32)
for row, text in zip(ids, texts):
    sequence = [tokenizer.special.cls, *tokenizer.encode(text), tokenizer.special.sep]
    row[: len(sequence)] = sequence
inputs = {"input_word_ids": ids, "input_mask": (ids > 0).astype(np.int32),
          "input_type_ids": np.zeros_like(ids)}
encoded = albert_tf.load_encoder("golden_run/pretrained")(inputs)
heads = albert_tf.load_pretrainer("golden_run/pretrained")(
    inputs | {"masked_lm_positions": np.ones([len(texts), 1], np.int32)}
)
examples = [albert_tf.TextExample(text) for text in texts]
said = albert_tf.load_predictor("golden_run/finetuned")(examples)
with open("golden_run/pretrained/config.json") as file:
    config = json.load(file)
batches = training_batches(
    Records.open("golden_run/records"), ObjectiveConfig(**config["objective"]).of_pairs,
    MaskingConfig(**config["masking"]), config["loop"]["global_batch_size"], config["seed"],
)
answers = {
    "texts": np.array(texts),
    "input_word_ids": ids,
    **{name: encoded[name].numpy() for name in ("sequence_output", "pooled_output")},
    **{name: heads[name].numpy() for name in ("mlm_logits", "pair_logits")},
    "labels": np.array(sorted(said[0]["probabilities"])),
    "probabilities": np.array([[p for _, p in sorted(one["probabilities"].items())]
                               for one in said], np.float32),
    **{f"batch/{name}": value.numpy() for name, value in next(iter(batches)).items()},
}
# The exports gave the same at the time.
encoder, classifier = (
    tf.saved_model.load(f"golden_run/export/{name}/1").signatures["serving_default"]
    for name in ("encoder", "classifier")
)
served = encoder(**{name: tf.constant(value) for name, value in inputs.items()})
served |= classifier(text=tf.constant(texts))
for name in ("sequence_output", "pooled_output", "probabilities"):
    np.testing.assert_allclose(served[name], answers[name], atol=2e-6)
np.savez_compressed("golden_run/answers.npz", **answers)
ANSWERS

"$PYTHON" - "$here/run.tar.xz" <<'PACK'
import json
import os
import pathlib
import shutil
import sys
import tarfile

for run in (pathlib.Path("golden_run/pretrained"), pathlib.Path("golden_run/finetuned")):
    for pictures in ("plots", "tensorboard"):
        shutil.rmtree(run / pictures, ignore_errors=True)
    environment = json.loads((run / "environment.json").read_text())
    environment["platform"] = "Linux"
    environment["command"][0] = os.path.relpath(environment["command"][0])
    (run / "environment.json").write_text(json.dumps(environment, indent=1))
for path in pathlib.Path("golden_run").rglob("config.json"):  # an absolute --init
    path.write_text(path.read_text().replace(f"{os.getcwd()}/", ""))


def plain(info):
    info.mtime = info.uid = info.gid = 0
    info.uname = info.gname = ""
    info.mode = 0o755 if info.isdir() else 0o644
    return info


with tarfile.open(sys.argv[1], "w:xz", preset=9) as archive:
    archive.add("golden_run", filter=plain)
PACK
