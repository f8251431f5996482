"""One run drives all sinks: who does not ask for more, or fails, stops the sources.

A source is asked for a batch when all that came of the batches before, of whatever source, is with
all sinks: so at every moment one batch at most is on its way. With commits in between, it is what
one commit holds and a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count, islice, product
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.local.delivery import Delivery
from lowwater.io.sinks import Callback
from lowwater.pipeline import Pipeline
from lowwater.pipeline.fluent import Processed
from lowwater.pipeline.outputs import Writing
from tests.examples import sampled
from tests.unit.engine.local.back_pressure_runs import (
    Watch,
    WatchedSource,
    branched,
    passed,
    summed,
)
from tests.unit.engine.local.durable_runs import Stopped

QUIET: Any = {"progress": False, "clock": lw.ManualClock(0)}
TAKE: Any = [
    pytest.param(lambda p, **o: ([pane.key] for pane in p.run(**o)), summed, id="panes"),
    pytest.param(lambda p, **o: map(keys_of, p.run_batches(**o)), summed, id="batches"),
    pytest.param(lambda p, **o: ([one.key] for one in p.run(**o)), passed, id="elements"),
]
ENDS = 4


def keys_of(panes: Any) -> list[int]:
    """Return the keys of a batch of panes."""
    (column,) = panes.keys
    return column.to_list()


def two(watch: Watch, batches: int = 8, **options: Any) -> tuple[lw.Stream, lw.Stream]:
    """Return two sources, one of them twenty seconds ahead."""
    ahead = WatchedSource(1, watch, batches, ahead=20, **options)
    return WatchedSource(0, watch, batches, **options).stream(), ahead.stream()


def writing(
    graph: Iterable[Pipeline | Processed], notes: Iterable[Callable[[Iterable[Any]], None]]
) -> list[Writing]:
    """Return outputs whose sinks note the keys they are given."""
    return [end.write_to(delivered(note)) for end, note in zip(graph, notes, strict=True)]


# ------------------------------------------------------------------------ who does not ask for more


@pytest.mark.parametrize(("take", "stage"), TAKE)
@pytest.mark.parametrize("skew", [None, "2s"])
def test_nothing_is_read_that_nobody_asks_for(take: Any, stage: Any, skew: str | None) -> None:
    watch = Watch()
    one, other = two(watch)
    taken = take(stage(one | other), bundle_size=100, max_skew=skew, **QUIET)
    assert not watch.keys
    for number, keys in enumerate(taken):
        watch.given[0].update(keys)
        assert watch.waiting < 2, f"at {number}"  # a batch has two keys, and one was asked for
    assert len(watch.behind) == 16
    assert max(watch.behind) == 0


@pytest.mark.parametrize("size", [1, 2, 100])
@pytest.mark.parametrize("skew", [None, "2s"])
def test_all_ends_have_what_was_read_before_more_is_read(size: int, skew: str | None) -> None:
    watch = Watch(ENDS)
    graph = branched(*two(watch, rows=3))
    notes = [watch.gives(at) for at in range(ENDS)]
    outputs = writing(graph, notes)
    metrics = lw.run(*outputs, bundle_size=size, commit_every="bundle", max_skew=skew, **QUIET)
    assert metrics.events == 48
    assert watch.behind == [0] * 16
    assert watch.waiting == 0


@pytest.mark.parametrize(
    ("every", "durable"),
    sampled([pytest.param(*case) for case in product(["bundle", 5, 1, 24], [True, False])], 3),
)
def test_a_run_reads_no_further_than_an_epoch_and_a_batch(
    every: str | int, durable: bool, tmp_path: Path
) -> None:
    watch = Watch(ENDS)
    graph = branched(*two(watch, rows=3))
    state: Any = {"state": tmp_path} if durable else {}
    given = writing(graph, [watch.gives(at) for at in range(ENDS)])
    lw.run(*given, commit_every=every, bundle_size=2, **state, **QUIET)
    assert len(watch.behind) == 16
    assert max(watch.behind) <= (every if isinstance(every, int) and every > 1 else 0)
    assert watch.waiting == 0


def delivered(note: Callable[[Iterable[Any]], None]) -> Callback:
    """Return a sink that notes the keys it is given."""
    return Callback(lambda delivery: note(delivery.panes.column("key").to_pylist()))


# ---------------------------------------------------------------------------------------- who fails


def failing(note: Callable[[Iterable[Any]], None], at: int) -> Callable[[Iterable[Any]], None]:
    """Return the same, that fails the ``at``-th time (from 1) instead of taking anything."""
    times = count(1)

    def take(keys: Iterable[Any]) -> None:
        if next(times) == at:
            raise Stopped
        note(keys)

    return take


@pytest.mark.parametrize("at", [1, 4])
@pytest.mark.parametrize("which", range(ENDS))
def test_a_sink_that_fails_stops_all_sources_at_once(which: int, at: int) -> None:
    watch = Watch(ENDS)
    graph = branched(*two(watch))
    notes = [watch.gives(end) for end in range(ENDS)]
    notes[which] = failing(notes[which], at)
    with pytest.raises(Stopped):
        lw.run(*writing(graph, notes), bundle_size=100, commit_every="bundle", **QUIET)
    begun = sorted(watch.read)
    assert len(watch.keys - watch.given[which]) <= 2
    assert sorted(watch.closed) == begun  # and not when somebody collects what is left of the run


@pytest.mark.parametrize("callback", ["progress", "on_late", "on_dead_letter"])
def test_a_callback_that_fails_stops_all_sources_at_once(callback: str) -> None:
    watch = Watch()

    def fail(_: Any) -> None:
        raise Stopped

    late = summed(late_and_bad(watch), allowed_lateness=0)
    with pytest.raises(Stopped):
        late.collect(bundle_size=1, **{**QUIET, callback: fail})
    assert watch.closed == [0]
    assert watch.read[0] < 8


def late_and_bad(watch: Watch) -> lw.Stream:
    """Return a source with late records and such without a time."""

    def worse(record: Any) -> Any:
        at = {2: 0, 3: None}.get(record["key"] % 5, record["at"])
        return {**record, "at": at}

    return WatchedSource(0, watch, 8, ahead=9).stream().map(worse)


def test_who_lets_go_of_a_run_lets_go_of_its_sources() -> None:
    for stage in (summed, passed):
        watch = Watch()
        one, other = two(watch)
        run: Iterator[Any] = stage(one | other).run(bundle_size=1, **QUIET)
        for _ in range(6):
            next(run)
        assert watch.closed == []
        del run
        assert sorted(watch.closed) == sorted(watch.read)


class Lent:
    """A source whose batches come from an iterator that is no generator, but wants closing."""

    schema = WatchedSource.schema

    def __init__(self) -> None:
        self.closed = 0
        self._batches = WatchedSource(0, None, 9).batches(1, ())

    def batches(self, size: int, keys: tuple[str, ...]) -> Lent:
        return self

    def __iter__(self) -> Lent:
        return self

    def __next__(self) -> Any:
        return next(self._batches)

    def close(self) -> None:
        self.closed += 1


@pytest.mark.parametrize("taken", [3, 99])
def test_an_iterator_of_batches_is_closed_if_it_can_be(taken: int) -> None:
    source = Lent()
    stream = lw.from_source(source, time="at", watermark=lw.Ascending())
    run = summed(stream).run(bundle_size=1, **QUIET)
    assert list(islice(run, taken))
    del run
    assert source.closed == 1


FAILING = [
    pytest.param(which, every, at)
    for which in range(ENDS)
    for every, at in product(["bundle", 5], [3, 1])
]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str | int, Any]:
    """Return the deliveries of runs that go to the end, by when they commit."""
    return {
        every: given_durably(tmp_path_factory.mktemp("all"), every, Watch())
        for every in ("bundle", 5)
    }


@pytest.mark.parametrize(("which", "every", "at"), sampled(FAILING, every=3))
def test_nothing_is_lost_where_a_durable_sink_fails(
    which: int, every: str | int, at: int, tmp_path: Path, undisturbed: Mapping[str | int, Any]
) -> None:
    """And what comes again comes under its id, with its content."""
    watch = Watch()
    before = given_durably(tmp_path / "state", every, watch, (which, at))
    assert sorted(watch.closed) == sorted(watch.read)
    assert sum(watch.read.values()) < 16
    after = given_durably(tmp_path / "state", every, Watch())
    again = [set(one) & set(other) for one, other in zip(before, after, strict=True)]
    assert max(map(len, again)) <= 1
    for end in range(ENDS):
        assert all(before[end][id] == after[end][id] for id in again[end])
        assert rows(before[end] | after[end]) == rows(undisturbed[every][end])


def rows(deliveries: dict[str, list[Any]]) -> list[Any]:
    """Return what was delivered, in order; where commits are differs, as each run counts anew."""
    return [row for id in sorted(deliveries) for row in deliveries[id]]


def given_durably(
    state: Path, every: str | int, watch: Watch, fails: tuple[int, int] | None = None
) -> list[dict[str, Any]]:
    """Run to the end, or to where the sink of an end fails; return the deliveries of each end."""
    found: list[dict[str, Any]] = [{} for _ in range(ENDS)]

    def sink(end: int) -> Callback:
        times = count(1)

        def take(delivery: Delivery) -> None:
            if (end, next(times)) == fails:
                raise Stopped
            found[end][delivery.id] = delivery.panes.to_pylist()

        return Callback(take)

    graph = branched(*two(watch))
    given = [end.write_to(sink(at)) for at, end in enumerate(graph)]
    options: Any = {"state": state, "commit_every": every, "bundle_size": 2, **QUIET}
    if fails is None:
        lw.run(*given, **options)
        return found
    with pytest.raises(Stopped):
        lw.run(*given, **options)
    return found


# ---------------------------------------------------------------------------------- who runs ahead


@pytest.mark.parametrize("skew", [None, 0, 3, 9])
def test_a_source_that_is_ahead_waits_and_nothing_of_it_does(skew: int | None) -> None:
    """It is at most ``max_skew`` and a batch ahead of one that has nothing for now."""
    watch = Watch()
    slow, quick = WatchedSource(0, watch, 40, rests=20), WatchedSource(1, watch, 40)
    apart: list[int] = []
    opened: list[int] = []

    def look(metrics: lw.Metrics) -> None:
        apart.append(watch.read.get(1, 0) - watch.read.get(0, 0))
        opened.append(metrics.open_windows)

    pipeline = summed(slow.stream() | quick.stream())
    result = pipeline.collect(
        bundle_size=100,
        max_skew=None if skew is None else f"{skew}s",
        **{**QUIET, "progress": look},
    )
    assert not result.late
    assert len({pane.key for pane in result.panes}) == 160
    if skew is None:
        assert max(apart) == 39
        assert max(opened) >= 80
        return
    assert max(apart) == skew + 1
    lasting = 2 + 2  # seconds that a window is and may be late
    assert max(opened) <= 2 * (skew + 1 + lasting) + 2 * lasting
