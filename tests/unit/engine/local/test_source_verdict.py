"""A source is judged by its first records: unusable ones are not passed over in silence."""

from __future__ import annotations

import datetime as dt
import json
import tempfile
import warnings
from collections.abc import Iterable
from itertools import product
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import lowwater as lw
from lowwater.engine.graph.graph import Read
from lowwater.engine.graph.metrics import Metrics
from lowwater.engine.local.progress import progress_text
from lowwater.engine.records.panes import ErrorRecord
from lowwater.engine.records.problems import JUDGED, Tally
from lowwater.io import sinks
from lowwater.pipeline.outputs import Writing
from tests.examples import examples, sampled

AT = 1_714_564_800_000_000


def record(at: int, *, sound: bool) -> dict[str, Any]:
    return {"at": AT + at if sound else None, "k": "a", "v": at}


def records(*, bad: int, of: int) -> list[dict[str, Any]]:
    """Return records of which the first are bad."""
    return [record(at, sound=at >= bad) for at in range(of)]


def summed(stream: lw.Stream) -> lw.Pipeline:
    made = stream.key_by("k").window(lw.GlobalWindow()).aggregate(n=lw.sum("v"))
    assert isinstance(made, lw.Pipeline)
    return made


def of_list(rows: Iterable[Any], **options: Any) -> lw.Pipeline:
    return summed(lw.from_iterable(rows, time="at", **options))


