"""Runs pipelines over one hostile input, and judges whether every record was accounted for."""

from __future__ import annotations

import contextlib
import io
import json
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import lowwater as lw
from lowwater.cli.main import main as command
from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InternalError, LowwaterError
from lowwater.io import follow
from lowwater.io.log import Log
from lowwater.pipeline import Pipeline, Processed, Stream
from tests.hostile.hostile_input import HostileInput

_DURABLE = ("jsonl", "csv", "parquet", "log")
_FILES = {"jsonl": lw.read_jsonl, "csv": lw.read_csv, "parquet": lw.read_parquet}


@final
@dataclass(frozen=True)
class Verdict:
    """What became of an input.

    Args:
        outcome: ``counted``, ``refused`` (a clear error), ``uncounted``, ``different`` (with state,
            or after a restart), ``raised`` (an error from inside) or ``died``.
        detail: The error, or what differs.
        runs: How many runs were tried.
    """

    outcome: str
    detail: str = ""
    runs: int = 0

    @property
    def good(self) -> bool:
        """Whether nothing is wrong."""
        return self.outcome in ("counted", "refused")


class Wrong(Exception):
    """An outcome that must not be: its name and a description."""


class _Interrupted(Exception):
    """Stops a run from the callback for progress."""


class _Echo:
    """Emits each record and counts them in a cell."""

    count = lw.value_cell(0)
    last = lw.value_cell()

    def on_record(self, record: Any, ctx: Any) -> None:
        ctx.count.set(ctx.count.get() + 1)
        ctx.emit({"n": ctx.count.get(), **record}, time=ctx.time)


def try_input(given: HostileInput, folder: Path) -> Verdict:
    """Run pipelines over an input; the folder is empty."""
    follow.wait = lambda _seconds: None
    trial = _Trial(given, folder)
    try:
        return trial.verdict()
    except Wrong as wrong:
        outcome, detail = wrong.args
        return Verdict(outcome, detail, trial.runs)


