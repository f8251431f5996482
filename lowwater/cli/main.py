"""The command line: ``python -m lowwater demo``, ``run``, ``explain``, ``state`` and others."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from lowwater import __version__
from lowwater.cli import explain_commands, run_command, scenario_command
from lowwater.cli.parser import SuggestingParser
from lowwater.cli.run_command import positive, writable
from lowwater.errors import InvalidArgument, LowwaterError
from lowwater.io.terminal import say
from lowwater.pipeline.installation import info

_DESCRIPTION = "Run, explain, draw and check streaming pipelines, and manage their state."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: The command-line arguments; by default those of the process.

    Returns:
        The exit status: 0, 1 for an error of the pipeline or its data, 2 for a wrong command,
        130 when interrupted. After SIGTERM a pipeline that writes raises ``SystemExit(143)``.
    """
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 2
    try:
        if options.command == "demo" and options.spark:
            from lowwater.cli.demo_spark import demo_spark

            return 0 if demo_spark(sys.stdout) else 1
        if options.command == "demo":
            from lowwater.cli.demo import demo

            return 0 if demo(sys.stdout, state=options.state) else 1
        if options.command == "bench":
            from lowwater.cli.bench import bench

            bench(sys.stdout, events=options.events, keys=options.keys, rounds=options.rounds)
            return 0
        if options.command == "info":
            say(info())
            return 0
        if options.command == "state":
            return _state(options)
        if options.command in explain_commands.COMMANDS:
            return explain_commands.COMMANDS[options.command](options)
        if options.command == "scenario":
            return scenario_command.scenario(options)
        return run_command.run(options)
    except LowwaterError as error:
        say(f"lowwater: {error}", file=sys.stderr)
        return 2 if isinstance(error, InvalidArgument) else 1
    except BrokenPipeError:  # the reader closed the pipe, as `| head` does
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        state = getattr(options, "state", None)
        again = "" if state is None else "; run the same command to resume from the last commit"
        say(f"lowwater: interrupted{again}", file=sys.stderr)
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = SuggestingParser(prog="lowwater", description=_DESCRIPTION)
    parser.add_argument("--version", action="version", version=f"lowwater {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="run a demonstration on the flights out of New York in 2013",
        description="Compute departures and delays by hour and duty sessions of aircraft, and "
        "check the results. Takes less than a minute.",
    )
    where = demo.add_mutually_exclusive_group()
    where.add_argument(
        "--spark",
        action="store_true",
        help="run on Spark, as a stream of files, and compare with the embedded runner",
    )
    where.add_argument(
        "--state",
        metavar="DIR",
        help="keep state and output in DIR; after Ctrl-C or a kill, the same command resumes",
    )
    run_command.add_command(commands)
    explain_commands.add_commands(commands)
    scenario_command.add_command(commands)
    bench = commands.add_parser(
        "bench",
        help="measure speed, commits and memory on this machine",
        description="Measure on this machine: events per second by windows and kernels, the "
        "latency of commits, and the memory of open windows. Takes a minute or two.",
    )
    for name, value, text in (
        ("--events", 1_000_000, "events in a round"),
        ("--keys", 10_000, "keys of the events"),
        ("--rounds", 3, "rounds, of which the median is printed"),
    ):
        bench.add_argument(
            name, type=positive, default=value, metavar="N", help=f"{text} (default: {value:,})"
        )
    commands.add_parser(
        "info",
        help="show versions, extras and the kernels in use",
        description="Show versions, installed extras and the kernels in use.",
    )
    _add_state(commands.add_parser("state", help="inspect or remove a state directory"))
    return parser


