"""Fills marks in pages while mkdocs builds, and adds the wheel that readers run blocks with."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docs.tools import wheel
from docs.tools.figures import with_figures
from lowwater.cli.main import _parser

MARK = "<!-- help of each command -->"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace the marks in a page."""
    filled = wheel.with_mark(markdown, depth=page.file.src_uri.count("/"))
    return with_figures(filled.replace(MARK, "\n".join(commands())))


def on_post_build(config: Any, **_: Any) -> None:
    """Add the wheel to the site."""
    wheel.build(Path(config["site_dir"]))


def commands() -> Iterator[str]:
    """Yield a heading and the help of each command, as Markdown."""
    os.environ["COLUMNS"] = "100"  # argparse reads the width of the terminal from it
    for parser in _leaves(_parser()):
        name = parser.prog.removeprefix("lowwater").strip()
        yield f"## {name}\n\n```text\n{parser.format_help()}```\n"


def _leaves(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    below = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    for action in below:
        for command in action.choices.values():
            yield from _leaves(command)
    if not below:
        yield parser
