"""Values as Python code, with the imports that the code needs."""

from __future__ import annotations

import ast
import datetime
import math
import sys
from collections.abc import Mapping
from decimal import Decimal
from typing import Any, Final, assert_never, final
from uuid import UUID
from zoneinfo import ZoneInfo

import numpy as np

from lowwater.errors import InvalidArgument
from lowwater.time import END_OF_TIME, START_OF_TIME, Instant
from lowwater.windows import Window

_PLAIN: Final = (type(None), bool, int, str, bytes)
_DATES: Final = (datetime.date, datetime.datetime, datetime.time, datetime.timedelta)
_LW = "import lowwater as lw"
# The front door, whose names code may have: loaded before any of its rooms, and none may import it.
_lowwater = sys.modules["lowwater"]


@final
class Literals:
    """Writes values as code, and collects the imports.

    ``imports`` has the lines that what was written so far needs.
    """

    def __init__(self) -> None:
        self.imports: set[str] = set()

    def value(self, value: Any) -> str:
        """Return the code of a value; evaluated, it is equal to it, or a NaN as it is.

        Raises:
            InvalidArgument: A value has no code.
        """
        kind = type(value)
        if kind in _PLAIN:
            return repr(value)
        if kind is float:
            return repr(value) if math.isfinite(value) else f"float({str(value)!r})"
        if kind in (list, tuple, set, frozenset):
            return self._sequence(value)
        if isinstance(value, Mapping):
            items = (f"{self.value(k)}: {self.value(v)}" for k, v in value.items())
            return f"{{{', '.join(items)}}}"
        if kind is Instant:
            self.imports.add(_LW)
            ends = value in (START_OF_TIME, END_OF_TIME) or str(value).endswith("us")
            return f"lw.Instant({int(value)})" if ends else f"lw.instant({str(value)!r})"
        if kind is Window:
            self.imports.add(_LW)
            return f"lw.Window({self.value(value.start)}, {self.value(value.end)})"
        if kind in (Decimal, UUID):
            self.imports.add(f"from {kind.__module__} import {kind.__name__}")
            return repr(value)
        if kind in _DATES and self._has_plain_zone(value):
            self.imports.add("import datetime")
            return repr(value)
        if isinstance(value, np.generic) and type(value.item()) in (*_PLAIN, float):
            return self.value(value.item())
        raise InvalidArgument(
            f"a value of type {kind.__name__} has no form as Python code: {value!r}",
            where="scenario",
            hint="Leave its column out with select(...), or turn it into plain values, before the "
            "stage that is asked about",
        )

    def _sequence(self, value: Any) -> str:
        items = ", ".join(map(self.value, value))
        match value:
            case list():
                return f"[{items}]"
            case tuple():
                return f"({items},)" if len(value) == 1 else f"({items})"
            case frozenset():
                return f"frozenset({{{items}}})" if value else "frozenset()"
            case set():
                return f"{{{items}}}" if value else "set()"
            case _:
                assert_never(value)

    def _has_plain_zone(self, value: Any) -> bool:
        zone = getattr(value, "tzinfo", None)
        if type(zone) is ZoneInfo and zone.key is not None:
            self.imports.add("import zoneinfo")
            return True
        return zone is None or type(zone) is datetime.timezone

    def public(self, value: Any) -> str | None:
        """Return the code of a value of the library, such as windows; ``None`` if it has none."""
        text = repr(value)
        try:
            tree = _Prefixed().visit(ast.parse(text, mode="eval"))
            code = ast.unparse(tree)
            # The repr of a value, in which all names are this library's.
            same = eval(code, {"lw": _lowwater}) == value  # noqa: S307
        except (SyntaxError, _Foreign, InvalidArgument):
            return None
        if not same:
            return None
        self.imports.add(_LW)
        return code

    @staticmethod
    def arguments(code: str) -> list[str]:
        """Return the arguments of a call as code; ``windows`` comes without its name."""
        call = ast.parse(code, mode="eval").body
        assert isinstance(call, ast.Call)
        return [
            *(ast.unparse(one) for one in call.args),
            *(
                ast.unparse(one.value) if one.arg == "windows" else ast.unparse(one)
                for one in call.keywords
            ),
        ]


class _Foreign(Exception):
    """A name that the library does not have."""


@final
class _Prefixed(ast.NodeTransformer):
    """Writes ``lw.`` before the names of the library."""

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id not in dir(_lowwater):
            raise _Foreign(node.id)
        return ast.Attribute(ast.Name("lw", ast.Load()), node.id, ast.Load())
