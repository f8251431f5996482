"""The trees of errors and warnings, and the helpers that build their messages.

::

    LowwaterError
    ├── InvalidArgument (also ValueError)   a value given to the API is wrong
    │   ├── UnknownName (also AttributeError)   there is no step, value or name like that
    │   └── NoItems (also TypeError)        it is neither indexed nor iterated over
    ├── UnsafeTrigger                       the trigger could lose admitted data (S-R3)
    ├── UnsupportedByRunner                 a runner cannot do this; names the nearest that can
    ├── DataError                           an element, file or column cannot be used
    ├── StateError                          stored state is corrupt, locked or incompatible
    ├── WorkerLost                          a worker process has ended in the middle of a run
    └── InternalError                       a bug in lowwater: please report

    LowwaterWarning (a UserWarning)
    ├── UnitWarning                         a number that looks like another unit
    ├── DataWarning                         many records cannot be used
    └── PipelineWarning                     the pipeline runs, but likely not as was meant

Every message says what happened in the user's words, where it happened, and one concrete fix.
"""

from __future__ import annotations

import sys
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from functools import wraps
from importlib import import_module
from inspect import Parameter, isfunction, signature
from types import FrameType, ModuleType
from typing import ParamSpec, TypeVar, final

from lowwater.display.secrets import redacted
from lowwater.display.text import readable, shown, visible
from lowwater.display.tracebacks import is_of_user, shorten

__all__ = [
    "DataError",
    "DataWarning",
    "InternalError",
    "InternalWarning",
    "InvalidArgument",
    "LowwaterError",
    "LowwaterWarning",
    "NoItems",
    "PipelineWarning",
    "StateError",
    "UnitWarning",
    "UnknownName",
    "UnsafeTrigger",
    "UnsupportedByRunner",
    "WorkerLost",
]


class LowwaterError(Exception):
    """Base class of every error that lowwater raises on purpose.

    Args:
        what: What happened, in the user's words.
        where: The place: a step of the pipeline, a file, a path such as ``$.window.period``.
        hint: One concrete fix.

    >>> str(InvalidArgument("size=0 (int) must be longer than zero", where="window", hint="Use 1"))
    'size=0 (int) must be longer than zero (at window). Use 1'
    """

    def __init__(self, what: str, *, where: str | None = None, hint: str | None = None) -> None:
        # What is quoted here may hold a password: a URI, a setting, what a library said of it. Or
        # escape sequences, which a terminal would obey.
        what = visible(redacted(what))
        where = None if where is None else visible(redacted(where))
        hint = None if hint is None else visible(redacted(hint))
        self.what = what
        self.where = where
        self.hint = hint
        text = what if where is None else f"{what} (at {where})"
        super().__init__(text if hint is None else f"{text}. {hint}")


class InvalidArgument(LowwaterError, ValueError):
    """A value given to the API is wrong."""


class UnknownName(InvalidArgument, AttributeError):
    """A name is not there: of a step, an aggregate, a window or a result."""


class NoItems(InvalidArgument, TypeError):
    """A value has no items, so it is neither indexed nor iterated over."""


class UnsafeTrigger(LowwaterError):
    """The trigger may finish while elements are still admitted, so data could be lost (S-R3)."""


class UnsupportedByRunner(LowwaterError):
    """The runner does not support a feature of the pipeline."""


class DataError(LowwaterError):
    """An element, file or column cannot be used."""


class StateError(LowwaterError):
    """Stored state is corrupt, locked by another process, or does not fit the pipeline."""


class WorkerLost(LowwaterError):
    """A worker process of a run has ended, and the run with it; what is committed stays."""


class InternalError(LowwaterError):
    """A bug in lowwater itself: please report it, with the message."""


class LowwaterWarning(UserWarning):
    """Base class of every warning that lowwater gives. Filter it, or one below, by its class."""


class UnitWarning(LowwaterWarning):
    """A plain number was taken in one unit and looks as if another was meant."""


class DataWarning(LowwaterWarning):
    """Many records of a source are dead letters, or files beside those that are read are not."""


class InternalWarning(LowwaterWarning):
    """A bug in lowwater itself that does not stop the run: please report it, with the message."""


class PipelineWarning(LowwaterWarning):
    """The pipeline runs, but likely not as was meant: a finding of ``lw.check``."""


def warn(
    category: type[LowwaterWarning], what: str, *, where: str | None = None, hint: str
) -> None:
    """Give a Python warning, at the line of the user's code that led here.

    Python shows the same warning for the same line once, unless a filter says otherwise.

    Args:
        category: Which warning.
        what: What happened, in the user's words.
        where: The place, as in an error.
        hint: One concrete fix.
    """
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and _is_ours(frame.f_globals):
        level, frame = level + 1, frame.f_back
    warnings.warn(str(LowwaterError(what, where=where, hint=hint)), category, stacklevel=level)


