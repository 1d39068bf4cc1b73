"""Sentence splitting, for scripts that mark the end of a sentence.

The lines of a block are joined. One compiled regex then finds the ends, and exceptions are checked.

A terminator ends a sentence if white space and then anything but a lower-case letter follow. The
full stops of Chinese and Japanese need no white space. Neither does an ASCII terminator between two
of their characters or after the ending of a Korean verb (다. 요.). Brackets and quotes that close
after the terminator belong to the sentence. A period after an abbreviation, an initial or a short
number ends a sentence only before a word that commonly starts sentences ("U.S. The", but not
"U.S. Army"). A missed abbreviation splits a sentence in two, but text is never dropped.
"""

import re

_CJK = "\u3001-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
_MARKS = "\"'“”‘’…—"
_SPACELESS_BREAK = re.compile(rf"(?<=[{_CJK}])\n(?=[{_CJK}{_MARKS}])|(?<=[{_MARKS}])\n(?=[{_CJK}])")
_WIDE = re.compile(rf"[\u3000{_CJK}]")
_BREAK = re.compile(r"\n[^\S\n]*+(?:(?:[-=_*~#+·•—–][^\S\n]*+){3,}+)?+(?=\n)")
_INDENTED = re.compile(r"\n(?=\u3000)")
# The look-behind tries each run of blanks once, and not again from each of its characters.
_AROUND_BREAK = re.compile(r"(?:(?<![^\S\n])[^\S\n]++)?\n[^\S\n]*+")
_WIDE_END = "。！？｡．"
END = ".!?\u037e…؟۔।॥።։។။" + _WIDE_END
CLOSE = r"\"'”’“»«›‹\)\]\}"
WIDE_CLOSE = "」』”’）】》〉〕］｣"
_OPEN = "\"'“”‘’„‚«»‹›([{¿¡*_—–-"

