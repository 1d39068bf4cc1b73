"""The text of Markdown and HTML, without markup."""

import pytest

from albert_tf.runtime.errors import InputError
from data.corpora.corpus import read_documents
from data.corpora.markup import html_text, markdown_text


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (
            "# Title\n\nOne *two* **three** `four` [five](http://x.y).",
            "Title\n\nOne two three four five.",
        ),
        ("a\nb  \nc\\\nd", "a\nb\nc\nd"),
        ("- one\n- two\n  - three\n\n1. four", "one\n\ntwo\n\nthree\n\nfour"),
        ("> quoted\n> text", "quoted\ntext"),
        ("a\n\n```python\ncode = 1\n```\n\n    indented\n\n~~~\ncode\n~~~\nb", "a\n\nb"),
        ("a\n\n<div>\nhtml\n</div>\n\nb <b>bold</b> <!-- c --> d", "a\n\nb bold  d"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\nafter", "after"),
        ("![a picture](x.png) text\n\n![alone](y.png)", "text"),
        ("[one][1] &amp; \\*two\\*\n\n[1]: http://x.y 'title'", "one & *two*"),
        ("---\ntitle: x\ntags: [a]\n---\nBody.", "Body."),
        ("Above.\n\n---\n\nBelow.", "Above.\n\nBelow."),
        ("---\nno end of the header", "no end of the header"),
        ("---\n\nA rule.\n\nUsage\n---\n\nMore.", "A rule.\n\nUsage\n\nMore."),
        ("Setext\n======\n\ntext", "Setext\n\ntext"),
        ("<http://x.y> autolink", "http://x.y autolink"),
        ("", ""),
    ],
)
def test_markdown(content, text):
    assert markdown_text(content) == text


def test_a_file_of_markdown_is_a_document(tmp_path):
    (tmp_path / "a.md").write_text("# One\n\nTwo is here. Tree\nis wrapped.\n\n```\nx\n```\n")
    (tmp_path / "b.md").write_text("```\nonly code\n```\n")
    documents = list(read_documents(f"markdown:{tmp_path}/*.md"))
    assert [document.sentences for document in documents] == [
        ("One", "Two is here.", "Tree is wrapped.")
    ]
    with pytest.raises(InputError, match="which has no sentence"):
        list(read_documents(f"markdown:{tmp_path}/b.md"))


PAGE = """<!doctype html><html><head><title>A page</title><script>run()</script></head><body>
<nav><ul><li><a href="/">Home</a></li><li><a href="/about">About us</a></li></ul></nav>
<main><article><h1>The old tram</h1>
<p>The old tram left the yard at noon, and a man with a <b>red</b> bag sat near the door.
He read a letter twice &amp; looked out.</p>
<p>The second paragraph says <a href="http://x.y">where</a> the tram went: over the long bridge.</p>
<pre><code>code = 1\nmore = 2</code></pre>
<ul><li>The first item is a sentence about the tram.</li><li>The second item is one too.</li></ul>
<table><tr><td>cell</td></tr></table></article></main>
<footer><p>Copyright 2026 by nobody at all</p></footer></body></html>"""


def test_the_main_text_of_a_page():
    pytest.importorskip("trafilatura")
    text = html_text(PAGE)
    first = (
        "The old tram left the yard at noon, and a man with a red bag sat near the door. He read a "
        "letter twice & looked out."
    )
    assert first in text.split("\n\n")
    assert "The first item is a sentence about the tram." in text
    for other in ("Home", "About", "Copyright", "run()", "code", "cell", "<", "http"):
        assert other not in text


def test_pages_without_a_main_text_are_noted(tmp_path, capsys):
    pytest.importorskip("trafilatura")
    (tmp_path / "a.html").write_text(PAGE)
    (tmp_path / "b.html").write_text("<html><body></body></html>")
    (document,) = read_documents(f"html:{tmp_path}/*.html")
    assert document.source == f"{tmp_path}/a.html"
    note = f"note: {tmp_path}/b.html has no main text, so it is left out.\n"
    assert capsys.readouterr().err == note


def test_the_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "trafilatura", None)
    with pytest.raises(
        InputError, match=r"needs the package trafilatura. Run pip install -e '.\[html"
    ):
        html_text(PAGE)
