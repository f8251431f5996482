"""What the output calls keys: as their columns, unless it has a column of that name already."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lowwater.engine.records.stateless import require_names
from lowwater.errors import InvalidArgument, PipelineWarning, warn
from lowwater.pipeline.stages import StreamParts

OF_TABLES = frozenset({"timestamp", "kind"})
"""The columns that the rows of a table get: their event time, and whether they are retracted."""


def key_names(
    names: Sequence[str], taken: Collection[str], *, others: Iterable[str] = (), where: str
) -> tuple[str, ...]:
    """Return what the output calls keys; where it is another name, the user is told.

    Args:
        names: What the keys are called.
        taken: The other columns that the output has in any case.
        others: Further columns that it has, as far as they are known.
        where: The method, for messages.

    Raises:
        InvalidArgument: Two keys have one name, or what a key would be called is taken, too.
    """
    require_distinct(names, where)
    found = tuple(f"{name}_key" if name in taken else name for name in names)
    others = {*others, *names}
    for name, new in zip(names, found, strict=True):
        if name != new and (new in taken or new in others):
            raise InvalidArgument(
                f"a key cannot be called {name!r}: the output has a column of that name, and "
                f"another one of the name {new!r}",
                where=where,
                hint="Rename it with with_columns",
            )
    for name, new in zip(names, found, strict=True):
        if name != new:
            warn(
                PipelineWarning,
                f"the key {name!r} is called {new!r} in tables, frames and records of the output, "
                f"which have a column {name!r} of their own",
                where=where,
                hint=_own_name(name, where),
            )
    return found


def _own_name(name: str, where: str) -> str:
    if where == "key_by":
        return f"Name it yourself, which ends this warning: key_by(my_{name}=lw.col({name!r}))"
    return (
        "Name it yourself, which ends this warning: "
        f"with_columns(my_{name}=lw.col({name!r})), and then 'my_{name}' here"
    )


def require_distinct(names: Sequence[str], where: str) -> None:
    """Raise if two keys have one name."""
    for name in names:
        if names.count(name) > 1:
            raise InvalidArgument(
                f"a key cannot be called {name!r}: there are two",
                where=where,
                hint="Rename it with with_columns",
            )


def require_names_of_join(names: Sequence[str], where: str) -> None:
    """Raise if a key of a join is called as the column of event times in its output."""
    if "timestamp" in names:
        raise InvalidArgument(
            "a key cannot be called 'timestamp': the output has the event times in a column of "
            "that name",
            where=where,
            hint="Rename it with with_columns, and name it in left_on=",
        )


def require_key_columns(columns: Iterable[str], stream: StreamParts, where: str) -> None:
    """Raise if a stream is known to lack a key column."""
    if stream._known is not None:
        require_names(columns, stream._known, where)
