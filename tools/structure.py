"""Measures the structure of the package: modules, lines, names used twice, circles, functions.

Run it from a checkout; another one can be measured with the same script::

    python tools/structure.py                 # this checkout
    python tools/structure.py --root ../other
    python tools/structure.py --functions     # also runs one bundle, embedded and durable
    python tools/structure.py --functions --spark   # and on Spark (needs Java)

Lines of code are those without docstrings, comments and blanks. What depends on the kind of a stage
is said in ``engine/stages``; places elsewhere that ask for the kind are counted. ``--functions``
counts the functions of the package that one bundle enters, each once.
"""

from __future__ import annotations

import argparse
import ast
import io
import os
import subprocess
import sys
import tempfile
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

SMALL = 80

# Run in a process of its own, so that the other checkout's package is the one imported.
ONE_BUNDLE = """
import sys, tempfile
from pathlib import Path
import pyarrow as pa
import lowwater as lw
from lowwater import Records

entered = set()


def note(frame, event, _):
    code = frame.f_code
    if event == "call" and code.co_flags & 1 and "/lowwater/" in code.co_filename:
        entered.add((code.co_filename, code.co_qualname))


class ThreeBatches:
    # The second batch is watched, from when it leaves the source until the third is wanted.
    schema = None

    def batches(self, size, keys):
        return (records for records, _ in self.batches_from(None, size, keys))

    def batches_from(self, position, size, keys):
        for nth in range(0 if position is None else position["next"], 3):
            first = 1_000_000_000 + nth * 60_000_000
            micros = pa.array(range(first, first + 60_000_000, 60_000))
            times = micros.cast(pa.timestamp("us", "UTC"))
            keys = [f"k{n % 10}" for n in range(1000)]
            batch = pa.record_batch({"at": times, "key": keys, "value": list(range(1000))})
            if nth == 1:
                sys.setprofile(note)
            yield Records.from_arrow(batch), {"next": nth + 1}
            sys.setprofile(None)


pipeline = (
    lw.from_source(ThreeBatches(), time="at", watermark=lw.BoundedDisorder("1s"))
    .key_by("key")
    .window(lw.FixedWindows("10s"), trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="accumulating", allowed_lateness="1m")
    .aggregate(total=lw.sum("value"))
)
if sys.argv[1] == "embedded":
    pipeline.collect()
else:
    folder = Path(tempfile.mkdtemp())
    written = pipeline.write_parquet(str(folder / "out"))
    written.run(state=str(folder / "state"), commit_every="bundle")
print(len(entered), len({name for name, _ in entered}))
"""

# Workers of Spark note what they enter through a sitecustomize module of their own.
WORKER = """
import os, sys
if os.environ.get("LOWWATER_FUNCTIONS") and "pyspark.daemon" in sys.orig_argv:
    seen = set()
    def note(frame, event, _):
        code = frame.f_code
        if event == "call" and code.co_flags & 1 and "/lowwater/" in code.co_filename:
            entry = f"{code.co_filename}:{code.co_qualname}"
            if entry not in seen:
                seen.add(entry)
                with open(os.environ["LOWWATER_FUNCTIONS"], "a") as file:
                    file.write(entry + "\\n")
    sys.setprofile(note)
"""

ON_SPARK = """
import os, sys, tempfile
from pathlib import Path
import pyarrow as pa, pyarrow.parquet as pq
import lowwater as lw
from pyspark.sql import SparkSession

folder = Path(tempfile.mkdtemp())
(folder / "in").mkdir()
micros = pa.array(range(1_000_000_000, 1_060_000_000, 60_000))
rows = {"at": micros.cast(pa.timestamp("us", "UTC")),
        "key": [f"k{n % 10}" for n in range(1000)], "value": list(range(1000))}
pq.write_table(pa.table(rows), folder / "in" / "a.parquet")
spark = (SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
         .config("spark.sql.shuffle.partitions", "1").getOrCreate())
frame = spark.readStream.schema("at timestamp, key string, value long").parquet(str(folder / "in"))
panes = (
    lw.from_spark(frame, time="at", watermark=lw.BoundedDisorder("1s")).key_by("key")
    .window(lw.FixedWindows("10s"), trigger=lw.AfterWatermark(late=lw.AfterCount(1)),
            accumulation="accumulating", allowed_lateness="1m")
    .aggregate(total=lw.sum("value"))
    .to_spark(spark, key_groups=1)
)
query = (
    panes.writeStream.format("memory").queryName("out").outputMode("append")
    .option("checkpointLocation", str(folder / "checkpoint"))
    .trigger(availableNow=True)
    .start()
)
query.awaitTermination()
spark.stop()
"""


def lines_of_code(source: str) -> int:
    """Return the number of lines that hold code: no docstrings, comments or blank lines."""
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        for statement in body:  # also strings below constants, which document them
            if (
                isinstance(statement, ast.Expr)
                and isinstance(statement.value, ast.Constant)
                and isinstance(statement.value.value, str)
            ):
                docstrings.update(range(statement.lineno, (statement.end_lineno or 0) + 1))
    quiet = {
        tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
        tokenize.ENDMARKER,
    }  # fmt: skip
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in quiet:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - docstrings)


