"""Text to ids and back: the Python face of a vocabulary, and the reference.

Record builders use it in worker processes, so nothing here imports TensorFlow.
`graph_tokenizer` is the in-graph face of the same vocabulary. Sources: Lan et al. 2020, section
4.1; the behaviour of Google's `preprocess_text` and `encode_pieces`.
"""

import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from albert_tf.runtime import outputs, pretrained, settings
from albert_tf.runtime.errors import ConfigError, InputError, InputNotFoundError, reading
from albert_tf.text.normalization import Normalization
from albert_tf.text.sentencepiece_model import MODEL_FILE, WORD_MARK, SentencePiece, SpecialIds
from albert_tf.text.wordpiece import VOCABULARY_FILE, WordPiece, is_vocabulary

__all__ = ["WORD_MARK", "Normalization", "SpecialIds", "Tokenizer", "load_tokenizer"]

SETTINGS_FILE = "albert_tokenizer.json"
OLD_SETTINGS_FILE = "tokenizer.json"  # also Hugging Face's name, for other things
FORMAT = "albert_tf.tokenizer/1"  # tells our settings from theirs
_NESTED = ("", "tokenizer", os.path.join("assets.extra", "tokenizer"))  # where a folder keeps it


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

    @functools.cached_property
    def num_characters(self) -> np.ndarray:
        """int64 [V]: characters of text that a piece stands for, the space before a word counted.

        1 for the unknown piece. The entries of control pieces mean nothing.
        """
        lengths = np.array(list(map(self.vocabulary.num_characters, self.vocabulary.pieces)))
        lengths[self.special.unk] = 1
        return lengths

    def save(self, folder: str | os.PathLike[str]) -> None:
        """Writes spiece.model or vocab.txt, then albert_tokenizer.json, each at once."""
        record = {
            "format": FORMAT,
            "fingerprint": self.fingerprint,
            "vocab_size": self.vocab_size,
            "normalization": settings.to_dict(self.normalization),
            "special": settings.to_dict(self.special),
            "training": self.training,
        }
        os.makedirs(folder, exist_ok=True)
        outputs.write_bytes(os.path.join(folder, self.vocabulary.file), self.model)
        text = json.dumps(record, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
        outputs.write_bytes(os.path.join(folder, SETTINGS_FILE), text.encode())

    def _check_id(self, i: int) -> None:
        if not 0 <= i < self.vocab_size:
            raise InputError(
                f"ids must be in [0, {self.vocab_size}), the vocabulary. Received: {i}."
            )


def load_tokenizer(path: str | os.PathLike[str]) -> Tokenizer:
    """Reads a tokenizer from a folder that `Tokenizer.save` wrote, a spiece.model or a vocab.txt.

    `path` may also be the name of a shipped model, `albert-mini-en`.
    A folder may also hold it in `tokenizer/` (runs, records, checkpoints) or in
    `assets.extra/tokenizer/` (exports). Without our settings beside it, a sentencepiece model
    is taken as the published uncased English one, and a vocab.txt as cased where it holds capital
    letters.

    Raises:
      InputNotFoundError: nothing there.
      InputError: no vocabulary, no special pieces, or settings of another one.
    """
    path = pretrained.locate(path)
    file = _find_model(path)
    with reading(file), open(file, "rb") as stream:
        model = stream.read()
    record = _read_record(os.path.dirname(file))
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


def _read_record(folder: str) -> dict[str, Any] | None:
    """Our settings beside a vocabulary; None where there are none."""
    paths = [os.path.join(folder, name) for name in (SETTINGS_FILE, OLD_SETTINGS_FILE)]
    for path in filter(os.path.isfile, paths):
        try:
            with reading(path), open(path, encoding="utf-8") as stream:
                record = json.load(stream)
        except ValueError as error:
            raise ConfigError(f"{path!r} must be JSON: {error}. Restore or remove it.") from None
        if isinstance(record, dict) and record.get("format") == FORMAT:
            return record
    return None
