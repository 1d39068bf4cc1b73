r"""Clean a corpus: duplicates, repeated lines, languages, and texts of evaluation files.

Only what the flags ask for is removed, in this order: lines that many documents have
(--repeated_lines), paragraphs that share 8 words in a row with evaluation files (--held_out),
documents with too few or too many words, too few letters or another language, and last the
documents that repeat an earlier one (--duplicates). The output folder has JSON lines for
data.build, documents in their order, and report.md, with counts and examples of what was removed;
it appears only when it is complete. The same corpus and options produce the same bytes. It takes
about 200 MB of memory, plus 160 bytes per document and 20 per pair of near copies for
--duplicates=near, 64 MiB or a share of the text for --repeated_lines=N (a 2N-th, or a 64th for N of
32 and more), and 8 bytes per run of 8 words of --held_out.

    python -m data.clean --corpus=html:'pages/*.html' --duplicates=near --repeated_lines=20 \
        --languages=en --output=artifacts/clean
    python -m data.build --corpus=jsonl:'artifacts/clean/*.jsonl' ...
"""

import glob
import itertools
import json
import os
from collections.abc import Iterator, Mapping
from typing import IO

from albert_tf.runtime import commands, settings
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.files import outputs
from albert_tf.training.progress import Progress
from data.cleaning.duplicates import Copy, Duplicates, first_of_each_kind
from data.cleaning.filters import Filters
from data.cleaning.options import EXACT, NEAR, CleanOptions
from data.cleaning.repeated_lines import RepeatedLines
from data.cleaning.report import Report
from data.corpora.corpus import Document, NumberedCorpus, corpus_bytes
from data.corpora.sentences import sentences_of
from data.corpora.texts import encodable
from data.records import locations

SHARD_BYTES = 2**26
_SIGNATURES = outputs.MARK + ".signatures"  # removed when the folder is complete


def clean(options: CleanOptions, shard_bytes: int = SHARD_BYTES) -> None:
    """Run the cleaning described by `options`, in files of about `shard_bytes`.

    Raises:
      InputError: an option is invalid, the corpus cannot be read, nothing is left of it, or the
        output exists or cannot be written.
    """
    locations.require_local(options.output, "--output")
    outputs.require_new(options.output)
    corpus = NumberedCorpus(*options.reading)
    corpus.require_text()
    report = Report()
    filters = Filters(options, report)
    if options.dry_run:
        print(json.dumps(settings.to_dict(options), indent=1))
        return
    with outputs.new_folder(options.output) as folder:
        if options.repeated_lines:
            filters.repeated = _repeated_lines(corpus, options.repeated_lines)
        duplicates = _duplicates(options, folder)
        _write_shards(_Shards(folder, shard_bytes), corpus, filters, duplicates, report)
        _drop_copies(folder, duplicates.copies() if duplicates else {}, report)
        if not report.kept.count:
            dropped = report.line() or "it has no text"
            raise InputError(f"nothing is left of --corpus={options.corpus}: {dropped}.")
        with open(os.path.join(folder, "report.md"), "w", encoding="utf-8") as file:
            file.write(report.markdown(f"What was removed from {options.corpus}"))
    print(f"{options.output}: {report.kept.count:,} of {report.read.count:,} documents\n")
    print(report.table())


def _duplicates(options: CleanOptions, folder: str) -> Duplicates | None:
    if options.duplicates not in (EXACT, NEAR):
        return None
    similarity = options.similarity if options.duplicates == NEAR else None
    return Duplicates(os.path.join(folder, _SIGNATURES), similarity)


def _write_shards(
    shards: "_Shards",
    corpus: NumberedCorpus,
    filters: Filters,
    duplicates: Duplicates | None,
    report: Report,
) -> None:
    """Write what the filters leave of the documents, before duplicates are dropped."""
    for document in _documents(corpus, "cleaning"):
        text, source = _text_of(document), encodable(document.source)
        report.read.add(text, source)
        if (left := filters.cleaned(text, source)) is not None:
            shards.write(left, source)
            if duplicates:
                duplicates.add(left)
    shards.close()


def _text_of(document: Document) -> str:
    """Return the text, whose sentences stay apart if it was divided by another rule than ours."""
    if document.splitter is sentences_of:
        return document.text
    return "\n\n".join(document.sentences)


def _documents(corpus: NumberedCorpus, name: str) -> Iterator[Document]:
    total = corpus_bytes(corpus.corpus, corpus.data_dir)
    with Progress("bytes", total) as progress:
        for _, document in corpus.documents(corpus.parts()):
            yield document
            progress.advance(len(document.text.encode("utf-8", "replace")), name)


def _repeated_lines(corpus: NumberedCorpus, least: int) -> RepeatedLines:
    repeated = RepeatedLines(least, corpus_bytes(corpus.corpus, corpus.data_dir))
    repeated.estimate(map(_text_of, _documents(corpus, "repeated lines, 1 of 2")))
    repeated.count(map(_text_of, _documents(corpus, "repeated lines, 2 of 2")))
    return repeated


class _Shards:
    """Writes documents to files in a folder: clean-00000.jsonl and so on."""

    def __init__(self, folder: str, shard_bytes: int) -> None:
        self._folder, self._shard_bytes = folder, shard_bytes
        self._count = 0
        self._file: IO[str] | None = None

    def write(self, text: str, source: str) -> None:
        if self._file is None:
            path = os.path.join(self._folder, f"clean-{self._count:05}.jsonl")
            self._file = open(path, "w", encoding="utf-8")
            self._count += 1
        self._file.write(json.dumps({"text": text, "source": source}, ensure_ascii=False) + "\n")
        if self._file.tell() >= self._shard_bytes:
            self.close()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def _drop_copies(folder: str, copies: Mapping[int, Copy], report: Report) -> None:
    """Rewrite the files without copies, and count what is dropped and kept."""
    shown = {copy.original: "" for copy in first_of_each_kind(copies)}
    numbers = itertools.count()
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), "clean-*.jsonl"))):
        with open(path, encoding="utf-8") as lines, outputs.new_text(path) as file:
            for line, number in zip(lines, numbers, strict=False):  # takes no number at the end
                row = json.loads(line)
                text, source = row["text"], row["source"]
                if number in shown:
                    shown[number] = f"{source}: {text}"
                if copy := copies.get(number):
                    report.drop(copy.kind, text, source, shown.get(copy.original, ""))
                    continue
                report.kept.add(text, source)
                file.write(line)
        if not os.path.getsize(path):
            os.remove(path)


if __name__ == "__main__":
    commands.run(clean, CleanOptions, __doc__)
