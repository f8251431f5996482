"""``of=``: the rows of one variable of a match, which only measures of matches have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

import lowwater as lw
from lowwater.engine.aggregates.built_in import BuiltIn
from lowwater.pipeline.checks import checked_aggregate, checked_aggregates


def aggregates() -> dict[str, Callable[..., BuiltIn]]:
    """Return the functions that make aggregates: those that take ``where=``."""
    public = {name: getattr(lw, name) for name in dir(lw) if not name.startswith("_")}
    return {
        name: function
        for name, function in public.items()
        if inspect.isfunction(function) and "where" in inspect.signature(function).parameters
    }


class Longest:
    """A combiner: the longest text."""

    def create_accumulator(self) -> str:
        return ""

    def add_input(self, accumulator: str, value: str) -> str:
        return max(accumulator, value, key=len)

    def merge_accumulators(self, accumulators: Any) -> str:
        return max(accumulators, key=len)

    def extract_output(self, accumulator: str) -> str:
        return accumulator


NEEDED: dict[str, tuple[Any, ...]] = {
    "combine": (Longest(),), "max_by": ("v", "n"), "min_by": ("v", "n"), "top": (3,),
    "quantile": ("v", 0.5), "approx_quantile": ("v", 0.5),
}  # fmt: skip


def made(name: str, **options: Any) -> BuiltIn:
    more = {"by": "v"} if name == "top" else {}
    return aggregates()[name](*NEEDED.get(name, ()), **more, **options)


def test_every_aggregate_takes_it() -> None:
    assert len(aggregates()) == 23
    for name, function in aggregates().items():
        kinds = inspect.signature(function).parameters
        assert list(kinds)[-2:] == ["where", "of"]
        assert kinds["of"].kind is kinds["of"].KEYWORD_ONLY
        spec = made(name, of="down")
        assert spec.of == "down"
        assert repr(spec).endswith("of='down')")
        assert (made(name) == spec, made(name, of="down") == spec) == (False, True)
        assert hash(made(name, of="down")) == hash(spec)
        assert made(name).of is None


def test_it_is_written_after_the_condition() -> None:
    spec = lw.min("price", where=lw.col("v") > 1, of="down")
    assert repr(spec) == "min('price', where=col(v).__gt__(1), of='down')"
    assert repr(lw.count(of="up")) == "count(of='up')"


def test_measures_of_matches_have_it() -> None:
    spec = lw.count(of="up")
    assert checked_aggregate("ups", spec, of_match=True) is spec
    named = {"ups": spec, "low": lw.min("price", of="down")}
    assert checked_aggregates((), named, of_match=True) == named
    assert checked_aggregates((lw.sum("v", of="up"),), {}, of_match=True).keys() == {"sum"}


def stream() -> lw.Stream:
    return lw.from_iterable([{"at": 0, "k": "a", "v": 1}], time="at")


def windowed() -> lw.WindowedStream:
    return stream().key_by("k").window(lw.GlobalWindow())


@pytest.mark.parametrize("name", aggregates())
def test_windows_refuse_it(name: str) -> None:
    with pytest.raises(lw.InvalidArgument, match=r"measures of .match\(...\) have"):
        windowed().aggregate(x=made(name, of="down"))


@pytest.mark.parametrize(
    "build",
    [
        lambda: windowed().aggregate(lw.sum("v", of="down")),
        lambda: stream().table(key="k").group_by("v").aggregate(n=lw.count(of="down")),
        lambda: lw.combining_cell(lw.count(of="down")),
    ],
    ids=["unnamed", "table", "cell"],
)
def test_it_is_refused_where_there_is_no_match(build: Callable[[], object]) -> None:
    with pytest.raises(
        lw.InvalidArgument, match=r"of='down'.* measures of .match\(...\)"
    ) as raised:
        build()
    assert raised.value.where in ("aggregate", "combining_cell")
    assert "Leave of= out" in str(raised.value.hint)


@pytest.mark.parametrize("of", ["", 3, True, ("a", "b"), lw.matched("down")])
def test_it_is_a_name(of: Any) -> None:
    with pytest.raises(lw.InvalidArgument, match=r"of=.* a variable of the pattern"):
        lw.count(of=of)
