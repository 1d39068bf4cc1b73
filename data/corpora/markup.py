"""The text of Markdown and HTML files, without markup, code and tables."""

import re
from collections.abc import Iterator
from typing import Any

from albert_tf.runtime import extras

_FRONT_MATTER = re.compile(
    r"---[^\S\n]*\n(?![^\S\n]*\n).*?\n(?:---|\.\.\.)[^\S\n]*(?:\n|$)", re.DOTALL
)


def markdown_text(content: str) -> str:
    """Return the paragraphs, headings and list items of a Markdown file, with blank lines between.

    Code, tables, images, HTML blocks and tags and a header of settings are left out. Words in
    backticks and texts of links stay.
    """
    parser = extras.load("markdown_it", "train", "--corpus=markdown:").MarkdownIt("commonmark")
    content = _FRONT_MATTER.sub("", content, count=1) if _FRONT_MATTER.match(content) else content
    depth, blocks = 0, []
    for token in parser.enable("table").parse(content):
        if token.type in ("table_open", "table_close"):
            depth += token.nesting
        elif token.type == "inline" and not depth:
            blocks.append("".join(_inline(token.children or ())).strip())
    return "\n\n".join(filter(None, blocks))


def _inline(tokens: Any) -> Iterator[str]:
    for token in tokens:
        if token.type in ("text", "code_inline"):
            yield token.content
        elif token.type in ("softbreak", "hardbreak"):
            yield "\n"


def html_text(content: str) -> str:
    """Return the main text of an HTML page, "" if it has none; nothing is fetched."""
    trafilatura = extras.load("trafilatura", "html", "--corpus=html:")
    text = trafilatura.extract(
        content,
        include_comments=False,
        include_tables=False,
        deduplicate=False,
        prune_xpath=["//pre", "//code[contains(., '\n')]"],
    )
    # A line is a paragraph, a heading or an item of a list.
    return "\n\n".join((text or "").splitlines())
