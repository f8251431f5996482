"""The demo, over the first flights of the year."""

from __future__ import annotations

import io
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lowwater.cli import demo
from lowwater.cli.main import main
from tests.unit.engine.local.durable_runs import stopping


@pytest.fixture(scope="module")
def flights() -> pa.Table:
    return demo.load_flights()


def test_flights_come_in_the_order_of_landing(flights: pa.Table) -> None:
    assert len(flights) == 336_776
    assert flights["departed"].null_count == 8_255
    assert flights["landed"].null_count == 0
    landed = flights["landed"].combine_chunks().cast(pa.int64())
    assert pc.all(pc.greater_equal(landed[1:], landed[:-1])).as_py()


@pytest.mark.filterwarnings("error::lowwater.errors.LowwaterWarning")
def test_the_demo_gives_no_warning_about_its_own_data(
    flights: pa.Table, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not with cancelled flights among the first thousand, in either mode, nor when resumed."""
    dead = flights.filter(pc.is_null(flights["departed"])).slice(0, 50)
    some = pa.concat_tables([dead, flights.slice(0, 1_500)]).sort_by("landed").combine_chunks()
    found = demo._collected(demo.departures(some))
    assert len(found.cancelled) == found.metrics.errors["null_time"] >= 50
    place = demo._kept(some, tmp_path / "flights")
    for _ in range(2):
        stored = demo._durable(demo.departures(place), tmp_path / "departures")
        assert stored.cancelled == found.cancelled


@pytest.mark.long(reason="runs the demonstration")
def test_the_demo_shows_all_and_its_check_holds(
    flights: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = flights.slice(0, 15_000)
    monkeypatch.setattr(demo, "load_flights", lambda: first)
    out = io.StringIO()
    assert demo.demo(out)
    text = out.getvalue()
    for shown in (
        "EARLY",
        "ON_TIME",
        "LATE",
        "aircraft",
        "null_time",
        "every count and every mean",
    ):
        assert shown in text
    assert "= 15,000 flights" in text


def totals(text: str) -> list[str]:
    """Return the lines from the totals to the check, without the speed."""
    lines = text[text.index("3. Totals") : text.index("Finished in")].splitlines()
    return [" ".join(line.split()) for line in lines if "events/s" not in line]


@pytest.mark.long(reason="runs the demonstration")
def test_the_demo_is_interrupted_and_goes_on(
    flights: pa.Table,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    first = flights.slice(0, 15_000)
    monkeypatch.setattr(demo, "load_flights", lambda: first)
    plain = io.StringIO()
    demo.demo(plain)
    monkeypatch.setattr(demo, "COMMIT_EVERY", 4_000)
    command = ["demo", "--state", str(tmp_path / "demo")]
    for turn in (2, 3):
        with stopping("before publishing", turn, lambda: signal.raise_signal(signal.SIGINT)):
            assert main(command) == 130
        out, err = capsys.readouterr()
        assert "Totals" not in out
        assert err == "lowwater: interrupted; run the same command to resume from the last commit\n"
    for _ in range(2):  # to the end, and once more without effect
        assert main(command) == 0
        assert totals(capsys.readouterr().out) == totals(plain.getvalue())
