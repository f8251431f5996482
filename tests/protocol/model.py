"""The protocol of durable runs, as a model that is checked: what each step changes on disk.

A record is a number, and its result is that number: each must come to stand once in each place. A
run reads records, commits, and delivers what it has committed; a crash may come between any two
steps. A state is plain values, so that all can be visited (``checker.py``).

What survives a crash is a :class:`Commit` and the places; what does not is a :class:`Process`.

The file is long because it is the specification: the steps of a run in their order, with each rule
where it is needed, are read as one.
``docs/explanation/exactly-once.md`` tells the same in words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias, final

from tests.protocol.checker import Model

Rows: TypeAlias = tuple[int, ...]
Epoch: TypeAlias = int
Opening: TypeAlias = int
Kind: TypeAlias = Literal["files", "ledger", "collecting"]


class Commit(NamedTuple):
    """What one atomic write holds.

    Attributes:
        epoch: Its number.
        position: How many records of the source are in the state.
        outbox: The rows it delivers, under its number; the same for each place.
        openings: The openings that places may name: all since the commit before.
        held: For each place, the deliveries that wait there by then.
        ended: Whether the input has ended.
        given: The places that the pipeline had.
    """

    epoch: Epoch = 0
    position: int = 0
    outbox: Rows = ()
    openings: tuple[Opening, ...] = ()
    held: tuple[frozenset[Epoch], ...] = ()
    ended: bool = False
    given: frozenset[int] = frozenset()


class Place(NamedTuple):
    """What is at the place of a sink.

    Attributes:
        kind: ``files``: a file for each delivery, of its name. ``ledger``: rows in a database, with
            the number of the last delivery in the same transaction. ``collecting``: deliveries wait
            in a hidden folder until they are joined into one file.
        owner: The opening that wrote last; 0 before the first.
        shown: What readers see: (first delivery, last delivery, rows).
        waiting: The deliveries that wait: (delivery, rows).
        mark: Up to which delivery files are published, as is noted beside them.
        since: The first record whose result it is to have.
        until: The record from which on it has none; ``None`` while the pipeline has it.
    """

    kind: Kind
    owner: Opening = 0
    shown: frozenset[tuple[Epoch, Epoch, Rows]] = frozenset()
    waiting: frozenset[tuple[Epoch, Rows]] = frozenset()
    mark: Epoch = 0
    since: int = 0
    until: int | None = None

    def covers(self, epoch: Epoch) -> bool:
        """Whether what is published holds a delivery."""
        return epoch <= max([self.mark, *(last for _, last, _ in self.shown)])

    @property
    def latest(self) -> Epoch:
        """The latest delivery that came here."""
        came = [last for _, last, _ in self.shown] + [epoch for epoch, _ in self.waiting]
        return max([self.mark, *came])


class Process(NamedTuple):
    """A run, in memory.

    Attributes:
        at: Where it stands in :data:`PROGRAM`.
        directory: The state directory that it has locked.
        opening: The id of this opening; 0 before it is drawn.
        epoch: The last commit that it knows.
        position: How many records it has read.
        rows: The results since that commit.
        openings: Those that the next commit writes.
        delivery: What it is delivering: (number, rows).
        nth: To which place next.
        again: Whether it delivers what an earlier run may have.
        until: Where it stops reading: what was there when it began.
        lists: For each place that collects, what it has put there.
        forked: Whether it is a child that was forked off a run.
        given: The places that the pipeline has.
        leaves: The places that the state knows and the pipeline no longer has.
    """

    at: str
    directory: int
    opening: Opening = 0
    epoch: Epoch = 0
    position: int = 0
    rows: Rows = ()
    openings: tuple[Opening, ...] = ()
    delivery: tuple[Epoch, Rows] | None = None
    nth: int = 0
    again: bool = False
    until: int = 0
    lists: tuple[frozenset[Epoch], ...] = ()
    forked: bool = False
    given: frozenset[int] = frozenset()
    leaves: frozenset[int] = frozenset()


class State(NamedTuple):
    """All there is.

    Attributes:
        arrived: How many records the source has.
        told: Up to where the source was told that it may forget.
        directories: The state directory, and a copy of it; ``None``: not there.
        older: An earlier copy that somebody has put aside.
        places: The places of the sinks.
        processes: The runs that are alive, and a child.
        opened: How many openings there were.
        durable: The highest position that any commit ever held.
        faults: What may still go wrong: crashes, copies, losses of files, forks.
        given: The places that the pipeline has by now.
        changes: How often an output may still be removed or added.
        refused: Whether a run was refused, in words.
    """

    arrived: int
    told: int
    directories: tuple[Commit | None, Commit | None]
    older: Commit | None
    places: tuple[Place, ...]
    processes: tuple[Process | None, ...]
    opened: int
    durable: int
    faults: tuple[int, int, int, int]
    given: frozenset[int]
    changes: int
    refused: bool = False


@final
@dataclass(frozen=True)
class Bounds:
    """How much of the world is visited.

    Args:
        kinds: The sinks.
        records: The most records that arrive.
        openings: The most openings of a state directory.
        crashes: The most crashes.
        copies: How often a directory is copied, or an older copy put back.
        losses: How often a file that waits is lost.
        forks: How often a process forks.
        changes: How often an output is removed from the pipeline, or added to it.
        forgets: Whether the source forgets what it was told is durable, as a replication slot does;
            files stay.
    """

    kinds: tuple[Kind, ...] = ("files", "collecting")
    records: int = 2
    openings: int = 3
    crashes: int = 2
    copies: int = 1
    losses: int = 0
    forks: int = 0
    forgets: bool = True
    changes: int = 0


Told: TypeAlias = tuple[str, State]
RUN, CHILD = 0, 1


@final
class Protocol(Model[State]):
    """What can happen next, and what must never be.

    Args:
        bounds: How much is visited.
        without: The name of a rule that is left out: a mutant, which some invariant has to catch.
    """

    def __init__(self, bounds: Bounds, without: str = "") -> None:
        super().__init__(without)
        self.bounds = bounds

    def first(self) -> State:
        """Return the state before anything has happened."""
        bounds = self.bounds
        return State(
            arrived=1,
            told=0,
            directories=(None, None),
            older=None,
            places=tuple(Place(kind) for kind in bounds.kinds),
            processes=(None, None),
            opened=0,
            durable=0,
            faults=(bounds.crashes, bounds.copies, bounds.losses, bounds.forks),
            # With changes, the last place comes later.
            given=frozenset(range(len(bounds.kinds) - bool(bounds.changes))),
            changes=bounds.changes,
        )

    # -- what can happen

    def steps(self, state: State) -> Iterator[Told]:
        """Yield what can happen next, in words, and what is afterwards."""
        yield from self._outside(state)
        for number, process in enumerate(state.processes):
            if process is None:
                continue
            if process.forked and self.holds("a child of a run does nothing with its sinks"):
                continue
            for told, after in getattr(self, f"_{process.at}")(state, number, process):
                yield f"the {'child' if number == CHILD else 'run'} {told}", after

    def _outside(self, state: State) -> Iterator[Told]:
        crashes, copies, losses, forks = state.faults
        run = state.processes[RUN]
        if state.arrived < self.bounds.records:
            yield "a record arrives", state._replace(arrived=state.arrived + 1)
        if state.opened < self.bounds.openings:
            free = RUN if run is None else CHILD
            for at, directory in enumerate(state.directories):
                is_locked = any(one is not None and one.directory == at for one in state.processes)
                if is_locked and self.holds("a state directory has one owner"):
                    continue
                if (at == 0 or directory is not None) and state.processes[free] is None:
                    begun = Process("takes_up", at, until=state.arrived, given=state.given)
                    name = "the copy of the state" if at else "the state"
                    yield f"a run over {name} starts", _with(state, free, begun)
        if run is not None and crashes:
            less = (crashes - 1, copies, losses, forks)
            yield (
                f"the run is killed ({run.at})",
                state._replace(processes=(None, None), faults=less),
            )
        if run is not None and forks and run.at == "reads" and state.processes[CHILD] is None:
            less = (crashes, copies, losses, forks - 1)
            child = run._replace(forked=True)
            yield "the run forks", _with(state, CHILD, child)._replace(faults=less)
        if run is None:
            yield from self._changes(state)
        less = (crashes, copies - 1, losses, forks)
        if copies and state.directories[0] is not None:
            if state.directories[1] is None:
                both = (state.directories[0], state.directories[0])
                yield "the state directory is copied", state._replace(directories=both, faults=less)
            if state.older is None:
                yield (
                    "a copy of the state directory is put aside",
                    state._replace(older=state.directories[0]),
                )
            elif run is None and state.older != state.directories[0]:
                back = (state.older, state.directories[1])
                yield "the older copy is put back", state._replace(directories=back, faults=less)
        if losses and not any(state.processes):  # a run that is alive finds it out as it publishes
            less = (crashes, copies, losses - 1, forks)
            for at, place in enumerate(state.places):
                for one in place.waiting:
                    left = place._replace(waiting=place.waiting - {one})
                    yield (
                        f"the files of delivery {one[0]} that wait are lost",
                        _placed(state, at, left)._replace(faults=less),
                    )

    def _changes(self, state: State) -> Iterator[Told]:
        """Remove an output from the pipeline, or add one, between two runs."""
        if not state.changes:
            return
        fewer = state._replace(changes=state.changes - 1)
        for at, place in enumerate(state.places):
            if at in state.given and len(state.given) > 1:
                left = fewer._replace(given=state.given - {at})
                yield f"the output to the {place.kind} is removed", left
            elif at not in state.given and not place.owner:
                more = fewer._replace(given=state.given | {at})
                yield f"the output to the {place.kind} is added", more

    # -- the program of a run: a method for each point at which it may stand

    def _takes_up(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Read the last commit, and look at all places before one is changed."""
        commit = state.directories[process.directory] or Commit()
        if commit.ended:
            yield "finds the run complete", _with(state, number, None)
            return
        if commit.position < state.told and self.holds("a source says that it has forgotten"):
            yield "is refused: the source has forgotten records", _refused(state, number)
            return
        lost = commit.given - process.given
        for at, place in enumerate(state.places):
            if at not in process.given | lost:
                continue
            if (why := self._objection(commit, place, at)) is not None:
                yield f"is refused: {why}", _refused(state, number)
                return
            is_owed = at in lost and bool(commit.outbox) and place.kind != "collecting"
            if is_owed and self.holds("an output that is owed deliveries is not let go"):
                yield (
                    "is refused: an output that is gone is owed deliveries",
                    _refused(state, number),
                )
                return
        opening = state.opened + 1
        kept = commit.openings
        if not self.holds("openings are kept until the next commit"):
            kept = ()
        known = process._replace(
            at="announces", opening=opening, epoch=commit.epoch, position=commit.position,
            openings=(*kept, opening), lists=commit.held or _nothing(state), leaves=lost,
        )  # fmt: skip
        yield "finds all places right", _with(state, number, known)._replace(opened=opening)

    def _objection(self, commit: Commit, place: Place, at: int) -> str | None:
        """Return why a place is not that of a commit, if it is not."""
        is_another = place.owner != 0 and place.owner not in commit.openings
        if is_another and self.holds("a place belongs to the openings that the state names"):
            return "the output is that of another opening"
        if place.latest > commit.epoch and self.holds("a place is not ahead of the state"):
            return "the output is ahead of the state"
        if place.kind != "collecting" or not commit.held:
            return None
        waiting = {epoch for epoch, _ in place.waiting}
        if self.holds("what waits is compared with the list of the commit"):
            if any(e not in waiting and not place.covers(e) for e in commit.held[at]):
                return "files that wait are gone"
            if any(
                e not in commit.held[at] and not place.covers(e) and e != commit.epoch
                for e in waiting
            ):
                return "files wait that this state has not delivered"
        return None

    def _announces(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Store the id of the opening before a place may name it."""
        after = state
        if self.holds("an opening is stored before a place names it"):
            commit = state.directories[process.directory] or Commit()
            after = self._store(state, process, commit._replace(openings=process.openings))
        yield "stores its opening", _with(after, number, process._replace(at="opens"))

    def _opens(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Make the places its own, one after the other; remove what comes again."""
        if process.nth == len(state.places):
            commit = state.directories[process.directory]
            assert commit is not None or not self.holds(
                "an opening is stored before a place names it"
            )
            commit = commit or Commit()
            again = (commit.epoch, commit.outbox) if commit.outbox else None
            ready = process._replace(
                at="tells", nth=0, delivery=again, again=True, openings=(process.opening,)
            )
            yield "has opened all places", _with(state, number, ready)
            return
        at = process.nth
        kind = state.places[at].kind
        if at not in process.given and not (at in process.leaves and kind == "collecting"):
            passed = process._replace(nth=at + 1)
            yield "passes a place that is not its own", _with(state, number, passed)
            return
        commit = state.directories[process.directory] or Commit()
        before = state.places[at]
        why = self._objection(commit, before, at)
        if why is not None and self.holds("a place is looked at again when it is opened"):
            yield f"is refused: {why}", _refused(state, number)
            return
        writing = {one.opening for one in state.processes if one is not None} - {process.opening}
        is_locked = before.kind != "ledger" and before.owner in writing
        if is_locked and self.holds("a folder is locked by the run that writes there"):
            yield "is refused: a run writes there", _refused(state, number)
            return
        place = before._replace(owner=process.opening)
        lists = process.lists
        if place.kind == "collecting":
            listed = lists[at]
            kept = {
                (epoch, rows)
                for epoch, rows in place.waiting
                if not (
                    place.covers(epoch)
                    and self.holds("what is published is removed from what waits")
                )
                and epoch in listed  # the others come again
            }
            place = place._replace(waiting=frozenset(kept))
            if self.holds("a joined file says which deliveries it holds"):
                place = place._replace(mark=max([place.mark, *(o for _, o, _ in place.shown)]))
            lists = _replaced(lists, at, frozenset(epoch for epoch, _ in kept))
        opened = process._replace(nth=at + 1, lists=lists)
        yield f"opens the {place.kind}", _with(_placed(state, at, place), number, opened)

    def _tells(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Tell the source what is durable."""
        commit = state.directories[process.directory] or Commit()
        told = state
        if self.bounds.forgets:
            told = state._replace(told=max(state.told, commit.position))
        after = "delivers" if process.delivery is not None else _behind(process)
        yield "tells the source", _with(told, number, process._replace(at=after, nth=0))

    def _leaves(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Publish what waits at places that are left, and commit that the pipeline lacks them."""
        for at in sorted(process.leaves):
            place = state.places[at]
            waits = place.kind == "collecting" and bool(process.lists[at])
            if waits and self.holds("what waits at a place that is left is published"):
                due = process._replace(at="joins", nth=at)
                yield "publishes at a place that it leaves", _with(state, number, due)
                return
        before = state.directories[process.directory] or Commit()
        epoch = process.epoch + 1
        commit = before._replace(
            epoch=epoch, outbox=(), openings=process.openings, held=process.lists,
            given=before.given & process.given,
        )  # fmt: skip
        after = self._store(state, process, commit)
        for at in process.leaves:
            left = after.places[at]._replace(until=process.position)
            after = _placed(after, at, left)
        done = process._replace(at="reads", epoch=epoch, leaves=frozenset())
        yield f"commits {epoch}, without the places that it has left", _with(after, number, done)

    def _reads(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Read another record, commit what there is, or stop."""
        if process.position < min(process.until, state.arrived):
            if process.position < state.told and self.holds("a source says that it has forgotten"):
                yield "is refused: the source has forgotten records", _refused(state, number)
                return
            one = max(process.position, state.told)  # what it was told to forget is gone
            more = process._replace(position=one + 1, rows=(*process.rows, one))
            after = _with(state, number, more)
            if self.bounds.forgets and not self.holds("a source is told what is durable"):
                after = after._replace(told=max(state.told, one + 1))
            yield f"reads record {one}", after
        if process.rows:
            yield "begins a commit", _with(state, number, process._replace(at="commits"))
        else:
            yield "begins its last commit", _with(state, number, process._replace(at="forgets"))
        for at, place in enumerate(state.places):
            if place.kind == "collecting" and process.lists[at]:
                due = process._replace(at="joins", nth=at)
                yield "finds it time to publish", _with(state, number, due)

    def _commits(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Write state, position, what is to be delivered and what waits, all at once."""
        before = state.directories[process.directory] or Commit()
        epoch = process.epoch + 1
        outbox = process.rows if self.holds("the outbox is in the commit") else ()
        held = process.lists if self.holds("what waits is in the commit") else before.held
        commit = Commit(
            epoch, process.position, outbox, process.openings, held, given=process.given
        )
        state = _begun(state, process, before)
        if not self.holds("the position is in the commit"):
            commit = commit._replace(position=before.position)
        done = process._replace(
            at="tells", epoch=epoch, rows=(), delivery=(epoch, process.rows), again=False
        )
        if not self.holds("a delivery comes after its commit"):
            first = process._replace(at="delivers_early", delivery=(epoch, process.rows), nth=0)
            yield "delivers before it commits", _with(state, number, first)
            return
        yield f"commits {epoch}", _with(self._store(state, process, commit), number, done)

    def _delivers_early(self, state: State, number: int, process: Process) -> Iterator[Told]:
        assert process.delivery is not None
        for at, place in enumerate(state.places):
            state = _placed(state, at, self._taken(place, process.delivery))
        yield "delivers", _with(state, number, process._replace(at="commits_late"))

    def _commits_late(self, state: State, number: int, process: Process) -> Iterator[Told]:
        commit = Commit(process.epoch + 1, process.position, (), process.openings, process.lists)
        done = process._replace(at="reads", epoch=process.epoch + 1, rows=(), delivery=None)
        yield "commits", _with(self._store(state, process, commit), number, done)

    def _delivers(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Hand a delivery to each place; one that has it already stays as it is."""
        assert process.delivery is not None
        epoch, _ = process.delivery
        if process.nth == len(state.places):
            done = process._replace(at=_behind(process), nth=0, delivery=None, again=False)
            yield f"has delivered {epoch}", _with(state, number, done)
            return
        at = process.nth
        commit = state.directories[process.directory] or Commit()
        owed = process.given
        if process.again:
            owed |= {n for n in process.leaves if state.places[n].kind == "collecting"}
            if self.holds("a new output gets what follows"):
                owed &= commit.given
        if at not in owed:
            passed = process._replace(nth=at + 1)
            yield "passes a place that is owed nothing", _with(state, number, passed)
            return
        is_taken = state.places[at].kind == "ledger" and state.places[at].owner != process.opening
        if is_taken and self.holds("a transaction finds the place still its own"):
            yield "is refused: another run has the place", _refused(state, number)
            return
        place = self._taken(state.places[at], process.delivery)
        lists = process.lists
        if place.kind == "collecting":
            lists = _replaced(lists, at, frozenset(epoch for epoch, _ in place.waiting))
        after = process._replace(nth=at + 1, lists=lists)
        yield (
            f"delivers {epoch} to the {place.kind}",
            _with(_placed(state, at, place), number, after),
        )

    def _taken(self, place: Place, delivery: tuple[Epoch, Rows]) -> Place:
        """Return a place after a delivery, which may have come before."""
        epoch, rows = delivery
        knows = self.holds("a delivery that came before has no effect")
        if place.kind == "collecting":
            if knows and place.covers(epoch):
                return place
            kept = {one for one in place.waiting if one[0] != epoch or not knows}
            if not knows:  # under another name
                epoch = 100 + len(place.waiting)
            return place._replace(waiting=frozenset({*kept, (epoch, rows)}))
        if place.kind == "ledger" and knows and place.covers(epoch):
            return place
        first = epoch if knows else 100 + len(place.shown)
        return place._replace(
            shown=place.shown | {(first, epoch, rows)},
            mark=epoch if place.kind == "ledger" else place.mark,
        )

    def _joins(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Publish all that waits as one file, by a rename."""
        at = process.nth
        place = state.places[at]
        mine = sorted(one for one in place.waiting if one[0] in process.lists[at])
        after = process._replace(at="marks")
        if not mine:
            yield (
                "has nothing to publish",
                _with(state, number, process._replace(at=_behind(process), nth=0)),
            )
            return
        rows = tuple(row for _, some in mine for row in some)
        if not self.holds("what waits is removed once it is published"):
            bare = place._replace(waiting=frozenset())
            late = process._replace(
                at="joins_late", rows=process.rows, delivery=(mine[-1][0], rows)
            )
            yield "removes what waits", _with(_placed(state, at, bare), number, late)
            return
        last = mine[-1][0] if self.holds("a joined file says which deliveries it holds") else 0
        joined = place._replace(shown=place.shown | {(mine[0][0], last, rows)})
        yield "publishes what waits", _with(_placed(state, at, joined), number, after)

    def _joins_late(self, state: State, number: int, process: Process) -> Iterator[Told]:
        assert process.delivery is not None
        at, (last, rows) = process.nth, process.delivery
        place = state.places[at]
        joined = place._replace(shown=place.shown | {(last, last, rows)}, mark=last)
        lists = _replaced(process.lists, at, frozenset())
        done = process._replace(at="reads", nth=0, delivery=None, lists=lists)
        yield "publishes", _with(_placed(state, at, joined), number, done)

    def _marks(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Note up to where files are published, and remove what waited."""
        at = process.nth
        place = state.places[at]
        upto = max(process.lists[at])
        marked = place._replace(mark=upto)
        gone = process._replace(at="removes")
        yield "notes up to where", _with(_placed(state, at, marked), number, gone)

    def _removes(self, state: State, number: int, process: Process) -> Iterator[Told]:
        at = process.nth
        place = state.places[at]._replace(waiting=frozenset())
        lists = _replaced(process.lists, at, frozenset())
        done = process._replace(at=_behind(process), nth=0, lists=lists)
        yield "removes what waited", _with(_placed(state, at, place), number, done)

    def _forgets(self, state: State, number: int, process: Process) -> Iterator[Told]:
        """Commit once more, without an outbox: all was delivered. Then the input ends, or not."""
        before = state.directories[process.directory] or Commit()
        state = _begun(state, process, before)
        for ended in (False, True):
            commit = Commit(
                process.epoch + 1, process.position, (), process.openings, process.lists, ended,
                process.given,
            )  # fmt: skip
            after = self._store(state, process, commit)
            how = "ends" if ended else "stops"
            yield f"commits {commit.epoch} and {how}", _with(after, number, None)

    def _store(self, state: State, process: Process, commit: Commit) -> State:
        directories = (
            (commit, state.directories[1])
            if process.directory == 0
            else (state.directories[0], commit)
        )
        durable = max(state.durable, commit.position)
        return state._replace(directories=directories, durable=durable)

    # -- what must never be

    def wrong(self, state: State) -> str | None:
        """Return what is wrong with a state, if anything is."""
        if state.told > state.durable:
            return "the source was told of records that no commit has"
        is_whole = state.faults[1:3] == (self.bounds.copies, self.bounds.losses)
        if state.refused and is_whole and state.changes == self.bounds.changes:
            return "a restart was refused, and nothing had happened but crashes"
        for at, place in enumerate(state.places):
            shown = [row for _, _, rows in place.shown for row in rows]
            waits = [r for e, rows in place.waiting if not place.covers(e) for r in rows]
            there = shown + waits
            if len(shown) != len(set(shown)):
                return f"readers of the {place.kind} see a result twice"
            if len(there) != len(set(there)):
                return f"a result waits in the {place.kind} although it is there already"
            if any(row >= state.durable for row in there):
                return f"the {place.kind} has a result that no commit has"
            if any(row < place.since for row in there):
                return f"the {place.kind} has a result of before it was added"
            if (lost := self._lost(state, place, at, set(there))) is not None:
                return lost
        return None

    def _lost(self, state: State, place: Place, at: int, there: set[int]) -> str | None:
        """Return which result is lost, of what the state that a place belongs to has done."""
        for number, directory in enumerate(state.directories):
            if directory is None:
                continue
            runs = [one for one in state.processes if one is not None and one.directory == number]
            if state.faults[2] < self.bounds.losses and all(one.at == "takes_up" for one in runs):
                continue  # files were lost: the next run over it is refused
            is_left = place.until is not None
            if place.owner and place.owner not in directory.openings and not is_left:
                continue  # a run over this directory would be refused
            if place.latest > directory.epoch:
                continue  # likewise
            if directory.position < state.told:
                continue  # likewise
            come, upto = there | set(directory.outbox), directory.position
            if place.until is not None:  # it was left: only what is shown counts
                come = {row for _, _, rows in place.shown for row in rows}
                upto = min(upto, place.until)
            elif at not in directory.given:
                continue  # it is to come
            if missing := set(range(place.since, upto)) - come:
                return f"the result {min(missing)} is lost for the {place.kind}"
        return None


def _begun(state: State, process: Process, before: Commit) -> State:
    """Return a state in which a new place is to have the results that follow."""
    for at in process.given - before.given:
        begun = state.places[at]._replace(since=process.position - len(process.rows))
        state = _placed(state, at, begun)
    return state


def _behind(process: Process) -> str:
    """Return where a run goes on once it has done with what an earlier one left."""
    return "leaves" if process.leaves else "reads"


def _with(state: State, number: int, process: Process | None) -> State:
    processes = list(state.processes)
    processes[number] = process
    return state._replace(processes=tuple(processes))


def _placed(state: State, at: int, place: Place) -> State:
    return state._replace(places=_replaced(state.places, at, place))


def _replaced(values: tuple, at: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:at], value, *values[at + 1 :])


def _refused(state: State, number: int) -> State:
    return _with(state, number, None)._replace(refused=True)


def _nothing(state: State) -> tuple[frozenset[Epoch], ...]:
    return tuple(frozenset() for _ in state.places)