def _add_state(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    texts = {
        "info": "show the pipeline, positions, watermark, windows, keys and sizes",
        "verify": "read everything and report damage",
        "export": "write the open windows as JSON lines or Parquet",
        "compact": "join small files in the output folders of its runs",
        "relocate": "tell it where inputs or outputs are after they were moved",
        "split": "divide it into directories by sources and what reads them",
        "merge": "put directories together that one was divided into",
        "reset": "remove the state, so that the pipeline starts from the beginning",
    }
    for name, text in texts.items():
        action = actions.add_parser(name, help=text, description=text.capitalize() + ".")
        about = "the new directory" if name == "merge" else "the directory given to run(state=)"
        action.add_argument("directory", metavar="DIR", help=about)
        if name == "export":
            action.add_argument("--format", choices=("jsonl", "parquet"), default="jsonl")
            action.add_argument(
                "--output",
                metavar="FILE",
                help="file to write (default for JSON lines: standard output)",
            )
        if name == "compact":
            action.add_argument(
                "--size", default="128MB", help="files below this size are joined (default: 128MB)"
            )
            action.add_argument(
                "--age", default="1h", help="if they are at least this old (default: 1h)"
            )
        if name == "relocate":
            action.add_argument("old", metavar="OLD", help="a path, or a folder of paths, in it")
            action.add_argument("new", metavar="NEW", help="where that is now")
        if name == "split":
            action.add_argument(
                "--into",
                action="append",
                nargs="+",
                required=True,
                metavar=("NEW", "NAME"),
                help="a new directory, and the sources or stages that it gets, with all that is "
                "connected with them (repeat for each directory)",
            )
        if name == "merge":
            action.add_argument("parts", nargs="+", metavar="PART", help="a directory to merge")
        if name == "reset":
            action.add_argument("--yes", action="store_true", help="confirm the removal")


def _state(options: argparse.Namespace) -> int:
    from lowwater.pipeline import state_tools

    if options.action == "info":
        say(state_tools.state_info(options.directory).to_text())
    elif options.action == "verify":
        say(f"{state_tools.verify_state(options.directory):,} rows, no damage found")
    elif options.action == "compact":
        from lowwater.io.sinks import Compaction

        compaction = Compaction(size=options.size, age=options.age)
        folders = state_tools.compact_outputs(options.directory, compaction)
        for folder in folders:
            say(f"{folder.path}: {folder.before:,} files became {folder.after:,}")
        if not folders:
            say("no folder of output was found", file=sys.stderr)
    elif options.action == "relocate":
        from lowwater.pipeline.relocation import relocate_state

        moved = relocate_state(options.directory, options.old, options.new)
        for old, new in moved.items():
            say(f"{old} is now {new}")
    elif options.action == "split":
        from lowwater.pipeline.state_parts import split_state

        parts = {new: names for new, *names in options.into}
        for new, names in split_state(options.directory, parts).items():
            say(f"{new}: {', '.join(names)}")
    elif options.action == "merge":
        from lowwater.pipeline.state_parts import merge_states

        say(f"{options.directory}: {', '.join(merge_states(options.parts, options.directory))}")
    elif options.action == "reset":
        left = state_tools.reset_state(options.directory, yes=options.yes)
        say("the state was removed")
        if left:
            say(f"not removed, because not part of the state: {', '.join(left)}", file=sys.stderr)
    else:
        _export(options)
    return 0


def _export(options: argparse.Namespace) -> None:
    from lowwater.engine.records.json_rows import to_json
    from lowwater.engine.records.python_values import python_rows
    from lowwater.pipeline.state_tools import export_state

    if options.format == "parquet" and options.output is None:
        raise InvalidArgument("Parquet cannot be printed", hint="Name a file: --output FILE")
    windows = export_state(options.directory)
    if options.format == "parquet":
        import pyarrow.parquet as pq

        with writable(options.output):
            pq.write_table(windows, options.output)
        return
    lines = (to_json(row) + "\n" for row in python_rows(windows))
    if options.output is None:
        sys.stdout.writelines(lines)
        return
    with writable(options.output), Path(options.output).open("w", encoding="utf-8") as file:
        file.writelines(lines)
