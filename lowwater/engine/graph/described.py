"""Describes a user's object by its arguments, in text that is the same in each process."""

from __future__ import annotations

import functools
import hashlib
import inspect
import re
import zlib
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np

from lowwater.engine.aggregates import AggregateSpec, combiner_of
from lowwater.windows import CustomWindows

_DEEPEST = 6
_LONGEST = 500


def described(value: object) -> str:
    """Return the class and the attributes of an object, and those of the objects in them.

    An object whose class defines ``__repr__`` is described by that. Of functions and classes only
    the location counts. A long text is cut, and then ends in a hash of all of it.

    >>> described({"b", "a"}), described(functools.partial(int, base=2))
    ("{'a', 'b'}", 'partial(builtins.int, base=2)')
    """
    text = _described(value, _DEEPEST)
    if len(text) <= _LONGEST:
        return text
    digest = hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=8).hexdigest()
    return f"{text[:_LONGEST]}… ({len(text)} characters, hash {digest})"


def described_aggregates(aggregates: Mapping[str, AggregateSpec]) -> dict[str, str]:
    """Return the repr of each aggregate; of a user's combiner, its arguments too."""
    return {name: _aggregate(spec) for name, spec in aggregates.items()}


def _aggregate(spec: AggregateSpec) -> str:
    combiner = combiner_of(spec)
    if combiner is None:
        return repr_text(spec)
    return f"{spec.name}({spec.column!r}, combiner={described(combiner)})"


def repr_text(value: object) -> str:
    """Return a repr, without the places of functions: they differ from run to run, or may move."""
    if isinstance(value, CustomWindows):
        options = (f"{each.name}={getattr(value, each.name)!r}" for each in fields(value))
        return without_addresses(f"CustomWindows({', '.join(options)})")
    return without_addresses(repr(value))


def without_addresses(text: str) -> str:
    """Return a repr without addresses, which change from process to process.

    >>> without_addresses("<function total at 0x7f51a03e0>")
    '<function total>'
    """
    return re.sub(r" at 0x[0-9a-fA-F]+", "", text)


def _described(value: Any, depth: int) -> str:
    if depth == 0:
        return "…"
    inner = functools.partial(_described, depth=depth - 1)
    match value:
        case type():
            return f"{value.__module__}.{value.__qualname__}"
        case functools.partial():
            options = [f"{name}={inner(given)}" for name, given in value.keywords.items()]
            return f"partial({', '.join([*map(inner, (value.func, *value.args)), *options])})"
        case dict():
            return f"{{{', '.join(f'{inner(k)}: {inner(v)}' for k, v in value.items())}}}"
        case set() | frozenset():  # their order differs from process to process
            return f"{{{', '.join(sorted(map(inner, value)))}}}"
        case list() | tuple() if type(value) in (list, tuple):
            return f"{type(value).__name__}({', '.join(map(inner, value))})"
        case np.ndarray() if value.dtype != object:  # a repr leaves most of a large one out
            return f"array({value.dtype}, {value.shape}, crc32={zlib.crc32(value.tobytes())})"
    if inspect.isroutine(value):
        return f"{getattr(value, '__module__', None)}.{value.__qualname__}"
    if _tells_its_arguments(type(value)):
        return without_addresses(repr(value))
    attributes = ", ".join(f"{name}={inner(of)}" for name, of in _attributes(value).items())
    return f"{type(value).__qualname__}({attributes})"


def _tells_its_arguments(kind: type) -> bool:
    """Whether a class has a ``__repr__`` of its own, not the one that a dataclass is given."""
    if is_dataclass(kind):
        return not hasattr(kind.__repr__, "__wrapped__")
    return getattr(kind, "__repr__") is not object.__repr__  # noqa: B009  # mypy takes it for bound


def _attributes(value: object) -> Mapping[str, object]:
    if is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in fields(value) if field.repr}
    slots = (name for kind in type(value).__mro__ for name in _slots(kind))
    found = {name: getattr(value, name) for name in slots if hasattr(value, name)}
    return found | getattr(value, "__dict__", {})


def _slots(kind: type) -> tuple[str, ...]:
    slots = kind.__dict__.get("__slots__", ())
    names = (slots,) if isinstance(slots, str) else tuple(slots)
    return tuple(name for name in names if name not in {"__dict__", "__weakref__"})
