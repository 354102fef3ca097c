"""
What a mover is: anything that copies one topic when a command is run.

To add one, make an object with a ``name`` and a ``command`` and put it into `bench.movers.MOVERS`.
Where a single command does it all, `PlainCommand` is that object:

    PlainCommand("shoal", lambda job: ["shoal", "mirror", "--once",
                                       "--from", job.source, "--to", job.destination,
                                       "--topics", job.topic, "--rename", f"{job.topic}={job.copy}"])
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.topics import PARTITIONS
from rig import create_topic
from rig.load import Codec

__all__ = ["Command", "Job", "Mover", "PlainCommand"]


@dataclass(frozen=True)
class Job:
    """
    One topic to copy once.

    Attributes:
        source: Bootstrap servers of the source cluster.
        destination: Bootstrap servers of the destination cluster.
        topic: In the source, complete before the mover starts.
        copy: The name it should have in the destination, never used before.
        codec: What the topic's batches are compressed with.
        directory: Empty, and deleted after the run.
        beside: Another topic of the source, which a mover that runs on copies too.

    """

    source: str
    destination: str
    topic: str
    copy: str
    codec: Codec
    directory: Path
    beside: str | None = None

    @property
    def topics(self) -> str:
        """All topics to copy, with commas between."""
        return ",".join(filter(None, (self.topic, self.beside)))

    @property
    def gc_log(self) -> Path:
        """Where the mover's JVM logs its garbage collections, if it is started with `gc_log_option`."""
        return self.directory / "gc.log"

    @property
    def gc_log_option(self) -> str:
        return f"-Xlog:gc:file={self.gc_log}:time:filecount=0"


@dataclass(frozen=True)
class Command:
    """
    How to start a mover.

    Attributes:
        arguments: The command line. The process and all its descendants are what is measured.
        copy: The destination topic in which copied records are counted; None where there is none.
        ends_by_itself: False for a mover that runs on: it is stopped when everything is copied.
        environment: Variables added to the environment.

    """

    arguments: Sequence[str]
    copy: str | None
    ends_by_itself: bool = True
    environment: Mapping[str, str] = field(default_factory=dict)


class Mover(Protocol):
    """Something that copies a topic."""

    @property
    def name(self) -> str:
        """What the table calls it."""

    def command(self, job: Job) -> AbstractContextManager[Command]:
        """
        Prepare a run, unmeasured, and give the command.

        The context ends after the run; what was started to prepare it ends with it.
        """


@dataclass(frozen=True)
class PlainCommand:
    """A mover that copies ``job.topic`` into the existing, empty ``job.copy`` and ends."""

    name: str
    arguments: Callable[[Job], Sequence[str]]

    @contextmanager
    def command(self, job: Job) -> Iterator[Command]:
        create_topic(job.destination, job.copy, PARTITIONS, config={"compression.type": "producer"})
        yield Command(self.arguments(job), job.copy)
