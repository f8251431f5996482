"""Every hint that names an option names one that there is: somewhere, and on the reader at hand."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lowwater as lw
from lowwater.engine.graph.sources import option_to_wait, options_to_end
from lowwater.io.log import Log
from lowwater.pipeline.outcomes import RunOptions
from tests.unit.structure.package import Nodes, OfEachFile

OPTION = re.compile(r"(?<![\w.&?/-])([a-z][a-z_]*)=(?![=>])")

# What hints write in front of "=" that is no option: names that users choose, options of other
# libraries, and those of objects that hooks are called with.
NO_OPTIONS = {
    "my_", "first_", "second_", "n", "total", "team", "day", "all", "name", "result",  # columns
    "double",  # a column that an example makes
    "host", "dbname",  # of PostgreSQL
    "errors", "tzinfo", "frozen", "option", "e",  # of Python, and of URIs
    "output_time", "output_times",  # of timers
    "merge_scope", "unwindowed",  # of window functions of one's own
}  # fmt: skip


def public() -> Iterator[str]:
    """Yield the parameters of all that users call."""
    seen: set[int] = set()

    def parameters(item: Any) -> Iterator[str]:
        if id(item) in seen or not callable(item):
            return
        seen.add(id(item))
        try:
            yield from inspect.signature(item).parameters
        except (TypeError, ValueError):
            pass
        if inspect.isclass(item):
            for name, member in inspect.getmembers(item):
                if not name.startswith("_"):
                    yield from parameters(member)

    yield from RunOptions.__annotations__
    for name in ("", ".io.sinks", ".io.log", ".testing", ".state", ".spark"):
        try:
            module = importlib.import_module(f"lowwater{name}")
        except ImportError:  # without pyspark
            continue
        for member in dir(module):
            if not member.startswith("_"):
                yield from parameters(getattr(module, member))


@OfEachFile
def hints(nodes: Nodes) -> list[tuple[int, str]]:
    """Return the literal texts of the hints in a file, with their lines."""
    given = []
    for node in nodes.of(ast.Call):
        given += [keyword.value for keyword in node.keywords if keyword.arg == "hint"]
        if isinstance(node.func, ast.Name) and node.func.id == "Finding":
            given += node.args[3:]
    return [
        (part.lineno, part.value)
        for each in given
        for part in ast.walk(each)
        if isinstance(part, ast.Constant) and isinstance(part.value, str)
    ]


def test_every_option_that_a_hint_names_is_one() -> None:
    known = set(public())
    named = [
        (option, f"{path}:{line}")
        for path, texts in hints().items()
        for line, text in texts
        for option in OPTION.findall(text)
    ]
    assert len(named) > 150
    unknown = [place for place in named if place[0] not in known | NO_OPTIONS]
    assert not unknown


class Endless:
    """A source of one's own."""

    endless = True
    schema = None

    def batches(self, size: int, keys: tuple[str, ...]) -> Iterator[lw.Records]:
        yield from ()


def postgres(end: str) -> lw.Stream:
    """Return what reads a table of PostgreSQL, without asking a server for its columns."""
    from lowwater.io.postgres_changes.table_definition import TableDefinition
    from lowwater.io.postgres_changes.table_source import PostgresChanges

    table = TableDefinition.__new__(TableDefinition)
    return lw.from_source(_Known(PostgresChanges("", table, "p", "s", end=end)), time="at")


class _Known:
    """A source whose columns are known, and all else of another one."""

    schema = None

    def __init__(self, source: Any) -> None:
        self._source = source

    def __getattr__(self, name: str) -> Any:
        return getattr(self._source, name)


def streams(folder: Path, *, endless: bool) -> dict[str, tuple[Callable[..., Any], Any]]:
    """Return each reader, and a stream of it."""
    for name, line in (("a.jsonl", '{"at": 1}'), ("a.csv", "at\n1")):
        (folder / name).write_text(line + "\n", encoding="utf-8")
    (folder / "parquet").mkdir()
    pq.write_table(pa.table({"at": [1]}), folder / "parquet" / "a.parquet")
    Log(folder / "log", partitions=1).close()
    never: Any = "never" if endless else "latest"
    follow: Any = {"time": "at", "follow": endless}
    made: dict[str, tuple[Callable[..., Any], Any]] = {
        "jsonl": (lw.read_jsonl, lw.read_jsonl(folder / "a.jsonl", **follow)),
        "csv": (lw.read_csv, lw.read_csv(folder / "a.csv", types={"at": "int64"}, **follow)),
        "parquet": (lw.read_parquet, lw.read_parquet(folder / "parquet", **follow)),
        "log": (lw.read_log, lw.read_log(folder / "log", **follow)),
        "postgres": (lw.read_postgres_changes, postgres(never)),
    }
    made["kafka"] = (lw.read_kafka, lw.read_kafka("x:1", "t", time="at", end=never))
    if endless:
        made["own"] = (lw.from_source, lw.from_source(Endless(), time="at"))
    return made


def test_a_hint_to_let_a_source_end_names_options_of_its_reader(tmp_path: Path) -> None:
    for name, (reader, stream) in streams(tmp_path, endless=True).items():
        pipeline = stream.map(dict)
        with pytest.raises(lw.InvalidArgument, match="this source never ends") as raised:
            pipeline.collect()
        assert raised.value.hint is not None
        named = set(OPTION.findall(raised.value.hint))
        assert named <= set(inspect.signature(reader).parameters), name
        assert bool(named) == (name != "own")


def test_a_hint_to_wait_names_an_option_of_the_reader(tmp_path: Path) -> None:
    for name, (reader, stream) in streams(tmp_path, endless=False).items():
        waits = option_to_wait(stream._flows[0].origin.source)
        assert waits is not None, name
        assert set(OPTION.findall(waits)) <= set(inspect.signature(reader).parameters), name
    assert option_to_wait(Endless()) is None
    assert options_to_end(Endless()) is None
