"""shoal: the command, through Spark.

The command runs by the native path if ``shoal._native`` can be imported, and in pure Python
(``SHOAL_PURE_PYTHON=1``); and another commit's shoal may run beside them.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from bench.measure import MoverFailed
from bench.mover import Command, Job
from rig import create_topic
from rig.cluster import java_properties
from rig.shoal import shoal_command
from shoal.native import NATIVE

__all__ = [
    "Code",
    "Shoal",
    "code_before",
    "gc_log_of_spark",
    "has_native",
    "native",
    "pure_python",
]

_PURE = "SHOAL_PURE_PYTHON"


@dataclass(frozen=True)
class Code:
    """The code of a shoal to measure.

    Attributes:
        name: Added to the names of its movers.
        environment: Variables that select it.
        directory: The root of its repository; None for this one.
        python: The interpreter of its environment.
    """

    name: str
    environment: Mapping[str, str] = field(default_factory=dict)
    directory: Path | None = None
    python: str = sys.executable

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of ``shoal`` with these arguments."""
        return shoal_command(*arguments, python=self.python)

    def output_of(self, what: str, command: Sequence[str], timeout_s: float) -> str:
        """Run a command of the bench with this code, and return its output; raises MoverFailed."""
        ended = subprocess.run(
            command,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
        )
        if ended.returncode != 0:
            raise MoverFailed(f"{what}, {self.name}: exit code {ended.returncode}\n{ended.stderr}")
        return ended.stdout


def has_native() -> bool:
    """Return whether shoal takes its native path in this environment."""
    return NATIVE is not None


def native() -> Code:
    return Code("native")


def pure_python() -> Code:
    return Code("pure Python", {_PURE: "1"})


def code_before(root: Path, python: str) -> Code:
    """Return the code of another commit, in its work tree, with the packages of this Python."""
    return Code("before", {"PYTHONPATH": str(root / "src")}, root, python)


@dataclass(frozen=True)
class Shoal:
    """``shoal mirror``.

    Attributes:
        options: Further options of the command; they are part of the name.
        follows: Whether it waits for more at the end of the topic; otherwise it ends (``--once``).
    """

    code: Code
    options: Sequence[str] = ()
    follows: bool = False

    @property
    def name(self) -> str:
        return " ".join([f"shoal, {self.code.name}", *self.options])

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        create_topic(job.destination, job.copy, job.partitions)
        yield Command(
            self._mirror(job),
            job.copy,
            ends_by_itself=not self.follows,
            environment=self.code.environment,
            directory=self.code.directory,
        )

    def _mirror(self, job: Job) -> Sequence[str]:
        between = ["--from", job.reads_from, "--to", job.writes_to]
        if job.java_properties:
            properties = job.directory / "tls.properties"
            properties.write_text(java_properties(job.java_properties))
            assert job.listeners is not None
            between += ["--to-config", str(properties)]
            between += [] if job.listeners.source_is_plain else ["--from-config", str(properties)]
        topics = ["--topics", job.topic, "--rename", f"{job.topic}={job.copy}"]
        # A separate group: each run copies everything.
        group = ["--group", job.copy]
        own = [*gc_log_of_spark(job), *([] if self.follows else ["--once"])]
        return self.code.command("mirror", *between, *topics, *group, *own, *self.options)


def gc_log_of_spark(job: Job) -> list[str]:
    """Return the options that let Spark's JVM log its garbage collections."""
    return ["--conf", f"spark.driver.extraJavaOptions={job.gc_log_option}"]
