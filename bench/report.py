"""Tables, the text around them, and progress messages."""

import os
import platform
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import psutil

from bench.measure import Usage
from bench.topics import PARTITIONS
from rig import KAFKA_VERSION

__all__ = ["Result", "heading", "machine", "markdown", "say", "table", "versions"]

GIGABYTE = 1_000_000_000


@dataclass(frozen=True)
class Result:
    """A mover on a topic: one run on a small topic, one on a large one of the same shape.

    A run costs its start plus an amount for each byte. Two runs are enough to separate them: the steady
    state is the cost of the additional bytes of the large run, and the start is the rest of the small run.
    This holds for every mover alike, without instrumentation of any of them.

    Attributes:
        wire_bytes: The large topic's batches, as they are stored and sent.
        small_bytes: Uncompressed, as are `large_bytes`.
    """

    topic: str
    mover: str
    wire_bytes: int
    small_bytes: int
    large_bytes: int
    small: Usage
    large: Usage

    def steady(self, of_run: str) -> float:
        """Return one field of `Usage` for a further uncompressed GB."""
        more = getattr(self.large, of_run) - getattr(self.small, of_run)
        return float(more) / ((self.large_bytes - self.small_bytes) / GIGABYTE)

    def start(self, of_run: str) -> float:
        """Return one field of `Usage` for a run up to its first byte."""
        return float(getattr(self.small, of_run)) - self.steady(of_run) * self.small_bytes / GIGABYTE

    def cells(self) -> list[str]:
        jvm, python = self.steady("jvm_cpu_s"), self.steady("python_cpu_s")
        start_cpu_s = self.start("jvm_cpu_s") + self.start("python_cpu_s")
        return [
            self.topic,
            f"{self.wire_bytes / self.large_bytes:.0%}",
            self.mover,
            _megabytes_per_second(self.steady("wall_s")),
            f"**{jvm + python:.2f}**",
            f"{jvm:.2f}",
            f"{python:.2f}",
            f"{self.steady('source_cpu_s'):.2f}",
            f"{self.steady('destination_cpu_s'):.2f}",
            f"{self.start('wall_s'):.1f}",
            f"{start_cpu_s:.1f}",
            f"{self.large.jvm_peak_rss / 1e6:.0f}",
            f"{self.large.python_peak_rss / 1e6:.0f}",
        ]


_COLUMNS = [
    "topic",
    "wire",
    "mover",
    "MB/s",
    "CPU-s/GB",
    "of it JVM",
    "of it Python",
    "source broker",
    "destination broker",
    "start, s",
    "start, CPU-s",
    "peak RSS JVM, MB",
    "peak RSS Python, MB",
]


def table(results: Sequence[Result]) -> str:
    """Return a Markdown table that is also readable as plain text."""
    rows = [_COLUMNS, *(result.cells() for result in results)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_COLUMNS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, "|" + "|".join("-" * (width + 2) for width in widths) + "|")
    return "\n".join(lines)


def heading(small_megabytes: int, large_megabytes: int, repeat: int) -> str:
    """Return the conditions that a reader needs to compare the numbers with others."""
    return "\n".join(
        [
            f"## {datetime.now(UTC):%Y-%m-%d}",
            "",
            f"{machine()}; "
            f"two Kafka {KAFKA_VERSION} brokers (KRaft) and the mover on this machine, loopback; "
            f"{versions('confluent-kafka', 'pyspark')}.",
            f"Topics of {small_megabytes} and {large_megabytes} MB, {PARTITIONS} partitions; "
            f"{_times(repeat)}.",
            "MB and GB are of uncompressed records, of 1,000 bytes each; *wire* says how many of these bytes "
            "are left in the topic's batches.",
            "MB/s, CPU-s/GB and the brokers' CPU are of the steady state: the large run less the small one. "
            "*start* is what is left of the small run.",
            "",
        ]
    )


def machine() -> str:
    """Return the machine and its software, as one sentence without its end."""
    memory = psutil.virtual_memory().total / GIGABYTE
    return (
        f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GB; "
        f"{platform.system()} {platform.release()}, Python {platform.python_version()}"
    )


def markdown(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def say(line: str) -> None:
    """Print the next step and the time on stderr."""
    print(time.strftime("%X"), line, file=sys.stderr, flush=True)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell.ljust(width) for cell, width in zip(cells, widths, strict=True))
    return "| " + " | ".join(padded) + " |"


def _megabytes_per_second(seconds_per_gigabyte: float) -> str:
    return f"{1000 / seconds_per_gigabyte:.0f}" if seconds_per_gigabyte > 0 else "-"


def _times(repeat: int) -> str:
    return "one run each" if repeat == 1 else f"medians of {repeat} runs"


def versions(*packages: str) -> str:
    """Return names and versions of these packages, if they are installed."""
    found = []
    for package in packages:
        try:
            found.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found)


def _processor() -> str:
    try:
        cpuinfo = Path("/proc/cpuinfo").read_text()
    except OSError:
        cpuinfo = ""
    names = [line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")]
    return names[0] if names else platform.machine()
