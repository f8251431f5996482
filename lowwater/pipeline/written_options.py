"""Options that a call takes as ``**options``, written out in its signature and its docstring.

So ``help()`` and editors show each by name, and what it means.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

CallT = TypeVar("CallT", bound=Callable[..., Any])


def written_out(
    options: type, defaults: Mapping[str, object], *extended: type
) -> Callable[[CallT], CallT]:
    """Return a decorator that shows options by name in a signature and a docstring.

    Args:
        options: A ``TypedDict`` whose docstring says what each option means.
        defaults: The values that options have if they are not given; others have ``None``.
        extended: The classes that it extends, whose docstrings say what their options mean.
    """
    names = options.__annotations__
    meanings = {name: lines for one in (*extended, options) for name, lines in _lines(one).items()}
    more = "\n".join(meanings[name] for name in names if name in meanings)

    def decorate(call: CallT) -> CallT:
        own = inspect.signature(call)
        parameters = [each for each in own.parameters.values() if each.kind is not each.VAR_KEYWORD]
        for name, kind in names.items():
            parameters.append(
                inspect.Parameter(
                    name,
                    inspect.Parameter.KEYWORD_ONLY,
                    default=defaults.get(name),
                    annotation=getattr(kind, "__forward_arg__", kind),
                )
            )
        vars(call)["__signature__"] = own.replace(parameters=parameters)
        if call.__doc__ is not None:  # python -OO leaves docstrings out
            call.__doc__ = _documented(inspect.cleandoc(call.__doc__), more)
        return call

    return decorate


def _documented(text: str, more: str) -> str:
    """Return a docstring with more lines at the end of its ``Args:``."""
    before, heading, rest = text.partition("\nArgs:\n")
    if not heading:
        before, heading, rest = text.partition("\nRaises:\n")
        return f"{before.rstrip()}\n\nArgs:\n{more}\n{heading}{rest}".rstrip()
    own, blank, after = rest.partition("\n\n")
    own = own.rpartition("    **options: ")[0] if "    **options: " in own else f"{own.rstrip()}\n"
    return f"{before}{heading}{own}{more}{blank}{after}"


def _lines(options: type) -> dict[str, str]:
    """Return the lines of documentation of each option; nothing under ``python -OO``."""
    found: dict[str, str] = {}
    _, _, arguments = inspect.cleandoc(options.__doc__ or "").partition("Args:\n")
    name = ""
    for line in arguments.splitlines():
        if not line.startswith(" " * 8):
            name = line.strip().partition(":")[0]
            found[name] = line
        else:
            found[name] += f"\n{line}"
    return found
