"""What a golden is; how one is written, unpacked and resumed."""

from __future__ import annotations

import contextlib
import io
import json
import re
import shutil
import sqlite3
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any, final

import pyarrow as pa
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.engine.graph.clocks import ClockLike
from lowwater.engine.graph.graph import Graph
from lowwater.engine.local.compatibility import describe_graph, stored_stages
from lowwater.engine.local.parted_process import is_parted
from lowwater.engine.stages.computed import Computed
from lowwater.errors import StateError
from lowwater.pipeline.outputs import Writing
from lowwater.pipeline.state_tools import export_state, state_info, verify_state
from lowwater.state.codec import encode
from tests.unit.engine.local.durable_runs import Stopped, stopping

STATES = Path(__file__).parent / "states"
BUNDLE = 16
_ELEMENTS = 40
"""How often the run that resumes commits: fewer deliveries than bundles, as these take time."""
_EXPECTED = "expected.json"
_LEFT_OUT = ("LOG", "LOG.old.*", "LOCK")
"""Files of RocksDB without state: its messages, and what its processes lock."""
_LEDGERS = ("lowwater_*", "sqlite_*")
"""Tables in which sinks note who writes to them."""


@final
@dataclass(frozen=True, kw_only=True)
class Golden:
    """Pipelines that run over one state directory, and where their run was stopped.

    All paths are relative, since goldens are written and resumed in folders of their own.

    Args:
        name: The name of the golden and of its archive.
        feed: Writes the input that was there before the run was stopped (``False``), or the one
            that came later (``True``).
        outputs: Returns the outputs of the run.
        clock: The clock of the run.
        stop: How many times the run passes ``point`` before it is stopped; ``None``: it ends.
        point: Where in a commit. ``"after the write"`` leaves deliveries in the outbox that no
            sink has, ``"before forgetting"`` deliveries that each sink has.
        killed: Whether the directory is as ``kill -9`` leaves it, with RocksDB's log; or as a run
            that raises leaves it, with tables.
        options: Options of the run.
        first: Options of the run that is stopped, where they differ.
        setting: A context in which that run is made.
        world: A context in which every run is made.
        more_output: Returns rows of outputs that are not below ``out``, by their places.
    """

    name: str
    feed: Callable[[bool], None]
    outputs: Callable[[], Sequence[Writing]]
    clock: ClockLike
    stop: int | None = 3
    point: str = "before forgetting"
    killed: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    first: Mapping[str, Any] = field(default_factory=dict)
    setting: Callable[[], AbstractContextManager[Any]] = nullcontext
    world: Callable[[], AbstractContextManager[Any]] = nullcontext
    more_output: Callable[[], dict[str, list[str]]] = dict

    @property
    def archive(self) -> Path:
        """The archive with the golden's files."""
        return STATES / f"{self.name}.tar.xz"

    def begin(self) -> None:
        """Run the pipelines in the current folder for the first time."""
        with self.setting():
            self._run({"commit_every": "bundle", **self.options, **self.first})

    def resume(self) -> None:
        """Run the pipelines over the state in the current folder, and the input that came later.

        This run is stopped, too, and resumed: what it adds to the state must go with what is there.
        """
        if self.stop is not None:
            self.feed(True)
        options = {"commit_every": _ELEMENTS, **self.options}
        with contextlib.suppress(Stopped), stopping("before forgetting", 1):
            self._run(options)
        self._run(options)

    def _run(self, options: Mapping[str, Any]) -> None:
        usual: dict[str, Any] = {
            "bundle_size": BUNDLE, "progress": False, "clock": self.clock,
        }  # fmt: skip
        with self.world():
            lw.run(*self.outputs(), state="state", **{**usual, **options})

    def contents(self) -> dict[str, list[str]]:
        """Return the rows of all outputs, in order, by place and kind."""
        return contents() | self.more_output()

    def graph(self) -> Graph:
        """Return the graph of the pipelines; their input is to be there."""
        with self.world():
            return self._graph()[1]

    def _graph(self) -> tuple[Sequence[Writing], Graph]:
        outputs = self.outputs()
        return outputs, Graph.of(dict.fromkeys(output._stage for output in outputs))

    def described(self) -> dict[str, bytes]:
        """Return the descriptions of the pipelines, as a state directory stores them."""
        with self.world():
            outputs, graph = self._graph()
        parted = [
            graph.name_of(stage)
            for stage in graph.stages
            if "workers" in self.options and isinstance(stage.work, Computed)
            if is_parted(stage.work)
        ]
        leaving = [(graph.stages.index(output._stage), output._tag) for output in outputs]
        views = [output._view for output in outputs]
        size = self.options.get("bundle_size", BUNDLE)
        description = describe_graph(graph, leaving, self.clock, size, views, parted)
        return {"description": encode(description), "stages": encode(stored_stages(graph))}


