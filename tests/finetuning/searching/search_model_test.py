"""A model of searches: what it does not read of a query."""

from finetuning.searching.search_index import SearchIndex
from finetuning.searching.search_model import SearchModel
from finetuning.searching.searcher import BOTH, VECTORS, WORDS, Searcher
from tests.finetuning.searching.conftest import build


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
