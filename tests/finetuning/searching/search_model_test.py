"""A model of searches: what it does not read of a query."""

import json
import shutil

from albert_tf.export.__main__ import ExportOptions
from albert_tf.export.__main__ import main as export
from finetuning.searching.search_index import SearchIndex
from finetuning.searching.search_model import SearchModel
from finetuning.searching.searcher import BOTH, VECTORS, WORDS, Searcher
from tests.finetuning.searching.conftest import build


def test_the_fingerprint_changes_with_what_the_vectors_depend_on(pretrained, tmp_path):
    """Shared layers have the same weights, however many there are."""
    folder = shutil.copytree(pretrained, tmp_path / "other")
    fingerprint = SearchModel(str(folder)).fingerprint
    assert fingerprint == SearchModel(pretrained).fingerprint
    config = json.loads((folder / "config.json").read_text())
    for key, is_same in (("hidden_dropout", True), ("num_layers", False)):
        model = config["model"]
        changed = model | {key: 0.5 if is_same else model[key] + 1}
        (folder / "config.json").write_text(json.dumps(config | {"model": changed}))
        assert (SearchModel(str(folder)).fingerprint == fingerprint) is is_same


def test_exports_with_another_pooling_are_other_models(pretrained, tmp_path):
    found = set()
    for pooling in ("cls", "mean"):
        export(ExportOptions(pretrained, str(tmp_path / pooling), "embedding", pooling=pooling))
        found.add(SearchModel(str(tmp_path / pooling / "1")).fingerprint)
    assert len(found) == 2


def test_a_query_that_is_cut_has_a_note(pretrained, notes):
    model = SearchModel(pretrained)
    length = model._task.seq_length
    assert model.note("pear apple") == ""
    wanted = f"longer than the {length} pieces that the model reads"
    note = model.note("pear " * length)
    assert wanted in note and note.endswith("Ask with fewer words.")
    build()
    searcher = Searcher(SearchIndex("index"), None, note=model.note)
    for by in (BOTH, VECTORS):
        assert wanted in searcher.note("pear " * length, by)
    assert searcher.note("pear " * length, WORDS) == "" == searcher.note("pear", BOTH)
