"""Looks into a state directory, checks it, hands out what is in it, and removes it.

The file is long because every tool opens the directory in the same way: read only where it only
looks, with the same words for what this user may not do.
"""

from __future__ import annotations

import errno
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast, final

import pyarrow as pa

from lowwater.display.text import visible
from lowwater.engine.keyed.inspect import tables_of, verify_records
from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.run_record import (
    FORMAT,
    GROWN,
    HELD,
    OUTBOX,
    RUN,
    StoredHeld,
    read_outbox,
    read_run,
)
from lowwater.engine.process.inspect import TABLES as PROCESS_TABLES
from lowwater.engine.process.inspect import count_keys, verify_process
from lowwater.engine.process.passing import TABLES as PASSING_TABLES
from lowwater.engine.process.passing import verify_passing
from lowwater.engine.records.deduplicate import IDS, IDS_FACTS
from lowwater.engine.window.inspect import TABLES, InspectedWindows
from lowwater.engine.window.persistence import FACTS
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.sinks.compaction import Compaction
from lowwater.io.sinks.owned_folder import compact_folder
from lowwater.io.terminal import table
from lowwater.state.codec import decode
from lowwater.state.formats import FORMATS, damaged, decoding
from lowwater.state.id_set import StoredIds
from lowwater.state.key_layout import END, StoredPlace, prefix_range, split_key, stage_prefix
from lowwater.state.ownership import Ownership, in_use, is_owned, read_sequencer, unreadable
from lowwater.state.rocks import FORMAT as STORE_FORMAT
from lowwater.state.rocks import RocksStore
from lowwater.state.store import StateStore
from lowwater.time import START_OF_TIME, Instant, format_duration

_TABLES: Mapping[str, Mapping[int, str]] = {
    "windows": TABLES,
    "process": PROCESS_TABLES,
    "join": tables_of("records", "records of the right side"),
    "match": tables_of("rows", "output that may be retracted"),
    "over": tables_of("rows", "rows of the right side"),
    "counted": tables_of("windows", "windows of the right side"),
    "table": tables_of("records", "records of the right side"),
    "records": PASSING_TABLES,
}
_VERIFY: Mapping[str, Callable[[StateStore, StoredPlace], object]] = {
    "windows": lambda store, stage: InspectedWindows(store, stage).verify(),
    "process": verify_process,
    "records": verify_passing,
    "join": verify_records,
    "match": verify_records,
    "over": verify_records,
    "counted": verify_records,
    "table": verify_records,
}
_IDS: Mapping[int, str] = {IDS: "record ids", IDS_FACTS: "facts of record ids"}
_DATABASE = re.compile(r"rocksdb-\d+")
_FILES = re.compile(
    r"\d+\.(?:sst|log|blob)|CURRENT|IDENTITY|LOCK|LOG(?:\.old\.\d+)?|MANIFEST-\d+"
    r"|OPTIONS-\d+(?:\.dbtmp)?|\d+\.dbtmp|rocksdict-config\.json"
)
_NESTED = ("sources", "stages")
_OWN = ("SEQUENCER", "SEQUENCER.new", "OWNER")


_NOT_PERMITTED = {errno.EACCES, errno.EPERM, errno.EROFS}

ToolT = TypeVar("ToolT", bound=Callable[..., Any])


def permitted(*, writes: bool = False) -> Callable[[ToolT], ToolT]:
    """Return a decorator of tools that says what they may not do, and who may.

    Args:
        writes: Whether the tool changes the state.
    """

    def decorate(tool: ToolT) -> ToolT:
        @wraps(tool)
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return tool(path, *args, **kwargs)
            except OSError as error:
                if error.errno not in _NOT_PERMITTED:
                    raise
                first = path[0] if isinstance(path, (list, tuple)) else path
                raise unreadable(error, Path(first).resolve(), writes=writes) from error

        return cast(ToolT, call)

    return decorate


