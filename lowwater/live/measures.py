"""The measures of a run for monitoring systems: one table, from which every format is written.

A measure whose value is unknown is left out; it is never 0 or NaN instead. Counters that are 0 are
exported from the beginning: Prometheus sees no increase in a series whose first value is 1.

No label holds a key, a window or a time. So the number of series depends only on the sources,
stages and outputs, however long the run goes on, and no personal data gets into a metrics store.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final, get_args

from lowwater.engine.records.steps import REASONS, TIMINGS
from lowwater.live.snapshot import PartSnapshot, RunState, Snapshot, StageCounters, for_people

Kind: TypeAlias = Literal["counter", "gauge", "histogram", "info"]
"""``info``: the value is always 1, and the labels carry the information."""

_SUFFIXES = {"s": "_seconds", "By": "_bytes", "1": "_ratio"}


class Distribution(NamedTuple):
    """A histogram.

    Args:
        buckets: Upper limits, inclusive and without infinity, and how many values are within each.
        number: How many values there are.
        total: Their sum.
    """

    buckets: Sequence[tuple[float, int]]
    number: int
    total: float


class Sample(NamedTuple):
    """A value with its labels, in the order of the measure's; ``""`` where one does not apply."""

    labels: tuple[str, ...]
    value: float | Distribution


@final
@dataclass(frozen=True, slots=True)
class Measure:
    """A measure, and how to read its values from a snapshot.

    Args:
        name: Its name, without the prefix ``lowwater``, the unit and the suffix of the kind.
        kind: Counters never decrease while a process runs.
        help: A sentence about it.
        unit: In UCUM: ``"s"``, ``"By"``, ``"1"`` for a ratio, ``"{record}"`` for a number of
            records, or ``""`` for none.
        labels: The names of its labels.
        samples: Returns its samples; no two have the same labels.
    """

    name: str
    kind: Kind
    help: str
    unit: str
    labels: tuple[str, ...]
    samples: Callable[[Snapshot], Iterable[Sample]]

    @property
    def metric(self) -> str:
        """The name in Prometheus, with the base unit, and with ``_total`` for a counter.

        >>> [measure.metric for measure in MEASURES if measure.name in ("late", "watermark_lag")]
        ['lowwater_late_total', 'lowwater_watermark_lag_seconds']
        """
        kind = {"counter": "_total", "info": "_info"}.get(self.kind, "")
        return f"lowwater_{self.name}{_SUFFIXES.get(self.unit, '')}{kind}"


# -- of the run -----------------------------------------------------------------------------------

_Samples: TypeAlias = Callable[[Snapshot], Iterable[Sample]]


def _one(value: Callable[[Snapshot], float | None]) -> _Samples:
    def samples(snapshot: Snapshot) -> Iterable[Sample]:
        number = value(snapshot)
        if number is not None:
            yield Sample((), number)

    return samples


def _title(snapshot: Snapshot) -> Iterable[Sample]:
    yield Sample((snapshot["title"],), 1)


def _states(snapshot: Snapshot) -> Iterable[Sample]:
    for state in get_args(RunState):
        yield Sample((state,), int(state == snapshot["state"]))


def _dead_letters(snapshot: Snapshot) -> Iterable[Sample]:
    for reason, number in snapshot["counters"]["errors"].items():
        yield Sample((reason,), number)


# -- of sources and stages ------------------------------------------------------------------------


def _counter(count: Callable[[StageCounters], int]) -> _Samples:
    def samples(snapshot: Snapshot) -> Iterable[Sample]:
        for stage, counters in snapshot["counters"]["stages"].items():
            yield Sample((stage,), count(counters))

    return samples


def _late(snapshot: Snapshot) -> Iterable[Sample]:
    for stage, counters in snapshot["counters"]["stages"].items():
        for reason, number in _with_zeros(REASONS, counters["late"]):
            yield Sample((stage, reason), number)


