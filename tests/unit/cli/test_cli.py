"""The command line: help, running pipelines, errors without a traceback."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lowwater.cli.main import main

CODE = """
import lowwater as lw

items = [{"t": "2000-01-01T12:00:05Z", "k": "a"}, {"t": None, "k": "b"}]
counts = (
    lw.from_iterable(items, time="t", key="k").window(lw.FixedWindows("1m")).aggregate(n=lw.count())
)
written = counts.write_jsonl(OUT)


def made():
    return counts


def broken():
    return lw.FixedWindows("0s")


def fails():
    raise RuntimeError("no such table")


class Number:
    n = lw.value_cell(0)

    def on_record(self, record, ctx):
        ctx.n.set(ctx.n.get() + 1)
        ctx.emit({"n": ctx.n.get()})


numbered = lw.from_iterable(items, time="t").key_by("k").process(Number())


number = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "clicks.py"
    path.write_text(CODE.replace("OUT", repr(str(tmp_path / "out.jsonl"))))
    return path


def test_help(capsys: pytest.CaptureFixture[str]) -> None:
    for arguments in (["--help"], ["run", "--help"], ["demo", "--help"]):
        with pytest.raises(SystemExit) as exit_:
            main(arguments)
        assert exit_.value.code == 0
        assert "usage: lowwater" in capsys.readouterr().out


