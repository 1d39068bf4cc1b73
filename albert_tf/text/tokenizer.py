"""Text to ids and back: the Python tokenizer, which is the reference.

Record builders use it in worker processes, so nothing here imports TensorFlow. `graph_tokenizer` is
the graph version for the same vocabulary. Sources: Lan et al. 2020, section 4.1; the behavior of
Google's `preprocess_text` and `encode_pieces`.
"""

import dataclasses
import functools
import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from albert_tf.runtime import pretrained, settings
from albert_tf.runtime.arguments import list_of
from albert_tf.runtime.errors import InputError, InputNotFoundError, reading, shortened
from albert_tf.runtime.files import outputs
from albert_tf.text.normalization import Normalization
from albert_tf.text.sentencepiece_model import MODEL_FILE, WORD_MARK, SentencePiece, SpecialIds
from albert_tf.text.wordpiece import VOCABULARY_FILE, WordPiece, is_vocabulary

__all__ = ["WORD_MARK", "Normalization", "SpecialIds", "Tokenizer", "load_tokenizer"]

SETTINGS_FILE = "albert_tokenizer.json"
FORMAT = "albert_tf.tokenizer/1"  # distinguishes our settings from theirs
_LIST_OF_PIECES = re.compile(rb"[^\t\n]+\t-?\d[^\t\n]*\n")  # its first line: a piece, a score
_THEIR_FILE = "tokenizer_config.json"
# Its key -> ours, and whether it means the opposite.
_THEIR_RULES = {
    "do_lower_case": ("lowercase", False),
    "strip_accents": ("strip_accents", False),
    "keep_accents": ("strip_accents", True),
}
_NESTED = ("", "tokenizer", os.path.join("assets.extra", "tokenizer"))  # inside a folder


