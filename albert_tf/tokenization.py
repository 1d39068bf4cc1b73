"""Text to ids and back: the Python face of a sentencepiece vocabulary, and the reference.

Record builders use it in worker processes, so nothing here imports TensorFlow.
`albert_tf.text_ops` is the in-graph face of the same model. Sources: Lan et al. 2020, section 4.1;
the behaviour of Google's `preprocess_text` and `encode_pieces`.
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

__all__ = ["Normalization", "SpecialIds", "Tokenizer", "load_tokenizer"]

SETTINGS_FILE = "tokenizer.json"
FORMAT = "albert_tf.tokenizer/1"  # tells our tokenizer.json from another project's of that name
WORD_MARK = "▁"  # U+2581, sentencepiece's sign for a space
_NESTED = ("", "tokenizer", os.path.join("assets.extra", "tokenizer"))  # where a folder keeps it
# Characters that may continue a word, beside the letters: Google's list, without the apostrophe.
_PUNCTUATION = frozenset('!"#$%&()*+,-./:;?@[\\]^_`{|}~€£')
_LETTERS = frozenset("abcdefghijklmnopqrstuvwxyz")


class Tokenizer:
    """One sentencepiece model with ALBERT's special pieces and its digit-comma rule.

    The rule: a piece that ends in a digit and a comma ("▁2010,") is cut into the pieces of the
    number and a comma. It depends on the piece alone, so it is a table from id to ids.

    Args:
      model: bytes of a sentencepiece model that holds <pad>, [CLS], [SEP] and [MASK].
      normalization: what happens to a text first.
      training: how the model was made, as its maker recorded it; travels with `save`.
      source: name of the model in error messages.

    Attributes:
      vocab_size: number of pieces, V.
      special: ids of the special pieces.
      model: the model's bytes.
      replacements: {id: ids}, the digit-comma rule.

    Raises:
      InputError: the bytes are no sentencepiece model, or a special piece is missing.
    """

    def __init__(
        self,
        model: bytes,
        normalization: Normalization | None = None,
        training: Mapping[str, Any] | None = None,
        source: str = "the model",
    ) -> None:
        self.model = model
        self.normalization = normalization or Normalization()
        self.training = dict(training or {})
        self._processor = read_model(model, source)
        self.vocab_size: int = self._processor.get_piece_size()
        self.special = special_ids(self._processor, source)
        self._pieces: list[str] = self._processor.id_to_piece(list(range(self.vocab_size)))
        self.replacements = {
            i: tuple(self._processor.piece_to_id(p) for p in self._split_digit_comma(piece))
            for i, piece in enumerate(self._pieces)
            if _ends_in_digit_comma(piece)
        }
        self._replaced = frozenset(self.replacements)

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
        normal = normalize(texts, self.normalization)
        batch: list[list[int]] = self._processor.encode(normal, num_threads=num_threads)
        clean = self._replaced.isdisjoint
        for row in [row for row, ids in enumerate(batch) if not clean(ids)]:
            batch[row] = self._apply_digit_comma(batch[row])
        return batch

    def decode(self, ids: Iterable[int]) -> str:
        """The text of ids; special pieces vanish, the unknown piece shows as ⁇.

        Raises:
          InputError: an id outside [0, V).
        """
        plain = [int(i) for i in ids]
        for i in plain:
            self._check_id(i)
        text: str = self._processor.decode(plain)
        return text

    def pieces(self, text: str) -> list[str]:
        """The pieces of one text as strings; an unknown one is its own text."""
        (normal,) = normalize([text], self.normalization)
        found: list[str] = []
        for piece in self._processor.encode(normal, out_type=str):
            found.extend(self._split_digit_comma(piece) if _ends_in_digit_comma(piece) else [piece])
        return found

    def id_to_piece(self, i: int) -> str:
        """The piece with id `i`; InputError outside [0, V)."""
        self._check_id(i)
        return self._pieces[i]

    @functools.cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides the ids: the model and the normalisation."""
        rules = json.dumps(settings.to_dict(self.normalization), sort_keys=True)
        return hashlib.sha256(rules.encode() + b"\0" + self.model).hexdigest()[:32]

    @functools.cached_property
    def is_word_start(self) -> np.ndarray:
        """bool [V]: whether a piece begins a word, for whole-word masks.

        A piece continues a word when it holds only a-z, A-Z and Google's punctuation, neither is
        one such sign nor begins with ▁ or <. So each digit, accented or CJK piece is a word of its
        own. The entries of control pieces follow the same rule and mean nothing.
        """
        return np.array([_starts_word(piece) for piece in self._pieces], dtype=bool)

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes spiece.model, then tokenizer.json, each under a temporary name first."""
        record = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "vocab_size": self.vocab_size,
            "normalization": settings.to_dict(self.normalization),
            "special": settings.to_dict(self.special),
            "training": self.training,
        }
        os.makedirs(folder, exist_ok=True)
        _write(os.path.join(folder, MODEL_FILE), self.model)
        text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        _write(os.path.join(folder, SETTINGS_FILE), text.encode())

    def _apply_digit_comma(self, ids: list[int]) -> list[int]:
        table = self.replacements
        return [new for i in ids for new in table.get(i, (i,))]

    def _split_digit_comma(self, piece: str) -> list[str]:
        """The rule, as Model Garden's tools and transformers' slow tokenizer define it."""
        number = self._processor.encode(piece[:-1].replace(WORD_MARK, ""), out_type=str)
        # The model puts a space before every text; a piece inside a word has none.
        if number and piece[0] != WORD_MARK and number[0][0] == WORD_MARK:
            number = number[1:] if number[0] == WORD_MARK else [number[0][1:], *number[1:]]
        return [*number, piece[-1]]

    def _check_id(self, i: int) -> None:
        if not 0 <= i < self.vocab_size:
            raise InputError(
                f"ids must be in [0, {self.vocab_size}), the vocabulary. Received: {i}."
            )


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Reads a tokenizer from a folder that `Tokenizer.save` wrote, or from a spiece.model file.

    A folder may also hold it in `tokenizer/` (runs, records, checkpoints) or in
    `assets.extra/tokenizer/` (exports). A model without our tokenizer.json beside it is taken as
    the published uncased English one: `Normalization()`.

    Raises:
      InputNotFoundError: nothing there.
      InputError: not a sentencepiece model, no special pieces, or a tokenizer.json of another one.
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
            f"{SETTINGS_FILE} must describe the {MODEL_FILE} beside it, and its fingerprint does "
            f"not match. Received: {os.path.dirname(file)!r}. Copy both files from one source."
        )
    return tokenizer


def _find_model(path: str) -> str:
    if os.path.isfile(path):
        return path
    for nested in _NESTED:
        file = os.path.join(path, nested, MODEL_FILE)
        if os.path.isfile(file):
            return file
    what = f"no {MODEL_FILE} in folder" if os.path.isdir(path) else "no file or folder"
    raise InputNotFoundError(
        f"tokenizer: {what} {path!r} (working directory {os.getcwd()}). Give a folder that holds "
        f"{MODEL_FILE}, alone or under tokenizer/, or the file itself."
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


def _starts_word(piece: str) -> bool:
    if piece.startswith((WORD_MARK, "<")) or piece in _PUNCTUATION:
        return True
    return not all(char.lower() in _LETTERS or char in _PUNCTUATION for char in piece)


def _write(path: str, content: bytes) -> None:
    """Readers see the old file or the new one, whichever process writes first."""
    handle, temporary = tempfile.mkstemp(dir=os.path.dirname(path), prefix=".", suffix=".partial")
    with os.fdopen(handle, "wb") as stream:
        stream.write(content)
    os.chmod(temporary, 0o644)  # mkstemp makes it private
    os.replace(temporary, path)
