"""Reading a tree of files from any filesystem gives what reading it from the disk gives."""

from __future__ import annotations

import gzip
import io
import json
import tempfile
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st
from pyarrow import fs

from lowwater.engine.graph.sources import ReplayableSource
from lowwater.errors import LowwaterError
from lowwater.io.csv import CsvSource
from lowwater.io.follow import Follow
from lowwater.io.input_files import InputFiles, input_files
from lowwater.io.jsonl import JsonLinesSource
from lowwater.io.parquet import ParquetSource

ENDINGS = {
    "parquet": ["parquet", "parquet", "pq", "csv"],
    "csv": ["csv", "csv", "csv.gz", "txt"],
    "jsonl": ["jsonl", "ndjson", "jsonl.gz", "csv"],
}
_PARTS = st.sampled_from(["a", "b", "b.c", "_c", ".d", "x y", "ü%2F", "z=1"])
_NAMES = st.builds("/".join, st.lists(_PARTS, min_size=1, max_size=3))
_TREES = st.dictionaries(
    _NAMES, st.tuples(st.integers(0, 12), st.integers(0, 3)), min_size=3, max_size=9
)
_PATHS = st.lists(
    st.sampled_from(["", "", "**", "a", "*", "**", "*/*", "**/b*", "[ab]*", "x y", "a/**/b.*"]),
    min_size=1,
    max_size=2,
)


def content(name: str, count: int) -> bytes:
    rows = [{"t": n, "v": f"{name} {n:04}"} for n in range(count)]
    table = pa.Table.from_pylist(rows, pa.schema({"t": pa.int64(), "v": pa.string()}))
    made = io.BytesIO()
    if name.endswith((".parquet", ".pq")):
        pq.write_table(table, made)
    elif name.endswith((".csv", ".csv.gz")):
        pa_csv.write_csv(table, made)
    else:
        made.write("".join(json.dumps(row) + "\n" for row in rows).encode())
    data = made.getvalue()
    return gzip.compress(data, mtime=0) if name.endswith(".gz") else data


def source_of(kind: str, files: InputFiles) -> ReplayableSource:
    follow = Follow(1, max_idle_us=0)  # one look, which need not find anything
    if kind == "parquet":
        return ParquetSource(files.paths, follow=follow, stores=files.stores)
    if kind == "csv":
        types = {"t": pa.int64(), "v": pa.string()}
        return CsvSource(files.paths, types, "t", follow=follow, stores=files.stores)
    return JsonLinesSource(files.paths, "t", follow, stores=files.stores)


def read(source: ReplayableSource, root: str, cuts: list[int]) -> Any:
    """Return the records, and the positions but for what only a filesystem knows.

    Args:
        source: The source.
        root: What all names begin with.
        cuts: After how many batches it is begun again, from the last position.
    """
    seen: list[Any] = []
    position: Any = None
    for cut in [*cuts, None]:
        for number, (records, after) in enumerate(source.batches_from(position, 5, ())):
            position = after
            names = {name.removeprefix(root): content[0] for name, content in after["done"].items()}
            if number or records.length:
                rows = None if not records.length else records.to_arrow().to_pylist()
                place = (records.place(0) or "").removeprefix(root) if records.length else ""
                seen.append((rows, place, names, after["file"].removeprefix(root), after["batch"]))
            if cut is not None and number >= cut:
                break
    return seen


def outcome(source: ReplayableSource, root: str, cuts: list[int]) -> Any:
    try:
        return read(source, root, cuts)
    except LowwaterError as error:
        return type(error), (error.where or "").removeprefix(root)


@given(
    tree=_TREES,
    paths=_PATHS,
    kind=st.sampled_from(list(ENDINGS)),
    cuts=st.lists(st.integers(0, 4), max_size=2),
    native=st.booleans(),
)
def test_a_tree_is_read_alike_anywhere(
    tree: dict[str, tuple[int, int]], paths: list[str], kind: str, cuts: list[int], native: bool
) -> None:
    """With restarts; and a path that matches nothing is refused alike."""
    name = uuid4().hex
    memory = MemoryFileSystem()
    with tempfile.TemporaryDirectory() as folder:
        for stem, (count, ending) in tree.items():
            path = f"{stem}.{ENDINGS[kind][ending]}"
            file = Path(folder) / path
            if any(parent.is_file() for parent in file.parents) or file.is_dir():
                continue  # an object and a folder may have one name, but no file and a folder
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content(path, count))
            memory.pipe(f"/{name}/{path}", content(path, count))
        local = InputFiles(tuple(f"{folder}/{path}".rstrip("/") for path in paths))
        if native:
            disk = fs.SubTreeFileSystem(folder, fs.LocalFileSystem())
            remote, root = input_files(paths, disk), "subtree:/"
        else:
            root = f"memory://{name}"
            remote = input_files([f"{root}/{path}" for path in paths])
        expected = outcome(source_of(kind, local), folder, cuts)
        assert outcome(source_of(kind, remote), root, cuts) == expected
    memory.rm(f"/{name}", recursive=True)
