"""`benchmarks.search`: the scores of a tiny collection, and the times of an index."""

import json

import pytest

from albert_tf.runtime.errors import InputError
from benchmarks.search import SearchBenchmarkOptions, main
from finetuning.searching.indexing import CorpusToIndex, update_index
from finetuning.searching.search_model import SearchModel


def test_scores_and_times(pretrained, tmp_path, capsys):
    (tmp_path / "qrels").mkdir()
    documents = {"d1": "The fox jumps.", "d2": "Green tea.", "d3": "A ship sails."}
    for name, texts in (("corpus", documents), ("queries", {"q1": "tea", "q2": "which ship"})):
        rows = (json.dumps({"_id": key, "text": text}) + "\n" for key, text in texts.items())
        (tmp_path / f"{name}.jsonl").write_text("".join(rows))
    (tmp_path / "qrels" / "test.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td2\t1\nq2\td3\t1\n"
    )
    main(SearchBenchmarkOptions(data_dir=str(tmp_path), model=pretrained))
    lines = {line["by"]: line for line in map(json.loads, capsys.readouterr().out.splitlines())}
    assert set(lines) == {"both", "vectors", "words"}
    assert lines["words"]["ndcg_at_10"] == 100.0

    index = str(tmp_path / "index")
    corpus = CorpusToIndex(f"jsonl:{tmp_path}/corpus.jsonl")
    update_index(index, corpus, 64, lambda: SearchModel(pretrained))
    main(SearchBenchmarkOptions(index=index, queries=2))
    line = json.loads(capsys.readouterr().out)
    assert line["passages"] == 3
    assert set(line["query_ms"]) == {"both", "vectors", "words", "embedding"}


def test_mistakes():
    with pytest.raises(InputError, match="either --data_dir and --model, or --index"):
        SearchBenchmarkOptions()
    with pytest.raises(InputError, match="--model requires --data_dir"):
        SearchBenchmarkOptions(model="albert-mini-en")
