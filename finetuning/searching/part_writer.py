"""Writing a part of an index: first passages and words, then vectors in chunks."""

import array
import os
import shutil
from collections.abc import Callable, Iterable

import numpy as np

from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress
from finetuning.datasets.embeddings.vector_file import store_vectors
from finetuning.searching.part_files import (
    PART,
    PLACES,
    TEXTS,
    VECTORS,
    Column,
    PartOrigin,
    PassageTexts,
    write_part_json,
)
from finetuning.searching.passages import Passage
from finetuning.searching.word_postings import WordCounter

CHUNK = 1024  # passages between two points from which an interrupted call can continue
Embed = Callable[[list[str]], np.ndarray]  # texts -> vectors [N, D]
_SOURCES, _DONE = "sources.json", "done"  # of an unfinished part, in a folder that is removed


class PartWriter:
    """A part in a folder that may hold the work of an interrupted call.

    Args:
      folder: the part, which is created if it does not exist.
      chunk: the passages after whose vectors the work is saved.
    """

    def __init__(self, folder: str, chunk: int = CHUNK) -> None:
        self._folder, self._chunk = folder, chunk
        self._state = os.path.join(folder, "unfinished")
        os.makedirs(folder, exist_ok=True)

    def write(
        self,
        passages: Callable[[], Iterable[Passage]],
        embed: Embed,
        width: int,
        origin: PartOrigin,
    ) -> int:
        """Write what is missing of the part, and return the number of its passages.

        Args:
          passages: a function that returns the passages.
          embed: the function that makes vectors.
          width: D, their width.
          origin: where the passages come from.

        Raises:
          InputError: a vector is not of finite numbers.
        """
        sources_path = os.path.join(self._state, _SOURCES)
        if not os.path.isfile(os.path.join(self._folder, PART)):
            if not os.path.isfile(sources_path):
                self._write_passages(passages())
            self._write_vectors(embed, width)
            write_part_json(self._folder, origin, outputs.read_json(sources_path)["sources"])
        shutil.rmtree(self._state, ignore_errors=True)
        return len(PassageTexts(self._folder))

    def _write_passages(self, passages: Iterable[Passage]) -> None:
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
        rows = np.frombuffer(places, np.int64).reshape(-1, len(Column))  # [N, 6]
        np.save(os.path.join(self._folder, PLACES), rows)
        words.write(self._folder)
        outputs.sync_all(self._folder)  # before what says that they are complete
        os.makedirs(self._state, exist_ok=True)
        outputs.write_json(os.path.join(self._state, _SOURCES), {"sources": [*sources]})

    def _write_vectors(self, embed: Embed, width: int) -> None:
        def of_lines(texts: list[str]) -> np.ndarray:
            return embed([" ".join(text.split()) for text in texts])

        path, done_path = os.path.join(self._folder, VECTORS), os.path.join(self._state, _DONE)
        passages = PassageTexts(self._folder)
        store_vectors(path, done_path, passages, of_lines, width, self._chunk, "--model")