@final
@dataclass(frozen=True, slots=True)
class Size:
    """What a table of a stage takes.

    Args:
        stage: The stage; the pipeline's own rows come first, as ``"pipeline"``.
        table: The table, in words.
        rows: Its stored values; one may hold thousands of windows or keys.
        size_bytes: Bytes of their keys and values, before compression.
    """

    stage: str
    table: str
    rows: int
    size_bytes: int


@final
@dataclass(frozen=True, slots=True)
class StateInfo:
    """What a state directory holds.

    Args:
        path: The directory.
        layout: Version of the layout of what runs store.
        in_use: Whether a live process has it open: what that commits does not show.
        sequencer: How often the state was opened to be written.
        last_commit: Number of the last commit of the store; openings count.
        epoch: Number of the last commit of a run.
        state_id: What sinks know the state by.
        complete: Whether the input has ended and all was shown.
        description: The pipeline, part by part.
        positions: Where each source is, by its name; ``None``: at its beginning.
        watermark: The input watermark; ``None`` before the first commit.
        clock: The clock; likewise.
        open_windows: How many windows are open.
        finished_windows: How many have closed and not expired.
        keys: How many keys have state.
        outbox: The deliveries that come again at the next start.
        sizes: What each table takes.
        waiting: What had been delivered by the last commit and waits to be published, a line for
            each place. Readers do not see it, and there is no other copy.
        moved: The directories that the state was split or merged into: runs go on over these.
    """

    path: str
    layout: int
    in_use: bool
    sequencer: int
    last_commit: int
    epoch: int
    state_id: str
    complete: bool
    description: Mapping[str, Any]
    positions: Mapping[str, Mapping[str, Any] | None]
    watermark: Instant | None
    clock: Instant | None
    open_windows: int
    finished_windows: int
    keys: int
    outbox: tuple[Delivery, ...]
    sizes: tuple[Size, ...]
    moved: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()

    def to_text(self) -> str:
        """Return it all in lines that a person can read."""
        facts: list[tuple[str, str]] = [
            ("layout", f"{self.layout}, in a store of format {STORE_FORMAT}"),
            ("openings", f"{self.sequencer:,}"),
            ("commits", f"{self.last_commit:,} in the store; the runs are at epoch {self.epoch:,}"),
            ("state id", self.state_id),
            *([("moved to", ", ".join(self.moved))] if self.moved else []),
            (
                "in use",
                "yes: this is a snapshot, and later commits are not included"
                if self.in_use
                else "no",
            ),
            *(
                (f"position of {name}", _position(at, complete=self.complete))
                for name, at in self.positions.items()
            ),
            ("watermark", str(self.watermark or "-")),
            ("clock", str(self.clock or "-")),
            ("windows", f"{self.open_windows:,} open, {self.finished_windows:,} closed"),
            ("keys", f"{self.keys:,}"),
            ("outbox", "; ".join(map(_delivery, self.outbox)) or "empty"),
            *([("waiting", "; ".join(self.waiting))] if self.waiting else []),
        ]
        width = max(len(name) for name, _ in facts)
        lines = [self.path, *(f"  {name.ljust(width)}  {text}" for name, text in facts)]
        lines += ["", "pipeline", *_described(self.description), "", "sizes"]
        rows = [[s.stage, s.table, s.rows, s.size_bytes] for s in self.sizes]
        lines.append(table(["of", "table", "values", "bytes"], rows, indent="  "))
        return visible("\n".join(lines))