def imports_of(path: Path, modules: dict[str, Path]) -> Iterator[str]:
    """Yield the modules of the package that a file imports, in functions and for types too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                name = inner if inner in modules else node.module
                if name in modules:
                    yield name


def circles_of(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the groups of files that reach each other by imports."""
    reach: dict[str, set[str]] = {}
    for start in graph:
        seen: set[str] = set()
        stack = [start]
        while stack:
            for other in graph[stack.pop()]:
                if other not in seen:
                    seen.add(other)
                    stack.append(other)
        reach[start] = seen
    found: list[set[str]] = []
    for name in graph:
        if name in reach[name] and not any(name in circle for circle in found):
            found.append({other for other in reach[name] if name in reach.get(other, ())})
    return found


def kinds_of(root: Path) -> set[str]:
    """Return the names of the kinds of stage: the dataclasses of the room of stages."""
    return {
        node.name
        for path in (root / "lowwater" / "engine" / "stages").glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
        and any("dataclass" in ast.dump(d) for d in node.decorator_list)
    }


def dispatches(source: str, kinds: set[str]) -> int:
    """Return at how many places a file asks of which kind a stage is."""
    count = 0
    for node in ast.walk(ast.parse(source)):
        asked: list[ast.AST] = []
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "isinstance":
            asked = [*node.args[1:]]
        elif isinstance(node, ast.MatchClass):
            asked = [node.cls]
        names = {name.id for part in asked for name in ast.walk(part) if isinstance(name, ast.Name)}
        count += bool(names & kinds)
    return count


def measure(root: Path) -> None:
    """Print what the files of a checkout's package come to."""
    files = sorted((root / "lowwater").rglob("*.py"))
    modules = {}
    for path in files:
        name = ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")
        modules[name] = path
    sources = {path: path.read_text(encoding="utf-8") for path in files}
    small = [p for p in files if p.name != "__init__.py" and sources[p].count("\n") < SMALL]
    classes = defaultdict(list)
    for path, source in sources.items():
        for node in ast.parse(source).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(str(path.relative_to(root)))
    names = Counter(path.name for path in files if not path.name.startswith("__"))
    graph = {name: set(imports_of(path, modules)) - {name} for name, path in modules.items()}
    print(f"modules {len(files)}")
    print(f"lines {sum(source.count(chr(10)) for source in sources.values())}")
    print(f"lines of code {sum(lines_of_code(source) for source in sources.values())}")
    print(f"modules under {SMALL} lines {len(small)}")
    for path in small:
        print(f"  {sources[path].count(chr(10)):4d} {path.relative_to(root)}")
    longest = sorted(files, key=lambda p: -sources[p].count("\n"))[:5]
    print("longest " + ", ".join(f"{p.name} {sources[p].count(chr(10))}" for p in longest))
    twice = {name: places for name, places in classes.items() if len(places) > 1}
    print(f"public class names used twice {len(twice)}")
    for name, places in sorted(twice.items()):
        print(f"  {name}: {', '.join(places)}")
    doubles = sorted(name for name, count in names.items() if count == 2)
    thrice = sorted(name for name, count in names.items() if count > 2)
    print(f"file names used twice {len(doubles)}: {', '.join(doubles)}")
    print(f"file names used thrice or more {len(thrice)}: {', '.join(thrice)}")
    asked = {path: dispatches(source, kinds_of(root)) for path, source in sources.items()}
    where = [path for path, count in asked.items() if count]
    print(f"places that ask for a kind of stage {sum(asked.values())} in {len(where)} files")
    for path in where:
        print(f"  {asked[path]} {path.relative_to(root)}")
    circles = circles_of(graph)
    print(f"file circles {len(circles)}")
    for circle in circles:
        print(f"  {', '.join(sorted(circle))}")


def functions(root: Path, *, spark: bool) -> None:
    """Print how many functions and files of the package one bundle enters."""
    environment = {**os.environ, "PYTHONPATH": str(root)}
    for how in ("embedded", "durable"):
        run = subprocess.run(
            [sys.executable, "-c", ONE_BUNDLE, how],
            capture_output=True, text=True, check=True, env=environment, cwd=root,
        )  # fmt: skip
        entered, in_files = run.stdout.split()
        print(f"functions entered by one bundle, {how}: {entered}, in {in_files} files")
    if not spark:
        return
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "sitecustomize.py").write_text(WORKER, encoding="utf-8")
        log = Path(folder) / "functions.txt"
        subprocess.run(
            [sys.executable, "-c", ON_SPARK],
            check=True, cwd=root, capture_output=True,
            env={
                **environment,
                "PYTHONPATH": os.pathsep.join([folder, str(root)]),
                "LOWWATER_FUNCTIONS": str(log),
                "PYSPARK_PYTHON": sys.executable,
            },
        )  # fmt: skip
        entries = set(log.read_text(encoding="utf-8").splitlines())
        in_files = len({entry.rsplit(":", 1)[0] for entry in entries})
        print(f"functions entered by one micro-batch on Spark: {len(entries)}, in {in_files} files")


def main() -> None:
    """Measure the checkout that the arguments name."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument("--functions", action="store_true", help="run one bundle, too")
    parser.add_argument("--spark", action="store_true", help="and one micro-batch on Spark")
    options = parser.parse_args()
    measure(options.root)
    if options.functions:
        functions(options.root.resolve(), spark=options.spark)


if __name__ == "__main__":
    main()
