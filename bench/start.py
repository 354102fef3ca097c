"""The time in which a mirror copies its first batch: ``python -m bench.start --help``.

All starts share one state directory, empty at first: it caches parts of Spark's start. Each mirror is a
separate command, between two new embedded brokers of this process. The clock runs from the command to the
first batch in the destination's log.
"""

import argparse
import contextlib
import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from confluent_kafka import Producer

from bench.measure import MoverFailed, ProcessTree
from bench.report import machine, versions
from rig import wait_until
from rig.process import adopting_orphans
from shoal.broker import Broker

__all__ = ["Start", "measure_start"]

_RESULTS = Path(__file__).parent / "results.md"
_TOPIC = "orders"
_PARTITIONS = 2
_RECORDS = 100
_LOOK_INTERVAL_S = 0.02
_TIMEOUT_S = 300.0
_ARCHIVE_TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Start:
    """One start of a mirror.

    Attributes:
        once: With ``--once``, or as a service.
        number: Number of starts with this state directory so far, including this one.
        first_batch_s: Time from the command to the first batch at the destination.
        jvm_cpu_s: User and system time of Spark's JVM until then.
        python_cpu_s: User and system time of the driver and of all Python processes of Spark.
        load: Runnable processes on this machine in the minute before, including this measurement.
    """

    once: bool
    number: int
    first_batch_s: float
    jvm_cpu_s: float
    python_cpu_s: float
    load: float


def measure_start(state: Path, number: int, *, once: bool) -> Start:
    """Start a mirror and wait for its first batch, then for its end and its background work.

    Raises:
        MoverFailed: The mirror ended without copying.
    """
    load = os.getloadavg()[0]
    with _brokers() as (source, destination), tempfile.TemporaryDirectory(prefix="bench-start-") as directory:
        command = [sys.executable, "-m", "shoal", "mirror", "--topics", _TOPIC, "--checkpoint", directory]
        command += ["--from", source.bootstrap, "--to", destination.bootstrap]
        environ = {**os.environ, "XDG_STATE_HOME": str(state)}
        with adopting_orphans(), (Path(directory) / "output").open("wb") as output:
            began = time.monotonic()
            process = subprocess.Popen(
                [*command, "--once"] if once else command,
                env=environ,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            tree = ProcessTree(process.pid)
            try:
                while not _copied(destination):
                    tree.sample()
                    if process.poll() is not None or time.monotonic() > began + _TIMEOUT_S:
                        raise MoverFailed(Path(output.name).read_text())
                    time.sleep(_LOOK_INTERVAL_S)
                first_batch_s = time.monotonic() - began
                tree.sample()
                if not once:
                    process.terminate()
                process.wait(_TIMEOUT_S)
            finally:
                process.kill()
                process.wait()
                tree.reap()
    _wait_for_archive(state)
    return Start(once, number, first_batch_s, tree.jvm_cpu_s, tree.python_cpu_s, load)


@contextlib.contextmanager
def _brokers() -> Iterator[tuple[Broker, Broker]]:
    with Broker(cluster_id="source") as source, Broker(cluster_id="destination") as destination:
        source.create_topic(_TOPIC, _PARTITIONS)
        producer = Producer({"bootstrap.servers": source.bootstrap, "compression.type": "lz4"})
        for number in range(_RECORDS):
            producer.produce(_TOPIC, f"record {number}", partition=number % _PARTITIONS)
        if producer.flush(60):
            raise MoverFailed("loading the source failed")
        yield source, destination


def _copied(destination: Broker) -> bool:
    topic = destination.topics.get(_TOPIC)
    return topic is not None and any(log.log_end_offset for log in topic.logs)


def _wait_for_archive(state: Path) -> None:
    """Wait until no process is creating a class data archive, under its lock."""

    def all_free() -> bool:
        return all(_is_free(mark) for mark in (state / "shoal" / "class-archives").glob("*.seen"))

    wait_until(all_free, "Spark's class data archive", timeout_s=_ARCHIVE_TIMEOUT_S)


def _is_free(file: Path) -> bool:
    with file.open() as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
    return True


def _table(starts: Sequence[Start]) -> str:
    rows = [
        "| mirror | start | first batch, s | CPU-s until then | of it JVM | of it Python | load before |",
        "|--------|-------|----------------|------------------|-----------|--------------|-------------|",
    ]
    for each in starts:
        mirror = "`--once`" if each.once else "service"
        cpu_s = each.jvm_cpu_s + each.python_cpu_s
        rows.append(
            f"| {mirror} | {each.number} | **{each.first_batch_s:.1f}** | {cpu_s:.1f} | {each.jvm_cpu_s:.1f} "
            f"| {each.python_cpu_s:.1f} | {each.load:.1f} |"
        )
    return "\n".join(rows)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.start", description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--starts", type=int, default=4, help="number of starts with one state directory (default: 4)"
    )
    parser.add_argument("--append", action="store_true", help="append the result to bench/results.md")
    args = parser.parse_args()
    starts = []
    for once in (True, False):
        with tempfile.TemporaryDirectory(prefix="bench-state-") as state:
            for number in range(1, args.starts + 1):
                starts.append(measure_start(Path(state), number, once=once))
                print(_table(starts).splitlines()[-1], flush=True)
    section = (
        f"\n## Start, {datetime.now(UTC):%Y-%m-%d}\n\n{machine()}; two embedded brokers and the mover on "
        f"this machine, loopback; {versions('pyspark', 'pyarrow')}.\n\n{_table(starts)}\n"
    )
    print(section)
    if args.append:
        with _RESULTS.open("a") as results:
            results.write(section)


if __name__ == "__main__":
    main()
