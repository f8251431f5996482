"""Probes of graphs: several stages and sources, processes, several outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import lowwater as lw
from docs.tools import processes as own
from docs.tools.probe import Probe
from docs.tools.records import ONE_FILE, TABLE, begun, counted, in_files

SHOWN = {"types": {"shown": "bigint"}}
KEYS = {"key": "string"}
MINUTE, TWO = lw.FixedWindows("1m"), lw.FixedWindows("2m")
EARLY = lw.AfterWatermark(early=lw.AfterCount(2))


def graph_probes() -> Iterator[Probe]:
    """Yield those of several stages, sources and outputs."""
    graphs: dict[str, Callable[[], Any]] = {
        "a stage behind a stage": lambda: _summed(counted(begun())),
        "three stages": lambda: _summed(_summed(counted(begun())), lw.FixedWindows("4m")),
        "retractions consumed downstream": lambda: _summed(_retracting(begun())),
        "panes that steps change": lambda: _summed(
            counted(begun()).filter(lw.col("n") > 1).with_columns(n=lw.col("n") * 2)
        ),
        "union": lambda: counted(begun() | begun()),
        "union of a source and a stage": lambda: _summed(
            lw.from_arrow(TABLE.rename_columns({"at": "timestamp"}), time="timestamp").select(
                "key", n=lw.col("value")
            )
            | _plain(counted(begun()))
        ),
        "several branches of a source": _branches,
        "a diamond": _diamond,
        "steps behind the last stage": lambda: (
            _retracting(begun()).with_columns(twice=lw.col("n") * 2).filter(lw.col("twice") > 4)
        ),
        "a process behind a stage": lambda: (
            counted(begun()).with_columns(value=lw.col("n")).key_by("key").process(own.LastValue())
        ),
        "a stage behind a process": lambda: (
            begun()
            .key_by("key")
            .process(own.Doubled())
            .key_by("key")
            .window(MINUTE)
            .aggregate(n=lw.count())
        ),
    }
    types = {"a process behind a stage": {"shown": "bigint"}, "a stage behind a process": KEYS}
    for name, make in graphs.items():
        yield Probe("Graphs", name, _made_by(make), {"types": types.get(name, {})})
    in_batches = Probe("Graphs", "a diamond, in micro-batches", _diamond_of_files, ONE_FILE)
    yield replace(in_batches, chains=True)
    yield Probe("Outputs", "several outputs", lambda _: _outputs(begun()))
    in_batches = Probe("Outputs", "several outputs, in micro-batches", _outputs_of_files, ONE_FILE)
    yield replace(in_batches, chains=True)
    yield Probe("Outputs", "a process and its side output", _process_outputs, SHOWN)


def process_probes() -> Iterator[Probe]:
    """Yield those of processes."""
    named: dict[str, Any] = {
        "process": own.Doubled(),
        "value_cell": own.LastValue(),
        "list_cell": own.Listed(),
        "map_cell": own.Mapped(),
        "set_cell": own.Distinct(),
        "combining_cell": own.Combined(),
        "ordered_cell": own.Ordered(),
        "timer()": own.EventTimer(),
        "vectorised (on_records)": own.Vectorised(),
    }
    for name, process in named.items():
        yield Probe("Processes", name, _processed(process), SHOWN)
    windowed: dict[str, lw.Windows] = {
        "in windows": MINUTE, "in windows that merge": lw.Sessions("15s"),
    }  # fmt: skip
    for name, windows in windowed.items():
        yield Probe("Processes", name, _processed(own.InWindows(), windows), SHOWN)
    yield Probe("Processes", "output()", _side, SHOWN)
    yield Probe("Processes", 'timer(domain="processing")', _by_clock, {**SHOWN, **ONE_FILE})
    yield Probe("Processes", "timer(), in micro-batches", _timed_in_files, {**SHOWN, **ONE_FILE})


def _summed(stage: Any, windows: lw.Windows = TWO) -> lw.Pipeline:
    made: lw.Pipeline = (
        stage.key_by("key")
        .window(windows, accumulation="accumulating")
        .aggregate(n=lw.sum("n"), panes=lw.count())
    )
    return made


def _retracting(stream: lw.Stream) -> lw.Pipeline:
    windowed = stream.key_by("key").window(
        MINUTE, trigger=EARLY, accumulation="retracting", allow_data_loss="nothing is late here"
    )
    return windowed.aggregate(n=lw.count())


def _plain(stage: lw.Pipeline) -> lw.Stream:
    return stage.select("key", "n")


def _branches() -> lw.Pipeline:
    stream = begun()
    even = counted(stream.filter(lw.col("even"))).select("key", "n")
    odd = counted(stream.filter(~lw.col("even"))).select("key", "n")
    return _summed(even | odd)


def _diamond(stream: lw.Stream | None = None) -> lw.Pipeline:
    first = counted(begun() if stream is None else stream)
    one = _summed(first).select("key", "n")
    other = first.filter(lw.col("n") > 1).select("key", "n")
    return _summed(one | other, lw.FixedWindows("4m"))


def _diamond_of_files(folder: Path) -> lw.Pipeline:
    return _diamond(in_files(folder))


def _outputs_of_files(folder: Path) -> tuple[Any, ...]:
    return _outputs(in_files(folder))


def _outputs(stream: lw.Stream) -> tuple[Any, ...]:
    first = counted(stream).named("counts")
    return first, _summed(first).named("sums"), stream.key_by("even").window(TWO).aggregate(
        most=lw.max("value")
    ).named("most")  # fmt: skip


def _process_outputs(_: Path) -> tuple[Any, ...]:
    made = begun().key_by("key").process(own.Sorted()).named("values")
    return made, made.output("odd")


def _side(_: Path) -> Any:
    return begun().key_by("key").process(own.Sorted()).output("odd")


def _processed(process: Any, windows: lw.Windows | None = None) -> Callable[[Path], Any]:
    keyed = begun(lw.Ascending()).key_by("key")
    made = keyed.process(process) if windows is None else keyed.window(windows).process(process)
    return lambda _: made


def _timed_in_files(folder: Path) -> Any:
    return in_files(folder).key_by("key").process(own.EventTimer())


def _by_clock(folder: Path) -> Any:
    clock = lw.ArrivalClock("at", tick="140s")
    stream = in_files(folder, rows=slice(2), clock=clock)
    return stream.key_by("key").process(own.ClockTimer())


def _made_by(make: Callable[[], Any]) -> Callable[[Path], Any]:
    return lambda _: make()
