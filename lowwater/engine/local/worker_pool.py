"""The workers of a run: its own process, and others that answer requests over a pipe each.

A worker process is a copy of the run's at the time of the fork, so what the user gave (functions,
objects, closures) is there as it is, and nothing is sent to it but data. A request that fails is
answered with the error. A worker ends when its pipe does: with the run, however that ends.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, final
from weakref import WeakSet

from lowwater.engine.local.worker_messages import CannotPass, pack, passed, unpack
from lowwater.errors import InternalError, InvalidArgument, LowwaterError, WorkerLost
from lowwater.state.forks import check_process, process_number

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

Answer = Callable[[int, Any], Any]
"""Answers a request, in the worker of this number."""

Place: TypeAlias = int | str
"""What a worker has several of: the number of a stage, or a name."""

Answered: TypeAlias = tuple[list[Any] | None, Any]
"""An error, as plain values, or ``None``; and the answer."""

Request: TypeAlias = tuple[Any, ...]
"""The name of a method of what a worker hosts, and what that takes: values that can be packed."""

_EXIT = "SystemExit"
_SECONDS_TO_END = 1.0
_MS_TO_LOOK = 1_000
_BUFFERED = 1 << 15
"""So many bytes of a request a pipe holds for certain before any is read."""
_PR_SET_PDEATHSIG = 1


class Hosted(Protocol):
    """What does the work in a worker; its state is there."""

    def answer(self, request: Request) -> Any:
        """Do what is asked; return what can be packed."""
        ...


@final
class Workers:
    """Has what a run gives to its workers: the first is the run's own process, others are forked.

    Each worker makes its own share of it, at the first request.

    Args:
        count: How many workers there are.

    Raises:
        InvalidArgument: This system has no worker processes.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._made: dict[Place, Callable[[int], Hosted]] = {}
        self._hosted: dict[Place, Hosted] = {}
        self._pool = WorkerPool(range(1, count), self._answer) if count > 1 else None

    def add(self, place: Place, made: Callable[[int], Hosted]) -> None:
        """Add something, before the first request.

        Args:
            place: What it is called in requests.
            made: Makes the share of a worker, by its number.
        """
        self._made[place] = made

    def ask(
        self, place: Place, requests: Mapping[int, Request], *, is_trusted: bool = False
    ) -> list[Any]:
        """Run a call in each of some workers, side by side; return the results.

        Args:
            place: What it is about.
            requests: By the number of the worker.
            is_trusted: Whether all that is asked and answered can leave a process as it is. If not,
                what stays in this one is made what it would be in another: refused, or copied.

        Raises:
            LowwaterError: A request failed; or a worker has ended.
            SystemExit: A user's function has ended the program.
        """
        if self._pool is None:
            return [self._answer(0, (place, *request)) for request in requests.values()]
        asked = {at: (place, *request) for at, request in requests.items()}
        own = partial(self._own, asked.pop(0), is_trusted=is_trusted) if 0 in asked else None
        answers = self._pool.ask(asked, own)
        for failed, _ in answers.values():
            if failed is not None:
                raise as_error(failed)
        return [answers[at][1] for at in requests]

    def start(self) -> None:
        """Start the worker processes, if they are not there: before this one has more threads."""
        if self._pool is not None:
            self._pool.start()

    def close(self) -> None:
        """End the worker processes; a second call does nothing."""
        if self._pool is not None:
            self._pool.close()

    def _own(self, request: Request, *, is_trusted: bool) -> Answered:
        try:
            answer = self._answer(0, request if is_trusted else passed(request))
            if not is_trusted:
                answer = passed(answer)
        except (Exception, SystemExit) as error:
            return as_plain(error), None
        return None, answer

    def _answer(self, worker: int, request: Request) -> Any:
        place, *asked = request
        hosted = self._hosted.get(place)
        if hosted is None:
            hosted = self._hosted[place] = self._made[place](worker)
        return hosted.answer(tuple(asked))


_pools: WeakSet[WorkerPool] = WeakSet()


