"""The tree of errors and the shape of their messages."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from inspect import signature
from typing import Any

import pytest

from lowwater import errors
from lowwater.errors import (
    InvalidArgument,
    LowwaterError,
    LowwaterWarning,
    constructor,
    describe,
    explained,
    nearest,
)

KINDS = [getattr(errors, name) for name in errors.__all__]
TREE = [kind for kind in KINDS if not issubclass(kind, Warning)]
WARNINGS = [kind for kind in KINDS if issubclass(kind, Warning)]


@pytest.mark.parametrize("kind", TREE)
def test_every_error_is_a_lowwater_error(kind: type[LowwaterError]) -> None:
    assert issubclass(kind, LowwaterError)
    assert kind.__doc__


def test_a_wrong_argument_is_a_value_error_too() -> None:
    assert issubclass(InvalidArgument, ValueError)


def test_a_message_says_what_where_and_how_to_mend_it() -> None:
    error = InvalidArgument("size='2x' (str) is no size", where="$.window", hint="Use '2s'")
    assert str(error) == "size='2x' (str) is no size (at $.window). Use '2s'"
    assert (error.what, error.where, error.hint) == (
        "size='2x' (str) is no size",
        "$.window",
        "Use '2s'",
    )
    assert str(InvalidArgument("what")) == "what"
    assert str(InvalidArgument("what", hint="Do")) == "what. Do"


@pytest.mark.parametrize("kind", TREE)
def test_errors_cross_process_boundaries(kind: type[LowwaterError]) -> None:
    error = kind("what", where="here", hint="Do")
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is kind
    assert str(twin) == str(error)
    assert (twin.what, twin.where, twin.hint) == ("what", "here", "Do")


def test_describe_names_value_and_type() -> None:
    assert describe("size", 1.5) == "size=1.5 (float)"


def test_nearest_names_the_close_one_or_all() -> None:
    assert nearest("delya", ["delay", "key"]) == "Did you mean 'delay'?"
    assert nearest("zzz", ["b", "a"]) == "Known: 'a', 'b'"


@pytest.mark.parametrize("kind", WARNINGS)
def test_a_warning_names_the_line_of_the_user(kind: type[LowwaterWarning]) -> None:
    with pytest.warns(
        kind, match=r"^delay=3 \(int\) is 3 µs \(at \$\.delay\)\. Write '3s'$"
    ) as found:
        errors.warn(kind, "delay=3 (int) is 3 µs", where="$.delay", hint="Write '3s'")
    assert found[0].filename == __file__
    assert issubclass(kind, LowwaterWarning)


def test_an_extra_that_is_missing() -> None:
    with pytest.raises(InvalidArgument, match=r"this needs no_such, .*lowwater\[odd\]"):
        errors.load_extra("no_such.module", extra="odd", purpose="this")
    assert errors.load_extra("json.decoder", extra="odd", purpose="this").JSONDecoder


@explained(length="size", hop="period")
def _sliding(size: int, *, period: int, offset: int = 0) -> int:
    return size + period + offset


@pytest.mark.parametrize(
    ("args", "kwargs", "says"),
    [
        ((1,), {"hop": 2}, "there is no argument 'hop' (at _sliding). Did you mean 'period'?"),
        ((1,), {"perod": 2}, "Did you mean 'period'?"),
        ((1,), {}, "the argument 'period' is missing (at _sliding). Write _sliding(size=..., "),
        ((), {"period": 2}, "the argument 'size' is missing"),
        ((1, 2), {}, "2 arguments were given by position, and only 1 may be"),
    ],
)
def test_a_call_that_does_not_fit_is_explained(
    args: tuple[Any, ...], kwargs: dict[str, Any], says: str
) -> None:
    with pytest.raises(InvalidArgument) as raised:
        _sliding(*args, **kwargs)
    assert says in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_type_error_from_inside_is_left_alone() -> None:
    assert _sliding(1, period=2) == 3
    with pytest.raises(TypeError, match="unsupported operand"):
        _sliding(1, period="2")  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="multiple values"):  # Python says it well
        _sliding(1, size=1, period=2)  # type: ignore[misc]


def test_a_constructor_is_explained_and_still_the_class() -> None:
    @constructor(length="size")
    @dataclass(frozen=True, slots=True)
    class Windows:
        size: int

    assert Windows(3) == Windows(size=3)
    assert signature(Windows).parameters["size"].annotation == "int"
    with pytest.raises(InvalidArgument, match=r"'length' \(at Windows\). Did you mean 'size'"):
        Windows(length=3)  # type: ignore[call-arg]
