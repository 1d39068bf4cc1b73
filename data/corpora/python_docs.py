"""Prose of the Python installation: docstrings, and the texts of `pydoc_data.topics`.

Sources are parsed with `ast`, never imported: first the standard library, then the packages in
site-packages, each in the order of its file names. Only paragraphs of full sentences are kept.
"""

import ast
import hashlib
import importlib.metadata
import inspect
import os
import re
import sys
import sysconfig
import warnings
from collections.abc import Iterator

from albert_tf.runtime import settings
from albert_tf.runtime.errors import InputError, InputNotFoundError
from data.corpora.sentences import split_sentences
from data.corpora.texts import encodable

# The cap of a package. Without it, four large packages would make up most of the corpus and take
# most of the reading time.
MAX_PACKAGE_BYTES = 250_000
_PROSE_SHARE = 0.035  # share of a package's source bytes, measured on the standard library
_SKIPPED_FOLDERS = frozenset(["test", "tests", "testing", "idle_test", "site-packages", "_api"])
_SKIPPED_FILES = re.compile(r"(?:test_.*|.*_test|.*_pb2|.*_pb2_grpc|conftest)\.py")

_MARKUP = [
    (re.compile(r":[a-z:+-]+:`~?([^`<]+?)(?:\s*<[^>`]*>)?`"), r"\1"),  # :class:`~a.B`
    (re.compile(r"`([^`<]+?)\s*<[^>`]*>`__?"), r"\1"),  # `text <url>`_
    (re.compile(r"!?\[([^\]\[]+)\]\([^)\s]*\)"), r"\1"),  # [text](url)
    (re.compile(r"\s*\[[\d#*][\w*]*\]_"), ""),  # footnote [1]_
    (re.compile(r"`+([^`]+?)`+_{0,2}"), r"\1"),  # ``code``, `name`_
    (re.compile(r"(?<!\w)(\*\*?)(?=\S)([^*]+?)(?<=\S)\1(?!\w)"), r"\2"),  # *emphasis*
]
_UNDERLINE = re.compile(r"([-=~^*#+_.\"'`:])\1{2,}\s*$", re.MULTILINE)
_NOT_PROSE = re.compile(
    r"""^(?:>>>|\.\.(?:\s|$)|[-*+•]\s|\(?\w{1,2}[.)]\s|[:@#|$%<]|\w+\s*:\s*$)  # code, lists, fields
    |^\s|\t|[|\\{}<>=]|https?:|::|\(c\)|[Cc]opyright|--?\w+[ =]|_{2}|\w\((?!s?\))|^\w+\s:\s""",
    re.MULTILINE | re.VERBOSE,
)
_PROSE_START = re.compile(r"[A-Z\"'(“]")
_MAYBE_END = re.compile(r"[.!?][\W_]*$|\]_")
_PROSE_END = re.compile(r"[a-z0-9)\"'”][.!?][)\"'”]?$")
_WORD = re.compile(r"[A-Za-z][a-z'’-]*[,;:.!?)\"]*")