@final
class WorkerPool:
    """Processes that answer requests; they are forked at the first one.

    Args:
        numbers: Their numbers, at least one, rising.
        answer: What a worker does with a request; it runs in the worker.

    Raises:
        InvalidArgument: This system cannot fork.
    """

    def __init__(self, numbers: Sequence[int], answer: Answer) -> None:
        if not _can_fork():
            raise InvalidArgument(
                f"workers={numbers[-1] + 1} (int): worker processes are forked, and "
                f"{sys.platform} cannot",
                where="run",
                hint="Leave workers= out, or run on Linux or macOS",
            )
        self._numbers = numbers
        self._answer = answer
        self._pipes: dict[int, Connection] = {}
        self._bells: dict[int, Bell] = {}
        self._processes: dict[int, Any] = {}
        self._closed = False
        self._started_by: int | None = None
        _pools.add(self)

    def ask(
        self, requests: Mapping[int, Any], own: Callable[[], Answered] | None = None
    ) -> dict[int, Answered]:
        """Send requests to workers, all before the first answer is awaited; return the answers.

        Args:
            requests: By the number of the worker.
            own: What this process does meanwhile: it answers as number 0.

        Raises:
            CannotPass: A request holds what cannot leave this process; none is left unanswered.
            WorkerLost: A worker has ended.
        """
        self.start()
        try:
            self._send_all(requests)
            answers = {} if own is None else {0: own()}
            for number in requests:
                answers[number] = unpack(self._received(number))
        except CannotPass:
            raise
        except BaseException:
            self.close()  # what is not received would be taken for the answer of a later request
            raise
        return answers

    def close(self) -> None:
        """End the workers; a second call does nothing.

        In a process that was forked off the run's it does nothing either: they are its parent's.
        """
        self._closed = True
        if self._started_by not in (None, process_number()):
            return
        pipes, self._pipes = self._pipes, {}
        for number, pipe in pipes.items():
            pipe.close()
            self._bells[number].ring()
        for process in self._processes.values():
            process.join(_SECONDS_TO_END)
            if process.is_alive():  # a hook that does not return
                process.kill()
                process.join()
        for bell in self._bells.values():
            bell.close()
        self._processes, self._bells = {}, {}

    def start(self) -> None:
        """Fork the workers; a second call does nothing."""
        if self._started_by is not None:
            check_process(self._started_by)
        if self._closed:
            raise InternalError("workers were asked for something after they were ended")
        if self._pipes:
            return
        import multiprocessing

        self._started_by = process_number()
        forking = multiprocessing.get_context("fork")
        # Linux tells of the end of the thread that has forked: only the main one ends with the run.
        is_main = threading.current_thread() is threading.main_thread()
        for number in self._numbers:
            here, there = forking.Pipe()
            bell = Bell()
            others = [*self._pipes.values(), here]
            process = forking.Process(
                target=_serve,
                args=(number, there, bell, others, self._answer, is_main),
                name=f"lowwater worker {number + 1}",
                daemon=True,
            )
            with warnings.catch_warnings():
                # That threads of this process are not in the copy: nothing in it waits for them.
                warnings.simplefilter("ignore", DeprecationWarning)
                self._pipes[number], self._bells[number] = here, bell  # which close() closes
                try:
                    process.start()
                finally:
                    there.close()
            self._processes[number] = process

    def leave_to_parent(self) -> None:
        """Drop the workers in a process that was forked off: it must not end its parent's."""
        import multiprocessing

        for pipe in self._pipes.values():
            pipe.close()  # else the workers' pipes would not end with the run
        for process in self._processes.values():
            # Whatever is in there multiprocessing terminates at the end of this process.
            getattr(multiprocessing.process, "_children", set()).discard(process)
        self._pipes, self._processes = {}, {}

    def _send_all(self, requests: Mapping[int, Any]) -> None:
        sent: list[int] = []
        for number, request in requests.items():
            try:
                data = pack(request)
            except CannotPass:
                for each in sent:  # else their answers would be taken for those of later requests
                    self._received(each)
                raise
            self._send(number, data)
            sent.append(number)

    def _send(self, number: int, data: bytes) -> None:
        bell, is_long = self._bells[number], len(data) > _BUFFERED
        if is_long:  # it has to be read while it is sent
            bell.ring()
        try:
            self._pipes[number].send_bytes(data)
        except OSError as error:
            raise self._lost(number) from error
        if not is_long:
            bell.ring()

    def _received(self, number: int) -> bytes:
        try:
            return self._pipes[number].recv_bytes()
        except (EOFError, OSError) as error:
            raise self._lost(number) from error

    def _lost(self, number: int) -> LowwaterError:
        process = self._processes[number]
        process.join(_SECONDS_TO_END)
        code = process.exitcode
        how = (
            "no longer answers"
            if code is None
            else f"was ended by {signal.Signals(-code).name}"
            if code < 0
            else f"has ended, with the exit code {code}"
        )
        return WorkerLost(
            f"worker process {number + 1} of {self._numbers[-1] + 1} (pid {process.pid}) {how}",
            where="run(workers=)",
            hint="If the system was out of memory, use fewer workers; a run with state= goes on "
            "from its last commit when it is started again",
        )


