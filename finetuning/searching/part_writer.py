"""Writing a part of an index: first passages and words, then vectors in chunks."""

import array
import os
import shutil
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress
from finetuning.searching.part_files import (
    PART,
    PLACES,
    TEXTS,
    VECTORS,
    Column,
    IndexedFile,
    PassageTexts,
    write_part_json,
)
from finetuning.searching.passages import Passage
from finetuning.searching.word_postings import WordCounter

CHUNK = 256  # passages between two points from which an interrupted call can continue
Embed = Callable[[list[str]], np.ndarray]  # texts -> vectors [N, D]
_SOURCES, _DONE = "sources.json", "done"  # of an unfinished part, in a folder that is removed


class PartWriter:
    """A part in a folder that may hold the work of an interrupted call.

    Args:
      folder: the part, which must exist.
      chunk: the passages after whose vectors the work is saved.
    """

    def __init__(self, folder: str, chunk: int = CHUNK) -> None:
        self._folder, self._chunk = folder, chunk
        self._state = os.path.join(folder, "unfinished")

    def write(
        self,
        passages: Callable[[], Iterable[Passage]],
        embed: Embed,
        width: int,
        corpus: str,
        files: Sequence[IndexedFile],
    ) -> int:
        """Write what is missing of the part, and return the number of its passages.

        Args:
          passages: a function that returns the passages.
          embed: the function that makes vectors.
          width: D, their width.
          corpus: `--corpus`.
          files: the files that are read.

        Raises:
          InputError: there are no passages, or a vector is not of finite numbers.
        """
        sources_path = os.path.join(self._state, _SOURCES)
        if not os.path.isfile(os.path.join(self._folder, PART)):
            if not os.path.isfile(sources_path):
                self._write_passages(passages(), corpus)
            self._write_vectors(embed, width)
            about = {"corpus": corpus, "files": files, **outputs.read_json(sources_path)}
            write_part_json(self._folder, about)
        shutil.rmtree(self._state, ignore_errors=True)
        return len(PassageTexts(self._folder))

    def _write_passages(self, passages: Iterable[Passage], corpus: str) -> None:
        """Write the texts, the places and the words, and last the sources."""
        sources: dict[str, int] = {}
        words, places, begin = WordCounter(), array.array("q"), 0
        with (
            open(os.path.join(self._folder, TEXTS), "wb") as file,
            Progress("passages read") as progress,
        ):
            for text, source, *place in passages:
                content = text.encode("utf-8", "surrogatepass")
                file.write(content)
                number = sources.setdefault(source, len(sources))
                places.extend((begin, begin + len(content), number, *place))
                begin += len(content)
                words.add(text)
                progress.advance(1)
        if not places:
            raise InputError(
                f"--corpus must contain text. Received: {corpus!r}, whose new files have no "
                "sentence. Name other files."
            )
        rows = np.frombuffer(places, np.int64).reshape(-1, len(Column))  # [N, 6]
        np.save(os.path.join(self._folder, PLACES), rows)
        words.write(self._folder)
        os.makedirs(self._state, exist_ok=True)
        outputs.write_json(os.path.join(self._state, _SOURCES), {"sources": [*sources]})

    def _write_vectors(self, embed: Embed, width: int) -> None:
        texts, done = PassageTexts(self._folder), 0
        path, done_path = (
            os.path.join(folder, name)
            for folder, name in ((self._folder, VECTORS), (self._state, _DONE))
        )
        if os.path.isfile(done_path):
            with open(done_path, encoding="ascii") as file:
                done = int(file.read())
            vectors = np.lib.format.open_memmap(path, "r+")
        else:
            vectors = np.lib.format.open_memmap(path, "w+", np.float16, (len(texts), width))
        with Progress("passages", len(texts), done) as progress:
            for begin in range(done, len(texts), self._chunk):
                end = min(begin + self._chunk, len(texts))
                batch = [" ".join(texts[row].split()) for row in range(begin, end)]
                vectors[begin:end] = _finite(embed(batch), batch)
                vectors.flush()
                outputs.write_bytes(done_path, str(end).encode())
                progress.advance(end - begin)


def _finite(vectors: np.ndarray, texts: Sequence[str]) -> np.ndarray:
    with np.errstate(over="ignore"):  # checked below
        rows: np.ndarray = vectors.astype(np.float16)
    is_finite = np.isfinite(rows).all(axis=1)
    if not is_finite.all():
        raise InputError(
            "--model must give vectors of finite numbers in float16. Received: others, for the "
            f"passage {texts[int(np.argmin(is_finite))][:80]!r}. Pass another model."
        )
    return rows
