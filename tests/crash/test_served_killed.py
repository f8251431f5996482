"""A run that is killed while its metrics are read: over all restarts, counters only grow."""

from __future__ import annotations

import http.client
import json
import random
import socket
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.paths import ROOT

RECORDS, DEATHS = 24_000, 8
# Of this process, as their help says: Prometheus handles that they begin again.
_OF_PROCESS = ("lowwater_commit", "lowwater_delivered")


def scrape(port: int) -> dict[tuple[str, str], float] | None:
    """Return the counters of a run; ``None`` if it does not answer."""
    try:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=5)) as asked:
            asked.request("GET", "/metrics")
            answer = asked.getresponse()
            text = answer.read().decode()
    except (OSError, http.client.HTTPException):
        return None
    if answer.status != 200:
        return None
    return {
        (sample.name, repr(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        if family.type == "counter" and not family.name.startswith(_OF_PROCESS)
        for sample in family.samples
    }


@pytest.mark.long(reason="kills programs")
def test_counters_never_go_back_however_often_the_run_is_killed(tmp_path: Path) -> None:
    draw = random.Random(7)
    (tmp_path / "in").mkdir()
    for part in range(4):
        with (tmp_path / "in" / f"{part}.jsonl").open("w") as file:
            for n in range(part * RECORDS // 4, (part + 1) * RECORDS // 4):
                at = None if n % 97 == 0 else n - (600 if n % 53 == 0 else 0)
                file.write(json.dumps({"at": at, "key": "abc"[n % 3], "n": n}) + "\n")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    most: dict[tuple[str, str], float] = {}
    answers = deaths = 0
    ended = False
    while not ended:
        with subprocess.Popen(
            [sys.executable, "-m", "tests.crash.served_to_kill", str(tmp_path), str(port)],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            until = None
            while process.poll() is None:
                found = scrape(port)
                if found is not None:
                    answers += 1
                    if until is None and deaths < DEATHS:
                        until = time.monotonic() + draw.uniform(0, 0.4)
                    for name, value in found.items():
                        assert value >= most.get(name, 0), name
                    lost = most.keys() - found.keys()
                    assert not lost
                    most = found
                if until is not None and time.monotonic() > until:
                    process.kill()
                    deaths += 1
                    break
                time.sleep(0.02)
            output, errors = process.communicate()
            ended = "ended" in output
            assert ended or process.returncode == -9, errors
    assert answers > DEATHS
    assert deaths == DEATHS, "the run has ended before it was killed so often"
    assert most["lowwater_records_total", "[]"] <= RECORDS
