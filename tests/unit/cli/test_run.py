"""``lowwater run``: its target, its formats, its files and its state."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lowwater
from lowwater.cli.main import main
from lowwater.io.terminal import PaneTable

CODE = """
import lowwater as lw

counts = (
    lw.read_jsonl(IN, time="at", watermark=lw.Ascending())
    .key_by("shop")
    .window(lw.FixedWindows("1m"))
    .aggregate(n=lw.count(), items=lw.collect("item"))
)
"""

ENDLESS = """
from itertools import count

import lowwater as lw

def sales():
    for minute in count():
        yield {"at": 60_000_000 * minute + 1_714_564_800_000_000, "shop": "here", "item": minute}
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    sales = [
        {"at": f"2024-05-01T12:0{minute}:10Z", "shop": "on the corner", "item": ["tea", "cup"]}
        for minute in range(5)
    ]
    Path("sales.jsonl").write_text("".join(json.dumps(sale) + "\n" for sale in sales))
    path = tmp_path / "sales.py"
    path.write_text(CODE.replace("IN", repr("sales.jsonl")))
    return path


def _printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(["run", *arguments]) == 0
    return capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(["--version"])
    assert exit_.value.code == 0
    assert capsys.readouterr().out == f"lowwater {lowwater.__version__}\n"


def test_the_only_pipeline_of_a_file_needs_no_name(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _printed(capsys, str(file)).count("ON_TIME") == 5
    file.write_text(file.read_text() + "\nagain = counts  # another name of the same one\n")
    assert _printed(capsys, str(file)).count("ON_TIME") == 5


def test_a_file_without_a_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "empty.py"
    path.write_text("def made(): ...\n")
    assert main(["run", str(path)]) == 2
    assert "has no pipeline at its top level" in capsys.readouterr().err


def test_a_pipeline_and_its_output_are_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file.write_text(file.read_text() + '\nout = counts.write_jsonl("out.jsonl")\n')
    assert _printed(capsys, str(file)) == ""
    assert len(Path("out.jsonl").read_text().splitlines()) == 5
    assert main(["diagram", str(file), "-o", "out.svg"]) == 0
    file.write_text(file.read_text() + '\nother = counts.named("other")\n')
    assert main(["run", str(file)]) == 2
    assert "several pipelines: counts, out, other" in capsys.readouterr().err


@pytest.mark.parametrize("format_", ["table", "csv", "jsonl"])
def test_a_limit_stops_the_run(
    file: Path, format_: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(file), "--format", format_, "--limit", "2"]) == 0
    out, err = capsys.readouterr()
    assert len(out.splitlines()) == 2 + (format_ != "jsonl")
    assert err == "stopped after 2 panes\n"


