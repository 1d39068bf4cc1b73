#!/usr/bin/env bash
# Makes a model like albert-mini-en-embed from albert-mini-en, in a checkout of albert_tf:
#
#     bash albert_tf/pretrained/albert-mini-en-embed/make.sh CORPUS TEACHER DEV OUTPUT
#
# CORPUS holds *.jsonl.gz: a document per line, with the key `text`. TEACHER is what
# `finetuning.embed --teacher` takes: for albert-mini-en-embed, all-MiniLM-L6-v2. DEV is a table with
# `sentence1`, `sentence2` and `score`, which chooses the best of five evaluations. OUTPUT gets
# passages-*.jsonl.gz, texts/, run/ and at the end albert-mini-en-embed/. Run it again to resume.
#
# EXCLUDE, a file with a text per line, names sentences that must not be trained on. SENTENCES,
# PASSAGES and LONG_PASSAGES are the numbers of texts of at most 20, 64 and 160 words, EPOCHS that of
# the passes over them. PARTS, of which a batch is computed one after the other, bound the memory;
# the gradient is the same, but texts are read twice unless it is 1. The other defaults, those of
# albert-mini-en-embed, take days on two cores.
set -euo pipefail
EXCLUDE=${EXCLUDE:+$(realpath "$EXCLUDE")}
corpus=$(realpath "$1") teacher=$(realpath "$2") dev=$(realpath "$3") output=$(realpath -m "$4")
cd "$(dirname "$0")/../../.."
mkdir -p "$output"

for words in 20 64 160; do
  [ -e "$output/passages-$words.jsonl.gz" ] || python -m data.pairs \
    --corpus=jsonl:"$corpus/*.jsonl.gz" --max_words=$words ${EXCLUDE:+"--exclude=$EXCLUDE"} \
    --output="$output/passages-$words.jsonl.gz"
done
[ -e "$output/texts" ] || python - "$output" "${SENTENCES:-600000}" "${PASSAGES:-150000}" \
  "${LONG_PASSAGES:-80000}" <<'SAMPLES'
import gzip
import json
import os
import random
import sys

output, *counts = sys.argv[1:]


def sample(words, count, seed):  # each row of a file is equally probable
    chosen, rng = [], random.Random(seed)
    with gzip.open(f"{output}/passages-{words}.jsonl.gz", "rt", encoding="utf-8") as rows:
        for number, row in enumerate(filter(str.strip, rows)):
            if number < count:
                chosen.append(row)
            elif (place := rng.randrange(number + 1)) < count:
                chosen[place] = row
    return [{"text": json.loads(row)["text_a"]} for row in chosen]


texts = []
for words, count, seed in zip((20, 64, 160), map(int, counts), (1, 2, 6), strict=True):
    texts += sample(words, count, seed)
random.Random(3).shuffle(texts)
os.makedirs(f"{output}/texts.incomplete", exist_ok=True)
with open(f"{output}/texts.incomplete/train.jsonl", "w", encoding="utf-8") as file:
    file.writelines(json.dumps(text) + "\n" for text in texts)
os.replace(f"{output}/texts.incomplete", f"{output}/texts")
SAMPLES
cp "$dev" "$output/texts/dev.${dev##*.}"

[ -e "$output/texts/train.vectors" ] || python -m finetuning.embed --teacher="$teacher" \
  --data_dir="$output/texts"
python -m finetuning.train --task=sts --data_dir="$output/texts" --init=albert-mini-en \
  --run_dir="$output/run" --set training.epochs="${EPOCHS:-4}" --set training.batch_size=256 \
  --set training.learning_rate=0.0008 --set training.group_by_length=true \
  --set training.accumulation_steps="${PARTS:-4}" --set task.seq_length=512
[ -e "$output/albert-mini-en-embed" ] || python -m albert_tf.convert --from="$output/run" \
  --to="$output/albert-mini-en-embed" --half_precision
