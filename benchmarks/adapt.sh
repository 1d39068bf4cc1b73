#!/usr/bin/env bash
# Measures what `pretraining.adapt` gains: three domains, 0.3 and 1 million words and all of them,
# with the old vocabulary and with 4,000 pieces of their own. Run it again to resume it.
#
#     bash benchmarks/adapt.sh DATA OUTPUT [option of pretraining.adapt, such as --steps=2000 ...]
#
# DATA has corpus_en_more, corpus_en_large and multilabel/goemotions. OUTPUT gets a folder for each
# run, with its table and BLiMP's scores before and after, if DATA has blimp.
set -euo pipefail
data=$(realpath "$1") output=$(realpath -m "$2")
shift 2
cd "$(dirname "$0")/.."
mkdir -p "$output/texts"

cut_texts() {  # to NAME-WORDS.jsonl, whole documents in their order
  python - "$data" "$output/texts" <<'PYTHON'
import glob, gzip, json, os, sys

data, output = sys.argv[1:]
more = f"{data}/corpus_en_more"
sources = {
    "openstax": f"{more}/openstax-*.jsonl.gz",
    "government": f"{more}/markdown-us-government-*.jsonl.gz",
    "goemotions": f"{data}/multilabel/goemotions/train.tsv.gz",
}
for name, pattern in sources.items():
    for limit in (300_000, 1_000_000, 10**9):
        words, path = 0, f"{output}/{name}-{'all' if limit == 10**9 else limit}.jsonl"
        if os.path.exists(path):
            continue
        with open(f"{path}.part", "w", encoding="utf-8") as out:
            for file in sorted(glob.glob(pattern)):
                for line in gzip.open(file, "rt", encoding="utf-8", newline="\n"):
                    is_table = file.endswith(".tsv.gz")
                    text = line.split("\t")[0] if is_table else json.loads(line)["text"]
                    words += len(text.split())
                    if words <= limit:
                        out.write(json.dumps({"text": text}) + "\n")
        if words < limit < 10**9:  # all of it is less
            os.remove(f"{path}.part")
        else:
            os.rename(f"{path}.part", path)
PYTHON
}

cut_texts
for text in "$output"/texts/*.jsonl; do
  for pieces in "" 4000; do
    run="$output/$(basename "$text" .jsonl)-pieces-${pieces:-0}"
    python -m pretraining.adapt --corpus="jsonl:$text" --output="$run" ${pieces:+--new_pieces=$pieces} \
      --general="jsonl:$data/corpus_en_large/wiki-core-2018-000.jsonl.gz" "$@"
    if [ -d "$data/blimp" ] && [ ! -e "$run/blimp.json" ]; then
      python -m pretraining.evaluate --run_dir="$run/run" --minimal_pairs="$data/blimp" \
        --output="$run/blimp.json"
    fi
  done
done
tail -n 8 "$output"/*/README.md
