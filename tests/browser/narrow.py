"""Has numpy count in 32 bits in modules of lowwater, as it does in a browser.

Pyodide is a 32-bit platform: what numpy makes without being told a type, such as positions and sums
of booleans, is ``int32`` there, and ``int64`` where numpy takes numbers of elements is refused. Its
wheels are not at hand everywhere, so the calls of a module go through :func:`called`, which answers
as a numpy of 32 bits does. Only calls of functions and methods do: ``numpy`` inside other packages
counts as always.

The answers were compared with those of numpy 1.24 on i386; that of ``bincount`` is of numpy 2.4.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

import numpy as np

_CALL = "__called_in_32_bits__"
_POSITIONS = {
    *("argmax", "argmin", "argpartition", "argsort", "argwhere", "bincount", "count_nonzero"),
    *("digitize", "flatnonzero", "indices", "lexsort", "nonzero", "searchsorted", "unravel_index"),
}
_MADE = {"array", "asarray", "ascontiguousarray", "atleast_1d", "full", "repeat", "tile"}
_JOINED = {"column_stack", "concatenate", "hstack", "stack", "vstack"}
_TOTALS = {"accumulate", "cumprod", "cumsum", "nansum", "prod", "reduce", "reduceat", "sum"}
_COUNTED = {"repeat", "reduceat"}
_NAMES = _POSITIONS | _MADE | _JOINED | _TOTALS | _COUNTED | {"arange", "unique", "where"}
_TYPES = {"intp": "int32", "int_": "int32", "uintp": "uint32"}
_REWRITTEN = re.compile(rf"\.({'|'.join(sorted(_NAMES))})\(|\bnp\.({'|'.join(_TYPES)})\b".encode())
_LEAST, _MOST = -(2**31), 2**31 - 1
_BYTES = 8  # of the integers that a numpy of 64 bits makes


def install() -> None:
    """Have modules of lowwater that are loaded from now on count in 32 bits."""
    sys.meta_path.insert(0, _Finder())


def called(owner: Any, name: str, *args: Any, **kwargs: Any) -> Any:
    """Call a function or a method of numpy as one of 32 bits would; any other as it is."""
    function = getattr(owner, name)
    if owner is not np and not isinstance(owner, np.ndarray | np.generic | np.ufunc):
        return function(*args, **kwargs)
    dtype = kwargs.get("dtype")
    assert dtype is not int, "a type that depends on the platform"
    arguments = args if owner is np or isinstance(owner, np.ufunc) else (owner, *args)
    if name in _COUNTED:
        _check_counts(arguments[1] if len(arguments) > 1 else kwargs["repeats"])
    if name in _JOINED and isinstance(args[0], list | tuple):
        args = ([_narrow_if_plain(part) for part in args[0]], *args[1:])
    result = function(*args, **kwargs)
    if dtype is not None or (len(args) > 1 and name in ("array", "asarray", "ascontiguousarray")):
        return result
    if name in _POSITIONS or (name == "where" and len(arguments) == 1):
        return result if "weights" in kwargs else _narrow(result)
    if name == "unique":
        asked = kwargs.keys() & {"return_index", "return_inverse", "return_counts"}
        return (result[0], *map(_narrow, result[1:])) if asked else result
    if name == "where":
        return _narrow(result) if all(map(_is_plain, arguments[1:])) else result
    if name == "arange":
        return _narrow(result) if all(map(_is_plain, args)) else result
    if name == "full":
        return _narrow(result) if _is_plain(arguments[1]) and len(args) < 3 else result
    if name in _MADE:
        return _narrow(result) if _is_plain(arguments[0]) else result
    if name in _TOTALS:
        return _total(owner, arguments[0], result, kwargs)
    return result


def _total(owner: Any, values: Any, result: Any, kwargs: dict[str, Any]) -> Any:
    """Return a sum or product as narrow as it would be: numpy widens to the platform's integer."""
    if isinstance(owner, np.ufunc) and owner not in (np.add, np.multiply):
        return result
    if "out" in kwargs:
        return result
    if not isinstance(values, np.ndarray | np.generic):
        return _narrow(result) if _is_plain(values) else result
    is_short = values.dtype.kind in "biu" and values.dtype.itemsize < _BYTES
    return _narrow(result) if is_short else result


def _check_counts(counts: Any) -> None:
    """Refuse numbers of elements that a numpy of 32 bits cannot take."""
    if isinstance(counts, np.ndarray) and not np.can_cast(counts.dtype, np.int32):
        raise TypeError(
            f"Cannot cast array data from {counts.dtype!r} to dtype('int32') according to the "
            "rule 'safe'"
        )


def _is_plain(value: Any) -> bool:
    """Whether numpy chooses the type of integers: those of Python, short ones, lists of them."""
    if isinstance(value, int):
        return _LEAST <= value <= _MOST
    if isinstance(value, np.integer):
        return value.dtype.itemsize < _BYTES
    if isinstance(value, range):
        return True
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_plain, value))


def _narrow_if_plain(value: Any) -> Any:
    return _narrow(np.asarray(value)) if _is_plain(value) else value


def _narrow(value: Any) -> Any:
    if isinstance(value, tuple):
        return tuple(map(_narrow, value))
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.kind not in "iu":
        return value
    return value.astype(np.int32 if value.dtype.kind == "i" else np.uint32)


def rewrite(tree: ast.AST) -> None:
    """Make ``a.f(b)`` to ``called(a, "f", b)``, and the types of the machine to those of 32."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            if isinstance(node.value, ast.Name) and node.value.id == "np":
                node.attr = _TYPES.get(node.attr, node.attr)
        elif isinstance(node, ast.Call):
            function = node.func
            if isinstance(function, ast.Attribute) and function.attr in _NAMES:
                name = ast.copy_location(ast.Constant(function.attr), node)
                node.args = [function.value, name, *node.args]
                node.func = ast.copy_location(ast.Name(_CALL, ast.Load()), node)


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        if not _REWRITTEN.search(source):
            return super().get_code(fullname)  # compiled before
        tree = ast.parse(source, path)
        rewrite(tree)
        return compile(tree, path, "exec")

    def exec_module(self, module: ModuleType) -> None:
        setattr(module, _CALL, called)
        super().exec_module(module)


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname.partition(".")[0] != "lowwater":
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None and spec.origin.endswith(".py"):
            places: Iterable[str] | None = spec.submodule_search_locations
            spec.loader = _Loader(fullname, spec.origin)
            if places is not None:
                spec.submodule_search_locations = list(places)
        return spec
