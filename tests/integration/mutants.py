"""Ways to damage the content of a file, all drawn from a `random.Random`."""

import copy
import io
import json
import pathlib
import random
import struct
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from typing import Any

from data.records.writer import write_records

EDGES = (0, 1, -1, 2, 255, 2**31, 10**9, 10**30, -0.5, 1e-9, 1e300, float("nan"), float("inf"))
ODD = (None, True, "", "x", "é", "\ud800", "0", "\n", [], {}, [1], ["a"], {"a": 1}, [[[]]], *EDGES)
Change = Callable[[bytes, random.Random], bytes]


def any_bytes(content: bytes, rng: random.Random) -> bytes:
    """Flip, cut, repeat, move and insert bytes, or write the text in another encoding."""
    a, b = sorted(rng.choices(range(len(content) + 1), k=2))
    c = min(len(content), a + rng.choice((1, 1, 1, 4, 16, 64)))
    noise = rng.randbytes(c - a)
    text = content.decode("utf-8", "replace")
    return rng.choice(
        (
            lambda: content[:a],
            lambda: content[:a] + content[c:],
            lambda: content[:a] + content[b:],
            lambda: content[:c] + content[a:],
            lambda: content[:b] + content[a:],
            lambda: content[:a] + content[b:] + content[a:b],
            lambda: content[:a] + noise + content[c:],
            lambda: content[:a] + noise + content[a:],
            lambda: content[:a] + bytes(c - a) + content[c:],
            lambda: content[:a] + bytes(x ^ 1 << rng.randrange(8) for x in content[a:c])
            + content[c:],
            lambda: b"\xef\xbb\xbf" + content,
            lambda: text.replace("e", "é").encode(rng.choice(("latin-1", "utf-16")), "replace"),
            lambda: b"",
        )
    )()  # fmt: skip


def json_tree(content: bytes, rng: random.Random) -> bytes:
    """Change types, keys and values of a JSON document, or nest it deeply."""
    holder = {"": json.loads(content)}
    for _ in range(rng.choice((1, 1, 2))):
        nodes = list(_nodes(holder)) or [(holder, holder.setdefault("", ""))]
        parent, key = rng.choice(nodes)
        rng.choice((_replace, _replace, _replace, _remove, _rename, _wrap, _exchange))(
            parent, key, rng, nodes
        )
    text = json.dumps(holder.get(""))
    deep = rng.randrange(20) == 0
    return ("[" * 10**5 + text + "]" * 10**5 if deep else text).encode()


def json_line(content: bytes, rng: random.Random) -> bytes:
    """Change one line of a file of JSON lines as `json_tree` does; other lines may be texts."""
    lines = content.splitlines(keepends=True)
    number = rng.choice([i for i, line in enumerate(lines) if line.startswith(b"{")])
    lines[number] = json_tree(lines[number], rng) + b"\n"
    return b"".join(lines)


def compressed(compress: Callable[[bytes], bytes], decompress: Callable[[bytes], bytes]) -> Change:
    """Return a change of the content of a compressed file."""
    return lambda content, rng: compress(any_bytes(decompress(content), rng))


def zip_member(content: bytes, rng: random.Random) -> bytes:
    """Change the content, the name or the number of the files in a .zip."""
    stream = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [(name, archive.read(name)) for name in archive.namelist()]
    number = rng.randrange(len(members))
    name, inner = members[number]
    members[number] = rng.choice(
        (
            (name, any_bytes(inner, rng)),
            (name + rng.choice((".gz", ".zip", ".png", "/", "\n")), inner),
            (rng.choice((".", "..", "../x", "/x", "é" * 300, "a\\b")), inner),
            members[number - 1],
        )
    )
    with zipfile.ZipFile(stream, "w", rng.choice((0, 8, 12, 14))) as archive:
        for each in members:
            archive.writestr(*each)
    return stream.getvalue()


def _nodes(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield (list or dict, index or key) of every value below `tree`."""
    for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
        yield tree, key
        if isinstance(tree[key], dict | list):
            yield from _nodes(tree[key])


def _replace(parent: Any, key: Any, rng: random.Random, nodes: Any) -> None:
    parent[key] = copy.deepcopy(rng.choice(ODD))


def _remove(parent: Any, key: Any, rng: random.Random, nodes: Any) -> None:
    del parent[key]


def _rename(parent: Any, key: Any, rng: random.Random, nodes: Any) -> None:
    if isinstance(parent, dict):
        parent[f"{key}s"] = parent.pop(key)


def _wrap(parent: Any, key: Any, rng: random.Random, nodes: Any) -> None:
    parent[key] = rng.choice(([parent[key]], {"x": parent[key]}, str(parent[key])))


def _exchange(parent: Any, key: Any, rng: random.Random, nodes: Any) -> None:
    other, name = rng.choice(nodes)
    parent[key] = copy.deepcopy(other[name])


def record_content(content: bytes, rng: random.Random) -> bytes:
    """Change one record of a TFRecord file and give it the right checksum."""
    records, offset = [], 0
    while offset < len(content):
        (length,) = struct.unpack_from("<Q", content, offset)
        records.append(content[offset + 12 : offset + 12 + length])
        offset += length + 16
    number = rng.randrange(len(records))
    records[number] = any_bytes(records[number], rng)
    with tempfile.NamedTemporaryFile() as file:
        write_records(file.name, records)
        return pathlib.Path(file.name).read_bytes()


def tensor_header(content: bytes, rng: random.Random) -> bytes:
    """Change the JSON header of a safetensors file and state its right length."""
    (length,) = struct.unpack_from("<Q", content)
    header = json_tree(content[8 : 8 + length], rng)
    return struct.pack("<Q", len(header)) + header + content[8 + length :]
