"""``explode``: a record for each item of a list (S-B1)."""

from __future__ import annotations

from collections import namedtuple
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import lowwater as lw
from lowwater.engine.records.batch import Records
from lowwater.engine.records.explode import Explode
from lowwater.engine.records.stateless import schema_after

Point = namedtuple("Point", "x y")  # one without types, as users have them


class Loud(list[int]):
    """A list that cannot be read."""

    def __iter__(self) -> Any:
        raise RuntimeError("no")

    def __repr__(self) -> str:
        raise RuntimeError("no")


def exploded(records: Records) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Explode("l").apply(records).records.rows()
    return rows


ARROW: dict[str, tuple[pa.DataType, list[Any]]] = {
    "list": (pa.list_(pa.int64()), [[1, 2], None, [], [3]]),
    "large_list": (pa.large_list(pa.string()), [["a", None], None, [], ["\u00e9"]]),
    "fixed_size_list": (pa.list_(pa.int32(), 2), [[1, 2], None, [None, 3]]),
    "list_view": (pa.list_view(pa.int8()), [[1], None, [2, 3]]),
    "list of lists": (pa.list_(pa.list_(pa.int8())), [[[1], None, []], None, [[2, 3]]]),
    "list of text": (pa.list_(pa.dictionary(pa.int8(), pa.string())), [["a", "b"], ["a"]]),
    "nulls": (pa.null(), [None, None]),
    "empty": (pa.list_(pa.int64()), []),
}


@pytest.mark.parametrize("name", ARROW)
def test_lists_of_arrow(name: str) -> None:
    kind, lists = ARROW[name]
    batch = pa.record_batch(
        {"n": range(len(lists)), "l": pa.array(lists, kind), "s": ["x"] * len(lists)}
    )
    for start in range(len(lists)):
        wanted = [
            {"n": n, "l": item, "s": "x"}
            for n, items in list(enumerate(lists))[start:]
            for item in items or ()
        ]
        done = Explode("l").apply(Records.from_arrow(batch.slice(start)))
        assert done.records.rows() == wanted
        assert done.rows is not None
        assert (done.rows + start).tolist() == [one["n"] for one in wanted]
        assert list(done.records.columns) == ["n", "l", "s"]


def test_nulls_with_items_beneath_them_have_none() -> None:
    mask = pa.array([False, True, False])
    flat = pa.array([1, 2, 3, 4, 5, 6])
    for lists in (
        pa.ListArray.from_arrays(pa.array([0, 2, 4, 6]), flat, mask=mask),
        pa.FixedSizeListArray.from_arrays(flat, 2, mask=mask),
    ):
        batch = pa.record_batch({"l": lists, "n": [0, 1, 2]})
        assert [one["l"] for one in exploded(Records.from_arrow(batch))] == [1, 2, 5, 6]


def test_lists_of_python_keep_what_their_items_are() -> None:
    items = [1, 2**80, 2.5, None, "\ud800", [1], {"a": 1}, Point(1, 2), float("inf")]
    stream = lw.from_iterable([{"at": 0, "l": items}, {"at": 0, "l": (7,)}], time="at")
    seen: list[Any] = []

    def note(record: Any) -> Any:
        seen.append(record["l"])
        return {"at": 0, "n": 1}

    assert len(list(stream.explode("l").map(note).run())) == 10
    assert seen == [*items, 7]


def test_what_is_not_a_list_is_a_dead_letter_alone() -> None:
    values = [[1], "ab", 7, None, {"a": 1}, {1, 2}, Point(1, 2), b"x", Loud([1]), (2,), [], [None]]
    values += [np.array([3, 4]), np.array(5), float("nan")]
    rows = [{"at": 0, "n": n, "l": value} for n, value in enumerate(values)]
    for size in (1, 2, 100):
        seen: list[lw.ErrorRecord] = []
        stream = lw.from_iterable(rows, time="at").explode("l")
        made = stream.run(on_dead_letter=seen.append, bundle_size=size)
        assert [(one.value["n"], one.value["l"]) for one in made] == [
            (0, 1), (9, 2), (11, None), (12, 3), (12, 4),
        ]  # fmt: skip
        assert {one.reason for one in seen} == {"not_a_list"}
        assert [one.record["n"] for one in seen] == [1, 2, 4, 5, 6, 7, 8, 13, 14]
        assert seen[0].detail == "l='ab' (str) is not a list"


def test_a_run_stops_for_what_is_not_a_list_and_says_what_to_do() -> None:
    stream = lw.from_iterable([{"at": 0, "l": "ab"}], time="at").explode("l")
    with pytest.raises(lw.DataError, match=r"not_a_list\): l='ab' \(str\) is not a list"):
        list(stream.run(on_error="raise"))
    with pytest.raises(lw.DataError, match=r"not_a_list.*\"l\": \[row\[\"l\"\]\]"):
        stream.collect()


def test_a_column_that_only_some_records_have_is_null_in_the_others() -> None:
    rows: list[dict[str, Any]] = [{"at": 0}, {"at": 0, "l": [1, 2]}]
    for size in (1, 2):
        made = lw.from_iterable(rows, time="at").explode("l").run(bundle_size=size)
        assert [one.value["l"] for one in made] == [1, 2]
    with pytest.raises(lw.InvalidArgument, match=r"no column 'items' \(at explode\)"):
        list(lw.from_iterable(rows, time="at").explode("items").run())


def table(**columns: Any) -> pa.Table:
    at = pa.array([0], pa.timestamp("us", "UTC"))
    return pa.table({"at": at, "tags": pa.array([["a"]]), "n": [1], **columns})