@permitted()
def state_info(path: PathLike) -> StateInfo:
    """Return what a state directory holds. Changes nothing; reads all of it once.

    Raises:
        StateError: There is no state, or it is damaged.
    """
    place = _place(path)
    owned = is_owned(place)
    with _reading(place, owned=owned) as store:
        record = read_run(store, str(place)) or {}
        run = record.get("run") or {}
        sizes = _sizes(store, record)
        keys = 0
        facts: Mapping[str, int] = {}
        open_windows = finished = 0
        for stage, of in _stages(record):
            if of["kind"] != "records":  # which have no keys
                keys += (count_keys if of["kind"] == "process" else _keys)(store, stage)
            if of["kind"] != "windows" or not _has_rows(store, stage):
                continue
            view, names = InspectedWindows(store, stage), of["keys"]
            facts = view.facts
            everything = len(view.windows(names, open_only=False))
            now_open = len(view.windows(names))
            open_windows += now_open
            finished += everything - now_open
        sequencer = read_sequencer(place)
        return StateInfo(
            path=str(place),
            layout=record.get("layout", FORMATS[FORMAT]),
            in_use=owned,
            sequencer=0 if sequencer is None else sequencer[0],
            last_commit=store.last_commit,
            epoch=record.get("epoch", 0),
            state_id=record.get("state_id", "-"),
            complete=bool(run.get("ended")),
            description=record.get("description", {}),
            positions={name: source["position"] for name, source in run.get("sources", {}).items()},
            watermark=Instant(facts["watermark"]) if facts else None,
            clock=Instant(facts["clock"]) if facts else None,
            open_windows=open_windows,
            finished_windows=finished,
            keys=keys,
            outbox=tuple(read_outbox(store)),
            sizes=tuple(sizes),
            moved=tuple(record.get("moved", ())),
            waiting=tuple(_waiting(output) for output in record.get("held", ()) if output.files),
        )


@permitted()
def verify_state(path: PathLike) -> int:
    """Read and decode every row of a state directory; return how many there are.

    Raises:
        StateError: Something is damaged, or a live process has the state open.
    """
    place = unowned(path)
    with _reading(place) as store:
        rows = store.verify()
        record = read_run(store, str(place))
        for size in _sizes(store, record or {}):
            if record is not None and not size.table:
                raise damaged("the stored state", f"{size.stage} has rows of an unknown table")
        if record is None and rows:
            raise StateError(
                "there are rows, but no record of a run",
                where=str(place),
                hint="If it belongs to a pipeline, restore the directory from a copy",
            )
        for _ in read_outbox(store):
            pass
        for stage, of in _stages(record or {}):
            if not _has_rows(store, stage):
                continue
            _VERIFY[of["kind"]](store, stage)
            if of["deduplicated"]:
                with decoding("stored record ids"):
                    StoredIds(stage.prefix(IDS), 1).restore(store, START_OF_TIME)
        return rows


@permitted()
def export_state(path: PathLike) -> pa.Table:
    """Return the open windows of a state directory, a row each.

    Columns are the key, ``window_start``, ``window_end``, ``expires``, and the operator's own as
    ``state.NAME``: they are what a version of lowwater keeps, and may change with it. Where stages
    have columns of one name whose types do not fit one another, each is ``STAGE: NAME``.

    Raises:
        StateError: There is no state, it is damaged, or a live process has it open.
    """
    place = unowned(path)
    with _reading(place) as store:
        record = read_run(store, str(place)) or {}
        parts = {
            stage.stage: InspectedWindows(store, stage).windows(of["keys"])
            for stage, of in _stages(record)
            if of["kind"] == "windows" and _has_rows(store, stage)
        }
    return _together(parts) if parts else pa.table({})


def _together(parts: Mapping[str, pa.Table]) -> pa.Table:
    """Return the tables of stages as one; columns that do not fit get the names of their stages."""
    columns: dict[str, list[pa.Field]] = {}
    for part in parts.values():
        for column in part.schema:
            columns.setdefault(column.name, []).append(column)
    unfit = {name for name, fields in columns.items() if not _fit(fields)}
    named = [
        part.rename_columns([f"{stage}: {n}" if n in unfit else n for n in part.column_names])
        for stage, part in parts.items()
    ]
    return pa.concat_tables(named, promote_options="permissive")


def _fit(fields: Sequence[pa.Field]) -> bool:
    """Return whether columns of these types can be one column."""
    try:
        pa.unify_schemas([pa.schema([field]) for field in fields], promote_options="permissive")
    except (pa.ArrowTypeError, pa.ArrowInvalid):
        return False
    return True


