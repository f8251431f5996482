"""Joins within windows: their columns and text, values of any type, and what is downstream (J-7).

``tests/mistakes/joins.toml`` has their error messages; ``tests/property/test_window_join.py`` what
they emit.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.pipeline.state_tools import export_state, state_info, verify_state
from tests.unit.engine.local.durable_runs import output, run, stopped, write_files

UTC = pa.timestamp("us", "UTC")
MINUTE = 60_000_000


def stream(start: int = 0, /, **columns: Any) -> lw.Stream:
    """Return records, one a minute, of key ``k`` 1 unless there is a column of that name."""
    count = len(next(iter(columns.values())))
    at = pa.array([start + MINUTE * n for n in range(count)], UTC)
    table = pa.table({"at": at, "k": columns.pop("k", [1] * count), **columns})
    return lw.from_arrow(table, time="at", watermark=lw.Ascending())


def rows(joined: Any, *names: str, **options: Any) -> list[tuple[Any, ...]]:
    return [
        tuple(one.value[name] for name in names) for one in joined.collect(**options).elements()
    ]


def test_columns_of_the_output() -> None:
    """The keys, the window, the left side, the right side; a name that is taken has a suffix."""
    left, right = stream(page=["x"]), stream(page=["y"], n=[1])
    windows: Any = lw.FixedWindows("1h")

    def columns(**options: Any) -> str:
        joined = left.join(right, on="k", within=windows, **options)
        return " ".join(joined.to_stream().columns or ())

    assert columns() == "k window_start window_end at page at_right page_right n"
    assert columns(how="semi") == "k window_start window_end at page"
    counts = left.key_by("k").window(windows).aggregate(n=lw.count()).select("k", "window_end", "n")
    joined = left.join(counts, on="k", within=windows)
    assert (joined.to_stream().columns or ())[-2:] == ("window_end_right", "n")


def test_a_join_says_what_it_is() -> None:
    joined = stream(a=[1]).join(
        stream(b=[1]), on="k", within=lw.Sessions("5m"), how="left", accumulation="retracting"
    )
    assert "within=Sessions('5m'), how='left', accumulation='retracting'" in repr(joined)
    lines = str(joined.explain())
    for line in ("Sessions('5m')", "trigger: Default(), retracting", "left join within windows"):
        assert line in lines
    with pytest.raises(lw.InvalidArgument, match="stands until it is retracted"):
        joined.collect().final()


def test_values_of_all_types_come_out_as_they_came() -> None:
    """Also nulls, times finer than microseconds, and what one side lacks in all windows."""
    some: dict[str, Any] = {
        "text": pa.array(["a", None, "c"]),
        "fine": pa.array([1, 2, None], pa.timestamp("ns")),
        "day": pa.array([1, None, 3], pa.date32()),
        "half": pa.array([0.5, None, 2.5], pa.float32()),
        "yes": pa.array([True, None, False]),
        "big": pa.array([2**64 - 1, None, 1], pa.uint64()),
        "parts": pa.array([[{"n": 1}], None, []], pa.list_(pa.struct([("n", pa.int8())]))),
        "none": pa.nulls(3),
    }
    left, right = stream(**some), stream(**some)
    windows: Any = lw.FixedWindows("1m")
    both = left.join(right, on="k", within=windows).to_arrow()
    alone = left.join(stream(k=[2, 2, 2]), on="k", within=windows, how="left").to_arrow()
    for name, given in some.items():
        for found in (both[name], both[f"{name}_right"], alone[name]):
            assert found.to_pylist() == given.to_pylist(), name
            assert found.type == given.type or name == "none", name


def test_retractions_equal_what_they_retract() -> None:
    """S-A3: also with times that Python cannot hold."""
    fine = pa.array([1, 2], pa.timestamp("ns"))
    left = stream(fine=fine, text=["a", None], day=pa.array([1, None], pa.date32()))
    late = stream(n=[1, 2])
    joined = left.join(
        late,
        on="k",
        within=lw.FixedWindows("1h"),
        how="outer",
        trigger=lw.Repeatedly(lw.AfterCount(1)),
        accumulation="retracting",
    )
    found = joined.collect(bundle_size=1).to_arrow()
    assert found.schema.field("fine").type == fine.type
    left_out = found.drop_columns(["kind"])
    signs = [1 if kind == "insert" else -1 for kind in found["kind"].to_pylist()]
    net: dict[str, int] = {}
    for sign, row in zip(signs, left_out.to_pylist(), strict=True):
        net[repr(row)] = net.get(repr(row), 0) + sign
    assert sorted(net.values())[-4:] == [1, 1, 1, 1]
    assert sum(net.values()) == 4
    assert set(net.values()) <= {0, 1}


def test_a_side_may_be_a_union_of_streams_with_other_units() -> None:
    """Values get the type that the columns of the union have in common."""
    micros = stream(t=pa.array([5], pa.timestamp("us")), i=pa.array([1], pa.int32()))
    nanos = stream(t=pa.array([7_000], pa.timestamp("ns")), i=pa.array([2**40], pa.int64()))
    joined = (micros | nanos).join(stream(n=[1]), on="k", within=lw.FixedWindows("1m"))
    times = joined.to_arrow()["t"].cast(pa.timestamp("ns")).cast(pa.int64()).to_pylist()
    assert sorted(times) == [5_000, 7_000]
    assert sorted(joined.to_arrow()["i"].to_pylist()) == [1, 2**40]


def test_times_keep_their_type_where_a_pane_had_none_before(tmp_path: Path) -> None:
    """A pane without records of a side is retracted in the step that emits some of that side."""
    joined = stream(n=[1]).join(
        stream(t=pa.array([5, 6, 7], UTC)),
        on="k",
        within=lw.FixedWindows("1h"),
        how="right",
        trigger=lw.AfterWatermark(early=lw.Always()),
        accumulation="retracting",
    )
    joined.write_jsonl(tmp_path / "out.jsonl").run(bundle_size=1)
    lines = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    found = [json.loads(line)["t"] for line in lines]
    assert {*found} == {f"1970-01-01T00:00:00.00000{n}Z" for n in (5, 6, 7)}


def test_times_and_numbers_in_one_column_stay_what_they_are() -> None:
    """Values without a common type are neither mixed up nor converted."""
    times = stream(t=pa.array([5], pa.timestamp("us"))).map(dict).select("at", "k", "t")
    numbers = stream(MINUTE, t=pa.array([5])).map(dict).select("at", "k", "t")
    joined = (times | numbers).join(stream(n=[1]), on="k", within=lw.FixedWindows("1h"))
    for size in (1, 100):
        result = joined.collect(bundle_size=size)
        assert [row["t"] for row in result.values()] == [
            pa.scalar(5, pa.timestamp("us")).as_py(),
            5,
        ]
        assert not result.errors


def test_keys_of_both_sides() -> None:
    """They are called as on the left; a null key is a dead letter on either side."""
    left = stream(k=[1, None], a=[1, 2])
    right = stream(k=[1.0, None], b=[1, 2]).select("at", "b", user=lw.col("k"))
    joined = left.join(right, left_on="k", right_on="user", within=lw.GlobalWindow(), how="outer")
    found = joined.collect(on_error="dead_letter")
    (one,) = found.elements()
    assert (one.key, one.value["a"], one.value["b"]) == (1, 1, 1)
    assert one.value["window_end"].year == 9999
    assert [error.reason for error in found.errors] == ["null_key", "null_key"]


def test_what_is_late_is_an_output() -> None:
    """S-O3: with the columns of its side."""
    left = stream(a=[1, 2, 3])
    late = lw.from_iterable(
        [{"at": at, "k": 1, "b": at} for at in (2 * MINUTE, 0)], time="at", watermark=lw.Ascending()
    )
    joined = left.join(late, on="k", within=lw.FixedWindows("1m"), how="left")
    found = joined.collect(bundle_size=1)
    assert [(one.reason, one.value["b"]) for one in found.late] == [("expired", 0)]
    assert rows(joined, "a", "b", bundle_size=1) == [(1, None), (2, None), (3, 2 * MINUTE)]


def test_windows_joins_and_sinks_may_be_downstream(tmp_path: Path) -> None:
    """S-C1 to S-C7: they apply the retractions, and inherit the lateness."""
    left = stream(a=[1, 2, 3])
    late = lw.from_iterable(
        [{"at": at, "k": 1, "b": at} for at in (2 * MINUTE, 0)], time="at", watermark=lw.Ascending()
    )
    joined = left.join(
        late,
        on="k",
        within=lw.FixedWindows("1m"),
        how="left",
        accumulation="retracting",
        allowed_lateness="1h",
    )
    hours = joined.key_by("k").window(lw.FixedWindows("1h"), accumulation="retracting")
    counted = hours.aggregate(rows=lw.count(), partners=lw.count("b"))
    (last,) = counted.collect(bundle_size=1).final()
    assert last.values == {"rows": 3, "partners": 2}
    again = joined.select("k", "a").join(
        stream(c=[7]), on="k", within=lw.FixedWindows("1h"), accumulation="retracting"
    )
    kinds = [(one.kind, one.value["a"]) for one in again.collect(bundle_size=1).elements()]
    assert sorted(a for kind, a in kinds if kind == "insert") == [1, 2, 3]
    joined.write_jsonl(tmp_path / "out").run(bundle_size=1)
    lines = "".join(path.read_text() for path in sorted((tmp_path / "out").glob("*.jsonl")))
    assert (lines.count('"insert"'), lines.count('"retract"')) == (4, 1)


def test_stored_windows_can_be_looked_at_and_checked(tmp_path: Path) -> None:
    """They are windows, with the values of both sides; the next run goes on with them."""
    left, right = (
        lw.read_parquet(write_files(tmp_path / name), time="at", watermark=lw.BoundedDisorder("5s"))
        for name in ("left", "right")
    )
    joined = left.join(
        right,
        on="key",
        within=lw.FixedWindows("20s"),
        how="outer",
        trigger=lw.AfterWatermark(early=lw.AfterCount(2), late=lw.AfterCount(1)),
        accumulation="retracting",
        allowed_lateness="2m",
    )
    written: Any = joined
    options: Any = {"memory_limit": "64MB", "clock": lw.ManualClock(0)}
    run(written, tmp_path / "whole", **options)
    stopped(written, tmp_path / "halves", **options)
    state = tmp_path / "halves" / "state"
    windows = export_state(state)
    assert state_info(state).open_windows == windows.num_rows > 0
    assert "state.left:value:values" in windows.column_names
    assert verify_state(state) > 0
    run(written, tmp_path / "halves", **options)
    assert state_info(state).open_windows == 0
    assert output(tmp_path / "halves") == output(tmp_path / "whole")
