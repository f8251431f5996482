"""What a process retracts is subtracted downstream, whatever the bundles (S-K12)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from tests.examples import examples

SIZE = 10
Emission = tuple[int, int, str]
"""Time, value, kind."""


class Says:
    """Emits what its records say."""

    retracts = True
    lateness = "100us"
    side = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        for at, value, kind in record["says"]:
            ctx.emit({"v": value}, time=at, kind=kind)
            ctx.emit({"v": value}, time=at, kind=kind, tag="side")


class SaysInColumns:
    """The same, a bundle at once."""

    retracts = True
    lateness = "100us"
    side = lw.output()

    def on_records(self, batch: Any, ctx: Any) -> None:
        rows = [(n, *said) for n, says in enumerate(batch["says"]) for said in says]
        if rows:
            who, times, values, kinds = (np.array(column) for column in zip(*rows, strict=True))
            for tag in ("main", "side"):
                ids = batch.ids[who]
                ctx.emit({"v": values}, ids=ids, times=times, kind=kinds, tag=tag)


@st.composite
def histories(draw: st.DrawFn) -> list[dict[str, Any]]:
    """Draw records by time, each with what to emit: retractions are of what was emitted before."""
    sometimes = st.booleans()
    stand: Counter[tuple[str, int, int]] = Counter()
    found: list[dict[str, Any]] = []
    times = sorted(draw(st.lists(st.integers(0, 60), max_size=10)))
    for at in times:
        key = draw(st.sampled_from("ab"))
        says: list[Emission] = []
        for _ in range(draw(st.integers(0, 3))):
            mine = sorted(one for one in stand.elements() if one[0] == key)
            backs: bool = draw(sometimes)
            if mine and backs:
                one = draw(st.sampled_from(mine))
                says.append((one[1], one[2], "retract"))
                stand[one] -= 1
            else:
                time, value = max(at - draw(st.integers(0, 40)), 0), draw(st.integers(1, 3))
                says.append((time, value, "insert"))
                stand[key, time, value] += 1
        found.append({"at": at, "k": key, "says": says})
    return found


def net(rows: Sequence[dict[str, Any]]) -> Counter[tuple[str, int, int]]:
    found: Counter[tuple[str, int, int]] = Counter()
    for row in rows:
        for at, value, kind in row["says"]:
            found[row["k"], at, value] += 1 if kind == "insert" else -1
    return +found


@pytest.mark.parametrize("process", [Says, SaysInColumns])
@examples(1)
@given(rows=histories(), size=st.integers(1, 4))
def test_what_is_retracted_is_subtracted(
    process: type, rows: list[dict[str, Any]], size: int
) -> None:
    stream = lw.from_iterable(rows, time="at", unit="us", watermark=lw.Ascending())
    said = stream.key_by("k").process(process())
    kept = net(rows)
    elements = said.collect(bundle_size=size).elements()
    seen: Counter[tuple[str, int, int]] = Counter()
    for one in elements:
        seen[one.key, int(one.timestamp), one.value["v"]] += 1 if one.kind == "insert" else -1
    assert +seen == kept
    for output in (said, said.output("side")):
        summed = output.key_by("k").window(lw.FixedWindows(f"{SIZE}us"), accumulation="retracting")
        sums = summed.aggregate(total=lw.sum("v"), n=lw.count())
        stands = sums.collect(bundle_size=size).final()
        found = {
            (pane.key, int(pane.window.start)): (pane.values["total"], pane.values["n"])
            for pane in stands
            if pane.values["n"]
        }
        wanted: dict[tuple[str, int], tuple[int, int]] = {}
        for (key, at, value), count in kept.items():
            place = (key, at // SIZE * SIZE)
            total, n = wanted.get(place, (0, 0))
            wanted[place] = (total + value * count, n + count)
        assert found == wanted
    left, right = said.select("k", "v"), said.output("side").select("k", "v")
    pairs = left.join(right, on="k", within="5us", how="inner").collect(bundle_size=size)
    joined: Counter[tuple[Any, ...]] = Counter()
    for one in pairs.elements():
        joined[one.key, one.value["v"], one.value["v_right"]] += 1 if one.kind == "insert" else -1
    both: Counter[tuple[Any, ...]] = Counter()
    for (key, at, value), count in kept.items():
        for (other, then, second), times in kept.items():
            if key == other and 0 <= then - at <= 5:
                both[key, value, second] += count * times
    assert +joined == both
    assert all(count >= 0 for count in joined.values())
