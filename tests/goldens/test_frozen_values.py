"""Stored values are the bytes that commit 07f6227b has written: see the README.

``python -m tests.goldens.test_frozen_values`` adds what is new in ``VALUES`` to ``values.json``.
"""

from __future__ import annotations

import json

import pytest

from lowwater.state.codec import decode, encode
from tests.goldens.values import STORED, VALUES


@pytest.mark.parametrize("name", VALUES)
def test_a_stored_value(name: str) -> None:
    data = bytes.fromhex(json.loads(STORED.read_text())[name])
    value = VALUES[name]
    assert encode(value) == data
    found = decode(data)
    assert found == value
    assert shown(found) == shown(getattr(value, "item", lambda: value)()) or name in _OF_NUMPY


def shown(value: object) -> object:
    """Return the repr of a value; of a set those of its items, which have no order."""
    if isinstance(value, (set, frozenset)):
        return type(value), sorted(repr(item) for item in value)
    return repr(value)


_OF_NUMPY = ("nanoseconds", "duration of numpy")
"""What Python has no type for comes back as numpy's."""


def main() -> None:
    """Write the values that are not there yet."""
    stored = json.loads(STORED.read_text()) if STORED.exists() else {}
    stored |= {name: encode(one).hex() for name, one in VALUES.items() if name not in stored}
    STORED.write_text(json.dumps(stored, indent=1) + "\n")


if __name__ == "__main__":
    main()