def _panes(snapshot: Snapshot) -> Iterable[Sample]:
    for stage, counters in snapshot["counters"]["stages"].items():
        # Before the first pane it is not known whether the stage emits any.
        if counters["panes"]:
            for timing, number in _with_zeros(TIMINGS, counters["panes"]):
                yield Sample((stage, timing), number)


def _with_zeros(names: Iterable[str], counts: Mapping[str, int]) -> Iterable[tuple[str, int]]:
    return {**dict.fromkeys(names, 0), **counts}.items()


def _emitted(snapshot: Snapshot) -> Iterable[Sample]:
    for stage, counters in snapshot["counters"]["stages"].items():
        for output, number in counters["emitted"].items():
            yield Sample((stage, output), number)


def _of_source(value: Callable[[PartSnapshot], float | None]) -> _Samples:
    def samples(snapshot: Snapshot) -> Iterable[Sample]:
        for part in snapshot["parts"]:
            number = value(part)
            if part["kind"] == "source" and number is not None:
                yield Sample((part["name"],), number)

    return samples


def _of_stage(value: Callable[[PartSnapshot], float]) -> _Samples:
    def samples(snapshot: Snapshot) -> Iterable[Sample]:
        for part in snapshot["parts"]:
            if part["kind"] != "source":
                yield Sample((part["name"],), value(part))

    return samples


def _lag(snapshot: Snapshot) -> Iterable[Sample]:
    for part in snapshot["parts"]:
        name, seconds = part["name"], part["behind"]
        if seconds is not None:
            yield Sample((name, "") if part["kind"] == "source" else ("", name), seconds)


def _held_by(snapshot: Snapshot) -> Iterable[Sample]:
    """Return the holders by name: the partition, key or window in the text has no bound."""
    parts = snapshot["parts"]
    # The longest name first: one may begin with another and a colon.
    names = sorted((part["name"] for part in parts), key=len, reverse=True)
    heads = [(name, f"{for_people(name)}: ") for name in names]
    for part in parts:
        text = part["held_by"]
        holder = next((name for name, head in heads if text.startswith(head)), None)
        # A source holds itself.
        if holder is not None and part["kind"] != "source" and not part["ended"]:
            yield Sample((part["name"], holder), 1)


def _state_rows(snapshot: Snapshot) -> Iterable[Sample]:
    commits = snapshot["commits"]
    if commits is None:
        return
    for part in snapshot["parts"]:
        # Before the first commit, 0 says nothing.
        if part["kind"] != "source" and (commits["count"] or part["rows"]):
            yield Sample((part["name"],), part["rows"])


# -- of commits and outputs -----------------------------------------------------------------------


def _commits(snapshot: Snapshot) -> int | None:
    commits = snapshot["commits"]
    return None if commits is None else commits["count"]


def _commit(snapshot: Snapshot) -> Iterable[Sample]:
    commits = snapshot["commits"]
    if commits is not None:
        yield Sample((), Distribution(commits["buckets"], commits["count"], commits["seconds"]))


def _last_commit(snapshot: Snapshot) -> float | None:
    commits = snapshot["commits"]
    return None if commits is None or commits["ago"] is None else snapshot["at"] - commits["ago"]


def _state_bytes(snapshot: Snapshot) -> int | None:
    commits = snapshot["commits"]
    return None if commits is None else commits["state_bytes"]


def _delivered(snapshot: Snapshot) -> Iterable[Sample]:
    rows: Counter[str] = Counter()  # several outputs may belong to one stage
    for output in snapshot["outputs"]:
        rows[output["name"]] += output["rows"]
    for name, number in rows.items():
        yield Sample((name,), number)


_STAGE = ("stage",)

