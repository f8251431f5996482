"""The tree of errors and the shape of their messages."""

from __future__ import annotations

import pickle

import pytest

from lowwater import errors
from lowwater.errors import InvalidArgument, LowwaterError, describe, nearest

TREE = [getattr(errors, name) for name in errors.__all__]


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