_KANJI_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HANGUL = "\uac00-\ud7a3"
_GREEK = "\u0370-\u03ff\u1f00-\u1fff"  # whose semicolon is a question mark
_GLUED = (  # a sentence that begins without a space after an ASCII terminator
    rf"(?<=[{_KANJI_KANA}][.!?])(?=[{_KANJI_KANA}])"
    rf"|(?<=[다요죠까네][.!?])(?=[{_HANGUL}])"
)
# "..." 라고: the quotation is part of a Korean sentence.
_QUOTATIVE = rf"(?:이?라[고는며]|하고)(?![{_HANGUL}])"
# Possessive quantifiers and the look-behind keep the time linear for a long run of dots. A space
# may precede a closing mark, as in `texte. »` and in WikiText's `. " `.
_BOUNDARY = re.compile(
    rf"(?:[{END}](?<![{END}][{END}])[{END}]*+|(?<=[{_GREEK}]{{2}});)"
    rf"(?:(?<=[{_WIDE_END}])(?<!．(?=[0-9０-９]))[{WIDE_CLOSE}]*+"
    rf"|{_GLUED}"
    rf"|[{CLOSE}]*+(?:[ ][\"”»)\]](?=[ ]|$))?+"
    rf"(?=$|[ ](?![{re.escape(_OPEN)}]*+[ ]?[a-z,;:.!?…]|{_QUOTATIVE})))"
)
_BLANKS = "\0\t\n\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\xa0\u1680" + (
    "\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)

# These never end a sentence: a name, a number or an example follows.
_NEVER_FINAL = frozenset(
    """mr mrs messrs mme mlle dr prof rev gen col capt lt cmdr sgt maj gov pres st ste
    vs cf viz e.g i.e eg ie approx fig figs eq eqs resp hr hrn fr frl bzw bspw evtl ggf inkl
    sog vgl d.h z.b u.a sr sra srta dhr mevr bijv dipl""".split()
)
# These are ordinary words, or end sentences, unless a number follows.
_BEFORE_NUMBER = frozenset(
    """no nos nr art p pp vol vols ch chap sec abs bd kap ed jan feb mar apr jun jul aug sep sept
    oct nov dec""".split()
)
_SOMETIMES_FINAL = frozenset(
    "ms hon sen rep mt ft ca ing jr esq co corp inc ltd bros dept univ ave al no".split()
)
# The Cyrillic pronoun я and one-syllable words of Korean are no initials.
_INITIALS_OR_SHORT_NUMBER = re.compile(rf"(?![я{_HANGUL}]$)(?:[^\W\d_]\.)*[^\W\d_]|\d{{1,2}}")
_ABBREVIATIONS = _NEVER_FINAL | _BEFORE_NUMBER | _SOMETIMES_FINAL
_STARTERS = frozenset(
    """The This That These Those There Then They He She It We You In On At By For From With When
    While Where What Who Why How If As And But Or So Yet However After Before Since Although
    Though Because His Her Its Their Our My Your Not No Yes Some Many Most All Each Both One
    Another Such
    Der Die Das Dem Den Er Sie Es Wir Ihr Ein Eine Und Aber Oder Im Am Auf Mit Von Bei Nach Vor Wenn
    Als Doch Dann Dies Diese Dieser Le La Les Il Elle Ils Elles On Un Une Mais Dans En Pour
    El Los Las Pero Una Para""".split()
)
_WORD = re.compile(r"\w")
_FIRST_WORD = re.compile(rf"[{re.escape(_OPEN)}]*(\w+\.?)")


def sentences_of(text: str) -> tuple[str, ...]:
    """Return the sentences of a document; none crosses the end of a block.

    A blank line, a rule (`* * *`) or an indentation with an ideographic space ends a block.
    """
    sentences: list[str] = []
    for block in _BREAK.split(f"\n{text}\n"):
        if block.isascii() or not _WIDE.search(block):
            sentences += split_sentences(block)
        else:
            for paragraph in _INDENTED.split(block):
                sentences += split_sentences(join_lines(paragraph))
    return tuple(sentences)


def join_lines(text: str) -> str:
    """Join hard-wrapped lines with a space, or with nothing between two CJK characters."""
    joined = _AROUND_BREAK.sub("\n", text.strip())
    return _SPACELESS_BREAK.sub("", joined).replace("\n", " ")


def split_sentences(block: str) -> list[str]:
    """Return the sentences of a block in order, non-empty, with white space normalized.

    A block without a terminator is one sentence. Joining the sentences with spaces restores the
    text of the block, except in scripts without spaces between sentences.
    """
    text = normalize_blanks(block)
    ascii_only = text.isascii()
    sentences = []
    start = counted = quotes = 0
    for match in _BOUNDARY.finditer(text):
        dot, end = match.span()
        if text[dot] == "." and end == dot + 1:
            begin = max(text.rfind(" ", start, dot) + 1, start)
            if _may_be_abbreviation(text[begin:dot]) and text[end : end + 1] in ("", " "):
                if _continues_after_period(text, start, begin, dot):
                    continue
        elif text[end - 1] == '"' or text[end : end + 1] == '"':
            quotes += sum(text.count(quote, counted, dot) for quote in '"“”')
            counted = dot
            end = _end_at_quote(text, end, is_open=quotes % 2 == 1)
        is_spaced = text[end : end + 1] == " "
        if is_spaced and not ascii_only and text[end + 1 : end + 4].lstrip(_OPEN)[:1].islower():
            continue  # a lower-case letter beyond a-z
        if end - start < 8 and not _WORD.search(text, start, end):
            continue  # a dash or a stray quote is not a sentence
        sentences.append(text[start:end])
        start = end + is_spaced
    rest = text[start:]
    if sentences and not _WORD.search(rest):
        sentences[-1] += (" " if text[start - 1] == " " else "") + rest if rest else ""
    elif rest:
        sentences.append(rest)
    return sentences


def normalize_blanks(text: str) -> str:
    """Replace every run of white space (and NUL) with one space, and strip both ends."""
    for blank in _BLANKS:  # scans at memory speed: faster than any regex or a list of words
        if blank in text:
            text = text.replace(blank, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _may_be_abbreviation(word: str) -> bool:
    """Return False for most words, for which `_continues_after_period` need not be called."""
    size = len(word)
    return size < 3 or (size < 7 and (not word.isalpha() or word.lower() in _ABBREVIATIONS))


def _continues_after_period(text: str, start: int, begin: int, dot: int) -> bool:
    """Return True if the sentence that began at `start` continues after the period at `dot`.

    The word before the period begins at `begin`.
    """
    word = text[begin:dot].rpartition("(")[2].lstrip(_OPEN)
    lowered = word.lower()
    if lowered in _NEVER_FINAL:
        return True
    if lowered in _BEFORE_NUMBER and text[dot + 2 : dot + 3].isdigit():
        return True
    if lowered not in _SOMETIMES_FINAL and not _INITIALS_OR_SHORT_NUMBER.fullmatch(word):
        return False
    if begin == start and len(word) < 3:
        return True  # "1. Introduction", "J. Smith wrote"
    following = _FIRST_WORD.match(text, dot + 2)
    return following is None or following[1] not in _STARTERS


def _end_at_quote(text: str, end: int, is_open: bool) -> int:
    """Return the end of a sentence if a straight double quote, closing or opening, touches `end`.

    A quote after a space (WikiText) or a wide full stop closes only an open quotation.
    """
    if text[end - 1] == '"':
        return end - 2 if text[end - 2] == " " and not is_open else end
    is_wide = text[end - 1] in _WIDE_END + WIDE_CLOSE
    return end + 1 if is_open and is_wide else end