# fmt: off
MEASURES: tuple[Measure, ...] = (
    Measure("run", "info", "The pipeline: its first source and its last stage.", "", ("title",),
            _title),
    Measure("run_state", "gauge", "1 for the state of the run, 0 for the other states.", "",
            ("state",), _states),
    Measure("run_start_timestamp", "gauge", "When the run began, in seconds since 1970.", "s", (),
            _one(lambda of: of["began"])),
    Measure("snapshot_timestamp", "gauge",
            "When the run last reported, between two bundles or polls, in seconds since 1970.", "s",
            (), _one(lambda of: of["at"])),
    Measure("workers", "gauge", "Worker processes; 0 without workers=.", "{process}", (),
            _one(lambda of: of["workers"])),

    Measure("records", "counter", "Records read from all sources, invalid ones included.",
            "{record}", (), _one(lambda of: of["counters"]["events"])),
    Measure("bundles", "counter", "Bundles read from all sources.", "{bundle}", (),
            _one(lambda of: of["counters"]["bundles"])),
    Measure("invalid_records", "counter", "Records that became dead letters, for any reason.",
            "{record}", (), _one(lambda of: sum(of["counters"]["errors"].values()))),
    Measure("dead_letters", "counter", "Records that became dead letters, by reason.",
            "{record}", ("reason",), _dead_letters),

    Measure("arrived", "counter", "Valid records that reached the stage.", "{record}", _STAGE,
            _counter(lambda of: of["arrived"])),
    Measure("admitted", "counter",
            "Records that the stage admitted to a window, processed, joined or stored.",
            "{record}", _STAGE, _counter(lambda of: of["admitted"])),
    Measure("dropped", "counter",
            "Records that the stage dropped from all their windows, each counted once.",
            "{record}", _STAGE, _counter(lambda of: of["dropped"])),
    Measure("late", "counter",
            "Elements that the stage dropped from one of their windows, by reason.",
            "{element}", ("stage", "reason"), _late),
    Measure("duplicates", "counter", "Records dropped because their id was seen before.",
            "{record}", _STAGE, _counter(lambda of: of["duplicates"])),
    Measure("superseded", "counter", "Upserts that a table ignored because it knows newer ones.",
            "{record}", _STAGE, _counter(lambda of: of["superseded"])),
    Measure("panes", "counter", "Panes that the stage emitted, by timing, without retractions.",
            "{pane}", ("stage", "timing"), _panes),
    Measure("retractions", "counter", "Retractions that the stage emitted.", "{pane}", _STAGE,
            _counter(lambda of: of["retractions"])),
    Measure("emitted", "counter", "Records that a join, table or process emitted, by output.",
            "{record}", ("stage", "output"), _emitted),
    Measure("waiting_records", "gauge",
            "Records that wait for the watermark before they are processed or joined.",
            "{record}", _STAGE, _of_stage(lambda part: part["waiting"])),
    Measure("open_windows", "gauge", "Open windows; of a stage without windows, its rows.",
            "{window}", _STAGE, _of_stage(lambda part: part["open_windows"])),
    Measure("state_rows", "gauge", "Rows of state that the stage keeps, as of the last commit.",
            "{row}", _STAGE, _state_rows),

    Measure("watermark_lag", "gauge",
            "How far the output watermark is behind the clock, by the slowest partition.", "s",
            ("source", "stage"), _lag),
    Measure("held_by", "info", "The source or stage that holds the output watermark.", "",
            ("stage", "held_by"), _held_by),
    Measure("source_idle", "gauge", "How long polls of the source have returned nothing.", "s",
            ("source",), _of_source(lambda part: part["idle_seconds"])),
    Measure("source_read", "gauge", "How much of a source that ends has been read, 0 to 1.", "1",
            ("source",), _of_source(lambda part: part["share"])),

    Measure("commits", "counter", "Commits by this process.", "{commit}", (), _one(_commits)),
    Measure("commit", "histogram", "How long commits took in this process.", "s", (), _commit),
    Measure("last_commit_timestamp", "gauge",
            "When this process last committed, in seconds since 1970.", "s", (),
            _one(_last_commit)),
    Measure("state", "gauge", "Size of the state directory.", "By", (), _one(_state_bytes)),
    Measure("delivered_rows", "counter",
            "Rows that this process delivered to the output, repeated deliveries included.",
            "{row}", ("output",), _delivered),
)
# fmt: on
"""All measures, in the order of their output."""
