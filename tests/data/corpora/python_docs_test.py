"""Tests that the embedded corpus is prose, deterministic, and imports nothing that it reads."""

import sys

import pytest

from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.corpora import python_docs
from data.corpora.corpus import corpus_bytes, corpus_fingerprint, read_documents, split_of

DOCSTRING = """Return the ``name`` of a :class:`~shop.Thing`. It is *never* empty.

    Parameters
    ----------
    thing : Thing
        What to name. It must exist.

    * A bullet. Not prose.

    >>> name(1)
    'one'

    Example::

        name(2).  It is code.

    ==== ====
    a    b
    ==== ====

    :param thing: What to name. It must exist.

    See `the manual <http://x.y/z>`_ for the rest of the rules [1]_.
    Wrapped lines are joined.
    """


def test_only_paragraphs_of_prose_stay_without_markup():
    assert python_docs.prose(DOCSTRING) == (
        "Return the name of a shop.Thing.",
        "It is never empty.",
        "See the manual for the rest of the rules.",
        "Wrapped lines are joined.",
    )


@pytest.mark.parametrize(
    "text",
    ["Args:\n  x: A value. It is used.", "x = f(1). Then y = 2.", "+--+--+\n|a |b |\n+--+--+", ""],
)
def test_code_and_fields_are_no_prose(text):
    assert python_docs.prose(text) == ()


@pytest.fixture
def package(tmp_path) -> dict[str, str]:
    folder = tmp_path / "shop"
    (folder / "tests").mkdir(parents=True)
    two = '"""It opens every day. Nobody knows the reason for it."""\n'
    (folder / "__init__.py").write_text(two + "raise SystemExit('imported')\n")
    (folder / "b.py").write_text(
        f'class A:\n    {two}\n    async def f(self):\n        """It waits for you. '
        'Then it goes on without you."""\n'
        'if 1:\n    def g():\n        """One sentence is not enough here."""\n'
    )
    (folder / "broken.py").write_text('"""It is not. It is not Python."""\n)')
    (folder / "tests" / "x.py").write_text('"""A test says this. It is left out of it."""')
    return {"shop": str(folder)}


def test_a_docstring_is_a_document_and_comes_once(package):
    assert list(python_docs.docstrings(installed=package)) == [
        ("shop", ("It opens every day.", "Nobody knows the reason for it.")),
        ("shop", ("It waits for you.", "Then it goes on without you.")),
    ]


def test_half_characters_and_dangling_links_do_no_harm(package, tmp_path):
    (tmp_path / "shop" / "gone.py").symlink_to("nowhere.py")
    (tmp_path / "shop" / "c.py").write_text('"""It holds half \\ud83d of it. Nobody minds that."""')
    found = list(python_docs.docstrings(installed=package))
    assert found[-1] == ("shop", ("It holds half ? of it.", "Nobody minds that."))


def test_a_sentence_comes_once(package, tmp_path):
    """What is new in a docstring stays, if it is two sentences; what was left out is not seen."""
    (tmp_path / "shop" / "c.py").write_text(
        'def a():\n    """It opens every day. A new sentence is here."""\n'
        'def b():\n    """It opens every day. A new sentence is here. A new one follows it."""\n'
        'def c():\n    """It says it twice. It says it twice."""\n'
    )
    sentences = [sentences for _, sentences in python_docs.docstrings(installed=package)]
    assert sentences[2:] == [("A new sentence is here.", "A new one follows it.")]


def test_no_sentence_is_in_training_and_in_held_out_text():
    documents = list(read_documents("python_docs:email,asyncio,unittest,logging,json"))
    sentences = [sentence for d in documents for sentence in d.sentences]
    assert len(sentences) == len(set(sentences)) > 500
    parts: dict[str, set[str]] = {"train": set(), "heldout": set()}
    for document in documents:
        parts[split_of(document, 0.3)].update(document.sentences)
    assert all(parts.values()) and not parts["train"] & parts["heldout"]


def test_a_package_ends_at_its_cap(package):
    assert len(list(python_docs.docstrings(installed=package, max_package_bytes=10))) == 1


def test_packages_of_this_python_are_read_without_importing_them():
    before = set(sys.modules)
    documents = list(read_documents("python_docs:pydoc_data,email,wave"))
    assert not {"wave", "pydoc_data.topics"} & (set(sys.modules) - before)
    assert list(dict.fromkeys(d.source for d in documents)) == ["email", "pydoc_data", "wave"]
    assert all(len(d.sentences) >= 2 and all(d.sentences) for d in documents)
    assert len({d.sentences for d in documents}) == len(documents)
    assert not any(
        mark in s for d in documents for s in d.sentences for mark in (">>>", "``", "\n")
    )
    assert documents == list(read_documents("python_docs:wave,pydoc_data,email"))


def test_size_is_estimated_and_contents_are_fingerprinted():
    corpus = "python_docs:email,json"
    text_bytes = sum(len(s) + 1 for d in read_documents(corpus) for s in d.sentences)
    assert text_bytes / 4 < corpus_bytes(corpus) < text_bytes * 4
    assert corpus_fingerprint(corpus) == corpus_fingerprint(corpus)
    assert corpus_fingerprint(corpus) != corpus_fingerprint("python_docs:json")


def test_an_unknown_package_is_named_with_the_nearest():
    with pytest.raises(InputNotFoundError, match=r"unknown key `emial`\. Did you mean email"):
        read_documents("python_docs:json,emial")
    with pytest.raises(InputError, match="must name a package"):
        read_documents("python_docs:,")
