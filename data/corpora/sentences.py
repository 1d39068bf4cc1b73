"""From lines to blocks to sentences, for scripts that mark where a sentence ends.

The lines of a block are joined. One compiled regex then finds the ends; exceptions are checked.

A terminator ends a sentence when white space and then something other than a lower-case letter
follow; the full stops of Chinese and Japanese need no white space, nor does an ASCII one between
two of their characters or behind a Korean verb's ending (다. 요.). Brackets and quotes that close
after the terminator stay with the sentence. A period after an abbreviation, an initial or a short
number ends one only before a word that commonly starts sentences ("U.S. The", but "U.S. Army").
An abbreviation that is missed costs a sentence cut in two, never text: nothing is dropped.
"""

import re

_CJK = "\u3001-\u303f\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\uff00-\uffef"
_MARKS = "\"'“”‘’…—"
_SPACELESS_BREAK = re.compile(rf"(?<=[{_CJK}])\n(?=[{_CJK}{_MARKS}])|(?<=[{_MARKS}])\n(?=[{_CJK}])")
_WIDE = re.compile(rf"[\u3000{_CJK}]")
_BREAK = re.compile(r"\n[^\S\n]*+(?:(?:[-=_*~#+·•—–][^\S\n]*+){3,}+)?+(?=\n)")
_INDENTED = re.compile(r"\n(?=\u3000)")
_AROUND_BREAK = re.compile(r"[^\S\n]*+\n[^\S\n]*+")
_WIDE_END = "。！？｡．"
_END = ".!?…؟۔।॥።" + _WIDE_END
_CLOSE = r"\"'”’“»«›‹\)\]\}"
_WIDE_CLOSE = "」』”’）】》〉〕］｣"
_OPEN = "\"'“”‘’„‚«»‹›([{¿¡*_—–-"

_KANJI_KANA = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_HANGUL = "\uac00-\ud7a3"
_GLUED = (  # a sentence that begins without a space behind an ASCII terminator
    rf"(?<=[{_KANJI_KANA}][.!?])(?=[{_KANJI_KANA}])"
    rf"|(?<=[다요죠까네][.!?])(?=[{_HANGUL}])"
)
# "..." 라고: what was quoted is part of a Korean sentence.
_QUOTATIVE = rf"(?:이?라[고는며]|하고)(?![{_HANGUL}])"
# Possessive quantifiers and the look-behind keep a long run of dots linear. A closing mark may
# stand apart, as in `texte. »` and in WikiText's `. " `.
_BOUNDARY = re.compile(
    rf"[{_END}](?<![{_END}][{_END}])[{_END}]*+"
    rf"(?:(?<=[{_WIDE_END}])(?<!．(?=[0-9０-９]))[{_WIDE_CLOSE}]*+"
    rf"|{_GLUED}"
    rf"|[{_CLOSE}]*+(?:[ ][\"”»)\]](?=[ ]|$))?+"
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
# These are words of their own, or end sentences, unless a number follows.
_BEFORE_NUMBER = frozenset(
    """no nos nr art p pp vol vols ch chap sec abs bd kap ed jan feb mar apr jun jul aug sep sept
    oct nov dec""".split()
)
_SOMETIMES_FINAL = frozenset(
    "ms hon sen rep mt ft ca ing jr esq co corp inc ltd bros dept univ ave al no".split()
)
_INITIALS_OR_SHORT_NUMBER = re.compile(r"(?:[^\W\d_]\.)*[^\W\d_]|\d{1,2}")
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
    """The sentences of a document; none crosses a block.

    A blank line, a line of rules (`* * *`) or an ideographic space that indents ends a block.
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
    """Hard-wrapped lines as one: joined by a space, but by nothing between two CJK characters."""
    joined = _AROUND_BREAK.sub("\n", text.strip())
    return _SPACELESS_BREAK.sub("", joined).replace("\n", " ")


def split_sentences(block: str) -> list[str]:
    """The sentences of a block in order, non-empty, with white space normalised.

    A block without any terminator is one sentence. Joined by spaces, the sentences give the
    block's text again (scripts that write no spaces between sentences aside).
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
            continue  # lower case beyond a-z
        if end - start < 8 and not _WORD.search(text, start, end):
            continue  # a dash or a stray quote is no sentence
        sentences.append(text[start:end])
        start = end + is_spaced
    rest = text[start:]
    if sentences and not _WORD.search(rest):
        sentences[-1] += (" " if text[start - 1] == " " else "") + rest if rest else ""
    elif rest:
        sentences.append(rest)
    return sentences


def normalize_blanks(text: str) -> str:
    """The text with every run of white space (and NUL) made one space, and none at the ends."""
    for blank in _BLANKS:  # each a scan at memory speed: faster than any regex, no list of words
        if blank in text:
            text = text.replace(blank, " ")
    while "  " in text:
        text = text.replace("  ", " ")
    return text.strip()


def _may_be_abbreviation(word: str) -> bool:
    """Whether `_continues_after_period` needs a look: not at most of the words before a period."""
    size = len(word)
    return size < 3 or (size < 7 and (not word.isalpha() or word.lower() in _ABBREVIATIONS))


def _continues_after_period(text: str, start: int, begin: int, dot: int) -> bool:
    """Whether the sentence that began at `start` goes on behind the single period at `dot`.

    begin: where the word before the period does.
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
    """Where the sentence ends if a straight double quote touches `end`: it closes or it opens.

    A quote that stands apart (WikiText) or follows a wide full stop closes only what is open.
    """
    if text[end - 1] == '"':
        return end - 2 if text[end - 2] == " " and not is_open else end
    is_wide = text[end - 1] in _WIDE_END + _WIDE_CLOSE
    return end + 1 if is_open and is_wide else end
