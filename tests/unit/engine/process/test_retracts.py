"""Processes that retract what they emitted (S-K12): what they declare, and where it shows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.graph import Stage
from tests.unit.engine.process.process_steps import Driven, process, records


class Newest:
    """Emits the newest value of each key, and retracts the one before."""

    retracts = True
    before = lw.value_cell()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if ctx.before.is_set:
            value, at = ctx.before.get()
            ctx.emit({"v": value}, time=max(at, ctx.time), kind="retract")
        ctx.emit({"v": record["v"]})
        ctx.before.set((record["v"], ctx.time))


ROWS = [{"at": at * 1_000_000, "k": "a", "v": at} for at in (1, 2)]


def newest() -> lw.Processed:
    return lw.from_iterable(ROWS, time="at").key_by("k").process(Newest())


def test_elements_and_tables_have_a_kind(tmp_path: Path) -> None:
    result = newest().collect()
    assert [(one.value["v"], one.kind) for one in result.elements()] == [
        (1, "insert"), (1, "retract"), (2, "insert"),
    ]  # fmt: skip
    assert result.to_arrow().column("kind").to_pylist() == ["insert", "retract", "insert"]
    newest().write_parquet(tmp_path / "out").run()
    (file,) = (tmp_path / "out").glob("part-*.parquet")
    assert pq.read_table(file).column("kind").to_pylist() == ["insert", "retract", "insert"]
    newest().write_jsonl(tmp_path / "out.jsonl").run()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["kind"] for line in lines] == ["insert", "retract", "insert"]


def test_explain_says_that_it_retracts() -> None:
    assert "retracts what it emitted" in newest().explain()
    behind = newest().key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    assert "applies upstream retractions" in behind.explain()


def test_who_does_not_declare_it_cannot_retract() -> None:
    driven = Driven(process(on_record=lambda self, record, ctx: ctx.emit(1, kind="insert")))
    with pytest.raises(lw.InvalidArgument, match=r"declares that it retracts(.|\n)*= True"):
        driven.take(*records(("a", 5)))
    own = Driven(process(on_record=lambda self, record, ctx: ctx.emit({"kind": "retract"})))
    assert own.take(*records(("a", 5))) == [("a", 5, {"kind": "retract"})]
    assert own.last.emitted["main"].signs is None


def test_a_kind_is_one_of_two() -> None:
    def on_record(self: Any, record: Any, ctx: Any) -> None:
        ctx.emit(1, kind="delete")

    with pytest.raises(lw.InvalidArgument, match=r"'delete'.*is not known"):
        Driven(process(retracts=True, on_record=on_record)).take(*records(("a", 5)))


def test_a_field_called_kind_is_refused_in_tables() -> None:
    class Own:
        retracts = True

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.emit({"kind": "mine"})

    stream = lw.from_iterable(ROWS, time="at").key_by("k").process(Own())
    with pytest.raises(lw.DataError, match="a field is named 'kind'"):
        stream.to_arrow()


class Columns:
    retracts = True
    lateness = "10us"
    wake = lw.timer()

    def __init__(self, kind: Any, times: Any = 5) -> None:
        self.kind, self.times = kind, times

    def on_records(self, batch: Any, ctx: Any) -> None:
        ctx.emit({"v": np.ones(len(batch))}, ids=batch.ids, times=self.times, kind=self.kind)

    def on_timers(self, batch: Any, ctx: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "signs"),
    [
        (None, [1, 1]), ("retract", [-1, -1]), (["insert", "retract"], [1, -1]),
        (np.array(["retract", "insert"], dtype=object), [-1, 1]),
    ],
)  # fmt: skip
def test_kinds_of_columns(kind: Any, signs: list[int]) -> None:
    driven = Driven(Columns(kind))
    driven.take(*records(("a", 5), ("b", 6)))
    found = driven.last.emitted["main"].signs
    assert found is not None
    assert found.tolist() == signs
    assert found.dtype == np.int8


@pytest.mark.parametrize(
    ("kind", "message"),
    [("no", "is not known"), (["insert"], "has the shape"), ([1, 2], "'1'.*is not known")],
)
def test_kinds_of_columns_that_are_none(kind: Any, message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        Driven(Columns(kind)).take(*records(("a", 5), ("b", 6)))


def emits(at: int, **members: Any) -> Driven:
    driven = Driven(process(on_record=lambda self, record, ctx: ctx.emit(1, time=at), **members))
    driven.watermark(100)
    return driven


@pytest.mark.parametrize("reborn", [False, True])
def test_lateness_bounds_what_is_emitted_late(reborn: bool) -> None:
    late, too_late, without = emits(90, lateness="10us"), emits(89, lateness="10us"), emits(99)
    if reborn:
        for driven in (late, too_late, without):
            driven.reborn()
    assert late.take(*records(("a", 105))) == [("a", 90, 1)]
    for driven in (too_late, without):
        with pytest.raises(lw.InvalidArgument, match="the record would be late"):
            driven.take(*records(("a", 105)))
    columns = Driven(Columns(None, 90))
    columns.watermark(100)
    if reborn:
        columns.reborn()
    assert len(columns.take(*records(("a", 105)))) == 1
    columns.watermark(101)
    with pytest.raises(lw.InvalidArgument, match="may have passed"):
        columns.take(*records(("a", 105)))


def test_lateness_does_not_apply_to_holds() -> None:
    driven = Driven(
        process(
            lateness="10us",
            wake=lw.timer(),
            on_record=lambda self, record, ctx: ctx.wake.set(200, output_time=95),
            on_timer=lambda self, name, ctx: None,
        )
    )
    driven.watermark(100)
    with pytest.raises(lw.InvalidArgument, match="output_time"):
        driven.take(*records(("a", 105)))


def test_downstream_stages_inherit_lateness() -> None:
    class Late(Newest):
        lateness = "1h"

    late = lw.from_iterable(ROWS, time="at").key_by("k").process(Late())
    assert late._stage.lateness_us == 3_600_000_000
    panes = late.key_by("k").window(lw.FixedWindows("1m"), accumulation="retracting")
    assert panes.aggregate(n=lw.count())._stage.lateness_us == 3_600_000_000
    again = late.key_by("k").process(Newest())
    assert again._stage.lateness_us == 3_600_000_000
    windowed = lw.from_iterable(ROWS, time="at").key_by("k").window(lw.FixedWindows("1m"))
    stage: Stage = windowed.process(Late())._stage
    assert stage.lateness_us == 3_600_000_000
    with pytest.raises(lw.InvalidArgument, match="shorter than that of the upstream"):
        late.key_by("k").window(
            lw.FixedWindows("1m"), allowed_lateness="1m", accumulation="discarding"
        )


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({"retracts": 1}, "neither True nor False"),
        ({"lateness": "soon"}, "lateness"),
        ({"lateness": "-1h"}, "below zero"),
        ({"retracts": lw.value_cell()}, "cannot be the name"),
        ({"lateness": lw.timer()}, "cannot be the name"),
    ],
)
def test_what_is_declared_wrongly(members: dict[str, Any], message: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=message):
        Driven(process(**members))
