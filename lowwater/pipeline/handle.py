"""Runs that can be asked to stop: by another thread through a handle, or by SIGTERM."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Any, final

from lowwater.display import html
from lowwater.display.secrets import redacted
from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InvalidArgument, UnsupportedByRunner, explains

if TYPE_CHECKING:
    from lowwater.io.paths import PathLike
    from lowwater.live.serving import Serving

TERMINATED = 128 + signal.SIGTERM
"""The exit status of a process whose run SIGTERM stopped, as shells count: 143."""
_REFRESH_S, _TRIES = 1.0, 20


@explains
@final
class RunHandle:
    """A run in a thread of its own: made by ``start``, which takes what ``run`` takes.

    ``stop`` ends it as SIGTERM does: what was read is processed, committed and delivered, then the
    sinks are closed. With a state directory a later run resumes there. As a context manager it
    stops the run at the end of the block, and waits for it.

    Args:
        go: Runs to the end, or until it is stopped.
        stop: Asks it to stop.
        metrics: What it has done so far.
        serving: Shows it in a browser; ``None``: it is not shown.

    In a notebook its display refreshes itself until the run has ended.
    """

    def __init__(
        self,
        go: Callable[[], Metrics],
        stop: Callable[[], None],
        metrics: Callable[[], Metrics],
        serving: Serving | None = None,
    ) -> None:
        self._go = go
        self._stop = stop
        self._metrics = metrics
        self._serving = serving
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="lowwater run")
        try:
            self._thread.start()
        except RuntimeError as error:
            raise UnsupportedByRunner(
                f"the run needs a thread of its own, and there is none here: {error}",
                where="start()",
                hint="Use run()",
            ) from error

    def _run(self) -> None:
        try:
            self._go()
        except BaseException as error:  # re-raised where it is waited for
            self._error = error

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended yet."""
        return self._thread.is_alive()

    @property
    def metrics(self) -> Metrics:
        """What the run has done so far, in numbers."""
        return self._metrics()

    @property
    def link(self) -> str | None:
        """The link to its page, while it runs with ``serve=``; ``None`` without it."""
        return None if self._serving is None else self._serving.link

    def report(self, path: PathLike) -> None:
        """Write the page of the run to a file, as it is now or was at the end; needs ``serve=``.

        Args:
            path: A file whose name ends in ``.html``.

        Raises:
            InvalidArgument: The run is not shown, or the file cannot be written.
        """
        if self._serving is None:
            raise InvalidArgument(
                "only a run with serve= is watched from its beginning",
                where="RunHandle.report",
                hint="Write start(serve=True)",
            )
        self._serving.report(path)

    def stop(self) -> None:
        """Ask the run to stop at the next boundary of bundles. Returns at once."""
        self._stop()

    def wait(self, timeout: float | None = None) -> Metrics:
        """Wait until the run has ended, and return its metrics.

        Args:
            timeout: How long to wait at most, in seconds; ``None``: for as long as it takes.

        Raises:
            TimeoutError: The run has not ended by then. It continues.
            BaseException: What ended the run.
        """
        self._thread.join(timeout)
        if self._thread.is_alive():
            raise TimeoutError(f"the run has not ended within {timeout} s")
        if self._error is not None:
            raise self._error
        return self._metrics()

    def __enter__(self) -> RunHandle:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
        self.wait()

    def __repr__(self) -> str:
        shown = f", {self.link}" if self.link is not None and self.is_running else ""
        return f"<RunHandle, {'running' if self.is_running else 'ended'}{shown}>"

    def _repr_html_(self) -> str:
        is_running, failure = self.is_running, self._error
        parts = [html.badge("running", "mark") if is_running else html.badge("ended", "quiet")]
        if failure is not None:
            parts = [html.badge("failed", "dropped"), html.marked(_in_words(failure))]
        if self.link is not None and is_running:
            parts.append(html.link(self.link))
        return html.display("A run", html.line(*parts)) + self._counts()

    def _counts(self) -> str:
        for _ in range(_TRIES):
            try:
                return self.metrics._repr_html_()
            except RuntimeError:  # the run added a counter while they were read
                continue
        return html.note("the counts change too fast to be read")

    def _ipython_display_(self) -> None:
        """Display the handle; in a notebook again each second while the run goes on."""
        # Only IPython calls this, so it is there.
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.getipython import get_ipython
        from IPython.display import display

        shown: Any = display(self._shown(), raw=True, display_id=True)  # type: ignore[no-untyped-call]
        # In a terminal this class prints: an update would be one more line.
        prints = type(getattr(get_ipython(), "display_pub", None)) is DisplayPublisher
        if shown is not None and self.is_running and not prints:
            threading.Thread(
                target=self._refresh, args=(shown,), name="lowwater display", daemon=True
            ).start()

    def _refresh(self, shown: Any) -> None:
        while self.is_running:
            self._thread.join(_REFRESH_S)
            shown.update(self._shown(), raw=True)
        shown.update(self._shown(), raw=True)

    def _shown(self) -> dict[str, str]:
        return {"text/plain": repr(self), "text/html": self._repr_html_()}


def _in_words(error: BaseException) -> str:
    """Return an error as text for people."""
    return redacted(f"{type(error).__name__}: {error}")


@contextmanager
def stopping_at_sigterm(stop: Callable[[], None], is_stopped: Callable[[], bool]) -> Iterator[None]:
    """Stop a run when SIGTERM comes, and then end the process with the status 143.

    A second SIGTERM ends the process at once. Where the program handles SIGTERM itself, or the
    run is not in the main thread, nothing changes.

    Args:
        stop: Asks the run to stop.
        is_stopped: Whether that made it end before its input did.

    Raises:
        SystemExit: SIGTERM came before the run was complete.
    """
    in_main = threading.current_thread() is threading.main_thread()
    if not in_main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return

    def handle(_: int, __: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
    if is_stopped():
        raise SystemExit(TERMINATED)
