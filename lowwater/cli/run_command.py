"""The command ``python -m lowwater run``: prints the results of a pipeline, or writes them."""

from __future__ import annotations

import argparse
import csv
import shutil
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, final

from lowwater.cli.target import load
from lowwater.display.text import printable
from lowwater.errors import InvalidArgument
from lowwater.io.paths import is_remote
from lowwater.io.terminal import say
from lowwater.state.filesystems import without_secrets

if TYPE_CHECKING:
    import pyarrow as pa

    from lowwater.engine.graph.metrics import Metrics
    from lowwater.pipeline import Run, Writing
    from lowwater.pipeline.runnable import Runnable

_FORMATS = {".csv": "csv", ".jsonl": "jsonl", ".parquet": "parquet", ".txt": "table"}
MORE = 75
"""The exit status if there is more to read: ``EX_TEMPFAIL``, by which schedulers try again."""
_DESCRIPTION = """\
Run a pipeline and print its panes as they are emitted.

TARGET is file.py or a module, if it has one pipeline, or file.py:name or module:name. It names a
pipeline; a pipeline with an output, such as pipeline.write_parquet("out/"); a process, whose
elements are printed; or a function without arguments that returns one of these. A summary on
standard error counts panes, late elements and dead letters."""


def add_command(commands: Any) -> None:
    """Add the command to the parser of the command line."""
    run = commands.add_parser(
        "run",
        help="run a pipeline and print its panes",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    run.add_argument("target", metavar="TARGET", help="file.py, file.py:pipeline, module:pipeline")
    run.add_argument(
        "--format",
        choices=("table", "csv", "jsonl"),
        help="output format (default: that of the name in --output, or a table)",
    )
    run.add_argument(
        "-o",
        "--output",
        metavar="PATH",
        help="write the panes to a file instead: .parquet, .csv, .jsonl or .txt. With --state, to "
        "a .jsonl file or a folder of Parquet files, with late elements and dead letters next to "
        "them",
    )
    run.add_argument(
        "--state",
        metavar="DIR",
        help="keep state, positions and output in step, in DIR; after Ctrl-C or a kill, the same "
        "command resumes. Needs --output, or a pipeline with an output",
    )
    run.add_argument(
        "--remove",
        action="append",
        metavar="NAME",
        help="a source, stage or output that the pipeline no longer has, and whose state is to be "
        "released (repeatable; with --state)",
    )
    run.add_argument(
        "--drop-undelivered",
        action="store_true",
        default=None,
        help="drop what may not have been delivered to outputs that are removed",
    )
    run.add_argument(
        "--until",
        choices=("end", "available"),
        default="end",
        help="end: the run ends with its input, and closes all windows; available: it reads what "
        "is there, commits, and leaves windows open for the next run (with --state; exit status 0)",
    )
    run.add_argument(
        "--exit-more",
        action="store_true",
        default=None,
        help="exit with status 75 if more came while a run with --until available was at work",
    )
    run.add_argument(
        "--summary",
        choices=("text", "json"),
        default="text",
        help="how the summary on standard error is written; json adds whether there is more to "
        "read, with --until available",
    )
    run.add_argument("--limit", type=positive, metavar="N", help="stop after N panes")
    run.add_argument(
        "--bundle-size",
        type=positive,
        default=50_000,
        metavar="N",
        help="maximum number of elements per bundle; triggers are evaluated once per bundle "
        "(default: 50000)",
    )
    run.add_argument(
        "--workers",
        type=_workers,
        metavar="N",
        help="call Python functions of steps, hooks of per-record processes and combiners in N "
        "worker processes; auto: one for each processor",
    )
    run.add_argument(
        "--serve",
        action="store_true",
        help="show the run in a browser while it goes on, on 127.0.0.1; the link is written to "
        "standard error",
    )
    run.add_argument(
        "--serve-at",
        metavar="ADDRESS",
        help="show it at a port of 127.0.0.1, or at host:port; the link to another address has a "
        "token, that of the environment variable LOWWATER_SERVE_TOKEN if it is set",
    )
    run.add_argument(
        "--on-error",
        choices=("dead_letter", "raise"),
        help="turn invalid records into dead letters, or stop at the first one (default: dead "
        "letters, and an error at the end if nothing of any source can be used)",
    )


def positive(text: str) -> int:
    """Read a whole number above zero from the command line."""
    if text.isdecimal() and int(text) > 0:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a whole number above zero")


def _workers(text: str) -> int | str:
    """Read a number of workers from the command line, or ``auto``."""
    return text if text == "auto" else positive(text)


def run(options: argparse.Namespace) -> int:
    """Run the target, and return the exit status."""
    from lowwater.pipeline import Writing

    target = load(options.target)
    if options.until != "available":
        _refuse(options, "exit_more", because="a run that ends with its input reads all of it")
    elif options.state is None:
        raise InvalidArgument(
            "--until available leaves windows open for the next run, and nothing would keep them",
            hint="Name a state directory: --state DIR",
        )
    metrics: Metrics | None
    if isinstance(target, Writing):
        _refuse(options, "output", "format", "limit", because=f"{options.target!r} has an output")
        metrics = _write(target, options)
    elif options.state is not None:
        _refuse(options, "format", "limit", because="a run with --state writes until it ends")
        metrics = _write(_writing(target, options), options)
    else:
        _refuse(options, "remove", "drop_undelivered", because="there is no --state")
        metrics = _print(target, options)
    if metrics is None:
        say(f"stopped after {options.limit:,} panes", file=sys.stderr)
        return 0
    looks = options.until == "available" and (options.exit_more or options.summary == "json")
    more = None
    if looks:
        from lowwater.cli.run_summary import has_more

        written = target if isinstance(target, Writing) else _writing(target, options)
        more = has_more(written, options.state, options.bundle_size)
    if options.summary == "json":
        from lowwater.cli.run_summary import summary_json

        print(summary_json(metrics, more=more), file=sys.stderr)  # one line, whatever the terminal
    else:
        say(summary(metrics), file=sys.stderr)
    return MORE if options.exit_more and more else 0


def summary(metrics: Metrics) -> str:
    """Summarise the metrics of a run in one line.

    >>> from lowwater.engine.graph.metrics import Metrics
    >>> summary(Metrics(events=10, elapsed=1.0))
    '10 events in 1.0 s (10/s); panes: none; late: none; errors: none'
    >>> summary(Metrics(events=10, emitted=3, elapsed=1.0))
    '10 events in 1.0 s (10/s); 3 emitted; late: none; errors: none'
    """
    parts = [
        f"{name}: " + (", ".join(f"{n:,} {kind}" for kind, n in counts.items()) or "none")
        for name, counts in (
            ("panes", metrics.panes),
            ("late", metrics.late),
            ("errors", metrics.errors),
        )
    ]
    if metrics.emitted and not metrics.panes.total():
        parts[0] = f"{metrics.emitted:,} emitted"
    head = f"{metrics.events:,} events in {metrics.elapsed:.1f} s"
    return f"{head} ({metrics.events_per_second:,.0f}/s); " + "; ".join(parts)


@contextmanager
def writable(path: str) -> Iterator[None]:
    """Turn an error of the file system into one that names the file.

    Raises:
        InvalidArgument: The code inside cannot write the file.
    """
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise InvalidArgument(
            f"{path!r} cannot be written: {error.strerror or error}", hint="Name another file"
        ) from None


def _refuse(options: argparse.Namespace, *names: str, because: str) -> None:
    for name in names:
        if getattr(options, name) is not None:
            said = name.replace("_", "-")
            raise InvalidArgument(f"--{said} does not apply: {because}", hint="Leave it out")


def _given(options: argparse.Namespace) -> dict[str, Any]:
    """Return the options of any run."""
    given = {name: getattr(options, name) for name in ("bundle_size", "on_error", "workers")}
    at = options.serve_at
    if at is None:
        return {**given, "serve": options.serve}
    return {**given, "serve": int(at) if at.isascii() and at.isdecimal() else at}


def _write(writing: Writing, options: argparse.Namespace) -> Metrics:
    try:
        return writing.run(
            state=options.state,
            until=options.until,
            **_given(options),
            remove=options.remove or (),
            drop_undelivered=bool(options.drop_undelivered),
        )
    except SystemExit:
        say("lowwater: stopped by SIGTERM; what was read is delivered", file=sys.stderr)
        raise


def _writing(target: Runnable[Any, Any], options: argparse.Namespace) -> Writing:
    """Return an output that a run with state can resume."""
    if options.output is None:
        raise InvalidArgument(
            f"--state needs an output, and {options.target!r} has none",
            hint="Name one: --output out.jsonl, or --output out for a folder of Parquet files",
        )
    kind = _FORMATS.get(Path(without_secrets(options.output)).suffix, "parquet")
    if kind == "jsonl":
        return target.write_jsonl(options.output)
    if kind == "parquet":
        return target.write_parquet(options.output)
    raise InvalidArgument(
        f"a run with --state cannot write {options.output!r}",
        hint="Name a file that ends in .jsonl, or a folder for Parquet files",
    )


def _print(target: Runnable[Any, Any], options: argparse.Namespace) -> Metrics | None:
    """Print the results, or write them to a file in the form in which they would be printed.

    Returns:
        The metrics of the run; ``None`` if ``--limit`` ended it, as they are not those of a run.
    """
    if options.output is None:
        return _print_to(sys.stdout, target, options, options.format or "table")
    if is_remote(options.output):
        raise InvalidArgument(
            f"{without_secrets(options.output)!r} is in a remote store, where only folders are "
            "written",
            hint="Add --state DIR for a folder of Parquet files, or give the pipeline an output: "
            ".write_jsonl(URI)",
        )
    kind = options.format or _FORMATS.get(Path(options.output).suffix)
    if kind is None:
        raise InvalidArgument(
            f"the format of {options.output!r} cannot be told from its name",
            hint=f"Use a name that ends in {', '.join(_FORMATS)}, or name it: --format jsonl",
        )
    _check_free(Path(options.output), options.target, target)
    if kind == "parquet":
        return _write_parquet(target, options)
    with ExitStack() as opened:
        with writable(options.output):
            path = Path(options.output)
            file = opened.enter_context(path.open("w", encoding="utf-8", newline=""))
        return _print_to(file, target, options, kind)


def _check_free(path: Path, program: str, target: Runnable[Any, Any]) -> None:
    """Raise if the file must not be replaced: the program, an input, or another run's output.

    Opening it for writing would empty it, before anything is read.
    """
    from lowwater.engine.local.delivery import Place
    from lowwater.io.sinks.json_lines_file import is_output_of_run
    from lowwater.io.sinks.sink_conflicts import check_places

    if path.resolve() in {Path(program).resolve(), Path(program.rpartition(":")[0]).resolve()}:
        raise InvalidArgument(f"{str(path)!r} is the program itself", hint="Name another file")
    sources = [read.source for read in target._graph().reads]
    check_places([Place(path.resolve(), str(path))], sources)
    if is_output_of_run(path):
        raise InvalidArgument(
            f"{str(path)!r} holds the output of a run with write_jsonl or --state",
            hint="Name another file, or continue that run with its --state",
        )


def _print_to(
    stream: TextIO, target: Runnable[Any, Any], options: argparse.Namespace, kind: str
) -> Metrics | None:
    from lowwater.engine.records.json_rows import to_json
    from lowwater.engine.records.python_values import python_rows
    from lowwater.pipeline import Pipeline

    given = _given(options)
    if kind == "table" and isinstance(target, Pipeline):
        from lowwater.io.terminal import PaneTable

        panes = target.run(**given)
        # A file, or another program, gets whole cells; only a terminal has an edge to fit.
        width = shutil.get_terminal_size().columns if stream.isatty() else None
        writer = PaneTable(stream, width=width)
        written = 0
        for pane in islice(panes, options.limit):
            writer.write(pane)
            written += 1
        return None if written == options.limit else panes.metrics
    batches = target.to_arrow_batches(**given)
    counted = _Counted()
    parts = counted.rows(_limited(batches, options.limit))
    if kind == "csv":
        _write_csv(stream, target, parts)
    elif kind == "jsonl":
        for batch in parts:
            stream.writelines(to_json(row) + "\n" for row in python_rows(batch))
    else:
        from lowwater.io.terminal import cell

        for batch in parts:
            for row in python_rows(batch):
                line = "  ".join(f"{printable(name)}={cell(value)}" for name, value in row.items())
                stream.write(line + "\n")
    return None if counted.number == options.limit else batches.metrics


def _write_csv(
    stream: TextIO, target: Runnable[Any, Any], batches: Iterator[pa.RecordBatch]
) -> None:
    """Write comma-separated values: instants as ISO 8601, nulls empty, lists and others as JSON."""
    import pyarrow as pa

    from lowwater.engine.records.json_rows import rows_of, to_json

    writer = csv.writer(stream, lineterminator="\n")
    names: list[str] | None = None
    for batch in batches:
        if names is None:
            names = batch.schema.names
            writer.writerow(names)
        for row in rows_of(pa.Table.from_batches([batch])):
            values = (row.get(name) for name in names)
            writer.writerow(
                to_json(value) if isinstance(value, (dict, list)) else value for value in values
            )
    if names is None:
        writer.writerow(target._to()._empty.schema.names)


def _write_parquet(target: Runnable[Any, Any], options: argparse.Namespace) -> Metrics | None:
    """Write one file: at the end, because the types of all panes are known only then."""
    import pyarrow.parquet as pq

    given = _given(options)
    if options.limit is None:
        result = target.collect(**given)
        table, metrics = result.to_arrow(target._to()._tag), result.metrics
    else:
        run: Run[Any] = target.run_batches(**given)  # the source may never end
        table, metrics = _first_rows(run, target, options.limit), run.metrics
    with writable(options.output):
        pq.write_table(table, options.output)
    return None if table.num_rows == options.limit else metrics


def _first_rows(run: Run[Any], target: Runnable[Any, Any], limit: int) -> pa.Table:
    """Return the first rows of an output, reading no more of it than that takes."""
    from lowwater.engine.records.pane_table import readable_table
    from lowwater.pipeline import Pipeline

    batches, length = [], 0
    for batch in run:
        batches.append(batch)
        length += len(batch)
        if length >= limit:
            break
    if batches:
        form: Any = target._form()
        return form.table(batches).slice(0, limit)
    nothing = target._to()._empty
    return readable_table(nothing) if isinstance(target, Pipeline) else nothing


@final
class _Counted:
    """Counts the rows that pass."""

    def __init__(self) -> None:
        self.number = 0

    def rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the same batches."""
        for batch in batches:
            self.number += batch.num_rows
            yield batch


def _limited(batches: Iterator[pa.RecordBatch], limit: int | None) -> Iterator[pa.RecordBatch]:
    """Yield batches until they have as many rows as the limit says."""
    left = limit
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return
