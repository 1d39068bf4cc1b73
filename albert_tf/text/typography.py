"""Rules that replace typographic punctuation by ASCII, inside a sentencepiece model.

A sentencepiece model contains its normalizer: a map from sequences of characters to what replaces
them. Every program that applies the model applies the map.
"""

from collections.abc import Container, Iterable

import sentencepiece

from albert_tf.text.sentencepiece_model import bytes_field

# What replaces which characters. Not the guillemets, the ʻokina, the middle dots or the maqaf: they
# are the ordinary quotes, a letter and parts of words in some languages. A soft hyphen is deleted.
PUNCTUATION = {
    "'": "‘’‚‛′‵ʼ❛❜",
    '"': "“”„‟❝❞〝〞",
    "-": "‐‑‒–—―−⸺⸻",
    "*": "•‣⁃◦∙▪●○■□◆◇►➤",
    "": "\u00ad",
}
# NFKC, and ALBERT's removal of accents before a model is applied, divide ″ and ‶ into these.
DOUBLE_PRIMES = ("′′", "‵‵")
_NORMALIZER_SPEC = 3  # the number of ModelProto's field


def folding_normalizer(exceptions: Container[str]) -> sentencepiece.SentencePieceNormalizer:
    """Return the default normalizer, nmt_nfkc, with rules for PUNCTUATION except `exceptions`.

    Pass it to `SentencePieceTrainer.train`.
    """
    _silence()
    old = sentencepiece.SentencePieceNormalizer(rule_name="nmt_nfkc")
    return _folding(old.decompile(), exceptions)


def fold_punctuation(model: bytes) -> bytes:
    """Return a model with rules for PUNCTUATION, except characters that a piece contains.

    Every text without an unknown piece keeps its ids.
    """
    _silence()
    processor = sentencepiece.SentencePieceProcessor(model_proto=model)
    pieces = processor.id_to_piece(list(range(processor.get_piece_size())))
    spec = _folding(_rules(model), set("".join(pieces))).serialized_normalizer_spec()
    merged = model + bytes_field(_NORMALIZER_SPEC, spec)  # of the two maps, the later remains
    return bytes(sentencepiece.SentencePieceProcessor(model_proto=merged).serialized_model_proto())


def compiled_rules(model: bytes) -> bytes:
    """Return the compiled map of a model's normalizer; empty if it has no rules."""
    rules = _rules(model)
    if not rules:
        return b""
    _silence()
    spec = sentencepiece.SentencePieceNormalizer(norm_map=rules).serialized_normalizer_spec()
    size = next(end for end in range(1, len(spec)) if spec[end] < 0x80)  # the end of the length
    return bytes(spec[size + 1 :])


def folded_primes(model: bytes) -> list[str]:
    """Return those of DOUBLE_PRIMES for which a model has a rule."""
    rules = dict(_rules(model))
    return [pair for pair in DOUBLE_PRIMES if rules.get(pair) == '"']


def _rules(model: bytes) -> list[tuple[str, str]]:
    """Return what a model's normalizer replaces with what."""
    try:
        rules = sentencepiece.SentencePieceNormalizer(model_proto=model).decompile()
    except RuntimeError:  # it has no map at all
        return []
    return list(rules)


def _folding(
    old: Iterable[tuple[str, str]], exceptions: Container[str]
) -> sentencepiece.SentencePieceNormalizer:
    plain = {
        char: ascii_char
        for ascii_char, chars in PUNCTUATION.items()
        for char in chars
        if char not in exceptions
    }
    doubles = {pair: '"' for pair in DOUBLE_PRIMES if pair[0] in plain}
    table = str.maketrans(plain)

    def folded(target: str) -> str:
        for pair in doubles:
            target = target.replace(pair, '"')
        return target.translate(table)

    # The normalizer does not read what it has replaced: its own rules must end in ASCII too.
    rules = plain | doubles | {source: folded(target) for source, target in old}
    return sentencepiece.SentencePieceNormalizer(norm_map=list(rules.items()))


def _silence() -> None:
    """Suppress sentencepiece's messages below errors."""
    sentencepiece.set_min_log_level(2)
