"""Keyed computations in parts equal one over all keys, and are the same for any number of workers.

Workers are simulated: each has its own parts, and all that goes there and back is packed.
"""

from __future__ import annotations

from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.local.parted_process import KeyKinds, PartedProcess
from lowwater.engine.process import ProcessOperator
from lowwater.engine.process.definition import Definition
from lowwater.engine.process.key_parts import PARTS
from lowwater.engine.process.outputs import Order
from lowwater.engine.records.columns import Column
from lowwater.engine.records.key_hash import KEY_GROUPS, key_groups
from lowwater.engine.records.steps import Bundle, ClockAdvance, EndOfInput, WatermarkAdvance
from lowwater.engine.stages.computed import Computed
from lowwater.engine.window.windowing import Windowing
from lowwater.state.key_layout import END, StoredPlace
from lowwater.state.memory import MemoryContents, MemoryStore
from lowwater.state.store import Batch
from lowwater.time import END_OF_TIME
from tests.examples import examples
from tests.property import process_model as model
from tests.property.simulated_workers import SimulatedWorkers
from tests.property.test_process import WINDOWS

STAGE = "stage 3"


def work_of(windowed: bool, order: Order) -> Computed:
    kind = model.ScriptedInWindows if windowed else model.ScriptedToTheEnd
    windowing = WINDOWS if windowed else None
    allowed = 0 if order == "event_time" else model.LATENESS
    definition = Definition.of(kind(allowed), windowing)
    return Computed(definition.process, windowing, definition.outputs, order=order)


def parted(windowed: bool, order: Order, count: int) -> PartedProcess:
    made = PartedProcess(work_of(windowed, order), 0, SimulatedWorkers(count))
    made.keep_in_store(StoredPlace(STAGE, 0, KEY_GROUPS))
    return made


def committed(operator: ProcessOperator | PartedProcess, store: MemoryStore) -> None:
    batch = Batch()
    operator.save(batch)
    store.commit(batch)


def by_key(found: list[Any], tag: str) -> dict[Any, list[Any]]:
    """What came of each key, in its order."""
    every: dict[Any, list[Any]] = {}
    for kind, key, at, value in found:
        if kind == tag:
            every.setdefault(key, []).append((at, value))
    return every


