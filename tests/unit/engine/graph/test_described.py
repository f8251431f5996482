"""Descriptions of users' objects: by their arguments, and the same in each process."""

from __future__ import annotations

import functools
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lowwater as lw
from lowwater.engine.graph import described as module
from lowwater.engine.graph.described import described
from lowwater.engine.graph.graph import MAIN, Graph
from lowwater.engine.local.compatibility import describe_graph


class Plain:
    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> None:
        pass


class Slotted:
    __slots__ = ("a", "unset")

    def __init__(self) -> None:
        self.a = 1


@dataclass
class Data:
    names: Any
    cache: dict[str, int] = field(default_factory=dict, repr=False)


class Named:
    def __init__(self, of: object) -> None:
        self._of = of
        self.calls = id(self)

    def __repr__(self) -> str:
        return f"Named({self._of!r})"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (Plain(a=1, b=Plain()), "Plain(a=1, b=Plain())"),
        (Slotted(), "Slotted(a=1)"),
        (Data({"b", "a"}, {"x": 1}), "Data(names={'a', 'b'})"),
        (Named(3), "Named(3)"),
        (Plain(f=os.path.join), "Plain(f=posixpath.join)"),
        (Plain(f=len, c=Plain), f"Plain(f=builtins.len, c={__name__}.Plain)"),
        (functools.partial(round, 1, ndigits=2), "partial(builtins.round, 1, ndigits=2)"),
        ([(1,), {"k": {2, 1}}], "list(tuple(1), {'k': {1, 2}})"),
    ],
)
def test_what_is_described(value: Any, text: str) -> None:
    assert described(value) == text


def test_functions_are_described_by_their_place() -> None:
    assert described(Plain().method) == f"{__name__}.Plain.method"
    assert described(lambda x: x) == f"{__name__}.test_functions_are_described_by_their_place.<locals>.<lambda>"  # fmt: skip  # noqa: E501
    assert " at 0x" not in described(Plain(o=Named(object())))


def test_a_function_of_windows_may_move_to_another_line() -> None:
    def pipeline(assign: Any) -> Any:
        keyed = lw.from_iterable([], time="at").key_by("k")
        return keyed.window(lw.CustomWindows(assign)).aggregate(n=lw.count())

    texts = []
    for assign in (
        lambda at: [(at, at + 1)],
        lambda at: [(at, at + 1)],
    ):
        graph = Graph.of([pipeline(assign)._stage])
        known = describe_graph(graph, [(0, MAIN)], lw.ManualClock(), 1)
        texts.append(known["stages"]["stage 1"]["windows"])
    assert texts[0] == texts[1]
    assert ".py" not in texts[0]
    assert texts[0].endswith("assign_column=None, merge_active=None, name='CustomWindows')")


def test_what_is_large_differs_by_a_hash() -> None:
    numbers = np.arange(5_000)
    other = numbers.copy()
    other[2_500] = 7
    assert described(numbers) != described(other)
    assert described(numbers) == described(numbers.copy())
    words = [f"word {n}" for n in range(5_000)]
    assert described(words) != described([*words[:2_500], "x", *words[2_501:]])
    assert len(described(words)) < 600


def test_what_contains_itself() -> None:
    loop: dict[str, Any] = {}
    loop["loop"] = loop
    assert described(loop).endswith("…}}}}}}")


def test_the_same_in_each_process() -> None:
    code = (
        "from lowwater.engine.graph.described import described\n"
        "print(described({'set': {'a', 'b', 'c', 'd'}, 'frozen': frozenset('xyz')}))"
    )
    root = Path(module.__file__).parents[3]
    found = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=root,
            env={**os.environ, "PYTHONPATH": str(root), "PYTHONHASHSEED": str(seed)},
        ).stdout
        for seed in (1, 2, 3)
    }  # fmt: skip
    assert len(found) == 1