@final
class _Trial:
    def __init__(self, given: HostileInput, folder: Path) -> None:
        self.runs = 0
        self._given = given
        self._folder = folder
        self._logged = False
        for name, data in given.files.items():
            (folder / "in").mkdir(exist_ok=True)
            (folder / "in" / name).write_bytes(data)

    def verdict(self) -> Verdict:
        refusals = [self._attempt(run) for run in (self._plain, self._process, self._endless)]
        self._attempt(self._strict, may_refuse=True)
        if self._given.reader in _DURABLE:
            refusals.append(self._with_state())
        if self._given.reader in _FILES:
            refusals.append(self._attempt(self._following))
        if self._given.reader in _FILES:
            refusals.append(self._attempt(self._command))
        refused = next((refusal for refusal in refusals if refusal), None)
        return Verdict("refused" if refused else "counted", refused or "", self.runs)

    def _attempt(self, run: Callable[[], object], *, may_refuse: bool | None = None) -> str | None:
        """Run; return how it was refused, or ``None``."""
        self.runs += 1
        if may_refuse is None:
            may_refuse = self._given.refusable
        try:
            run()
        except (Wrong, _Interrupted):
            raise
        except LowwaterError as error:
            text = f"{type(error).__name__}: {error}"
            if isinstance(error, InternalError) or not error.hint or "Traceback" in text:
                raise Wrong("raised", f"{run.__name__}: {traceback.format_exc()}") from None
            if not may_refuse:
                raise Wrong("uncounted", f"{run.__name__}: refused, {text[:500]}") from None
            return text
        except Exception:
            raise Wrong("raised", f"{run.__name__}: {traceback.format_exc()[-3000:]}") from None
        return None

    def _stream(self, **options: Any) -> Stream:
        given, folder = self._given, self._folder
        options = {"time": "at", **given.options, **options}
        match given.reader:
            case "iterable":
                return lw.from_iterable(given.data, **options)
            case "arrow":
                return lw.from_arrow(given.data, **options)
            case "pandas":
                return lw.from_pandas(given.data, **options)
            case "log":
                if not self._logged:
                    with Log(folder / "log") as log:
                        log.append(given.data)
                    self._logged = True
                return lw.read_log(folder / "log", **options)
        return _FILES[given.reader](str(folder / "in"), **options)

    def _windows(self, **options: Any) -> Pipeline:
        stream = self._stream(watermark=lw.BoundedDisorder("1h"), **options)
        windows = stream.key_by("k").window(lw.FixedWindows("1h"))
        return windows.aggregate(
            n=lw.count(), most=lw.max("v"), all=lw.collect("x"), first=lw.first("x"),
            different=lw.count_distinct("x"),
        )  # fmt: skip

    def _plain(self) -> None:
        result = self._windows().collect(bundle_size=7)
        self._check(
            sum(pane.values["n"] for pane in result.panes), len(result.late), len(result.errors),
            result.metrics,
        )  # fmt: skip
        result.to_arrow()
        for letter in result.errors:
            if self._given.files and not (letter.where and str(self._folder) in letter.where):
                raise Wrong("uncounted", f"a dead letter without its place: {letter}")
        out = self._folder / "plain"
        metrics = self._windows().write_jsonl(out).run(bundle_size=7)
        self._check(*_written(out), metrics)

    def _echoed(self) -> Processed:
        return self._stream().key_by("k").process(_Echo())

    def _process(self) -> None:
        result = self._echoed().collect(bundle_size=7)
        emitted = len(result.elements())
        self._check(emitted, len(result.late), len(result.errors), result.metrics)

    def _endless(self) -> None:
        """Windows without an end, whose panes a process reads."""
        windows = self._stream().key_by("k").window(lw.GlobalWindow()).aggregate(n=lw.count())
        result = windows.to_stream().key_by("n").process(_Echo()).collect()
        counted = sum(element.value["n"] for element in result.elements())
        del counted  # the field of the pane hides that of the process
        if result.metrics.errors.total() > result.metrics.events:
            raise Wrong("uncounted", f"{result!r}")

    def _strict(self) -> None:
        self._windows().collect(on_error="raise")

    def _following(self) -> None:
        windows = self._windows(follow=True, poll_every="1us", max_idle="2us")
        out = self._folder / "following"
        metrics = windows.write_jsonl(out).run(bundle_size=7)
        if any(self._given.files.values()):
            self._check(*_written(out), metrics)

    def _command(self) -> None:
        """``python -m lowwater run``."""
        reader = f"lw.read_{self._given.reader}"
        options = {"time": "at", **self._given.options}
        program = self._folder / "program.py"
        program.write_text(
            f"import lowwater as lw\n"
            f"made = {reader}({str(self._folder / 'in')!r}, **{options!r}).key_by('k')"
            ".window(lw.GlobalWindow()).aggregate(n=lw.count(), all=lw.collect('x'))\n"
        )
        for form in ("table", "jsonl"):
            said = io.StringIO()
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                code = command(["run", f"{program}:made", "--format", form])
            if code not in (0, 1, 2) or "Traceback" in said.getvalue():
                raise Wrong("raised", said.getvalue())

    def _with_state(self) -> str | None:
        """Run with state: interrupted, resumed, and once more after the end."""
        state, out = self._folder / "state", self._folder / "durable"
        interrupted = self._attempt(lambda: self._durable(state, out, 2))
        refused = self._attempt(lambda: self._durable(state, out, None))
        if interrupted and refused != interrupted:
            raise Wrong("different", f"after a restart {refused!r}, before {interrupted!r}")
        contents = None if refused else _rows(out)
        again = self._attempt(lambda: self._durable(state, out, None))
        if again != refused:
            raise Wrong("different", f"after a restart {again!r}, before {refused!r}")
        if contents is not None:
            self._check(*_written(out), None)
            if _rows(out) != contents:
                raise Wrong("different", "another run after the end wrote more")
            plain = self._folder / "plain"
            if plain.exists() and _rows(plain) != contents:
                raise Wrong("different", f"with state {contents}, without {_rows(plain)}"[:3000])
        return refused

    def _durable(self, state: Path, out: Path, bundles: int | None) -> None:
        done = iter(range(bundles)) if bundles is not None else None

        def stop(_metrics: Metrics) -> None:
            if done is not None and next(done, None) is None:
                raise _Interrupted

        with contextlib.suppress(_Interrupted):
            self._windows().write_jsonl(out).run(
                state=state, commit_every="bundle", bundle_size=7, progress=stop
            )

    def _check(self, shown: int, late: int, dead: int, metrics: Metrics | None) -> None:
        found, rows = shown + late + dead, self._given.rows
        events = None if metrics is None else metrics.events
        if found != (found if rows is None else rows) or found != (events or found):
            raise Wrong(
                "uncounted",
                f"{shown} in panes, {late} late, {dead} dead letters: {rows} rows, {events} events",
            )


def _written(folder: Path) -> tuple[int, int, int]:
    """Return how many records the files of a folder account for: in panes, late, dead letters."""
    rows = _rows(folder)
    return sum(row["n"] for row in rows["part"]), len(rows["late"]), len(rows["errors"])


def _rows(folder: Path) -> dict[str, list[Any]]:
    """Return the rows in a folder's files, by kind, in an order that does not depend on files."""
    return {
        kind: sorted(_lines(folder, kind), key=lambda row: json.dumps(row, sort_keys=True))
        for kind in ("part", "late", "errors")
    }


def _lines(folder: Path, kind: str) -> Iterator[Any]:
    for path in sorted(folder.glob(f"{kind}-*.jsonl")):
        for line in path.read_text().splitlines():
            row = json.loads(line)
            row.pop("emitted_at", None)
            yield row
