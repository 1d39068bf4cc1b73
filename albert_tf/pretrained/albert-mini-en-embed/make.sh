#!/usr/bin/env bash
# Makes a model like albert-mini-en-embed from albert-mini-en, in a checkout of albert_tf:
#
#     bash albert_tf/pretrained/albert-mini-en-embed/make.sh CORPUS NLI TEACHER DEV OUTPUT
#
# CORPUS holds *.jsonl.gz: a document per line, with the key `text`. NLI holds *.jsonl.gz with
# `premise`, `hypothesis` and `label`. TEACHER is what `finetuning.embed --teacher` takes: for
# albert-mini-en-embed, all-MiniLM-L6-v2. DEV is a table with `sentence1`, `sentence2` and `score`,
# which chooses the best of five evaluations of each training. OUTPUT gets texts/, teacher/, pairs/,
# run/ and at the end albert-mini-en-embed/. Run it again to resume.
#
# EXCLUDE, a file with a text per line, names sentences that must not be trained on. TEXTS is the
# number of texts for the teacher, a fifth of them passages, PAIRS that of pairs of passages beside
# those of NLI, and EXAMPLES that of the pairs of both that are drawn at the end.
set -euo pipefail
corpus=$(realpath "$1") nli=$(realpath "$2") teacher=$(realpath "$3") dev=$(realpath "$4")
output=$(realpath -m "$5")
cd "$(dirname "$0")/../../.."
mkdir -p "$output"

pairs() { # of passages of at most $1 words
  [ -e "$output/passages-$1.jsonl.gz" ] || python -m data.pairs --corpus=jsonl:"$corpus/*.jsonl.gz" \
    --max_words="$1" ${EXCLUDE:+"--exclude=$EXCLUDE"} --output="$output/passages-$1.jsonl.gz"
}
pairs 20
pairs 64
[ -e "$output/pairs" ] || python - "$output" "$nli" "${EXCLUDE:-}" "${TEXTS:-40000}" "${PAIRS:-9000}" \
  "${EXAMPLES:-6000}" <<'SAMPLES'
import collections
import glob
import gzip
import json
import os
import random
import sys

output, nli, exclude = sys.argv[1:4]
num_texts, num_pairs, num_examples = map(int, sys.argv[4:])


def normal(text):
    return " ".join(text.lower().split())


def rows(path):
    with gzip.open(path, "rt", encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)


def sample(words, count, seed):  # each row of a file is equally probable
    chosen, rng = [], random.Random(seed)
    for number, row in enumerate(rows(f"{output}/passages-{words}.jsonl.gz")):
        if number < count:
            chosen.append(row)
        elif (place := rng.randrange(number + 1)) < count:
            chosen[place] = row
    return chosen


def write(folder, lines):
    os.makedirs(f"{output}/{folder}.incomplete", exist_ok=True)
    with open(f"{output}/{folder}.incomplete/train.jsonl", "w", encoding="utf-8") as file:
        file.writelines(json.dumps(line) + "\n" for line in lines)
    os.replace(f"{output}/{folder}.incomplete", f"{output}/{folder}")


excluded = set()
if exclude:
    with open(exclude, encoding="utf-8") as file:
        excluded = {normal(line) for line in file}
passages = num_texts // 5
texts = [{"text": row["text_a"]} for row in sample(20, num_texts - passages, 1)]
texts += [{"text": row["text_a"]} for row in sample(64, passages, 2)]
random.Random(3).shuffle(texts)

hypotheses, dropped = collections.defaultdict(lambda: collections.defaultdict(list)), 0
for path in sorted(glob.glob(f"{nli}/*.jsonl.gz")):
    for row in rows(path):
        if {normal(row["premise"]), normal(row["hypothesis"])} & excluded:
            dropped += 1
        else:
            hypotheses[row["premise"]][row["label"]].append(row["hypothesis"])
triplets = [
    {"text_a": premise, "text_b": right, "negatives": of["contradiction"]}
    for premise, of in hypotheses.items()
    for right in of["entailment"]
]
print(f"{len(triplets):,} entailments; {dropped:,} rows dropped, whose texts are excluded")
pairs = triplets + sample(64, num_pairs, 4)
random.Random(5).shuffle(pairs)
write("texts", texts)
write("pairs", pairs[:num_examples])
SAMPLES
for folder in texts pairs; do cp "$dev" "$output/$folder/dev.${dev##*.}"; done

[ -e "$output/texts/train.vectors" ] || python -m finetuning.embed --teacher="$teacher" --data_dir="$output/texts"
train() { # the data, the first weights, the run
  python -m finetuning.train --task=sts --data_dir="$output/$1" --init="$2" --run_dir="$output/$3" \
    --set training.epochs=1 --set training.group_by_length=true --set training.batch_size=64 "${@:4}"
}
train texts albert-mini-en teacher --set training.learning_rate=0.0005
train pairs "$output/teacher" run --set training.learning_rate=0.0002
[ -e "$output/albert-mini-en-embed" ] || python -m albert_tf.convert --from="$output/run" \
  --to="$output/albert-mini-en-embed" --half_precision