def test_comma_separated_values(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, *_ = rows = list(
        csv.DictReader(io.StringIO(_printed(capsys, str(file), "--format", "csv")))
    )
    assert len(rows) == 5
    assert (first["shop"], first["n"]) == ("on the corner", "1")
    assert first["window_start"] == "2024-05-01T12:00:00Z"
    assert json.loads(first["items"]) == [["tea", "cup"]]


def test_without_panes_there_is_still_a_heading(
    file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("sales.jsonl").write_text("")
    file.write_text(file.read_text().replace(', items=lw.collect("item")', ""))
    assert _printed(capsys, str(file), "--format", "csv").startswith(
        "shop,window_start,window_end,n"
    )


@pytest.mark.parametrize("name", ["out.csv", "out.jsonl", "out.txt"])
def test_a_file_has_what_would_be_printed(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _printed(capsys, str(file), "-o", name) == ""
    assert Path(name).read_text().count("on the corner") == 5


@pytest.mark.parametrize("arguments", [["-o", "sales.jsonl"], ["-o", "./sales.jsonl"]])
def test_what_is_read_is_not_replaced(
    file: Path, arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = Path("sales.jsonl").read_bytes()
    assert main(["run", str(file), *arguments]) == 2
    assert "lies where the run reads 'sales.jsonl'" in capsys.readouterr().err
    assert Path("sales.jsonl").read_bytes() == before


def test_a_store_holds_folders_only(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    uri = "s3://bucket/out.jsonl?endpoint_override=127.0.0.1%3A1"
    for options, said in (
        ([], "where only folders are written"),
        (["--state", "s"], "no file can"),
    ):
        assert main(["run", str(file), "-o", uri, *options]) == 2
        assert f"'s3://bucket/out.jsonl' is {'one file ' * bool(options)}in" in (
            shown := capsys.readouterr().err
        )
        assert said in shown


@pytest.mark.parametrize("target", ["{}", "{}:counts"])
def test_the_program_is_not_replaced(
    file: Path, target: str, capsys: pytest.CaptureFixture[str]
) -> None:
    before = file.read_bytes()
    arguments = ["run", target.format(file), "--format", "jsonl", "-o", str(file)]
    assert main(arguments) == 2
    assert "is the program itself" in capsys.readouterr().err
    assert file.read_bytes() == before


@pytest.mark.parametrize("name", ["out.jsonl", "out.late.jsonl", "out.errors.jsonl"])
def test_the_output_of_a_run_with_state_is_not_replaced(
    file: Path, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    _printed(capsys, str(file), "--state", "state", "-o", "out.jsonl")
    Path(name).touch()
    before = Path(name).read_bytes()
    assert main(["run", str(file), "-o", name]) == 2
    assert f"'{name}' holds the output of a run" in capsys.readouterr().err
    assert Path(name).read_bytes() == before


def test_one_file_of_parquet(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _printed(capsys, str(file), "-o", "out.parquet", "--limit", "3")
    assert pq.read_table("out.parquet")["n"].to_pylist() == [1, 1, 1]
    Path("sales.jsonl").write_text("")
    _printed(capsys, str(file), "-o", "out.parquet", "--limit", "3")
    assert pq.read_table("out.parquet").num_rows == 0


@pytest.mark.parametrize("stream", ["generator", "follow"])
def test_a_limit_ends_what_never_ends_also_into_parquet(
    file: Path, stream: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = file.read_text()
    if stream == "follow":
        text = text.replace("watermark=", "follow=True, watermark=")
    else:
        text = text.replace("lw.read_jsonl('sales.jsonl', ", "lw.from_iterable(sales(), ")
        text = text.replace("import lowwater as lw", ENDLESS)
    file.write_text(text)
    assert main(["run", str(file), "-o", "out.parquet", "--limit", "3"]) == 0
    assert capsys.readouterr().err == "stopped after 3 panes\n"
    assert pq.read_table("out.parquet")["n"].to_pylist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "out.xls"], "the format of 'out.xls' cannot be told from its name"),
        (["-o", "no/such/out.csv"], "'no/such/out.csv' cannot be written"),
        (["-o", "no/such/out.parquet"], "'no/such/out.parquet' cannot be written"),
        (["--state", "state"], "--state needs an output"),
        (["--state", "state", "-o", "out.csv"], "cannot write 'out.csv'"),
        (["--state", "state", "-o", "out.jsonl", "--limit", "1"], "--limit does not apply"),
        (["--remove", "counts"], "--remove does not apply: there is no --state"),
        (["--drop-undelivered"], "--drop-undelivered does not apply"),
        (["--state", "s", "-o", "out.jsonl", "--remove", "stage 1"], "the pipeline still has it"),
    ],
)
def test_options_that_do_not_fit(
    file: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(file), *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(("output", "parts"), [("out.jsonl", "out.jsonl"), ("out", "out/part-*")])
def test_a_run_with_state_resumes(
    file: Path, output: str, parts: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        given = ["--remove", "former", "--drop-undelivered", "--state", "state", "-o", output]
        assert _printed(capsys, str(file), *given) == ""
    assert [path.exists() for path in Path().glob(parts)] == [True]
    assert main(["state", "info", "state"]) == 0


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_table_fits_the_terminal(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "90")
    terminal = _Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    assert main(["run", str(file)]) == 0
    lines = terminal.getvalue().splitlines()
    assert len(lines) == 6
    assert max(map(len, lines)) <= 90
    assert any("…" in line for line in lines)


def test_elsewhere_a_table_has_whole_cells(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    file.write_text(file.read_text().replace("on the corner", "x" * 60))
    out = _printed(capsys, str(file))
    assert "…" not in out
    assert "[['tea', 'cup']]" in out


def test_a_narrow_terminal_still_has_every_column() -> None:
    stream = io.StringIO()
    run = lowwater.from_iterable([{"at": 0, "shop": "corner"}], time="at").key_by("shop")
    (pane,) = run.window(lowwater.FixedWindows("1m")).aggregate(n=lowwater.count()).run()
    PaneTable(stream, width=10).write(pane)
    heading, row = stream.getvalue().splitlines()
    assert len(heading.split()) == len(row.split()) == 7


def test_until_available(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    job = (
        str(file), "--state", "state", "--output", "out.jsonl", "--until", "available",
        "--summary", "json",
    )  # fmt: skip
    lines = Path("sales.jsonl").read_text().splitlines(keepends=True)
    Path("sales").mkdir()
    file.write_text(CODE.replace("IN", repr("sales")))
    for turn in range(2):
        (Path("sales") / f"{turn}.jsonl").write_text("".join(lines[turn * 2 : turn * 2 + 2]))
        assert main(["run", *job, "--exit-more"]) == 0
        told = json.loads(capsys.readouterr().err)
        assert (told["records"], told["more"]) == (turn * 2 + 2, False)
        assert told["panes"] == {"ON_TIME": turn * 2 + 1}
        assert told["open_windows"] == 1
        assert told["new_records"] == 2
        source, counts = told["watermarks"].values()
        assert source["input"] == f"2024-05-01T12:0{turn * 2 + 1}:10Z"
        assert (source["due"], counts["due_at_clock"]) == (None, None)
        assert counts["due"] == f"2024-05-01T12:0{turn * 2 + 2}:00Z"


def test_more_came_meanwhile(
    file: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = Path("sales.jsonl").read_text()
    Path("sales").mkdir()
    (Path("sales") / "0.jsonl").write_text(lines)
    file.write_text(CODE.replace("IN", repr("sales")))
    write = lowwater.pipeline.Writing.run

    def run(*arguments: Any, **options: Any) -> Any:
        metrics = write(*arguments, **options)
        (Path("sales") / "1.jsonl").write_text(lines)
        return metrics

    monkeypatch.setattr(lowwater.pipeline.Writing, "run", run)
    job = ["run", str(file), "--state", "state", "--output", "out.jsonl", "--until", "available"]
    assert main([*job, "--exit-more"]) == 75
    assert main(job) == 0
    assert "10 events" in capsys.readouterr().err


@pytest.mark.parametrize("extra", [["--until", "available"], ["--exit-more"]])
def test_until_available_needs_a_state(
    extra: list[str], file: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(file), *extra]) == 2
    told = capsys.readouterr().err
    assert "--state" in told or "reads all of it" in told