def test_no_command_shows_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    assert "usage: lowwater" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["counts", "made"])
def test_panes_as_a_table(file: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:{name}"]) == 0
    out, err = capsys.readouterr()
    headings, row = out.splitlines()
    assert headings.split() == ["key", "window", "n", "timing", "pane", "kind", "watermark"]
    assert row.split() == ["a", "2000-01-01", "12:00:00", "+1m", "1", "ON_TIME", "0", "insert",
                           "+inf"]  # fmt: skip
    assert "2 events" in err
    assert "errors: 1 null_time" in err


def test_panes_as_json_lines(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:counts", "--format", "jsonl", "--bundle-size", "1"]) == 0
    (pane,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (pane["k"], pane["n"]) == ("a", 1)


def test_a_pipeline_that_writes(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:written"]) == 0
    assert capsys.readouterr().out == ""
    assert len((file.parent / "out.jsonl").read_text().splitlines()) == 1


def test_a_module_of_the_working_folder(file: Path) -> None:
    command = [sys.executable, "-m", "lowwater", "run", "clicks:counts"]
    root = Path(__file__).parents[3]
    done = subprocess.run(
        command,
        cwd=file.parent,
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(root)},
    )
    assert done.returncode == 0, done.stderr
    assert "ON_TIME" in done.stdout


STOPPED = """
import os, signal
import lowwater as lw


def records():
    for number in range(1_000):
        if number == 500:
            os.kill(os.getpid(), signal.SIGTERM)
        yield {"t": number * 1_000_000, "k": "a"}


read = lw.from_iterable(records(), time="t", key="k", watermark=lw.Ascending())
made = read.window(lw.FixedWindows("10s"))
written = made.aggregate(n=lw.count()).write_jsonl(OUT)
"""


def test_sigterm_is_status_143(tmp_path: Path) -> None:
    """What was read before is delivered; the output says that it is not complete."""
    file, out = tmp_path / "endless.py", tmp_path / "out"
    file.write_text(STOPPED.replace("OUT", repr(str(out))))
    done = subprocess.run(
        [sys.executable, "-m", "lowwater", "run", f"{file}:written", "--bundle-size", "50"],
        capture_output=True, text=True, check=False, timeout=60,
        env={"PYTHONPATH": str(Path(__file__).parents[3])},
    )  # fmt: skip
    assert done.returncode == 143, done.stderr
    assert "stopped by SIGTERM" in done.stderr
    assert "Traceback" not in done.stderr
    lines = [line for path in out.glob("part-*") for line in path.read_text().splitlines()]
    counts = [json.loads(line)["n"] for line in lines]
    assert 0 < sum(counts) <= 550
    assert '"complete": false' in (out / ".lowwater.json").read_text()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        (":counts", "does not name a pipeline"),
        ("clicks.py:", "does not name a pipeline"),
        ("{file}", "has several pipelines: counts, written, numbered. Say which: "),
        ("{file}:count", "Did you mean 'counts'?"),
        ("{file}:number", "is a int, not a pipeline"),
        ("{file}:broken", "must be longer than zero"),
        ("nowhere.py:counts", "there is no file"),
        ("no_such_module:counts", "there is no module"),
        (".", "'.' names no module"),
    ],
)
def test_errors_without_a_traceback(
    file: Path, target: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", target.format(file=file)]) == 2
    err = capsys.readouterr().err
    assert message in err
    assert err.startswith("lowwater: ")
    assert "Traceback" not in err


def test_a_module_that_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "bad.py"
    path.write_text("1 / 0")
    assert main(["run", f"{path}:counts"]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_an_error_while_loading_names_the_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "bad.py"
    path.write_text("import lowwater as lw\n\nlw.FixedWindows('1 minute')\n")
    assert main(["run", str(path)]) == 2
    assert f"(at {path}:3)" in capsys.readouterr().err


def test_a_file_that_is_not_python(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clicks.jsonl").write_text("{}")
    assert main(["run", "clicks.jsonl"]) == 2
    assert "'clicks.jsonl' is not a Python file" in capsys.readouterr().err


def test_bad_data_is_status_one(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:counts", "--on-error", "raise"]) == 1
    assert "null_time" in capsys.readouterr().err


def test_a_wrong_bundle_size(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["run", "a:b", "--bundle-size", "0"])
    assert "--bundle-size" in capsys.readouterr().err


def test_a_process_is_run_and_checked(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:numbered"]) == 0
    out, err = capsys.readouterr()
    assert out.startswith("k=a  n=1  timestamp=")
    assert "2 events" in err
    assert main(["run", f"{file}:numbered", "--format", "jsonl"]) == 0
    (row,) = map(json.loads, capsys.readouterr().out.splitlines())
    assert (row["k"], row["n"]) == ("a", 1)
    assert main(["check", f"{file}:numbered"]) == 0
    assert "1 note\n" in capsys.readouterr().err
    assert main(["explain", f"{file}:numbered"]) == 2
    assert "is a process" in capsys.readouterr().err


def test_a_function_that_raises(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", f"{file}:fails"]) == 2
    assert "failed when it was called: RuntimeError: no such table" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("runn jobs.py", "lowwater: argument COMMAND: there is no 'runn'. Did you mean 'run'?"),
        ("run jobs.py --outputs o", "there is no option '--outputs'. Did you mean '--output'?"),
        ("run jobs.py --outputs=o", "there is no option '--outputs'. Did you mean '--output'?"),
        ("run jobs.py --until availabel", "no 'availabel'. Did you mean 'available'?"),
        ("state inf s", "lowwater state: argument ACTION: there is no 'inf'. Did you mean 'info'?"),
        ("state info s t", "lowwater state info: there is no argument 't'."),
        ("run", "lowwater run: the following arguments are required: TARGET."),
    ],
)
def test_a_slip_in_a_command_is_answered_in_one_line(
    command: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        main(command.split())
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert said in line
    assert line.endswith("--help")


BEHIND = """
import lowwater as lw
events = lw.from_iterable(
    [{"t": f"2024-01-01T00:00:0{at}Z", "k": "a", "v": at} for at in range(9)], time="t"
)
big = (
    events.key_by("k").window(lw.FixedWindows("1s")).aggregate(n=lw.sum("v"))
    .filter(lw.col("n") > 5)
)
"""


def test_a_step_behind_a_pipeline_is_one_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "jobs.py").write_text(BEHIND)
    for target in ("jobs.py", "jobs.py:big"):
        assert main(["run", str(tmp_path / target)]) == 0
        out, told = capsys.readouterr()
        assert [line.split("n=")[1].split()[0] for line in out.splitlines()] == ["6", "7", "8"]
        assert "3 emitted" in told
    # Records as they were read are no pipeline, unless they are named.
    assert main(["run", str(tmp_path / "jobs.py:events"), "--limit", "1"]) == 0
    assert "v=0" in capsys.readouterr().out
    assert main(["explain", str(tmp_path / "jobs.py:big")]) == 2
    assert "is a stream of records, which has no panes" in capsys.readouterr().err