class Tokenizer:
    """A vocabulary with its normalization, to convert texts to ids and ids to texts.

    Args:
      model: the bytes of a sentencepiece model with the pieces <pad>, [CLS], [SEP] and [MASK], or
        of a WordPiece vocab.txt with [PAD], [UNK], [CLS], [SEP] and [MASK].
      normalization: the rules applied to a text first; by default those that suit the vocabulary.
      training: the settings with which the model was trained; `save` stores them.
      source: the name of the model in error messages.

    Attributes:
      vocabulary: the `SentencePiece` or the `WordPiece`.
      vocab_size: the number of pieces, V.
      special: the ids of the special pieces.
      model: the bytes of the model.
      replacements: {id: ids}, the digit-comma rule; empty for WordPiece.

    Raises:
      InputError: the bytes are not a vocabulary, or a special piece is missing.
    """

    def __init__(
        self,
        model: bytes,
        normalization: Normalization | None = None,
        training: Mapping[str, Any] | None = None,
        source: str = "the model",
    ) -> None:
        kind = WordPiece if is_vocabulary(model) else SentencePiece
        self.vocabulary: SentencePiece | WordPiece = kind(model, source)
        self.model = model
        self.normalization = normalization or self.vocabulary.default_normalization
        self.training = dict(training or {})
        self.vocab_size = len(self.vocabulary.pieces)
        self.special: SpecialIds = self.vocabulary.special
        self.replacements = self.vocabulary.replacements

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.model, self.normalization, self.training)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text, without special pieces."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str], num_threads: int = 1) -> list[list[int]]:
        """Return the ids of each text, by one call of the library.

        The default is one thread, since builders run one process per core, and a forked process
        must not inherit a thread pool.

        Raises:
          InputError: `texts` is not a list of strings.
        """
        texts = list_of(str, texts, "texts must be a list of strings.")
        return self.vocabulary.encode_batch(texts, self.normalization, num_threads)

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text of ids, without special pieces; the unknown piece becomes ⁇ or [UNK].

        Raises:
          InputError: an id is outside [0, V).
        """
        plain = [int(i) for i in ids]
        for i in plain:
            self._check_id(i)
        return self.vocabulary.decode(plain)

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of one text as strings; an unknown piece is returned as its text.

        Raises:
          InputError: `text` is not a string.
        """
        if not isinstance(text, str):
            raise InputError(f"`text` must be a string. Received: {shortened(text)}.")
        return self.vocabulary.cut(text, self.normalization)

    def unknown_characters(self, texts: Sequence[str]) -> Counter[str]:
        """Count the characters of texts, once normalized, that no piece contains."""
        counts = Counter(self.vocabulary.normalized(texts, self.normalization))
        return Counter({c: count for c, count in counts.items() if c not in self._known_characters})

    def id_to_piece(self, i: int) -> str:
        """Return the piece with id `i`.

        Raises:
          InputError: `i` is outside [0, V).
        """
        self._check_id(i)
        return self.vocabulary.pieces[i]

    @functools.cached_property
    def fingerprint(self) -> str:
        """A hash of the model and the normalization, which together determine the ids."""
        rules = json.dumps(settings.to_dict(self.normalization), sort_keys=True)
        return hashlib.sha256(rules.encode() + b"\0" + self.model).hexdigest()[:32]

    @functools.cached_property
    def _known_characters(self) -> frozenset[str]:
        special = dataclasses.astuple(self.special)
        pieces = (piece for i, piece in enumerate(self.vocabulary.pieces) if i not in special)
        return frozenset(chain.from_iterable(pieces))

    @functools.cached_property
    def is_word_start(self) -> np.ndarray:
        """A bool [V] array, True for pieces that begin a word, for whole-word masking.

        The entries of control pieces follow the vocabulary's rule and have no meaning.
        """
        return np.array(list(map(self.vocabulary.starts_word, self.vocabulary.pieces)), dtype=bool)

    @functools.cached_property
    def num_characters(self) -> np.ndarray:
        """An int64 [V] array of the number of characters that a piece stands for.

        The space before a word counts. The unknown piece has 1. The entries of control pieces have
        no meaning.
        """
        lengths = np.array(list(map(self.vocabulary.num_characters, self.vocabulary.pieces)))
        lengths[self.special.unk] = 1
        return lengths

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Write spiece.model or vocab.txt, then albert_tokenizer.json, each atomically."""
        record = _Record(
            FORMAT,
            self.fingerprint,
            self.vocab_size,
            self.normalization,
            self.special,
            self.training,
        )
        os.makedirs(folder, exist_ok=True)
        outputs.write_bytes(os.path.join(folder, self.vocabulary.file), self.model)
        text = (
            json.dumps(settings.to_dict(record), indent=2, sort_keys=True, ensure_ascii=False)
            + "\n"
        )
        outputs.write_bytes(os.path.join(folder, SETTINGS_FILE), text.encode())

    def _check_id(self, i: int) -> None:
        if not 0 <= i < self.vocab_size:
            raise InputError(
                f"ids must be in [0, {self.vocab_size}), the vocabulary's range. Received: {i}."
            )


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Read a tokenizer from a folder that `Tokenizer.save` wrote, a spiece.model or a vocab.txt.

    >>> tokenizer = albert_tf.load_tokenizer("albert-mini-en")
    >>> tokenizer.pieces("Ships sail.")
    ['▁ships', '▁sail', '.']
    >>> tokenizer.decode(tokenizer.encode("Ships sail."))
    'ships sail.'

    `path` may also be the name of an included model. In a folder, the files may be in `tokenizer/`
    (runs, records, checkpoints) or in `assets.extra/tokenizer/` (exports). Without a settings file
    of ours in the same folder, a sentencepiece model gets the normalization of the published
    uncased English one, and a vocab.txt is cased if it contains capital letters.

    Raises:
      InputNotFoundError: there is no tokenizer at `path`.
      InputError: the file is not a vocabulary, a special piece is missing, the settings are not
        JSON or belong to another vocabulary, or those of transformers state other rules.
    """
    path = pretrained.locate(path)
    file = _find_model(path)
    with reading(file), open(file, "rb") as stream:
        model = stream.read()
    if _LIST_OF_PIECES.match(model):
        raise InputError(
            f"{file!r} must be a sentencepiece model or a WordPiece vocabulary. Received: the list "
            "of a model's pieces, FILE.vocab. Pass the FILE.model that belongs to it."
        )
    record = _read_record(os.path.dirname(file))
    if record is None:
        tokenizer = Tokenizer(model, source=f"{file!r}")
        _require_these_rules(os.path.dirname(file), tokenizer.normalization)
        return tokenizer
    tokenizer = Tokenizer(model, record.normalization, record.training, source=f"{file!r}")
    if record.fingerprint != tokenizer.fingerprint:
        raise InputError(
            f"{SETTINGS_FILE} must describe the vocabulary in its folder, but its fingerprint does "
            f"not match. Received: {os.path.dirname(file)!r}. Copy both files from one source."
        )
    return tokenizer


