"""Stored formats: another version is refused, with what to do."""

from __future__ import annotations

import pytest

from lowwater.errors import StateError
from lowwater.state.formats import FORMATS, check_format, damaged, decoding


@pytest.mark.parametrize("name", FORMATS)
def test_the_version_that_is_written_is_read(name: str) -> None:
    check_format(name, FORMATS[name])


@pytest.mark.parametrize("found", [0, 99, None, "1", 3.0])
def test_another_version_is_refused(found: object) -> None:
    said = (
        f"in layout {found} of window state; this lowwater reads layout {FORMATS['window state']}"
    )
    with pytest.raises(StateError, match=said) as refused:
        check_format("window state", found, where="here")
    assert "python -m lowwater state reset --yes here" in (refused.value.hint or "")


def test_any_error_while_decoding_is_damage() -> None:
    with pytest.raises(StateError, match=r"a row cannot be read: KeyError: 'x'"), decoding("a row"):
        raise KeyError("x")
    error = damaged("a row", "it is empty.")
    with pytest.raises(StateError) as raised, decoding("another"):
        raise error
    assert raised.value is error
