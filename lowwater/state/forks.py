"""What a process that is forked off must leave to its parent: open stores, clients and locks.

A fork copies memory, but no threads. What has threads of its own (RocksDB, librdkafka) waits for
them forever if the copy closes or finalizes it, and what has a connection would end the parent's.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol, TypeVar
from weakref import WeakSet

from lowwater.errors import StateError


class _Closes(Protocol):
    def close(self) -> object: ...


Resource = TypeVar("Resource", bound=_Closes)

_resources: WeakSet[object] = WeakSet()
_numbers = [os.getpid()]


def process_number() -> int:
    """Return the number of this process, without asking the system."""
    return _numbers[0]


def outlive_forks(resource: object) -> None:
    """Keep a resource from hanging or crashing a process that is forked off while it exists.

    In the child it is never finalized, and handlers of C libraries at exit do not run, which join
    threads that stayed with the parent. The child's own exit, its status and what Python does at
    its end are as usual.
    """
    _resources.add(resource)


@contextmanager
def closing_here(resource: Resource) -> Iterator[Resource]:
    """Close a resource at the end, as ``contextlib.closing`` does, but not in a forked child.

    A child that unwinds the stack of its parent's run would end the parent's connection.
    """
    opened_by = process_number()
    try:
        yield resource
    finally:
        if process_number() == opened_by:
            resource.close()
        else:
            _keep(resource)


def check_process(started_by: int) -> None:
    """Raise in a process that was forked off the one that began a run.

    Args:
        started_by: The number of the process that began it.

    Raises:
        StateError: This is another one: the sinks and the state are its parent's.
    """
    if started_by != process_number():
        raise StateError(
            f"this process ({process_number()}) was forked amid a run of process {started_by}, "
            "and would write to the same places",
            hint="End the child with os._exit(), or start it with subprocess or the "
            'multiprocessing method "spawn"',
        )


def leave_to_parent() -> None:
    """Skip the handlers of C libraries at the exit of this process, which wait for threads."""
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # of glibc; called before all handlers that are there by now
        libc.on_exit(libc._exit, None)


def _keep(resource: object) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(resource))


def _begin_child() -> None:
    _numbers[:] = [os.getpid()]
    resources = list(_resources)
    if resources:
        for resource in resources:
            _keep(resource)
        leave_to_parent()
    _resources.clear()


os.register_at_fork(after_in_child=_begin_child)
