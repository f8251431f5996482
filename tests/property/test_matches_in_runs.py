"""Runs of row patterns give the batch matches of the scalar oracle at the end.

Whatever the bundles, the restarts, the workers and the limit of memory: of streams in any order
whose lateness is allowed for, and of values that are hard to keep apart.
"""

from __future__ import annotations

import datetime as dt
import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import hypothesis.strategies as st
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given

import lowwater as lw
from tests.examples import examples
from tests.oracles.row_patterns import END, MatchSoFar, Pattern, Row, decided, parsed
from tests.unit.engine.local.durable_runs import Stopped, stopping

BASE = dt.datetime(2024, 5, 1, 12, tzinfo=dt.UTC)
SECOND = dt.timedelta(seconds=1)
LARGE = 2**53 + 1
WITHIN = 20
LATE = "600s"

Record = Mapping[str, Any]


def above(one: Any, other: Any) -> bool:
    return one is not None and other is not None and one > other


DEFINE = {
    "up": lambda m: above(m.row["n"], m.prev("n")),
    "high": lambda m: above(m.row["n"], m.first(None, "n")),
}
MEASURES: Mapping[str, Callable[[MatchSoFar], Any]] = {
    "rows": lambda m: m.count(),
    "first": lambda m: m.first(None, "id"),
    "most": lambda m: max(m.present(None, "n"), default=None),
    "names": lambda m: m.present(None, "name"),
}


def expected(text: str, records: Iterable[Record], skip: Any) -> Counter[str]:
    """Return the matches of all records, as the oracle finds them."""
    pattern = Pattern(
        parsed(text), {name: one for name, one in DEFINE.items() if name in text}, WITHIN, skip
    )
    found: Counter[str] = Counter()
    rows: dict[str, list[Row]] = {}
    for at, record in enumerate(records):
        time = round((record["at"] - BASE) / SECOND)
        rows.setdefault(record["key"], []).append(Row(time, record, record["id"], at))
    for key, some in rows.items():
        some.sort(key=lambda row: row.place)
        for match in decided(pattern, some, END)[0]:
            whole = MatchSoFar(some, match.start, match.labels)
            values = {name: measure(whole) for name, measure in MEASURES.items()}
            found[repr((key, some[match.start].time, some[match.stop - 1].time, values))] += 1
    return found


def matched(stream: Any, text: str, **options: Any) -> Any:
    conditions: dict[str, Any] = {
        "up": lw.col("n") > lw.prev("n"),
        "high": lw.col("n") > lw.matched().first("n"),
    }
    return stream.key_by("key").match(
        text,
        define={name: one for name, one in conditions.items() if name in text},
        measures={
            "rows": lw.count(),
            "first": lw.first("id"),
            "most": lw.max("n"),
            "names": lw.collect("name"),
        },
        within=f"{WITHIN}s",
        order="id",
        **options,
    )


def read(path: Path) -> Counter[str]:
    """Return the net of what was written."""
    found: Counter[str] = Counter()
    for part in sorted(path.glob("*.parquet")):
        for row in pq.read_table(part).to_pylist():
            times = [round((row[name] - BASE) / SECOND) for name in ("match_start", "match_end")]
            values = {name: row[name] for name in MEASURES}
            sign = -1 if row.get("kind") == "retract" else 1  # without a kind, nothing is
            found[repr((row["key"], *times, values))] += sign
    return +found


def records_of(seed: int, count: int, keys: int, disorder: int) -> list[Record]:
    """Return records in order of arrival, of which some have no number."""
    chance = random.Random(seed)
    return [
        {
            "at": BASE + SECOND * max(0, at // max(1, keys // 2) - chance.randint(0, disorder)),
            "id": at,
            "key": f"k{chance.randrange(keys)}",
            "n": None if chance.random() < 0.1 else LARGE + chance.randint(-2, 2),
            "name": chance.choice(["a", "é", "", None]),
        }
        for at in range(count)
    ]


def run(
    folder: Path,
    records: Sequence[Record],
    build: Callable[[Any], Any],
    stops: Sequence[int] = (),
    **options: Any,
) -> Counter[str]:
    """Run matches to the end, stopped at some commits; return the net of what they wrote."""
    schema = pa.schema(
        {
            "at": pa.timestamp("us", "UTC"), "id": pa.int64(), "key": pa.string(),
            "n": pa.int64(), "name": pa.string(),
        }
    )  # fmt: skip
    (folder / "in").mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(list(records), schema), folder / "in" / "0.parquet")

    def once() -> None:
        stream = lw.read_parquet(str(folder / "in"), time="at", watermark=lw.BoundedDisorder("2s"))
        output = build(stream).write_parquet(folder / "out")
        lw.run(output, state=folder / "state", progress=False, **options)

    for stop in stops:
        with stopping("before forgetting", stop):
            try:
                once()
            except Stopped:
                continue
    once()
    return read(folder / "out")