@final
@dataclass(frozen=True, slots=True)
class CompactedFolder:
    """What compaction did to a folder of output.

    Args:
        path: The folder.
        before: How many files were joined.
        after: How many files they became.
    """

    path: str
    before: int
    after: int


@permitted()
def compact_outputs(path: PathLike, compaction: Compaction) -> list[CompactedFolder]:
    """Join small files in the folders that the runs over a state directory have written.

    Neighbouring files become one, which is published by rename before they are removed; what a
    crash leaves in between is removed by the next run or compaction. A program that lists a folder
    at that moment may see rows twice: where folders are read all the time, give the sinks
    ``compact=`` instead. Files that are joined have no names of their own any more.

    Args:
        path: The state directory; relative folders are those below the current one.
        compaction: Files smaller than its size and at least of its age are joined.

    Returns:
        The folders of output that are there.

    Raises:
        StateError: There is no state, it is damaged, or a live process has it open.
        DataError: A folder cannot be written.
    """
    place = unowned(path)
    with _reading(place) as store:
        record = read_run(store, str(place)) or {}
    compacted = []
    places = (name for output in record.get("outputs", ()) for name in output[3])
    for name in dict.fromkeys(places):
        joined = compact_folder(Path(name), record["state_id"], compaction)
        if joined is not None:
            compacted.append(CompactedFolder(name, *joined))
    return compacted


@permitted(writes=True)
def reset_state(path: PathLike, *, yes: bool) -> list[str]:
    """Remove the state from a directory, and the directory if nothing else is in it.

    Removed are the files that a state store makes, by name. Outputs are not touched: sinks refuse
    to mix them with those of a new state.

    Args:
        path: The directory.
        yes: Whether this is really meant.

    Returns:
        What is left in the directory, by name: nothing of it is state.

    Raises:
        InvalidArgument: ``yes`` is not given.
        StateError: There is no state, or a live process has it open.
    """
    place = _place(path)
    if not yes:
        raise InvalidArgument(
            f"this would remove the state in {str(place)!r} permanently",
            hint="Pass --yes to confirm; `info` shows the contents",
        )
    owner = Ownership(place)
    try:
        for database in _databases(place):
            for file in sorted(database.iterdir()):
                if _FILES.fullmatch(file.name) and (file.is_file() or file.is_symlink()):
                    file.unlink()
            if not any(database.iterdir()):
                database.rmdir()
        for name in _OWN:
            (place / name).unlink(missing_ok=True)
    except OSError as error:
        if error.errno in _NOT_PERMITTED:
            raise unreadable(error, place, writes=True) from error
        raise StateError(
            f"not all of the state could be removed: {error.strerror or error}",
            where=str(error.filename or place),
            hint="Give this process the right to write there, and reset again",
        ) from error
    finally:
        owner.release()
    left = sorted(str(each.relative_to(place)) for each in place.rglob("*") if not _is_folder(each))
    if not any(place.iterdir()):
        place.rmdir()
    return left


def _place(path: PathLike) -> Path:
    """Return the directory, which must look like one of state."""
    (text,) = as_paths(path)
    place = Path(text).resolve()
    what = None
    if not place.exists():
        what = "there is no such directory"
    elif not place.is_dir():
        what = "this is a file, not a state directory"
    elif not _databases(place) and not any((place / name).exists() for name in _OWN):
        what = "there is no state in this directory"
    if what is not None:
        raise StateError(what, where=str(place), hint="Give what run(state=) was given")
    return place


def _databases(place: Path) -> list[Path]:
    databases = [path for path in place.iterdir() if _DATABASE.fullmatch(path.name)]
    return sorted(filter(_is_folder, databases))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def unowned(path: PathLike) -> Path:
    """Return the directory, which no live process may have open."""
    place = _place(path)
    if is_owned(place):
        raise in_use(place)
    return place


@contextmanager
def _reading(place: Path, *, owned: bool = False) -> Iterator[RocksStore]:
    try:
        with RocksStore(place, read_only=True) as store:
            yield store
    except StateError as error:
        if not owned:
            raise
        raise StateError(
            f"the state is in use by another process, which changed it meanwhile ({error.what})",
            where=str(place),
            hint="Look again, or end that process first",
        ) from error


