"""Text to ids and back: the Python face of a vocabulary, and the reference.

Record builders use it in worker processes, so nothing here imports TensorFlow.
`albert_tf.text_ops` is the in-graph face of the same vocabulary. Sources: Lan et al. 2020, section
4.1; the behaviour of Google's `preprocess_text` and `encode_pieces`.
"""

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf import settings
from albert_tf.errors import ConfigError, InputError, InputNotFoundError
from albert_tf.normalization import Normalization, normalize
from albert_tf.sentencepiece_model import MODEL_FILE, SpecialIds, read_model, special_ids
from albert_tf.wordpiece import VOCABULARY_FILE, WordPiece, is_vocabulary

__all__ = ["Normalization", "SpecialIds", "Tokenizer", "load_tokenizer"]

SETTINGS_FILE = "tokenizer.json"
FORMAT = "albert_tf.tokenizer/1"  # tells our tokenizer.json from another project's of that name
WORD_MARK = "▁"  # U+2581, sentencepiece's sign for a space
_NESTED = ("", "tokenizer", os.path.join("assets.extra", "tokenizer"))  # where a folder keeps it
# Characters that may continue a word, beside the letters: Google's list, without the apostrophe.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


class Tokenizer:
    """A vocabulary and what happens to a text before it: ids of texts and texts of ids.

    Args:
      model: bytes of a sentencepiece model that holds <pad>, [CLS], [SEP] and [MASK], or of a
        WordPiece vocab.txt that holds [PAD], [UNK], [CLS], [SEP] and [MASK].
      normalization: what happens to a text first; by default what the vocabulary was made for.
      training: how the model was made, as its maker recorded it; travels with `save`.
      source: name of the model in error messages.

    Attributes:
      vocabulary: the `SentencePiece` or the `WordPiece`.
      vocab_size: number of pieces, V.
      special: ids of the special pieces.
      model: the model's bytes.
      replacements: {id: ids}, the digit-comma rule; empty for WordPiece.

    Raises:
      InputError: the bytes are no vocabulary, or a special piece is missing.
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
        self._processor = self.vocabulary.processor

    def __reduce__(self) -> tuple[Any, ...]:
        return Tokenizer, (self.model, self.normalization, self.training)

    def encode(self, text: str) -> list[int]:
        """The ids of one text, without special pieces."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Sequence[str], num_threads: int = 1) -> list[list[int]]:
        """The ids of each text, by one call of the library.

        One thread by default: builders run one process a core, and a forked process must not
        inherit a thread pool.
        """
        return self.vocabulary.encode_batch(texts, self.normalization, num_threads)

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special pieces vanish, the unknown piece shows as ⁇ or [UNK].

        Raises:
          InputError: an id outside [0, V).
        """
        plain = [int(i) for i in ids]
        for i in plain:
            self._check_id(i)
        return self.vocabulary.decode(plain)

    def pieces(self, text: str) -> list[str]:
        """The pieces of one text as strings; an unknown one is its own text."""
        return self.vocabulary.cut(text, self.normalization)

    def id_to_piece(self, i: int) -> str:
        """The piece with id `i`; InputError outside [0, V)."""
        self._check_id(i)
        return self.vocabulary.pieces[i]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides the ids: the model and the normalisation."""
        rules = json.dumps(settings.to_dict(self.normalization), sort_keys=True)
        return hashlib.sha256(rules.encode() + b"\0" + self.model).hexdigest()[:32]

    @functools.cached_property
    def is_word_start(self) -> np.ndarray:
        """bool [V]: whether a piece begins a word, for whole-word masks.

        The entries of control pieces follow the vocabulary's rule and mean nothing.
        """
        return np.array(list(map(self.vocabulary.starts_word, self.vocabulary.pieces)), dtype=bool)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes spiece.model or vocab.txt, then tokenizer.json, each at once."""
        record = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "vocab_size": self.vocab_size,
            "normalization": settings.to_dict(self.normalization),
            "special": settings.to_dict(self.special),
            "training": self.training,
        }
        os.makedirs(folder, exist_ok=True)
        _write(os.path.join(folder, self.vocabulary.file), self.model)
        text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        _write(os.path.join(folder, SETTINGS_FILE), text.encode())

    def _check_id(self, i: int) -> None:
        if not 0 <= i < self.vocab_size:
            raise InputError(
                f"ids must be in [0, {self.vocab_size}), the vocabulary. Received: {i}."
            )


class SentencePiece:
    """One sentencepiece model with ALBERT's special pieces and its digit-comma rule.

    The rule: a piece that ends in a digit and a comma ("▁2010,") is cut into the pieces of the
    number and a comma. It depends on the piece alone, so it is a table from id to ids.
    """

    file = MODEL_FILE
    default_normalization = Normalization()

    def __init__(self, model: bytes, source: str) -> None:
        self.processor = read_model(model, source)
        self.special = special_ids(self.processor, source)
        size = self.processor.get_piece_size()
        self.pieces: list[str] = self.processor.id_to_piece(list(range(size)))
        self.replacements = {
            i: tuple(self.processor.piece_to_id(p) for p in self._split_digit_comma(piece))
            for i, piece in enumerate(self.pieces)
            if _ends_in_digit_comma(piece)
        }
        self._replaced = frozenset(self.replacements)

    def encode_batch(
        self, texts: Sequence[str], rules: Normalization, num_threads: int
    ) -> list[list[int]]:
        """The ids of each text."""
        normal = normalize(texts, rules)
        batch: list[list[int]] = self.processor.encode(normal, num_threads=num_threads)
        clean = self._replaced.isdisjoint
        for row in [row for row, ids in enumerate(batch) if not clean(ids)]:
            batch[row] = [new for i in batch[row] for new in self.replacements.get(i, (i,))]
        return batch

    def cut(self, text: str, rules: Normalization) -> list[str]:
        """The pieces of a text; an unknown one is its own text."""
        (normal,) = normalize([text], rules)
        found: list[str] = []
        for piece in self.processor.encode(normal, out_type=str):
            found.extend(self._split_digit_comma(piece) if _ends_in_digit_comma(piece) else [piece])
        return found

    def decode(self, ids: Sequence[int]) -> str:
        """The text of ids."""
        text: str = self.processor.decode(list(ids))
        return text

    def starts_word(self, piece: str) -> bool:
        """Whether a piece begins a word.

        It continues one when it holds only a-z, A-Z and Google's punctuation, neither is one such
        sign nor begins with ▁ or <. So each digit, accented or CJK piece is a word of its own.
        """
        if piece.startswith((WORD_MARK, "<")) or piece in _PUNCTUATION:
            return True
        return not all(char.lower() in _LETTERS or char in _PUNCTUATION for char in piece)

    def _split_digit_comma(self, piece: str) -> list[str]:
        """The rule, as Model Garden's tools and transformers' slow tokenizer define it."""
        number = self.processor.encode(piece[:-1].replace(WORD_MARK, ""), out_type=str)
        # The model puts a space before every text; a piece inside a word has none.
        if number and piece[0] != WORD_MARK and number[0][0] == WORD_MARK:
            number = number[1:] if number[0] == WORD_MARK else [number[0][1:], *number[1:]]
        return [*number, piece[-1]]


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Reads a tokenizer from a folder that `Tokenizer.save` wrote, a spiece.model or a vocab.txt.

    A folder may also hold it in `tokenizer/` (runs, records, checkpoints) or in
    `assets.extra/tokenizer/` (exports). Without our tokenizer.json beside it, a sentencepiece model
    is taken as the published uncased English one, and a vocab.txt as cased where it holds capital
    letters.

    Raises:
      InputNotFoundError: nothing there.
      InputError: no vocabulary, no special pieces, or a tokenizer.json of another one.
    """
    path = os.fspath(path)
    file = _find_model(path)
    with open(file, "rb") as stream:
        model = stream.read()
    record = _read_record(os.path.join(os.path.dirname(file), SETTINGS_FILE))
    if record is None:
        return Tokenizer(model, source=f"{file!r}")
    rules = settings.from_dict(Normalization, record.get("normalization", {}), "normalization.")
    tokenizer = Tokenizer(model, rules, record.get("training"), source=f"{file!r}")
    if record.get("fingerprint") != tokenizer.fingerprint:
        raise InputError(
            f"{SETTINGS_FILE} must describe the vocabulary beside it, and its fingerprint does "
            f"not match. Received: {os.path.dirname(file)!r}. Copy both files from one source."
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
        f"tokenizer: {what} {path!r} (working directory {os.getcwd()}). Give a folder that holds "
        f"{names}, alone or under tokenizer/, or the file itself."
    )


def _read_record(file: str) -> dict[str, Any] | None:
    """Our tokenizer.json; None when there is none or it is another project's."""
    if not os.path.isfile(file):
        return None
    try:
        with open(file, encoding="utf-8") as stream:
            record = json.load(stream)
    except ValueError as error:
        raise ConfigError(f"{file!r} must be JSON: {error}. Restore or remove it.") from None
    ours = isinstance(record, dict) and record.get("format") == FORMAT
    return record if ours else None


def _ends_in_digit_comma(piece: str) -> bool:
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()


def _write(path: str, content: bytes) -> None:
    """Readers see the old file or the new one, whichever process writes first."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".", suffix=".partial")
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    os.chmod(temporary, 0o644)  # mkstemp makes it private
    os.replace(temporary, path)
