"""shoal, twice: the command, through Spark; and its copy loop alone, in one plain process."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from bench.mover import Command, Job, PlainCommand
from bench.topics import PARTITIONS
from rig import create_topic, wait_until

__all__ = ["COPY_LOOP", "SHOAL"]


@dataclass(frozen=True)
class Shoal:
    """``shoal mirror --once``, with the state of an earlier run (Spark's cached classes)."""

    name: str = "shoal"

    @cached_property
    def _state(self) -> tempfile.TemporaryDirectory[str]:
        return tempfile.TemporaryDirectory(prefix="bench-state-")

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        environment = {"XDG_STATE_HOME": self._state.name}
        self._use_it_before(job, environment)
        create_topic(job.destination, job.copy, PARTITIONS, config={"compression.type": "producer"})
        yield Command(_mirror(job), job.copy, environment=environment)

    def _use_it_before(self, job: Job, environment: dict[str, str]) -> None:
        """Mirror an empty topic, unmeasured, until Spark's class data archive exists."""
        if self._has_archive():
            return
        empty = replace(job, topic=f"{job.copy}_empty", copy=f"{job.copy}_empty_copy")
        create_topic(job.source, empty.topic)
        # The first start leaves a mark, the second creates the archive in the background.
        for _ in range(2):
            subprocess.run(_mirror(empty), env={**os.environ, **environment}, check=True, capture_output=True)
        wait_until(self._has_archive, "Spark's class data archive", timeout_s=300)

    def _has_archive(self) -> bool:
        return any(Path(self._state.name).glob("shoal/class-archives/*.jsa"))


def _mirror(job: Job) -> Sequence[str]:
    between = ["--from", job.source, "--to", job.destination]
    topics = ["--topics", job.topic, "--rename", f"{job.topic}={job.copy}"]
    # A separate group: each run copies everything.
    return [sys.executable, "-m", "shoal", "mirror", "--once", *between, *topics, "--group", job.copy]


SHOAL = Shoal()

COPY_LOOP = PlainCommand(
    "shoal's copy loop",
    lambda job: [sys.executable, "-m", "bench.copy_loop", job.source, job.destination, job.topic, job.copy],
)