def test_a_mistake_is_refused_when_the_pipeline_is_built() -> None:
    stream = lw.from_arrow(table(), time="at")
    with pytest.raises(lw.InvalidArgument, match=r"no column 'tag' \(at explode\).*'tags'"):
        stream.explode("tag")
    with pytest.raises(lw.InvalidArgument, match=r"the column 'n' is int64, not a list"):
        stream.explode("n")
    with pytest.raises(lw.InvalidArgument, match=r"the column 'tags' is string, not a list"):
        stream.explode("tags").explode("tags")
    with pytest.raises(lw.InvalidArgument, match="'at' has the event times"):
        stream.explode("at")
    with pytest.raises(lw.InvalidArgument, match=r"column=\['tags'\] .* is not the name"):
        stream.explode(["tags"])  # type: ignore[arg-type]
    with pytest.raises(lw.InvalidArgument, match="Did you mean 'column'"):
        stream.explode(columns="tags")  # type: ignore[call-arg]
    came = lw.from_arrow(
        table(came=pa.array([0], pa.timestamp("us", "UTC"))),
        time="at",
        clock=lw.ArrivalClock("came"),
    )
    with pytest.raises(lw.InvalidArgument, match="'came' has the times of arrival"):
        came.explode("came")
    with pytest.raises(lw.InvalidArgument, match="explode comes after deduplicate"):
        stream.deduplicate(id="n", within="1m").explode("tags")
    with pytest.raises(AttributeError, match=r"In lowwater it is \.explode"):
        stream.unnest("tags")  # type: ignore[attr-defined]


def test_the_type_of_the_items_is_known() -> None:
    for kind in (pa.list_(pa.int8()), pa.large_list(pa.int8()), pa.list_(pa.int8(), 3)):
        schema = pa.schema({"a": pa.string(), "l": kind, "b": pa.bool_()})
        wanted = pa.schema({"a": pa.string(), "l": pa.int8(), "b": pa.bool_()})
        assert schema_after(Explode("l"), schema) == wanted
    assert Explode("l").names_after(("a", "l")) == ("a", "l")
    assert Explode("l").names_after(None) is None
    assert repr(Explode("l")) == "Explode(column='l', position=None)"


def test_maps_are_no_lists() -> None:
    kind = pa.map_(pa.string(), pa.int64())
    maps = pa.array([[("a", 1), ("b", 2)], None], kind)
    done = Explode("l").apply(Records.from_arrow(pa.record_batch({"l": maps})))
    assert done.records.length == 0
    assert "not_a_list" in repr(done.rejected)
    assert len(done.rejected) == 1


def test_places_of_items() -> None:
    rows = [{"at": n, "n": n, "l": items} for n, items in enumerate([[5, 6], [], None, (7,), 8])]
    stream = lw.from_iterable(rows, time="at", unit="s").explode("l", position="place")
    assert "explode('l', position='place')" in repr(stream)
    found = stream.collect(on_error="dead_letter").elements()
    assert [(one.value["l"], one.value["place"]) for one in found] == [(5, 0), (6, 1), (7, 0)]
    schema = pa.schema({"l": pa.list_(pa.string()), "n": pa.int64()})
    wanted = pa.schema({"l": pa.string(), "n": pa.int64(), "place": pa.int64()})
    assert schema_after(Explode("l", "place"), schema) == wanted
    assert schema_after(Explode("l", "n"), schema) == wanted.remove(2)
    assert Explode("l", "place").names_after(("l",)) == ("l", "place")
    for name in ("l", "at", "", 3, "__lw_x"):
        with pytest.raises(lw.InvalidArgument, match="position="):
            lw.from_iterable(rows, time="at", unit="s").explode("l", position=name)  # type: ignore[arg-type]


def test_the_outline_has_the_step() -> None:
    assert "explode('tags')" in repr(lw.from_arrow(table(), time="at").explode("tags"))


def words() -> lw.Stream:
    rows = [{"at": n, "n": n, "words": list("abcdefghij"[: n % 7])} for n in range(20_000)]
    return lw.from_iterable(rows, time="at", unit="s").explode("words")


def test_one_large_bundle_has_what_small_ones_have() -> None:
    counted = words().key_by("words").window(lw.FixedWindows("1h")).aggregate(n=lw.count())
    large, small = (
        [(one.key, one.window, one.values) for one in counted.collect(bundle_size=size).panes]
        for size in (20_000, 1_000)
    )
    assert large == small
    one, many = (words().run(bundle_size=size) for size in (20_000, 1_000))
    assert [o.value for o in one] == [o.value for o in many]


def test_a_record_is_told_what_became_of_it() -> None:
    rows = [{"at": n, "n": n, "l": items} for n, items in enumerate([[5, 6], [], None, 7])]
    stream = lw.from_iterable(rows, time="at", unit="s").explode("l")
    counted = stream.key_by("l").window(lw.FixedWindows("1m")).aggregate(c=lw.count())
    result = counted.collect(trace=True, on_error="dead_letter")
    assert [one.key for one in result.why({"n": 0}).elements] == [5, 6]
    assert "dropped it" in result.why({"n": 1})
    assert "not a list" in result.why({"n": 3})
    (step,) = next(iter(result.metrics.stages.values())).steps
    assert (step.step, step.taken, step.passed, step.filtered, step.dead, step.made) == (
        "explode", 4, 3, 0, 1, 2,
    )  # fmt: skip
