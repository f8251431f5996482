"""What reaches a terminal: escape sequences in keys, names and messages are shown, not obeyed."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

import lowwater as lw
from lowwater.cli.main import main
from lowwater.display.text import printable, visible
from lowwater.engine.graph.metrics import Metrics
from lowwater.errors import InvalidArgument
from lowwater.explain import Explanation, Finding, Findings
from lowwater.io.terminal import PaneTable, cell, table
from lowwater.testing import Scenario

SEQUENCES = {
    "clear": "\x1b[2J\x1b[H",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\click\x1b]8;;\x1b\\",
    "c1": "\x9b31m\x9d0;owned\x9c",
    "forged line": "ok\r\nlowwater: all is well",
    "back": "\x08\x08\x08\x7f",
    "turned around": "\u202egnp.exe\u2066\u2069\u200f",
    "separators": "\u2028\u2029\x85\x0b\x0c",
    "bell and null": "\x07\x00",
    "half a pair": "\ud800",
}
EVIL = "".join(SEQUENCES.values())
NAME = EVIL.replace("\ud800", "")


def obeyed(text: str) -> str:
    """Return the characters of a text that a terminal would act on, but for ends of lines."""
    return "".join(sign for sign in text if not sign.isprintable() and sign != "\n")


def result() -> Any:
    rows = [
        {"at": f"2024-05-01T12:{minute:02}:10Z", NAME: NAME, "v": NAME, "n": minute}
        for minute in (0, 19, 0)
    ] + [{"at": EVIL, NAME: NAME, "v": EVIL, "n": 1}]
    stream = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by(NAME)
    aggregates = {f"last {NAME}": lw.last("v"), "n": lw.sum("n")}
    windowed = stream.window(lw.FixedWindows("2m")).aggregate(**aggregates)
    return windowed.named(EVIL).collect(trace=True, bundle_size=1)


def panes(found: Any, width: int | None) -> str:
    stream = io.StringIO()
    writer = PaneTable(stream, width=width)
    for pane in found.panes:
        writer.write(pane)
    return stream.getvalue()


def raised() -> str:
    with pytest.raises(InvalidArgument) as error:
        raise InvalidArgument(EVIL, where=EVIL, hint=EVIL)
    return str(error.value)


def evil_texts() -> dict[str, Any]:
    """Return all that is printed for people, of a run whose every name and value is hostile."""
    found = result()
    assert found.late
    assert found.errors
    scenario = Scenario(start="12:00").add((NAME, "12:00:10", NAME), at="12:01").end()
    return {
        "result": found,
        "final": found.final(),
        "panes": found.panes,
        "late": found.late,
        "errors": found.errors,
        "metrics": found.metrics,
        "counted": Metrics(late={EVIL: 1}),  # type: ignore[arg-type]
        "graph": found.graph(),
        "diagram": found.diagram(),
        "explanation": found.explain(NAME, "2024-05-01T12:00:00Z"),
        "why": found.why({NAME: NAME}),
        "lines": Explanation((EVIL, EVIL)),
        "profile": found.lateness_profile(),
        "findings": Findings((Finding("error", EVIL, EVIL, EVIL),)),
        "difference": lw.diff(found, []),
        "scenario": scenario.run(windows=lw.FixedWindows("1m")),
        "table": table([EVIL], [[EVIL], [3]]),
        "cell": cell(EVIL, widest=None),
        "table of panes": panes(found, None),
        "narrow table": panes(found, 60),
        "error": raised(),
        "trace": found.trace,
    }


@pytest.fixture(scope="module")
def texts() -> dict[str, Any]:
    return evil_texts()


@pytest.mark.parametrize("how", [str, repr])
@pytest.mark.parametrize("name", [
    "result", "final", "panes", "late", "errors", "metrics", "counted", "graph", "diagram",
    "explanation", "why", "lines", "profile", "findings", "difference", "scenario", "table", "cell",
    "table of panes", "narrow table", "error", "trace",
])  # fmt: skip
def test_nothing_is_obeyed(name: str, how: Any, texts: dict[str, Any]) -> None:
    assert obeyed(how(texts[name])) == ""


def test_every_text_is_tried(texts: dict[str, Any]) -> None:
    assert len(texts) == 22


@pytest.mark.parametrize("sequence", SEQUENCES.values(), ids=SEQUENCES)
def test_a_text_is_shown_whole(sequence: str) -> None:
    r"""What was there can be told, as it is in a repr: nothing is left out."""
    assert obeyed(visible(sequence)) == ""
    assert "\n" not in printable(sequence)
    assert printable(sequence).count("\\") >= len(obeyed(sequence)) > 0
    assert all(sign in printable(sequence) for sign in sequence if sign.isprintable())


def test_text_that_is_fine_stays_as_it_is() -> None:
    for text in ("plain", "Grüße, 東京 🛫", "two\nlines", "a\ttab"):
        assert visible(text) == text


PROGRAM = """
import lowwater as lw
rows = [{{"at": 1, {name!r}: {value!r}, "n": 2}}, {{"at": {value!r}, {name!r}: "x", "n": 2}}]
keyed = lw.from_iterable(rows, time="at", unit="s").key_by({name!r})
sums = keyed.window(lw.FixedWindows("1m")).aggregate(**{{{name!r} + "2": lw.last({name!r})}})
sums = sums.named({name!r})
class Passes:
    def on_record(self, record, ctx):
        ctx.emit(record)
