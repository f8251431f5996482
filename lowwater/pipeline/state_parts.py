"""Divides a state directory by the parts of its pipeline, and puts such directories together.

A part is a set of sources and stages that nothing connects with the rest: each source with all that
reads it. Keyed state moves as it is, whole key groups of a stage, so nothing is computed again. The
contract is in the page on changing durable runs.

The directories that state comes from are marked first, so that nothing can run over them from then
on. The new ones are prepared under other names, and appear by a rename. A command that was killed
is finished by giving it again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lowwater.engine.graph.graph import MAIN, name_of_output
from lowwater.engine.local.graph_change import is_automatic
from lowwater.engine.local.run_record import (
    StoredRun,
    moved,
    outbox_key,
    read_outbox,
    read_run,
    rewrite_run,
)
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.paths import PathLike, as_paths
from lowwater.pipeline.state_tools import permitted, unowned
from lowwater.state.key_layout import stage_range
from lowwater.state.ownership import sync_directory
from lowwater.state.rocks import RocksStore
from lowwater.state.store import Batch

_BATCH_BYTES = 16 << 20
_TEMPORARY = ".lowwater-new"


@permitted(writes=True)
def split_state(
    path: PathLike, parts: Mapping[str, Sequence[str]] | Mapping[Path, Sequence[str]]
) -> dict[str, list[str]]:
    """Divide a state directory into several, by sources and what reads them.

    Each part goes on where the whole was: positions, keyed state, watermarks, undelivered outputs
    and the numbers of outputs go along. Afterwards nothing can run over the former directory.

    Args:
        path: The state directory, which no process may have open.
        parts: The names of sources or stages that each new directory gets, by its path. All that
            is connected with them comes along.

    Returns:
        The names of all sources and stages in each new directory.

    Raises:
        InvalidArgument: A part of the pipeline is named for two directories, or for none.
        StateError: There is no state, it is damaged, in use, or was moved before; a name is not in
            it, or is not one that was given; or a new directory is there already.
    """
    place = unowned(path)
    with RocksStore(place) as store:
        record = _record_of(store, place)
        targets = _targets(parts)
        named: Mapping[Any, Sequence[str]] = parts
        chosen = _divided(record, {to: named[given] for to, given in targets.items()}, place)
        _check_targets([place], [record], targets)
        _mark(store, record, targets)
        first = True
        for to, names in chosen.items():
            if not to.exists():
                with _prepared(to) as new:
                    _copy(store, new, _part_of(record, names, is_first=first))
                _publish(to)
            first = False
    return {str(to): names for to, names in chosen.items()}


@permitted(writes=True)
def merge_states(paths: Sequence[PathLike], to: PathLike) -> list[str]:
    """Put directories together that one state directory was divided into.

    Args:
        paths: The directories, which no process may have open.
        to: The new directory.

    Returns:
        The names of all sources and stages in the new directory.

    Raises:
        InvalidArgument: There are fewer than two directories.
        StateError: There is no state in one of them, it is damaged, in use, or was moved before;
            they are not of one directory, have parts of the pipeline in common, or differ in what
            must be the same; or the new directory is there already.
    """
    places = [unowned(path) for path in paths]
    if len(set(places)) < 2:
        raise InvalidArgument(
            "a merge needs at least two directories", hint="Name the parts: merge NEW PART PART"
        )
    (target,) = _targets({to: ()})
    with ExitStack() as stack:
        stores = [stack.enter_context(RocksStore(place)) for place in places]
        records = [_record_of(store, at) for store, at in zip(stores, places, strict=True)]
        merged = _merged(records, places)
        _check_targets(places, records, {target: to})
        for store, record in zip(stores, records, strict=True):
            _mark(store, record, {target: to})
        if not target.exists():
            with _prepared(target) as new:
                for store, record in zip(stores, records, strict=True):
                    _copy_rows(store, new, record)
                _write_record(new, merged)
            _publish(target)
    return [*merged["description"]["sources"], *merged["description"]["stages"]]


def _record_of(store: RocksStore, place: Path) -> dict[str, Any]:
    record = read_run(store, str(place))
    if record is None or record["run"] is None:
        raise StateError(
            "nothing was committed to this state yet",
            where=str(place),
            hint="Run the pipeline over it first; before that there is nothing to divide or merge",
        )
    return record


def _targets(parts: Mapping[Any, Any]) -> dict[Path, Any]:
    found: dict[Path, Any] = {}
    for given in parts:
        (text,) = as_paths(given, writes=True)
        found[Path(text).resolve()] = given
    if len(found) < len(parts):
        raise InvalidArgument(
            "two new directories are the same", hint="Name a directory of its own for each part"
        )
    return found


def _check_targets(
    places: Sequence[Path], records: Sequence[Mapping[str, Any]], targets: Mapping[Path, Any]
) -> None:
    """Raise unless new directories are free; where a killed command is finished, some are there."""
    names = sorted(map(str, targets))
    for place, record in zip(places, records, strict=True):
        before = sorted(record["moved"])
        if before != names and any(Path(name).exists() for name in before):
            raise moved(record, str(place))
    is_finishing = all(sorted(record["moved"]) == names for record in records)
    for to in targets:
        if any(to == place or place in to.parents or to in place.parents for place in places):
            raise StateError(
                "the new directory is the state directory, or one lies in the other",
                where=str(to),
                hint="Name a directory beside it",
            )
        if to.exists() and not (is_finishing and _is_of(to, records[0]["state_id"])):
            raise StateError(
                "the new directory is there already",
                where=str(to),
                hint="Name a directory that does not exist",
            )


def _is_of(place: Path, state_id: str) -> bool:
    """Whether a directory has a state of this id."""
    try:
        with RocksStore(place, read_only=True) as store:
            record = read_run(store, str(place))
    except StateError:
        return False
    return record is not None and record["state_id"] == state_id


def _connected(record: Mapping[str, Any]) -> list[set[str]]:
    """Return the sets of sources and stages that nothing connects with one another, in order."""
    groups: list[set[str]] = [{name} for name in record["description"]["sources"]]
    for name, of in record["stages"].items():
        touched = [group for group in groups if group.intersection(of["origins"])]
        joined = {name}.union(*touched)
        groups = [group for group in groups if group not in touched]
        groups.append(joined)
    return groups


def _divided(
    record: Mapping[str, Any], parts: Mapping[Path, Sequence[str]], place: Path
) -> dict[Path, list[str]]:
    """Return the names of all that each new directory gets."""
    every = [*record["description"]["sources"], *record["description"]["stages"]]
    if unnamed := [name for name in every if is_automatic(name)]:
        raise StateError(
            f"these have no names of their own, so a part could not tell which is its: "
            f"{', '.join(map(repr, unnamed))}",
            where=str(place),
            hint="Begin anew with names for all sources and stages: .named(...)",
        )
    groups = _connected(record)
    taken: dict[int, Path] = {}
    found: dict[Path, list[str]] = {}
    for to, names in parts.items():
        if isinstance(names, str) or not names:
            raise InvalidArgument(
                f"{str(to)!r} gets no sources or stages", hint="Give a list of their names"
            )
        chosen: set[str] = set()
        for name in names:
            at = next((at for at, group in enumerate(groups) if name in group), None)
            if at is None:
                raise StateError(
                    f"the state has no source or stage {name!r}",
                    where=str(place),
                    hint=f"It has {', '.join(map(repr, every))}",
                )
            if taken.setdefault(at, to) != to:
                raise InvalidArgument(
                    f"{name!r} cannot be apart from what is named for {str(taken[at])!r}: they are "
                    f"connected, as all of {', '.join(map(repr, sorted(groups[at])))}",
                    hint="A stage reads both, so its keys would have state in two directories; "
                    "name them for one directory",
                )
            chosen |= groups[at]
        found[to] = [name for name in every if name in chosen]
    left = [name for name in every if not any(name in names for names in found.values())]
    if left:
        raise InvalidArgument(
            f"no directory gets {', '.join(map(repr, left))}",
            hint="Name them for one of the directories: what is stored is divided, not dropped",
        )
    return found


def _part_of(record: Mapping[str, Any], names: Sequence[str], *, is_first: bool) -> dict[str, Any]:
    """Return the record of some sources and stages."""
    run, description = record["run"], record["description"]
    outputs = [one for one in record["outputs"] if _is_of_part(one[1], record, names)]
    metrics = run["metrics"] if is_first else _zeros(run["metrics"])
    return {
        **record,
        "moved": [],
        "outputs": outputs,
        "held": [one for one in record["held"] if one.output in {number for number, *_ in outputs}],
        "description": {
            **description,
            "sources": _some(description["sources"], names),
            "stages": _some(description["stages"], names),
            "outputs": [text for _, _, text, _ in outputs],
        },
        "stages": _some(record["stages"], names),
        "run": {
            **run,
            "sources": _some(run["sources"], names),
            "between": _some(run["between"], names),
            "metrics": {**metrics, "stages": _some(run["metrics"]["stages"], names)},
        },
    }


def _merged(records: Sequence[Mapping[str, Any]], places: Sequence[Path]) -> dict[str, Any]:
    """Return the record of all parts together.

    Raises:
        StateError: They do not go together.
    """
    first = records[0]
    for record, place in zip(records, places, strict=True):
        differs = next(_differences(record, records, places[0]), None)
        if differs is not None:
            raise StateError(
                f"the directories cannot be merged: {differs}",
                where=str(place),
                hint="Merge the parts of one split, each with its own sources and stages; go on "
                "with the others by themselves",
            )
    outputs = sorted(one for record in records for one in record["outputs"])
    totals = _zeros(first["run"]["metrics"])
    for record in records:
        totals = _added(totals, record["run"]["metrics"])
    joined = {
        part: {name: one for record in records for name, one in record["run"][part].items()}
        for part in ("sources", "between")
    }
    stages = {n: one for record in records for n, one in record["run"]["metrics"]["stages"].items()}
    described = {
        part: {name: one for record in records for name, one in record["description"][part].items()}
        for part in ("sources", "stages")
    }
    return {
        **first,
        "moved": [],
        "epoch": max(record["epoch"] for record in records),
        "openings": list(dict.fromkeys(one for record in records for one in record["openings"])),
        "outputs": outputs,
        "outputs_given": max(record["outputs_given"] for record in records),
        "held": [one for record in records for one in record["held"]],
        "description": {
            **first["description"],
            **described,
            "outputs": [text for _, _, text, _ in outputs],
        },
        "stages": {name: one for record in records for name, one in record["stages"].items()},
        "run": {
            **joined,
            "metrics": {**totals, "stages": stages},
            "ended": all(record["run"]["ended"] for record in records),
        },
    }


def _differences(
    record: Mapping[str, Any], records: Sequence[Mapping[str, Any]], place: Path
) -> Iterator[str]:
    """Yield why a part cannot be put together with the others."""
    first, description = records[0], record["description"]
    if record["state_id"] != first["state_id"]:
        yield "it is not a part of the same state: its sinks know it by another id"
    for name in ("bundle_size", "clock"):
        was = first["description"][name]
        if description[name] != was:
            yield f"its {name} is {description[name]!r}, and that of {str(place)!r} is {was!r}"
    names = {*description["sources"], *description["stages"]}
    for other in (one for one in records if one is not record):
        twice = [*other["description"]["sources"], *other["description"]["stages"]]
        if common := sorted(names.intersection(twice)):
            yield (
                f"{', '.join(map(repr, common))} is in another directory too: a key would have "
                "state in both, and two states of a key cannot be made one"
            )
        numbers = {one[0] for one in record["outputs"]} & {one[0] for one in other["outputs"]}
        if numbers:
            yield (
                f"outputs of it and of another directory have one number, {min(numbers)}: both "
                "gained an output since they were divided"
            )


def _some(of: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    return {name: one for name, one in of.items() if name in names}


def _is_of_part(output: str, record: Mapping[str, Any], names: Sequence[str]) -> bool:
    """Whether an output leaves one of some stages.

    Raises:
        StateError: The name of an output is that of a stage, too: older versions allowed this.
    """
    stages = record["description"]["stages"]
    owners = [
        stage
        for stage, of in stages.items()
        if output in {name_of_output(stage, tag) for tag in (MAIN, *of.get("outputs", ()))}
    ]
    if len({owner in names for owner in owners}) != 1:
        raise StateError(
            f"it cannot be told which part the output {output!r} belongs to: it may be one of "
            f"{', '.join(map(repr, owners)) or 'no stage'}",
            where="split",
            hint="Run over the whole state with a stage named otherwise, or keep it whole",
        )
    return owners[0] in names


def _zeros(metrics: Mapping[str, Any]) -> dict[str, Any]:
    """Return counts that are all zero."""
    return {name: {} if isinstance(one, dict) else 0 for name, one in metrics.items()}


def _added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sums of counts, and of counts by name."""
    added: dict[str, Any] = {}
    for name in {**one, **other}:
        a, b = one.get(name), other.get(name)
        if name == "stages":
            continue
        if isinstance(a, dict) or isinstance(b, dict):
            names = dict.fromkeys([*(a or {}), *(b or {})])
            added[name] = {n: (a or {}).get(n, 0) + (b or {}).get(n, 0) for n in names}
        else:
            added[name] = (a or 0) + (b or 0)
    return added


