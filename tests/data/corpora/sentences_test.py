"""Tests that sentences end where a careful reader says, in several scripts, in linear time."""

import time

import pytest

from data.corpora.sentences import join_lines, sentences_of, split_sentences

CASES = {
    "abbreviations": [
        "Mr. Smith met Dr. J. R. Jones.",
        "He likes fruit, e.g. Apples, i.e. Pomes.",
        "It was late.",
    ],
    "decimals": ["Pi is 3.14 or so.", "It grew by 0.5 in 1987.", "Then it shrank."],
    "acronyms": ["The U.S. Army left at 5 p.m. on Monday.", "He lived in the U.S.", "The end."],
    "numbers": ["He said no.", "Then No. 5 came.", "See Fig. 3.", "The rest of it is lost."],
    "ellipsis": ["Wait... what?", "Nothing...", "He left.", "So . . . it ends."],
    "closing marks": [
        '"It is late," he said.',
        '"What?" he asked.',
        "(He left.)",
        "'Well!'",
        "Yes.",
    ],
    "dashes": ["Stop! -- he cried.", "No one did."],
    "list markers": ["1. Introduction to it.", "2. The rest."],
    "german": ["Er kam am 3. Mai an.", "Die z. B. Rosen blühten.", "»Ja.«", "Sie ging."],
    "french": ["« Oui. »", "Il part.", "« Non ! » dit-il.", "L'été fut long."],
    "pronouns of one letter": ["Це зробив я.", "Потім пішов дощ.", "그가 산 것.", "나는 몰랐다."],
    "greek": ["Τι κάνεις;", "Πού πας\u037e", "Είμαι καλά; όχι."],
    "russian": ["Он пришёл. и ещё раз ушёл.", "Так было!"],
    "korean": ["안녕하세요.", "저는 학생입니다.", "네!", "3.5도였다.", "그는 '네.'라고 했다."],
    "korean quotes": ["“어디 가니?” 라고 그가 물었다.", "“집에 가요.”", "김 씨(Dr. Kim)는 웃었다."],
    "korean numbers": ["1. 서론이다.", "2020년 5월 3일.", "값은 1,000원이다.", "정말요?", "예..."],
    "money and titles": ["He paid $3.50.", "“Yes.”", "‘No.’", "The Prof. X. of Acme Inc. left."],
    "german numbers": ["Das kostet 3,50 Euro.", "Am 1. und 2. Tag.", "„Wie?“ fragte er.", "„So.“"],
    "wikitext": [
        "It was 0 @.@ 7 m long , like H. gammarus .",
        'In life , it is " red . "',
        "The next @-@ to @-@ last is J. <unk> .",
    ],
}


@pytest.mark.parametrize("name", CASES)
def test_sentences_written_with_spaces_come_back_as_they_were(name):
    assert split_sentences(" ".join(CASES[name])) == CASES[name]


@pytest.mark.parametrize(
    "expected",
    [
        ["私は学生です。", "「そうですか？」", "彼は言った。", "終わり！"],
        ["他说：“你好。”", "我笑了！", "真的？？", "３．５元。", "2020年結束。"],
        ['他說："你好．"', "我笑了．", '"好."'],
    ],
)
def test_wide_full_stops_need_no_space(expected):
    assert split_sentences("".join(expected)) == expected


def test_a_block_without_terminal_punctuation_is_one_sentence():
    assert split_sentences("a list of things, not a sentence") == [
        "a list of things, not a sentence"
    ]
    assert split_sentences(" \n\t ") == []


def test_white_space_and_nul_become_single_spaces():
    assert split_sentences("One\0two \u3000 three.\n\n Four\tfive.\xa0") == [
        "One two three.",
        "Four five.",
    ]


def test_nothing_but_white_space_is_lost():
    text = 'He said: "I. B. M. is 3. Mai" ... ! -- " . x? Y!" (Z.) - -'
    assert "".join(split_sentences(text)).replace(" ", "") == text.replace(" ", "")


def test_marks_alone_are_no_sentence():
    assert split_sentences('He left. " -- ') == ['He left. " --']
    assert split_sentences("?!") == ["?!"]


def test_wrapped_lines_join_by_a_space_but_not_between_cjk_characters():
    assert join_lines("\n".join(["hard-wrapped ", "  lines"])) == "hard-wrapped lines"
    assert join_lines("\n".join(["一個人，他說：“", "大師", "．"])) == "一個人，他說：“大師．"
    assert join_lines("\n".join(["用 Python", "写的"])) == "用 Python 写的"
    assert join_lines("\n".join(["학교에", "갔다"])) == "학교에 갔다"


@pytest.mark.parametrize("blank", [" ", "\u3000\t"])
def test_a_million_blanks_inside_a_line(blank):  # in quadratic time: hours
    blanks = blank * 1_000_000
    assert join_lines(f"中{blanks}文{blanks}\n{blanks}a") == f"中{blanks}文 a"


def test_no_sentence_crosses_a_block():
    lines = ["A heading", "", "The first", "line.", "* * *", "Last words", "　　一段", "话。"]
    assert sentences_of("\n".join(lines)) == (
        "A heading",
        "The first line.",
        "Last words",
        "一段话。",
    )


@pytest.mark.parametrize(
    "unit", [".", ". ", "a. ", '" . ', '"。', "-", "( ", "a", " ", "Mr. X ", "。"]
)
def test_time_is_linear_in_the_text(unit):
    text = unit * (1_000_000 // len(unit))
    start = time.perf_counter()
    pieces = split_sentences(text)
    assert time.perf_counter() - start < 30  # a quadratic way takes minutes
    assert "".join(pieces).replace(" ", "") == text.replace(" ", "")
