"""Tests that cuts have a random stream of their own, and that nothing of a text is lost."""

from albert_tf.text.tokenizer import load_tokenizer
from data.building import cutter
from data.corpora.corpus import Document, NumberedCorpus, digest_of, split_of
from data.records.sketch import sketch_of


def test_a_pair_has_a_key_of_its_own(tiny_tokenizer):
    """In every pass and document; the same whatever stands beside the document."""
    documents = [(number, Document("Ba de fi. Go ku.", "")) for number in range(50)]
    dupes = cutter.Cutter(load_tokenizer(tiny_tokenizer), 16, dupe_factor=12, seed=0)
    together, tally = dupes.cut(documents)
    assert len(set(together.keys.tolist())) == len(together) == tally.counts.sequences >= 12 * 50
    alone = [key for one in documents for key in dupes.cut([one])[0].keys.tolist()]
    assert sorted(alone) == sorted(together.keys.tolist())


def test_a_long_line_is_cut_into_parts_and_nothing_is_lost(tiny_tokenizer):
    """Longer than what the library gets at once, with and without spaces."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    one = cutter.Cutter(tokenizer, 64, dupe_factor=1, seed=0)
    for text in ("ba de " * 50_000, "bade" * 60_000):
        pairs, tally = one.cut([(0, Document(text.strip(), ""))])
        assert tally.counts.pieces_lost == 0 and (pairs.lengths <= 61).all()
        assert tokenizer.decode(pairs.pieces.tolist()).replace(" ", "") == text.replace(" ", "")


def test_a_document_on_the_other_side_of_the_split_is_read_and_not_cut(tiny_tokenizer):
    """Nor one without a sentence; the others' numbers and keys are the same."""
    tokenizer = load_tokenizer(tiny_tokenizer)
    documents = [(n, Document(f"Ba de fi {n}. Gö ku.", "")) for n in range(50)] + [
        (50, Document("***", ""))
    ]
    everything, tally = cutter.Cutter(tokenizer, 16, 1, 0).cut(documents)
    assert (tally.documents, tally.counts.documents) == (51, 50)
    assert tally.text_bytes == sum(len(document.text.encode()) for _, document in documents)
    expected = {"train": [], "heldout": []}
    for number, document in documents[:50]:
        expected[split_of(document, 0.3)].append(number)
    for split, numbers in expected.items():
        half = cutter.Cutter(tokenizer, 16, 1, 0, split=split, heldout_fraction=0.3)
        pairs, part = half.cut(documents)
        assert sorted(set(pairs.documents.tolist())) == numbers
        assert set(pairs.keys.tolist()) <= set(everything.keys.tolist())
        assert (part.documents, part.text_bytes) == (51, tally.text_bytes)
        assert part.counts.documents == len(numbers) > 0
        assert part.sketch == sketch_of(digest_of(documents[number][1]) for number in numbers)
    assert len(half.cut(documents[50:])[0]) == 0


def test_the_parent_finds_no_sentence(tmp_path):
    """Batches are made of texts as they were read: the workers find the sentences."""
    (tmp_path / "a.txt").write_text("Ba de. Fi go.\n\nKu la.\n")
    corpus = NumberedCorpus(f"text:{tmp_path}/a.txt", "blank_line", "strict", None)
    (batch,) = cutter._batches(corpus.documents(corpus.parts()), 1, 2_000_000)
    assert not any("sentences" in vars(document) for _, document in batch)
    assert [document.sentences for _, document in batch] == [("Ba de.", "Fi go."), ("Ku la.",)]
    assert all("sentences" in vars(document) for _, document in batch)