@final
class Bell:
    """Wakes a worker that has been sent a request; on Linux only, elsewhere the pipe does.

    Linux takes a process that waits for a pipe for one that goes on where the other stops: it puts
    it on the processor of the process that writes, which has more to do here. One that waits for an
    event may go on anywhere.
    """

    def __init__(self) -> None:
        self._event = os.eventfd(0, os.EFD_CLOEXEC) if sys.platform == "linux" else None

    def ring(self) -> None:
        """Wake the worker."""
        if self._event is not None:
            os.eventfd_write(self._event, 1)

    def wait(self, pipe: Connection) -> None:  # pragma: no cover (it runs in the workers)
        """Wait for the bell, or for the end of the pipe."""
        if self._event is None:
            return
        bell = select.poll()
        bell.register(self._event, select.POLLIN)
        while not bell.poll(_MS_TO_LOOK):
            if pipe.poll():  # the end, or what has come before its bell
                return
        os.eventfd_read(self._event)

    def close(self) -> None:
        """Release it."""
        if self._event is not None:
            os.close(self._event)
            self._event = None


def _can_fork() -> bool:
    if sys.platform == "emscripten":  # a browser's Python names the method, but has no processes
        return False
    try:
        import multiprocessing
    except ImportError:
        return False
    return "fork" in multiprocessing.get_all_start_methods()


def _leave_to_parent() -> None:
    for pool in list(_pools):
        pool.leave_to_parent()


os.register_at_fork(after_in_child=_leave_to_parent)


def as_plain(error: BaseException) -> list[Any]:
    """Return an error as plain values, for :func:`as_error` in another process."""
    if isinstance(error, SystemExit):
        code = error.code
        if code is not None:
            code = int(code) if isinstance(code, int) else _as_unicode(str(code))
        return [_EXIT, code, None, None, None]
    if not isinstance(error, LowwaterError):
        what = f"a worker process failed: {type(error).__name__}: {error}"
        plain = ["InternalError", what, None, None, _shown(error)]
    else:
        cause = error.__cause__
        shown = None if cause is None else _shown(cause)
        plain = [type(error).__name__, error.what, error.where, error.hint, shown]
    return [_as_unicode(each) if isinstance(each, str) else each for each in plain]


def as_error(plain: Sequence[Any]) -> LowwaterError | SystemExit:
    """Return the error that :func:`as_plain` was given; what caused it is a note.

    A program that a user's function ends in a worker ends here, as it would without workers.
    """
    name, what, where, hint, cause = plain
    if name == _EXIT:
        return SystemExit(what)
    kind = {each.__name__: each for each in _kinds(LowwaterError)}.get(name, InternalError)
    made = kind.__new__(kind)  # a class of the user may be made of something else
    LowwaterError.__init__(made, what, where=where, hint=hint)
    if cause:
        made.add_note(f"In a worker:\n{cause}")
    return made


def _shown(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def _as_unicode(text: str) -> str:
    """Return a text that can be sent: one in an error may hold half a surrogate pair."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def _kinds(of: type[LowwaterError]) -> Iterator[type[LowwaterError]]:
    """Yield a class of errors and all below it."""
    yield of
    for each in of.__subclasses__():
        yield from _kinds(each)


def _serve(
    number: int,
    pipe: Connection,
    bell: Bell,
    others: Sequence[Connection],
    answer: Answer,
    is_forked_by_main: bool,
) -> None:  # pragma: no cover (it runs in the workers)
    """Answer requests until the pipe ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the run's process deals with it, and ends this
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if is_forked_by_main:
        _end_with_parent()
    gc.freeze()  # else a collection touches, and so copies, all that came from the run
    for other in others:  # else a pipe would not end with the run, but with its last worker
        other.close()
    while True:
        bell.wait(pipe)
        try:
            request = unpack(pipe.recv_bytes())
        except (EOFError, OSError):
            os._exit(0)
        try:
            reply = pack((None, answer(number, request)))
        except BaseException as error:
            reply = pack((as_plain(error), None))
        try:
            pipe.send_bytes(reply)
        except OSError:
            os._exit(0)


def _end_with_parent() -> None:  # pragma: no cover (it runs in the workers)
    """Ask Linux to end this process with its parent, in the middle of a hook too."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