def said(pipeline: lw.Pipeline, **options: Any) -> list[str]:
    """Return the texts of the warnings of a run."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        pipeline.collect(**options)
    assert all(one.category in (lw.DataWarning, lw.UnitWarning) for one in warned)
    return [str(one.message) for one in warned]


def adult(record: dict[str, Any]) -> dict[str, Any] | None:
    """Return a record, or nothing on one path: its ``return`` is forgotten there."""
    return record if record["v"] >= 3 else None


@pytest.mark.parametrize("bundle_size", [1, 7, 50_000])
@pytest.mark.parametrize("follows", ["nothing", "a filter", "a map"])
def test_a_record_of_which_map_makes_nothing_is_a_dead_letter(
    bundle_size: int, follows: str
) -> None:
    stream = lw.from_iterable(records(bad=0, of=400), time="at").map(adult)
    if follows == "a filter":
        stream = stream.filter(lw.col("v") >= 0)
    elif follows == "a map":
        stream = stream.map(lambda row: row | {"v": row["v"] * 1})
    result = summed(stream).collect(bundle_size=bundle_size)
    assert [(error.record["v"], error.reason) for error in result.errors] == [
        (v, "null_record") for v in range(3)
    ]
    assert result.panes[-1].value == sum(range(3, 400))


@pytest.mark.parametrize("bundle_size", [1, 50_000])
def test_map_that_makes_the_event_time_may_make_nothing(bundle_size: int) -> None:
    rows = [{"when": AT + v, "k": "a", "v": v} for v in range(400)]
    stream = lw.from_iterable(rows, time="at").map(
        lambda row: {**row, "at": row["when"]} if row["v"] >= 3 else None
    )
    result = summed(stream).collect(bundle_size=bundle_size)
    assert [error.reason for error in result.errors] == ["null_record"] * 3
    assert result.panes[-1].value == sum(range(3, 400))


@pytest.mark.parametrize("bundle_size", [1, 50_000])
def test_panes_of_which_map_makes_nothing_stop_no_run(bundle_size: int) -> None:
    """The first bundle may hold such panes alone, with sound ones to come."""
    rows = [{"at": AT + v * 60_000_000, "k": "a", "v": v} for v in range(6)]
    keyed = lw.from_iterable(rows, time="at", watermark=lw.Ascending()).key_by("k")
    first = keyed.window(lw.FixedWindows("1m")).aggregate(n=lw.sum("v"))
    panes = first.map(lambda pane: pane if pane["n"] > 2 else None)
    second = panes.key_by("k").window(lw.FixedWindows("1d")).aggregate(n=lw.sum("n"))
    with pytest.warns(lw.DataWarning, match="3 of 6 records .* null_record"):
        result = second.collect(bundle_size=bundle_size)
    assert [pane.value for pane in result.panes] == [3 + 4 + 5]
    assert [error.reason for error in result.errors] == ["null_record"] * 3


def test_map_that_makes_nothing_at_all_is_an_error() -> None:
    pipeline = summed(lw.from_iterable(records(bad=0, of=5), time="at").map(lambda row: None))
    with pytest.raises(lw.DataError, match=r"all 5 records .* \(null_record\)"):
        pipeline.collect()
    with pytest.raises(lw.DataError, match="null_record"):
        pipeline.collect(on_error="raise")
    assert len(pipeline.collect(on_error="dead_letter").errors) == 5


def test_arrivals_fit_the_records_that_map_leaves() -> None:
    rows = [record(v, sound=True) | {"came": AT + v} for v in range(400)]
    stream = lw.from_iterable(rows, time="at", clock=lw.ArrivalClock("came"), max_ahead="1s").map(
        adult
    )
    result = summed(stream).collect()
    assert [error.reason for error in result.errors] == ["null_record"] * 3


def test_a_durable_run_passes_a_record_of_which_map_makes_nothing(tmp_path: Path) -> None:
    write(tmp_path, "0.jsonl", (record(v, sound=True) for v in range(400)))
    stream = lw.read_jsonl(tmp_path / "in", time="at").map(adult)
    output = summed(stream).write_jsonl(tmp_path / "out.jsonl")

    class Stopped(Exception):
        pass

    def stop(metrics: Metrics) -> None:
        if metrics.bundles >= 4:
            raise Stopped

    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 100}
    with pytest.raises(Stopped):  # in the middle of the batch
        output.run(**options, progress=stop)
    assert output.run(**options).errors == {"null_record": 3}
    (line,) = (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(line)["n"] == sum(range(3, 400))


def test_two_stages_may_share_a_map_that_makes_nothing(tmp_path: Path) -> None:
    stream = lw.from_iterable(records(bad=0, of=400), time="at").map(adult).key_by("k")
    sums = stream.window(lw.GlobalWindow()).aggregate(n=lw.sum("v"))
    counts = stream.window(lw.GlobalWindow()).aggregate(n=lw.count())
    metrics = lw.run(
        sums.write_jsonl(tmp_path / "sums.jsonl"), counts.write_jsonl(tmp_path / "counts.jsonl")
    )
    assert metrics.errors == {"null_record": 3}
    assert json.loads((tmp_path / "counts.jsonl").read_text(encoding="utf-8"))["n"] == 397


# ---------------------------------------------------------------------------------- dead letters


SHARES = [
    (0, 5, False),
    (1, 99, True),
    (1, 100, False),  # exactly 1 %
    (2, 100, True),
    (10, 1_000, False),
    (11, 1_000, True),
    (31, 3_000, True),
]


@pytest.mark.parametrize(
    ("bad", "of", "warns", "bundle_size"),
    sampled(
        [pytest.param(*share, size) for share, size in product(SHARES, [50_000, 1_000, 7, 999, 1])],
        every=2,
    ),
)
def test_more_than_one_per_cent_is_warned_about_once(
    bad: int, of: int, warns: bool, bundle_size: int
) -> None:
    found = said(of_list(records(bad=bad, of=of)), bundle_size=bundle_size)
    if not warns:
        assert found == []
        return
    (text,) = found
    read = of if of < 1_000 else min(of, -(-1_000 // bundle_size) * bundle_size)
    which = f"the first {read:,}" if of >= 1_000 else f"{of}"
    assert text.startswith(f"{bad} of {which} records are dead letters, {bad} of them null_time")
    assert "'v': 0" in text  # the first of them is the example


def test_bad_records_after_those_that_were_judged_say_nothing() -> None:
    rows = [record(at, sound=at < 1_000) for at in range(2_000)]
    assert said(of_list(rows), bundle_size=500) == []


@examples(2)
@given(
    lines=st.lists(st.sampled_from(["sound", "no", "null"]), min_size=1, max_size=40),
    times=st.integers(1, 60),
    bundle_size=st.sampled_from([1, 7, 100, 999, 1_000, 50_000]),
    source=st.sampled_from(["jsonl", "csv"]),
)
def test_lines_that_are_no_records_count_by_their_share(
    lines: list[str], times: int, bundle_size: int, source: str
) -> None:
    """No error if one record was admitted among those judged; a warning above 1 %, and only then.

    Where the broken lines are in a batch does not matter.
    """
    every = lines * times
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"in.{source}"
        texts = {
            "jsonl": {
                "sound": f'{{"at": {AT}, "k": "a", "v": 1}}',
                "no": "no",
                "null": '{"at": null, "k": "a", "v": 1}',
            },
            "csv": {"sound": f"{AT},a,1", "no": f"{AT},a,1,,", "null": ",a,1"},
        }[source]
        head = ["at,k,v"] if source == "csv" else []
        path.write_text("\n".join([*head, *(texts[one] for one in every), ""]), encoding="utf-8")
        read = lw.read_csv if source == "csv" else lw.read_jsonl
        tally = Tally()
        origin = read(path, time="at")._flows[0].origin
        assert isinstance(origin, Read)
        for records in origin.source.batches(bundle_size, ()):
            unread = len(records.unreadable)
            part = every[tally.seen : tally.seen + records.length + unread]
            tally.count(
                len(part), [ErrorRecord("", one, "", None) for one in part if one != "sound"]
            )
            if tally.seen >= JUDGED:
                break
        try:
            found = said(summed(read(path, time="at")), bundle_size=bundle_size)
        except lw.DataError:
            assert not tally.admitted
            assert len(tally.failed) == 1
        else:
            assert bool(found) == (tally.bad * 100 > tally.seen)
            assert tally.admitted or len(tally.failed) > 1


@pytest.mark.parametrize("every", [90, 1_000])
def test_lines_broken_here_and_there_leave_a_file_sound(tmp_path: Path, every: int) -> None:
    """All broken lines of a large block reach the run at once, in front of the sound ones."""
    line = json.dumps(record(0, sound=True))
    lines = ["no" if at % every == every - 1 else line for at in range(40_000)]
    (tmp_path / "in.jsonl").write_text("\n".join(lines), encoding="utf-8")
    found = said(summed(lw.read_jsonl(tmp_path / "in.jsonl", time="at")))
    assert len(found) == (1 if every < 100 else 0)


@pytest.mark.parametrize("of", [1, 999, 1_000, 5_000])
def test_a_source_of_which_nothing_is_usable_is_an_error(of: int) -> None:
    pipeline = of_list(records(bad=min(of, 1_000), of=of))
    which = {1: "the only record is", 999: "all 999 records are"}.get(
        of, "all of the first 1,000 records are"
    )
    with pytest.raises(lw.DataError, match=rf"{which} .* \(null_time\)") as caught:
        pipeline.collect(bundle_size=100)
    assert caught.value.where == "source 1"
    assert caught.value.hint is not None
    assert 'on_error="dead_letter"' in caught.value.hint
    result = pipeline.collect(on_error="dead_letter")
    assert len(result.errors) == min(of, 1_000)


def test_two_reasons_are_no_error_but_a_warning() -> None:
    rows = [record(0, sound=False), {"at": AT, "k": None, "v": 1}]
    (text,) = said(of_list(rows))
    assert "2 of 2 records are dead letters" in text
    assert "so the result would be empty" in text


def test_who_says_how_errors_are_handled_is_not_warned() -> None:
    assert said(of_list(records(bad=3, of=5)), on_error="dead_letter") == []


@pytest.mark.parametrize(("bad", "of"), [(3, 5), (5, 5)])
def test_who_takes_dead_letters_is_neither_warned_nor_stopped(bad: int, of: int) -> None:
    taken: list[lw.ErrorRecord] = []
    assert said(of_list(records(bad=bad, of=of)), on_dead_letter=taken.append) == []
    assert len(taken) == bad


def test_the_warning_says_where_dead_letters_are(tmp_path: Path) -> None:
    pipeline = of_list(records(bad=2, of=5))
    (text,) = said(pipeline)
    assert text.endswith("Read them in the errors of the result")
    places: dict[str, sinks.Sink] = {
        "on_dead_letter=": sinks.Callback(str),
        f"'{tmp_path}/out.errors.jsonl'": sinks.JsonLinesFile(str(tmp_path / "out.jsonl")),
        f"'{tmp_path}/out/errors-*'": sinks.ParquetFolder(str(tmp_path / "out")),
        "the table 'panes_errors'": sinks.SqliteTable(str(tmp_path / "out.db"), "panes"),
    }
    for place, sink in places.items():
        with pytest.warns(lw.DataWarning) as warned:
            pipeline.write_to(sink).run()
        assert str(warned[0].message).endswith(place)


def test_each_stage_that_reads_a_source_is_judged_by_itself(tmp_path: Path) -> None:
    rows = [{"at": AT + at, "k": "a", "v": at, "text": "x"} for at in range(3)]
    stream = lw.from_iterable(rows, time="at").key_by("k").window(lw.GlobalWindow())
    sound = stream.aggregate(n=lw.sum("v")).write_jsonl(tmp_path / "sound.jsonl")
    broken = stream.aggregate(n=lw.sum("text")).write_jsonl(tmp_path / "broken.jsonl")
    with pytest.warns(lw.DataWarning, match="3 of 3 records.*this stage has nothing.*text='x'"):
        lw.run(sound, broken)


def test_one_bad_record_of_a_branch_stops_nothing(tmp_path: Path) -> None:
    rows = [{"at": AT + at, "type": "order", "k": "a", "v": at} for at in range(50)]
    rows.append({"at": AT, "type": "refund", "k": None, "v": 1})
    stream = lw.from_iterable(rows, time="at")
    orders = summed(stream.filter(lw.col("type") == "order")).write_jsonl(tmp_path / "orders.jsonl")
    refunds = summed(stream.filter(lw.col("type") == "refund"))
    with pytest.warns(lw.DataWarning, match="the only record is a dead letter.*source 1 → stage 2"):
        lw.run(orders, refunds.write_jsonl(tmp_path / "refunds.jsonl"))
    assert (tmp_path / "orders.jsonl").read_text(encoding="utf-8").count("\n") == 1
    (text,) = said(refunds)  # the only one that passes the filter: others were delivered
    assert text.startswith("1 of 51 records are dead letters, 1 of them null_key, so the result")


def test_a_stage_that_gets_few_of_the_records_is_judged_after_its_source(tmp_path: Path) -> None:
    rows = [{"at": AT + at, "k": None if at % 50 == 1 else "a", "v": at} for at in range(2_600)]
    stream = lw.from_iterable(rows, time="at")
    every = summed(stream.with_columns(k=lw.col("v"))).write_jsonl(tmp_path / "every.jsonl")
    odd = summed(stream.filter(lw.col("v") % 2 == 1)).write_jsonl(tmp_path / "odd.jsonl")
    with pytest.warns(lw.DataWarning) as warned:
        lw.run(every, odd, bundle_size=400)
    (text,) = (str(one.message) for one in warned)  # when the stage had 1,000: after 2,000 of all
    assert text.startswith("40 of the first 1,000 records are dead letters, 40 of them null_key")


@pytest.mark.parametrize("sound", [0, 1, 100, 2_000])
@pytest.mark.parametrize("bad", [1, 100, 2_000])
@pytest.mark.parametrize("swapped", [False, True])
@pytest.mark.parametrize("bundle_size", [100, 50_000])
def test_a_source_without_usable_records_beside_a_sound_one(
    sound: int, bad: int, swapped: bool, bundle_size: int
) -> None:
    """Whatever is read first: an error only if nothing of both was admitted."""
    sources = [
        lw.from_iterable([record(at, sound=True) for at in range(sound)], time="at"),
        lw.from_iterable([record(at, sound=False) for at in range(bad)], time="at"),
    ]
    first, second = reversed(sources) if swapped else sources
    pipeline = summed(first | second)
    if sound:
        (text,) = said(pipeline, bundle_size=bundle_size)
        assert "would be empty" not in text
        assert len(pipeline.collect(bundle_size=bundle_size, on_error="dead_letter").panes) == 1
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", lw.DataWarning)
        with pytest.raises(lw.DataError, match="null_time"):
            pipeline.collect(bundle_size=bundle_size)


def test_a_downstream_stage_is_judged_too() -> None:
    rows = [{"at": AT + at, "k": str(at), "s": "x"} for at in range(50)]
    first = lw.from_iterable(rows, time="at").key_by("k").window(lw.GlobalWindow())
    second = first.aggregate(s=lw.last("s")).key_by("k").window(lw.GlobalWindow())
    (text,) = said(second.aggregate(t=lw.sum("s")))
    assert text.startswith("50 of 50 records are dead letters, 50 of them wrong_type, so this")
    assert "stage 1 → stage 2" in text


def test_lines_that_are_no_records_count(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("no\n" * 3, encoding="utf-8")
    with pytest.raises(lw.DataError, match="malformed_json"):
        summed(lw.read_jsonl(tmp_path, time="at")).collect()
    sound = "".join(json.dumps(record(at, sound=True)) + "\n" for at in range(3))
    (tmp_path / "in.jsonl").write_text(f"{sound}no\n", encoding="utf-8")
    (text,) = said(summed(lw.read_jsonl(tmp_path, time="at")))
    assert text.startswith("1 of 4 records are dead letters")


# --------------------------------------------------------------------------- with a state directory


def written(folder: Path) -> Writing:
    pipeline = summed(lw.read_jsonl(folder / "in", time="at"))
    return pipeline.write_jsonl(folder / "out.jsonl")


def write(folder: Path, name: str, rows: Iterable[Any]) -> None:
    (folder / "in").mkdir(exist_ok=True)
    text = "".join(json.dumps(row) + "\n" for row in rows)
    (folder / "in" / name).write_text(text, encoding="utf-8")


class Stopped(Exception):
    pass


def stopped_after(folder: Path, events: int, **options: Any) -> None:
    """Run until so many records were read, and fail there."""

    def stop(metrics: Metrics) -> None:
        if metrics.events >= events:
            raise Stopped

    with pytest.raises(Stopped):
        written(folder).run(**options, progress=stop)


def dead_letters(folder: Path) -> list[int]:
    path = folder / "out.errors.jsonl"
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line)["record"]["v"] for line in lines]


def test_a_restart_judges_the_same_records_and_loses_none(tmp_path: Path) -> None:
    """400 bad records a file: the third makes it 1,000, and the first two are committed by then."""
    for name in range(3):
        write(tmp_path, f"{name}.jsonl", (record(400 * name + v, sound=False) for v in range(400)))
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 100}
    for _ in range(2):
        with pytest.raises(lw.DataError, match="all of the first 1,200"):
            written(tmp_path).run(**options)
    metrics = written(tmp_path).run(**options, on_error="dead_letter")
    assert metrics.errors == {"null_time": 1_200}
    assert dead_letters(tmp_path) == list(range(1_200))


def test_a_restart_does_not_judge_the_tail_alone(tmp_path: Path) -> None:
    """600 sound records, a stop, then 600 bad ones: those judged are not all bad."""
    write(tmp_path, "0.jsonl", (record(v, sound=True) for v in range(600)))
    write(tmp_path, "1.jsonl", (record(v, sound=False) for v in range(600)))
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 100}
    stopped_after(tmp_path, 600, **options)
    with pytest.warns(lw.DataWarning, match="600 of the first 1,200"):
        written(tmp_path).run(**options)
    assert dead_letters(tmp_path) == list(range(600))


def test_what_an_earlier_run_passed_is_not_judged_again(tmp_path: Path) -> None:
    """2,000 bad records set aside on purpose, then 5,000 sound ones without ``on_error=``."""
    write(tmp_path, "0.jsonl", (record(v, sound=False) for v in range(2_000)))
    write(tmp_path, "1.jsonl", (record(v, sound=True) for v in range(5_000)))
    options: Any = {"state": tmp_path / "state", "commit_every": "bundle", "bundle_size": 100}
    stopped_after(tmp_path, 1_500, **options, on_error="dead_letter")
    metrics = written(tmp_path).run(**options)  # warnings are errors
    assert metrics.errors == {"null_time": 2_000}
    assert dead_letters(tmp_path) == list(range(2_000))


@pytest.mark.parametrize("bundle_size", [7, 100, 5_000])
def test_a_warning_is_not_repeated_at_a_restart(tmp_path: Path, bundle_size: int) -> None:
    write(tmp_path, "0.jsonl", (record(v, sound=v % 20 > 0) for v in range(3_000)))
    write(tmp_path, "1.jsonl", (record(v, sound=True) for v in range(2_000)))
    options: Any = {
        "state": tmp_path / "state",
        "commit_every": "bundle",
        "bundle_size": bundle_size,
    }
    with pytest.warns(lw.DataWarning, match="are dead letters"):
        stopped_after(tmp_path, 1_500 if bundle_size < 3_000 else 5_000, **options)
    written(tmp_path).run(**options)  # warnings are errors


@pytest.mark.parametrize("splits", [[2_000], [999, 1, 1_000], [300] * 4, [1] * 1_200])
def test_counts_do_not_depend_on_batches(splits: list[int]) -> None:
    tally, at = Tally(), 0
    for length in splits:
        odd = (at + row for row in range(length) if (at + row) % 2)
        rows = [ErrorRecord(value, "bad", "it is odd", None) for value in odd]
        kept = Tally()
        kept.resume(tally.remember())
        kept.count(length, rows)
        tally, at = kept, at + length
    assert tally.seen == sum(splits)
    assert tally.bad == tally.seen // 2
    assert tally.failed == {"bad": (tally.bad, "it is odd; it is 1")}
    tally.close()
    tally.count(1, [ErrorRecord(1, "bad", "it is odd", None)])
    assert (tally.admitted, tally.failed["bad"][0]) == (tally.seen // 2, tally.bad - 1)


def test_a_state_that_did_not_count_is_not_judged() -> None:
    tally = Tally()
    tally.resume(None)
    assert tally.seen >= JUDGED
    assert not tally.failed


# --------------------------------------------------------------------- what is said at the end


def test_the_end_says_how_many_dead_letters_nobody_took(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline = of_list(records(bad=2, of=5))
    text = "lowwater: 2 of 5 records became dead letters, and nothing took them (null_time 2)."
    for run in (
        lambda **how: list(pipeline.run(**how)),
        pipeline.to_arrow,
        lambda **how: pipeline.write_to(sinks.Callback(str)).run(**how),
    ):
        run()
        assert text in capsys.readouterr().err
        taken: list[lw.ErrorRecord] = []
        run(on_dead_letter=taken.append)
        assert len(taken) == 2
        assert capsys.readouterr().err == ""
    assert len(pipeline.collect().errors) == 2
    pipeline.write_jsonl(tmp_path / "out.jsonl").run()
    assert dead_letters(tmp_path) == [0, 1]
    assert capsys.readouterr().err == ""


def test_the_progress_line_marks_more_than_one_per_cent() -> None:
    metrics = Metrics(events=200)
    metrics.errors["null_time"] = 2
    assert progress_text(metrics).endswith("2 errors")
    metrics.errors["null_time"] = 3
    assert progress_text(metrics).endswith("3 errors (!)")


# ------------------------------------------------------------------------ times that are numbers


@pytest.mark.parametrize(
    ("at", "unit"),
    [
        (1_714_564_800, "s"),
        (1_714_564_800_000, "ms"),
        (1_714_564_800 * 10**9, "ns"),
        (7, "s"),
        (-1_714_564_800, "s"),
    ],
)
@pytest.mark.parametrize("source", ["list", "table"])
def test_numbers_that_look_like_another_unit(at: int, unit: str, source: str) -> None:
    rows = [{"at": at, "k": "a", "v": 1}, {"at": at + 1, "k": "a", "v": 1}]

    def pipeline(**options: Any) -> lw.Pipeline:
        if source == "list":
            return of_list(rows, **options)
        return summed(lw.from_arrow(pa.Table.from_pylist(rows), time="at", **options))

    for bundle_size in (1, 50_000):
        (text,) = said(pipeline(), bundle_size=bundle_size)
        assert f"{at}" in text or f"{at + 1}" in text
        assert f'unit="{unit}"' in text
    assert said(pipeline(unit="us")) == []
    assert said(pipeline(unit=unit)) == []


@pytest.mark.parametrize(
    "at",
    [
        AT,
        0,
        lw.Instant(5),
        "1970-01-01T00:00:05Z",
        dt.datetime(1970, 1, 1, 0, 0, 5, tzinfo=dt.UTC),
    ],
)
def test_times_that_are_meant_are_not_warned_about(at: Any) -> None:
    assert said(of_list([{"at": at, "k": "a", "v": 1}])) == []


def test_one_early_time_among_others_is_no_matter_of_units() -> None:
    rows = [{"at": at, "k": "a", "v": 1} for at in (5, AT, AT + 1)]
    assert said(of_list(rows)) == []


@pytest.mark.parametrize(
    ("at", "given", "unit"),
    [
        (1_714_564_800_000, "s", "ms"),
        (1_714_564_800_000_000, "ms", "us"),
    ],
)
def test_a_unit_that_was_named_and_leads_beyond_the_year_9999(
    at: int, given: str, unit: str
) -> None:
    (text,) = said(of_list([{"at": at, "k": "a", "v": 1}], unit=given))
    assert f"'at' is {at}" in text
    assert f'after the year 9999 with unit="{given}"' in text
    assert f'Write unit="{unit}"' in text


@pytest.mark.parametrize("filtered", [False, True])
@pytest.mark.parametrize("step", ["map", "with_columns"])
def test_units_are_judged_by_the_times_that_steps_compute(step: str, filtered: bool) -> None:
    rows = [{"at": "2024-05-01T12:00:00Z", "ts": 1_714_564_800, "k": "a", "v": 1}]
    stream = lw.from_iterable(rows, time="at")
    if filtered:
        stream = stream.filter(lw.col("v") == 1)
    if step == "map":
        stream = stream.map(lambda row: row | {"at": row["ts"]})
    else:
        stream = stream.with_columns(at=lw.col("ts"))
    (text,) = said(summed(stream))
    assert "'at' is 1714564800" in text
    assert 'unit="s"' in text


def test_times_that_steps_compute_are_looked_at_afterwards() -> None:
    rows = [{"at": 1_714_564_800, "k": "a", "v": 1}]
    stream = lw.from_iterable(rows, time="at").map(lambda row: row | {"at": row["at"] * 1_000_000})
    assert said(summed(stream)) == []
