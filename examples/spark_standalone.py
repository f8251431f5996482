"""Run a small cluster on this machine: a master, two workers, and a job sent by spark-submit.

    python examples/spark_standalone.py

lowwater is not installed on the workers: spark-submit sends it as a zip (``--py-files``). Its
dependencies are there because all processes share this Python. Elsewhere, send an environment
(``--archives``, packed with venv-pack or conda-pack): compiled packages cannot be imported from a
zip.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pyspark

import lowwater
from lowwater.spark import recommended

HOST = "127.0.0.1"
SPARK_HOME = Path(pyspark.__file__).parent
JOB = Path(__file__).with_name("spark_job.py")
SECONDS = 60
BRIEFLY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # short-lived JVMs: skip optimization


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="lowwater-cluster-") as place, ExitStack() as stack:
        folder = Path(place)
        write_rides(folder / "rides")
        archive = write_archive(folder / "lowwater.zip")
        port = free_port()
        master = f"spark://{HOST}:{port}"
        stack.enter_context(
            daemon(
                folder / "master",
                "org.apache.spark.deploy.master.Master",
                *("--host", HOST, "--port", str(port), "--webui-port", "0"),
            )
        )
        wait_for(port)
        for number in (1, 2):
            work = folder / f"worker-{number}"
            stack.enter_context(
                daemon(
                    work,
                    "org.apache.spark.deploy.worker.Worker",
                    *("--host", HOST, "--webui-port", "0", "--cores", "1", "--memory", "1g"),
                    *("--work-dir", str(work / "apps"), master),
                )
            )
        print(submit(master, archive, folder), end="")


def submit(master: str, archive: Path, folder: Path) -> str:
    """Send the job; return what it prints."""
    settings = {
        **recommended(partitions=2),
        "spark.cores.max": "2",
        "spark.executor.cores": "1",
        "spark.executor.memory": "600m",
        "spark.driver.host": HOST,
        "spark.driver.bindAddress": HOST,
        "spark.ui.enabled": "false",
        "spark.driver.extraJavaOptions": BRIEFLY,
        "spark.executor.extraJavaOptions": BRIEFLY,
        # Wait for two executors before the first task, so that both get tasks.
        "spark.scheduler.minRegisteredResourcesRatio": "1.0",
        "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{SECONDS}s",
    }
    command = [str(SPARK_HOME / "bin" / "spark-submit"), "--master", master]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    command += ["--py-files", str(archive), str(JOB)]
    command += [str(folder / name) for name in ("rides", "scores", "state")]
    done = subprocess.run(
        command, env=environment(), cwd=folder, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"the job failed:\n{done.stderr}\n{done.stdout}")
    return done.stdout


def write_rides(folder: Path) -> None:
    """Write three files of rides, each covering two minutes."""
    folder.mkdir()
    for file in range(3):
        lines = [
            json.dumps(
                {
                    "at": f"2000-01-01T12:{file * 2 + n // 60:02}:{n % 60:02}Z",
                    "team": "ABC"[n % 3],
                    "points": n,
                }
            )
            for n in range(120)
        ]
        (folder / f"{file}.json").write_text("\n".join(lines) + "\n")


def write_archive(path: Path) -> Path:
    """Write the package as an archive that Python can import from."""
    package = Path(lowwater.__file__).parent
    with zipfile.ZipFile(path, "w") as archive:
        for file in sorted(package.rglob("*.py")):
            archive.write(file, file.relative_to(package.parent))
    return path


@contextmanager
def daemon(folder: Path, *command: str) -> Generator[None, None, None]:
    """Run a daemon of Spark, with its log in a folder, and stop it at the end."""
    folder.mkdir()
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(
            [str(SPARK_HOME / "bin" / "spark-class"), *command],
            env=environment(),
            cwd=folder,
            stdout=log,
            stderr=log,
        )
        try:
            yield
        finally:
            process.terminate()
            process.wait(SECONDS)


def environment() -> dict[str, str]:
    """Return the environment of all processes: this Python, and lowwater not on its path."""
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return {
        **own,
        "SPARK_HOME": str(SPARK_HOME),
        "SPARK_DAEMON_JAVA_OPTS": BRIEFLY,
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONWARNINGS": "ignore::FutureWarning",  # pyspark's, in each worker
    }


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as found:
        found.bind((HOST, 0))
        return int(found.getsockname()[1])


def wait_for(port: int) -> None:
    """Wait until something listens on a port."""
    until = time.monotonic() + SECONDS
    while True:
        try:
            socket.create_connection((HOST, port), timeout=SECONDS).close()
        except ConnectionRefusedError:
            if time.monotonic() > until:
                raise
            time.sleep(0.1)
        else:
            return


if __name__ == "__main__":
    main()
