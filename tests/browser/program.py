"""What a reader runs in a browser, and what is refused there: ``python -m tests.browser.program``.

The first argument says how: ``restricted`` to what a browser has, ``narrow``: counting in 32 bits,
or as a ``browser``: both. What it prints is the same as without any of it.
"""

from __future__ import annotations

import contextlib
import io
import re
import sys
from pathlib import Path
from typing import Any

REFUSED = "refused:"
_ROOT = Path(__file__).parents[2]


def main(how: str, part: str, *names: str) -> None:
    """Run a part, of some names, as a browser does or not."""
    from tests.browser import narrow, restricted

    if how in ("restricted", "browser"):
        restricted.install()
    if how in ("narrow", "browser"):
        narrow.install()
    {"shown": shown, "all": shown_and_refused, "pages": pages}[part](*names)


def shown() -> None:
    """Run the pages' examples, and print all that can be seen of a run."""
    import pyarrow as pa

    import lowwater as lw

    traced: dict[str, Any] = {}
    for page in ("README.md", "docs/tutorial.md"):
        text = (_ROOT / page).read_text(encoding="utf-8")
        names: dict[str, Any] = {"__name__": "page"}
        for code in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(compile(code, page, "exec"), names)
            if not traced and "trace=True" in code:
                traced = dict(names)
        print(f"{page} ran")
    run, scores, events = traced["run"], traced["scores"], traced["events"]
    diagram = run.diagram()
    print(diagram.to_svg(), diagram, diagram._repr_html_())
    print(run.final(), run._repr_html_(), run.to_arrow(), run.lateness_profile())
    print(run.explain("A", "2024-05-01T12:00:00Z"), run.why(events[4]))
    print(lw.check(scores), scores.explain(), scores._repr_html_())
    plays = {name: [event[name] for event in events] for name in ("at", "team")}
    print(lw.profile(pa.table(plays), time="at", by="team"))
    found = lw.explore(scores, delay=["0s", "1m"], lateness=["0s", "5m"], bundle_size=1)
    print(found, found._repr_html_())


def shown_and_refused() -> None:
    """Run what a browser can, then what it cannot, between which a line says so."""
    shown()
    print(REFUSED)
    refused()


def pages(*names: str) -> None:
    """Run the examples of pages, and compare what they print with what the pages say."""
    for name in names:
        blocks = re.findall(r"```(\w+)\n(.*?)```", (_ROOT / name).read_text("utf-8"), re.DOTALL)
        own: dict[str, Any] = {"__name__": "page"}
        for (language, code), (follows, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if language == "python":
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    exec(compile(code, name, "exec"), own)
                assert printed.getvalue() == (shown if follows == "text" else ""), code
        print(name)


def refused() -> None:
    """Print what asking for each thing says that a browser lacks."""
    import lowwater as lw

    Path("records.jsonl").write_text('{"k": 1, "at": "2024-05-01T12:00:00Z"}\n')
    stream = lw.read_jsonl("records.jsonl", time="at")
    counted = stream.key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())

    async def called(record: Any) -> Any:
        return record

    asked: dict[str, Any] = {
        "state": lambda: counted.write_jsonl("panes.jsonl").run(state="state"),
        "workers": lambda: stream.map(lambda record: record).collect(workers=2),
        "serve": lambda: counted.collect(serve=0),
        "start": lambda: counted.write_jsonl("panes.jsonl").start(),
        "map_async": lambda: stream.map_async(called).collect(),
    }
    for name, ask in asked.items():
        try:
            ask()
        except lw.LowwaterError as error:
            print(f"{name}: {type(error).__name__}: {error}")


if __name__ == "__main__":
    main(*sys.argv[1:])
