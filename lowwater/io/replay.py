"""Files read from where an earlier run stopped."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from lowwater.engine.records import Records
from lowwater.engine.sources import Position
from lowwater.errors import DataError
from lowwater.io.paths import files_of


class FileReader(Protocol):
    """Reads one file after another, and remembers the types that columns have shown."""

    types: dict[str, pa.DataType]

    def read(self, path: Path) -> Iterator[Records]:
        """Yield a file's records; the same batches each time, given the same ``types`` before."""
        ...


def replay(
    paths: tuple[str, ...],
    suffixes: tuple[str, ...],
    reader: FileReader,
    position: Position | None,
) -> Iterator[tuple[Records, Position]]:
    """Yield the records of files after a position, each batch with the position behind it.

    A position names the files read whole, with their sizes, and the batches read of the one being
    read; that file is read again up to there. Files that were read whole may be gone.

    Args:
        paths: Files, folders and globs.
        suffixes: What the files of a folder end in.
        reader: What reads them; its ``types`` become what they were at the position.
        position: Where to go on; ``None`` for the beginning.

    Raises:
        DataError: A file vanished while it was being read, or is not as long as it was.
    """
    done: dict[str, int] = {} if position is None else dict(position["done"])
    skip = 0
    if position is not None:
        reader.types.clear()
        reader.types.update(_types_of(position["types"]))
        skip = position["batch"]
        _check_there(position["file"], position["size"])
    files = {str(path): path for path in files_of(paths, suffixes)}
    for name, size in done.items():
        if name in files and files[name].stat().st_size != size:
            raise _changed(name, size, files[name].stat().st_size)
    pending = [name for name in files if name not in done]
    if position is not None and position["file"] in pending:
        pending.remove(position["file"])
        pending.insert(0, position["file"])
    for name in pending:
        size = files[name].stat().st_size
        types = _types_bytes(reader.types)
        for batch, records in enumerate(reader.read(files[name])):
            if batch >= skip:
                yield (
                    records,
                    {"done": done, "file": name, "size": size, "batch": batch + 1, "types": types},
                )
        skip = 0
        done = {**done, name: size}


def _check_there(name: str, size: int) -> None:
    path = Path(name)
    if not path.is_file():
        raise DataError(
            "the file vanished while it was being read",
            where=name,
            mend="Put it back: the rest of it has not been read",
        )
    if path.stat().st_size != size:
        raise _changed(name, size, path.stat().st_size)


def _changed(name: str, before: int, now: int) -> DataError:
    return DataError(
        f"the file had {before} bytes when it was read, and now has {now}",
        where=name,
        mend="Put the former file back; add what is new as another file",
    )


def _types_bytes(types: Mapping[str, pa.DataType]) -> bytes:
    data: bytes = pa.schema(list(types.items())).serialize().to_pybytes()
    return data


def _types_of(data: Any) -> dict[str, pa.DataType]:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    return {field.name: field.type for field in schema}
