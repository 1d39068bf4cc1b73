r"""Search a folder of texts by words and by meaning, from the shell or on a web page.

    python -m examples.search index --corpus=files:notes --model=runs/vectors --output=notes.index
    python -m examples.search ask --index=notes.index --query='How do I reset it?'
    python -m examples.search ask --index=notes.index --serve=8000

`index` divides the texts into passages and stores their words and their vectors. Run it again to
add new files, replace changed ones and drop those that are gone; if it is interrupted, run it again
to continue.

`ask` shows the best passages with their locations and, on a terminal, prints the words of the query
in bold. Without --query, it reads queries from the terminal or a pipe, one per line. --serve
answers on a web page of this computer, and as JSON at /search?q=...

Words are compared by BM25, vectors by their cosine, and --by=both combines the ranks of the two.
--ranker=runs/answers, a run of `finetuning.train --task=ranking`, reranks the first 50.
Above 100,000 passages, vectors are searched by FAISS (extra `search`). To use the command with an
installed wheel, copy this file.
"""

import contextlib
import dataclasses
import io
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import Annotated

import albert_tf
from albert_tf.runtime import commands, programs
from albert_tf.runtime.bounds import at_least, between, one_of
from albert_tf.runtime.errors import InputError
from albert_tf.runtime.report_text import counted
from albert_tf.text.words import words_of

programs.add_to_path()  # where this file is copied and the wheel installed

from finetuning.searching.indexing import CorpusToIndex, update_index  # noqa: E402
from finetuning.searching.search_index import SearchIndex, is_index, require_model  # noqa: E402
from finetuning.searching.searcher import (  # noqa: E402
    BOTH,
    METHODS,
    WORDS,
    Result,
    Searcher,
    marks_of,
    require_text,
)
from finetuning.searching.web_server import MOST_RESULTS, SearchServer  # noqa: E402

INDEX, ASK = "index", "ask"
_MAX_WORDS = 64
_INDENT, _WIDTH = "   ", 100  # of printed passages
_FOR_INDEX, _FOR_ASK = {"action": (INDEX,)}, {"action": (ASK,)}


@dataclasses.dataclass(frozen=True)
class SearchOptions(commands.CommandOptions):
    """The command line of `examples.search`."""

    action: Annotated[str, one_of(INDEX, ASK)] = commands.option("index or ask")
    model: str | None = commands.option(
        "what albert_tf.load_embedder takes; by default the model of the index",
        None,
        path=True,
    )
    corpus: str | None = commands.option(
        "the texts, e.g. files:FOLDER, text:'notes/*.txt', markdown:, html:, jsonl: or parquet:",
        None,
        path=True,
        only_for=_FOR_INDEX,
    )
    output: str | None = commands.option(
        "the index to write, or to bring up to date", None, path=True, only_for=_FOR_INDEX
    )
    max_words: Annotated[int | None, at_least(2)] = commands.option(
        "the most words of a passage: 64, or as in the index", None, only_for=_FOR_INDEX
    )
    document_boundary: str | None = commands.option(
        "what separates documents in text files: file (the default), blank_line or regex:RE",
        None,
        only_for=_FOR_INDEX,
    )
    text_column: str = commands.option(
        "the key or column of the text in JSON lines, parquet and Arrow files",
        "text",
        only_for=_FOR_INDEX,
    )
    errors: str = commands.option(
        "on invalid UTF-8: strict = fail, replace = U+FFFD", "strict", only_for=_FOR_INDEX
    )
    data_dir: str | None = commands.option(
        "the data folder of tfds:", None, path=True, only_for=_FOR_INDEX
    )
    batch_size: Annotated[int, between("[1, 1024]")] = commands.option(
        "passages per batch of the model", 1024, only_for=_FOR_INDEX
    )
    index: str | None = commands.option("the index to search", None, path=True, only_for=_FOR_ASK)
    query: str | None = commands.option(
        "what to look for; without it, queries are read a line each", None, only_for=_FOR_ASK
    )
    by: Annotated[str, one_of(*METHODS)] = commands.option(
        ", ".join(METHODS), BOTH, only_for=_FOR_ASK
    )
    ranker: str | None = commands.option(
        "what albert_tf.load_ranker takes; it sorts the first 50 passages anew",
        None,
        path=True,
        only_for=_FOR_ASK,
    )
    top_k: Annotated[int, between(f"[1, {MOST_RESULTS}]")] = commands.option(
        "how many passages to show", 5, only_for=_FOR_ASK
    )
    serve: Annotated[int | None, between("[0, 65535]")] = commands.option(
        "answer on a web page at this port (0: any free one) until interrupted",
        None,
        only_for=_FOR_ASK,
        excludes="query",
    )
    dry_run: bool = commands.option("read the files and load the model only", False)

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("corpus", "output") if self.action == INDEX else ("index",):
            self._require(name)

    def _require(self, name: str) -> None:
        if not getattr(self, name):
            raise InputError(f"--{name} is required for `{self.action}` (see --help).")

    def require_model(self) -> None:
        """Check that there is a model for a new index.

        Raises:
          InputError: it is missing.
        """
        self._require("model")


