"""What the package's files say: each is parsed once, and read by all tests that ask.

The nodes of all files are a million objects, which a garbage collector would look at again and
again. So none is kept: the first test that asks has each file read by all readers in turn.
"""

from __future__ import annotations

import ast
import gc
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Generic, TypeVar, final

import lowwater.time
from tests.timing import not_counted

PACKAGE = Path(lowwater.time.__file__).parent
FILES = {path.relative_to(PACKAGE).as_posix(): path for path in sorted(PACKAGE.rglob("*.py"))}

_Found = TypeVar("_Found")
_Node = TypeVar("_Node", bound=ast.AST)


@final
class Nodes:
    """The nodes of a file's syntax, by their classes."""

    def __init__(self, text: str) -> None:
        self.module = ast.parse(text)
        self._by_class: dict[type, list[Any]] = defaultdict(list)
        for node in ast.walk(self.module):
            self._by_class[type(node)].append(node)

    def of(self, kind: type[_Node]) -> list[_Node]:
        return self._by_class[kind]


@final
class OfEachFile(Generic[_Found]):
    """What a function finds in each file; called, it returns that by the path below the package."""

    def __init__(self, read: Callable[[Nodes], _Found]) -> None:
        self.read = read
        self.found: dict[str, _Found] = {}
        _READERS.append(self)

    def __call__(self) -> Mapping[str, _Found]:
        if not self.found:
            _read_files()
        return self.found


_READERS: list[OfEachFile[Any]] = []


def _read_files() -> None:
    readers = [reader for reader in _READERS if not reader.found]
    gc.disable()  # a tree has no cycles
    try:
        with not_counted():
            for name, path in FILES.items():
                nodes = Nodes(path.read_text(encoding="utf-8"))
                for reader in readers:
                    reader.found[name] = reader.read(nodes)
    finally:
        gc.enable()
