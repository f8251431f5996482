"""A state directory taken up by another graph: what goes on, and what is refused and why."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery
from lowwater.io.sinks import Callback
from tests.unit.engine.local.durable_runs import Stopped, stopping, write_files


class Other:
    """Says of each record whether it is even, on one output or the other."""

    odd = lw.output()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        ctx.emit({"value": record["value"]}, tag="odd" if record["value"] % 2 else "main")


CLOCK = lw.ManualClock(0)


def read(folder: Path, name: str = "in") -> lw.Stream:
    place = folder / name
    if not place.exists():
        write_files(place)
    return lw.read_parquet(place, time="at", watermark=lw.BoundedDisorder("5s"), clock=CLOCK).named(
        name
    )


def sums(stream: lw.Stream | lw.Processed, name: str) -> lw.Pipeline:
    windows = stream.key_by("key").window(lw.FixedWindows("50s"))
    return windows.aggregate(total=lw.sum("value")).named(name)


def even(stream: lw.Stream) -> lw.Stream:
    return stream.filter(lw.col("value") % 2 == 0)


class Ends:
    """Ends that note what they are given."""

    def __init__(self) -> None:
        self.given: dict[str, list[Any]] = {}

    def end(self, pipeline: lw.Pipeline) -> Any:
        name = pipeline._stage.name or "stage"

        def note(delivery: Delivery) -> None:
            self.given.setdefault(name, []).extend(delivery.panes.to_pylist())

        return pipeline.write_to(Callback(note))


def run(ends: list[Any], folder: Path) -> None:
    lw.run(*ends, state=folder / "state", commit_every="bundle", bundle_size=10, progress=False)


def stopped(ends: list[Any], folder: Path) -> None:
    with stopping("before forgetting", 8), pytest.raises(Stopped):
        run(ends, folder)


def ab(folder: Path) -> tuple[lw.Pipeline, lw.Pipeline]:
    stream = read(folder)
    return sums(stream, "A"), sums(even(stream), "B")


def test_ends_in_another_order_are_refused(tmp_path: Path) -> None:
    """Dead letters go to the first one."""
    a, b = ab(tmp_path)
    noted = Ends()
    stopped([noted.end(a), noted.end(b)], tmp_path)
    with pytest.raises(lw.StateError, match=r"outputs were A, B and are B, A: new ones come last"):
        run([noted.end(b), noted.end(a)], tmp_path)
    run([noted.end(a), noted.end(b)], tmp_path)
    whole = Ends()
    again = [whole.end(each) for each in ab(tmp_path)]
    lw.run(*again, state=tmp_path / "whole", commit_every="bundle", bundle_size=10, progress=False)
    for name, panes in whole.given.items():  # the last delivery before the stop came twice
        totals = {(pane["key"], pane["window_start"]): pane["total"] for pane in noted.given[name]}
        assert totals == {(pane["key"], pane["window_start"]): pane["total"] for pane in panes}


def test_a_new_end_comes_last(tmp_path: Path) -> None:
    a, _ = ab(tmp_path)
    behind = sums(even(a.to_stream().with_columns(value=lw.col("total"))), "behind")
    first = [Ends().end(behind)]
    stopped(first, tmp_path)
    with pytest.raises(
        lw.StateError, match="outputs were behind and are A, behind: new ones come last"
    ):
        run([Ends().end(a), *first], tmp_path)
    run([*first, Ends().end(a)], tmp_path)


def moved(folder: Path, *, first: bool) -> lw.Pipeline:
    one, two = read(folder, "one"), read(folder, "two")
    return sums(even(one) | two if first else one | even(two), "sums")


def swapped(folder: Path, *, first: bool) -> list[lw.Pipeline]:
    one, two = read(folder, "one"), read(folder, "two")
    return [sums(one if first else two, "X"), sums(two if first else one, "Y")]


def output(folder: Path, *, first: bool) -> lw.Pipeline:
    process = read(folder).key_by("key").process(Other()).named("process")
    return sums(process if first else process.output("odd"), "sums")


@pytest.mark.parametrize(
    ("build", "told"),
    [
        (moved, "reads was .*one → Filter.*two.* and is .*'one', 'two → Filter"),
        (swapped, r"X: reads was \['one'\] and is \['two'\]"),
        (output, r"reads was \['process'\] and is .*process\['odd'\]"),
    ],
)
def test_what_a_stage_reads_must_not_change(
    build: Callable[..., Any], told: str, tmp_path: Path
) -> None:
    before, after = build(tmp_path, first=True), build(tmp_path, first=False)
    noted = Ends()
    many = isinstance(before, list)
    stopped([noted.end(each) for each in (before if many else [before])], tmp_path)
    with pytest.raises(lw.StateError, match=told):
        run([noted.end(each) for each in (after if many else [after])], tmp_path)
