"""Loads the pipeline that a command names: ``module:pipeline``, ``file.py:pipeline`` or a file."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any, final

from lowwater.errors import InvalidArgument, LowwaterError, nearest

if TYPE_CHECKING:
    from lowwater.pipeline import Writing
    from lowwater.pipeline.runnable import Runnable


@final
@dataclass(frozen=True, slots=True)
class Found:
    """A pipeline that a command names.

    Args:
        pipeline: The pipeline.
        place: Where it can be imported from: ``module:name``, or ``module:function()``.
    """

    pipeline: Any
    place: str


def load(target: str, *, with_output: bool = True) -> Runnable[Any, Any] | Writing:
    """Load the pipeline that a command names; see :func:`find`."""
    found: Runnable[Any, Any] | Writing = find(target, with_output=with_output).pipeline
    return found


def find(target: str, *, with_output: bool = True) -> Found:
    """Find the pipeline named by ``module:name`` or ``file.py:name``, or the only one of either.

    Of ``counts`` and ``out = counts.write_jsonl(...)`` in one file, one is the only one that is
    meant.

    Args:
        target: What the command names.
        with_output: Whether pipelines that feed one with an output are not meant by themselves;
            else those with an output are not meant.

    Raises:
        InvalidArgument: There is no such pipeline, or several without a name, or the function that
            builds it failed.
    """
    from lowwater.engine.graph.graph import Graph
    from lowwater.pipeline import Writing
    from lowwater.pipeline.runnable import Runnable

    kinds = (Runnable, Writing)
    place, colon, name = target.rpartition(":")
    if not colon:
        place = target
    if not place or (colon and not name):
        raise InvalidArgument(
            f"{target!r} does not name a pipeline", hint="Write module:pipeline or file.py:pipeline"
        )
    module = _module(place)
    known: dict[str, Any] = {n: v for n, v in vars(module).items() if isinstance(v, kinds)}
    if not colon:
        known = {name: value for name, value in known.items() if _computes(value)}
        if with_output:
            outputs = [one._stage for one in known.values() if isinstance(one, Writing)]
            into = {id(stage) for stage in Graph.of(outputs).stages} if outputs else set()
            meant = {
                n: v for n, v in known.items() if isinstance(v, Writing) or id(v._stage) not in into
            }
        else:
            meant = {n: v for n, v in known.items() if not isinstance(v, Writing)}
        name = _only(place, meant or known, known)
        return Found(known[name], f"{module.__name__}:{name}")
    if not hasattr(module, name):
        hint = nearest(name, known) if known else "Define a pipeline of that name there"
        raise InvalidArgument(f"{place!r} has no {name!r}", hint=hint)
    found = getattr(module, name)
    called = callable(found) and not isinstance(found, kinds)
    if called:
        found = _called(target, found)
    if not isinstance(found, kinds):
        raise InvalidArgument(
            f"{target!r} is a {type(found).__name__}, not a pipeline",
            hint="Name what .aggregate(...), .group(), .process(...) or a step behind it returned",
        )
    return Found(found, f"{module.__name__}:{name}{'()' if called else ''}")


def _computes(value: Any) -> bool:
    """Return whether there is a stage in it; what was only read computes nothing."""
    from lowwater.engine.graph.graph import Read
    from lowwater.pipeline import Stream

    if not isinstance(value, Stream):
        return True
    return not all(isinstance(flow.origin, Read) for flow in value._flows)


def _only(place: str, meant: Mapping[str, Any], known: Mapping[str, Any]) -> str:
    """Return the name of the only pipeline of a module; an object with two names is one."""
    if len({id(value) for value in meant.values()}) == 1:
        return next(iter(meant))
    if not known:
        raise InvalidArgument(
            f"{place!r} has no pipeline at its top level",
            hint=f"Define one there, or name a function that returns one: {place}:function",
        )
    raise InvalidArgument(
        f"{place!r} has several pipelines: {', '.join(known)}",
        hint=f"Say which: {place}:{list(known)[-1]}",
    )


def _called(target: str, function: Callable[[], Any]) -> Any:
    try:
        return function()
    except LowwaterError as error:
        raise _located(error) from None
    except Exception as error:
        raise InvalidArgument(
            f"{target!r} failed when it was called: {type(error).__name__}: {error}",
            hint="Call it in Python, without arguments, to see where",
        ) from error


def _module(place: str) -> Any:
    if place.endswith(".py"):
        return _from_file(Path(place))
    if place.startswith("."):  # Python would take it for a relative import
        raise InvalidArgument(f"{place!r} names no module", hint="Give module or file.py:pipeline")
    folder = str(Path.cwd())
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        return importlib.import_module(place)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{place}.".startswith(f"{error.name}."):
            raise _failed(place, error) from error
        if Path(place).exists():
            raise InvalidArgument(
                f"{place!r} is not a Python file",
                hint="Name the file.py that defines the pipeline",
            ) from None
        raise InvalidArgument(
            f"there is no module {place!r}", hint="Run from its folder, or give file.py:pipeline"
        ) from None
    except LowwaterError as error:
        raise _located(error) from None
    except Exception as error:
        raise _failed(place, error) from error


def _from_file(path: Path) -> Any:
    if not path.is_file():
        raise InvalidArgument(f"there is no file {str(path)!r}", hint="Check the path")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise InvalidArgument(f"{str(path)!r} cannot be loaded", hint="Give a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(path.parent.resolve()))
    try:
        spec.loader.exec_module(module)
    except LowwaterError as error:
        raise _located(error) from None
    except Exception as error:
        raise _failed(str(path), error) from error
    return module


def _located(error: LowwaterError) -> LowwaterError:
    """Return an error with the line of the user's code that led to it, if it is known."""
    lines = [
        f"{frame.f_code.co_filename}:{line}"
        for frame, line in walk_tb(error.__traceback__)
        if str(frame.f_globals.get("__name__")).partition(".")[0] not in ("lowwater", "importlib")
        and not frame.f_code.co_filename.startswith("<")
    ]
    if not lines or not isinstance(error, InvalidArgument):
        return error
    where = lines[-1] if error.where is None else f"{error.where}, {lines[-1]}"
    return InvalidArgument(error.what, where=where, hint=error.hint)


def _failed(place: str, error: Exception) -> InvalidArgument:
    return InvalidArgument(
        f"{place!r} failed while it was loaded: {type(error).__name__}: {error}",
        hint="Run it with Python to see where",
    )
