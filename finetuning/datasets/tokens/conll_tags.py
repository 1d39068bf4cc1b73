"""Tags of tokens as entities: BIO, BIOES and the like, tags without prefixes, labels of words."""

import itertools
import re
from collections.abc import Sequence

from albert_tf.runtime.errors import InputError
from albert_tf.tasks.tokens.examples import TokenExample
from finetuning.datasets.tokens.token_files import Sentence

Span = tuple[int, int, str]

_TURNED = re.compile(r"[BIESbies]_.+|.+[-_][BIESbies]|[bies]-.+")
_HEADERS = ("tag", "tags", "label", "labels", "ner", "ner_tag", "ner_tags", "pos")
_PREFIXED = re.compile(r"([BIESLU])-(.+)")
_UNIFIED = {"L": "E", "U": "S"}  # BILOU's names of BIOES's prefixes


def scheme_of(path: str, sentences: Sequence[Sentence]) -> str:
    """Return how tags mark entities: `prefixes` (BIO, BIOES and the like), `io` or `words`.

    Tags without prefixes are `io` if one of them is O: neighbors with the same tag are one entity.
    Otherwise they are `words`: each token has a label of its own.

    Raises:
      InputError: only some tags have prefixes, or they have them at the end, in lower case or with
        `_`; or the first line is a header.
    """
    first = next((tag for sentence in sentences for tag in sentence.tags or ()), "")
    if first.lower() in _HEADERS:
        raise InputError(
            f"{path}:{sentences[0].lines[0]} must be a token, not a header. Received: the tag "
            f"{first!r}. Remove the line."
        )
    located: dict[str, int] = {}  # the line on which each tag is first
    for sentence in sentences:
        for line, tag in zip(sentence.lines, sentence.tags or (), strict=False):
            located.setdefault(tag, line)
    turned = [tag for tag in located if _TURNED.fullmatch(tag)]
    if turned and not any(map(_PREFIXED.fullmatch, located)):
        raise InputError(
            f"{path}:{located[turned[0]]}: tags must have their prefix in front and in capitals, "
            f"such as B-place. Received: {turned[0]!r}. Rewrite the tags."
        )
    entity_tags = [tag for tag in located if tag != "O"]
    others = [tag for tag in entity_tags if not _PREFIXED.fullmatch(tag)]
    if entity_tags and not others:
        return "prefixes"
    if len(others) == len(entity_tags):
        return "io" if "O" in located else "words"
    if any(tag.startswith(("B-", "I-")) for tag in entity_tags):
        raise InputError(
            f"{path}:{located[others[0]]}: every tag other than O must begin with B-, I-, E-, S-, "
            f"L- or U-, as {next(tag for tag in entity_tags if tag not in others)!r} does. "
            f"Received: {others[0]!r}. Correct it."
        )
    return "io" if "O" in located else "words"  # parts of speech may look like prefixes


def example_of(sentence: Sentence, scheme: str) -> TokenExample:
    """Return the tokens, joined by spaces, with the entities that their tags mark."""
    ends = list(itertools.accumulate(len(token) + 1 for token in sentence.tokens))
    offsets = tuple(
        (end - 1 - len(token), end - 1) for token, end in zip(sentence.tokens, ends, strict=True)
    )
    text = " ".join(sentence.tokens)
    if sentence.tags is None:
        return TokenExample(text, offsets, id=sentence.id)
    spans = spans_of(sentence.tags, scheme)
    entities = tuple((offsets[i][0], offsets[k - 1][1], label) for i, k, label in spans)
    return TokenExample(text, offsets, entities, sentence.id)


def spans_of(tags: Sequence[str], scheme: str) -> list[Span]:
    """Return the tokens [begin, end) and the label of each entity.

    The tags are read as by conlleval and seqeval: I-X or E-X begins an entity unless the token
    before it is in one of X.
    """
    spans: list[Span] = []
    previous, label_before = "O", ""
    for number, tag in enumerate(tags):
        prefix, label = _split(tag, scheme)
        begins = prefix in "BS" or previous in "ESO" or label != label_before
        if label and begins:
            spans.append((number, number + 1, label))
        elif label:
            spans[-1] = (spans[-1][0], number + 1, label)
        previous, label_before = prefix, label
    return spans


def _split(tag: str, scheme: str) -> tuple[str, str]:
    """Return the prefix of a tag, one of BIESO, and its label, "" for O."""
    if scheme == "words":
        return "S", tag
    if tag == "O":
        return "O", ""
    if scheme == "io":
        return "I", tag
    prefix, _, label = tag.partition("-")
    return _UNIFIED.get(prefix, prefix), label


def unbegun(tags: Sequence[str]) -> list[int]:
    """Return the tokens with an I-X or E-X that no entity of X precedes."""
    pairs = [_split(tag, "prefixes") for tag in ("O", *tags)]
    return [
        number
        for number, (before, (prefix, label)) in enumerate(itertools.pairwise(pairs))
        if prefix in "IE" and (before[0] in "ESO" or before[1] != label)
    ]