def main(options: SearchOptions) -> None:
    """Build an index or bring it up to date, or search in one.

    Raises:
      InputError: an option, a file or the index is invalid; see `update_index` and `Searcher`.
    """
    (_index if options.action == INDEX else _ask)(options)


def _index(options: SearchOptions) -> None:
    from finetuning.searching.search_model import SearchModel

    names = [field.name for field in dataclasses.fields(CorpusToIndex)]
    corpus = CorpusToIndex(**{name: getattr(options, name) for name in names})
    output = str(options.output)
    known = SearchIndex(output).settings if is_index(output) else None
    if known is None:
        options.require_model()
    model = options.model or (known.model if known else "")
    max_words = options.max_words or (known.max_words if known else _MAX_WORDS)
    try:
        result = update_index(
            output,
            corpus,
            max_words,
            lambda: SearchModel(model, options.batch_size),
            options.dry_run,
        )
    except KeyboardInterrupt:
        if not options.dry_run:
            print("interrupted; run the same command again to continue", file=sys.stderr)
        raise
    new, changed, removed, old, passages = result
    counts = {"new": new, "changed": changed, "removed": removed}
    files = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
    total = f"{counted(old + new - removed, 'file')} in all"
    if not files:
        print(f"{options.output}: no file is new, changed or removed; {total}")
    elif passages is None:
        print(f"{options.corpus} can be read; files: {files}")
    else:
        print(f"{options.output}: {counted(passages, 'new passage')}; files: {files}; {total}")


def _ask(options: SearchOptions) -> None:
    if options.query is not None:
        require_text(options.query)  # before the model is loaded
    searcher = _searcher(options)
    if options.dry_run:
        print(f"{options.index}: {counted(len(searcher.index), 'passage')}")
    elif options.serve is not None:
        _serve(searcher, options)
    elif options.query is not None:
        _answer(searcher, options.query, options)
    else:
        _converse(searcher, options)


def _searcher(options: SearchOptions) -> Searcher:
    index = SearchIndex(str(options.index))
    rank = albert_tf.load_ranker(options.ranker) if options.ranker else None
    if options.by == WORDS:
        return Searcher(index, None, rank)
    from finetuning.searching.search_model import SearchModel

    model = SearchModel(options.model or index.settings.model)
    require_model(index, model.fingerprint, model.name)
    return Searcher(index, model.query, rank, note=model.note)


def _serve(searcher: Searcher, options: SearchOptions) -> None:
    methods = (WORDS,) if options.by == WORDS else METHODS
    try:
        server = SearchServer(options.serve or 0, searcher, options.by, options.top_k, methods)
    except OSError as error:
        raise InputError(
            f"--serve={options.serve} must be a free port: {error.strerror}. Pass another one, or "
            "0 for any."
        ) from None
    host, port = server.server_address[:2]
    print(f"searching {options.index} at http://{host!s}:{port}/ (Ctrl-C ends)", flush=True)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever()


def _converse(searcher: Searcher, options: SearchOptions) -> None:
    is_terminal = sys.stdin.isatty()
    if isinstance(sys.stdin, io.TextIOWrapper):  # invalid UTF-8 becomes U+FFFD
        sys.stdin.reconfigure(errors="replace")
    while True:
        if is_terminal:
            print("query (empty ends): ", end="", flush=True)
        line = sys.stdin.readline()
        query = line.strip()
        if not line or (is_terminal and not query):
            return
        if query:
            if not is_terminal:
                print(f"# {query}")
            _answer(searcher, query, options)


def _answer(searcher: Searcher, query: str, options: SearchOptions) -> None:
    results = searcher.results(query, options.top_k, options.by)
    if note := searcher.note(query, options.by):
        print(f"note: {note}", file=sys.stderr)
    if not len(searcher.index):
        print("The index has no passages.")
    elif not results:
        print("No passage has any of these very words.")
    is_terminal = sys.stdout.isatty()
    width = min(_WIDTH, shutil.get_terminal_size((_WIDTH, 0)).columns)
    for result in results:
        print(f"{result.rank}. {result.place}  {result.score:.4f}")
        print("\n".join(_lines(result, width, is_terminal)), flush=True)


def _lines(result: Result, width: int, is_terminal: bool) -> Iterable[str]:
    """Yield the lines of a passage, with the words of the query in bold on a terminal."""
    words = {word for begin, end in result.marks for word in words_of(result.text[begin:end])}
    for line in textwrap.wrap(result.text, max(20, width - len(_INDENT))):
        parts, place = [_INDENT], 0
        for begin, end in marks_of(line, words) if is_terminal else ():
            parts += [line[place:begin], f"\033[1m{line[begin:end]}\033[0m"]
            place = end
        yield "".join([*parts, line[place:]])


if __name__ == "__main__":
    commands.run(main, SearchOptions, __doc__, positional="action")