def docstrings(
    packages: str = "",
    installed: dict[str, str] | None = None,
    max_package_bytes: int = MAX_PACKAGE_BYTES,
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield (top-level package, sentences) for each docstring with at least two new sentences.

    No sentence is repeated. Otherwise inherited docstrings, forks of packages and boilerplate would
    be in both the training and the held-out text.

    Args:
      packages: names separated by commas; empty for all.
      installed: the folder or file of each package, by default of those of this Python.
      max_package_bytes: bytes of prose after which a package ends.

    Raises:
      InputNotFoundError: a package is not installed.
      InputError: `packages` contains no name.
    """
    seen: set[bytes] = set()
    for package, path in _select_packages(packages, installed).items():
        remaining_bytes = max_package_bytes
        for text in _texts(_python_files(path), package):
            new = {_digest(sentence): sentence for sentence in prose(text)}
            for digest in new.keys() & seen:
                del new[digest]
            if len(new) < 2:
                continue
            seen |= new.keys()
            yield package, tuple(new.values())
            remaining_bytes -= sum(len(sentence.encode()) + 1 for sentence in new.values())
            if remaining_bytes <= 0:
                break


def files(packages: str = "") -> list[str]:
    """Return every file that may be read, in order."""
    return [name for path in _select_packages(packages).values() for name in _python_files(path)]


def estimated_bytes(packages: str = "") -> int:
    """Estimate the bytes of prose from the sizes of the files."""
    total = 0
    for path in _select_packages(packages).values():
        source_bytes = sum(os.path.getsize(name) for name in _python_files(path))
        total += min(MAX_PACKAGE_BYTES, int(source_bytes * _PROSE_SHARE))
    return max(total, 1)


def prose(docstring: str) -> tuple[str, ...]:
    """Return the sentences of a docstring's paragraphs of prose, without markup.

    Code, tables, lists, headings and parameters are dropped.
    """
    sentences: list[str] = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(docstring)):
        # The cheap checks come first and reject most paragraphs.
        if len(paragraph) < 20 or "\n " in paragraph or paragraph[0] in " >.-+|#@":
            continue
        if not _MAYBE_END.search(paragraph[-6:]) or _UNDERLINE.search(paragraph):
            continue
        for pattern, replacement in _MARKUP:
            paragraph = pattern.sub(replacement, paragraph)
        if _reads_as_sentences(paragraph):
            sentences += split_sentences(paragraph)
    return tuple(sentences)


def _digest(sentence: str) -> bytes:
    return hashlib.blake2b(sentence.encode(), digest_size=12).digest()


def _reads_as_sentences(paragraph: str) -> bool:
    paragraph = paragraph.rstrip()
    if not _PROSE_START.match(paragraph) or not _PROSE_END.search(paragraph[-4:]):
        return False
    if _NOT_PROSE.search(paragraph):
        return False
    tokens = paragraph.split()
    plain = sum(1 for token in tokens if _WORD.fullmatch(token.lstrip("(\"'")))
    return len(tokens) >= 4 and plain >= 0.8 * len(tokens)


def _select_packages(packages: str, installed: dict[str, str] | None = None) -> dict[str, str]:
    """Return the folder or file of each top-level package."""
    available = _standard_library() | _installed_packages() if installed is None else installed
    if not packages:
        return available
    names = [name.strip() for name in packages.split(",") if name.strip()]
    for name in names:
        if name not in available:
            raise InputNotFoundError(
                f"--corpus=python_docs:PACKAGE,... must name installed Python packages. "
                f"Received: {settings.unknown_key(name, available)[:300]}"
            )
    if not names:
        raise InputError(
            f"--corpus=python_docs:PACKAGE,... must name a package. Received: {packages!r}."
        )
    return {name: available[name] for name in sorted(names, key=list(available).index)}


def _standard_library() -> dict[str, str]:
    return _existing(sysconfig.get_path("stdlib"), sorted(sys.stdlib_module_names | {"pydoc_data"}))


def _installed_packages() -> dict[str, str]:
    """Return the packages in the metadata of site-packages, and no other files on the path."""
    packages: dict[str, str] = {}
    for root in sorted({sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}):
        tops = set()
        for distribution in importlib.metadata.distributions(path=[root]):
            # `distribution.files` is equivalent, but takes a second to make its paths.
            for line in (distribution.read_text("RECORD") or "").splitlines():
                path = line.split(",", 1)[0]
                if path.endswith(".py"):
                    tops.add(path.split("/", 1)[0].removesuffix(".py"))
        packages |= _existing(root, sorted(tops - {".."}))
    return packages


def _existing(root: str, names: list[str]) -> dict[str, str]:
    paths = {}
    for name in names:
        folder = os.path.join(root, name)
        if os.path.isdir(folder):
            paths[name] = folder
        elif os.path.isfile(f"{folder}.py"):
            paths[name] = f"{folder}.py"
    return paths


def _python_files(path: str) -> Iterator[str]:
    if os.path.isfile(path):
        yield path
        return
    for folder, subfolders, names in os.walk(path):
        subfolders[:] = sorted(name for name in subfolders if name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            file = os.path.join(folder, name)  # or a dangling link
            if name.endswith(".py") and not _SKIPPED_FILES.fullmatch(name) and os.path.isfile(file):
                yield file


def _texts(names: Iterator[str], package: str) -> Iterator[str]:
    for name in names:
        with open(name, "rb") as stream:
            source = stream.read()
        if b'"""' not in source and b"'''" not in source and package != "pydoc_data":
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # about escapes in third-party strings
                tree = ast.parse(source)
        except (SyntaxError, ValueError, RecursionError):
            continue  # templates, and sources for other Python versions
        yield from _topics(tree) if package == "pydoc_data" else _docstrings(tree)


def _docstrings(tree: ast.Module) -> Iterator[str]:
    """Yield docstrings in the order of the source, without walking into expressions."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield encodable(text)
        pending.extend(
            child
            for field in ("finalbody", "orelse", "handlers", "body")
            for child in reversed(getattr(node, field, None) or [])
            if isinstance(child, ast.stmt | ast.ExceptHandler)
        )


def _topics(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Dict):
            for value in node.values:
                if isinstance(value, ast.Constant) and isinstance(value.value, str):
                    yield value.value
