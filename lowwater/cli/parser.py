"""A parser of command lines that says which command, option or value was likely meant."""

from __future__ import annotations

import argparse
import re
from collections.abc import Sequence
from typing import Any, NoReturn

from lowwater.errors import nearest

_CHOICE = re.compile(r"(?P<what>.*)invalid choice: '(?P<given>.*)' \(choose from (?P<known>.*)\)")
_OPTION = re.compile(r"--[a-z][a-z-]*")


class SuggestingParser(argparse.ArgumentParser):
    """Answers a wrong name with the nearest right one, in one line."""

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        options, unknown = super().parse_known_args(args, namespace)
        if unknown:
            self.error(self._unknown(unknown))
        return options, unknown

    def error(self, message: str) -> NoReturn:
        """Print what is wrong and end with status 2."""
        wrong = _CHOICE.fullmatch(message)
        if wrong is not None:
            known = re.findall(r"[\w-]+", wrong["known"])
            hint = nearest(wrong["given"], known)
            message = f"{wrong['what']}there is no {wrong['given']!r}. {hint}"
        end = "" if message.endswith("?") else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help\n")

    def _unknown(self, arguments: Sequence[str]) -> str:
        name, text = arguments[0].partition("=")[0], " ".join(arguments)
        if not name.startswith("--"):
            return f"there is no argument {text!r}"
        hint = nearest(name, _OPTION.findall(self.format_help()))
        return f"there is no option {name!r}. {hint}"
