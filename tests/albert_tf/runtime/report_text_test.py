"""Tests that a cell of a report shows a text as it is: nothing in it is Markdown or HTML."""

import pytest

from albert_tf.runtime.report_text import MAX_CELL, cell, markdown_table, shortened

ORDINARY = [
    "He paid $5 - 7 % off! (AT&T, a < b, 3 > 2 #1) [MASK] joy_love, “so”, 中文",
    r"C:\Users\me and 5 * 3 = 15, a ~ b",
]
MARKUP = [
    '<img src="https://x/t.gif"> ![](https://x/t.gif) <!-- a --> </b> <?x?> <https://x> <a@b>',
    "[a](b) [a](b)](c) [[a](b)](c) ![[a](b)](c)",
    "*a* **b** _c_ __init__ ___d___ ~~e~~ ~f~ `g` ``h`` (_i_)* *",
    "&lt; &#60; &#x3c; &amp;amp;",
    r"a|b a\|b \* \\ \<b> \&lt; \[a](b) \_c_ \`d` e\ ",
]


@pytest.mark.parametrize("text", [*ORDINARY, *MARKUP])
def test_a_cell_shows_the_text_itself(text):
    parser = pytest.importorskip("markdown_it").MarkdownIt("commonmark")
    parser.enable(["table", "strikethrough"])
    tokens = parser.parse(markdown_table(("a", "b"), [(cell(text), "x")], of_texts=True))
    cells = [token.children for token in tokens if token.type == "inline"]
    assert len(cells) == 4  # two of the header
    assert {token.type for token in cells[2]} == {"text"}
    assert "".join(token.content for token in cells[2]) == text.strip()
    assert cell(text) == text or text in MARKUP


def test_a_long_text_is_one_short_line():
    text = shortened("a |\n" * MAX_CELL)
    assert text.replace("\\", "") == ("a | " * MAX_CELL)[: MAX_CELL - 1] + "…"