@final
class UnusedNotice:
    """Warns once an object is gone, or the program has ended, if nobody had a use for it.

    As Python does for a coroutine that was never awaited. At the end of the program only for what
    the program itself has made: a module that is imported may have it for others.

    Args:
        of: The object.
        what: What was not done, in the user's words.
        hint: One concrete fix.
    """

    __slots__ = ("_finalizer",)

    def __init__(self, of: object, what: str, *, hint: str) -> None:
        frame = _frame_of_user()
        text = str(LowwaterError(what, hint=hint))
        file, line = frame.f_code.co_filename, frame.f_lineno
        self._finalizer = weakref.finalize(of, _warn_at, text, file, line)
        self._finalizer.atexit = frame.f_globals.get("__name__") == "__main__"

    def withdraw(self) -> None:
        """Note that there is a use for the object."""
        self._finalizer.detach()


def _warn_at(text: str, file: str, line: int) -> None:
    warnings.warn_explicit(text, PipelineWarning, file, line)


def _frame_of_user() -> FrameType:
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_globals):
        frame = frame.f_back
    return frame


def _is_ours(names: dict[str, object]) -> bool:
    return str(names.get("__name__", "")).split(".")[0] == "lowwater"


def load_extra(module: str, *, extra: str, purpose: str) -> ModuleType:
    """Import an optional package, or say how to install it.

    Args:
        module: The module to import.
        extra: The extra of lowwater that brings it.
        purpose: What needs it, as the start of a sentence: ``"to_pandas"``.

    Raises:
        InvalidArgument: It cannot be imported.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise InvalidArgument(
            f"{purpose} needs {module.partition('.')[0]}, which cannot be imported: {error}",
            hint=f'Install it: pip install "lowwater[{extra}]"',
        ) from error


def cause(error: BaseException) -> BaseException | None:
    """Return what to raise an error from: nothing if the text of its cause holds secrets.

    Python prints the text of a cause as it is.
    """
    chain: BaseException | None = error
    while chain is not None:
        if redacted(str(chain)) != str(chain):
            return None
        chain = chain.__cause__ or chain.__context__
    return error


@contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn any exception from a user's function into a ``DataError`` that names the function.

    lowwater's own errors pass through unchanged: they already say what, where and the fix.

    Raises:
        DataError: The code inside raised anything other than a ``LowwaterError``.
    """
    try:
        yield
    except LowwaterError:
        raise
    except Exception as error:
        raise DataError(
            f"{readable(what)} failed: {type(error).__name__}: {error}",
            hint="Fix it; the error above this one shows the place",
        ) from error


@contextmanager
def placed(where: str | None) -> Iterator[None]:
    """Name the place in an ``InvalidArgument`` that names none.

    Args:
        where: The place; ``None``: change nothing.
    """
    try:
        yield
    except InvalidArgument as error:
        if where is None or error.where is not None or type(error) is not InvalidArgument:
            raise
        raise InvalidArgument(error.what, where=where, hint=error.hint) from None


def describe(name: str, value: object) -> str:
    """Return ``name=value (type)``, the form in which error messages quote an argument.

    Long lists and texts are cut, functions are named.

    >>> describe("size", "2x")
    "size='2x' (str)"
    """
    return f"{name}={shown(value, exact=True)} ({type(value).__name__})"


def nearest(name: str, known: Iterable[str], elsewhere: Mapping[str, str] | None = None) -> str:
    """Return a hint that suggests the closest known name, or lists the known names.

    Args:
        name: The name that is not known.
        known: The names that are.
        elsewhere: What other libraries call things: from their name to the known one.

    >>> nearest("delya", ["delay", "key"])
    "Did you mean 'delay'?"
    >>> nearest("batch_size", ["bundle_size", "clock"], {"batch_size": "bundle_size"})
    "Did you mean 'bundle_size'?"
    """
    names = sorted(known)
    meant = (elsewhere or {}).get(name)
    if meant in names:
        return f"Did you mean {meant!r}?"
    same = [known for known in names if known.casefold() == name.casefold()]
    close = same or get_close_matches(name, names, n=1)
    return f"Did you mean {close[0]!r}?" if close else f"Known: {', '.join(map(repr, names))}"


def nearest_column(name: str, known: Iterable[str]) -> str:
    """Return the hint of :func:`nearest` for a column, which may be one that nobody has named.

    >>> nearest_column("value", ["points", "team"])
    "Known: 'points', 'team'; an aggregate without a column, as lw.sum(), reads 'value': name one"
    >>> nearest_column("place.city", ["place"])
    "It may be a field of 'place': lw.col('place').struct.field('city')"
    """
    known = tuple(known)
    whole, dot, inner = name.partition(".")
    if dot and whole in known:
        return f"It may be a field of {whole!r}: lw.col({whole!r}).struct.field({inner!r})"
    hint = nearest(name, known)
    if name != "value" or not hint.startswith("Known"):
        return hint
    return f"{hint}; an aggregate without a column, as lw.sum(), reads 'value': name one"