passed = keyed.process(Passes())
def fails():
    raise ValueError({value!r})
"""


@pytest.mark.parametrize(
    "command",
    [
        ["run", "P:sums"],
        ["run", "P:passed"],
        ["run", "P:fails"],
        ["run", "P:" + NAME.replace("\x00", "")],
        ["run", "P:sums", "--on-error", "raise"],
        ["explain", "P:sums"],
        ["explain", "P:sums", "--element", repr({"n": 2})],
        ["explain", "P:sums", "--stage", NAME],
        ["diagram", "P:sums"],
        ["diagram", "P:sums", "--graph"],
        ["check", "P:sums"],
        ["diff", "P:sums", "P:sums"],
        ["state", "info", NAME.replace("\x00", "")],
        ["state", "verify", "missing\x1b[2J"],
    ],
    ids=lambda command: " ".join(command[:2])[:30].encode("ascii", "replace").decode(),
)
def test_no_command_obeys_its_input(
    command: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    text = PROGRAM.format(name=NAME, value=EVIL)
    Path("program.py").write_text(text.encode("utf-8", "replace").decode(), encoding="utf-8")
    main([part.replace("P:", "program.py:") for part in command])
    out, err = capsys.readouterr()
    assert out + err
    assert obeyed(out + err) == ""


def test_a_state_is_told_of_without_being_obeyed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its names and the names of its files; what is exported as JSON is exact."""
    monkeypatch.chdir(tmp_path)
    evil = NAME.replace("\x00", "").replace("/", "")
    (tmp_path / evil).mkdir()
    (tmp_path / evil / "a.jsonl").write_text(json.dumps({"at": 1, "k": NAME}) + "\n")
    read = lw.read_jsonl(tmp_path / evil / "a.jsonl", time="at", unit="s")
    counts = read.named(evil).key_by("k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
    counts.named(f"{evil} 2").write_jsonl(tmp_path / f"{evil}.jsonl").run(
        state=tmp_path / f"{evil}-state", progress=False
    )
    state = f"{evil}-state"
    for action in (["info"], ["verify"], ["relocate", evil, "elsewhere"], ["compact"]):
        assert main(["state", action[0], state, *action[1:]]) in (0, 1, 2)
    out, err = capsys.readouterr()
    assert "sizes" in out
    assert obeyed(out + err) == ""
    rows = (tmp_path / f"{evil}.jsonl").read_text(encoding="utf-8").split("\n")[:-1]
    assert [json.loads(row)["k"] for row in rows] == [NAME]  # data stays as it is