def _stages(record: Mapping[str, Any]) -> Iterator[tuple[StoredPlace, Mapping[str, Any]]]:
    """Yield where each stage is stored, and what it is."""
    for name, of in record.get("stages", {}).items():
        yield StoredPlace(name, 0, record["key_groups"]), of


def _has_rows(store: StateStore, place: StoredPlace) -> bool:
    return next(store.scan(*prefix_range(stage_prefix(place.stage))), None) is not None


def _keys(store: StateStore, place: StoredPlace) -> int:
    """Return how many keys of a stage have state."""
    (data,) = store.get([place.prefix(FACTS)])
    if data is None:
        return 0
    with decoding("the stored state"):
        record = decode(data)["keys"]
        return 0 if record is None else int(record["count"])


def _sizes(store: RocksStore, record: Mapping[str, Any]) -> list[Size]:
    """Return what each table takes; one that is not known has no name."""
    rows: Counter[tuple[bytes, int]] = Counter()
    sizes: Counter[tuple[bytes, int]] = Counter()
    for key, value in store.scan(b"", END):
        if key == RUN or key.startswith((OUTBOX, GROWN, HELD)):
            table = (b"", key[len(RUN) - 1])
        else:
            stage, _, tag = split_key(key)
            table = (stage, tag)
        rows[table] += 1
        sizes[table] += len(key) + len(value)
    names = {
        b"": (
            "pipeline",
            {0: "the run", 1: "outbox", 2: "the run, what only grows", 3: "waiting files"},
        )
    }
    for place, of in _stages(record):
        tables = {**_TABLES[of["kind"]], **(_IDS if of["deduplicated"] else {})}
        names[stage_prefix(place.stage)] = (place.stage, tables)
    table_sizes = []
    for (stage, tag), count in sorted(rows.items()):
        name, tables = names.get(stage, (f"an unknown stage {stage.hex()}", {}))
        table_sizes.append(Size(name, tables.get(tag, ""), count, sizes[stage, tag]))
    return table_sizes


def _position(position: Mapping[str, Any] | None, *, complete: bool) -> str:
    if complete:
        return "the end: the run is complete"
    if position is None:
        return "the beginning"
    if "done" not in position:
        return ", ".join(f"{name}: {value}" for name, value in position.items())
    done = f"{len(position['done']):,} files read completely"
    if not position.get("file"):
        return done
    return f"{done}, and {position['batch']:,} batches of {position['file']}"


def _waiting(held: StoredHeld) -> str:
    return (
        f"{held.rows:,} rows in {len(held.files):,} files of {held.place}, if not published since"
    )


def _delivery(delivery: Delivery) -> str:
    parts = [f"{delivery.panes.num_rows:,} panes"]
    if delivery.late is not None:
        parts.append(f"{delivery.late.num_rows:,} late")
    if delivery.errors is not None:
        parts.append(f"{delivery.errors.num_rows:,} dead letters")
    return f"{delivery.id} ({', '.join(parts)})"


def _described(description: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines that tell of a pipeline: its sources, its stages, and the rest."""
    with decoding("the description of the pipeline"):
        for what in ("sources", "stages"):
            for name, parts in description.get(what, {}).items():
                yield f"  {name}"
                yield from _aligned(parts, "    ")
        rest = {name: value for name, value in description.items() if name not in _NESTED}
        yield from _aligned(rest, "  ")


def _aligned(parts: Mapping[str, Any], indent: str) -> Iterator[str]:
    width = max((len(name) for name in parts), default=0)
    for name, value in parts.items():
        shown = value
        if name == "allowed_lateness":
            shown = format_duration(value)
        elif isinstance(value, list):
            shown = ", ".join(map(str, value)) or "none"
        elif isinstance(value, dict):
            shown = ", ".join(f"{key}={item}" for key, item in value.items())
        yield f"{indent}{name.ljust(width)}  {shown}"