def shorten_own(error: Exception) -> None:
    """Drop the frames of the library from an error's traceback, unless they are what it is about.

    The message of an error of lowwater says what happened and where; that of an exception of the
    user's code stands at its place. Call it where the user has called the library.
    """
    is_own = isinstance(error, LowwaterError) and not isinstance(error, InternalError)
    if is_own or is_of_user(error):
        shorten(error)


CallP = ParamSpec("CallP")
ReturnT = TypeVar("ReturnT")


def explained(**elsewhere: str) -> Callable[[Callable[CallP, ReturnT]], Callable[CallP, ReturnT]]:
    """Return a decorator that says which argument a call has too many, or lacks.

    Python's own ``TypeError`` names no fix. A call that fits costs nothing more.

    Args:
        **elsewhere: What others call the arguments: their name, and the one here.

    >>> @explained(width="size")
    ... def window(*, size):
    ...     return size
    >>> window(width=1)
    Traceback (most recent call last):
    lowwater.errors.InvalidArgument: there is no argument 'width' (at window). Did you mean 'size'?
    """

    def decorate(function: Callable[CallP, ReturnT]) -> Callable[CallP, ReturnT]:
        @wraps(function)
        def call(*args: CallP.args, **kwargs: CallP.kwargs) -> ReturnT:
            try:
                return function(*args, **kwargs)
            except TypeError as error:
                inside = error.__traceback__ is None or error.__traceback__.tb_next is not None
                wrong = None if inside else _wrong_call(function, len(args), kwargs, elsewhere)
                if wrong is not None:
                    raise wrong from None
                shorten_own(error)
                raise
            except Exception as error:
                shorten_own(error)
                raise

        return call

    return decorate


ClassT = TypeVar("ClassT", bound=type)


def constructor(**elsewhere: str) -> Callable[[ClassT], ClassT]:
    """Return a decorator of classes that does for their construction what :func:`explained` does.

    Args:
        **elsewhere: As for :func:`explained`.
    """

    def decorate(made: ClassT) -> ClassT:
        type.__setattr__(made, "__init__", explained(**elsewhere)(vars(made)["__init__"]))
        return made

    return decorate


def explains(made: ClassT) -> ClassT:
    """Decorate all public methods of a class with :func:`explained`.

    Those that are decorated already keep what others call their arguments.
    """
    for name, method in list(vars(made).items()):
        is_public = isfunction(method) and not name.startswith("_")
        if is_public and not hasattr(method, "__wrapped__"):
            type.__setattr__(made, name, explained()(method))
    return made


def _wrong_call(
    function: Callable[..., object],
    given: int,
    named: Mapping[str, object],
    elsewhere: Mapping[str, str],
) -> InvalidArgument | None:
    """Return the error for a call whose arguments are not those of the function."""
    place = function.__qualname__.removesuffix(".__init__").rpartition(".")[2]
    taken = [each for each in signature(function).parameters.values() if each.name != "self"]
    given -= "self" in signature(function).parameters
    kinds = {each.kind for each in taken}
    every = [each for each in taken if each.kind not in (each.VAR_POSITIONAL, each.VAR_KEYWORD)]
    known = [each.name for each in every]
    shown = f"{place}({', '.join(map(_as_written, taken))})"
    for name in named:
        if name not in known and Parameter.VAR_KEYWORD not in kinds:
            hint = nearest(name, known, elsewhere) if known else f"Write {shown}"
            return InvalidArgument(f"there is no argument {name!r}", where=place, hint=hint)
    positional = [each for each in every if each.kind is not each.KEYWORD_ONLY]
    if given > len(positional) and Parameter.VAR_POSITIONAL not in kinds:
        were = "1 argument was" if given == 1 else f"{given} arguments were"
        may_be = f"and only {len(positional)} may be" if positional else "and none may be"
        what = f"{were} given by position, {may_be}"
        named_here = "the others" if positional else "them"
        hint = f"Name {named_here}: {shown}" if len(known) > len(positional) else f"Write {shown}"
        return InvalidArgument(what, where=place, hint=hint)
    for each in every:
        if each.default is each.empty and each.name not in [*named, *known[:given]]:
            what = f"the argument {each.name!r} is missing"
            # Those that are needed, and those that were written: the others would hide them.
            needed = [
                one
                for one in taken
                if one.default is one.empty or one.name in named or one.name in known[:given]
            ]
            needed = [one for one in needed if one.kind is not one.VAR_KEYWORD]
            shown = f"{place}({', '.join(map(_as_written, needed))})"
            return InvalidArgument(what, where=place, hint=f"Write {shown}")
    return None


def _as_written(parameter: Parameter) -> str:
    """Return how a call gives an argument, as in ``size=...``."""
    if parameter.kind is parameter.VAR_POSITIONAL:
        return f"*{parameter.name}"
    if parameter.kind is parameter.VAR_KEYWORD:
        return f"**{parameter.name}"
    return f"{parameter.name}=..."
