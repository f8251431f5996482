"""Tables: rows come and go, columns hold their fill, against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lowwater.errors import InternalError
from lowwater.state.table import Field, RowTable
from lowwater.time import Int64Array


def ints(*values: int) -> Int64Array:
    return np.array(values, dtype=np.int64)


def table() -> RowTable:
    return RowTable(
        [Field("n", np.int64, -7), Field("f", np.float64, 0.5), Field("o", object, None)]
    )


def test_new_rows_hold_the_fill() -> None:
    made = table()
    rows = made.allocate(100)
    assert rows.tolist() == list(range(100))
    assert (made["n"][rows] == -7).all()
    assert (made["f"][rows] == 0.5).all()
    assert made["o"][rows].tolist() == [None] * 100
    assert (len(made), made.capacity >= 100) == (100, True)


def test_a_row_that_is_used_again_holds_the_fill_again() -> None:
    made = table()
    rows = made.allocate(3)
    made["n"][rows] = 1
    made["o"][rows] = "kept alive"
    made.release(rows[1:2])
    assert made["o"][1] is None  # what a released row held can be collected
    assert made.allocate(2).tolist() == [1, 3]
    assert made["n"][:4].tolist() == [1, -7, 1, -7]
    assert made["o"][:4].tolist() == ["kept alive", None, "kept alive", None]


def test_what_the_caller_writes_is_not_filled() -> None:
    table = RowTable([Field("a", np.int64, 7), Field("b", np.int64, 8)])
    rows = table.allocate(3)
    table["a"][rows] = table["b"][rows] = 1
    table.release(rows)
    again = table.allocate(3, ("a",))
    assert table["a"][again].tolist() == [1, 1, 1]
    assert table["b"][again].tolist() == [8, 8, 8]


def test_rows_handed_out_are_the_callers_own() -> None:
    made = table()
    made.release(made.allocate(8))
    rows = made.allocate(4)
    before = rows.copy()
    made.release(rows[:2])
    made.release(made.allocate(6))
    assert (rows == before).all()


@given(st.lists(st.one_of(st.integers(0, 90), st.lists(st.integers(0, 200))), max_size=30))
def test_allocate_and_release(steps: list[int | list[int]]) -> None:
    made = table()
    model: dict[int, int] = {}
    for turn, step in enumerate(steps):
        if isinstance(step, int):
            rows = made.allocate(step)
            assert len(set(rows.tolist())) == step
            assert not model.keys() & set(rows.tolist())
            assert (made["n"][rows] == -7).all()
            made["n"][rows] = turn
            model |= dict.fromkeys(rows.tolist(), turn)
        else:
            live = sorted(model)
            gone = list({live[at % len(live)] for at in step}) if live else []
            made.release(ints(*gone))
            for row in gone:
                del model[row]
        made._check()
        assert len(made) == len(model)
        assert made.live().tolist() == sorted(model)
        assert made["n"][ints(*model)].tolist() == list(model.values())
    assert made.capacity <= 64 + 3 * 90 * (len(steps) + 1)


def test_released_rows_are_used_before_the_table_grows() -> None:
    made = table()
    for _ in range(200):
        made.release(made.allocate(50))
    assert made.capacity == 64


def test_reset_writes_the_fill_of_some_columns() -> None:
    made = table()
    rows = made.allocate(2)
    made["n"][rows] = 1
    made["f"][rows] = 1.0
    made.reset(rows[:1], ["n"])
    assert (made["n"][:2].tolist(), made["f"][:2].tolist()) == ([-7, 1], [1.0, 1.0])
    made.reset(rows)
    assert (made["n"][:2].tolist(), made["f"][:2].tolist()) == ([-7, -7], [0.5, 0.5])


def test_a_column_added_later() -> None:
    made = table()
    rows = made.allocate(70)
    made.add_field(Field("late", np.int32, 4))
    assert made["late"][rows].tolist() == [4] * 70
    rows = made.allocate(100)
    assert made["late"][rows].tolist() == [4] * 100


def test_retyping_keeps_values_and_turns_the_fill() -> None:
    made = table()
    rows = made.allocate(2)
    made["n"][rows[:1]] = 12
    made.retype("n", np.float64, np.inf)
    assert made["n"][rows].tolist() == [12.0, np.inf]
    row = made.allocate(1)
    assert made["n"][row].tolist() == [np.inf]


def test_retyping_to_objects() -> None:
    made = table()
    rows = made.allocate(1)
    made["n"][rows] = 12
    made.retype("n", object, None)
    assert made["n"][rows].tolist() == [12]
    row = made.allocate(1)
    assert made["n"][row].tolist() == [None]


def test_retyping_what_is_not_there() -> None:
    with pytest.raises(InternalError, match="'m'"):
        table().retype("m", np.float64, 0)
