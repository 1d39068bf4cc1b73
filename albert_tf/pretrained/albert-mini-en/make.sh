#!/usr/bin/env bash
# Makes a model like albert-mini-en from text, in a checkout of albert_tf:
#
#     bash albert_tf/pretrained/albert-mini-en/make.sh CORPUS OUTPUT [option of pretraining.train ...]
#
# CORPUS holds *.jsonl.gz: a document per line, with the key `text`; the held-out documents come from
# wiki-*.jsonl.gz. OUTPUT gets tokenizer/, records/, heldout/, run/ and at the end albert-mini-en/.
# On two cores with avx512_bf16, training takes two to three days, or 10 to 18 hours with
# `--set loop.steps=36000 --set optimizer.decay_steps=7200`. Run it again to resume.
#
# The vocabulary gets its rules for typographic punctuation when it is trained. That of albert-mini-en
# was trained with --nofold_punctuation, and got them later: add the flag to data.train_tokenizer,
# and --fold_punctuation to albert_tf.convert. Then build heldout/ again, with the new tokenizer.
set -euo pipefail
corpus=$(realpath "$1") output=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/../../.."
corpus_of() { echo "--corpus=jsonl:$corpus/$1*.jsonl.gz"; }  # of the files that begin with $1

python -m data.train_tokenizer "$(corpus_of "")" --vocab_size="${VOCAB_SIZE:-16000}" \
  --max_sentences=600000 --output="$output/tokenizer"
build() {
  python -m data.build "$(corpus_of "$1")" --tokenizer="$output/tokenizer" --seq_length=128 \
    --heldout_fraction=0.02 --split="$2" --output="$output/$3"
}
build "" train records
build wiki- heldout heldout
python -m pretraining.train --experiment=albert-mini --data="$output/records" \
  --run_dir="$output/run" --set objective.pair_weight=0.2 --set loop.steps=142500 \
  --set optimizer.decay_steps=28500 "$@"
[ -e "$output/albert-mini-en" ] || python -m albert_tf.convert --from="$output/run" \
  --to="$output/albert-mini-en" --half_precision
python -m pretraining.evaluate --run_dir="$output/albert-mini-en" --data="$output/heldout" \
  --set masking.max_ngram=1 --set masking.whole_words=false
