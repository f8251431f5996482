"""Tells a state directory that files were moved."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from lowwater.engine.graph.sources import GrowingMap
from lowwater.engine.local.run_record import read_run, rewrite_run
from lowwater.errors import InvalidArgument
from lowwater.io.input_files import input_files
from lowwater.io.paths import PathLike, as_texts, is_remote
from lowwater.pipeline.state_tools import permitted, unowned
from lowwater.state.filesystems import without_secrets
from lowwater.state.formats import decoding
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch

_NOTHING: Mapping[str, Any] = {"description": {"sources": {}}, "outputs": [], "held": []}
_REMOTE = re.compile(r"([A-Za-z_]\w* )([A-Za-z][A-Za-z0-9+.-]+://.*)", re.DOTALL)
"""A sink's place in a store: the kind of the sink, and the URI."""


@permitted(writes=True)
def relocate_state(path: PathLike, old: PathLike, new: PathLike) -> dict[str, str]:
    """Record in a state directory that inputs, or outputs in files, were moved.

    Paths are compared as they were given to readers and sinks: a relative path is one of those
    below a relative path; a URI as without its credentials and options. The next run checks that
    the files contain what was read of them: by CRC-32 those that were local, by ETag objects.

    Args:
        path: The state directory.
        old: A path or URI given to a reader or a sink, or a folder that such paths are in.
        new: Where that is now. A URI may have options, which are not kept.

    Returns:
        What was changed: the paths of inputs and outputs, by what they were.

    Raises:
        InvalidArgument: There is nothing at the new place; the state has no path there; or an
            output would move from this machine to a store or back.
        StateError: There is no state, it is damaged, or a live process has it open.
        DataError: The store of the new place cannot be reached.
    """
    place = unowned(path)
    (before,), (after,) = as_texts(old, "old"), as_texts(new, "new")
    there = input_files(after.rstrip(os.sep) or os.sep).is_anything_there()
    before, after = (without_secrets(text).rstrip(os.sep) or os.sep for text in (before, after))
    if not there:
        raise InvalidArgument(f"there is nothing at {after!r}", hint="Move the files there first")
    with RocksStore(place) as store:
        record = read_run(store, str(place)) or {**_NOTHING}
        with decoding("the description of the pipeline"):
            sources = record["description"]["sources"].values()
            names = [name for source in sources for name in source["paths"]]
            moved = {name: _moved(name, before, after) for name in names}
            outputs = [str(name) for _, _, _, places in record["outputs"] for name in places]
        moved |= {name: _moved_place(name, before, after) for name in outputs}
        changed = {name: to for name, to in moved.items() if name != to}
        if not changed:
            raise InvalidArgument(
                f"the state has no path {before!r}, nor one below it",
                where=str(place),
                hint=f"It has {', '.join(map(repr, moved)) or 'none'}",
            )
        if len({*moved.values()}) < len(moved):
            raise InvalidArgument(
                f"the state has other paths below {after!r} already",
                where=str(place),
                hint="Give a place of which it knows nothing",
            )
        with decoding("the position in the files"):
            _relocate(record, before, after)
        batch = Batch()
        rewrite_run(batch, record)
        store.commit(batch)
    return changed


def _relocate(record: dict[str, Any], old: str, new: str) -> None:
    """Change the paths in the record of a run."""
    for source in record["description"]["sources"].values():
        source["paths"] = [_moved(name, old, new) for name in source["paths"]]
    record["outputs"] = [
        [number, name, text, [_moved_place(place, old, new) for place in places]]
        for number, name, text, places in record["outputs"]
    ]
    record["held"] = [
        replace(one, place=_moved_place(one.place, old, new)) for one in record["held"]
    ]
    for source in (record["run"] or {"sources": {}})["sources"].values():
        position = source["position"]
        if position is None or "done" not in position:
            continue
        files = {*position["done"], position["file"]} - {""}
        position["done"] = GrowingMap(
            (_moved(name, old, new), content) for name, content in position["done"].items()
        )
        position["file"] = _moved(position["file"], old, new)
        # Estimators may go by the names of files, as FinishedFiles does.
        names = {name: _moved(name, old, new) for name in files}
        source["estimator"] = _renamed(source["estimator"], names)


def _moved(name: str, old: str, new: str) -> str:
    below = old if old.endswith(os.sep) else f"{old}{os.sep}"
    if name == old:
        return new
    return f"{new.rstrip(os.sep)}{os.sep}{name[len(below) :]}" if name.startswith(below) else name


def _moved_place(name: str, old: str, new: str) -> str:
    """Return the name of a sink's place: a path, and the tables in it if it is a database.

    Raises:
        InvalidArgument: It is in a store and would not be, or the other way round.
    """
    if remote := _REMOTE.fullmatch(name):
        kind, uri = remote.groups()
        moved = _moved(uri, old, new)
        if moved != uri and not is_remote(moved):
            raise _elsewhere(uri, moved)
        return f"{kind}{moved}"
    tables = name.startswith(f"{old} ")
    moved = f"{new}{name[len(old) :]}" if tables else _moved(name, old, new)
    if moved != name and is_remote(moved):
        raise _elsewhere(name, moved)
    return moved


def _elsewhere(name: str, new: str) -> InvalidArgument:
    return InvalidArgument(
        f"the output {name!r} cannot move to {new!r}: one is on this machine, the other in a store",
        hint="Relocate the inputs by themselves, and leave the outputs where they are",
    )


def _renamed(value: Any, names: Mapping[str, str]) -> Any:
    """Return a stored value with names of files in it replaced."""
    match value:
        case str():
            return names.get(value, value)
        case list() | tuple():
            return type(value)(_renamed(one, names) for one in value)
        case dict():
            return {_renamed(name, names): _renamed(one, names) for name, one in value.items()}
        case _:
            return value
