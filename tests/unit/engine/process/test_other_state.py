"""What a process makes of the stored state of another one."""

from __future__ import annotations

from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.process import ProcessOperator
from lowwater.state.key_layout import StoredPlace
from tests.unit.engine.process.process_steps import FIXED, SESSIONS, Driven, process, records


@pytest.mark.parametrize(
    ("members", "message"),
    [
        ({}, "has the cell 'a'"),
        ({"a": lw.list_cell()}, r"has the cell 'a' \(value\)"),
        ({"a": lw.value_cell(dtype="int64")}, "has the cell 'a'"),
        (
            {"a": lw.value_cell(), "b": lw.timer(domain="processing"), "on_timer": print},
            "timer 'b'",
        ),
    ],
)
def test_state_of_other_declarations_is_refused(members: Any, message: str) -> None:
    driven = Driven(process(a=lw.value_cell(), b=lw.timer(), on_timer=print))
    driven.save()
    other = ProcessOperator(process(**members))
    other.keep_in_store(StoredPlace("stage 1", 0, 4))
    with pytest.raises(lw.StateError, match=message):
        other.restore(driven.store)


def test_cells_may_be_added() -> None:
    def sets(self: Any, record: Any, ctx: Any) -> None:
        ctx.a.set(record["t"])

    def tells(self: Any, record: Any, ctx: Any) -> None:
        ctx.emit([ctx.a.get(), ctx.new.get()])

    driven = Driven(process(a=lw.value_cell(), on_record=sets))
    driven.take(*records(("k", 1)))
    driven.save()
    driven.operator = ProcessOperator(
        process(new=lw.value_cell(5), a=lw.value_cell(), on_record=tells)
    )
    driven.operator.keep_in_store(StoredPlace("stage 1", 0, 4))
    assert driven.operator.restore(driven.store)
    assert driven.take(*records(("k", 2))) == [("k", 2, [1, 5])]


def test_state_of_other_windows_is_refused() -> None:
    driven = Driven(process(), FIXED)
    driven.save()
    other = ProcessOperator(process(), windowing=SESSIONS)
    other.keep_in_store(StoredPlace("stage 1", 0, 4))
    with pytest.raises(lw.StateError, match="stored state is of windows="):
        other.restore(driven.store)


def test_state_of_one_variant_is_no_state_of_the_other() -> None:
    driven = Driven(process())
    driven.take(*records(("k", 1)))
    driven.save()
    other = ProcessOperator(process(on_record=None, on_records=print))
    other.keep_in_store(StoredPlace("stage 1", 0, 4))
    with pytest.raises(lw.StateError):
        other.restore(driven.store)