def _mark(store: RocksStore, record: Mapping[str, Any], targets: Mapping[Path, Any]) -> None:
    """Close a directory to runs; they continue over those that its state moves to."""
    batch = Batch()
    rewrite_run(batch, {**record, "moved": sorted(map(str, targets))})
    store.commit(batch)


def _temporary(to: Path) -> Path:
    return to.with_name(f".{to.name}{_TEMPORARY}")


def _prepared(to: Path) -> RocksStore:
    """Return a new store under another name than it will have."""
    temporary = _temporary(to)
    if temporary.exists():
        shutil.rmtree(temporary)  # left by a command that was killed
    return RocksStore(temporary)


def _publish(to: Path) -> None:
    _temporary(to).rename(to)
    sync_directory(to.parent)


def _copy(store: RocksStore, new: RocksStore, record: Mapping[str, Any]) -> None:
    _copy_rows(store, new, record)
    _write_record(new, record)


def _copy_rows(store: RocksStore, new: RocksStore, record: Mapping[str, Any]) -> None:
    """Copy the rows of the stages of a record, and what is to be delivered to its outputs."""
    batch = Batch()
    for key, value in _rows_of(store, record):
        batch.put([key], [value])
        if batch.size_bytes > _BATCH_BYTES:
            new.commit(batch)
            batch = Batch()
    new.commit(batch)


def _rows_of(store: RocksStore, record: Mapping[str, Any]) -> Iterator[tuple[bytes, bytes]]:
    for name in record["stages"]:
        yield from store.scan(*stage_range(name))
    numbers = {one[0] for one in record["outputs"]}
    wanted = {outbox_key(one) for one in read_outbox(store) if one.output in numbers}
    for key in sorted(wanted):
        (value,) = store.get([key])
        if value is not None:
            yield key, value


def _write_record(new: RocksStore, record: Mapping[str, Any]) -> None:
    """Make a directory one of a run: last, when all the rest is there."""
    batch = Batch()
    StoredRun(None).write(batch, record)
    new.commit(batch)