def test_the_keys_of_the_model_are_in_several_parts() -> None:
    groups = key_groups((Column.of_objects(list("abc")),), KEY_GROUPS)
    assert len(set((groups // (KEY_GROUPS // PARTS)).tolist())) > 1
    assert len(np.unique(groups % 8)) > 1


@pytest.mark.parametrize("windowed", [False, True])
@pytest.mark.parametrize("order", ["arrival", "event_time"])
@examples(3, is_core=True)
@given(
    acts=model.ACTS,
    sizes=st.lists(st.integers(1, 5), min_size=1, max_size=3),
    survives=st.lists(st.booleans(), min_size=1, max_size=5),
    count=st.integers(2, 8),
    other=st.integers(1, 8),
    looks=st.booleans(),
)
def test_as_the_whole_and_the_same_for_any_number(
    windowed: bool,
    order: Order,
    acts: list[model.Act],
    sizes: list[int],
    survives: list[bool],
    count: int,
    other: int,
    looks: bool,
) -> None:
    """S-K1 to S-K13, but for the order among keys; state too, restored by other workers."""
    work = work_of(windowed, order)
    whole = ProcessOperator(work.process, windowing=work.windowing, order=order)
    stores = [MemoryStore(MemoryContents()) for _ in range(2)]
    one, many = parted(windowed, order, 1), parted(windowed, order, count)
    for step in (WatermarkAdvance(0), ClockAdvance(0)):
        for operator in (whole, one, many):
            operator.step(step)
    for turn, act in enumerate(model.all_cut(acts, sizes)):
        outputs = [operator.step(model.step(act)) for operator in (whole, one, many)]
        found = [model.given_by(output) for output in outputs]
        late = [model.late_of(act, output) for output in outputs]
        assert found[1] == found[2]
        assert late[1] == late[2]
        assert order == "event_time" or late[0] == late[1]
        for tag in ("told", "main"):
            assert by_key(found[0], tag) == by_key(found[1], tag)
        if order == "event_time":
            assert sorted(late[0], key=repr) == sorted(late[1], key=repr)
            assert [at for _, at, _ in late[0]] == [at for _, at, _ in late[1]]
            times = [[at for tag, _, at, _ in each if tag == "told"] for each in found]
            assert times[0] == times[1]
        elif isinstance(act, list):  # those of records come in the order of these
            assert [g for g in found[0] if g[0] == "told"] == [
                g for g in found[1] if g[0] == "told"
            ]
        elif act[0] == "watermark":  # and those of timers in that of time
            due = [value[2] for tag, _, _, value in found[0] if value[0] in ("once", "again")]
            assert due == [v[2] for tag, _, _, v in found[1] if v[0] in ("once", "again")]
        for each in (one, many):
            assert each.state_rows == whole.state_rows
            assert each.output_watermark == whole.output_watermark
            assert each.next_deadline == whole.next_deadline
            if looks:  # which tells workers of the watermark
                hold, wanted = each.hold(), whole.hold()
                assert (hold is None) == (wanted is None)
                assert hold is None or wanted is None or hold.at == wanted.at
        if not survives[turn % len(survives)]:
            for operator, store in zip((one, many), stores, strict=True):
                committed(operator, store)
            assert list(stores[0].scan(b"", END)) == list(stores[1].scan(b"", END))
            one, many = parted(windowed, order, 1), parted(windowed, order, other)
            one.restore(stores[0])
            many.restore(stores[1])
            count, other = other, count
            assert (many.watermark, many.clock) == (whole.watermark, whole.clock)
            assert many.output_watermark == whole.output_watermark
    assert one.state_rows == many.state_rows == 0
    for operator, store in zip((one, many), stores, strict=True):
        committed(operator, store)
        assert len(list(store.scan(b"", END))) == 1 + PARTS  # the facts, and those of each part


def test_workers_are_told_of_a_watermark_when_something_is_due() -> None:
    """Else with what they are asked for next: an advance is a round trip less."""
    workers = SimulatedWorkers(2)

    def asked() -> list[str]:
        return [next(iter(call.args[1].values()))[0] for call in ask.call_args_list]

    class Silent:
        alarm = lw.timer()

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.alarm.set(ctx.time + 10, output_time=ctx.time)

        def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
            ctx.emit({"watermark": ctx.watermark})

    keys = (Column.of_objects(["a", "b"]),)
    operator = PartedProcess(Computed(Silent(), None, ("main",)), 0, workers)
    with mock.patch.object(workers, "ask", wraps=workers.ask) as ask:
        operator.step(WatermarkAdvance(5))
        assert (asked(), operator.output_watermark, operator.hold()) == ([], 5, None)
        operator.step(Bundle(np.array([20, 30]), keys, {}))
        operator.step(WatermarkAdvance(25))
        assert (asked(), operator.output_watermark) == (["take"], 20)
        hold = operator.hold()
        assert hold is not None
        assert (hold.at, asked()) == (20, ["take", "stand"])
        assert (operator.hold(), asked()) == (hold, ["take", "stand"])
        output = operator.step(WatermarkAdvance(30))
        assert output.emitted["main"].to_list() == [{"watermark": 30}]
        assert (asked()[2:], operator.output_watermark) == (["advance"], 30)
        operator.step(WatermarkAdvance(39))
        assert asked()[3:] == []
        operator.step(WatermarkAdvance(40))
        assert (asked()[3:], operator.state_rows) == (["advance"], 0)
        assert operator.output_watermark == 40


class Echo:
    """Emits what it gets, with the last record before; refuses some; counts when it is quiet."""

    last = lw.value_cell()
    quiet = lw.timer()

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        if record["n"] % 5 == 4:
            ctx.late(f"not {record['n']}")
            return
        ctx.emit({"got": record, "last": ctx.last.get()})
        ctx.last.set(record["n"])
        ctx.quiet.set(ctx.time + 6)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        ctx.emit({"quiet": ctx.last.get(), "watermark": ctx.watermark})
        ctx.last.clear()


KEYS: dict[str, Any] = {
    "int": lambda at: Column.from_arrow(pa.array(at, pa.int64())),
    "text": lambda at: Column.from_arrow(pa.array([f"k{n}" for n in at])),
    "float": lambda at: Column.from_arrow(pa.array([n + 0.5 for n in at])),
    "objects": lambda at: Column.of_objects([n if n % 2 else f"k{n}" for n in at]),
}
VALUES: dict[str, Any] = {
    "a": lambda at: Column.from_arrow(pa.array([None if n % 3 else n for n in at], pa.int64())),
    "b": lambda at: Column.of_objects([[n] for n in at]),
    "c": lambda at: Column.from_arrow(pa.array([n / 2 for n in at])),
}
BUNDLES = st.lists(
    st.tuples(
        st.sampled_from(sorted(KEYS)),
        st.lists(st.sampled_from(sorted(VALUES)), unique=True, max_size=3),
        st.lists(st.tuples(st.integers(0, 40), st.integers(0, 9)), min_size=1, max_size=6),
        st.booleans(),
    ),
    max_size=6,
)


def bundle_of(number: int, keys: str, names: list[str], rows: list[tuple[int, int]]) -> Bundle:
    at = [key for _, key in rows]
    values = {name: VALUES[name](at) for name in names}
    values["n"] = Column.from_arrow(pa.array([10 * number + nth for nth in range(len(rows))]))
    return Bundle(np.array([time for time, _ in rows]), (KEYS[keys](at),), values)


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@examples(3, is_core=True)
@given(
    bundles=BUNDLES,
    count=st.integers(2, 8),
    other=st.integers(1, 8),
    to=st.lists(st.integers(0, 50), min_size=1, max_size=3),
)
def test_columns_and_types_of_keys_that_differ_among_bundles(
    order: Order, bundles: list[Any], count: int, other: int, to: list[int]
) -> None:
    """A worker sees some of the bundles only. Each record has the columns that it came with."""
    work = Computed(Echo(), None, ("main",), order=order)

    def parts(count: int) -> PartedProcess:
        made = PartedProcess(work, 0, SimulatedWorkers(count))
        made.keep_in_store(StoredPlace(STAGE, 0, KEY_GROUPS))
        return made

    whole = ProcessOperator(work.process, order=order)
    one, many = parts(1), parts(count)
    stores = [MemoryStore(MemoryContents()) for _ in range(2)]
    came: dict[int, dict[str, Any]] = {}
    steps: list[tuple[Any, bool]] = []
    for number, (keys, names, rows, survives) in enumerate(bundles):
        bundle = bundle_of(number, keys, names, rows)
        came.update({row["n"]: row for row in _rows(bundle)})
        steps += [(bundle, survives), (WatermarkAdvance(to[number % len(to)] + number), True)]
    for step, survives in [*steps, (EndOfInput(), True)]:
        found = [_told(operator.step(step)) for operator in (whole, one, many)]
        assert found[1] == found[2]
        for at in range(2):
            assert sorted(found[0][at], key=repr) == sorted(found[1][at], key=repr)
        for _, _, value in found[0][0]:
            if "got" in value:
                assert value["got"] == came[value["got"]["n"]]
        if not survives:
            for operator, store in zip((one, many), stores, strict=True):
                committed(operator, store)
            assert list(stores[0].scan(b"", END)) == list(stores[1].scan(b"", END))
            one, many, count, other = parts(1), parts(other), other, count
            one.restore(stores[0])
            many.restore(stores[1])
    assert one.state_rows == many.state_rows == whole.state_rows == 0


def _rows(bundle: Bundle) -> list[dict[str, Any]]:
    columns = [column.to_list() for column in bundle.values.values()]
    return [dict(zip(bundle.values, row, strict=True)) for row in zip(*columns, strict=True)]


def _told(output: Any) -> tuple[list[Any], list[Any], Any]:
    """What was emitted (key, time, value), what was late, and the types of keys."""
    emitted = output.emitted.get("main")
    given: list[Any] = []
    types = None
    if emitted is not None:
        (column,) = emitted.keys
        types = column.type, column.data.dtype
        keys = [(type(key), key) for key in column.to_list(exact=True)]
        given = list(zip(keys, emitted.times.tolist(), emitted.to_list(), strict=True))
    late = [] if output.late is None else list(output.late.all_details())
    if output.late_of is not None:
        late = list(zip(late, _rows(output.late_of), strict=True))
    return given, late, types


class Gaps:
    """Tells of each hook, with the watermark that it sees; timers set those of both domains."""

    count = lw.value_cell(0)
    soon = lw.timer()
    wall = lw.timer(domain="processing")

    def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
        assert ctx.window is not None
        ctx.count.set(ctx.count.get() + 1)
        ctx.soon.set(min(ctx.time + record["after"], ctx.window.end))
        if record["after"] % 3 == 0:
            ctx.wall.set(ctx.clock + record["after"])
        self._tell("record", ctx)

    def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
        count = ctx.count.get() + 1
        ctx.count.set(count)
        if name == "soon" and count < 6:
            ctx.wall.set(ctx.clock)
        if name == "wall" and count < 6 and not ctx.ended:
            assert ctx.window is not None
            ctx.soon.set(max(0, ctx.window.start - 1))
        self._tell(name, ctx)

    def on_window_expired(self, ctx: lw.ProcessContext) -> None:
        self._tell("expired", ctx)

    @staticmethod
    def _tell(what: str, ctx: lw.ProcessContext) -> None:
        seen = None if ctx.ended else ctx.watermark
        told = {"what": what, "count": ctx.count.get(), "watermark": seen}
        ctx.emit(told, time=max(1, ctx.time, 100 if ctx.ended else ctx.watermark))


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@examples(2, is_core=True)
@given(
    bundles=st.lists(
        st.tuples(
            st.lists(
                st.tuples(st.integers(0, 24), st.integers(0, 9), st.integers(0, 5)),
                min_size=1,
                max_size=8,
            ),
            st.integers(0, 28),
            st.integers(0, 9),
        ),
        max_size=4,
    ),
    count=st.integers(2, 8),
)
def test_windows_with_gaps_and_timers_that_set_others(
    order: Order, bundles: list[Any], count: int
) -> None:
    """Also at the end of the input, where the last record may be in no window."""
    windowing = Windowing(windows=lw.SlidingWindows("3us", "10us"))
    work = Computed(Gaps(), windowing, ("main",), order=order)
    operators: list[Any] = [
        ProcessOperator(work.process, windowing=windowing, order=order),
        PartedProcess(work, 0, SimulatedWorkers(1)),
        PartedProcess(work, 0, SimulatedWorkers(count)),
    ]
    steps: list[Any] = [WatermarkAdvance(0), ClockAdvance(0)]
    for rows, to, clock in bundles:
        times, keys, after = (np.array(column) for column in zip(*rows, strict=True))
        keyed = (Column.of_objects([f"k{key}" for key in keys]),)
        steps += [Bundle(times, keyed, {"after": Column(after)})]
        steps += [WatermarkAdvance(to), ClockAdvance(clock)]
    for step in [*steps, EndOfInput()]:
        found = [_told(operator.step(step))[:2] for operator in operators]
        assert found[1] == found[2]
        for at in range(2):
            assert sorted(found[0][at], key=repr) == sorted(found[1][at], key=repr)


@pytest.mark.parametrize("order", ["arrival", "event_time"])
@pytest.mark.parametrize("first", ["soon", "wall"])
def test_timers_of_many_keys_at_one_time_each_set_one_of_the_other_domain(
    order: Order, first: str
) -> None:
    class Both:
        soon = lw.timer()
        wall = lw.timer(domain="processing")

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            (ctx.soon if first == "soon" else ctx.wall).set(20)

        def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
            ctx.emit([name, ctx.key], time=50)
            if name == first:
                (ctx.wall if first == "soon" else ctx.soon).set(3)

    work = Computed(Both(), None, ("main",), order=order)
    operators = [PartedProcess(work, 0, SimulatedWorkers(count)) for count in (1, 2, 5)]
    keys = (Column.of_objects([f"k{n}" for n in range(24)]),)
    steps: list[Any] = [WatermarkAdvance(0), ClockAdvance(10), Bundle(np.full(24, 1), keys, {})]
    steps += [WatermarkAdvance(30), ClockAdvance(30)]
    found = [[_told(operator.step(step))[0] for step in steps] for operator in operators]
    assert found[0] == found[1] == found[2]
    assert sum(map(len, found[0])) == 48


def test_on_end_comes_after_all_timers_of_the_end_of_time_for_any_number() -> None:
    class Late:
        last = lw.timer()
        cell = lw.value_cell()

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.last.set(END_OF_TIME)
            ctx.cell.set(1)

        def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
            ctx.emit(["timer", ctx.key], time=50)

        def on_end(self, ctx: lw.ProcessContext) -> None:
            ctx.emit(["end", ctx.key], time=50)

    work = Computed(Late(), None, ("main",))
    keys = (Column.of_objects([f"k{n}" for n in range(24)]),)
    found = []
    for count in (1, 2, 5):
        operator = PartedProcess(work, 0, SimulatedWorkers(count))
        operator.step(Bundle(np.full(24, 1), keys, {}))
        found.append(_told(operator.step(EndOfInput()))[0])
    assert found[0] == found[1] == found[2]
    assert [value[0] for _, _, value in found[0]] == ["timer"] * 24 + ["end"] * 24


def test_of_timers_that_hold_the_same_time_one_is_named_whatever_the_number() -> None:
    class Holds:
        soon = lw.timer()

        def on_record(self, record: Any, ctx: lw.ProcessContext) -> None:
            ctx.soon.set(90, output_time=5)

        def on_timer(self, name: str, ctx: lw.ProcessContext) -> None:
            ctx.emit(ctx.key)

    work = Computed(Holds(), None, ("main",))
    keys = (Column.of_objects([f"k{n}" for n in range(24)]),)
    told = set()
    for count in (1, 2, 3, 5, 7):
        operator = PartedProcess(work, 0, SimulatedWorkers(count))
        operator.step(Bundle(np.full(24, 5), keys, {}))
        operator.step(WatermarkAdvance(20))
        told.add(str(operator.hold()))
    assert len(told) == 1


@pytest.mark.parametrize("other", ["text", None])
def test_the_types_of_keys_take_no_memory(other: str | None) -> None:
    kinds = KeyKinds()
    for n in range(500):
        number = Column.from_arrow(pa.array([n]))
        text = pa.nulls(1) if other is None else pa.array([f"k{n}"])
        second = number if other is not None and n % 2 else Column.from_arrow(text)
        kinds.see((number, second))
    assert kinds._keys is not None
    assert len(kinds._keys) < 100
