"""Tables that are made from explicit changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lowwater.engine.join.changelog import FromChangelog
from lowwater.engine.join.upserting import DELETED
from lowwater.engine.records.stage_output import TIME
from lowwater.engine.records.stateless import require_names, schema_after
from lowwater.errors import InvalidArgument, describe, explained
from lowwater.pipeline.fluent import RecordSteps, Stream
from lowwater.pipeline.tables import Table, checked_key, table_of
from lowwater.time import DurationLike

Codes = str | Sequence[str]


@explained(id="key", primary_key="key")
def changelog(
    stream: RecordSteps,
    *,
    key: str | Sequence[str],
    op: str = "op",
    insert: Codes = "c",
    update: Codes = "u",
    delete: Codes = "d",
    before: str = "before",
    after: str = "after",
    ttl: DurationLike | None = None,
    keep_deleted: DurationLike | None = None,
) -> Table[Stream]:
    """Return the table that a stream of explicit changes describes, in order of arrival.

    An insert or update puts the row after it, whether or not there was one. A delete removes the
    row whose key is that of the row before it. An update that changes the primary key removes the
    old row too. The table has the columns of the rows; a row has the event time of its change.

    A change of another operation is a dead letter with the reason ``unknown_op``; one that lacks
    the row that it needs, with the reason ``no_row``; one with a null in the key, ``null_key``.

    >>> import lowwater as lw
    >>> moves = [
    ...     {"at": "2000-01-01T12Z", "op": op, "before": None, "after": {"id": 1, "city": city}}
    ...     for op, city in (("c", "Ulm"), ("u", "Bonn"))
    ... ]
    >>> lw.changelog(lw.from_iterable(moves, time="at"), key="id").rows()
    [{'id': 1, 'city': 'Bonn'}]

    Args:
        stream: The changes, one per record.
        key: The columns of the primary key, within the rows.
        op: The column that names the operation, as text.
        insert: Its values for inserts; one, or several.
        update: Those for updates.
        delete: Those for deletes.
        before: The column with the row before the change, a struct or mapping; may be null unless
            the row is deleted, and may then have the key only.
        after: The column with the row after the change; null if the row is deleted.
        ttl: How long after its last change a row is deleted, in event time; by default never.
        keep_deleted: How long a deleted key is remembered, in event time; by default a day.

    Raises:
        InvalidArgument: An argument is wrong, a column is missing, or the stream retracts.
    """
    return _changelog(
        stream,
        key=key, op=op, insert=insert, update=update, delete=delete, before=before, after=after,
        ttl=ttl, keep_deleted=keep_deleted, tombstones=False, where="changelog",
    )  # fmt: skip


@explained(id="key", primary_key="key")
def debezium(
    stream: RecordSteps,
    *,
    key: str | Sequence[str],
    ttl: DurationLike | None = None,
    keep_deleted: DurationLike | None = None,
) -> Table[Stream]:
    """Return the table that a stream of Debezium's change events describes.

    It is :func:`changelog` for the envelope ``op``, ``before``, ``after``, in which ``op`` is
    ``c`` (create), ``r`` (read by a snapshot), ``u`` (update) or ``d`` (delete). Tombstones,
    records in which all three are null, are ignored. Read the stream with ``time="ts_ms",
    unit="ms"`` for Debezium's event time.

    Args:
        stream: The events, without ``schema`` and ``payload`` around them.
        key: The columns of the primary key, within the rows.
        ttl: How long after its last change a row is deleted, in event time; by default never.
        keep_deleted: How long a deleted key is remembered, in event time; by default a day.

    Raises:
        InvalidArgument: An argument is wrong, a column is missing, or the stream retracts.
    """
    return _changelog(
        stream,
        key=key, op="op", insert=("c", "r"), update="u", delete="d", before="before",
        after="after", ttl=ttl, keep_deleted=keep_deleted, tombstones=True, where="debezium",
    )  # fmt: skip


def _changelog(
    given: RecordSteps,
    *,
    key: str | Sequence[str],
    op: str,
    insert: Codes,
    update: Codes,
    delete: Codes,
    before: str,
    after: str,
    ttl: DurationLike | None,
    keep_deleted: DurationLike | None,
    tombstones: bool,
    where: str,
) -> Table[Stream]:
    if not isinstance(given, RecordSteps):
        raise InvalidArgument(
            f"{describe('stream', given)} is not a stream of records",
            where=where,
            hint="Give what a reader such as lw.from_iterable(...) or lw.read_log(...) returns",
        )
    for name, value in (("op", op), ("before", before), ("after", after)):
        if not isinstance(value, str):
            raise InvalidArgument(
                f"{describe(name, value)} is not the name of a column", where=f"{where}({name}=)"
            )
    codes = [
        _codes(name, one, where)
        for name, one in (("insert", insert), ("update", update), ("delete", delete))
    ]
    every = [code for some in codes for code in some]
    if len({*every}) < len(every):
        twice = next(code for code in every if every.count(code) > 1)
        raise InvalidArgument(
            f"the operation {twice!r} is named twice",
            where=where,
            hint="Each of insert=, update= and delete= has values of its own",
        )
    keys = checked_key(key, where)
    stream = given.to_stream()
    stream._check_order(where)
    if stream._known is not None:
        require_names([op, before, after], stream._known, where)
    puts = (*codes[0], *codes[1])
    kept = tuple(
        name
        for name in stream._always_selected()
        if name not in {flow.time for flow in stream._flows}
    )
    steps = [
        FromChangelog(
            keys, op, puts, codes[2], before, after, flow.time, kept, tombstones, flow.times
        )
        for flow in stream._flows
    ]
    flows = tuple(
        replace(flow, steps=(*flow.steps, step), time=TIME)
        for flow, step in zip(stream._flows, steps, strict=True)
    )
    schema = schema_after(steps[0], stream._schema)
    upserts = replace(stream, _flows=flows, _schema=schema, _names=None)
    return table_of(
        upserts, key=keys, order=None, deleted=DELETED, ttl=ttl, keep_deleted=keep_deleted
    )


def _codes(name: str, value: Codes, where: str) -> tuple[str, ...]:
    codes = (value,) if isinstance(value, str) else tuple(value)
    if not all(isinstance(code, str) for code in codes):
        raise InvalidArgument(
            f"{describe(name, value)} is neither text nor several texts", where=f"{where}({name}=)"
        )
    return codes