def freeze(golden: Golden, scratch: Path) -> dict[str, Any]:
    """Write a golden: run it, stop it, resume a copy of it, and archive both.

    Args:
        golden: The golden.
        scratch: An empty folder.

    Returns:
        What the state tools say of it.
    """
    at, frozen, resumed = scratch / "at", scratch / golden.name, scratch / "resumed"
    at.mkdir(parents=True)

    def keep() -> None:
        shutil.copytree(at, frozen, ignore=shutil.ignore_patterns(*_LEFT_OUT))
        raise Stopped

    with contextlib.chdir(at):
        golden.feed(False)
        if golden.stop is None:
            golden.begin()
        else:
            how = keep if golden.killed else None
            with contextlib.suppress(Stopped), stopping(golden.point, golden.stop, how):
                golden.begin()
                raise AssertionError(f"{golden.name} ended before it was stopped")
    if not frozen.exists():
        shutil.copytree(at, frozen, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    shutil.copytree(frozen, resumed)
    with contextlib.chdir(resumed):
        known = _facts_then()
        golden.resume()
        expected = {"facts": known, "output": golden.contents()}
        described = golden.described()
    (frozen / _EXPECTED).write_text(json.dumps(expected, ensure_ascii=False, indent=0))
    for name, data in described.items():
        (frozen / name).write_bytes(data)
    golden.archive.parent.mkdir(exist_ok=True)
    golden.archive.write_bytes(packed(frozen))
    return known


def unpack(golden: Golden, folder: Path) -> dict[str, Any]:
    """Unpack a golden into an empty folder; return its facts and the output to expect."""
    with tarfile.open(golden.archive) as archive:
        archive.extractall(folder, filter="data")
    expected: dict[str, Any] = json.loads((folder / _EXPECTED).read_text())
    return expected


def packed(folder: Path, is_kept: Callable[[str], bool] = lambda _: True) -> bytes:
    """Return a folder as an archive whose bytes depend on its files only.

    Args:
        folder: The folder.
        is_kept: Whether a file or folder is in the archive, by its path in the folder.
    """
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:xz", preset=9) as archive:
        for path in sorted(folder.rglob("*")):
            name = str(path.relative_to(folder))
            if not is_kept(name):
                continue
            entry = archive.gettarinfo(path, name)
            entry.mtime, entry.uid, entry.gid, entry.uname, entry.gname = 0, 0, 0, "", ""
            if path.is_file():
                with path.open("rb") as file:
                    archive.addfile(entry, file)
            else:
                archive.addfile(entry)
    return data.getvalue()


def facts() -> dict[str, Any]:
    """Return what the state tools say of the state directory in the current folder."""
    return _plain({name: tell() for name, tell in TOOLS.items()})


def _facts_then() -> dict[str, Any]:
    """Return the same when a golden is written; ``None`` of a tool that fails."""
    told: dict[str, Any] = {}
    for name, tell in TOOLS.items():
        try:
            told[name] = _plain(tell())
        except (StateError, pa.ArrowException):  # of what it does not know, or cannot concatenate
            told[name] = None
    return told


def _info() -> dict[str, Any]:
    info = state_info("state")
    assert info.to_text()
    return {
        "epoch": info.epoch,
        "complete": info.complete,
        "watermark": info.watermark,
        "clock": info.clock,
        "positions": info.positions,
        "open windows": info.open_windows,
        "finished windows": info.finished_windows,
        "keys": info.keys,
        "outbox": [delivery.id for delivery in info.outbox],
        "tables": {f"{one.stage}: {one.table}": one.rows for one in info.sizes},
    }


def _exported() -> list[str]:
    table = export_state("state")
    names = [name for name in ("window_start", "window_end") if name in table.column_names]
    return sorted(str(row) for row in table.select(names).to_pylist())


TOOLS: Mapping[str, Callable[[], Any]] = {
    "info": _info,
    "verify": lambda: verify_state("state"),
    "export": _exported,
}
"""What each of the state tools says, by its name."""


def contents() -> dict[str, list[str]]:
    """Return the rows of all outputs in the current folder, in order, by place and kind.

    Of late records and dead letters the ``detail`` is left out: it is a sentence.
    """
    found: dict[str, list[str]] = {}
    for path in sorted(Path("out").rglob("*")):
        if not path.is_file() or any(part.startswith(".") for part in path.parts):
            continue
        place = f"{path.parent}/{path.name.partition('-')[0]}"
        if path.suffix == ".sqlite":
            found |= {f"{path} {name}": lines for name, lines in _tables(path)}
        else:
            found.setdefault(place, []).extend(_lines(path))
    return found


def settled(output: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    """Return rows as they are compared: all of them, and in order.

    But of dead letters neither their order counts, nor the words that say where and why: these
    may become more exact.
    """
    return {
        place: sorted(_WORDS.sub("", line) for line in lines) if "errors" in place else list(lines)
        for place, lines in output.items()
    }


_WORDS = re.compile(r"""^\('[-\d]+', \d+, |"(?:where|detail)": (?:null|"(?:[^"\\]|\\.)*"), """)
"""The delivery of a dead letter in SQL, and where and why it is one."""


def _lines(path: Path) -> Iterator[str]:
    if path.suffix == ".parquet":
        yield from (str(row) for row in pq.read_table(path).to_pylist())
        return
    for line in path.read_text().splitlines():
        row = json.loads(line)
        if "reason" in row:
            row.pop("detail", None)
        yield json.dumps(row, ensure_ascii=False)


def _tables(path: Path) -> Iterator[tuple[str, list[str]]]:
    with contextlib.closing(sqlite3.connect(path)) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master ORDER BY 1")]
        for name in names:
            if not any(fnmatch(name, ledger) for ledger in _LEDGERS):
                rows = map(str, database.execute(f'SELECT * FROM "{name}"'))
                yield name, sorted(rows)


def _plain(value: Any) -> Any:
    """Return a value as it is after a round trip through JSON."""
    return json.loads(json.dumps(value, default=_shown))


def _shown(value: object) -> Any:
    return dict(value) if isinstance(value, Mapping) else str(value)
