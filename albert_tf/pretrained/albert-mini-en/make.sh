#!/usr/bin/env bash
# Makes a model like albert-mini-en from text, in a checkout of albert_tf:
#
#     bash albert_tf/pretrained/albert-mini-en/make.sh CORPUS OUTPUT [option of pretraining.train ...]
#
# CORPUS holds *.jsonl.gz: a document per line, with the key `text`; the held-out documents come from
# wiki-*.jsonl.gz. EVERYDAY, jsonl files of messages with the key `text`, adds their characters to
# the vocabulary. OUTPUT gets first-tokenizer/, records-128/, first/, tokenizer/, records-512/,
# heldout-128/, heldout-512/, run/ and at the end albert-mini-en/. Run it again to resume. Both
# trainings take days on two cores; on an H200 they took 9 and 5 minutes, the second one with
# --runtime=pjrt --device=gpu --set precision=mixed_bfloat16 --set loop.deterministic=false. The
# options go to both trainings.
#
# albert-mini-en began with less text, and with a vocabulary whose rules for typographic punctuation
# came after the first training (README.md, beside this file).
set -euo pipefail
corpus=$(realpath "$1") output=$(realpath -m "$2")
case ${EVERYDAY:-} in "" | /*) ;; *) EVERYDAY=$PWD/$EVERYDAY ;; esac
shift 2
cd "$(dirname "$0")/../../.."
corpus_of() { echo "--corpus=jsonl:$corpus/$1*.jsonl.gz"; }  # of the files that begin with $1
build() { # corpus, length, split, tokenizer, output
  python -m data.build "$(corpus_of "$1")" --tokenizer="$4" --seq_length="$2" \
    --heldout_fraction=0.02 --split="$3" --output="$output/$5"
}

python -m data.train_tokenizer "$(corpus_of "")" --vocab_size="${VOCAB_SIZE:-16000}" \
  --max_sentences=600000 --output="$output/first-tokenizer"
build "" 128 train "$output/first-tokenizer" records-128
python -m pretraining.train --experiment=albert-mini --data="$output/records-128" \
  --run_dir="$output/first" --set objective.pair_weight=0.2 --set loop.steps=142500 \
  --set optimizer.decay_steps=28500 "$@"

tokenizer=$output/first-tokenizer
if [ -n "${EVERYDAY:-}" ]; then
  tokenizer=$output/tokenizer
  python -m data.train_tokenizer --extend="$output/first" --new_pieces=0 \
    --corpus=jsonl:"$EVERYDAY" --output="$tokenizer"
fi
build "" 512 train "$tokenizer" records-512
for length in 128 512; do build wiki- $length heldout "$tokenizer" heldout-$length; done
python -m pretraining.train --experiment=adapt --init="$output/first" --data="$output/records-512" \
  --run_dir="$output/run" --set objective.pair_weight=0.2 --set loop.steps=20200 \
  --set optimizer.learning_rate=0.001 \
  --set optimizer.decay_steps=6060 --set optimizer.warmup_steps=300 \
  --set loop.steps_per_loop=200 --set loop.checkpoint_every=200 "$@"
[ -e "$output/albert-mini-en" ] || python -m albert_tf.convert --from="$output/run" \
  --to="$output/albert-mini-en" --half_precision
for length in 128 512; do
  python -m pretraining.evaluate --run_dir="$output/albert-mini-en" \
    --data="$output/heldout-$length" --set masking.max_ngram=1 --set masking.whole_words=false
done
