"""Looks into a state directory, checks it, hands out what is in it, and removes it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import pyarrow as pa

from lowwater.engine.local.delivery import Delivery
from lowwater.engine.local.run_record import LAYOUT, PIPELINE, read_outbox, read_run
from lowwater.engine.process.inspect import verify_process
from lowwater.engine.process.persistence import PROCESS_TABLES
from lowwater.engine.window.inspect import TABLES, StoredView
from lowwater.errors import InvalidArgument, StateError
from lowwater.io.paths import PathLike, as_paths
from lowwater.io.terminal import table
from lowwater.state.damage import damaged, decoding
from lowwater.state.key_layout import END, table_prefix
from lowwater.state.ownership import Ownership, in_use, is_owned, read_sequencer
from lowwater.state.rocks import FORMAT, RocksStore
from lowwater.state.store import StateStore
from lowwater.time import START_OF_TIME, Instant, format_duration

_RUN_TABLES = {0: "the run", 1: "outbox"}
_TABLES: Mapping[str, Mapping[int, str]] = {
    "windows": TABLES,
    "deduplication": {0: "record ids", 1: "facts"},
    "process": PROCESS_TABLES,
}
_UNKNOWN = re.compile(r"(?:^operator| table) \d+")
_HEAD = len(table_prefix(0, 0, 0))
_DATABASE = re.compile(r"rocksdb-\d+")
_FILES = re.compile(
    r"\d+\.(?:sst|log|blob)|CURRENT|IDENTITY|LOCK|LOG(?:\.old\.\d+)?|MANIFEST-\d+"
    r"|OPTIONS-\d+(?:\.dbtmp)?|\d+\.dbtmp|rocksdict-config\.json"
)
_NESTED = ("sources", "stages")
_OWN = ("SEQUENCER", "SEQUENCER.new", "OWNER")


@final
@dataclass(frozen=True, slots=True)
class Size:
    """What a table of an operator takes.

    Args:
        operator: The operator, in words.
        group: The key group.
        table: The table, in words.
        rows: Its rows.
        size_bytes: Bytes of their keys and values, before compression.
    """

    operator: str
    group: int
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

    def to_text(self) -> str:
        """Return it all in lines that a person can read."""
        facts: list[tuple[str, str]] = [
            ("layout", f"{self.layout}, in a store of format {FORMAT}"),
            ("openings", f"{self.sequencer:,}"),
            ("commits", f"{self.last_commit:,} of the store, epoch {self.epoch:,} of the runs"),
            ("state id", self.state_id),
            ("in use", "yes: later commits of that process do not show" if self.in_use else "no"),
            *(
                (f"position of {name}", _position(at, complete=self.complete))
                for name, at in self.positions.items()
            ),
            ("watermark", str(self.watermark or "-")),
            ("clock", str(self.clock or "-")),
            ("windows", f"{self.open_windows:,} open, {self.finished_windows:,} closed"),
            ("keys", f"{self.keys:,}"),
            ("outbox", "; ".join(map(_delivery, self.outbox)) or "empty"),
        ]
        width = max(len(name) for name, _ in facts)
        lines = [self.path, *(f"  {name.ljust(width)}  {text}" for name, text in facts)]
        lines += ["", "pipeline", *_described(self.description), "", "sizes"]
        rows = [[s.operator, s.group, s.table, s.rows, s.size_bytes] for s in self.sizes]
        lines.append(table(["of", "group", "table", "rows", "bytes"], rows, indent="  "))
        return "\n".join(lines)


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
        sizes, keys = _sizes(store, record)
        facts: Mapping[str, int] = {}
        open_windows = finished = 0
        for operator, group, names in _groups(store, record, "windows"):
            view = StoredView(store, operator, group)
            facts = view.facts
            everything = len(view.windows(names, open_only=False))
            now_open = len(view.windows(names))
            open_windows += now_open
            finished += everything - now_open
        sequencer = read_sequencer(place)
        return StateInfo(
            path=str(place),
            layout=record.get("layout", LAYOUT),
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
        )


def verify_state(path: PathLike) -> int:
    """Read and decode every row of a state directory; return how many there are.

    Raises:
        StateError: Something is damaged, or a live process has the state open.
    """
    place = _unowned(path)
    with _reading(place) as store:
        rows = store.verify()
        record = read_run(store, str(place))
        for size in _sizes(store, record or {})[0]:
            if record is not None and _UNKNOWN.search(f"{size.operator} {size.table}"):
                raise damaged("the stored state", f"{size.operator} has no {size.table}")
        if record is None and rows:
            raise StateError(
                "there are rows, but no record of a run",
                where=str(place),
                hint="If it belongs to a pipeline, restore the directory from a copy",
            )
        for _ in read_outbox(store):
            pass
        for operator, group, _ in _groups(store, record or {}, "windows"):
            StoredView(store, operator, group).verify()
        for operator, group, _ in _groups(store, record or {}, "process"):
            verify_process(store, operator, group)
        for operator, group, _ in _groups(store, record or {}, "deduplication"):
            from lowwater.state.id_set import SeenInStore

            ids = SeenInStore(table_prefix(operator, group, 0), 1)
            with decoding("stored record ids"):
                ids.restore(store, START_OF_TIME)
        return rows


def export_state(path: PathLike) -> pa.Table:
    """Return the open windows of a state directory, a row each.

    Columns are the key, ``window_start``, ``window_end``, ``expires``, and the operator's own as
    ``state.NAME``: they are what a version of lowwater keeps, and may change with it.

    Raises:
        StateError: There is no state, it is damaged, or a live process has it open.
    """
    place = _unowned(path)
    with _reading(place) as store:
        record = read_run(store, str(place)) or {}
        parts = [
            StoredView(store, operator, group).windows(names)
            for operator, group, names in _groups(store, record, "windows")
        ]
    return pa.concat_tables(parts, promote_options="permissive") if parts else pa.table({})


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
            f"this would remove the state in {str(place)!r} for good",
            hint="Say --yes if that is meant; `info` shows what is in it",
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
    found = [each for each in place.iterdir() if _DATABASE.fullmatch(each.name)]
    return sorted(filter(_is_folder, found))


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _unowned(path: PathLike) -> Path:
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


def _groups(
    store: StateStore, record: Mapping[str, Any], kind: str
) -> Iterator[tuple[int, int, list[str]]]:
    """Yield (operator, group, key names) of what has rows, for all operators of a kind."""
    for number, of in record.get("operators", {}).items():
        if of["kind"] == kind:
            for group in groups_of(store, int(number)):
                yield int(number), group, of["keys"]


def groups_of(store: StateStore, operator: int) -> list[int]:
    """Return the key groups of an operator that have rows, a seek for each."""
    groups: list[int] = []
    start = table_prefix(operator, 0, 0)
    stop = table_prefix(operator + 1, 0, 0)
    while True:
        key = next((key for key, _ in store.scan(start, stop)), None)
        if key is None:
            return groups
        groups.append(_head(key)[1])
        if groups[-1] == 0xFFFF:
            return groups
        start = table_prefix(operator, groups[-1] + 1, 0)


def _sizes(store: RocksStore, record: Mapping[str, Any]) -> tuple[list[Size], int]:
    """Return what each table takes, and the number of keys."""
    rows: Counter[bytes] = Counter()
    sizes: Counter[bytes] = Counter()
    for key, value in store.scan(b"", END):
        head = key[:_HEAD]
        rows[head] += 1
        sizes[head] += len(key) + len(value)
    operators = record.get("operators", {})
    several = len({of["stage"] for of in operators.values()}) > 1
    found, keys = [], 0
    for head, count in sorted(rows.items()):
        operator, group, number = _head(head)
        of = operators.get(str(operator))
        tables = _RUN_TABLES if operator == PIPELINE else _TABLES.get(of["kind"], {}) if of else {}
        name = "pipeline" if operator == PIPELINE else f"operator {operator}"
        if of is not None:
            name = f"{of['kind']} of {of['stage']}" if several else of["kind"]
        shown = tables.get(number, f"table {number}")
        found.append(Size(name, group, shown, count, sizes[head]))
        keys += count if of is not None and shown == "keys" else 0
    return found, keys


def _head(key: bytes) -> tuple[int, int, int]:
    """Return the operator, the group and the table that a key is of."""
    if len(key) < _HEAD:
        raise damaged("the key of a stored row", f"it is {key!r}")
    return int.from_bytes(key[:2]), int.from_bytes(key[2:4]), key[4]


def _position(position: Mapping[str, Any] | None, *, complete: bool) -> str:
    if complete:
        return "the end: the run is complete"
    if position is None:
        return "the beginning"
    if "done" not in position:
        return ", ".join(f"{name}: {value}" for name, value in position.items())
    done = f"{len(position['done']):,} files read whole"
    if not position.get("file"):
        return done
    return f"{done}; of {position['file']} {position['batch']:,} batches"


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
        rest = {name: each for name, each in description.items() if name not in _NESTED}
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
            shown = ", ".join(f"{key}={each}" for key, each in value.items())
        yield f"{indent}{name.ljust(width)}  {shown}"
