"""The conformance check for replayable sources: from each position the same records follow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

from lowwater.engine.graph.sources import (
    GrowingMap,
    Position,
    ReplayableSource,
    hears_commits,
    up_to_now,
)
from lowwater.engine.records.batch import Records
from lowwater.explain.element import same
from lowwater.state.codec import decode, encode

_SIZES = (1, 3, 1_000)
_MOST = 100_000


def check_source(
    make: Callable[[], ReplayableSource], *, more: Callable[[], object] | None = None
) -> None:
    """Check that a source can be read again from wherever a run has stopped.

    The checks: a source with no ``follow`` ends. Positions are plain values that survive a store.
    From each position a new source gives the batches that followed there, with the same positions
    after them, and nothing else; after more data has come, the next batch is still the same. To be
    told what was committed, once or twice, changes nothing of what follows. ``batches`` gives the
    same records. ``up_to_now`` ends, and leaves what comes later for the next run.

    Args:
        make: Returns a new source over the same data, which ends; several records, please.
        more: Adds data to it, if it can grow.

    Raises:
        AssertionError: A check failed; the message names it.
    """
    for size in _SIZES:
        first = _read(make(), None, size)
        assert first.records, "the source has no records: give it some"
        _check_positions(first)
        _check_replay(make, first, size)
        plain = [record for records in make().batches(size, ()) for record in records.rows()]
        assert same(plain, first.records), f"batches({size}) gives other records than batches_from"
    whole = _read(make(), None, 3)
    _check_told(make, whole)
    if more is not None:
        more()
        _check_replay(make, whole, 3, has_grown=True)
        last = _stored(whole.positions[-1])
        later = _read(_ending(make()), last, 3)
        assert later.records, "more has come, and is not read from the last position"
        again = _read(_ending(make()), None, 3)
        assert same(again.records, whole.records + later.records), (
            "a run that stopped in between gives other records than one that did not"
        )


@final
class _Reading:
    """What was read: the records of each batch, and the position after it."""

    def __init__(self) -> None:
        self.batches: list[Sequence[Any]] = []
        self.positions: list[Position] = []

    @property
    def records(self) -> list[Any]:
        return [record for batch in self.batches for record in batch]


def _ending(source: ReplayableSource) -> ReplayableSource:
    ending: Any = up_to_now(source)
    assert ending is not None, "the source never ends: give it up_to_now(), which does"
    return ending


def _read(source: ReplayableSource, position: Position | None, size: int) -> _Reading:
    reading = _Reading()
    for records, after in source.batches_from(position, size, ()):
        assert isinstance(records, Records), f"a batch is {type(records).__name__}, not Records"
        reading.batches.append(records.rows())
        reading.positions.append(after)
        assert len(reading.batches) < _MOST, "the source does not end: give one that does"
    return reading


def _check_positions(reading: _Reading) -> None:
    for position in reading.positions:
        assert isinstance(position, dict), f"the position {position!r} is not a dict"
        try:
            stored = _stored(position)
        except Exception as error:
            raise AssertionError(f"the position {position!r} cannot be stored: {error}") from error
        assert _plain(stored) == _plain(position), f"a store makes {stored!r} of {position!r}"


def _check_replay(
    make: Callable[[], ReplayableSource], first: _Reading, size: int, *, has_grown: bool = False
) -> None:
    """Check that what follows each position is what followed it.

    Once it ``has_grown``, only the next batch has to be the same: what comes after it may be cut
    otherwise.
    """
    when = "read again after more has come" if has_grown else "read again"
    for at, position in enumerate(first.positions):
        # Batches without records fix positions, or say that time goes on: their number is free.
        wanted = [batch for batch in first.batches[at + 1 :] if batch]
        came = [batch for batch in _read(make(), _stored(position), size).batches if batch]
        if has_grown:
            wanted, came = wanted[:1], came[: len(wanted[:1])]
        for one, other in zip(came, wanted, strict=False):
            assert same(one, other), (
                f"{when} from {position!r} in batches of {size}, {one!r} follows, and {other!r} did"
            )
        lacking = len(wanted) - len(came)
        assert lacking <= 0, f"{when} from {position!r}, {lacking} batches are missing"
        assert not lacking, f"{when} from {position!r}, {-lacking} batches come once more"


def _check_told(make: Callable[[], ReplayableSource], whole: _Reading) -> None:
    """Check that commits of which a source is told twice change nothing of what is read."""
    source: Any = make()
    if not hears_commits(source):
        return
    position = whole.positions[0]
    for _ in range(2):
        source.committed(position)
    rest = [record for batch in whole.batches[1:] for record in batch]
    again = _read(make(), _stored(position), 3).records
    assert same(again, rest), "what follows a position changes once it is committed"


def _stored(position: Position) -> Position:
    """Return what a store makes of a position."""
    found: Any = decode(encode(_plain_maps(position)))
    return found


def _plain_maps(value: Any) -> Any:
    if isinstance(value, (dict, GrowingMap)):
        return {name: _plain_maps(item) for name, item in value.items()}
    return value


def _plain(value: Any) -> Any:
    """Return a position with plain dicts and lists, to compare."""
    if hasattr(value, "items"):
        return {name: _plain(item) for name, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
