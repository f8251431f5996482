"""S-B1: a cell and the tag of a timer refuse what cannot be stored where it is written.

So a process does the same with and without a state directory, and a hook may catch the error.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.records.storable import fault_of
from lowwater.errors import DataError, InvalidArgument
from lowwater.io.sinks import Callback
from tests.poison.poison_values import VALUES
from tests.unit.engine.process.process_steps import Driven, process, records


class Last(lw.Combiner):
    """Holds the last value, whatever it is."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, accumulator: Any, value: Any) -> Any:
        return value

    def merge_accumulators(self, accumulators: Any) -> Any:
        return list(accumulators)[-1]

    def extract_output(self, accumulator: Any) -> Any:
        return None if accumulator is None else "one"


WRITES: dict[str, tuple[Any, Callable[[Any, Any], Any]]] = {
    "value": (lw.value_cell(), lambda cell, value: cell.set(value)),
    "list": (lw.list_cell(), lambda cell, value: cell.append(value)),
    "many": (lw.list_cell(), lambda cell, value: cell.extend([1, value])),
    "map_value": (lw.map_cell(), lambda cell, value: cell.__setitem__("a", value)),
    "map_key": (lw.map_cell(), lambda cell, value: cell.__setitem__(value, "a")),
    "set": (lw.set_cell(), lambda cell, value: cell.add(value)),
    "ordered": (lw.ordered_cell(), lambda cell, value: cell.add(5, value)),
    "combining": (lw.combining_cell(Last()), lambda cell, value: cell.add(value)),
    "tagged": (lw.timer(), lambda timer, tag: timer.set(5, tag=tag)),
}
HASHED = {"map_key", "set", "tagged"}


@pytest.mark.parametrize("odd", VALUES)
def test_what_a_cell_takes_can_be_stored(odd: str) -> None:
    """A process has written a sound value, an odd one and another sound one to each."""
    errors: dict[str, list[Exception]] = {place: [] for place in WRITES}

    def on_record(self: Any, record: Any, ctx: Any) -> None:
        value = VALUES[odd] if record["t"] == 1 else f"sound {record['t']}"
        for place, (_, write) in WRITES.items():
            try:
                write(getattr(ctx, place), value)
            except Exception as error:  # whatever the class of the value raises
                errors[place].append(error)

    cells = {place: declared for place, (declared, _) in WRITES.items()}
    driven = Driven(process(**cells, on_record=on_record, on_timer=lambda self, name, ctx: None))
    driven.take(*records(("a", 0), ("a", 1), ("a", 2)))
    driven.reborn()
    is_sound = fault_of(VALUES[odd], wide=True) is None
    for place in errors.keys() - HASHED:
        if is_sound:
            assert errors[place] == [], place
        elif place != "combining":  # a long accumulator is looked at only when it is stored
            (error,) = errors[place]
            assert isinstance(error, InvalidArgument), place
            assert f"cannot go into the cell '{place}'" in str(error)


@pytest.mark.parametrize("place", WRITES)
def test_a_value_that_is_refused_changes_nothing(place: str) -> None:
    declared, write = WRITES[place]
    held: list[Any] = []

    def on_record(self: Any, record: Any, ctx: Any) -> None:
        with pytest.raises(InvalidArgument):
            write(ctx.cell, Fraction(1, 3))
        held.append(len(ctx.cell) if hasattr(ctx.cell, "__len__") else ctx.cell.get())

    driven = Driven(
        process(cell=declared, on_record=on_record, on_timer=lambda self, name, ctx: None)
    )
    driven.take(*records(("a", 0)))
    assert held in ([None], [0])
    driven.reborn()


@pytest.mark.parametrize("state", [False, True])
@pytest.mark.parametrize("value", [Fraction(1, 3), "\ud800", object(), [1, {"a": object()}]])
def test_a_run_stops_at_the_hook_that_wrote_it(tmp_path: Any, state: bool, value: Any) -> None:
    class Keeps:
        cell = lw.value_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            ctx.cell.set(value if record["n"] == 2 else record["n"])
            ctx.emit(record["n"])

    rows = [{"t": n, "k": "a", "n": n} for n in range(4)]
    lines = tmp_path / "in.jsonl"
    lines.write_text("".join(json.dumps(row) + "\n" for row in rows))
    stream = lw.read_jsonl(str(lines), time="t", unit="s").key_by("k").process(Keeps())
    options = {"state": tmp_path / "state"} if state else {}
    with pytest.raises((InvalidArgument, DataError), match="cannot go into the cell 'cell'"):
        stream.write_to(Callback(lambda delivery: None)).run(progress=False, **options)


def test_a_value_changed_in_place_may_be_set_again_at_no_cost() -> None:
    class Grows:
        cell = lw.value_cell()

        def on_record(self, record: Any, ctx: Any) -> None:
            held = ctx.cell.get() or []
            held.append(record["t"])
            ctx.cell.set(held)
            ctx.emit(len(held))

    driven = Driven(Grows())
    given = driven.take(*records(*(("a", at) for at in range(3))))
    driven.reborn()
    given += driven.take(*records(("a", 3)))
    assert [value for _, _, value in given] == [1, 2, 3, 4]