def tokenizer_of_model(path: str, other: str | None, vocab_size: int) -> Tokenizer:
    """Return the tokenizer in a model's folder or, if it has none, the one at `other`.

    Raises:
      InputNotFoundError: there is no tokenizer at either.
      InputError: the one at `other`, the value of --tokenizer, is not the folder's own, or does not
        have the model's `vocab_size` pieces.
    """
    try:
        tokenizer = load_tokenizer(path)
    except InputNotFoundError:
        if other is None:
            raise
        tokenizer = load_tokenizer(other)
    else:
        if other and load_tokenizer(other).fingerprint != tokenizer.fingerprint:
            raise InputError(
                f"--tokenizer={other} must be the vocabulary in {path}. Received: a different one. "
                "Leave --tokenizer out."
            )
    if tokenizer.vocab_size != vocab_size:
        raise InputError(
            f"--tokenizer={other or path} must be the vocabulary that {path} was trained with, of "
            f"{vocab_size:,} pieces. Received: {tokenizer.vocab_size:,} pieces."
        )
    return tokenizer


def _find_model(path: str) -> str:
    if os.path.isfile(path):
        return path
    for nested in _NESTED:
        for name in (MODEL_FILE, VOCABULARY_FILE):
            file = os.path.join(path, nested, name)
            if os.path.isfile(file):
                return file
    names = f"{MODEL_FILE} or {VOCABULARY_FILE}"
    what = f"no {names} in folder" if os.path.isdir(path) else "no file or folder"
    raise InputNotFoundError(
        f"tokenizer: {what} {path!r} (working directory {os.getcwd()}). Pass a folder with "
        f"{names}, directly or under tokenizer/, or the file itself."
    )


def _require_these_rules(folder: str, rules: Normalization) -> None:
    """Check that a tokenizer_config.json beside a vocabulary, if there is one, states no others."""
    path = os.path.join(folder, _THEIR_FILE)
    values = outputs.read_json(path) if os.path.isfile(path) else {}
    for key, (ours, is_opposite) in _THEIR_RULES.items():
        stated = values.get(key)
        if isinstance(stated, bool) and (stated != is_opposite) != getattr(rules, ours):
            raise InputError(
                f"{path!r} states `{key}` {json.dumps(stated)}, which is not read from folders of "
                "Hugging Face. Convert the folder, python -m albert_tf.convert --from=huggingface:"
                f"{folder} --to=NEW, and pass the new one."
            )


@dataclasses.dataclass(frozen=True)
class _Record:
    """The content of SETTINGS_FILE."""

    format: str
    fingerprint: str
    vocab_size: int
    normalization: Normalization
    special: SpecialIds
    training: dict[str, Any]


def _read_record(folder: str) -> _Record | None:
    """Return our settings in the folder of a vocabulary; None if there are none."""
    path = os.path.join(folder, SETTINGS_FILE)
    if not os.path.isfile(path):
        return None
    values = outputs.read_json(path)
    if values.get("format") != FORMAT:
        raise InputError(
            f"{path!r}: `format` must be {FORMAT}. Received: {shortened(values.get('format'))}. "
            "Restore the file."
        )
    return settings.from_dict(_Record, values, f"{path}: ")