@given(
    st.integers(0, 10**6),
    st.sampled_from(["low up+", "low up* high", "low .. high", "low (up | high){1,3}?", "low up?"]),
    st.sampled_from(["past_last", "next", ("last", "low")]),
    st.sampled_from(["on_time", "final", "early"]),
    st.sampled_from([1, 3, 1_000]),
    st.lists(st.integers(1, 4), max_size=3),
    st.sampled_from([None, 1, 3]),
)
@examples(0.6)
def test_any_run_gives_the_batch_matches(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    text: str,
    skip: Any,
    emit: Any,
    size: int,
    stops: list[int],
    workers: int | None,
) -> None:
    records = records_of(seed, 40, 3, 8)
    found = run(
        tmp_path_factory.mktemp("run"),
        records,
        lambda stream: matched(stream, text, skip=skip, emit=emit, allowed_lateness=LATE),
        stops,
        bundle_size=size,
        commit_every="bundle",
        workers=workers,
    )
    assert found == expected(text, records, skip)


@pytest.mark.slow(reason="past every chunk of the engine")
@pytest.mark.parametrize(
    "options",
    [
        {"bundle_size": 6_000},
        {"bundle_size": 900, "memory_limit": "16MiB", "stops": (2, 2), "workers": 2},
        {"bundle_size": 300, "stops": (3,), "workers": 4},
    ],
    ids=str,
)
def test_many_rows_past_every_chunk(tmp_path: Path, options: dict[str, Any]) -> None:
    records = records_of(5, 6_000, 60, 12)
    found = run(
        tmp_path, records,
        lambda stream: matched(stream, "low up+", allowed_lateness=LATE), commit_every="bundle",
        **options,
    )  # fmt: skip
    assert found == expected("low up+", records, "past_last")


# -- values that are hard to keep apart ------------------------------------------------------------


def net(result: Any) -> Counter[str]:
    found: Counter[str] = Counter()
    for one in result.elements():
        found[repr((one.key, one.value))] += 1 if one.kind == "insert" else -1
    return +found


@pytest.mark.parametrize("size", [1, 3, 1_000])
def test_values_of_several_types_in_a_column(size: int) -> None:
    """What matched keeps its type; ``collect`` leaves out nulls, as in windows."""
    values = [1, LARGE, LARGE - 1, "a", None, 2.5, float("nan"), True, dt.date(2024, 1, 1)]
    rows = [
        {"at": BASE + SECOND * at, "key": "k", "v": value, "n": at}
        for at, value in enumerate(values)
    ]
    stream = lw.from_iterable(rows, time="at").key_by("key")
    found = stream.match(
        "a b c", define={"b": lw.col("n") > lw.prev("n")},
        measures={"all": lw.collect("v"), "last": lw.last("v")},
    )  # fmt: skip
    results = found.collect(bundle_size=size).values()
    assert [repr(one["all"]) for one in results] == [
        repr([one for one in values[at : at + 3] if one is not None])
        for at in range(0, len(values), 3)
    ]


def test_large_ints_are_told_apart_and_nan_is_above_nothing() -> None:
    ints = [LARGE - 1, LARGE, LARGE, LARGE + 1, None, LARGE + 2]
    floats = [1.0, float("nan"), 2.0, 3.0, float("inf"), float("nan")]
    rows = [
        {"at": BASE + SECOND * at, "key": "k", "i": i, "f": f}
        for at, (i, f) in enumerate(zip(ints, floats, strict=True))
    ]
    for source in (
        lw.from_iterable(rows, time="at"),
        lw.from_arrow(pa.Table.from_pylist(rows), time="at"),
    ):
        for name, wanted in (("i", [(0, 1), (2, 3)]), ("f", [(2, 3, 4)])):
            matches = source.key_by("key").match(
                "low up+", define={"up": lw.col(name) > lw.prev(name)}, measures={"n": lw.count()}
            )
            found = [
                (round((one["match_start"] - BASE) / SECOND), one["n"])
                for one in matches.collect().values()
            ]
            assert found == [(places[0], len(places)) for places in wanted], name


def test_times_in_other_zones_are_instants() -> None:
    zones = [dt.UTC, ZoneInfo("Asia/Kolkata"), ZoneInfo("America/St_Johns")]
    rows = [
        {"at": (BASE + SECOND * at).astimezone(zones[at % 3]), "key": "k", "n": at}
        for at in reversed(range(9))
    ]
    stream = lw.from_iterable(rows, time="at", watermark=lw.BoundedDisorder("1h")).key_by("key")
    matches = stream.match("a b c", measures={"all": lw.collect("n")})
    found = matches.collect().values()
    assert [one["all"] for one in found] == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert found[0]["match_start"] == BASE


@pytest.mark.parametrize("size", [1, 1_000])
def test_records_beside_broken_ones(size: int) -> None:
    """A record without a time or a key is a dead letter (P-1); those beside it match."""
    rows: list[dict[str, Any]] = [
        {"at": BASE + SECOND * at, "key": "k", "n": at} for at in range(6)
    ]
    rows[1]["at"], rows[3]["key"] = "no time", None
    result = lw.from_iterable(rows, time="at").key_by("key").match(
        "a b", measures={"all": lw.collect("n")}
    ).collect(bundle_size=size, on_error="dead_letter")  # fmt: skip
    assert [one["all"] for one in result.values()] == [[0, 2], [4, 5]]
    assert len(result.errors) == 2


def test_without_records_nothing_matches() -> None:
    empty: list[dict[str, Any]] = []
    schema = pa.schema({"at": pa.timestamp("us"), "key": pa.string(), "n": pa.int64()})
    for source in (
        lw.from_iterable(empty, time="at"),
        lw.from_arrow(schema.empty_table(), time="at"),
    ):
        found = source.key_by("key").match("a b", measures={"n": lw.count()}).collect()
        assert list(found.values()) == []
